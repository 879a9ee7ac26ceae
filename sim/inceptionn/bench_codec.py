"""How fast the golden codec is beside what a user would pick instead, all in one run.

Every contestant works on the same real gradients, on one thread, round after round in turn, so
that a busy moment of the machine hits all of them; the median counts and the spread is shown.
Processor time is counted, of all threads: the same as elapsed time on a quiet machine.
"""

import time
import zlib
from importlib.util import find_spec

import numpy as np
from gradnic.models import inceptionn
from gradnic.models.inceptionn.measure import fidelity
from gradnic.models.thc import worker as thc

from ..training import network as training


def real_gradients(n_bytes, *, loss="sum", on_iteration=None):
    """float32 gradients of four workers at evenly spaced iterations 1..200, `n_bytes` in all.

    ValueError above 184 MiB, what 200 iterations give (no value is used twice).
    """
    network = training.Network()
    per_iteration = 4 * network.parameters.nbytes
    n_iterations = -(-n_bytes // per_iteration)
    if not 0 < n_iterations <= 200:
        raise ValueError(f"n_bytes must be 1 to {200 * per_iteration}, not {n_bytes}")
    iterations = np.unique(np.linspace(1, 200, n_iterations).astype(int))
    kept, _ = training.train(iterations.tolist(), loss=loss, on_iteration=on_iteration)
    return np.concatenate([g.reshape(-1) for g in kept.values()])[: n_bytes // 4]


def contestants(exponent):
    """[(name, compress(x) -> coded, decompress(coded, n) -> float32)] that are installed here."""
    setting = {"exponent": exponent}
    rows = []
    for name, fast in (("numpy twin", False), ("compiled", True)):
        if fast and not find_spec("numba"):
            continue
        rows.append(
            (
                name,
                lambda x, fast=fast: inceptionn.compress(x, **setting, fast=fast),
                lambda c, n, fast=fast: inceptionn.decompress(c, n, **setting, fast=fast),
            )
        )
        rows.append((f"THC {name.split()[0]}", *_thc(thc.Worker(1, 1, fast=fast))))
    if find_spec("zfpy"):
        import zfpy

        tolerance = 2.0 ** (exponent - 127)
        rows.append(
            (
                "zfp",
                lambda x: zfpy.compress_numpy(x, tolerance=tolerance),
                lambda c, n: zfpy.decompress_numpy(c),
            )
        )
    if find_spec("ml_dtypes"):
        from ml_dtypes import bfloat16

        rows.append(("BF16 cast", lambda x: x.astype(bfloat16), lambda c, n: c.astype(np.float32)))
    rows.append(
        (
            "zlib -1",
            lambda x: zlib.compress(x.data, 1),
            lambda c, n: np.frombuffer(zlib.decompress(c), np.float32),
        )
    )
    return rows


def _thc(worker):
    """Norms and packed indices of one worker, and the way back, as after an aggregator."""

    def compress(x):
        norms = worker.norms(x)
        return norms.tobytes() + thc.pack(worker.encode(x, norms, round=0, worker=0), worker.b)

    def decompress(coded, n):
        n_blocks = -(-n // worker.B)
        norms = np.frombuffer(coded, np.uint32, n_blocks)
        indices = thc.unpack(coded[norms.nbytes :], worker.b, n_blocks * worker.B)
        return worker.decode(worker.values(indices), norms, round=0)[:n]

    return compress, decompress


def run(x, *, exponent=117, rounds=5, on_round=None):
    """Time every contestant on `x`, float32 of one dimension, `rounds` times in turn.

    Returns a list of dicts: name, compress_mb_s and decompress_mb_s (medians, MB of float32 per
    second of processor time, 1 MB = 10**6 bytes), compress_spread and decompress_spread ((max -
    min) / median),
    ratio (float32 bytes to coded bytes), nmse, max_abs_error.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds!r}")
    rows = contestants(exponent)
    seconds = np.zeros((len(rows), rounds, 2))
    results = []
    for name, compress, decompress in rows:  # warm-up, and what does not change
        coded = compress(x[:4096])
        decompress(coded, 4096)
        coded = compress(x)
        nmse, worst = fidelity(x, decompress(coded, x.size))
        size = coded.nbytes if isinstance(coded, np.ndarray) else len(coded)
        results.append(
            {"name": name, "ratio": x.nbytes / size, "nmse": nmse, "max_abs_error": worst}
        )
        del coded
    for k in range(rounds):
        for i, (_, compress, decompress) in enumerate(rows):
            start = time.process_time()
            coded = compress(x)
            middle = time.process_time()
            decompress(coded, x.size)
            seconds[i, k] = middle - start, time.process_time() - middle
            del coded
        if on_round:
            on_round(k + 1)
    for result, times in zip(results, seconds, strict=True):
        for j, way in enumerate(("compress", "decompress")):
            median = np.median(times[:, j])
            result[f"{way}_mb_s"] = float(x.nbytes / median / 1e6)
            result[f"{way}_spread"] = float(np.ptp(times[:, j]) / median)
    return results
