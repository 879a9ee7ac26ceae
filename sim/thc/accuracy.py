"""What compression costs in accuracy: THC beside the schemes a user would pick instead."""

import numpy as np
from gradnic.models.thc import baselines
from gradnic.models.thc.quic_fl import quic_fl
from gradnic.models.thc.worker import Worker

from .schemes import InceptionnRing, majority, requantized, truncated_ring

FEEDBACK_ROUNDS = 8
DISTRIBUTIONS = {
    "lognormal": lambda rng, d: rng.lognormal(0, 1, d),
    "gaussian": lambda rng, d: rng.standard_normal(d),
    "laplace": lambda rng, d: rng.laplace(0, 1, d),
}


def thc(name, **parameters):
    """A scheme that sums the table values of THC workers, as (name, bits up, mean function)."""

    def mean_of(gradients, rng):
        n = len(gradients)
        worker = Worker(n, int(rng.integers(2**32)), **parameters)
        floats = gradients.astype(np.float32)
        norms = np.maximum.reduce([worker.norms(x) for x in floats])
        sums = np.zeros(floats.shape[1], np.int64)
        for rank, x in enumerate(floats):
            sums += worker.table[worker.encode(x, norms, round=0, worker=rank)]
        return worker.decode(sums, norms, round=0)

    def keeping(x, rng):
        worker = Worker(len(x), int(rng.integers(2**32)), **parameters)
        floats = x.astype(np.float32)
        norms = np.maximum.reduce([worker.norms(row) for row in floats])
        codes = [worker.encode(row, norms, round=0, worker=i) for i, row in enumerate(floats)]
        sums = sum(worker.table[own].astype(np.int64) for own in codes)
        lost = [worker.residual(row, own, norms) for row, own in zip(floats, codes, strict=True)]
        return worker.decode(sums, norms, round=0), np.stack(lost)

    mean_of.keeping = keeping
    return name, worker_bits(parameters), mean_of


def worker_bits(parameters):
    """Bits per value on the way up, one norm per block included."""
    return parameters.get("b", 4) + 32 / parameters.get("B", 1024)


def each(name, bits, compress, *, of_mean=None, feedback=False):
    """A scheme whose receiver averages estimates; `of_mean` compresses the mean on the way down.

    feedback : its workers keep what they lost for the next round.
    """

    def mean_of(gradients, rng):
        mean = np.mean([compress(x, rng) for x in gradients], axis=0)
        return of_mean(mean, rng) if of_mean else mean

    def keeping(x, rng):
        sent = np.stack([compress(row, rng) for row in x])
        return sent.mean(axis=0), x - sent

    if feedback:
        mean_of.keeping = keeping
    return name, bits, mean_of


def schemes():
    """All (name, bits up per value, function of gradients (n, d) and rng to their mean (d,))."""
    top = baselines.top_k(0.1)
    return [
        thc("THC b4 g30 p1/32 (default)"),
        thc("THC b4 g30 p1/64", p=1 / 64),
        thc("THC b4 g36 p1/64", g=36, p=1 / 64),
        thc("THC b5 g51 p1/256", b=5, g=51, p=1 / 256),
        thc("THC b3 g36 p1/32", b=3, g=36),
        thc("THC b2 g36 p1/32", b=2, g=36),
        thc("THC uniform b4 g15 t3.89", g=15, p=1e-4),
        each("EDEN 4 bit", 4, baselines.eden(4)),
        each("EDEN 3 bit", 3, baselines.eden(3)),
        each("EDEN 2 bit", 2, baselines.eden(2)),
        each("EDEN 1 bit", 1, baselines.eden(1)),
        each("QUIC-FL 4 bit", 4 + 64 / 512, quic_fl(4, shared=4)),
        each("QUIC-FL 3 bit", 3 + 64 / 512, quic_fl(3, shared=4)),
        each("QUIC-FL 2 bit", 2 + 64 / 512, quic_fl(2, shared=5)),
        each("QUIC-FL 1 bit", 1 + 64 / 512, quic_fl(1, shared=6)),
        each("min-max 4 bit, rotated", 4, baselines.min_max(4, rotated=True)),
        each("min-max 4 bit", 4, baselines.min_max(4, rotated=False)),
        each("MXFP4", 4.25, baselines.microscaling(2, 1)),
        each("MXFP4, rotated", 4.25, baselines.microscaling(2, 1, rotated=True)),
        each("MXFP6 E3M2", 6.25, baselines.microscaling(3, 2)),
        each("MXFP8 E4M3", 8.25, baselines.microscaling(4, 3)),
        each("QSGD s7, L2", 4, baselines.qsgd(7, "l2")),
        each("QSGD s7, max", 4, baselines.qsgd(7, "max")),
        each("QSGD s127, max", 8, baselines.qsgd(127, "max")),
        each("TernGrad", 1.6, baselines.terngrad),
        each("TopK 10 %, up", 6.4, top, feedback=True),
        each("TopK 10 %, up and down", 6.4, top, of_mean=top),
        each("DGC 0.1 %, up", 0.064, baselines.top_k(0.001), feedback=True),
        ("SignSGD, majority", 1, majority),
        each("EF-SignSGD", 1, baselines.scaled_sign, feedback=True),
        requantized(5),
        requantized(4),
        *((f"INCEPTIONN 2^{e - 127}, ring", None, InceptionnRing(e)) for e in (117, 119, 121)),
        *(truncated_ring(bits) for bits in (16, 22, 24)),
        each("BF16", 16, lambda x, rng: bf16(x)),
        each("FP16", 16, lambda x, rng: x.astype(np.float16).astype(np.float64)),
    ]


