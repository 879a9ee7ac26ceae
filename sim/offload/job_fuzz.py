"""Random lists of jobs on random cards and networks: ``gradnic fuzz --card jobs``.

A seed says what a card is built with; each list of it has a topology, links with faults, settings
and up to 24 jobs, some of which the card must refuse, that some nodes never post, whose memory
fails, or that are aborted. All that golden cards say is compared, see
`gradnic.sim.offload.job_run`.
"""

import random
from collections import Counter
from dataclasses import asdict, replace
from functools import cache

import numpy as np
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.job_judge import ELEM_BYTES
from gradnic.models.schedule import builders
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.errors import Unfinished
from gradnic.interface.job import ALIGN, JobCodec, JobStatus, Kind, Operation

from .dram import timing
from .job_cluster import EVERYTHING
from .job_judge import sound_watchdog
from .job_list import PLACES, TOO_LONG, from_dicts
from .job_run import cosim
from .job_wanted import PACKET

NETWORKS = (
    ("ring:2", "ring"), ("ring:3", "multitree"), ("ring:3", "ring"), ("ring:4", "multitree"),
    ("ring:5", "multitree"), ("mesh:1x3", "multitree"), ("mesh:2x2", "multitree"),
    ("full:3", "multitree"), ("fattree:2x2", "ring"), ("hypercube:2", "bfb"),
)  # fmt: skip
"""Two ports and two contributions to a chunk at most: one build of a card serves all of them."""
LARGER = (
    ("full:4", "multitree"), ("full:5", "multitree"), ("full:4", "bfb"), ("mesh:2x3", "multitree"),
    ("torus:2x3", "multitree"), ("fattree:2x2", "multitree"),
)  # fmt: skip
"""Of four of both, as cards with four ports have them."""
QUEUES = ((4096, 2048), (12_288, 4096), (1 << 20, 1 << 20))  # bytes that hold, and that mark
SIZES = (
    1, 15, 16, 17, 31, 33, 63, 64, 65, 100, 351, 352, 353, 511, 512, 513, 704, 1000, 1023, 1024,
    1025, 2048, 2049,
)  # fmt: skip
LARGEST = 4000  # elements
FAR = ("landing", "scratch")  # places of a long job
LONG = (16_500, 20_000)  # of a job that landing areas and scratch of no other reach the end of
N_TABLES = 4  # of a list, as cards are built
N_ROWS, N_CHUNKS = 64, 64  # of a table, as cards are built
PACKETS = (16, 32, 48, 80, 96, 176, 336)  # elements, beside PACKET
MOST_PACKETS = 256  # of a job, about: cards are built for 1,024, of all chunks
ALONE = 32  # and more: tensors of jobs that may not end, which none follows
SLACK = 1.5  # of the time that a watchdog needs
LONGEST = 60_000  # cycles of a watchdog that memory may wait for


class Differs(AssertionError):
    """Card and golden card differ. case : the list and all that it ran with, as JSON can hold."""

    def __init__(self, what, case):
        super().__init__(what)
        self.case = case


def fuzz(n_jobs, *, seed=1, lanes=4, start=0, progress=None):
    """Play lists, from number `start` on, until `n_jobs` jobs were posted; what was played.

    `Differs` at the first difference. Returns ``jobs lists cycles statuses built``; statuses : of
    the worst node of each job, counted.
    """
    built = card_of(seed)
    counts, cycles, n, k = Counter(), 0, 0, start
    while n < n_jobs:
        case = list_of(seed, k, built, lanes)
        cycles += _play(case, lanes, k, counts)
        n, k = n + len(case["posted"]), k + 1
        if progress:
            progress(min(n, n_jobs), n_jobs)
    statuses = {JobStatus(status).name.lower(): count for status, count in sorted(counts.items())}
    return {"jobs": n, "lists": k - start, "cycles": cycles, "statuses": statuses, "built": built}


