"""A bench's memory that pauses: as often as it says, by AXI's rules, and in each order."""

from functools import partial

import numpy as np
import pytest
from gradnic.sim.engine import amaranth_run
from gradnic.sim.offload.pausing import Pausing

CYCLES, BURST = 3000, 4
TAKEN = {"ar": ("read", "ar"), "r": ("read", "r"), "aw": ("write", "aw"), "w": ("write", "w"),
         "b": ("write", "b")}  # fmt: skip


def played(pauses):
    """{channel: 0 or 1 a cycle, whether something is taken} of a card and a memory always ready,
    but for beats and answers, which the card takes in 7 of 10 cycles. Bursts have `BURST` beats.
    """
    found = {name: [] for name in TAKEN}
    hears = np.random.default_rng(1).random((2, CYCLES)) < 0.7

    async def bench(ctx, part):
        there = part.to_read, part.to_write
        for port, names in ((part.read, ("arvalid",)), (part.write, ("awvalid", "wvalid")),
                            (there[0], ("arready", "rvalid")),
                            (there[1], ("awready", "wready", "bvalid"))):  # fmt: skip
            for name in names:
                ctx.set(getattr(port, name), 1)
        ctx.set(part.pauses, pauses)
        n_beats, offered = 0, dict.fromkeys("rb", False)
        for cycle in range(CYCLES):
            ctx.set(part.write.wlast, n_beats % BURST == BURST - 1)
            for k, (port, name) in enumerate(((part.read, "r"), (part.write, "b"))):
                ctx.set(getattr(port, f"{name}ready"), int(hears[k, cycle]))
                now = ctx.get(getattr(port, f"{name}valid"))
                assert now or not offered[name]  # what is offered stays
                offered[name] = now and not hears[k, cycle]
            for name, (port, prefix) in TAKEN.items():
                port = getattr(part, port)
                found[name].append(
                    ctx.get(getattr(port, f"{prefix}valid") & getattr(port, f"{prefix}ready"))
                )
            n_beats += found["w"][-1]
            await ctx.tick()

    part = Pausing(16, 32)
    amaranth_run.simulate(part, partial(bench, part=part))
    return {name: np.array(taken) for name, taken in found.items()}


def test_without_a_seed_it_is_not_there():
    found = played(0)
    assert all(found[name].all() for name in ("ar", "aw", "w"))


@pytest.mark.parametrize("order", range(3))
def test_it_pauses_and_keeps_its_order(order):
    found = played(0x1234560 + order)
    assert 0.4 < found["ar"].mean() < 0.9
    for name in ("r", "b"):
        assert 0.3 < found[name].mean() < 0.65
    asked, came = np.cumsum(found["aw"]), np.cumsum(found["w"])
    before = {name: np.r_[0, count[:-1]] for name, count in (("aw", asked), ("w", came))}
    assert came[-1] > CYCLES // 10
    if order == 2:  # all data of a burst come first, and those of one at most
        assert (before["w"][found["aw"] == 1] >= BURST * asked[found["aw"] == 1]).all()
        assert (came <= BURST * (before["aw"] + 1)).all()
    else:
        assert (came <= BURST * before["aw"]).all()
