"""Payload packer of the compressor: lanes in, full rows and tails out, never a stall."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..primitive.same import same
from ..stream.admission import thermometer
from ..stream.delays import delayed, delayed_flag
from .byte_network import Compactor, plane_bit


class Packer(wiring.Component):
    """Collects the payload bytes of a unit in rows of one beat, 1 beat of lanes per cycle.

    Bytes of a row that is not full stay in an accumulator. A beat that reaches the end of a row
    completes it; its own bytes beyond the end take their places in the accumulator in the same
    cycle. What is left at the end of a unit is its tail. Rows and tails leave on ports of their
    own, so a tail never competes with the next unit's first row, and each port has at most one
    write per cycle.

    Columns of a row that lie before the unit's first byte, or behind
    its last one in the tail, are undefined.

    Members
    -------
    starts, tags, payload : In, as for `Compactor`; tags 0 where there is no beat.
    base : In(log2(4 * n_lanes))
        Column after the last byte so far, one cycle before ``starts``.
    row : In(1)
        This beat reaches the end of its row; with ``base``.
    last : In(1)
        This beat ends the unit; with ``base``.
    row_en, row_data : Out(1), Out(32 * n_lanes)
        Rows, ``latency`` cycles after ``row``.
    tail_en, tail_data : Out(1), Out(32 * n_lanes)
        Tails, ``latency`` cycles after ``last``.
    """

    def __init__(self, n_lanes: int) -> None:
        self.n_lanes = n_lanes
        self.compactor = Compactor(n_lanes)
        self.latency = self.compactor.latency + 2
        width = n_lanes.bit_length() + 1
        super().__init__(
            {
                "starts": In(n_lanes * width),
                "tags": In(2 * n_lanes),
                "payload": In(32 * n_lanes),
                "base": In(width),
                "row": In(1),
                "last": In(1),
                "row_en": Out(1),
                "row_data": Out(32 * n_lanes),
                "tail_en": Out(1),
                "tail_data": Out(32 * n_lanes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.compactor = compactor = self.compactor
        m.d.comb += [
            *same(compactor, self, "starts tags payload"),
            self.row_en.eq(delayed_flag(m, self.row, self.latency, name="row")),
            self.tail_en.eq(delayed_flag(m, self.last, self.latency, name="last")),
        ]
        base = delayed(m, self.base, self.latency - 4, name="base")
        before = thermometer(m, base, self.n_lanes, name="before")  # as old as the columns
        for j in range(4 * self.n_lanes):
            new = compactor.columns.word_select(j, 8)
            kept = Signal(8, name=f"kept{j}", reset_less=True)
            with m.If(plane_bit(self.n_lanes, compactor.present, j)):
                m.d.sync += kept.eq(new)
            row = Signal(8, name=f"row{j}", reset_less=True)
            m.d.sync += row.eq(Mux(plane_bit(self.n_lanes, before, j), kept, new))
            m.d.comb += [
                self.row_data.word_select(j, 8).eq(row),
                self.tail_data.word_select(j, 8).eq(kept),
            ]
        return m
