"""A cluster of golden offload cards over links with faults, and the sums that it must reach.

Faults are a function of (seed, link, number of the frame on that link), so that another cluster,
such as one of circuits, can be given the same. `all_reduce` is the other oracle: the sums by table
and order alone, from the list of what was given up, with no frames at all.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradnic.errors import Unfinished
from gradnic.interface.formats import ETHERNET, IPV4, UDP
from gradnic.interface.params import check_range
from gradnic.interface.schedule_table import Table

from ..frame.address import Address
from ..frame.ipv4 import retag
from ..schedule.topology import Topology
from ..transport.tagger import Rules
from .card import Card, Settings, Tensor
from .codec import Norms, Raw, Thc
from .plan import Plan

M32 = 0xFFFFFFFF
CE = 3
N_PATHS = 8


@dataclass(frozen=True)
class LinkFaults:
    """What every link does to its frames; shares from 0 to below 1, drawn by hash.

    delay : int, least time on a link. reorder : int, further time from 0 to `reorder`.
    mark : share of the ECN-capable frames that get CE. dead : paths, 0 to 7, on which all is lost;
    a frame's is its UDP source port, counted from the port that it goes to, modulo 8.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    mark: float = 0.0
    delay: int = 10
    reorder: int = 0
    seed: int = 0
    dead: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "mark"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 0 to below 1, not {getattr(self, name)!r}")
        for path in self.dead:
            check_range("dead", path, 0, N_PATHS - 1)

    def fate(self, link: tuple[int, int], number: int, path: int = 0) -> tuple[list[int], bool]:
        """(times of its copies on the link, marked) of frame `number` of link (node, port)."""
        if path in self.dead:
            return [], False
        h = mixed(mixed(mixed(self.seed) ^ (link[0] << 8 | link[1])) ^ number)
        draws = [mixed(h + 0x9E3779B9 * k) for k in range(1, 6)]
        if draws[0] < self.loss * 2**32:
            return [], False
        copies = 2 if draws[1] < self.duplicate * 2**32 else 1
        times = [self.delay + draws[3 + k] % (self.reorder + 1) for k in range(copies)]
        return times, draws[2] < self.mark * 2**32


def mixed(x: int) -> int:
    """MurmurHash3's 32-bit finalizer."""
    x &= M32
    x = (x ^ x >> 16) * 0x85EBCA6B & M32
    x = (x ^ x >> 13) * 0xC2B2AE35 & M32
    return x ^ x >> 16


def addresses(table: Table, topology: Topology) -> list[dict[int, Address]]:
    """One dict a node: {node: Address} of itself and every node that it hears or speaks to.

    The port of a neighbor is that of the way back, on which its frames arrive.
    """
    books = [{v: Address(0, 0x020000000000 + v, 0x0A000000 + v)} for v in range(table.n_nodes)]
    for peer in table.peers:
        v, u = int(peer["node"]), int(peer["to"])
        path = table.paths[peer["path"]]
        before = int(topology.links[path[-1], 0])
        back = [i for i, (_, far) in enumerate(topology.out[u]) if far == before]
        if not back:
            raise ValueError(f"node {u} has no link back to {before}, which acknowledgments need")
        ports = {v: int(peer["port"]), u: back[0] % topology.ports}
        for here, there in ((v, u), (u, v)):
            address = Address(ports[here], 0x020000000000 + there, 0x0A000000 + there)
            books[here].setdefault(there, address)
    return books


