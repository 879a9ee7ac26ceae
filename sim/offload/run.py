"""One all-reduce by offload cards in RTL, and the sums that it must reach, for each codec.

The sums follow from the table, the order of ranks and the packets that the cards gave up, no
matter when what was sent, lost or repeated.
"""

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from gradnic.hdl.transport.records import CHECK_WIDTH
from gradnic.hdl.transport.tagger import HOST
from gradnic.models.offload.cluster import LinkFaults, all_reduce
from gradnic.models.offload.codec import Inceptionn, Norms, Raw, Thc
from gradnic.models.schedule import builders as schedules
from gradnic.models.schedule import checker
from gradnic.models.schedule.builders.fastest import cut, fastest
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.ethernet_cards import codec_of
from gradnic.models.schedule.network_model import of_offload_card, simulate
from gradnic.models.schedule.topology import parse
from gradnic.models.thc.worker import Worker
from gradnic.models.transport.tag_score import max_score
from gradnic.models.transport.tag_threshold import N_BINS, quantile

from gradnic.interface.formats import GRADNIC, HEAD_BYTES, Op

from ..aggregation.worker import RtlWorker, build_engines
from .cards import probing
from .cluster import OffloadCluster

ENGINE_LANES = 4  # of THC
PACES = ("off", "ce", "rtt")
CODECS = ("none", "inceptionn", "thc")
SEED = 1  # of THC's random streams
UNIT = 16  # floats that a packet's number counts


@dataclass
class Outcome:
    """What a run of one or two rounds left behind.

    cycles : of all rounds, None if a card was never done. mismatches : elements of all replicas
    that differ from the golden sums. lost : share of the leaf contributions that are missing.
    frames : list of (cycle, node, port, copies that arrived, bytes). n_dropped, n_marked : frames
    that queues of switches dropped, and marked.
    """

    nodes: int
    n_elems: int
    cycles: int | None
    mismatches: int
    lost: float
    n_given_up: int
    frames: list = field(repr=False)
    n_dropped: int = 0
    n_marked: int = 0
    first: str = ""

    @property
    def ok(self):
        return self.cycles is not None and not self.mismatches

    def summary(self):
        """For JSON."""
        headers = [GRADNIC.parse(frame) for *_, frame in self.frames]
        return {
            "ok": self.ok,
            "nodes": self.nodes,
            "cycles": self.cycles,
            "bit_exact": self.mismatches == 0,
            "mismatches": self.mismatches,
            "first": self.first,
            "lost_share": self.lost,
            "packets_given_up": self.n_given_up,
            "frames": len(self.frames),
            "frames_dropped": self.n_dropped,
            "frames_marked": self.n_marked,
            "frames_lost": sum(copies == 0 for *_, copies, _ in self.frames),
            "data_again": sum(h["retx"] and h["op"] != Op.CONTROL for h in headers),
            "control_frames": sum(h["op"] == Op.CONTROL for h in headers),
            "wire_bytes": sum(len(frame) + 24 for *_, frame in self.frames),
        }


def _round(table, topology, codec, own, values, sent, faults, options, norms=()):
    """One round in RTL and by table: (result, golden sums, leaves, plan). norms : that each node
    knows, of THC.
    """
    options = dict(options)
    link_bytes = options.pop("link_bytes", None)
    cluster = OffloadCluster(table, topology, values.shape[1], codec, **options)
    for node, known in enumerate(norms):
        cluster.agree(node, known, codec.worker.B)
    result = cluster.run(values, faults, link_bytes=link_bytes)
    golden, leaves = all_reduce(cluster.plan, codec, own, sent, result.given_up)
    return result, golden, leaves, cluster.plan


def _frames(result):
    return [
        (int(r["at"]), int(r["node"]), int(r["port"]), int(r["copies"]), frame)
        for r, frame in zip(result.sent, result.frames, strict=True)
    ]


def _compare(replicas, golden, what):
    """(elements that differ, the first of them in words)."""
    raw = np.dtype(f"u{replicas.dtype.itemsize}")
    wrong = replicas.view(raw) != golden.astype(replicas.dtype).view(raw)
    if not wrong.any():
        return 0, ""
    node, at = np.argwhere(wrong)[0]
    return int(wrong.sum()), (
        f"{what} {at} at node {node} is {replicas[node, at]!r}, not {golden[at]!r}"
    )


def _outcome(n_elems, runs):
    """One `Outcome` of rounds (result, golden, leaves, plan) and what they compared."""
    result, _golden, leaves, plan = runs[-1]
    mismatches, first = 0, ""
    for one, what in zip(runs, ("norm", "value")[-len(runs) :], strict=True):
        n_wrong, words = _compare(one[0].replicas, one[1], what)
        mismatches, first = mismatches + n_wrong, first or words
    cycles = [one[0].cycles for one in runs]
    arrived = float((leaves * plan.elems).sum() / (plan.n_nodes * plan.elems.sum()))
    return Outcome(
        plan.n_nodes,
        n_elems,
        None if None in cycles else sum(cycles),
        mismatches,
        1 - arrived,
        sum(map(len, result.given_up.values())),
        [frame for one in runs for frame in _frames(one[0])],
        sum(one[0].dropped for one in runs),
        sum(one[0].marked for one in runs),
        first,
    )