def _play(case, lanes, k, counts):
    """Cycles of one list; `Differs`, with the list, if anything is not as golden cards have it."""
    options = dict(case["options"])
    if options.get("dram"):
        options["dram"] = timing(*options["dram"])
    report = {
        "list": k, "built": case["built"], "lanes": lanes, "options": case["options"],
        "topology": case["topology"], "algorithm": case["algorithm"],
        "faults": asdict(case["faults"]),
        "jobs": [asdict(one) for one in case["posted"]],
    }  # fmt: skip
    try:
        outcome = cosim(
            case["topology"], case["algorithm"], case["posted"], lanes=lanes,
            faults=case["faults"], built=case["built"], **options,
        )  # fmt: skip
    except Unfinished as hang:
        raise Differs(f"list {k}: {hang}", report) from None
    if not outcome.ok:
        raise Differs(f"list {k}: {outcome.first}", report)
    if outcome.barked and not case["long"]:
        raise Differs(f"list {k}: {outcome.barked} ends could not be compared", report)
    counts.update(job["status"] for job in outcome.jobs if job["status"] is not None)
    return outcome.cycles


def card_of(seed):
    """What cards of a seed are built with: arguments of `JobCluster`; n_active, n_engines; narrow,
    ports to a beat; queues, whether there are any; host, whether hosts reach it by frames; halved,
    whether passes of THC have half a beat.
    """
    rng = random.Random(f"card {seed}")
    built = {name: rng.random() < 0.7 for name in ("inc", *EVERYTHING)}
    n_active = rng.randint(1, 4)
    built |= {"n_active": n_active, "n_engines": rng.randint(1, n_active)}
    n_ports = rng.choice((2, 4))  # and of contributions to a chunk
    built |= {"n_ports": n_ports, "n_ranks": n_ports}
    built |= {"narrow": rng.choice((1, 1, 2, 4)), "queues": rng.random() < 0.3}
    if rng.random() < 0.6:
        built |= {
            "thc": {"B": rng.choice((64, 64, 256, 1024))}, "bits": rng.choice((4, 8)),
            "feedback": rng.random() < 0.6, "scale": False,
        }  # fmt: skip
    else:
        built |= {"thc": None, "feedback": False}
    if rng.random() < 0.3:
        built |= {"host": True, "narrow": 1, "queues": False, "gives_up": False}
    return built | {"halved": built["thc"] is not None and rng.random() < 0.4}


