"""Claims are over the best of what there was, and no baseline is slower than it has to be."""

import pytest
from gradnic.sim.reproduce import accuracy_time, dlcp
from gradnic.sim.reproduce.claims import Result


def test_dlcp_trains_faster_than_the_best_system_before_it():
    """pFabric's last flow is sooner than DCTCP's, which waits for a timeout."""
    last = {"DCTCP": 10_000.0, "pFabric": 600.0}
    found = {(kind, 16, 0.0): (1.0, 1.0, us) for kind, us in last.items()}
    found |= {("ours", 16, p): (1.0, 1.0, 300.0) for p in (0.0, dlcp.BOUND)}
    result = Result("dlcp")
    dlcp._training(result, found, 16, (0.0, dlcp.BOUND))
    (claim,) = result.claims
    assert claim.ours == pytest.approx(100 * (1 / 0.75 - 1))
    assert claim.high == pytest.approx(100 * (1 / 0.55 - 1))
    assert not claim.holds


def learned(variant, model, epochs, seed, reach=0.95):
    """A made-up training run, the same for all codecs."""
    return {"accuracy": [0.1 + (reach - 0.1) * i / epochs for i in range(epochs + 1)], "nmse": 0.0,
            "wire_ratio": 2.0}  # fmt: skip


STEPS = {accuracy_time.BASE: 9.0, "FP32": 4.0, "BF16": 3.6, "PowerSGD, rank 4": 3.0,
         "INCEPTIONN 2^-10": 4.0, "THC": 3.0, "THC along MultiTree, 1 % lost": 3.6}  # fmt: skip


def test_a_codec_that_saves_nothing_is_not_faster_than_fp32(monkeypatch):
    """A ring is faster than a worker-aggregator without any codec, and BF16 is none of ours."""
    monkeypatch.setattr(accuracy_time, "step_seconds", lambda model, curve_of: STEPS)
    claims = accuracy_time.run(True, lambda _: None, learned).claims
    assert [claim.ours for claim in claims] == pytest.approx([0.9, 1.2, 1.0])
    assert [claim.holds for claim in claims] == [False, True, True]
    assert (claims[1].low, claims[1].high) == pytest.approx((1.0, 3.0))
    assert all("the best is BF16 on a ring" in claim.differs for claim in claims)


def test_a_target_that_is_never_reached_is_no_gain(monkeypatch):
    """Neither for ours, nor where FP32 itself stays below."""
    monkeypatch.setattr(accuracy_time, "step_seconds", lambda model, curve_of: STEPS)

    def ours(below):
        claims = accuracy_time.run(
            True, lambda _: None, lambda v, *run: learned(v, *run, 0.5 if v == below else 0.95)
        ).claims
        return [claim.ours for claim in claims]

    assert ours("THC") == pytest.approx([0.9, 0.0, 1.0])
    assert ours("BF16") == pytest.approx([1.0, 4 / 3, 4 / 3.6])
    with pytest.raises(ValueError, match="FP32 does not reach 90 %"):
        ours("FP32")
