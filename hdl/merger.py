"""Merger of the compressor: tag rows, payload rows and tails become coded units."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .network import plane_bit
from .pipeline import current, delayed, delayed_flag, thermometer
from .streams import FIFO, FrameBeat

N_CREDITS = 12  # beats between the decision to read and the output; 8 sustain one per cycle


def CodedUnit(n_bytes, *, row_addr, tag_addr, n_beats):
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

    Latency 9 cycles from a unit's offer to its first beat. A dropped unit takes one cycle and
    emits nothing. When the output stalls, no further reads are issued; what was read waits in a
    FIFO of its own.

    Parameters
    ----------
    n_lanes : int
    unit : `CodedUnit`
    n_slots : int
        Tails in their store; unit number modulo this is the address.

    Members
    -------
    units : In(stream.Signature(CodedUnit))
        All rows of a unit are in the stores when it is offered.
    tag_addr, row_addr, tail_addr : Out
        Read addresses; the data come two cycles later.
    tag_data, row_data, tail_data : In(32 * n_lanes)
    coded : Out(stream.Signature(FrameBeat(4 * n_lanes)))
        ``bad`` is 0; bytes that are not kept are 0.
    done, rows, tag_rows : Out(1), Out, Out
        A unit is through in this cycle, and the places that it gives back.
    """

    def __init__(self, n_lanes, unit, n_slots):
        self.n_lanes = n_lanes
        self.unit = unit
        self.n_slots = n_slots
        beat = FrameBeat(4 * n_lanes)
        self.queue = FIFO(beat, N_CREDITS)
        self.credits = Signal(N_CREDITS, init=-1)  # bit k: more than k credits left
        super().__init__(
            {
                "units": In(stream.Signature(unit)),
                "tag_addr": Out(unit["tag_row"].shape),
                "row_addr": Out(unit["row"].shape),
                "tail_addr": Out(range(n_slots)),
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
        m.submodules.queue = queue = self.queue
        wiring.connect(m, queue.o, wiring.flipped(self.coded))

        issue, done = Signal(), Signal()
        valid, unit, load, unit_next = current(m, "unit", self.units, self.unit, end=done)
        live = Signal()  # the unit is there, and not dropped
        index = Signal(unit.final.shape())
        following = Signal.like(index)  # index + 1
        final, in_tags, boundary = Signal(), Signal(), Signal()
        m.d.comb += [
            issue.eq(live & self.credits[0]),
            done.eq((issue & final) | (valid & ~live)),
            self.done.eq(done),
            self.rows.eq(unit.rows),
            self.tag_rows.eq(unit.tag_rows),
        ]
        with m.If(done):
            m.d.sync += live.eq(0)
        with m.If(issue):
            tags_end = following == unit.full_tags
            m.d.sync += [
                index.eq(following),
                following.eq(following + 1),
                final.eq(following == unit.final),
                in_tags.eq(in_tags & ~tags_end),
                boundary.eq(in_tags & tags_end),
            ]
        with m.If(load):
            m.d.sync += [
                live.eq(~unit_next.dropped),
                index.eq(0),
                following.eq(1),
                final.eq(unit_next.single),
                in_tags.eq(unit_next.has_full),
                boundary.eq(~unit_next.has_full),
            ]
        slot = Signal(range(self.n_slots))
        with m.If(done):
            m.d.sync += slot.eq(slot + 1)
        refund = self.coded.valid & self.coded.ready
        with m.If(issue & ~refund):
            m.d.sync += self.credits.eq(self.credits[1:])
        with m.Elif(refund & ~issue):
            m.d.sync += self.credits.eq(Cat(1, self.credits))

        # Two cycles to the addresses, two through the stores, one through the multiplexer.
        read = Signal(self.unit, reset_less=True)
        read_index = Signal.like(index, reset_less=True)
        read_slot = Signal.like(slot, reset_less=True)
        flags = Signal(3, reset_less=True)
        m.d.sync += [
            read.eq(unit),
            read_index.eq(index),
            read_slot.eq(slot),
            flags.eq(Cat(final, in_tags, boundary)),
        ]
        m.d.comb += [
            self.tag_addr.eq(
                delayed(m, (read.tag_row + read_index)[: len(self.tag_addr)], 1, name="tag_addr")
            ),
            self.row_addr.eq(
                delayed(m, (read.row + read_index)[: len(self.row_addr)], 1, name="row_addr")
            ),
            self.tail_addr.eq(delayed(m, read_slot, 1, name="tail_addr")),
        ]
        n = self.n_lanes
        in_tag = thermometer(m, read.tag_end, n, name="in_tag")
        in_end = thermometer(m, read.end, n, name="in_end")
        final, in_tags, boundary = delayed(m, flags, 2, name="flags")
        partial = delayed(m, flags[0] & (read.end != 0), 2, name="partial")

        def everywhere(flag):
            return flag.replicate(4 * n)

        # Every byte comes from the tag row, the payload row or the tail, or is none.
        live = Signal(4 * n)
        tag_here, low, high = (
            Signal(4 * n),
            *(Signal(4 * n, name=name, reset_less=True) for name in ("select_low", "select_high")),
        )
        m.d.comb += [
            live.eq(~everywhere(partial) | in_end),
            tag_here.eq(everywhere(in_tags) | (everywhere(boundary) & in_tag)),
        ]
        m.d.sync += [
            low.eq(live & (tag_here | everywhere(partial))),
            high.eq(live & ~tag_here),
        ]
        chosen = Signal(32 * n, reset_less=True)
        keep = Signal(4 * n, reset_less=True)
        for j in range(4 * n):
            source = [self.tag_data, self.row_data, self.tail_data]
            tag, row, tail = (port.word_select(j, 8) for port in source)
            low_j, high_j = plane_bit(n, low, j), plane_bit(n, high, j)
            m.d.sync += [
                chosen.word_select(j, 8).eq(Mux(high_j, Mux(low_j, tail, row), Mux(low_j, tag, 0))),
                keep[j].eq(low_j | high_j),
            ]
        out = queue.i.p
        m.d.comb += [
            queue.i.valid.eq(delayed_flag(m, issue, 5, name="valid")),
            out.data.eq(chosen),
            out.keep.eq(keep),
            out.last.eq(delayed(m, final, 2, name="last")),
        ]
        return m
