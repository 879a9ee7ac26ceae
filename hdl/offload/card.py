"""The offload card: its core, and the registers by which a host drives it.

Twin of `gradnic.models.offload.card`.
"""

from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value

from gradnic.interface.offload import REGISTERS
from gradnic.interface.schedule_table import Layout

from ..primitive.names import signals
from ..primitive.same import same
from ..transport.records import CHUNK_WIDTH, UNIT
from .core import OffloadCore
from .hosted import HostedCard


class OffloadCard(HostedCard):
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

    Members: see `HostedCard`.
    """

    def __init__(
        self, n_bytes: int, n_ports: int, layout: Layout, *, n_nodes: int, **sizes: Any
    ) -> None:
        self.n_nodes, self.layout = n_nodes, layout
        super().__init__(OffloadCore(n_bytes, n_ports, layout, **sizes), REGISTERS)

    def _settings(self, core, bank):
        round_, setup = core.round, core.setup
        cut, codec = round_.geometry, round_.codec
        pairs = [
            (round_.job, bank.mac_high.job),
            (round_.tensor, bank.round.tensor),
            (round_.gen, bank.round.gen),
            (round_.layer, bank.tags.layer),
            (cut.packet, bank.chunk.packet),
            (cut.chunk, bank.chunk.units),
            (cut.per_chunk, bank.packets.whole),
            (cut.last_per_chunk, bank.packets.last),
            (cut.last_chunk, (bank.chunks.live - 1)[:CHUNK_WIDTH]),
            (cut.tail, bank.tails.whole),
            (cut.last_tail, bank.tails.last),
            (setup.rows, Mux(self._fits(core, bank), bank.schedule.rows, 0)),  # 0: a fault
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
        ]
        if core.inc:
            pairs += [
                (codec[name], bank.codec[name])
                for name in ("coded", "exponent", "paper", "prescale")
            ]
        if core.thc:
            levels = Cat(bank.by_name[f"levels_{k}"].value for k in range(4))
            pairs += [
                *((codec[name], bank.codec[name]) for name in ("norm", "thc")),
                *((codec[name], bank.thc[name]) for name in ("n", "g", "index_p0", "index_p1")),
                (Value.cast(codec.levels), levels),
            ]
        for region, name in zip(core.regions, ("gradient", "result", "landing"), strict=True):
            pairs += [
                (region.first, self._first(core, bank, name)),
                (region.n_beats, bank.by_name[f"{name}_beats"].value),
            ]
        return pairs

    @staticmethod
    def _fits(core, bank):
        """Packets have no more elements than stores and adder have room for."""
        packet, longest = bank.chunk.packet, core.max_elems // UNIT
        short = packet <= longest
        if core.thc:  # a byte an element, not four
            short = Mux(bank.codec.thc, packet <= 4 * longest, short)
        return short

    def _control(self, m, core, bank):
        """Strobes when bits of ``control`` rise, the round before, and what the host sees."""
        control = bank.control
        was = Signal.like(control)
        rises = Signal.like(control)
        m.d.sync += was.eq(control)
        m.d.comb += Value.cast(rises).eq(Value.cast(control) & ~Value.cast(was))
        # A round begins once the last one is forgotten, whatever the host has waited for.
        forgets, waits, armed = signals("forgets waits armed")
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
        last_tensor, last_gen = signals("last_tensor last_gen", 16, reset_less=True)
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

        status = core.status
        finished = Signal()
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
            *same(bank.status, core, "clearing thc inc"),
            bank.status.queues.eq(core.queues != 0),
            bank.position.row.eq(Mux(starting, 0, status.row)),
            bank.position.chunk.eq(Mux(starting, 0, status.chunk)),
        ]
        before = Signal(3)
        now = Cat(finished, bank.status.stuck, bank.status.fault != 0)  # 0 between two rounds
        m.d.sync += before.eq(now)
        m.d.comb += [
            Value.cast(bank.events).eq(Cat(now & ~before, core.refused.any(), core.failed.any())),
            bank.build.bytes.eq(core.n_bytes),
            bank.build.ports.eq(core.n_ports),
            bank.build.ranks.eq(core.n_ranks),
            bank.build.nodes.eq(self.n_nodes),
            bank.longest.units.eq(core.max_elems // UNIT),
            bank.capacity.rows.eq(core.scheduler.depth),
            bank.capacity.chunks.eq(core.scheduler.n_chunks),
        ]

    def _own_tables(self):
        return {}

    def _own_writes(self, core, chosen, address, word):
        return [
            core.check.enable.eq(chosen["checks"]),
            core.check.number.eq(address),
            core.check.check.eq(word),
            core.allowance.enable.eq(chosen["allowances"]),
            core.allowance.index.eq(address),
            core.allowance.bytes.eq(word),
        ]


def card(*, n_bytes, n_ports, n_nodes, n_rows, n_chunks, port_bytes=0, **sizes):
    """The card for tables of up to `n_nodes` nodes; parameters as of
    `gradnic.interface.params.Offload`, and ``rx_meta_width`` as of `OffloadCore`.
    """
    layout = Layout.for_card(n_nodes, n_chunks)
    sizes |= {"depth": n_rows, "n_chunks": n_chunks, "n_nodes": n_nodes}
    return OffloadCard(n_bytes, n_ports, layout, port_bytes=port_bytes or None, **sizes)
