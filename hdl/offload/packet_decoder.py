"""Turns the payloads that came into floats, and sorts out what is not of the round's codec.

Part of `gradnic.hdl.offload.card`, whose golden model it follows.
"""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.formats import Op

from ..inceptionn.decompressor import Decompressor
from ..primitive.names import signals
from ..reduction.codec import index_octets, octets_of
from ..stream.beats import Beat, UnitBeat
from ..stream.delays import copied
from ..stream.fifo import FIFO
from ..transport.records import Arrival, Round
from .bf16 import Widen

ELEM_BYTES = 4
N_PACKETS = 16  # whose head has passed, and not their payload
N_BEATS = 16  # that wait here: what takes them is far from the store they come from

Route = data.StructLayout({"vanishes": 1, "to_codec": 1, "to_floats": 1})
"""Where a packet's values go: one of the three."""


class PacketDecoder(wiring.Component):
    """Data packets of the round give floats; the values of others vanish, their heads go on.

    A packet is ``wrong`` if its kind or settings are not the round's, or its length cannot be. Raw
    payloads, norms, indices and sums pass as they are; coded ones are stored and checked, and only
    sound ones give floats. A head takes 3 cycles.

    Parameters
    ----------
    n_bytes : int
        Of a beat, 16, 32 or 64.
    max_elems : int
        Of a packet, at most.
    inc : bool
        False: there are no coded rounds, and no decompressor.
    bf16 : bool
        False: there are no rounds with BF16 on the wire.
    bits : int
        4, or 8 for indices of 2 to 8 bits.
    shared : bool
        Coded payloads come as floats, or as one beat of ``drop`` if they are unsound.

    Members
    -------
    round : In(Round)
    heads, arrivals : In, Out(stream.Signature(Arrival))
    values : In(stream.Signature(Beat(8 * n_bytes))), of `UnitBeat` with `shared`
        For each data head with a length.
    floats : Out(stream.Signature(Beat(8 * n_bytes)))
        Of data packets that are ready and not wrong, unless their unit is unsound.
    verdicts : Out(stream.Signature(1))
        Of a coded round, one for each such packet: 1 where it is sound.
    astray : Out(1)
        1 until a reset: a queue knows that one of its registers has changed by itself.
    """

    def __init__(
        self, n_bytes: int, *, max_elems: int = 352, inc: bool = True, bf16: bool = False,
        bits: int = 4, shared: bool = False,
    ) -> None:  # fmt: skip
        self.n_bytes, self.bits = n_bytes, bits
        self.inc, self.bf16, self.shared = inc, bf16, shared
        if inc and not shared:
            self.codec = Decompressor(n_bytes // ELEM_BYTES, max_floats=max_elems)
        beats = stream.Signature(Beat(8 * n_bytes))
        self.beat = UnitBeat(8 * n_bytes) if shared else Beat(8 * n_bytes)
        super().__init__(
            {
                "round": In(Round),
                "heads": In(stream.Signature(Arrival)),
                "arrivals": Out(stream.Signature(Arrival)),
                "values": In(stream.Signature(self.beat)),
                "floats": Out(beats),
                "verdicts": Out(stream.Signature(1)),
                "astray": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.routes = routes = FIFO(Route, N_PACKETS)
        m.submodules.passed = passed = FIFO(Arrival, N_PACKETS, watched=True)
        wiring.connect(m, passed.o, wiring.flipped(self.arrivals))
        beats = stream.Signature(Beat(8 * self.n_bytes))
        sent, coded = (beats.create(path=(name,)) for name in ("plain", "coded"))
        plain, odd = sent, None
        if self.bf16:
            m.submodules.widen = widen = Widen(self.n_bytes)
            m.submodules.odd = odd_ones = FIFO(1, N_PACKETS)
            m.d.comb += widen.on.eq(self.round.codec.bf16)
            wiring.connect(m, odd_ones.o, widen.odd)
            plain, sent, odd = widen.o, widen.i, odd_ones.i
        if self.inc and not self.shared:
            self._codec(m, plain, coded)
        else:
            m.d.comb += [
                self.floats.valid.eq(plain.valid),
                self.floats.p.eq(plain.p),
                plain.ready.eq(self.floats.ready),
            ]
        self._sort(m, passed.i, routes.i, odd)

        # Where values go is settled in a cycle before the first beat: flags steer, and no queue.
        m.submodules.near = near = FIFO(self.beat, N_BEATS, watched=True)
        m.d.comb += self.astray.eq(passed.astray | near.astray)
        wiring.connect(m, wiring.flipped(self.values), near.i)
        values, through = near.o, routes.o
        to_none, to_codec, to_floats = (Signal(name=f"to_{n}") for n in ("none", "codec", "floats"))
        next_ = Signal()
        m.d.comb += [
            next_.eq(
                (values.valid & values.ready & values.p.last) | ~(to_none | to_codec | to_floats)
            ),
            through.ready.eq(next_),
            values.ready.eq(to_none | (to_codec & coded.ready) | (to_floats & sent.ready)),
            sent.valid.eq(values.valid & to_floats),
            coded.valid.eq(values.valid & to_codec),
            *(
                sink.p[name].eq(values.p[name])
                for sink in (sent, coded)
                for name in sink.p.shape().members
            ),
        ]
        if self.inc and self.shared:
            self._judge(m, coded, sent, values.p.drop)
        with m.If(next_):
            m.d.sync += [
                to_none.eq(through.valid & through.p.vanishes),
                to_codec.eq(through.valid & through.p.to_codec),
                to_floats.eq(through.valid & through.p.to_floats),
            ]
        return m

    def _judge(self, m, values, sent, unsound):
        """Floats of coded packets go where others go, and a verdict before their first beat."""
        m.submodules.verdicts_told = verdicts = FIFO(1, N_PACKETS)
        wiring.connect(m, verdicts.o, wiring.flipped(self.verdicts))
        first = Signal(init=1)
        may = Signal()
        m.d.comb += [
            may.eq(~first | verdicts.i.ready),
            verdicts.i.valid.eq(values.valid & values.ready & first),
            verdicts.i.payload.eq(~unsound),
            values.ready.eq(may & (unsound | sent.ready)),
        ]
        with m.If(values.valid & may & ~unsound):
            m.d.comb += sent.valid.eq(1)
        with m.If(values.valid & values.ready):
            m.d.sync += first.eq(values.p.last)

    def _codec(self, m, plain, values):
        """The decompressor, of `values`; what is offered are its floats, or `plain` ones."""
        m.submodules.codec = unit = self.codec
        coded, readies = copied(m, self.round.codec.coded, 2, name="coded")
        m.d.comb += [
            unit.coded.p.data.eq(values.p.data),
            unit.coded.p.last.eq(values.p.last),
            unit.coded.valid.eq(values.valid),
            values.ready.eq(unit.coded.ready),
            self.verdicts.valid.eq(unit.verdicts.valid),
            self.verdicts.payload.eq(unit.verdicts.p.ok),
            unit.verdicts.ready.eq(self.verdicts.ready),
            self.floats.p.eq(Mux(coded, unit.floats.p, plain.p)),
            self.floats.valid.eq(Mux(coded, unit.floats.valid, plain.valid)),
            plain.ready.eq(~readies & self.floats.ready),
            unit.floats.ready.eq(readies & self.floats.ready),
        ]

    def _sort(self, m, passed, routes, odd):
        """Compares a head with the round in one cycle, judges it in the next, then hands it on."""
        halves = self.round.codec.bf16 if self.bf16 else Const(0)
        codec = self.round.codec
        arrival = Signal(Arrival, reset_less=True)
        head = self.heads.p.head
        busy, judged, go = signals("busy judged go")
        facts = (
            ("is_data", head.op != Op.CONTROL),
            ("is_coded", head.op == Op.INC),
            ("is_plain", head.op == Mux(codec.norm, Op.NORM, Mux(halves, Op.RAW16, Op.RAW))),
            ("is_index", (head.op == Op.THC_IDX) & ~head.ph),
            ("is_sum", (head.op == Op.THC_SUM) & (head.p1 == codec.code << 6)),
            ("same", (head.p0 == Cat(codec.exponent, codec.paper)) & (head.p1 == codec.prescale)),
            ("same_index", (head.p0 == codec.index_p0) & (head.p1 == codec.index_p1)),
            ("whole", head.length == Mux(halves, head.elems << 1, head.elems << 2)),
            ("indexed", head.length == index_octets(codec, head.elems, self.bits)),
            ("summed", head.length == octets_of(codec, head.elems)),
            ("filled", head.length != 0),
            ("has_elems", head.elems != 0),
        )
        flags = {name: Signal(name=name, reset_less=True) for name, _ in facts}
        known = SimpleNamespace(**flags)
        right = Signal(reset_less=True)
        m.d.comb += self.heads.ready.eq(~busy)
        m.d.sync += judged.eq(busy & ~go)
        with m.If(~busy):
            m.d.sync += [
                busy.eq(self.heads.valid),
                arrival.eq(self.heads.p),
                *(flags[name].eq(value) for name, value in facts),
            ]
        with m.Elif(go):
            m.d.sync += busy.eq(0)
        index = known.is_index & known.same_index & known.indexed
        floats = Mux(
            codec.coded,
            known.is_coded & known.same & known.filled,
            known.is_plain & known.whole & known.has_elems,
        )
        sums = (index | (known.is_sum & known.summed)) & known.has_elems
        m.d.sync += right.eq(Mux(codec.thc, sums, floats) & ~arrival.tree)
        keep = known.is_data & arrival.ready & right
        opens = Signal(init=1)
        if self.bf16:
            m.d.comb += [
                *([] if self.inc and not self.shared else [opens.eq(odd.ready)]),
                odd.valid.eq(go & keep & codec.bf16),
                odd.payload.eq(_odd_beats(arrival.head.elems, self.n_bytes)),
            ]
        m.d.comb += [
            go.eq(judged & passed.ready & routes.ready & opens),
            passed.valid.eq(go),
            passed.p.eq(arrival),
            passed.p.wrong.eq(known.is_data & ~right),
            routes.valid.eq(go & known.is_data & known.filled),
            routes.p.vanishes.eq(~keep),
            routes.p.to_codec.eq(keep & codec.coded),
            routes.p.to_floats.eq(keep & ~codec.coded),
        ]
        if self.inc and not self.shared:
            units = self.codec.units
            m.d.comb += [
                opens.eq(units.ready & (odd.ready if self.bf16 else 1)),
                units.valid.eq(go & keep & codec.coded),
                units.p.count.eq(arrival.head.elems),
                units.p.bytes.eq(arrival.head.length),
                *(units.p[name].eq(codec[name]) for name in ("exponent", "paper", "prescale")),
            ]


def _odd_beats(elems, n_bytes):
    """Whether so many float32 fill an odd number of beats, the last one in part."""
    lanes = n_bytes // ELEM_BYTES
    return (elems + (lanes - 1))[ceil_log2(lanes)]
