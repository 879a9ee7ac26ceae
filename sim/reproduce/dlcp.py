"""DLCP (arXiv 2008.08445): bounded loss, importance, spraying, over DCTCP and pFabric.

144 hosts under nine leaves, all links 100 Gb/s: the size of the paper's simulation; what else it
simulated is not known to us. Here: jobs of 16 hosts anywhere, 12 workers that push the eight layers
of AlexNet, scaled down, to four servers at once. Flow completion times of layers.
"""

from functools import cache

import numpy as np
from gradnic.models.training.layers import load as layers_of

from .claims import Picture, Result, Table, made_of
from .composed import POINTS, P, _stretch_points
from .congestion import FALL, KNOWN, WARM, Others, dead_links
from .fabric import PAYLOAD, Fabric, Fifo, Priorities, Shortest, Trimming
from .fat_tree import FatTree
from .transports import Bounded, Dctcp, Pfabric

LEAVES, PER_LEAF, JOB, SERVERS = 9, 16, 16, 4
KINDS = {"DCTCP": (Fifo, Dctcp), "pFabric": (Shortest, Pfabric), "ours": (Priorities, Bounded),
         "ours, trimming": (Trimming, Bounded)}  # fmt: skip
BOUND = 0.01  # within the 0.6 to 3.5 % that the paper's models bear
SMALLEST = 64  # bytes of a layer's part
LOADS, DEAD = (0.0, 0.2, 0.4, 0.6, 0.8), (0.05, 0.2)
_NETWORKS = {
    "model": "our own packet model of a leaf-spine, checked against ns-3 on small cases: what "
    "receivers say is not queued",
    "ns3": "ns-3 carries links, queues and words of receivers",
}
_NETWORKS["rtl"] = _NETWORKS["model"]
_DIFFERS = (
    "windows and timeouts as in DCTCP's and pFabric's papers (10 ms and three round trips "
    "at least); traffic, layer sizes and number of spines are ours; ours: golden sender, receiver, "
    "spray and pace, half of the packets important, p = 1 %; range over p from 0 and over spines"
)


def extent(quick):
    """(jobs, bytes of a job's tensor, spines, bounds p)."""
    if quick:
        return 2, 1 << 20, (16,), (0.0, BOUND, 0.035)
    return 9, 4 << 20, (16, 8, 4), (0.0, 0.005, BOUND, 0.02, 0.035, 0.1)


def bound_of(kind):
    """The bound p behind the claims: 0 for transports that lose nothing."""
    return BOUND if kind.startswith("ours") else 0.0


def fabric_of(network, name="leafspine"):
    """The class of networks: ``model`` and ``rtl``, our packet model, or ``ns3``. name : of a
    shape, ``leafspine`` or ``fattree``.
    """
    if network != "ns3":
        return {"leafspine": Fabric, "fattree": FatTree}[name]
    from . import ns3_fabric

    return {"leafspine": ns3_fabric.Ns3Fabric, "fattree": ns3_fabric.Ns3FatTree}[name]


def made(shape, queues, network="model", dead=0.0):
    """A network. shape : ``leafspine:9x16x4``, of leaves, hosts of each and spines, or
    ``fattree:8``, of switches with so many ports. dead : share of the links between switches that
    are down.
    """
    name, sizes = shape.split(":")
    sizes = [int(size) for size in sizes.split("x")]
    down = dead_links(fabric_of("model", name)(*sizes, queues).n_links, dead) if dead else ()
    return fabric_of(network, name)(*sizes, queues, dead=down)