def run(
    table,
    topology,
    gradients,
    codec="none",
    *,
    faults=None,
    p=0.0,
    exponent=117,
    mode="strict",
    prescale=0,
    block=1024,
    make_worker=Worker,
    **options,
):
    """One all-reduce of `gradients`, float32 (n_nodes, n_elems): an `Outcome`, and the replicas.

    codec : of `CODECS`. faults : models.offload_cluster.LinkFaults. p : share of the leaf
    contributions that may be missing. exponent, mode, prescale : of INCEPTIONN. block : B of THC.
    make_worker : of THC, such as `gradnic.sim.aggregation.worker.RtlWorker` with its engines.
    options : of `OffloadCluster`, and link_bytes, of its `run`. Returns float32 (n_nodes, n_elems).
    """
    n_nodes, n_elems = gradients.shape
    if codec not in CODECS:
        raise ValueError(f"codec must be one of {', '.join(CODECS)}, not {codec!r}")
    if codec == "thc":
        worker = make_worker(n_nodes, SEED, g=granularity(n_nodes), B=block)
        return _run_thc(table, topology, gradients, worker, faults, p, options)
    if codec == "none":
        golden = Raw(n_nodes)
        sent = _same
    else:
        golden = Inceptionn(n_nodes, exponent=exponent, mode=mode, prescale=prescale)

        def sent(values):
            return Inceptionn.finish(golden, values, n_nodes)

    one = _round(table, topology, golden, gradients, gradients, sent, faults, options | {"p": p})
    return _outcome(n_elems, [one]), one[0].replicas


def cosim(
    spelling, algorithm, gradients, codec="none", *, chunks=None, lanes=4, port_lanes=None,
    faults=None, spray=False, important=None, pace="off", block=1024, **options,
):  # fmt: skip
    """The run of ``gradnic cosim card``: an `Outcome`, and its summary with the error.

    spelling, algorithm, chunks : as of ``gradnic schedule``; the table is checked first. gradients
    : float32 (n_nodes, n). lanes : floats of a beat, 4, 8, 16 or 32. port_lanes : floats of a
    port's beat, at most `lanes`; None: `lanes`. Links at nodes run at the rate of the slowest of
    them where the file has a unit, at 1 GHz, as far as a port can, else at a port's; those between
    switches in proportion, a frame at a time, and have room for all that wait. spray : cards spray
    their packets over 8 paths, each longer than the one before by twice the delay. `best` is the
    fastest by the network model, and chunks for narrow ports are, see `cut`. important : share of
    the elements that is important by the sizes of its packets; None is all. pace : "off", "ce" or
    "rtt". options : as of `run`.

    ``model_cycles`` are for what INCEPTIONN made of this run's packets, of which ``payload_ratio``
    is the mean; ``model_overruns`` are frames that found no room there.
    """
    faults = faults or LinkFaults()
    topology = parse(spelling)
    port_bytes = 4 * (port_lanes or lanes)
    rate, network = topology.rate_behind(port_bytes), topology.behind(port_bytes)

    def cards(ratio=None, sizes=None):
        name = codec if ratio is None else f"ratio:{ratio}"
        made = replace(codec_of(name, topology.n_nodes), sizes=sizes)
        if made.block:
            made = replace(made, block=block, unit=max(block, made.unit))
        card = of_offload_card(lanes, port_lanes, delay=faults.delay, codec=made)
        return replace(card, link_bytes_per_cycle=network.bytes_per_cycle)

    n_bytes = gradients.nbytes // len(gradients)
    if algorithm == "best":
        schedule, _ = fastest(network, n_bytes, cards(), chunks=chunks)
    elif chunks is None:
        schedule = cut(network, algorithm, n_bytes, cards())
    else:
        schedule = schedules.build(topology, algorithm, **_given(chunks=chunks))
    table = compile_table(schedule)
    checker.check(table, topology)
    if codec == "thc":
        options["make_worker"] = partial(RtlWorker, build_engines(ENGINE_LANES, block))
    if important is not None:
        options["tags"] = _tags(gradients, important)
    if pace != "off":
        delay = faults.delay or 1
        rules = {"rule": PACES.index(pace), "floor": 1024, "step": 256}
        options["pace"] = rules | {"low": 4 * delay, "high": 64 * delay}
    skew = 2 * faults.delay if spray else 0
    options.setdefault("t_probe", probing([table], faults, skew, 4 * lanes, port_bytes, rate))
    outcome, replicas = run(
        table,
        topology,
        gradients,
        codec,
        faults=faults,
        block=block,
        n_bytes=4 * lanes,
        port_bytes=port_bytes,
        link_bytes=rate,
        skew=skew,
        **options,
    )
    found = {"built_as": schedule.algorithm, "chunks": float(schedule.chunks)}
    ratio = sizes = None
    if codec == "inceptionn":
        ratio, sizes = payloads(outcome.frames, len(gradients), gradients.shape[1])
    found |= {"link_bytes_per_cycle": rate, "payload_ratio": ratio}
    found |= {"model_cycles": None, "model_overruns": None}
    plain = LinkFaults(delay=faults.delay, seed=faults.seed)
    if not (spray or options.get("queues")) and faults == plain:
        model = simulate(table, network, n_bytes, cards(ratio, sizes))
        found |= {"model_cycles": model.cycles, "model_overruns": model.overruns}
    scale = len(gradients) if codec == "thc" else 1  # its result is the mean
    found |= error_of(replicas[0].astype(np.float64) * scale, gradients)
    return outcome, outcome.summary() | found


