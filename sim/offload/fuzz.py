"""Broken frames in volume into 256 offload cards at once: `gradnic.sim.offload.fuzz_round`."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import numpy as np

from gradnic.interface.formats import HEAD_BYTES

from ..engine.bulk import COPIES, Bulk
from .breaker import NAMES, Kind
from .fuzz_round import FATES, N_BROKEN, N_RIGHT, Round
from .stand import Stand

A_ROUND = (COPIES - 1) * N_BROKEN
LONG_EVERY = 32  # rounds; in two of them each copy has a frame of kilobytes
STALLS = 3  # in every other round: each port waits in one cycle of 8
PAUSED = 1, 2  # of four rounds: memory pauses, with and without those stalls


@cache
def stand():
    """256 stands, built once a process."""
    return Bulk(Stand())


def fuzz(n_frames, *, seed=1, jobs=None, progress=None):
    """At least `n_frames` broken frames, in rounds of 65,025; AssertionError at a difference.

    jobs : threads, default one a core. progress : called with (frames done, frames in all).

    Returns {"frames", "rounds", "right", "kinds", "reasons", "cycles"}; right : frames beside.
    """
    stand()
    kinds, reasons = np.zeros(len(Kind), np.int64), np.zeros(len(FATES), np.int64)
    done = cycles = 0
    jobs = min(jobs or os.cpu_count() or 1, -(-n_frames // A_ROUND))
    n_rounds = -(-n_frames // (A_ROUND * jobs)) * jobs
    with ThreadPoolExecutor(jobs) as pool:
        for first in range(0, n_rounds, jobs):
            for some, fates, n in pool.map(partial(_play, seed), range(first, first + jobs)):
                kinds += np.bincount(some.reshape(-1), minlength=len(kinds))
                reasons += np.bincount(fates.reshape(-1), minlength=len(reasons))
                done, cycles = done + fates.size, cycles + n
                if progress:
                    progress(min(done, n_frames), n_frames)
    return {
        "frames": done,
        "rounds": n_rounds,
        "right": n_rounds * (COPIES - 1) * N_RIGHT,
        "kinds": dict(zip(NAMES, kinds.tolist(), strict=True)),
        "reasons": {k: v for k, v in zip(FATES, reasons.tolist(), strict=True) if v},
        "cycles": COPIES * cycles,
    }


def _round(seed, number):
    """A round, and how ports and memory wait: with and without, raw and coded."""
    long, coded = number % LONG_EVERY in (0, LONG_EVERY - 1), number // 4 % 2 == 1
    pauses = int(np.random.default_rng((seed, number)).integers(1, 1 << 32))
    waits = {"stalls": STALLS * (number % 2), "pauses": pauses * (number % 4 in PAUSED)}
    return Round((seed, number), long=long, coded=coded), waits


def _play(seed, number):
    one, waits = _round(seed, number)
    try:
        fates, wrong, cycles = one.play(stand(), **waits)
    except RuntimeError as error:  # a copy never rests
        raise AssertionError(f"seed {seed}, round {number}: {error}") from None
    if wrong:
        raise AssertionError(_first(seed, number, wrong))
    return one.kinds, fates, cycles


def _first(seed, number, wrong):
    """Says what differs, and which frame it takes: each of the copy's is played alone."""
    copy = min(wrong)
    broken = f"seed {seed}, round {number}, copy {copy}: {', '.join(wrong[copy])}"
    one, waits = _round(seed, number)
    frames, lengths = one.frames[copy].copy(), one.lengths[copy].copy()
    one.isolate(copy)
    _, alone, _ = one.play(stand(), **waits)
    if not alone:
        return f"{broken}; no broken frame does it alone"
    k = min(alone) - 1
    head = frames[k, : min(lengths[k], HEAD_BYTES)].tobytes().hex()
    return (
        f"{broken}; of its broken frames number {k} does it alone, {lengths[k]} bytes that begin "
        f"with {head}"
    )
