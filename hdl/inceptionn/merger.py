"""Merger of the compressor: tag rows, payload rows and tails become coded units."""

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.names import signals
from ..primitive.parity import astray
from ..stream.admission import current, thermometer
from ..stream.beats import FrameBeat
from ..stream.credit_queue import CreditQueue
from ..stream.delays import delayed, delayed_flag
from ..stream.outlet import Outlet
from ..stream.pair_queue import PairQueue
from .byte_network import plane_bit

N_OUT = 17  # beats between the decision to read and the output; all of them sustain one per cycle


def CodedUnit(n_bytes: int, *, row_addr, tag_addr, n_beats):
    """Shape of what the merger must know of a unit.

    n_bytes : bytes per beat; row_addr, tag_addr : widths of the stores' addresses;
    n_beats : most beats of a unit.

    row : address of the first payload row, minus ``full_tags``; tag_row : of the first tag row.
    full_tags : rows that hold tags only, ``has_full`` if there are any; tag_end : bytes of tags in
    the row behind them. final : beats - 1, ``single`` if that is 0; end : bytes in the last beat,
    0 is all. rows, tag_rows : places taken in the stores. dropped : nothing leaves.
    """
    beats = Shape.cast(range(n_beats)).width
    column = (n_bytes - 1).bit_length()
    return data.StructLayout(
        {
            "row": row_addr,
            "tag_row": tag_addr,
            "full_tags": beats,
            "has_full": 1,
            "tag_end": column,
            "final": beats,
            "single": 1,
            "end": column,
            "rows": row_addr,
            "tag_rows": tag_addr,
            "dropped": 1,
        }
    )


