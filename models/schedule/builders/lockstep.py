"""Builder of schedules whose steps are given: every sender of a step sends one range of chunks."""

import numpy as np
from numpy.typing import ArrayLike

from ..routing import Router
from ..topology import Topology
from .schedule import RouteTable, Schedule, ordered, pack


class Steps:
    """Collects steps of (sources, destinations, first chunks, counts) and routes them."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._router = Router(topology)
        self._table = RouteTable(topology)
        self._known = {}
        self._parts = []

    def path(self, source: int, destination: int) -> tuple[int, ...]:
        """Links of the fixed path from source to destination."""
        return self._router.path(source, destination)

    def route(self, source: int, destination: int) -> int:
        """Route number of that path."""
        pair = (source, destination)
        if pair not in self._known:
            self._known[pair] = self._table.number(self.path(*pair))
        return self._known[pair]

    def add(
        self,
        op: int,
        step: int,
        src: ArrayLike,
        dst: ArrayLike,
        first: ArrayLike,
        count: int = 1,
        flow: ArrayLike | None = None,
    ) -> None:
        """Transfers of one step; arrays or scalars. The flow is the first chunk unless given."""
        src, dst = np.broadcast_arrays(np.asarray(src), np.asarray(dst))
        route = [self.route(a, b) for a, b in zip(src.tolist(), dst.tolist(), strict=True)]
        self._parts.append(
            pack(
                {
                    "op": op, "step": step, "src": src, "dst": dst, "first": first,
                    "count": count, "flow": first if flow is None else flow, "route": route,
                }
            )
        )  # fmt: skip

    def schedule(
        self, algorithm: str, n_chunks: int, roots: ArrayLike, flows: np.ndarray | None = None
    ) -> Schedule:
        """The Schedule of all that was added."""
        flows = np.arange(n_chunks) if flows is None else flows
        return Schedule(
            algorithm, self.topology, n_chunks, np.asarray(roots, np.int32),
            np.asarray(flows, np.int32), ordered(np.concatenate(self._parts)),
            self._table.routes(),
        )  # fmt: skip