def list_of(seed, k, built, lanes):
    """List `k` of a seed: a dict of topology, algorithm, faults, posted, and options of `cosim`."""
    rng = random.Random(f"list {seed} {k}")
    topology, algorithm = rng.choice(NETWORKS + LARGER * (built["n_ports"] > 2))
    n_nodes = parse(topology).n_nodes
    built = dict(built)
    n_active, n_engines = built.pop("n_active"), built.pop("n_engines")
    built["port_bytes"] = 4 * lanes // built.pop("narrow", 1)
    built["pass_bytes"] = 2 * lanes if built.pop("halved", False) else None
    built["queues"] = rng.choice(QUEUES) if built.get("queues") else None
    hosted = built.get("host", False)
    if built["thc"] is not None:
        built["thc"] = built["thc"] | _levels(rng, built["bits"], hosted)
    jobs = _jobs(rng, built, n_nodes, n_engines - 1)
    posted = [_altered(rng, one) for one in from_dicts(jobs)]
    faults = LinkFaults(
        loss=rng.choice((0, 0, 0.01, 0.05, 0.1)), duplicate=rng.choice((0, 0, 0.05)),
        delay=rng.choice((1, 10, 200)), reorder=rng.choice((0, 0, 10, 100)),
        seed=rng.getrandbits(32),
    )  # fmt: skip
    link_bytes = max(1, built["port_bytes"] // rng.choice((1, 1, 2, 4)))
    foreign = 0.0 if built["queues"] else rng.choice((0.0, 0.0, 0.1, 0.5))
    t_probe = rng.choice((400, 2000))
    longest = max((one.job.elems for one in posted if one.job.elems < TOO_LONG), default=1)
    packet = rng.choice([n for n in PACKETS if longest < MOST_PACKETS * n] * 2 + [PACKET] * 5)
    options = {
        "link_bytes": link_bytes, "t_probe": t_probe, "memory_latency": rng.choice((10, 40, 300)),
        "at_share": rng.random() < 0.5 and not hosted,
        "settings": {
            "exponent": rng.randint(113, 126), "mode": rng.choice(("strict", "paper")),
            "prescale": rng.choice((0, 0, 3, -3)),
        },
        "dram": rng.choice((None, None, ("ddr4-2400", 2, 4 * lanes, 250.0))),
        "n_active": n_active, "n_engines": n_engines, "foreign": foreign,
        "reaches": _reaches(rng, posted, n_nodes) if hosted else [],
        "room": 0 if hosted else _room(rng, posted), "packet": packet,
        "corners": rng.choice((0.0, 0.0, 0.001, 0.1)),
        "chunks": rng.choice(_cuts(topology, algorithm)),
        "marks": {} if hosted else _marks(rng, foreign),
    }  # fmt: skip
    if rng.random() < 0.3 or any(one.nodes or one.errors for one in posted):
        jobs = [one.job for one in posted if one.job.elems < TOO_LONG]
        table = _table(topology, algorithm, options["chunks"])
        wait = sound_watchdog(
            t_probe, faults, jobs, link_bytes * (1 - foreign), n_nodes=n_nodes,
            n_chunks=table.n_chunks * table.repeats,
            memory_latency=options["memory_latency"], drops=bool(built["queues"]), packet=packet,
            skew=options["marks"].get("skew", 0),
        )  # fmt: skip
        options["watchdog"] = int(SLACK * wait)
    may_wait = not options["room"]
    is_long = rng.random() < 0.4 and may_wait and _silence(rng, posted, n_nodes, options)
    return {
        "topology": topology, "algorithm": algorithm, "faults": faults, "posted": posted,
        "options": options, "built": built, "long": is_long,
    }  # fmt: skip


def _marks(rng, foreign):
    """How packets choose their paths, all alike where there are frames of others, which must keep
    their order; and which are important.
    """
    tags = {
        "source": rng.randrange(2), "by_sum": rng.randrange(2), "unit": rng.randint(90, 130),
        "threshold": rng.randint(0, 256), "back_layer_start": rng.randint(0, 9),
        "pull_all_important": rng.randrange(2),
    }  # fmt: skip
    return {"skew": rng.choice((0, 20)) if not foreign else 0, "rule": rng.randrange(3),
            "tags": rng.choice(({}, tags))}  # fmt: skip


@cache
def _table(topology, algorithm, chunks):
    options = {} if chunks is None else {"chunks": chunks}
    return compile_table(builders.build(parse(topology), algorithm, **options))


@cache
def _cuts(topology, algorithm):
    """Chunks of a root that one build of a card serves; None: as the algorithm has them."""
    found = [None, None]
    for chunks in (1, 2, 3):
        table = _table(topology, algorithm, chunks)
        rows = int(np.bincount(table.rows["node"]).max())
        if rows <= N_ROWS and table.n_chunks * table.repeats <= N_CHUNKS:
            found.append(chunks)
    return found


def _silence(rng, posted, n_nodes, options):
    """Let memory not answer for a while at a place of a job; whether for longer than watchdogs
    wait, of which what jobs end with cannot be said.
    """
    k = rng.randrange(len(posted))
    if rng.random() < 0.5:
        k = max(range(len(posted)), key=lambda k: posted[k].job.elems % TOO_LONG)
    one, watchdog = posted[k], options.get("watchdog", 0)
    if one.errors or one.job.elems >= TOO_LONG:
        return False
    is_long = 0 < watchdog < LONGEST and rng.random() < 0.5
    n = 3 * watchdog if is_long else rng.choice((100, 1000, 5000))
    if watchdog and not is_long:
        options["watchdog"] += int(SLACK * n)
    far = FAR[: 1 + (one.job.codec == JobCodec.THC)] * (one.job.elems >= LONG[0])
    place = rng.choice(far or ("source", "result", *("residual", "kept") * one.job.feedback))
    silent = rng.randrange(n_nodes), place, _moment(rng, one.at, one.job.elems), n
    posted[k] = replace(one, silent=silent)
    return is_long


def _moment(rng, at, elems):
    """A cycle behind the post of a job, in any of its steps, or behind them."""
    return at + rng.randint(0, 6000 + 2 * (elems if elems < TOO_LONG else 0))


def _room(rng, posted):
    """Elements that areas have room for, 0: all of the largest. Others are too long then."""
    far = any(one.errors and one.errors[1] in FAR for one in posted)
    sizes = [one.job.elems for one in posted if 0 < one.job.elems < TOO_LONG]
    return rng.choice(sizes) if sizes and not far and rng.random() < 0.15 else 0


def _levels(rng, bits, hosted):
    """Levels of THC: bits of an index, the largest level, and the least bits of a sum, of which
    drivers take the fewest.
    """
    b = 4 if bits == 4 else rng.randint(2, 8)
    g = rng.choice((30, 30, 2**b)) if b == 4 else rng.randint(2**b - 1, 255)
    return {"b": b, "g": g, "w": 8 if hosted else rng.choice((8, 8, 12, 16))}


def _reaches(rng, posted, n_nodes):
    """What hosts read, and write before: see `cosim`. Of sources that stay what they are."""
    sizes = {
        one.job.id: ELEM_BYTES[one.job.kind] * one.job.elems // 4 * 4 for one in posted
        if one.job.elems < TOO_LONG and not one.errors and one.job.kind in ELEM_BYTES
        and one.job.source % ALIGN == 0 and one.job.source < 1 << 32
        and one.job.source != one.job.result
    }  # fmt: skip
    sizes = {id: n for id, n in sizes.items() if n}
    return [
        (
            rng.randint(0, 20_000),
            rng.randrange(n_nodes),
            id,
            min(n, rng.choice((4, 64, 2048, 8192))),
        )
        for id, n in (rng.choice([(-1, 8192), *sizes.items()]) for _ in range(rng.randint(0, 12)))
    ]


def _jobs(rng, built, n_nodes, n_partly):
    """Jobs of a list as `from_dicts` takes them; most of them are such as the card takes.

    n_partly : jobs, at most, that only some nodes post, or one of whose nodes fails. With as many
    as engines, or of a tensor that others wait for, jobs behind them wait as long as the watchdog,
    and may end by it or not.
    """
    collectives = rng.sample(
        ("reduce_scatter", "all_gather", "reduce", "broadcast"), rng.randint(0, N_TABLES - 1)
    )
    collectives += ["all_reduce"] * (2 if built["thc"] is None else 5)
    root, next_gen, made = rng.randrange(n_nodes), {}, []
    some = 0.1 * (rng.random() < 0.3)  # share of jobs that some nodes never post
    aborted = 0.3 * (rng.random() < 0.4)
    failing = rng.choice((0, 0.3, 0.8))
    long, is_far = rng.choice((0, 0, 0.4)), False  # is_far : whether there is a long one
    for k in range(rng.choice((1, 2, 3, 4, 6, 8, 24))):
        tensor = rng.choice((k, k, rng.randrange(3)))
        one = {
            "elems": rng.choice((*SIZES, *[rng.randint(1, LARGEST)] * 12)), "tensor": tensor,
            "class": rng.randrange(8), "collective": rng.choice(collectives),
            "root": root,
        }  # fmt: skip
        one |= _codec(rng, built, one["collective"])
        if rng.random() < 0.3:
            one["at"] = rng.randint(0, 20_000)
        if rng.random() < some and n_partly:
            nodes = rng.sample(range(n_nodes), rng.randint(1, n_nodes - 1))
            one |= {"nodes": nodes, "tensor": ALONE + n_partly}
            n_partly -= 1
        elif rng.random() < failing and n_partly:
            has = {"residual": "feedback", "kept": "feedback", "scratch": "thc"}
            there = {one["codec"], *["feedback"] * one.get("feedback", 0)}
            able = [p for p in PLACES if p not in has or has[p] in there]
            place = rng.choice([p for p in able if not (is_far and p in FAR)])
            one |= {"errors": [rng.randrange(n_nodes), place]}
            if place in FAR:
                one["elems"], is_far = rng.randint(*LONG), True
            if rng.random() < 0.5:
                first = _moment(rng, one.get("at", 0), one["elems"])
                one["errors"] += [first, rng.choice((100, 2000, 20_000))]
            one["tensor"], n_partly = ALONE + n_partly, n_partly - 1
        elif rng.random() < long and not is_far:
            one["elems"], is_far = rng.randint(*LONG), True
        if rng.random() < aborted:
            one["abort"] = _moment(rng, one.get("at", 0), one["elems"])
        made.append(one)
    for one in sorted(made, key=lambda one: one.get("at", 0)):  # as they are posted
        tensor = one["tensor"]
        one["gen"] = next_gen.setdefault(tensor, rng.choice((1, 1, 0xFFFC, rng.getrandbits(16))))
        next_gen[tensor] = (one["gen"] + rng.randint(2, 4)) % 65536
    return made


def _codec(rng, built, collective):
    """Codec, kind, operation and share of a job."""
    if built["thc"] is not None and collective == "all_reduce" and rng.random() < 0.8:
        one = {"codec": "thc", "seed": rng.getrandbits(32), "op": rng.choice(("sum", "mean"))}
        if built["feedback"] and rng.random() < 0.5:
            one |= {"feedback": 1, "half": rng.randrange(2)}
        if built["bf16"] and rng.random() < 0.4:
            one["kind"] = "bf16"
    else:
        codecs = ["none", "none", *["inceptionn"] * built["inc"], *["bf16"] * built["bf16"]]
        one = {"codec": rng.choice(codecs)}
        if one["codec"] == "bf16" or (one["codec"] == "none" and built["bf16"]):
            one["kind"] = rng.choice(("fp32", "bf16"))
        operations = ["sum"] * 3 + ["mean"] * built["scale"]
        operations += ["max"] * (built["maxima"] and one["codec"] != "inceptionn")
        one["op"] = rng.choice(operations)
    if built["gives_up"] and rng.random() < 0.25:
        one["p_q16"] = rng.choice((1, 655, 6553, 32768, 65535))
    return one


def _altered(rng, one):
    """Such a job in place, as it is, or with a field that most cards must refuse."""
    if rng.random() < 0.15:
        one = replace(one, job=replace(one.job, result=one.job.source))
    if rng.random() > 0.06 or one.errors:
        return one
    wrong = rng.choice(
        (
            {"collective": rng.randint(5, 7)}, {"op": 3}, {"kind": rng.randint(2, 3)},
            {"codec": rng.randint(4, 7)}, {"table": rng.randint(4, 15)}, {"elems": 0},
            {"elems": 1 << 27}, {"source": one.job.source + rng.randint(1, 63)},
            {"result": one.job.result + rng.randint(1, 63)}, {"source": 1 << 40},
            {"result": (1 << 64) - 64}, {"feedback": 1, "codec": JobCodec.RAW32},
            {"codec": JobCodec.INCEPTIONN}, {"codec": JobCodec.THC}, {"op": Operation.MEAN},
            {"op": Operation.MAX}, {"kind": Kind.BF16}, {"codec": JobCodec.RAW16},
            {"p_q16": 655},
        )
    )  # fmt: skip
    return replace(one, job=replace(one.job, **wrong), named="table" in wrong or one.named)
