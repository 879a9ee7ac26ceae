"""Mutation campaign of the Hadamard transform at 4 lanes."""

import numpy as np
from gradnic.hdl.thc.hadamard import BLOCKS, Hadamard
from gradnic.models.thc import worker as thc

from ..thc.worker import SETTLE, fields_to_bytes

N_LANES, WIDTHS = 4, (9, 21)


def component():
    """The circuit under mutation."""
    return Hadamard(N_LANES, 4096, in_width=WIDTHS[0], width=WIDTHS[1])


def blocks(size, rng):
    """Blocks of noise, and among them a spike, one value everywhere, and extremes.

    Extremes change their sign as a Walsh function does: each stage then has its largest results
    as sums, or as differences, by a bit of the function's number. There are enough beats for the
    longest span to keep a first half, meet the second one and let it leave, if it took them.
    """
    top = 1 << WIDTHS[0] - 1
    x = rng.integers(-top, top, (max(8, 6144 // size), size))
    bits = rng.integers(0, size, 3)
    ones = np.zeros((4, size), np.int32)
    ones[range(4), [0, size - 1, *bits[:2]]] = 1
    walsh = thc.hadamard(ones)
    x[0], x[1] = 0, top - 1
    x[3:7] = np.where(walsh > 0, -top, top - 1)
    x[0, 5] = -top
    return x


def play(instance, log4, x, duty=1.0, *, reset=True):
    """Transform blocks, which must come out as the golden model's; returns the `batch.Run`."""
    run = instance.run(
        {"i": fields_to_bytes(x.reshape(-1, N_LANES), WIDTHS[0])},
        ["o"],
        stalls={"i": (SETTLE, duty)},
        signals={"log4": log4},
        reset=reset,
        probe_cycles=0,
    )
    transformed = thc.hadamard(x.astype(np.int32))
    run.check(o=fields_to_bytes(transformed.reshape(-1, N_LANES), WIDTHS[1]))
    return run


def test(model):
    """Every size, back to back and with gaps, and behind every other; no bubble at full rate."""
    rng = np.random.default_rng(1)
    instance = model.instance()
    every = {log4: blocks(size, rng) for log4, size in enumerate(BLOCKS)}
    for log4 in (3, 0, 1, 2):  # most gates are seen with the largest one
        x = every[log4]
        for duty in (1.0, 0.5, 0.1)[: 3 if log4 < 2 else 2]:
            run = play(instance, log4, x, duty)
            if duty == 1.0:
                assert np.ptp(run.taken["o"]) == x.size // N_LANES - 1, "a bubble"
    for log4 in (0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 0):  # each one behind each other one
        play(instance, log4, every[log4][2:4], reset=False)
    for n in (1023 - 2**k for k in range(2, 10)):  # reset where half of a stage is about to end
        beats = every[3].reshape(-1, N_LANES)[:n]
        instance.run(
            {"i": fields_to_bytes(beats, WIDTHS[0])}, ["o"], stalls={"i": (SETTLE, 1.0)},
            signals={"log4": 3}, probe_cycles=0,
        )  # fmt: skip
        play(instance, 3, every[3][2:4])


NEVER = "no block of 64 and more passes it by at 4 lanes"
POWERS = "beats of a block are 16, 64, 256 or 1024: the controlling bit is never set"
ARGUED = {
    r"-mode const1 -cell \S*\\across[1248]\.\S+ -port B .*: other = ": NEVER,
    r"-mode const1 .*-wire across[1248]\.total\d\.counts ": NEVER,
    r"-mode cnot1 .* -ctrlbit (\d?[13579]|[02]) .*skip\.eq\(beats <= span\)": POWERS,
}
EXPLAINED = {}
