"""Proofs of fork and width converter at real width, for all time, and of the library itself."""

import pytest
from amaranth.hdl import Assert, Cover, Mux, Signal, Value
from gradnic.hdl.stream import slice as streams
from gradnic.hdl.stream import width
from gradnic.hdl.stream.beats import Beat, FrameBeat
from gradnic.hdl.stream.slice import Fork
from gradnic.hdl.stream.width import WidthConverter
from gradnic.sim.proof import formal


class ForkProof(formal.Harness):
    """Every beat leaves each output once, before it leaves the input, and unchanged."""

    def describe(self, m):
        i = self.inputs["i"]
        for k, o in enumerate(self.outputs.values()):
            done = Signal(name=f"done{k}")  # this output has had the beat at the input
            gives = o.valid & o.ready
            with m.If(i.valid):
                m.d.sync += done.eq(Mux(i.ready, 0, done | gives))
            m.d.comb += [
                Assert(~o.valid | (i.valid & ~done), f"o{k}: a beat comes twice, or from nowhere"),
                Assert(~o.valid | (Value.cast(o.p) == Value.cast(i.p)), f"o{k}: changed"),
                Assert(~(i.valid & i.ready) | done | gives, f"o{k}: a beat is left out"),
                Assert(done == self.component.taken[k]),
                Cover(done & i.valid & i.ready, f"o{k}: waits for a slower one"),
            ]


def test_fork_for_all_time():
    formal.prove(ForkProof(Fork(FrameBeat(64), 3), ready_within={"i": 0}), k=1)


class WidenProof(formal.Harness):
    """The piece that the solver picks stands in its lane of the wide beat it belongs to."""

    keep_by_beat = True

    def __init__(self, component, **options):
        super().__init__(component, **options)
        self.pick = Signal()
        self.free.append(self.pick)

    def describe(self, m):
        dut, i, o = self.component, self.inputs["i"], self.outputs["o"]
        take, give = i.valid & i.ready, o.valid & o.ready
        n, n_bits = dut.ratio, {name: len(i.p[name]) for name in dut.scaled}
        n_pieces = Signal(range(n + 1))  # in the wide beat, which is complete or not
        complete, tracking = Signal(), Signal()
        lane = Signal(range(n))
        newest = Signal(i.p.shape(), reset_less=True)
        picked = Signal(i.p.shape(), reset_less=True)
        with m.If(take):
            m.d.sync += [
                n_pieces.eq(Mux(complete, 0, n_pieces) + 1),
                complete.eq(i.p.last | ((n_pieces == n - 1) & ~complete)),
                newest.eq(i.p),
            ]
        with m.Elif(give):
            m.d.sync += [complete.eq(0), n_pieces.eq(0)]
        with m.If(take & self.pick & (~tracking | give)):
            m.d.sync += [tracking.eq(1), lane.eq(Mux(complete, 0, n_pieces)), picked.eq(i.p)]
        with m.Elif(give):
            m.d.sync += tracking.eq(0)
        m.d.comb += [
            Assert(o.valid == complete, "offered too early, or not at all"),
            Assert(~(take & o.valid) | give, "a complete beat is overwritten"),
            Assert(~o.valid | (o.p.last == newest.last), "last is not the last piece's"),
            *(Assert(~o.valid | (o.p[name] == newest[name]), name) for name in dut.copied),
            Cover(tracking & give & (lane == n - 1), "the top lane leaves"),
            Cover(give & (n_pieces == 1) & (n > 1), "a beat of one piece leaves"),
            # lemmas
            Assert(dut.at == Mux(complete, 0, n_pieces)),
            Assert(~tracking | (lane < n_pieces)),
            Assert(n_pieces <= n),
            Assert(complete | (n_pieces < n)),
            Assert(~complete | (n_pieces != 0)),
        ]
        held = o.p
        for name, bits in n_bits.items():
            for piece in range(n):
                value = held[name][piece * bits : (piece + 1) * bits]
                m.d.comb += [
                    Assert(~(tracking & (lane == piece)) | (value == picked[name]), f"{name}"),
                    Assert((n_pieces == 0) | (n_pieces > piece) | (value == 0), "a lane has more"),
                ]
                if name == "keep":
                    ends = complete & (n_pieces == piece + 1)
                    m.d.comb += [
                        Assert(~(n_pieces > piece) | ends | value.all(), "a lane is not full"),
                        Assert(~ends | (value == newest.keep)),
                    ]
        if "keep" in n_bits:
            m.d.comb += Assert(
                ~complete | formal.keep_rule(newest) & (newest.last | (n_pieces == n))
            )


