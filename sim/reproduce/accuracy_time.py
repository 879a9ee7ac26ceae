"""Time to accuracy: real training with every codec, times seconds of a step on a modelled cluster.

The network is gradnic's own, 784-256-128-10 on MNIST images, or a conv net on them, or a
transformer on text (`gradnic.sim.training.torch_networks`). Its four workers share a switch of 10
GbE, and compute for as long as makes worker-aggregator in FP32 wait for 70 % of the step, as
INCEPTIONN's authors report of theirs.
"""

import math
from functools import cache

import numpy as np
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rings import ring
from gradnic.models.schedule.builders.servers import servers
from gradnic.models.schedule.topology import parse
from gradnic.models.training.constants import value
from gradnic.models.training.exchange import (
    Codec,
    Exchange,
    card_network,
    fp16,
    host_network,
    truncated,
)

from .claims import Picture, Result, Table, made_of
from .composed import LOSS, P, leaf_share, stretch
from .inceptionn import GBPS, SHARE, aggregator, frames, in_line
from .inceptionn import SHARES as COMPUTE_SHARES
from .learning import REGIONAL, VARIANTS, curve, extent, seconds_to, task_of, trained
from .thc import CHUNKS, DOWN, UP, engines, with_aggregator

STEPS = 40  # of an epoch: 4,000 images, four workers of 25
BASE = "FP32, worker-aggregator"  # learns as FP32 does
PLAIN = (BASE, "FP32", "BF16", "FP16")  # what there is without the papers' codecs
BESIDE = (*PLAIN, "PowerSGD, rank 4")
OURS = {
    "INCEPTIONN 2^-10": "INCEPTIONN",
    "THC": "THC",
    "THC along MultiTree, 1 % lost": "composed",
}
TARGETS = (0.88, 0.9, 0.915)  # of the perceptron
SHARES = (0.9, 0.95, 0.98)  # of FP32's final accuracy: targets of the others