def bf16(x):
    """Values rounded to BF16, ties to even, as float64."""
    bits = x.astype(np.float32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def nmse(mean_of, gradients, rng):
    """Squared error of the mean over the mean squared norm of the gradients (n, d)."""
    error = mean_of(gradients, rng) - gradients.mean(axis=0)
    return float(np.square(error).sum() / np.square(gradients).sum(axis=1).mean())


def feedback_error(keeping, draw, rng):
    """Error of what `FEEDBACK_ROUNDS` rounds add up to, over the sum of the mean squared norms.

    keeping(x, rng) -> (mean, what each worker lost). draw() gives a round's gradients (n, d).
    Without feedback an unbiased scheme has its NMSE here, too, and one that errs the same way each
    round `FEEDBACK_ROUNDS` times that.
    """
    lost, error, size = 0.0, 0.0, 0.0
    for _ in range(FEEDBACK_ROUNDS):
        gradients = draw()
        mean, lost = keeping(gradients + lost, rng)
        error = error + mean - gradients.mean(axis=0)
        size += np.square(gradients).sum(axis=1).mean()
    return float(np.square(error).sum() / size)


def compare(
    distribution, workers, *, n_values=1 << 17, n_trials=3, seed=0, on_scheme=None, only=None
):
    """NMSE of every scheme for every number of workers.

    only : names of schemes; None: all of them. Returns rows {scheme, bits, nmse: {n: mean over
    trials}, deviation: {n: of a trial}, feedback: {n: mean of `feedback_error`} or None, and
    feedback_deviation: {n: of a trial} or None}. `on_scheme` is called once a row.
    """
    if distribution not in DISTRIBUTIONS:
        known = ", ".join(DISTRIBUTIONS)
        raise ValueError(f"distribution must be one of {known}, not {distribution!r}")
    rows = []
    draw = DISTRIBUTIONS[distribution]
    for name, bits, mean_of in schemes():
        if only and name not in only:
            continue
        found = {n: _trials(mean_of, draw, n, n_values, n_trials, seed) for n in workers}
        figures = {
            figure: {n: one[figure] for n, one in found.items() if figure in one} or None
            for figure in ("nmse", "deviation", "feedback", "feedback_deviation")
        }
        rows.append({"scheme": name, "bits": mean_of.bits if bits is None else bits} | figures)
        if on_scheme:
            on_scheme()
    return rows


def _trials(mean_of, draw, n, n_values, n_trials, seed):
    """Means and deviations over trials of one scheme with `n` workers: a dict of figures."""

    def drawn(rng):
        return np.stack([draw(rng, n_values) for _ in range(n)])

    found = {"": [], "feedback": []}
    for trial in range(n_trials):
        rng = np.random.default_rng((seed, n, trial))
        found[""].append(nmse(mean_of, drawn(rng), rng))
        if hasattr(mean_of, "keeping"):
            rng = np.random.default_rng((seed, n, trial, 1))
            found["feedback"].append(feedback_error(mean_of.keeping, lambda r=rng: drawn(r), rng))
    figures = {}
    for name, trials in found.items():
        if trials:
            spread = float(np.std(trials, ddof=1)) if n_trials > 1 else 0.0
            figures |= {name or "nmse": float(np.mean(trials)),
                        f"{name}_deviation".lstrip("_"): spread}  # fmt: skip
    return figures


def scheme_row(scheme, distribution, workers, n_values, n_trials, seed):
    """The row of `compare` for one scheme."""
    return compare(
        distribution, workers, n_values=n_values, n_trials=n_trials, seed=seed, only=[scheme]
    )[0]
