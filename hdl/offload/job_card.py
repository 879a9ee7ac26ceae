"""Offload card with jobs: its core, and the registers by which a host posts them.

Plumbing: what it stands around has the golden model `gradnic.models.offload.jobs`.
"""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.job import COMPLETION, DESCRIPTOR
from gradnic.interface.job_card import JOBS, N_SOURCES, REGISTERS
from gradnic.interface.offload import TABLE_WORDS, Drop, Table
from gradnic.interface.schedule_table import Layout

from ..axi.axis import Lite
from ..axi.register_bank import RegisterBank
from ..stream.beats import FrameBeat
from .job_core import JobCore
from .job_window import JobWindow
from .memory_side import memory_ports

_FRAMES = ("host_tx", "mac_rx", "mac_tx", "host_rx")


class JobCard(wiring.Component):
    """`JobCore` behind registers: `gradnic.interface.job_card.REGISTERS`.

    Latency and rate are the core's. Fill tables and settings, then write a descriptor to ``post_0``
    and behind, and change ``job.post``; a completion is in ``completion_0`` and behind while
    ``status.told``, and leaves when ``job.take`` changes.

    Parameters
    ----------
    core : JobCore

    Members
    -------
    host_tx<k>, mac_rx<k> : In; mac_tx<k>, host_rx<k> : Out
        Streams of `FrameBeat`, with the side band of each direction.
    gradient_read, landing_read, root_read, gradient_write, landing_write, root_write : Out
    bus : In(Lite)
    interrupt : Out(1)
    """

    def __init__(self, core):
        self.core, n_bytes, width = core, core.n_bytes, core.address_width
        sent = stream.Signature(FrameBeat(core.port_bytes, meta_width=core.meta_width))
        received = stream.Signature(FrameBeat(core.port_bytes, meta_width=core.rx_meta_width))
        members = {}
        for k in range(core.n_ports):
            members |= {
                f"host_tx{k}": In(sent),
                f"mac_tx{k}": Out(sent),
                f"mac_rx{k}": In(received),
                f"host_rx{k}": Out(received),
            }
        self.memory = memory_ports(n_bytes, width, roots=True)
        members |= self.memory
        super().__init__(members | {"bus": In(Lite(REGISTERS.address_width)), "interrupt": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = core = self.core
        m.submodules.bank = bank = RegisterBank(REGISTERS)
        m.submodules.window = window = JobWindow()
        wiring.connect(m, wiring.flipped(self.bus), bank.bus)
        for k in range(core.n_ports):
            for name in _FRAMES:
                outer, inner = getattr(self, f"{name}{k}"), getattr(core, name)[k]
                wiring.connect(m, wiring.flipped(outer), inner)
        for name in self.memory:
            wiring.connect(m, getattr(core, name), wiring.flipped(getattr(self, name)))
        for name in ("post", "abort", "completions"):
            wiring.connect(m, getattr(window, name), getattr(core, name))
        self._settings(m, core, bank)
        self._jobs(m, core, bank, window)
        self._tables(m, core, bank)
        self._count(m, core, bank)
        return m

    def _settings(self, m, core, bank):
        """Registers to the structures of the core, one cycle later."""
        own, round_, low = core.own, core.round, ceil_log2(core.n_bytes)
        tags, codec = round_.tags, round_.codec

        def first(name):
            at = Cat(getattr(bank, f"{name}_{half}").value for half in ("low", "high"))
            return at[low : core.address_width]

        pairs = [
            (own.mac, Cat(bank.mac_low.value, bank.mac_high.value)),
            (own.ip, bank.ip.value),
            (own.node, bank.mac_high.node),
            (own.udp_port, bank.network.udp_port),
            (round_.job, bank.mac_high.tenant),
            (round_.t_probe, bank.t_probe.value),
            *((round_[name], bank.network[name]) for name in ("tos", "spray", "rule")),
            *((tags[name], bank.tags[name]) for name in ("by_sum", "source")),
            *((tags[name], bank.scores[name]) for name in ("unit", "share")),
            (tags.back_layer_start, bank.tags.back_layer),
            (tags.pull_all_important, bank.tags.results),
            (core.pace.rule, bank.pace.rule),
            (core.pace.floor, bank.pace.floor),
            *(
                (core.pace[name], getattr(bank, f"pace_{name}").value)
                for name in ("step", "low", "high")
            ),
            (round_.geometry.packet, bank.packet.units),
            *((codec[name], bank.codec[name]) for name in ("exponent", "paper", "prescale")),
            (core.floor, bank.ports.floor),
            (core.watchdog, bank.watchdog.value),
            (core.landing, bank.landing.beats),
            *((core.landings[k], first(f"landing{k}")) for k in range(core.n_active)),
            *((core.sources[k].first, first(f"source{k}")) for k in range(N_SOURCES)),
            *(
                (core.sources[k].n_beats, getattr(bank, f"source{k}_beats").value)
                for k in range(N_SOURCES)
            ),
        ]
        for setting, value in pairs:
            held = Signal(len(Value.cast(setting)), reset_less=True)
            m.d.sync += held.eq(value)
            m.d.comb += setting.eq(held)

    def _jobs(self, m, core, bank, window):
        """Descriptor, completion, what the host sees."""
        words = [getattr(bank, f"post_{k}").value for k in range(DESCRIPTOR.n_bytes // 4)]
        octets = Cat(word[24 - 8 * j :][:8] for word in words for j in range(4))
        for field in DESCRIPTOR:
            m.d.comb += window.job[field.name].eq(Cat(octets[a:b] for a, b in field.slices))
        record = Signal(8 * COMPLETION.n_bytes)
        for field in COMPLETION:
            m.d.comb += Cat(record[a:b] for a, b in field.slices).eq(window.record[field.name])
        for k in range(COMPLETION.n_bytes // 4):
            word = Cat(record[8 * (4 * k + j) :][:8] for j in reversed(range(4)))
            m.d.comb += getattr(bank, f"completion_{k}").value.eq(word)
        m.d.comb += [
            window.posts.eq(bank.job.post),
            window.takes.eq(bank.job.take),
            window.aborts.eq(bank.job.abort),
            window.id.eq(bank.job.id),
            bank.status.active.eq(core.active),
            bank.status.idle.eq(core.finished),
            bank.status.told.eq(window.told),
            bank.status.aborting.eq(window.aborting),
            bank.status.inc.eq(core.inc),
            bank.status.n_active.eq(core.n_active),
            bank.status.n_tables.eq(core.n_tables),
            bank.status.bf16.eq(core.bf16),
        ]
        told = Signal()
        m.d.sync += told.eq(window.told)
        sticky = Value.cast(bank.sticky["events"])
        m.d.comb += [
            bank.events.ended.eq((window.told & ~told) | (window.told & window.completions.ready)),
            bank.events.overrun.eq(window.overrun),
            bank.events.failed.eq(core.failed.any()),
            bank.events.outside.eq(core.refused.any()),
        ]
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
        chosen = {}
        for table in (*Table, JOBS):
            name = table.name.lower() if table in list(Table) else "jobs"
            chosen[table] = Signal(name=f"to_{name}")
            m.d.sync += chosen[table].eq((write.toggle != toggle) & (write.table == int(table)))
        peers = Signal(len(Value.cast(core.peers)))
        m.d.comb += [
            core.table_en.eq(chosen[Table.ROWS]),
            core.table_addr.eq(address),
            core.table_data.eq(word),
            core.place_en.eq(chosen[Table.PLACES]),
            core.place_addr.eq(address),
            Value.cast(core.place_data).eq(word),
            core.neighbor.enable.eq(chosen[Table.NEIGHBORS]),
            core.neighbor.index.eq(address),
            Value.cast(core.neighbor.neighbor).eq(word),
            Value.cast(core.peers).eq(peers),
            core.tag_write.layer.eq(chosen[Table.LAYERS]),
            core.tag_write.dscp.eq(chosen[Table.DSCPS]),
            core.tag_write.threshold.eq(chosen[Table.THRESHOLD]),
            core.tag_write.address.eq(address),
            core.tag_write.value.eq(word),
            core.job_table.enable.eq(chosen[JOBS]),
            core.job_table.index.eq(address),
            Value.cast(core.job_table.table).eq(word),
        ]
        n_all = len(peers) // 4
        with m.If(chosen[Table.PEERS]):
            m.d.sync += peers.word_select(address[: ceil_log2(n_all)], 4).eq(word)

    def _count(self, m, core, bank):
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


def card(*, n_bytes, n_ports, n_nodes, n_rows, n_chunks, port_bytes=0, thc=0, **sizes):
    """The card for tables of up to `n_nodes` nodes; parameters as of
    `gradnic.interface.params.Jobs`, and ``rx_meta_width`` as of `OffloadCore`.
    """
    layout = Layout.for_nodes(n_nodes, ports=4, chunks=-(-n_chunks // n_nodes))
    core = JobCore(
        n_bytes, n_ports, layout, depth=n_rows, n_chunks=n_chunks,
        port_bytes=port_bytes or None, **sizes,
    )  # fmt: skip
    return JobCard(core)
