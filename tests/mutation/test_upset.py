"""Registers that a bench changes: they keep their value but for the bits that it names."""

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from gradnic.sim.engine import batch
from gradnic.sim.mutation.upset import Upset


class Counter(wiring.Component):
    """Counts cycles, and those in which it counts."""

    counts: In(1)
    cycles: Out(8)
    counted: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.cycles.eq(self.cycles + 1)
        with m.If(self.counts):
            m.d.sync += self.counted.eq(self.counted + 1)
        return m


def test_a_register_keeps_its_value_but_for_the_bits_that_change():
    rng = np.random.default_rng(1)
    counts = rng.integers(2, size=60)
    upset = np.where(rng.random(60) < 0.3, rng.integers(256, size=60), 0)
    run = batch.build(Upset(Counter(), ["counted"])).run(
        signals={"counts": counts, "upset": upset}, trace=["cycles", "counted"], drain=False,
        max_cycles=60,
    )  # fmt: skip
    want, value = [], 0
    for one, bits in zip(counts.tolist(), upset.tolist(), strict=True):
        want.append(value)
        value = value ^ bits if bits else (value + one) % 256
    assert run.traces["counted"].tolist() == want
    assert run.traces["cycles"].tolist() == list(range(60))