class Merger(wiring.Component):
    """Reads the stores and emits whole units: 1 beat per cycle, no bubble between units.

    ``latency`` cycles from a unit's entry to its first beat. A dropped unit takes one cycle and
    emits nothing. When the output stalls, no further reads are issued; what was read waits in a
    FIFO of its own.

    Parameters
    ----------
    n_lanes : int
    unit : `CodedUnit`
    n_units : int
        Units that may be in here, a power of two, and slots in the store of tails: a unit's number
        modulo this is the address.

    Members
    -------
    units : In(stream.Signature(CodedUnit))
        Always taken. All rows of a unit are written at most 5 cycles later.
    tag_addr, row_addr, tail_addr : Out
        Read addresses; the data come four cycles later.
    tag_data, row_data, tail_data : In(32 * n_lanes)
    coded : Out(stream.Signature(FrameBeat(4 * n_lanes)))
        ``bad`` is 0; bytes that are not kept are 0.
    done, rows, tag_rows : Out(1), Out, Out
        A unit has become through, and the places that it gives back.
    """

    latency = 16

    def __init__(self, n_lanes: int, unit: ShapeLike, n_units: int) -> None:
        self.n_lanes = n_lanes
        self.n_units = n_units
        self.unit = unit
        beat = FrameBeat(4 * n_lanes)
        self.outlet = Outlet(beat, N_OUT, n_free=2)
        self.strays = Signal()
        super().__init__(
            {
                "units": In(stream.Signature(unit, always_ready=True)),
                "tag_addr": Out(unit["tag_row"].shape),
                "row_addr": Out(unit["row"].shape),
                "tail_addr": Out(range(n_units)),
                "tag_data": In(32 * n_lanes),
                "row_data": In(32 * n_lanes),
                "tail_data": In(32 * n_lanes),
                "coded": Out(stream.Signature(beat)),
                "done": Out(1),
                "rows": Out(unit["rows"].shape),
                "tag_rows": Out(unit["tag_rows"].shape),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.outlet = outlet = self.outlet
        wiring.connect(m, outlet.o, wiring.flipped(self.coded))

        # Of a unit that waits, the loop below needs little; the rest follows one cycle later.
        needed = {name: self.unit[name].shape for name in ("final", "single", "dropped")}
        m.submodules.queued = waiting = PairQueue(data.StructLayout(needed), self.n_units)
        rest = {name: field.shape for name, field in self.unit if name not in needed}
        m.submodules.table = table = CreditQueue(
            data.StructLayout(rest), self.n_units, never_full=True
        )
        m.d.comb += [
            waiting.i.valid.eq(self.units.valid),
            *(waiting.i.p[name].eq(self.units.p[name]) for name in needed),
            table.i.valid.eq(self.units.valid),
            *(table.i.p[name].eq(self.units.p[name]) for name in rest),
        ]

        issue, done = signals("issue done")
        ends = Signal()
        valid, load = current(m, "unit", waiting.o, ends=ends)
        live = Signal()  # the unit is there, and not dropped
        # For the counters: of one register, synthesis makes a chain of three LUT to the unit's end.
        counts = Signal(attrs={"keep_register": 1})
        index, rest = signals("index rest", needed["final"])  # rest: beats behind this
        final, renews = signals("final renews")
        m.d.comb += [
            issue.eq(live & outlet.free[0]),
            outlet.start.eq(issue),
            ends.eq(~live | (outlet.free[1] & final)),
            done.eq(valid & ends),
            renews.eq(~counts | final),
        ]
        with m.If(ends):
            m.d.sync += [copy.eq(load & ~waiting.o.p.dropped) for copy in (live, counts)]
        with m.If(~counts | outlet.free[0]):  # they follow a unit that is not there yet
            m.d.sync += [
                index.eq(Mux(renews, 0, index + 1)),
                rest.eq(Mux(renews, waiting.o.p.final, rest - 1)),
                final.eq(Mux(renews, waiting.o.p.single, rest == 1)),
            ]
        slot = Signal(range(self.n_units))
        gone = delayed_flag(m, done, 1, name="gone")
        m.d.comb += [
            table.take.eq(gone),
            self.strays.eq(
                table.strays | outlet.queue.astray | astray(m, (slot,), gone, name="slot")
            ),
        ]
        with m.If(gone):
            m.d.sync += slot.eq(slot + 1)

        # Four cycles to the addresses, five from the stores, two through the multiplexer.
        read, late = table.word, table.latency + 1
        read_index = delayed(m, index, late, name="read_index")
        read_slot = delayed(m, slot, late - 1, name="read_slot")
        read_final = delayed(m, final, late, name="read_final")
        m.d.comb += [
            self.done.eq(delayed_flag(m, done, late, name="done")),
            self.rows.eq(read.rows),
            self.tag_rows.eq(read.tag_rows),
            self.tag_addr.eq(
                delayed(m, (read.tag_row + read_index)[: len(self.tag_addr)], 1, name="tag_addr")
            ),
            self.row_addr.eq(
                delayed(m, (read.row + read_index)[: len(self.row_addr)], 1, name="row_addr")
            ),
            self.tail_addr.eq(delayed(m, read_slot, 1, name="tail_addr")),
        ]
        chosen, keep = self._bytes(m, read, read_index, read_final)
        out = outlet.beat
        m.d.comb += [
            outlet.come.eq(delayed_flag(m, issue, 7 + late - 1, name="come")),
            out.data.eq(chosen),
            out.keep.eq(keep),
            out.last.eq(delayed(m, read_final, 7, name="last")),
        ]
        return m

    def _bytes(self, m, read, read_index, read_final):
        """(The beat's bytes, which of them count): each comes from the tag row, the payload row or
        the tail, or is none.
        """
        n = self.n_lanes
        in_tag = thermometer(m, delayed(m, read.tag_end, 1), n, name="in_tag")
        in_end = thermometer(m, delayed(m, read.end, 1), n, name="in_end")
        flags = {
            "partial": read_final & (read.end != 0),
            "in_tags": read_index < read.full_tags,
            "boundary": read_index == read.full_tags,
        }
        flags = {name: delayed(m, flag, 3, name=name) for name, flag in flags.items()}

        def everywhere(name):
            """A flag for the bytes of all planes, from one register a plane."""
            copies = []
            for plane in range(4):
                kept = {"keep_register": 1}
                copy = Signal(name=f"{name}_plane{plane}", reset_less=True, attrs=kept)
                m.d.sync += copy.eq(flags[name])
                copies.append(copy.replicate(n))
            return Cat(copies)

        live_byte, tag_here, tail_here = (
            Signal(4 * n, name=name, reset_less=True)
            for name in ("live_byte", "tag_here", "tail_here")
        )
        low, high = (Signal(4 * n, name=f"select_{k}", reset_less=True) for k in ("low", "high"))
        partial = everywhere("partial")
        m.d.sync += [
            live_byte.eq(~partial | in_end),
            tail_here.eq(partial & in_end),
            tag_here.eq(everywhere("in_tags") | (everywhere("boundary") & in_tag)),
            low.eq(tail_here | (live_byte & tag_here)),
            high.eq(live_byte & ~tag_here),
        ]
        # A second register on the way from the block RAM: its rows lie all over the device.
        source = [
            delayed(m, port, 1, name=name)
            for name, port in (
                ("tag_bytes", self.tag_data),
                ("row_bytes", self.row_data),
                ("tail_bytes", self.tail_data),
            )
        ]
        chosen = Signal(32 * n, reset_less=True)
        keep = Signal(4 * n, reset_less=True)
        for j in range(4 * n):
            tag, row, tail = (port.word_select(j, 8) for port in source)
            low_j, high_j = plane_bit(n, low, j), plane_bit(n, high, j)
            m.d.sync += [
                chosen.word_select(j, 8).eq(Mux(high_j, Mux(low_j, tail, row), Mux(low_j, tag, 0))),
                keep[j].eq(low_j | high_j),
            ]
        return chosen, keep
