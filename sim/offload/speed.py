"""Speed of the compiled engine: circuits in their harnesses, and the same circuits alone.

Alone: Verilator's C++ in a loop that only moves the clock. Both are called in turn, in one process
and one thread, and what counts is processor time.
"""

import time
from statistics import median

import numpy as np
from gradnic.hdl.inceptionn.compressor import Compressor
from gradnic.hdl.stream.fifo import FIFO
from gradnic.models.offload.cluster import all_reduce
from gradnic.models.offload.codec import Inceptionn
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from ..engine import batch
from ..inceptionn import units
from .cluster import OffloadCluster

ROUNDS = 5


def _fifo(n_cycles):
    model = batch.build(FIFO(32, 4), name="FIFO4")
    beats = np.random.default_rng(1).integers(0, 256, (n_cycles, 4), np.uint8)
    instance = model.instance()

    def play():
        run = instance.run({"i": beats})
        run.check(o=beats)
        return run.cycles

    return model.library, play


def _compressor(n_lanes, n_cycles):
    model = batch.build(Compressor(n_lanes))
    rng = np.random.default_rng(1)
    given = [
        units.of_floats(kind, 336, rng) for kind in ("mixed", "raw", "zero", "corners", "bits")
    ] * (n_cycles // (5 * 336 // n_lanes) + 1)
    inputs = units.compressor_inputs(model, given, n_lanes, rng)
    instance = model.instance()
    units.check_compressor(instance.run(inputs), given, n_lanes)
    expected = instance.run(inputs).outputs

    def play():
        run = instance.run(inputs)
        run.check(**expected)
        return run.cycles

    return model.library, play


def _card(n_bytes, n_elems):
    """Two cards on a link that all-reduce, again and again."""
    topology = parse("ring:2")
    table = compile_table(build(topology, "ring"))
    codec = Inceptionn(2, exponent=117, mode="strict", prescale=0)
    cluster = OffloadCluster(table, topology, n_elems, codec, n_bytes=n_bytes)
    values = np.random.default_rng(1).standard_normal((2, n_elems)).astype(np.float32)
    golden, _ = all_reduce(cluster.plan, codec, values, lambda v: codec.finish(v, 2), {})
    golden = golden.astype(np.float32)
    gen = 0

    def play():
        nonlocal gen
        gen = gen % 200 + 1
        result = cluster.run(values, gen=gen, max_cycles=1_000_000)
        if result.cycles is None or (result.replicas != golden).any():
            raise AssertionError(f"cards of {8 * n_bytes} bits: the sums are not the golden ones")
        return 2 * result.cycles  # of either card

    return cluster.library, play


BLOCKS = {  # name: (block, its lanes of 32 bits, what makes it)
    "fifo": ("fifo", 1, lambda: _fifo(2_000_000)),
    "compressor4": ("compressor", 4, lambda: _compressor(4, 400_000)),
    "compressor16": ("compressor", 16, lambda: _compressor(16, 100_000)),
    "card128": ("offload_card", 4, lambda: _card(16, 40_000)),
    "card512": ("offload_card", 16, lambda: _card(64, 40_000)),
}


def measure(name, *, rounds=ROUNDS):
    """One row: ``block``, ``lanes``, ``cycles_per_second``, ``bare_cycles_per_second``; medians.

    name : of `BLOCKS`. Cycles are those of one circuit; checks of what it gives are in its time.
    """
    block, lanes, make = BLOCKS[name]
    library, play = make()
    n_cycles = play()
    speeds = {"cycles_per_second": [], "bare_cycles_per_second": []}
    for _ in range(rounds):
        for way, action in (
            ("cycles_per_second", play),
            ("bare_cycles_per_second", lambda: library.bare_run(n_cycles)),
        ):
            start = time.process_time()
            action()
            speeds[way].append(n_cycles / (time.process_time() - start))
    return {"block": block, "lanes": lanes} | {way: median(all_) for way, all_ in speeds.items()}