class Cluster:
    """Cards that run one table.

    Parameters
    ----------
    table : gradnic.interface.schedule_table.Table
    topology : models.topology.Topology
    n_elems : int
    codec : of `offload_codec`
    p : float
        Share of leaf contributions that may miss, end to end.
    settings : further fields of `offload.Settings`
    """

    def __init__(
        self,
        table: Table,
        topology: Topology,
        n_elems: int,
        codec: Raw | Norms | Thc,
        *,
        packet: int = 352,
        p: float = 0.0,
        layer: int = 0,
        source: str = "off",
        **settings: Any,
    ) -> None:
        self.table, self.codec, self.n_elems = table, codec, n_elems
        tensors, unit = [], codec.unit
        if isinstance(codec, Thc):
            if p and codec.worker.g % 2:
                raise ValueError(f"g must be even where packets may miss, not {codec.worker.g}")
            packet, n_blocks = codec.C, -(-n_elems // unit) * unit // codec.worker.B
            n_elems = n_blocks * codec.worker.B
            tensors.append(Tensor(0, Plan(table, n_blocks), Norms()))
        self.plan = Plan(table, n_elems, unit=unit, packet=packet)
        p_hop = int(p / max(1, self.plan.depth) * 65536)
        norms = tensors[0].tensor if tensors else None
        tensors.append(Tensor(1, self.plan, codec, layer=layer, p_q16=p_hop, norms=norms))
        rules = Rules(n_layers=layer + 1, n_tensors=len(tensors), source=source)
        self.cards: list[Any] = [
            Card(Settings(7, v, tuple(tensors), book, tagger=rules, **settings))
            for v, book in enumerate(addresses(table, topology))
        ]
        self.now, self.n_frames, self.n_copies, self.wire = 0, {}, 0, []

    def arm(self, gen: int, gradients: np.ndarray) -> None:
        """Hand round `gen` to all cards: gradients float32 (n_nodes, n_elems)."""
        for v, x in enumerate(gradients):
            self.arm_one(v, gen, x)

    def arm_one(self, v: int, gen: int, x: np.ndarray) -> None:
        """Hand round `gen` to card `v`."""
        if isinstance(self.codec, Thc):
            padded = np.zeros(self.plan.n_elems, np.float32)
            padded[: x.size] = x
            self.cards[v].arm(0, gen, self.codec.worker.norms(padded))
            x = padded
        self.cards[v].arm(1, gen, x)

    def run(self, faults: LinkFaults, *, limit: int = 1_000_000, late: dict | None = None) -> int:
        """Let the cards run until all rounds are done; the time. `Unfinished` at `limit`.

        late : {time: function}, called at that time, such as to arm a slow card.
        """
        late = dict(late or {})
        while late or self.busy():
            if self.now in late:
                late.pop(self.now)()
            self.step(faults)
            if self.now >= limit:
                stuck = [v for v, card in enumerate(self.cards) if not card.idle()]
                raise Unfinished(f"cards {stuck} are not done at time {limit}")
        return self.now

    def busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self.wire) or not all(card.idle() for card in self.cards)

    def step(self, faults: LinkFaults) -> None:
        """One time unit: what arrives, then what leaves."""
        while self.wire and self.wire[0][0] <= self.now:
            _, _, node, port, frame = heapq.heappop(self.wire)
            for out_port, answer in self.cards[node].receive(frame, port, self.now):
                self._send(node, out_port, answer, faults)
        for node, card in enumerate(self.cards):
            for port, frame in card.tick(self.now):
                self._send(node, port, frame, faults)
        self.now += 1

    def _send(self, node: int, port: int, frame: bytes, faults: LinkFaults) -> None:
        """Put a frame on the link of (node, port)."""
        number = self.n_frames.get((node, port), 0)
        self.n_frames[node, port] = number + 1
        path = (UDP.source_port.get(frame) - UDP.destination_port.get(frame)) % N_PATHS
        times, marked = faults.fate((node, port), number, path)
        if marked and IPV4.ecn.get(frame) in (1, 2):
            frame = retag(frame, IPV4.tos.get(frame) | CE)
        to = ETHERNET.destination.get(frame) & 0xFFFF
        arrival = self.cards[to].settings.peers[node].port
        for time in times:
            heapq.heappush(self.wire, (self.now + time, self.n_copies, to, arrival, frame))
            self.n_copies += 1

    def results(self, gen: int) -> np.ndarray:
        """Every card's replica: the codec's type, (n_nodes, n_elems of the plan)."""
        return np.stack([card.rounds[1, gen].result for card in self.cards])

    def floats(self, gen: int) -> np.ndarray:
        """Every card's replica as float32 (n_nodes, n_elems): THC sums decoded."""
        if not isinstance(self.codec, Thc):
            return self.results(gen)
        return np.stack([
            self.codec.worker.decode(
                card.rounds[1, gen].result, card.rounds[0, gen].result, round=gen, tensor=1
            )[: self.n_elems]
            for card in self.cards
        ])  # fmt: skip

    def given_up(self, gen: int) -> dict[tuple[int, int], np.ndarray]:
        """{(node, source): numbers of the packets that node gave up of source's partials}."""
        return {
            (v, source): np.flatnonzero((r.sizes > 0) & ~r.here)
            for v, card in enumerate(self.cards)
            for source, r in card.rounds[1, gen].up.items()
        }

    def missing(self, gen: int) -> float:
        """Share of the leaf contributions that are not in the result, as the leaf counts say."""
        leaves, elems = self.cards[0].rounds[1, gen].leaves, self.plan.elems
        n = self.plan.n_nodes
        return float(((n - leaves) * elems).sum() / (n * elems.sum()))


def all_reduce(
    plan: Plan, codec: Raw | Thc, own: np.ndarray, sent: Callable, given_up: Mapping
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of a table by order alone: (result (n_elems,), leaves (n_packets,)); of an all_gather or
    broadcast, the roots' values.

    own : (n_nodes, n_elems), as the codec adds it. sent : function of a partial, what its parent
    makes of it, such as a codec's image. given_up : as `Cluster.given_up` tells.
    """
    result, leaves = np.empty_like(own[0]), np.zeros(plan.n_packets, np.int64)
    lost = {key: set(numbers.tolist()) for key, numbers in given_up.items()}

    def total(node: int, number: int, chunk: int, span: slice) -> tuple[np.ndarray, int]:
        values, count = own[node, span].copy(), 1
        children = [
            (chunks[chunk].rank, source)
            for source, chunks in plan.up[node].items()
            if chunk in chunks
        ]
        for _, child in sorted(children):
            part, below = total(child, number, chunk, span)
            if number not in lost.get((node, child), ()):
                values, count = codec.add(values, sent(part)), count + below
        return values, count

    for number in range(plan.n_packets):
        chunk, span = number // plan.per_chunk, slice(*plan.span(number))
        (root,) = (
            int(v) for v in np.flatnonzero(plan.wanted[:, number])
            if not any(chunk in chunks for chunks in plan.down[v].values())
        )  # fmt: skip
        values, leaves[number] = total(root, number, chunk, span)
        result[span] = codec.finish(values, int(leaves[number]))
    return result, leaves
