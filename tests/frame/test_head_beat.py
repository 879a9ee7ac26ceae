"""Head and payload in beats of their own: bit for bit as the model, there and back, and proofs."""

import numpy as np
import pytest
from amaranth.hdl import Assert, Assume, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.frame import head_beat
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.models.frame.head_beat import apart, joined
from gradnic.sim.engine import batch
from gradnic.sim.proof import formal

N = 16  # bytes of a beat, in benches
GRID = [(1, 1), (0.5, 1), (1, 0.3), (0.6, 0.6)]
SIZES = [*range(1, 4 * N + 2), 64, 8, 24, 16, 17, 40, 8, 9]  # all around each half beat


def frames_of(sizes, seed=1):
    rng = np.random.default_rng(seed)
    order = rng.permutation([*sizes, *sizes])
    return [rng.bytes(int(size)) for size in order], rng.integers(0, 2, len(order))


@pytest.mark.parametrize(("i", "o"), GRID)
def test_heads_come_apart(i, o):
    model = batch.build(head_beat.HeadApart(N))
    frames, bad = frames_of(SIZES)
    run = model.run({"i": model.pack_frames("i", frames, at_last={"bad": bad})},
                    stalls={"i": i, "o": o})  # fmt: skip
    wanted = [apart(frame, N) for frame in frames]
    run.check(o=model.pack_frames("o", wanted, at_last={"bad": bad}))
    if i == o == 1:  # a beat each cycle comes out
        assert np.ptp(run.taken["o"]) == sum(-(-len(frame) // N) for frame in wanted) - 1


@pytest.mark.parametrize(("i", "o"), GRID)
def test_heads_are_joined(i, o):
    model = batch.build(head_beat.HeadJoined(N, meta_width=3))
    frames, bad = frames_of([size for size in SIZES if size >= N // 2], seed=2)
    meta = np.arange(len(frames)) % 8
    sent = [apart(frame, N) for frame in frames]
    beats = model.pack_frames("i", sent, at_last={"bad": bad}, meta=meta)
    run = model.run({"i": beats}, stalls={"i": i, "o": o})
    assert [joined(frame, N) for frame in sent] == frames
    run.check(o=model.pack_frames("o", frames, at_last={"bad": bad}, meta=meta))
    if i == o == 1:  # a beat each cycle goes in
        assert np.ptp(run.taken["i"]) == len(beats) - 1


class Pair(wiring.Component):
    """Apart, and joined again."""

    def __init__(self, n_bytes, module=head_beat):
        self.parts = module.HeadApart(n_bytes), module.HeadJoined(n_bytes)
        frames = stream.Signature(FrameBeat(n_bytes))
        super().__init__({"i": In(frames), "o": Out(frames)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.apart, m.submodules.joined = one, other = self.parts
        wiring.connect(m, wiring.flipped(self.i), one.i)
        wiring.connect(m, one.o, other.i)
        wiring.connect(m, other.o, wiring.flipped(self.o))
        return m


class Whole(formal.Conservation):
    """Beats that come out of a `Pair` are those that went in, where frames have a whole head."""

    def describe(self, m):
        p, first = self.i.p, self.first
        half = len(p.keep) // 2
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += first.eq(p.last)
        m.d.comb += [
            Assume(~self.i.valid | ~p.bad | p.last),
            Assume(~self.i.valid | ~first | p.keep[half - 1]),
            *(Assume(p.keep[k] | (p.data[8 * k : 8 * k + 8] == 0)) for k in range(len(p.keep))),
        ]
        super().describe(m)

    def __init__(self, component, **options):
        super().__init__(component, capacity=8, full=False, **options)
        self.first = Signal(init=1)


class Rules(formal.Harness):
    """The rules of streams, with the lemma that copies of the slice's flags are equal."""

    def describe(self, m):
        slice = self.component.slice
        for copies in (slice.valids, slice.spares):
            m.d.comb += [Assert(copy == copies[0]) for copy in copies[1:]]


PARTS = {"apart": head_beat.HeadApart, "joined": head_beat.HeadJoined}


@pytest.mark.parametrize("part", PARTS)
def test_offers_stay_until_taken_for_all_time(part):
    formal.prove(Rules(PARTS[part](128), keep=False), k=3)


@pytest.mark.parametrize("part", PARTS)
def test_frames_keep_whole_beats_before_the_last(part):
    formal.check_outputs(PARTS[part](4), depth=10)


def test_there_and_back_nothing_is_lost_or_changed():
    formal.check(Whole(Pair(2)), depth=12)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.flushes.eq(~self.flushes & beat.last", "self.flushes.eq(beat.last"),
        ("self.i.ready.eq(~self.full | out.ready)", "self.i.ready.eq(1)"),
        ("out.p.data.eq(Cat(rest, low))", "out.p.data.eq(Cat(low, rest))"),
    ],
)
def test_harness_sees_a_seeded_bug(old, new):
    twin = formal.twin(head_beat, old, new)
    formal.refute(Whole(Pair(2, twin)), depth=10)