def step_seconds(model, curve_of):
    """{variant: seconds of a step}; INCEPTIONN and PowerSGD at the ratios of the training runs.

    curve_of : function of a variant to its `learning.Curve`.
    """
    n_bytes = 4 * task_of(model)[2]
    star = parse("fattree:4x1")
    compute = aggregator(4).seconds(n_bytes) * (1 - SHARE) / SHARE
    cards, hosts = card_network(GBPS, add=value("card.rate")), host_network(GBPS)
    wide = servers(with_aggregator(4), at=[4], chunks=CHUNKS)
    unit = card_network(GBPS, add=value("aggregator.rate") * 8)  # 4-bit indices of FP32
    rate = engines()
    thc = Codec("THC", UP, DOWN, rate)

    def trees(algorithm):  # indices from leaves, sums as wide as those down from others
        schedule = build(star, algorithm)
        leaves = leaf_share(schedule)
        codec = Codec("THC", leaves * UP + (1 - leaves) * DOWN, DOWN, rate)
        return Exchange(schedule, cards, codec, stretch=stretch(P, 0, 1 / 4, codec.up))

    def power():
        """An all-reduce of the left factors, and behind it one of the right ones, by hosts."""
        share = 1 / curve_of("PowerSGD, rank 4").wire_ratio  # of frames that are full
        codec = Codec("PowerSGD", share, share, encode=value("host.powersgd.encode"),
                      decode=value("host.powersgd.decode"), fills=True)  # fmt: skip
        half = Exchange(ring(star), hosts, codec)  # as if both were of one size

        def twice(n_bytes, seconds):
            return 2 * half.seconds(n_bytes // 2) / seconds

        return Exchange(ring(star), hosts, codec, stretch=twice)

    def payload_ratio(variant):
        """Out of the ratio of whole frames of 336 floats, a head each, of a ring's blocks."""
        floats = -(-n_bytes // 16)
        heads = value("frame.head") * -(-floats // int(value("frame.floats")))
        coded = (4 * floats + heads) / curve_of(variant).wire_ratio - heads
        return 4 * floats / coded

    exchanges = {
        "FP32": Exchange(ring(star), hosts),
        **dict.fromkeys(("BF16", "FP16"), Exchange(ring(star), hosts, fp16())),
        "BF16, 1 % lost": Exchange(ring(star), cards, fp16(), stretch=stretch(P, 0, 1 / 4)),
        **{truncated(bits).name: Exchange(ring(star), frames(hosts), truncated(bits))
           for bits in (16, 22, 24)},
        "PowerSGD, rank 4": power(),
        **{v: Exchange(ring(star), frames(hosts), in_line(payload_ratio(v)))
           for v in VARIANTS if v.startswith("INCEPTIONN") and "lost" not in v},
        "INCEPTIONN 2^-10, 1 % lost": Exchange(
            ring(star), cards, in_line(payload_ratio("INCEPTIONN 2^-10, 1 % lost")),
            stretch=stretch(P, 0, 1 / 4)),
        "THC": Exchange(wide, unit, thc),
        "THC along MultiTree, 1 % lost": trees("multitree"),
        "THC along double trees, 1 % lost": trees("dbtree"),
        "FP32, 1 % lost": Exchange(ring(star), cards, stretch=stretch(P, 0, 1 / 4)),
        "FP32, 10 % lost, small first": Exchange(servers(star), cards,
                                                 stretch=stretch(P, 0, 1 / 4)),
    }  # fmt: skip
    times = {BASE: compute + aggregator(4).seconds(n_bytes)}
    return times | {v: compute + sum(exchange(n_bytes)) for v, exchange in exchanges.items()}


def points(quick, model="mlp"):
    """Arguments of every training run that `run` asks for: runs for a cluster."""
    asked = {}

    def untrained(*key):
        asked[key] = None
        n_epochs = key[2]
        return {"accuracy": list(range(n_epochs + 1)), "nmse": 0.0, "wire_ratio": 1.0}

    run(quick, lambda _: None, untrained, model=model)
    return list(asked)


measure = trained


answers = made_of


def run(quick, say, trained=trained, model="mlp"):
    """The Result. quick : fewer seeds and epochs. trained : called as `learning.trained` is.

    model : of `learning.MODELS`.
    """
    result = Result("time-to-accuracy" if model == "mlp" else f"time-to-accuracy, {model}")
    n_seeds, epochs = extent(quick, model)

    @cache
    def curve_of(variant):
        say(f"{model}: {variant}")
        return curve("FP32" if variant == BASE else variant, quick, model, trained)

    times = step_seconds(model, curve_of)
    targets = TARGETS
    if model != "mlp":
        targets = tuple(share * curve_of("FP32").final.mean() for share in SHARES)
    series, rows = {}, []
    for variant, seconds in times.items():
        learned, epoch = curve_of(variant), STEPS * seconds
        mean, spread = learned.accuracy.mean(axis=0), learned.accuracy.std(axis=0)
        series[variant] = [
            (i * epoch, float(m), float(m - s), float(m + s))
            for i, (m, s) in enumerate(zip(mean, spread, strict=True))
            if i  # before the first epoch all guess
        ]
        reached = [_reached(learned, target, epoch) for target in targets]
        rows.append((variant, seconds * 1e3, float(100 * learned.final.mean()),
                     float(100 * learned.final.std()), *sum(reached, ())))  # fmt: skip
    times_to = {row[0]: row[6] for row in rows if row[6] != ""}  # to the second target
    if "FP32" not in times_to:
        raise ValueError(f"FP32 does not reach {100 * targets[1]:.3g} % in {epochs} epochs")
    best = min((v for v in PLAIN if v in times_to), key=times_to.get)
    steps = {variant: times_to[variant] / times[variant] for variant in times_to}
    swept = {share: _at_share(times, share) for share in COMPUTE_SHARES}
    for variant, paper in OURS.items():
        ours = times_to.get(variant, math.inf)
        beside = [
            steps[v] * at[v] / (steps.get(variant, math.inf) * at[variant])
            for at in swept.values()
            for v in BESIDE
            if v in steps
        ]
        result.claim(
            f"{paper}: time to {100 * targets[1]:.3g} % over the best of FP32 and BF16", 1.0,
            times_to[best] / ours, beside, "x",
            f"published: nobody on this network, {model}; faster than all without the papers' "
            f"codecs holds, of which the best is {best}{' on a ring' * (best != BASE)}. {n_seeds} "
            f"seeds, {epochs} epochs, 10 GbE, compute calibrated; range: over {BASE}, a ring of "
            f"hosts in FP32, BF16, FP16 and PowerSGD, and compute that makes worker-aggregator "
            f"wait for {100 * COMPUTE_SHARES[0]:g} to {100 * COMPUTE_SHARES[-1]:g} % of its step, "
            f"not {100 * SHARE:g} %; losses of {100 * LOSS:g} % where the name says so",
        )  # fmt: skip
    columns = [c for t in targets for c in (f"s to {100 * t:.3g} %", "+-")]
    result.tables.append(
        Table(f"Time to accuracy, {model}, {n_seeds} seeds, four workers, 10 GbE",
              ("exchange", "step ms", "final %", "+-", *columns), rows)
    )  # fmt: skip
    shown = [v for v in (*BESIDE, *OURS) if v in steps]
    result.tables.append(
        Table(f"Seconds to {100 * targets[1]:.3g} %, {model}, by the share of its step that "
              f"{BASE}, waits", ("share", *shown),
              [(share, *(steps[v] * at[v] for v in shown)) for share, at in swept.items()])
    )  # fmt: skip
    result.pictures.append(
        Picture(f"time_to_accuracy_{model}", "lines", f"Accuracy against seconds, {model}, mean "
                f"and deviation of {n_seeds} seeds", "s", "accuracy", series)
    )  # fmt: skip
    if model != "mlp" or not quick:
        _tolerance(result, curve_of)
    return result


def _at_share(times, share):
    """`times` of steps with as much compute as makes `BASE` wait for another `share` of its own."""
    waits = SHARE * times[BASE]
    more = waits * (1 - share) / share - waits * (1 - SHARE) / SHARE
    return {variant: time + more for variant, time in times.items()}


def _reached(learned, target, epoch):
    """(seconds of the seeds' mean curve to `target`, their deviation over the seeds), or blanks.

    No deviation where a seed does not reach it.
    """
    mean = seconds_to(learned.accuracy.mean(axis=0), target, epoch)
    each = [seconds_to(accuracy, target, epoch) for accuracy in learned.accuracy]
    return ("" if mean is None else mean, "" if None in each else float(np.std(each)))


def _tolerance(result, curve_of):
    """What losses cost by where they fall: the same number of packets each time."""
    rows = []
    base = curve_of("FP32").final
    for variant in REGIONAL:
        lost = 100 * (base - curve_of(variant).final)
        rows.append((variant.rpartition(": ")[2], float(lost.mean()), float(lost.std())))
    result.tables.append(
        Table("Accuracy lost where 90 % of a third of the packets never come, FP32",
              ("which third", "points", "+-"), rows)
    )  # fmt: skip
