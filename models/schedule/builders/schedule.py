"""The one schedule format: who sends which chunks to whom, in which step, over which links.

The tensor of M bytes is cut into n_chunks equal chunks. A *reduce* transfer carries a partial sum
towards the chunk's root, a *gather* transfer the finished chunk away from it. A step ends when
all of its transfers have ended; what arrives in a step can be used in the next.
Unit: one shard-slot = M / n_nodes bytes over one link of bandwidth 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from ..topology import Topology

REDUCE, GATHER, NOP = 0, 1, 2

TRANSFER = np.dtype(
    [
        ("op", "u1"),  # REDUCE or GATHER
        ("flow", "i4"),
        ("src", "i4"),
        ("dst", "i4"),
        ("first", "i4"),  # chunk
        ("count", "i4"),  # chunks
        ("step", "i4"),
        ("route", "i4"),  # index of a route: the first n_links routes are the links themselves
    ]
)


@dataclass(frozen=True, eq=False)
class Routes:
    """Paths as lists of links, in one flat array. Routes 0 .. n_links-1 are single links.

    start : int32 (n_routes + 1,); hops : int32 (start[-1],) links in order of travel.
    """

    start: np.ndarray
    hops: np.ndarray

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, route: int) -> np.ndarray:
        return self.hops[self.start[route] : self.start[route + 1]]

    def expand(self, routes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(index into `routes`, link) for every hop of every route in `routes`."""
        lengths = self.start[routes + 1] - self.start[routes]
        index = np.repeat(np.arange(len(routes)), lengths)
        offset = np.arange(len(index)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return index, self.hops[self.start[routes][index] + offset]


class RouteTable:
    """Collects paths while a schedule is built and numbers each distinct one once."""

    def __init__(self, topology: Topology) -> None:
        self._paths: list[tuple[int, ...]] = [(link,) for link in range(topology.n_links)]
        self._number = {path: i for i, path in enumerate(self._paths)}

    def number(self, path: tuple[int, ...]) -> int:
        """The route number of a tuple of links."""
        if path not in self._number:
            self._number[path] = len(self._paths)
            self._paths.append(path)
        return self._number[path]

    def __iter__(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(number, path) of all so far."""
        return iter(list(enumerate(self._paths)))

    def routes(self) -> Routes:
        """All paths so far, as `Routes`."""
        lengths = [len(path) for path in self._paths]
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return Routes(start, np.array([link for p in self._paths for link in p], np.int32))


@dataclass(frozen=True, eq=False)
class Schedule:
    """One all-reduce: transfers in steps, and where each chunk is completed.

    Parameters
    ----------
    algorithm : str
    topology : Topology
    n_chunks : int
        Chunks named by the transfers: of the whole tensor, or of one period.
    roots : int32 (n_chunks,)
        Node at which each chunk's sum is completed.
    flows : int32 (n_chunks,)
        Flow of each chunk at its root (the flow of the terminal row).
    transfers : TRANSFER array
    routes : Routes
    period : int or None
        Steps after which the transfers repeat with the next `n_chunks` chunks; None: no repeat.
    repeats : int
        How often the transfers run (1 without a period).
    sums : int32 (n_chunks,) or None
        Step of each chunk's terminal row; None: of its first gather transfer.
    """

    algorithm: str
    topology: Any  # gradnic.models.schedule.topology.Topology
    n_chunks: int
    roots: np.ndarray
    flows: np.ndarray
    transfers: np.ndarray
    routes: Routes
    period: int | None = None
    repeats: int = 1
    sums: np.ndarray | None = None

    @property
    def chunks_total(self) -> int:
        """Chunks of the whole tensor."""
        return self.n_chunks * self.repeats

    @property
    def chunks(self) -> Fraction:
        """Chunks per shard, k."""
        return Fraction(self.chunks_total, self.topology.n_owners)

    @property
    def steps(self) -> int:
        """Sequential steps of the whole all-reduce."""
        last = int(self.transfers["step"].max()) + 1
        return last + (self.repeats - 1) * (self.period or 0)

    @cached_property
    def step_chunks(self) -> np.ndarray:
        """Duration of each step of one period's transfers, in chunk times of the slowest link.

        float64: the most that any link (or, where they bind, any node's ports) has to carry.
        """
        return step_chunks(self.topology, self.transfers, self.routes)

    @property
    def shares_links(self) -> bool:
        """True where some link carries more messages in a step than its bandwidth in units."""
        index, link = self.routes.expand(self.transfers["route"])
        step = self.transfers["step"][index].astype(np.int64)
        messages = np.bincount(step * self.topology.n_links + link)
        room = np.maximum(1, np.floor(self.topology.bandwidth + 1e-9))
        used = np.flatnonzero(messages)
        return bool((messages[used] > room[used % self.topology.n_links]).any())

    @property
    def slots_total(self) -> float:
        """Shard-slots of the whole all-reduce, fill and drain included."""
        # with a period: one message per link and step, or the checker objects
        chunk_slots = self.step_chunks.sum() if self.period is None else self.steps
        return float(chunk_slots * self.topology.n_owners / self.chunks_total)

    @property
    def steady_bandwidth(self) -> float:
        """All-reduce bandwidth in multiples of the slowest link; periodic: without fill, drain."""
        if self.period is None:
            return self.topology.n_owners / self.slots_total
        return self.n_chunks / self.period


def step_chunks(topology: Topology, transfers: np.ndarray, routes: Routes) -> np.ndarray:
    """Chunk times that each step lasts: the fullest link, or the fullest NI where ports bind.

    Returns float64 (n_steps,).
    """
    n_steps = int(transfers["step"].max()) + 1
    index, link = routes.expand(transfers["route"])
    load = np.bincount(
        transfers["step"][index].astype(np.int64) * topology.n_links + link,
        weights=transfers["count"][index],
        minlength=n_steps * topology.n_links,
    ).reshape(n_steps, topology.n_links)
    longest = (load / topology.bandwidth).max(axis=1)
    if topology.port_limited:
        for end in "src", "dst":
            load = np.bincount(
                transfers["step"].astype(np.int64) * topology.n_nodes + transfers[end],
                weights=transfers["count"],
                minlength=n_steps * topology.n_nodes,
            ).reshape(n_steps, topology.n_nodes)
            longest = np.maximum(longest, load.max(axis=1) / topology.ports)
    return longest


def pack(columns: dict) -> np.ndarray:
    """A TRANSFER array from a dict of columns (arrays or scalars)."""
    n = max(np.size(v) for v in columns.values())
    result = np.zeros(n, TRANSFER)
    for name, value in columns.items():
        result[name] = value
    return result


def mirror(topology: Topology, gathers: np.ndarray, reverse_route: np.ndarray) -> np.ndarray:
    """Reduce transfers that undo gather transfers: same trees, backwards in time and direction.

    gathers : TRANSFER array with steps from 0; reverse_route : int32 (n_routes,).
    Returns (transfers of both phases, ordered by step).
    """
    last = int(gathers["step"].max())
    reduces = gathers.copy()
    reduces["op"] = REDUCE
    reduces["src"], reduces["dst"] = gathers["dst"], gathers["src"]
    reduces["step"] = last - gathers["step"]
    reduces["route"] = reverse_route[gathers["route"]]
    later = gathers.copy()
    later["step"] += last + 1
    return ordered(np.concatenate([reduces, later]))


def ordered(transfers: np.ndarray) -> np.ndarray:
    """Transfers sorted by step, then operation, flow and source: the same table every time."""
    keys = [transfers[name] for name in ("first", "src", "flow", "op", "step")]
    return transfers[np.lexsort(keys)]
