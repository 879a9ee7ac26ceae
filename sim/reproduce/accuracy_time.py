"""Time to accuracy: real training with every codec, times seconds of a step on a modelled cluster.

The network is gradnic's own, 784-256-128-10 on MNIST images, or a conv net on them, or a
transformer on text (`gradnic.sim.training.torch_networks`). Its four workers share a switch of 10
GbE, and compute for as long as makes worker-aggregator in FP32 wait for 70 % of the step, as
INCEPTIONN's authors report of theirs.
"""

from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rings import ring
from gradnic.models.schedule.builders.servers import servers
from gradnic.models.schedule.topology import parse
from gradnic.models.training.constants import value
from gradnic.models.training.exchange import Codec, Exchange, card_network, fp16, host_network

from .claims import Picture, Result, Table
from .composed import LOSS, P, stretch
from .inceptionn import GBPS, SHARE, aggregator, frames, in_line
from .learning import REGIONAL, VARIANTS, curve, extent, seconds_to, task_of
from .thc import CHUNKS, DOWN, UP, with_aggregator

STEPS = 40  # of an epoch: 4,000 images, four workers of 25
TARGETS = (0.88, 0.9, 0.915)  # of the perceptron
SHARES = (0.9, 0.95, 0.98)  # of FP32's final accuracy: targets of the others


def step_seconds(quick, model="mlp"):
    """{variant: seconds of a step}; INCEPTIONN and PowerSGD at the ratios of the training runs."""
    n_bytes = 4 * task_of(model)[2]
    star = parse("fattree:4x1")
    compute = aggregator(4).seconds(n_bytes) * (1 - SHARE) / SHARE
    cards, hosts = card_network(GBPS), host_network(GBPS)
    wide = servers(with_aggregator(4), at=[4], chunks=CHUNKS)
    thc = Codec("THC", UP, DOWN, min(value("thc.encode"), value("thc.decode")))

    def coded(variant):
        return in_line(curve(variant, quick, model).wire_ratio)

    def repaired(p, ratio):
        return stretch(p, 0, 1 / CHUNKS, ratio)

    exchanges = {
        "FP32": Exchange(ring(star), hosts),
        "BF16": Exchange(ring(star), hosts, fp16()),
        "PowerSGD, rank 4": Exchange(ring(star), hosts, Codec(
            "PowerSGD", *(1 / curve("PowerSGD, rank 4", quick, model).wire_ratio,) * 2)),
        **{v: Exchange(ring(star), frames(hosts), coded(v)) for v in VARIANTS if
           v.startswith("INCEPTIONN")},
        "THC": Exchange(wide, cards, thc),
        "THC, rescaled, 1 % lost": Exchange(build(star, "multitree"), cards, thc,
                                            stretch=repaired(P, UP)),
        "FP32, 1 % lost": Exchange(ring(star), cards, stretch=stretch(0, 0, 1 / 4)),
        "FP32, 10 % lost, small first": Exchange(servers(star), cards,
                                                 stretch=stretch(P, 0, 1 / 4)),
    }  # fmt: skip
    times = {"FP32, worker-aggregator": compute + aggregator(4).seconds(n_bytes)}
    return times | {v: compute + sum(exchange(n_bytes)) for v, exchange in exchanges.items()}


def run(quick, say, model="mlp"):
    """The Result. quick : fewer seeds and epochs. model : of `learning.MODELS`."""
    result = Result("time-to-accuracy")
    n_seeds, epochs = extent(quick, model)
    say(f"{model}: steps")
    times = step_seconds(quick, model)
    targets = TARGETS
    if model != "mlp":
        targets = tuple(share * curve("FP32", quick, model).final.mean() for share in SHARES)
    series, rows = {}, []
    for variant, seconds in times.items():
        say(f"accuracy against seconds: {variant}")
        name = "FP32" if variant.startswith("FP32, worker") else variant
        learned = curve(name, quick, model)
        epoch = STEPS * seconds
        mean, spread = learned.accuracy.mean(axis=0), learned.accuracy.std(axis=0)
        series[variant] = [
            (i * epoch, float(m), float(m - s), float(m + s))
            for i, (m, s) in enumerate(zip(mean, spread, strict=True))
            if i  # before the first epoch all guess
        ]
        reached = [seconds_to(learned, target, epoch) for target in targets]
        rows.append((variant, seconds * 1e3, float(100 * learned.final.mean()),
                     float(100 * learned.final.std()), *("" if r is None else r for r in
                     reached)))  # fmt: skip
    by_name = {row[0]: row for row in rows}
    base = by_name["FP32, worker-aggregator"][5]
    for variant, paper in (("INCEPTIONN 2^-10", "INCEPTIONN"), ("THC", "THC"),
                           ("THC, rescaled, 1 % lost", "composed")):  # fmt: skip
        ours = by_name[variant][5]
        others = [by_name["FP32"][5], by_name["BF16"][5]]
        result.claim(
            f"{paper}: time to {100 * targets[1]:.3g} % over worker-aggregator", 1.0,
            base / ours if "" not in (ours, base) else 0.0,
            [o / ours for o in others if ours != "" and o != ""], "x",
            f"published: nobody on this network, {model}; faster than FP32 holds. {n_seeds} "
            f"seeds, {epochs} epochs, 10 GbE, compute calibrated; range: over a ring of hosts in "
            f"FP32 and BF16; losses of {100 * LOSS:g} % where the name says so",
        )  # fmt: skip
    result.tables.append(
        Table("Time to accuracy, four workers, 10 GbE", ("exchange", "step ms", "final %", "+-",
              *(f"s to {100 * t:.3g} %" for t in targets)), rows)
    )  # fmt: skip
    result.pictures.append(
        Picture("time_to_accuracy", "lines", "Accuracy against seconds", "s", "accuracy", series)
    )
    if model != "mlp" or not quick:
        _tolerance(result, quick, model, say)
    return result


def _tolerance(result, quick, model, say):
    """What losses cost by where they fall: the same number of packets each time."""
    rows = []
    base = curve("FP32", quick, model).final
    for variant in REGIONAL:
        say(variant)
        lost = 100 * (base - curve(variant, quick, model).final)
        rows.append((variant.rpartition(": ")[2], float(lost.mean()), float(lost.std())))
    result.tables.append(
        Table("Accuracy lost where 90 % of a third of the packets never come, FP32",
              ("which third", "points", "+-"), rows)
    )  # fmt: skip