def completion(kind, n_jobs, n_bytes, shape, p, load=0.0, dead=0.0, falls=0.0, network="model"):
    """(microseconds of every flow, microseconds of every job's last flow, packets dropped).

    shape, dead : see `made`. load : of others, see `congestion`. falls : share of the links between
    switches that go down while jobs run.
    """
    queues, transport = KINDS[kind]
    fabric = made(shape, queues, network, dead)
    if falls:
        begin = WARM if load else 0.0
        fabric.fail(dead_links(fabric.n_links, falls), begin + FALL, begin + KNOWN)
    rng = np.random.default_rng(1)
    hosts = rng.permutation(fabric.n_hosts)
    layers = layers_of("alexnet").layers
    total = sum(layer.parameters for layer in layers)
    flows, jobs = [], []
    for job in range(n_jobs):
        mine = hosts[job * JOB : (job + 1) * JOB].tolist()
        for worker in mine[SERVERS:]:
            for server in mine[:SERVERS]:
                for i, layer in enumerate(layers):
                    size = max(SMALLEST, n_bytes * layer.parameters // (total * SERVERS))
                    important = rng.random(-(-size // PAYLOAD)) < 0.5
                    if i >= 3 * len(layers) // 4:  # back layers are important, as the tagger has it
                        important[:] = True
                    flows.append(
                        transport(fabric, worker, server, size, queue=i * 8 // len(layers),
                                  important=important, seed=int(rng.integers(1 << 30)), p=p)
                    )  # fmt: skip
                    jobs.append(job)
    if load:
        Others(fabric, kind, load)
    for flow in flows:
        fabric.at(WARM if load else 0.0, flow.start)
    open_flows = list(flows)

    def unfinished():
        while open_flows and open_flows[-1].done is not None:
            open_flows.pop()
        return len(open_flows)

    fabric.run(unfinished)
    times = np.array([flow.seconds for flow in flows]) * 1e6
    last = [times[np.array(jobs) == job].max() for job in range(n_jobs)]
    return times, np.array(last), fabric.dropped


@cache
def summary(*setting):
    """Of `completion`: microseconds of a flow, mean and 99 %; of a job's last flow, mean; of the
    last of all; packets dropped. A list.
    """
    times, last, dropped = completion(*setting)
    found = [times.mean(), np.percentile(times, 99), last.mean(), times.max()]
    return [*map(float, found), dropped]


def measure(what, *key):
    """One run: of ``flows`` as `summary` does it, of ``cards`` of RTL, of the ``small`` cases of
    `networks`, or of these by ns-3's ``tcp``; of the ``all-reduce``s of `packet_graph` on ns-3.
    """
    from . import cards, networks, packet_graph

    of = {"flows": summary, "cards": cards.measure, "small": networks.seconds,
          "tcp": networks.stack_seconds, "all-reduce": packet_graph.on_ns3}  # fmt: skip
    return of[what](*key)


def points(quick, network="model"):
    """Arguments of every run of `measure` that `run` asks for, longest first."""
    asked = {}

    def unmeasured(*key):
        asked[key] = None
        return [1.0] * 7

    run(quick, lambda _: None, unmeasured, network)
    return sorted(asked, key=lambda key: key[0] != "cards")


answers = made_of


def run(quick, say, measure=measure, network="model"):
    """The Result. quick : two jobs of the nine, one network. measure : called as `measure` is.

    network : of `fabric_of`; with ``ns3`` also its agreement with our model on small cases, with
    ``rtl`` that of cards of RTL.
    """
    result = Result("dlcp")
    differs = f"{_NETWORKS[network]}; {_DIFFERS}"
    n_jobs, n_bytes, all_spines, bounds = extent(quick)
    rows, found = [], {}
    on = () if network != "ns3" else (0.0, 0.0, 0.0, network)
    for spines in all_spines:
        for kind in KINDS:
            for p in bounds if bound_of(kind) else (0.0,):
                say(f"{kind}, {spines} spines, p = {100 * p:g} %")
                shape = f"leafspine:{LEAVES}x{PER_LEAF}x{spines}"
                times = measure("flows", kind, n_jobs, n_bytes, shape, p, *on)
                found[kind, spines, p] = times[:3]
                rows.append((kind, spines, 100 * p, *times))
    main = all_spines[0]
    for other, mean, tail in ("DCTCP", 43.1, 91.8), ("pFabric", 35.5, 88.6):
        for at, name, published in (0, "mean", mean), (1, "tail (99 %)", tail):
            cuts = {
                (spines, p): 100
                * (1 - found["ours", spines, p][at] / found[other, spines, 0.0][at])
                for spines in all_spines
                for p in bounds
            }
            result.claim(f"{name} flow completion time saved over {other}", published,
                         cuts[main, BOUND], cuts.values(), "%", differs)  # fmt: skip
    _training(result, found, main, bounds)
    _ring(result, say)
    _congested(result, quick, say, measure, (n_jobs, n_bytes, main), on[3:])
    if network == "ns3":
        from .networks import compare

        compare(result, quick, say, measure)
    if network == "rtl":
        from .cards import compare

        compare(result, quick, say, measure)
    result.tables.append(
        Table(f"Flow completion times, {n_jobs} jobs, {n_bytes >> 10} KiB each", ("transport",
              "spines", "p %", "mean us", "99 % us", "last of a job us", "last us", "dropped"),
              rows)
    )  # fmt: skip
    series = {
        f"{name}, {main} spines": [(100 * p, float(found["ours", main, p][at])) for p in bounds]
        for at, name in ((0, "mean"), (1, "99 %"), (2, "last of a job"))
    }
    result.pictures.append(
        Picture("dlcp_p", "lines", "Completion over the bound p", "p %", "us", series)
    )
    result.pictures.append(
        Picture("dlcp_transports", "bars", "Flow completion times", "", "us", {
            name: [(kind, float(found[kind, main, bound_of(kind)][at])) for kind in KINDS]
            for at, name in ((0, "mean"), (1, "99 %"))
        }, "y")
    )  # fmt: skip
    return result


def _congested(result, quick, say, measure, setting, network):
    """Curves over the load of others, links that are down, or go down in between, and a fat-tree.

    quick : 32 hosts, not 144. network : none, or the one that is not our model.
    """
    n_jobs, n_bytes, spines = setting
    shape = "leafspine:4x8x8" if quick else f"leafspine:{LEAVES}x{PER_LEAF}x{spines}"
    tree = "fattree:6" if quick else "fattree:8"
    loads, shares = ((0.0, 0.4), (0.1,)) if quick else (LOADS, DEAD)
    kinds = [kind for kind in KINDS if not kind.endswith("trimming")]
    cases = [(shape, load, 0.0, 0.0) for load in loads]
    cases += [(shape, 0.0, dead, 0.0) for dead in shares]
    cases += [(shape, 0.0, 0.0, falls) for falls in shares]
    cases += [(tree, 0.0, 0.0, 0.0), (tree, 0.0, 0.0, shares[0])]
    found, rows = {}, []
    for case in cases:
        on, load, dead, falls = case
        for kind in kinds:
            say(f"{kind}, {on}, load {load:.0%}, {dead:.0%} of links down, {falls:.0%} go down")
            found[kind, case] = measure(
                "flows", kind, min(n_jobs, 8), n_bytes, on, bound_of(kind), load, dead, falls,
                *network,
            )  # fmt: skip
        base = found["DCTCP", case]
        for kind in kinds:
            times = found[kind, case]
            rows.append((kind, on, 100 * load, 100 * dead, 100 * falls, *times,
                         *(100 * (1 - times[i] / base[i]) for i in range(2))))  # fmt: skip
    result.tables.append(
        Table("Flow completion times beside others' flows, which have the last queue beside ours, "
              f"and dead links, p = {100 * BOUND:g} %", ("transport", "network", "load %",
              "links down %", "go down %", "mean us", "99 % us", "last of a job us", "last us",
              "dropped", "mean saved over DCTCP %", "99 % saved over DCTCP %"), rows)
    )  # fmt: skip
    where = f"{shape}, p = {100 * BOUND:g} %"
    result.pictures.append(
        Picture("dlcp_load", "lines", f"Completion over others' load, {where}", "load %", "us", {
            f"{kind}, {name}": [
                (100 * load, found[kind, (shape, load, 0.0, 0.0)][i]) for load in loads
            ]
            for kind in kinds for i, name in ((0, "mean"), (1, "99 %"))
        }, "y")
    )  # fmt: skip


def _training(result, found, main, bounds):
    """Speed-up of a step whose communication is a job's last flow."""
    base = min(found[kind, main, 0.0][2] for kind in ("DCTCP", "pFabric"))

    def gain(share, p):
        return 100 * (1 / (1 - share + share * found["ours", main, p][2] / base) - 1)

    shares = (0.3, 0.5, 0.7, 0.9)
    result.claim(
        "training acceleration with servers", 84.3, gain(0.5, BOUND),
        [gain(s, p) for s in shares for p in bounds], "%",
        "published: ten V100, over the best of the systems before it; ours: over the better one "
        "of DCTCP and pFabric, a job's last flow as its communication, taken as half of the step; "
        "range over shares of 30 to 90 % and over p; DCTCP's last flow is a timeout of 10 ms here, "
        "since our tensors are small, and pFabric has none such",
    )  # fmt: skip


def _ring(result, say):
    say("ring under loss")
    gains = [100 * (a / b - 1) for a, b in zip(_stretch_points(0.0, 8e-6), _stretch_points(P, 8e-6),
                                               strict=True)]  # fmt: skip
    result.claim(
        "training acceleration with a ring", 11, gains[1], gains, "%",
        f"published: about; ours: a message of {POINTS[1] // 1000} kB under 1 % loss, p = "
        f"{100 * P:g} % over p = 0, on the golden sender and receiver; range over 20 kB to 2 MB",
    )  # fmt: skip
