"""The offload card: its core, and the registers by which a host drives it.

Twin of `gradnic.models.offload.card`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.offload import REGISTERS, TABLE_WORDS, Drop, Table
from gradnic.interface.schedule_table import Layout

from ..axi.axi4 import ReadPort, WritePort
from ..axi.axis import Lite
from ..axi.register_bank import RegisterBank
from ..stream.beats import FrameBeat
from ..transport.records import CHUNK_WIDTH
from .core import OffloadCore


class OffloadCard(wiring.Component):
    """`OffloadCore` behind registers: `gradnic.interface.offload.REGISTERS`.

    Latency and rate are the core's. A round: fill the tables, write the settings, raise ``clear``,
    ``armed`` and ``start``, together or one after the other, wait for ``finished``, lower all
    three. Packets are taken, and the round begins, once ``clearing`` is 0. ``running`` is 1 from
    the write of ``start`` on, and what ``status`` said of the last round is gone. ``interrupt`` is
    1 while an event of the mask is set.

    Parameters
    ----------
    n_bytes, n_ports, layout, others : as of `OffloadCore`
    n_nodes : int
        What ``build`` says of the layout: that of `card` for so many nodes.

    Members
    -------
    host_tx<k>, mac_rx<k> : In; mac_tx<k>, host_rx<k> : Out
        Streams of `FrameBeat`, with the side band of each direction.
    gradient_read, landing_read, gradient_write, landing_write : Out
    bus : In(Lite)
    interrupt : Out(1)
    """

    def __init__(self, n_bytes, n_ports, layout, *, n_nodes, **sizes):
        self.n_nodes = n_nodes
        self.core = OffloadCore(n_bytes, n_ports, layout, **sizes)
        self.layout = layout
        self.numbers = list(map(str, range(n_ports)))
        core, width = self.core, self.core.address_width
        sent = stream.Signature(FrameBeat(core.port_bytes, meta_width=core.meta_width))
        received = stream.Signature(FrameBeat(core.port_bytes, meta_width=core.rx_meta_width))
        members = {}
        for number in self.numbers:
            members |= {
                f"host_tx{number}": In(sent),
                f"mac_tx{number}": Out(sent),
                f"mac_rx{number}": In(received),
                f"host_rx{number}": Out(received),
            }
        super().__init__(
            members
            | {
                "gradient_read": Out(ReadPort(n_bytes, width)),
                "gradient_write": Out(WritePort(n_bytes, width)),
                "landing_read": Out(ReadPort(n_bytes, width)),
                "landing_write": Out(WritePort(n_bytes, width)),
                "bus": In(Lite(REGISTERS.address_width)),
                "interrupt": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = core = self.core
        m.submodules.bank = bank = RegisterBank(REGISTERS)
        wiring.connect(m, wiring.flipped(self.bus), bank.bus)
        for k, number in enumerate(self.numbers):
            for name in ("host_tx", "mac_rx"):
                wiring.connect(
                    m, wiring.flipped(getattr(self, name + number)), getattr(core, name)[k]
                )
            for name in ("mac_tx", "host_rx"):
                wiring.connect(
                    m, getattr(core, name)[k], wiring.flipped(getattr(self, name + number))
                )
        for name in ("gradient_read", "gradient_write", "landing_read", "landing_write"):
            wiring.connect(m, getattr(core, name), wiring.flipped(getattr(self, name)))
        self._settings(m, core, bank)
        self._control(m, core, bank)
        self._tables(m, core, bank)
        self._count(m, core, bank)
        return m

    def _settings(self, m, core, bank):
        """Registers to the structures of the core, one cycle later."""
        own, round_, setup = core.own, core.round, core.setup
        cut, codec = round_.geometry, round_.codec
        low = ceil_log2(core.n_bytes)
        pairs = [
            (own.mac, Cat(bank.mac_low.value, bank.mac_high.value)),
            (own.ip, bank.ip.value),
            (own.node, bank.mac_high.node),
            (own.udp_port, bank.network.udp_port),
            (round_.job, bank.mac_high.job),
            (round_.tensor, bank.round.tensor),
            (round_.gen, bank.round.gen),
            (round_.t_probe, bank.t_probe.value),
            *((round_[name], bank.network[name]) for name in ("tos", "spray", "rule")),
            *((round_.tags[name], bank.tags[name]) for name in ("by_sum", "source")),
            *((round_.tags[name], bank.scores[name]) for name in ("unit", "share")),
            (round_.tags.back_layer_start, bank.tags.back_layer),
            (round_.tags.pull_all_important, bank.tags.results),
            (round_.layer, bank.tags.layer),
            (core.pace.rule, bank.pace.rule),
            (core.pace.floor, bank.pace.floor),
            *(
                (core.pace[name], getattr(bank, f"pace_{name}").value)
                for name in ("step", "low", "high")
            ),
            (cut.packet, bank.chunk.packet),
            (cut.chunk, bank.chunk.units),
            (cut.per_chunk, bank.packets.whole),
            (cut.last_per_chunk, bank.packets.last),
            (cut.last_chunk, (bank.chunks.live - 1)[:CHUNK_WIDTH]),
            (cut.tail, bank.tails.whole),
            (cut.last_tail, bank.tails.last),
            (setup.rows, bank.schedule.rows),
            (setup.peers, bank.schedule.peers),
            (setup.lockstep, bank.schedule.lockstep),
            (setup.chunks, bank.chunks.all),
            (setup.live, bank.chunks.live),
            (setup.stride, bank.period.stride),
            (setup.repeats, bank.period.repeats),
            (setup.iterations, bank.iterations.value),
            (setup.step_cycles, bank.step_cycles.value),
            (setup.watchdog, bank.watchdog.value),
            (core.area, bank.area.beats),
            (core.floor, bank.ports.floor),
        ]
        if core.inc:
            pairs += [
                (codec[name], bank.codec[name])
                for name in ("coded", "exponent", "paper", "prescale")
            ]
        if core.thc:
            levels = Cat(getattr(bank, f"levels_{k}").value for k in range(4))
            pairs += [
                *((codec[name], bank.codec[name]) for name in ("norm", "thc")),
                *((codec[name], bank.thc[name]) for name in ("n", "g", "index_p0", "index_p1")),
                (Value.cast(codec.levels), levels),
            ]
        for region, name in zip(core.regions, ("gradient", "result", "landing"), strict=True):
            at = Cat(getattr(bank, f"{name}_{half}").value for half in ("low", "high"))
            pairs += [
                (region.first, at[low : core.address_width]),
                (region.n_beats, getattr(bank, f"{name}_beats").value),
            ]
        for setting, value in pairs:
            held = Signal(len(Value.cast(setting)), reset_less=True)
            m.d.sync += held.eq(value)
            m.d.comb += setting.eq(held)

    def _control(self, m, core, bank):
        """Strobes when bits of ``control`` rise, the round before, and what the host sees."""
        control = bank.control
        was, rises = Signal.like(control), Signal.like(control)
        m.d.sync += was.eq(control)
        m.d.comb += Value.cast(rises).eq(Value.cast(control) & ~Value.cast(was))
        # A round begins once the last one is forgotten, whatever the host has waited for.
        forgets, waits, armed = Signal(), Signal(), Signal()
        start = (rises.start | waits) & ~control.abort
        m.d.comb += forgets.eq(rises.clear | core.clear | core.clearing)
        m.d.sync += [
            core.clear.eq(rises.clear),
            core.abort.eq(rises.abort),
            core.start.eq(start & ~forgets),
            waits.eq(start & forgets),
            armed.eq(control.armed & ~forgets),
        ]
        over = Signal()
        last_tensor, last_gen = Signal(16, reset_less=True), Signal(16, reset_less=True)
        m.d.comb += [
            core.round.armed.eq(armed),
            core.round.over.eq(over),
            core.round.last_tensor.eq(last_tensor),
            core.round.last_gen.eq(last_gen),
        ]
        with m.If(was.armed & ~control.armed):
            m.d.sync += [
                over.eq(1),
                last_tensor.eq(core.round.tensor),
                last_gen.eq(core.round.gen),
            ]

        status, finished = core.status, Signal()
        # A round that is about to start has none of the last one's ends.
        begins = rises.start | waits | core.start
        starting = begins | core.starting
        m.d.sync += finished.eq(core.finished & was.armed & ~begins)  # the sender stands far away
        m.d.comb += [
            bank.status.running.eq(status.running | starting),
            bank.status.done.eq(status.done & ~starting),
            bank.status.stuck.eq(status.stuck & ~starting),
            bank.status.fault.eq(Mux(starting, 0, status.fault)),
            bank.status.finished.eq(finished),
            bank.status.clearing.eq(core.clearing),
            bank.status.thc.eq(core.thc),
            bank.status.inc.eq(core.inc),
            bank.position.row.eq(Mux(starting, 0, status.row)),
            bank.position.chunk.eq(Mux(starting, 0, status.chunk)),
        ]
        before = Signal(3)
        now = Cat(finished, status.stuck, status.fault != 0)
        m.d.sync += before.eq(now)
        sticky = Value.cast(bank.sticky["events"])
        m.d.comb += Value.cast(bank.events).eq(Cat(now & ~before, core.refused.any()))
        m.d.sync += self.interrupt.eq((sticky & bank.interrupts.mask).any())

    def _tables(self, m, core, bank):
        """One entry for each change of ``toggle``."""
        write, word = bank.table_write, Signal(32 * TABLE_WORDS, reset_less=True)
        toggle = Signal()
        m.d.sync += [
            word.eq(Cat(getattr(bank, f"table_data_{k}").value for k in range(TABLE_WORDS))),
            toggle.eq(write.toggle),
        ]
        address = Signal(16, reset_less=True)
        m.d.sync += address.eq(write.address)
        chosen = {table: Signal(name=f"to_{table.name.lower()}") for table in Table}
        for table, flag in chosen.items():
            m.d.sync += flag.eq((write.toggle != toggle) & (write.table == table))
        peers = Signal.like(core.peers)
        m.d.comb += [
            core.table_en.eq(chosen[Table.ROWS]),
            core.table_addr.eq(address),
            core.table_data.eq(word),
            core.place_en.eq(chosen[Table.PLACES]),
            core.place_addr.eq(address),
            Value.cast(core.place_data).eq(word),
            core.check.enable.eq(chosen[Table.CHECKS]),
            core.check.number.eq(address),
            core.check.check.eq(word),
            core.neighbor.enable.eq(chosen[Table.NEIGHBORS]),
            core.neighbor.index.eq(address),
            Value.cast(core.neighbor.neighbor).eq(word),
            core.allowance.enable.eq(chosen[Table.ALLOWANCES]),
            core.allowance.index.eq(address),
            core.allowance.bytes.eq(word),
            core.peers.eq(peers),
            core.tag_write.layer.eq(chosen[Table.LAYERS]),
            core.tag_write.dscp.eq(chosen[Table.DSCPS]),
            core.tag_write.threshold.eq(chosen[Table.THRESHOLD]),
            core.tag_write.address.eq(address),
            core.tag_write.value.eq(word),
        ]
        with m.If(chosen[Table.PEERS]):
            m.d.sync += peers[address[: ceil_log2(len(peers))]].eq(word)

    def _count(self, m, core, bank):
        m.d.comb += [
            bank.build.bytes.eq(core.n_bytes),
            bank.build.ports.eq(core.n_ports),
            bank.build.ranks.eq(core.n_ranks),
            bank.build.nodes.eq(self.n_nodes),
            bank.capacity.rows.eq(core.scheduler.depth),
            bank.capacity.chunks.eq(core.scheduler.n_chunks),
        ]
        drops = {drop.name.lower(): core.dropped[drop] for drop in Drop}
        drops["unsound"], drops["accepted"] = drops.pop("codec"), drops.pop("none")

        def total(bits):
            return sum(bits[k] for k in range(len(bits)))

        m.d.comb += [
            *(getattr(bank, name).eq(flag) for name, flag in drops.items()),
            *(
                getattr(bank, name).eq(getattr(core, name))
                for name in ("sent", "again", "probes", "answered", "heard", "given_up")
            ),
            bank.foreign.eq(total(core.crossed)),
            bank.oversize.eq(total(core.oversize)),
            bank.overrun.eq(total(core.overrun)),
            bank.outside.eq(total(core.refused)),
            bank.failed.eq(total(core.failed)),
        ]


def card(*, n_bytes, n_ports, n_nodes, n_rows, n_chunks, port_bytes=0, **sizes):
    """The card for tables of up to `n_nodes` nodes; parameters as of
    `gradnic.interface.params.Offload`, and ``rx_meta_width`` as of `OffloadCore`.
    """
    layout = Layout.for_nodes(n_nodes, ports=4, chunks=-(-n_chunks // n_nodes))
    sizes |= {"depth": n_rows, "n_chunks": n_chunks, "n_nodes": n_nodes}
    return OffloadCard(n_bytes, n_ports, layout, port_bytes=port_bytes or None, **sizes)
