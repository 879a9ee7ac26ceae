"""Random rounds on offload cards without jobs: ``gradnic fuzz --card rounds``.

A seed says how wide ports are and whose queues there are; each round of it has a network, a codec,
a length, links with faults, and a share that may miss. All replicas are compared with the sums of
the table, see `gradnic.sim.offload.run`.
"""

import random
from collections import Counter
from dataclasses import asdict

import numpy as np
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.schedule import builders
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.errors import Unfinished

from .job_fuzz import LARGER, NETWORKS, QUEUES, SIZES, Differs
from .job_run import CORNERS
from .run import CODECS, run

LARGEST = 8000  # elements


def fuzz(n_rounds, *, seed=1, lanes=4, start=0, progress=None):
    """Play rounds, from number `start` on; what was played: ``rounds cycles codecs frames_dropped
    packets_given_up``.

    `Differs` at the first difference. lanes : floats of a beat, 4, 8, 16 or 32.
    """
    codecs, totals = Counter(), Counter()
    for k in range(start, start + n_rounds):
        case = round_of(seed, k, lanes)
        outcome = _play(case, k)
        codecs[case["codec"]] += 1
        totals["cycles"] += outcome.cycles
        totals["frames_dropped"] += outcome.n_dropped
        totals["packets_given_up"] += outcome.n_given_up
        if progress:
            progress(k + 1 - start, n_rounds)
    return {"rounds": n_rounds, "codecs": dict(sorted(codecs.items())), **totals}


def _play(case, k):
    """The `gradnic.sim.offload.run.Outcome` of a round; `Differs`, with the round, if it is not
    what it must be.
    """
    topology = parse(case["topology"])
    table = compile_table(builders.build(topology, case["algorithm"]))
    report = {"round": k} | case | {"faults": asdict(case["faults"])}
    try:
        outcome, _ = run(
            table, topology, _values(case, topology.n_nodes), case["codec"],
            faults=case["faults"], **case["options"],
        )  # fmt: skip
    except Unfinished as hang:
        raise Differs(f"round {k}: {hang}", report) from None
    if not outcome.ok:
        raise Differs(f"round {k}: {outcome.first}", report)
    if outcome.lost > case["options"]["p"]:
        raise Differs(f"round {k}: {outcome.lost} is missing", report)
    return outcome


def round_of(seed, k, lanes):
    """Round `k` of a seed: a dict of topology, algorithm, codec, elems, values, faults, and options
    of `gradnic.sim.offload.run.run`.
    """
    card, rng = random.Random(f"card {seed}"), random.Random(f"round {seed} {k}")
    n_bytes = 4 * lanes
    port_bytes, egress = n_bytes // card.choice((1, 1, 2, 4)), card.random() < 0.4
    topology, algorithm = rng.choice(NETWORKS + LARGER)
    faults = LinkFaults(
        loss=rng.choice((0, 0, 0.01, 0.05, 0.1)), duplicate=rng.choice((0, 0, 0.05)),
        delay=rng.choice((1, 10, 200)), reorder=rng.choice((0, 0, 10, 100)),
        seed=rng.getrandbits(32),
    )  # fmt: skip
    options = {
        "n_bytes": n_bytes, "port_bytes": port_bytes, "egress": egress,
        "queues": rng.choice(QUEUES) if egress else rng.choice((None, None, *QUEUES)),
        "link_bytes": port_bytes // rng.choice((1, 1, 2, 4)),
        "p": rng.choice((0.0, 0.0, 0.1, 0.4)), "at_share": rng.random() < 0.5,
        "skew": rng.choice((0, 0, 20)), "block": rng.choice((64, 256, 1024)),
        "exponent": rng.randint(113, 126), "mode": rng.choice(("strict", "paper")),
        "prescale": rng.choice((0, 0, 3, -3)), "layer": rng.randrange(8),
    }  # fmt: skip
    return {
        "topology": topology, "algorithm": algorithm, "codec": rng.choice(CODECS),
        "elems": rng.choice(SIZES) if rng.random() < 0.5 else rng.randint(1, LARGEST),
        "values": rng.getrandbits(32), "faults": faults, "options": options,
        "corners": rng.choice((0.0, 0.0, 0.001, 0.1)),
    }  # fmt: skip


def _values(case, n_nodes):
    """What the nodes add, float32 (n_nodes, elems); of raw floats over forty decades. A share of
    them is of `CORNERS`, but of THC, which hosts code here.
    """
    rng = np.random.default_rng(case["values"])
    values = rng.standard_normal((n_nodes, case["elems"])) / 64
    if case["codec"] == "none":
        values *= 10.0 ** rng.integers(-20, 20, values.shape)
    values = values.astype(np.float32)
    if case["corners"] and case["codec"] != "thc":
        there = rng.random(values.shape) < case["corners"]
        values[there] = rng.choice(CORNERS, int(there.sum()))
    return values
