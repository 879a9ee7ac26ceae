"""The fastest schedule for one tensor on one network, by the network model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..all_reduce import chunk_length
from ..bounds import worst_cut
from ..network_model import Network, simulate
from ..topology import Topology
from .bfb import bfb
from .catalog import CHUNKED, build, check_work
from .dbtree import dbtree
from .forest import STEPS, forest
from .halving import halving, hdrm
from .hierarchical import hierarchical
from .in_network import in_network
from .multitree import multitree
from .rings import bidirectional, ring, ring2d
from .rows import compile_table
from .schedule import Schedule
from .search import multistart, overlapped
from .timed import timed

_CHUNKS = (1, 2, 4, 8, 16)
_CARD_CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_LAGS, _AHEAD = (0, 1, 2, 3), (0.5, 1)  # of `timed`
_MOST_MESSAGES = 1 << 18  # of a table with several chunks a shard: seconds to simulate
_REPEATS = (4, 16, 64, 256)
_LEAST_BYTES = 64  # of a chunk: the 16 floats that chunks are rounded up to
_FINE_MESSAGES = 1 << 20  # of ForestColl's trees cut so that buffers hold messages


@dataclass(frozen=True)
class Try:
    """A candidate: its algorithm, chunks a shard, and cycles on the model."""

    algorithm: str
    chunks: float
    cycles: int


def fastest(
    topology: Topology,
    n_bytes: int,
    network: Network,
    *,
    chunks: int | None = None,
    seed: int = 0,
    on_try: Callable[[str], Any] | None = None,
) -> tuple[Schedule, list[Try]]:
    """(the schedule that `simulate` finds fastest, [`Try`] of all, fastest first).

    n_bytes : of the tensor. network : Network, the machine of all candidates. chunks : per shard,
    for those that can be cut so; None: 1, 2, 4, 8, 16, as far as chunks keep 16 floats and tables
    262,144 messages; for offload cards the first five of 1, 2, 3, 4, 6 ... 64 with which a row is
    one run of whole packets, and 1 where there are none. on_try(name) : called before each
    candidate. Of equals the first.

    Candidates: MultiTree, and its best of 9 starts up to 64 nodes, rings of all kinds, through
    switches in boxes, too, halving-doubling, HDRM, double binary tree, BFB, overlapped phases,
    ForestColl's trees through switches up to 256 nodes and on uneven direct links up to 64, in four
    numbers of chunks, or five where messages would be longer than half a buffer (1,048,576 of them
    at most), trees in switches that sum and multicast, for offload cards `timed` up to 64. Those of
    more than one chunk, and on more than 512 nodes all but MultiTree, ring and halving-doubling,
    are left out where too large.
    """
    check_work(topology, chunks)
    found, tries = None, []
    for name, make in _candidates(topology, n_bytes, network, chunks, seed):
        if on_try:
            on_try(name)
        try:
            schedule = make()
        except ValueError:  # the algorithm does not fit the topology
            continue
        chunks_made = float(schedule.chunks)
        if name == "forest" and any((t.algorithm, t.chunks) == (name, chunks_made) for t in tries):
            continue  # of trees that need more steps than those asked for
        cycles = simulate(compile_table(schedule), topology, n_bytes, network).cycles
        tries.append(Try(name, chunks_made, cycles))
        if found is None or cycles < found[0]:
            found = cycles, schedule
    if found is None:
        raise ValueError(f"no algorithm fits {topology.name} with {chunks} chunks")
    return found[1], sorted(tries, key=lambda one: one.cycles)


def cut(
    topology: Topology,
    algorithm: str,
    n_bytes: int,
    network: Network,
    *,
    on_try: Callable[[str], Any] | None = None,
    **options: Any,
) -> Schedule:
    """`build(topology, algorithm, **options)`, on offload cards with narrow ports in the chunks a
    shard that `simulate` finds fastest: of those that `fastest` would try, so that a row is one
    run.

    A row of several runs goes to one port, run after run, while the others wait for theirs. Rings
    are as they are: they send a shard's chunks as one message. on_try(name) : called before each
    count.
    """
    counts = _counts(topology, n_bytes, network)
    if not (network.cards and network.cards.narrow) or counts == [1] or algorithm not in CHUNKED:
        return build(topology, algorithm, **options)
    found = []
    for k in counts:
        if on_try:
            on_try(f"{algorithm}, {k} chunks a shard")
        try:
            schedule = build(topology, algorithm, chunks=k, **options)
        except ValueError:  # such as an odd number for rings both ways round
            continue
        if (schedule.transfers["count"] > 1).any():
            continue
        cycles = simulate(compile_table(schedule), topology, n_bytes, network).cycles
        found.append((cycles, len(found), schedule))
    return min(found)[2] if found else build(topology, algorithm, **options)


def _counts(topology: Topology, n_bytes: int, network: Network) -> Sequence[int]:
    """Chunks a shard to try."""
    if not network.cards:
        return _CHUNKS
    n, unit = topology.n_nodes, network.cards.codec.unit
    lengths = {k: chunk_length(n_bytes // 4, k * n, unit) for k in _CARD_CHUNKS}
    return [k for k, length in lengths.items() if network.cards.suits(length)][:5] or [1]


def _steps(topology: Topology, n_bytes: int, network: Network) -> tuple[int, ...]:
    """Steps a phase to try of ForestColl's trees: one chunk of each tree, where steps may fit
    without a gap; many where messages of fewer are longer than half a buffer, so that worms that
    wait hold the links behind them.
    """
    n = topology.n_nodes
    per_step = n / float(worst_cut(topology))  # chunks
    long = n_bytes > 240 * per_step * network.buffer / 2
    few = 2 * (n - 1) * 960 * per_step <= _FINE_MESSAGES
    return (1, 15, 60, 240, 960) if long and few and n <= 64 else (1, 15, 60, 240)


def _candidates(
    topology: Topology, n_bytes: int, network: Network, chunks: int | None, seed: int
) -> Iterator[tuple[str, Callable]]:
    n = topology.n_nodes
    if topology.sums and topology.multicasts:
        for repeats in _REPEATS if chunks is None else [1]:
            yield "in_network", lambda r=repeats: in_network(topology, chunks=chunks, repeats=r)
    for k in _counts(topology, n_bytes, network) if chunks is None else [chunks]:
        large = 2 * n * (n - 1) * k > _MOST_MESSAGES or n_bytes < _LEAST_BYTES * n * k
        if k > 1 and chunks is None and large:
            break
        if network.cards and n <= 64:
            for lag, ahead in product(_LAGS, _AHEAD):
                yield (
                    "timed",
                    lambda k=k, lag=lag, ahead=ahead: timed(
                        topology, n_bytes, network, chunks=k, lag=lag, ahead=ahead
                    ),
                )
        yield "multitree", lambda k=k: multitree(topology, chunks=k)
        if k == 1:
            yield "hdrm", lambda: hdrm(topology)
            yield "halving", lambda: halving(topology)
        yield "ring", lambda k=k: ring(topology, chunks=k)
        if n > 512:
            continue
        if k % 2 == 0:
            yield "bidirectional", lambda k=k: bidirectional(topology, chunks=k)
            yield "ring2d", lambda k=k: ring2d(topology, chunks=k)
        if not topology.direct:
            yield "hierarchical", lambda k=k: hierarchical(topology, chunks=k)
        yield "dbtree", lambda k=k: dbtree(topology, chunks=k)
        yield "bfb", lambda k=k: bfb(topology, chunks=k)
        if n <= 64 and k <= 4:
            yield "multistart", lambda k=k: multistart(topology, chunks=k, seed=seed)
    if n <= 64 if topology.direct and topology.uneven else n <= 256 and not topology.direct:
        for steps in _steps(topology, n_bytes, network) if chunks is None else [STEPS]:
            yield "forest", lambda steps=steps: forest(topology, chunks=chunks, steps=steps)
    if n <= 64:
        yield "overlapped", lambda: overlapped(topology, chunks=chunks, seed=seed)
