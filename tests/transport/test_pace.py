"""Pace: the rules by themselves, and the circuit's rate and credit against them."""

import numpy as np
import pytest
from gradnic.hdl.transport.pace import Pace
from gradnic.models.transport import pace
from gradnic.models.transport.pace import LINE
from gradnic.sim.engine import batch, stimulus


def rules(rule, floor, step, low=0, high=0):
    """The registers as bytes of the port."""
    word = rule | floor << 2 | step << 19 | low << 36 | high << 68
    return np.frombuffer(word.to_bytes(13, "little"), np.uint8)[None]


@pytest.mark.parametrize("rule", range(3))
def test_rate_after_each_echo(rule):
    rng = stimulus.rng("pace", rule)
    model = batch.build(Pace(32))
    n = 600
    share = np.where(rng.random(n) < 0.5, 0, rng.integers(0, 256, n))
    share[:150], share[150:300] = 255, 0
    trip = rng.integers(0, 3000, n)
    trip[:60] = 2999
    settings = {"floor": 900, "step": 700, "low": 300, "high": 2000}
    run = model.run(
        {"echoes": model.pack("echoes", ce_share=share, round_trip=trip)},
        signals={"rules": rules(rule, **settings), "burst": 2000}, trace=("rate",),
        stalls={"echoes": 0.5},
    )  # fmt: skip
    golden = pace.Pace(("off", "ce", "rtt")[rule], **settings)
    want = []
    for s, t in zip(share, trip, strict=True):
        golden.echo(int(s), int(t))
        want.append(golden.rate)
    rates = np.asarray(run.traces["rate"]).astype(int)
    assert [int(rates[t + 1]) for t in run.taken["echoes"]] == want
    if rule:
        assert min(want) == 900


@pytest.mark.parametrize("n_bytes", [16, 64])
def test_credit(n_bytes):
    rng = stimulus.rng("credit", n_bytes)
    model = batch.build(Pace(n_bytes))
    sizes = rng.integers(64, 1500, 1500)
    share = rng.integers(0, 60, 40)
    run = model.run(
        {"frames": model.pack("frames", sizes), "echoes": model.pack("echoes", ce_share=share)},
        signals={"rules": rules(1, 2000, 500), "burst": 3000}, trace=("rate",),
        stalls={"echoes": 0.01, "frames": 0.3}, max_cycles=400_000,
    )  # fmt: skip
    golden = pace.Pace("ce")
    rates, taken = np.asarray(run.traces["rate"]).astype(int), set(run.taken["frames"].tolist())
    number = 0
    for cycle in range(int(run.taken["frames"][-1]) + 1):
        golden.rate = int(rates[max(cycle - 1, 0)])  # a cycle later, the circuit says
        if cycle in taken:
            assert golden.spend(int(sizes[number]))
            number += 1
        golden.cycle(n_bytes, 3000)
    assert number == len(sizes)


def test_a_frame_goes_as_soon_as_it_may():
    model = batch.build(Pace(32))
    run = model.run({"frames": model.pack("frames", [1500] * 40)}, signals={"burst": 64})
    assert set(np.diff(run.taken["frames"])[2:].tolist()) == {46, 47}


def test_marked_share_cuts_the_rate_and_its_absence_restores_it():
    p = pace.Pace("ce", floor=1000, step=500)
    p.echo(255, 0)
    assert p.alpha == 255 * 256 // 16
    assert p.rate == LINE - (LINE * p.alpha >> 17)
    for _ in range(100):
        p.echo(255, 0)
    assert p.rate == 1000
    assert abs(p.alpha - 255 * 256) < 256
    p.echo(0, 0)
    assert p.rate == 1500
    for _ in range(300):
        p.echo(0, 0)
    assert p.rate == LINE


def test_round_trips_steer_the_rate():
    p = pace.Pace("rtt", low=10, high=100, step=64)
    p.echo(0, 200)
    assert p.rate == LINE - LINE // 8
    before = p.rate
    p.echo(0, 50)  # falling
    assert p.rate == before + 64
    p.echo(0, 60)  # growing between low and high
    assert p.rate == before + 64 - (before + 64 >> 4)


def test_credit_keeps_the_rate():
    p = pace.Pace("ce", floor=1, step=1)
    p.rate = LINE // 4
    sent = 0
    for _ in range(10_000):
        p.cycle(32, 2000)
        sent += 1500 if p.spend(1500) else 0
    assert abs(sent / (10_000 * 8) - 1) < 0.03


def test_parameters():
    with pytest.raises(ValueError, match="n_bytes must be a power of two, not 12"):
        Pace(12)
    with pytest.raises(ValueError, match="rule must be off, ce or rtt, not 'on'"):
        pace.Pace("on")
