"""Our packet model of a leaf-spine against ns-3: the same flows through both, end by end."""

import numpy as np

from .claims import Table
from .dlcp import JOB, KINDS, bound_of, fabric_of
from .fabric import PAYLOAD
from .ns3_fabric import tcp
from .packet_graph import CASES as ALL_REDUCES

LEAVES, PER_LEAF = 2, 4
CASES = {  # name: (spines, pairs of hosts, packets of each flow)
    "one, same leaf": (2, [(0, 1)], 1000),
    "one, other leaf": (2, [(0, 5)], 1000),
    "one short": (2, [(0, 5)], 20),
    "3 into 1": (2, [(0, 7), (1, 7), (4, 7)], 300),
    "incast, 7 into 1": (2, [(i, 7) for i in range(7)], 100),
    "4 over one spine": (1, [(i, i + 4) for i in range(4)], 300),
}
SHAPE, TREE = "leafspine:4x4x4", "fattree:4"  # of a job's hosts
CONGESTED = {  # name: a job's shape, others' load, links down, links that go down
    "a job beside others": (SHAPE, 0.4, 0.0, 0.0),
    "a job, links down": (SHAPE, 0.0, 0.2, 0.0),
    "a job, links go down": (SHAPE, 0.0, 0.0, 0.2),
    "a job in a fat-tree": (TREE, 0.0, 0.0, 0.0),
    "beside others in a fat-tree": (TREE, 0.4, 0.0, 0.0),
    "links go down in a fat-tree": (TREE, 0.0, 0.0, 0.1),
}
LIMIT, MODEL_LIMIT = 5, 3  # percent
APART = 1000.0  # nanoseconds within which flows start
_DIFFERS = (
    "largest difference of mean and last completion over all cases, starts at random within a "
    "microsecond; hosts are the same objects on both, links, queues, switches and clock are not"
)
_CONGESTED = (
    "largest difference of mean and last completion of one job's flows beside flows of others, on "
    "networks with dead links, and in a fat-tree; one seed"
)
_TCP = (
    "ns-3's own TCP with DCTCP and RED queues that mark above K: segments of 1408 bytes, each of "
    "them acknowledged, connected before, the same frames on the wire, one spine, since its global "
    "routing takes no other; a mark cuts the window at once, as RFC 8257 says (by PRR, ns-3's "
    "default, in a round trip); largest difference over the small cases; its first alpha is that "
    "of ten packets, ours of one, as in the RFC"
)
_SCHEDULES = (
    "schedules on direct links and one switch, 4 and 16 nodes: rows, packets and links one by one "
    "on ns-3, and messages in the network model of gradnic simulate, with the same times of cards; "
    "switches of ns-3 store each packet before they forward it; largest difference over the cases"
)


def seconds(network, kind, case, seed, spines=None):
    """Nanoseconds of each flow of `CASES`[case], a list; network : as `fabric_of` has it; spines :
    other than the case's.
    """
    queues, transport = KINDS[kind]
    n_spines, pairs, n_packets = CASES[case]
    rng = np.random.default_rng(seed)
    fabric = fabric_of(network)(LEAVES, PER_LEAF, spines or n_spines, queues)
    flows = [transport(fabric, a, b, PAYLOAD * n_packets, important=rng.random(n_packets) < 0.5,
                       seed=int(rng.integers(1 << 30))) for a, b in pairs]  # fmt: skip
    starts = APART * np.random.default_rng(seed).random(len(pairs))
    for flow, start in zip(flows, starts, strict=True):
        fabric.at(start, flow.start)
    fabric.run(lambda: sum(flow.done is None for flow in flows))
    return [flow.done - flow.begin for flow in flows]


def stack_seconds(case, seed):
    """The same of ns-3's TCP, from the same starts."""
    spines, pairs, n_packets = CASES[case]
    starts = APART * np.random.default_rng(seed).random(len(pairs))
    return tcp(
        LEAVES, PER_LEAF, spines, [(*p, PAYLOAD * n_packets) for p in pairs], starts
    ).tolist()


def _both(times):
    """(mean, last) in microseconds; times : nanoseconds, a row a seed."""
    times = np.array(times)
    return times.mean() / 1e3, times.max(axis=1).mean() / 1e3


def compare(result, quick, say, measure):
    """Add the claims and the table to a Result. quick : 3 seeds of 10. measure : of `dlcp`."""
    seeds = range(3 if quick else 10)
    rows, apart, congested, tcp_apart = [], [], [], []
    for kind in KINDS:
        for case in CASES:
            say(f"{kind} on both networks: {case}")
            ours, theirs = (
                _both([measure("small", network, kind, case, seed) for seed in seeds])
                for network in ("model", "ns3")
            )
            apart += _add(rows, kind, case, ours, theirs)
            if kind == "DCTCP":
                ours = _both([measure("small", "model", kind, case, seed, 1) for seed in seeds])
                stack = _both([measure("tcp", case, seed) for seed in seeds])
                tcp_apart += _add(rows, "DCTCP, ns-3's TCP", case, ours, stack)

        def job(case, shape, *traffic, kind=kind):
            say(f"{kind} on both networks: {case}")
            both = [
                measure("flows", kind, 1, 1 << 18, shape, bound_of(kind), *traffic, network)
                for network in ("model", "ns3")
            ]
            return _add(rows, kind, case, *((one[0], one[3]) for one in both))

        apart += job(f"a job of {JOB} hosts", SHAPE, 0.0, 0.0, 0.0)
        for case, setting in CONGESTED.items():
            congested += job(case, *setting)
    for name, found, differs in (
        ("completion times, our model against ns-3", apart, _DIFFERS),
        ("completion times on congested networks, the same", congested, _CONGESTED),
        ("mean completion of DCTCP, our model against ns-3's TCP", tcp_apart[::2], _TCP),
        ("last completion of DCTCP, our model against ns-3's TCP", tcp_apart[1::2], _TCP),
    ):
        found = [abs(one) for one in found]
        result.claim(name, LIMIT, max(found), found, "%", differs, better="lower")
    _all_reduces(result, say, measure)
    result.tables.append(
        Table("Completion times on both networks", ("transport", "case", "mean us", "ns-3 mean us",
              "apart %", "last us", "ns-3 last us", "last apart %"), rows)
    )  # fmt: skip


def _all_reduces(result, say, measure):
    """Add a claim and a table: the network model of schedules against ns-3."""
    rows = []
    for case in ALL_REDUCES:
        say(f"all-reduce on ns-3: {case}")
        theirs, ours, *_ = measure("all-reduce", case)
        rows.append((case, theirs / 1e3, ours / 1e3, 100 * (ours / theirs - 1)))
    apart = [abs(row[3]) for row in rows]
    result.claim("all-reduces, network model against ns-3", MODEL_LIMIT, max(apart), apart, "%",
                 _SCHEDULES, better="lower")  # fmt: skip
    result.tables.append(
        Table("All-reduces on ns-3 and in the network model, 100 Gb/s",
              ("case", "ns-3 us", "network model us", "apart %"), rows)
    )  # fmt: skip


def _add(rows, kind, case, ours, theirs):
    """Append a row; [percent apart of the mean, of the last]."""
    apart = [100 * (a / b - 1) for a, b in zip(ours, theirs, strict=True)]
    rows.append((kind, case, *map(float, (ours[0], theirs[0], apart[0],
                                          ours[1], theirs[1], apart[1]))))  # fmt: skip
    return apart
