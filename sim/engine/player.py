"""cocotb bench of any component: plays beats under stall patterns, as the batch engine does."""

import cocotb
import numpy as np
from gradnic.sim.engine import drivers


@cocotb.test()
async def play(dut):
    """Reset, then all ports at once; leaves beats and cycles of every output and input."""
    given, options = drivers.given(), drivers.options()
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    await drivers.reset(dut, inputs=options["inputs"], outputs=options["outputs"])
    # The cycle after reset passed with nothing offered; cycle 0 begins here, at a rising edge.
    sources, sinks = {}, {}
    for name in options["inputs"]:
        port = drivers.Stream(dut, name)
        beats, stall = given[f"beats.{name}"], given.get(f"stall.{name}", [1])
        sources[name] = cocotb.start_soon(drivers.drive(port, beats, rng, stall))
    for name in options["outputs"]:
        port = drivers.Stream(dut, name)
        stall = given.get(f"stall.{name}", [1])
        sinks[name] = cocotb.start_soon(
            drivers.collect(port, rng, stall, n_cycles=options["n_cycles"])
        )
    left = {}
    for name, task in sinks.items():
        left[f"beats.{name}"], left[f"taken.{name}"] = await task
    for name, task in sources.items():
        assert task.done(), f"{name}: beats are left after {options['n_cycles']} cycles"
        left[f"taken.{name}"] = await task
    drivers.leave(**left)
