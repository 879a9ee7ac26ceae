"""Proofs of the stream rules on the outputs of the in-line card's parts, at real width."""

import pytest
from amaranth.hdl import Assert
from amaranth.lib import data
from gradnic.hdl.frame import arbiter, realign, splice
from gradnic.hdl.frame import length_guard as guard
from gradnic.hdl.frame.store import FrameStore
from gradnic.hdl.inline import rewrite
from gradnic.sim.proof import formal

N = 16


class OutputSlice(formal.Harness):
    """The rules, with the lemma that the copies of the output slice's flags are equal."""

    def describe(self, m):
        slice = getattr(self.component, "slice", None)
        for copies in (slice.valids, slice.spares) if slice else ():
            m.d.comb += [Assert(copy == copies[0]) for copy in copies[1:]]


PARTS = {
    "guard": lambda: guard.LengthGuard(N, meta_width=4, max_bytes=4 * N),
    "arbiter": lambda: arbiter.FrameArbiter(N, meta_width=4),
    "realigner": lambda: realign.Realigner(N, (42, 64)),
    "splicer": lambda: splice.Splicer(N, (44, 64), meta_width=4),
    "head math": lambda: rewrite.HeadMath(data.StructLayout({"tag": 4}), receive=False),
    "head patcher": lambda: rewrite.HeadPatcher(N, receive=True),
}


@pytest.mark.parametrize("part", PARTS)
def test_offers_stay_until_taken_for_all_time(part):
    formal.prove(OutputSlice(PARTS[part](), keep=False), k=4)


@pytest.mark.parametrize("part", ["guard", "arbiter", "splicer"])
def test_frames_keep_whole_beats_before_the_last(part):
    formal.check_outputs(PARTS[part](), depth=10)


def test_store_offers_stay_until_taken():
    formal.check_outputs(FrameStore(8, 8), depth=16)


@pytest.mark.parametrize(
    ("module", "part", "old", "new"),
    [
        (realign, "Realigner", "free.eq(~held | waiting | self.o.ready)", "free.eq(1)"),
        (arbiter, "FrameArbiter", "inside.eq(~slice.i.p.last)", "inside.eq(0)"),
        (splice, "Splicer", "Const(-1, tail_width)", "Const(-2, tail_width)"),
    ],
)
def test_harness_sees_a_seeded_bug(module, part, old, new):
    twin = formal.twin(module, old, new)
    make = {
        "Realigner": lambda: twin.Realigner(N, (42, 64)),
        "FrameArbiter": lambda: twin.FrameArbiter(N, meta_width=4),
        "Splicer": lambda: twin.Splicer(N, (44, 64), meta_width=4),
    }[part]
    if part == "FrameArbiter":
        with pytest.raises(AssertionError):
            formal.refute(formal.Harness(make()), depth=6)
    else:
        formal.refute(formal.Harness(make()), depth=14)
