"""A thermometer whose bits change by themselves."""

import numpy as np
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.stream.steering import healed
from gradnic.sim.engine import batch, stimulus

N = 16


class Fill(wiring.Component):
    """A thermometer of which a bench changes any bits."""

    came: In(1)
    gone: In(1)
    flips: In(N)
    fill: Out(N)

    def elaborate(self, platform):
        m = Module()
        occupied = Signal(N)
        m.d.comb += self.fill.eq(occupied ^ self.flips)
        m.d.sync += occupied.eq(healed(m, self.fill, self.came, self.gone))
        return m


def test_steps_are_counted_and_single_bits_heal():
    rng = stimulus.rng("steering")
    up, down, both, flips, count = [], [], [], [], [0]
    while len(up) < 20_000:
        rises = int(rng.integers(0, 2) if 0 < count[-1] < N else count[-1] == 0)
        moves = int(rng.integers(0, 3) != 0)
        far = [bit for bit in range(N) if not -2 <= bit - count[-1] <= 1]
        flip = 1 << int(rng.choice(far)) if not moves and rng.integers(0, 4) == 0 else 0
        up.append(moves & rises)
        down.append(moves & (1 - rises))
        both.append(int(0 < count[-1] < N and not moves and not flip and rng.integers(0, 2)))
        flips.append(flip)
        count.append(count[-1] + up[-1] - down[-1])
    model = batch.build(Fill())
    signals = {"came": np.add(up, both), "gone": np.add(down, both), "flips": flips}
    run = model.run({}, signals=signals, trace=["fill"], drain=False, max_cycles=len(up))
    got = np.asarray(run.traces["fill"]).astype(int).ravel() ^ flips
    assert got.tolist() == [(1 << n) - 1 for n in count[:-1]]
