"""Turns the payloads that came into floats, and sorts out what is not of the round's codec."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..formats import Op
from .decompressor import Decompressor
from .fifo import FIFO
from .level_table import LevelTable
from .offload_types import Arrival, Round
from .streams import Beat

ELEM_BYTES = 4
N_PACKETS = 16  # whose head has passed, and not their payload


class PacketDecoder(wiring.Component):
    """Data packets of the round give floats; the values of others vanish, their heads go on.

    A packet is ``wrong`` if its kind or settings are not the round's, or its length cannot be. Raw
    payloads, norms and sums pass as they are; indices become levels of 8 bits, at one beat of those
    per cycle; coded ones are stored and checked, and only sound ones give floats.

    Parameters
    ----------
    n_bytes : int
        Of a beat, 16, 32 or 64.
    max_elems : int
        Of a packet, at most.

    Members
    -------
    round : In(Round)
    heads, arrivals : In, Out(stream.Signature(Arrival))
    values : In(stream.Signature(Beat(8 * n_bytes)))
        For each data head with a length.
    floats : Out(stream.Signature(Beat(8 * n_bytes)))
        Of data packets that are ready and not wrong, unless their unit is unsound.
    verdicts : Out(stream.Signature(1))
        Of a coded round, one for each such packet: 1 where it is sound.
    """

    def __init__(self, n_bytes, *, max_elems=352):
        self.n_bytes = n_bytes
        self.codec = Decompressor(n_bytes // ELEM_BYTES, max_floats=max_elems)
        beats = stream.Signature(Beat(8 * n_bytes))
        super().__init__(
            {
                "round": In(Round),
                "heads": In(stream.Signature(Arrival)),
                "arrivals": Out(stream.Signature(Arrival)),
                "values": In(beats),
                "floats": Out(beats),
                "verdicts": Out(stream.Signature(1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.codec = unit = self.codec
        route = data.StructLayout({"keep": 1, "expand": 1})
        m.submodules.levels = levels = LevelTable(self.n_bytes)
        m.d.comb += levels.levels.eq(self.round.codec.levels)
        m.submodules.routes = routes = FIFO(route, N_PACKETS)
        m.submodules.passed = passed = FIFO(Arrival, N_PACKETS)
        wiring.connect(m, passed.o, wiring.flipped(self.arrivals))
        head, codec = self.heads.p.head, self.round.codec
        coded = codec.coded
        is_data, right, keep, go = Signal(), Signal(), Signal(), Signal()
        settings = (head.p0 == (codec.paper << 7 | codec.exponent)) & (head.p1 == codec.prescale)
        whole = head.length == head.elems << 2
        is_index = (head.op == Op.THC_IDX) & ~head.ph
        index = is_index & (head.p0 == codec.index_p0) & (head.p1 == codec.index_p1)
        index = index & (head.length << 1 == head.elems)
        of_sums = (head.op == Op.THC_SUM) & (head.p1 == 0) & (head.length == head.elems)
        m.d.comb += [
            is_data.eq(head.op != Op.CONTROL),
            keep.eq(is_data & self.heads.p.ready & right),
            go.eq(self.heads.valid & passed.i.ready & routes.i.ready & unit.units.ready),
            self.heads.ready.eq(passed.i.ready & routes.i.ready & unit.units.ready),
            passed.i.valid.eq(go),
            passed.i.p.eq(self.heads.p),
            passed.i.p.wrong.eq(is_data & ~right),
            routes.i.valid.eq(go & is_data & (head.length != 0)),
            routes.i.p.keep.eq(keep),
            routes.i.p.expand.eq(head.op == Op.THC_IDX),
            unit.units.valid.eq(go & keep & coded),
            unit.units.p.count.eq(head.elems),
            unit.units.p.bytes.eq(head.length),
            unit.units.p.exponent.eq(codec.exponent),
            unit.units.p.paper.eq(codec.paper),
            unit.units.p.prescale.eq(codec.prescale),
        ]
        with m.If(coded):
            m.d.comb += right.eq((head.op == Op.INC) & settings & (head.length != 0))
        with m.Elif(codec.thc):
            m.d.comb += right.eq((index | of_sums) & (head.elems != 0))
        with m.Else():
            kind = Mux(codec.norm, Op.NORM, Op.RAW)
            m.d.comb += right.eq((head.op == kind) & whole & (head.elems != 0))

        values, through = self.values, routes.o
        m.d.comb += [
            unit.coded.p.data.eq(values.p.data),
            unit.coded.p.last.eq(values.p.last),
            self.verdicts.valid.eq(unit.verdicts.valid),
            self.verdicts.payload.eq(unit.verdicts.p.ok),
            unit.verdicts.ready.eq(self.verdicts.ready),
            through.ready.eq(values.valid & values.ready & values.p.last),
        ]
        with m.If(through.valid & ~through.p.keep):
            m.d.comb += values.ready.eq(1)
        with m.Elif(through.valid & coded):
            m.d.comb += [unit.coded.valid.eq(values.valid), values.ready.eq(unit.coded.ready)]
        with m.If(coded):
            m.d.comb += [
                self.floats.p.eq(unit.floats.p),
                self.floats.valid.eq(unit.floats.valid),
                unit.floats.ready.eq(self.floats.ready),
            ]
        with m.Else():
            m.d.comb += [
                levels.i.p.data.eq(values.p.data),
                levels.i.p.last.eq(values.p.last),
                levels.i.p.expand.eq(through.p.expand),
                self.floats.valid.eq(levels.o.valid),
                self.floats.p.eq(levels.o.p),
                levels.o.ready.eq(self.floats.ready),
            ]
            with m.If(through.valid & through.p.keep):
                m.d.comb += [levels.i.valid.eq(values.valid), values.ready.eq(levels.i.ready)]
        return m