class NarrowProof(formal.Harness):
    """The output is, piece for piece, the wide beat that was taken last."""

    def describe(self, m):
        dut, i, o = self.component, self.inputs["i"], self.outputs["o"]
        take, give = i.valid & i.ready, o.valid & o.ready
        inside, piece = Signal(), Signal(range(dut.ratio))
        beat = Signal(i.p.shape(), reset_less=True)
        rest = {name: beat[name] >> (piece * len(o.p[name])) for name in dut.scaled}
        final = piece == dut.ratio - 1
        if "keep" in dut.scaled:
            final = final | ((rest["keep"] >> len(o.p.keep)) == 0)
        with m.If(take):
            m.d.sync += [inside.eq(1), piece.eq(0), beat.eq(i.p)]
        with m.Elif(give):
            m.d.sync += [inside.eq(~final), piece.eq(piece + 1)]
        m.d.comb += [
            Assert(o.valid == inside, "a piece is missing, or one too many"),
            Assert(~take | ~inside | (give & final), "a beat is overwritten"),
            Assert(~inside | (o.p.last == (beat.last & final)), "last is on a wrong piece"),
            *(
                Assert(~inside | (o.p[name] == rest[name][: len(o.p[name])]), f"{name}: wrong")
                for name in dut.scaled
            ),
            *(Assert(~inside | (o.p[name] == beat[name]), f"{name}: wrong") for name in dut.copied),
            Cover(give & final & (piece == dut.ratio - 1), "a full beat leaves"),
            Cover(give & final & (piece == 0), "a beat leaves in one piece"),
            # lemmas
            Assert(~inside | (dut.at == piece)),
            *(Assert(~inside | (dut.held[name] == rest[name])) for name in dut.scaled),
            *(Assert(~inside | (dut.held[name] == beat[name])) for name in (*dut.copied, "last")),
        ]
        if "keep" in dut.scaled:
            m.d.comb += Assert(~inside | formal.keep_rule(beat))
            m.d.comb += Assert(~inside | (rest["keep"] != 0))


def _frame(n_bytes):
    return FrameBeat(n_bytes, meta_width=16)


@pytest.mark.parametrize("ratio", [2, 4, 8])
def test_widening_for_all_time(ratio):
    dut = WidthConverter(_frame(64 // ratio), _frame(64))
    formal.prove(WidenProof(dut, ready_within={"i": 0}), k=1)


@pytest.mark.parametrize("ratio", [2, 4, 8])
def test_narrowing_for_all_time(ratio):
    dut = WidthConverter(_frame(64), _frame(64 // ratio))
    formal.prove(NarrowProof(dut), k=1)
    small = WidthConverter(_frame(8), _frame(8 // ratio))
    formal.prove(NarrowProof(small, ready_within={"i": ratio - 1}), k=ratio + 1)


def _widener(hdl):
    return hdl.WidthConverter(_frame(1), _frame(4))


def _narrower(hdl):
    return hdl.WidthConverter(_frame(4), _frame(1))


BUGS = [
    (ForkProof, lambda hdl: hdl.Fork(Beat(4), 2), streams, "Mux(self.i.ready, 0, taken)", "taken"),
    (
        ForkProof,
        lambda hdl: hdl.Fork(Beat(4), 2),
        streams,
        "self.i.ready.eq(taken.all())",
        "self.i.ready.eq(taken.any())",
    ),
    (
        WidenProof,
        _widener,
        width,
        "self.at.eq(Mux(ends, 0, self.at + 1))",
        "self.at.eq(self.at + 1)",
    ),
    (
        WidenProof,
        _widener,
        width,
        "with m.Elif(self.at == 0):",
        "with m.Elif(0):",
    ),
    (
        NarrowProof,
        _narrower,
        width,
        'final | ~held.keep[n_bits["keep"] :].any()',
        "final",
    ),
    (
        NarrowProof,
        _narrower,
        width,
        "o.last.eq(held.last & final)",
        "o.last.eq(held.last)",
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug[0].__name__}-{bug[4]}")
def test_seeded_bug_is_seen(bug):
    harness, make, module, line, wrong = bug
    formal.refute(harness(make(formal.twin(module, line, wrong))), depth=12)
