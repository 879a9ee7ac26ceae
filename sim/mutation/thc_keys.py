"""Mutation campaign of the keys of THC jobs: what they are, when they are there, and bits of them
that change by themselves.
"""

from dataclasses import astuple

import numpy as np
from gradnic.hdl.offload.thc_keys import ThcKeys
from gradnic.models.offload.thc_keys import keys

from .upset import UPSET, Upset

KEYS = {"random_key": 48, "sign_key": 64, "tensor_hash": 80}
"""Cycles from ``start`` to each."""
LATENCY = 80
HELD = 20  # cycles in which the keys are there, and then change
N_CYCLES = LATENCY + 1 + 2 * HELD
N_TURNS = 132
WIDTHS = {"seed": 32, "gen": 16, "node": 8, "tensor": 16}


def component():
    """The circuit under mutation, and what changes its keys."""
    return Upset(ThcKeys(dice=True), KEYS)


def test(model):
    """Turns from reset and from each other, some of them broken off; each bit of each key changes,
    while it is known and before.
    """
    instance, rng = model.instance(), np.random.default_rng(6)
    for turn in range(N_TURNS):
        job = {name: int(rng.integers(1 << width)) for name, width in WIDTHS.items()}
        if turn % 3 == 1:  # broken off, at any time
            n = int(rng.integers(1, N_CYCLES))
            instance.run({}, signals=job | {"start": [1] * n + [0, 0]}, drain=False, reset=False,
                         max_cycles=n + 2, probe_cycles=0)  # fmt: skip
        bit = turn * 3 // 4 % 96  # each in turn, but where none does
        at = LATENCY + 1 + turn % HELD if turn % 4 else N_CYCLES  # when it changes; or it does not
        cycle = np.arange(N_CYCLES)
        upset = np.packbits(np.eye(96, dtype=bool)[[bit]] & (cycle == at)[:, None], axis=1,
                            bitorder="little")  # fmt: skip
        signals = job | {"start": [1] * (N_CYCLES - 2) + [0, 0], "upset": upset}
        run = instance.run({}, signals=signals, trace=["known", "stray", *KEYS], drain=False,
                           reset=turn == 0, max_cycles=N_CYCLES, probe_cycles=0)  # fmt: skip
        known = run.traces["known"].astype(bool)
        assert (known == ((cycle >= LATENCY) & (cycle < N_CYCLES - 1))).all(), "known"
        words = astuple(keys(**job))
        for k, ((name, comes), word) in enumerate(zip(KEYS.items(), words, strict=True)):
            found = run.traces[name].astype(np.int64)
            other = word ^ (1 << bit >> 32 * k) & 0xFFFFFFFF
            want = np.select([cycle < comes, cycle <= at], [found[0], word], other)
            assert (found == want).all(), name
        strays = run.traces["stray"].astype(bool)
        assert (strays == (cycle > at + 1))[1:].all(), "stray"


ELSEWHERE = UPSET + r"|-cell \S*\bmix\."
"""The mixer is in the campaign of the encoder, too."""
ARGUED = {
    r"-mode cnot[01] .*-port Q .*-wire shared ": (
        "the bit turns in each cycle, and is used an even number of them later"
    ),
    r"-mode cnot1 .*-port Q -portbit 0 -ctrlbit 1 -wire step ": (
        "the bit turns in each of the 16 cycles of a step, and is used in the last"
    ),
    r" -port (A .* -given start|B .* -given known),x\S* -feeds x": (
        "nobody takes it before a start or once the keys are known, and a start writes it anew"
    ),
}
EXHAUSTED = {
    r"count = Signal\(range\(FMIX|count\.eq\(count \+ 1\)": (
        "what it counts depends on the start alone, and all it tells is compared in each cycle"
    ),
    r" -given step -feeds \S*shared": (
        "each step is in each turn, and its keys are compared: nobody takes what else is written"
    ),
}
EXPLAINED = {}