def error_of(result, gradients):
    """``nmse`` of a sum, None where no value has one; ``not_finite``: values that it leaves out.

    result : float64 (n,). gradients : (n_nodes, n).
    """
    with np.errstate(invalid="ignore"):  # Inf less Inf
        total = gradients.astype(np.float64).sum(axis=0)
    finite = np.isfinite(total) & np.isfinite(result)
    error = float(((result[finite] - total[finite]) ** 2).sum()) if finite.any() else None
    power = float((total[finite] ** 2).sum()) or 1.0
    return {"nmse": None if error is None else error / power, "not_finite": int((~finite).sum())}


def _tags(gradients, important, packet=352):
    """Rules that make about that share of the gradients important, by a threshold of the host."""
    histogram = np.zeros(N_BINS, np.int64)
    for row in gradients:
        for at in range(0, len(row), packet):
            histogram[max_score(row[at : at + packet])] += 1
    share = min(255, round(256 * important))
    threshold = quantile(histogram, share)
    return {"source": HOST, "threshold": threshold, "back_layer_start": 1 << 12,
            "pull_all_important": 1}  # fmt: skip


def payloads(frames, n_nodes, n_elems):
    """What a codec made of packets: bytes of floats over coded bytes, of all of them, and the mean
    bytes of each as `Codec.sizes` has them; what did not leave has the mean of all.
    """
    total = np.zeros((n_nodes + 1, -(-n_elems // UNIT)), np.int64)
    copies, n_floats = np.zeros_like(total), 0
    for *_, frame in frames:
        head = GRADNIC.parse(frame)
        if head["op"] != Op.CONTROL:
            at = 0 if head["ph"] else head["arg"] >> CHECK_WIDTH, head["seq"]
            total[at] += len(frame) - HEAD_BYTES
            copies[at] += 1
            n_floats += head["elems"]
    sizes = np.full(total.shape, total.sum() / copies.sum())
    np.divide(total, copies, out=sizes, where=copies > 0)
    return float(4 * n_floats / total.sum()), np.rint(sizes).astype(np.int32)


def _given(**options):
    return {name: value for name, value in options.items() if value is not None}


def granularity(n_nodes):
    """g of THC: 30, or the largest even one whose sums of all nodes fit 8 bits."""
    g = min(30, 255 // n_nodes & ~1)
    if g < 14:
        raise ValueError(
            f"nodes must be at most 18 for THC sums of 8 bits, not {n_nodes}; jobs have wider sums"
        )
    return g


def _same(values):
    return values


def _run_thc(table, topology, gradients, worker, faults, p, options):
    """Norms by maximum, then indices and sums; the worker's engines before, between and after."""
    n_nodes, n_elems = gradients.shape
    codec = Thc(worker)
    n_padded = -(-n_elems // codec.unit) * codec.unit
    floats = np.zeros((n_nodes, n_padded), np.float32)
    floats[:, :n_elems] = gradients
    norms = np.stack([worker.norms(x) for x in floats])
    agreed = _round(table, topology, Norms(), norms, norms, _same, faults, options)
    known = agreed[0].replicas
    indices = np.stack(
        [worker.encode(x, known[v], round=1, worker=v, tensor=1) for v, x in enumerate(floats)]
    )
    levels = worker.table[indices].astype(np.int64)
    options = options | {"p": p}
    one = _round(table, topology, codec, levels, indices, _same, faults, options, known)
    replicas = np.stack(
        [
            worker.decode(sums.astype(np.int64), known[v], round=1, tensor=1)[:n_elems]
            for v, sums in enumerate(one[0].replicas)
        ]
    )
    return _outcome(n_elems, [agreed, one]), replicas
