"""Event loop of the network model for offload cards on Ethernet, packet by packet, in C++.

A row's turn comes as in `gradnic.models.schedule.network_model`. Its messages are cut into runs,
one after the other; a run takes the first empty one of the sender's places and keeps it until its
STOP. The walk takes places in turn, a run of packets and its PROBE each, and stays some packets
ahead of the sums, which all ports share; a PROBE without an answer goes again. The framer takes
some heads in that order, answers before the next of them; it waits for what they head, and where a
frame's port has no room for it. A port sends what it has stored whole in the order in which it
came.

On the other side a frame is stored whole at its port, or lost where that has no room. The ports
take turns on the way in, a frame each, at a word a cycle; behind a pause the one whose turn it was
goes first, and others a cycle later (hdl/frame/round_robin.py). Behind it locator, receiver and
memory take one frame after the other. A row's contributions count once they are written. Results
that come and a root's sums are written in the order in which the receiver decided on them. A PROBE
is answered when the receiver has looked at its packets, and where some are missing they go again,
made anew, with a PROBE behind them. A PROBE waits for packets before it, those of a root, too,
until all their contributions are asked for. The sender hears one answer after the other, which
takes the longer the later the place of its run is, and the receiver stands still while some wait.
Switches pass frames on in the order of their coming, without a limit to what waits.

With INCEPTIONN a packet's sums wait in the compressor until all are there; its head waits for the
size. On the other side they wait in the decompressor for its verdict, and so does the receiver;
some verdicts wait for the receiver while it looks at a PROBE's packets, and then the decompressor
stands still, too. What is written are floats. All packets of as many values have the same size, or
each what is known of its sums.
"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .compiled_loop import CompiledLoop
from .ethernet_cards import CONTROL, HEAD, WIRE_MORE, EthernetCards
from .topology import Topology
from .traffic import Traffic

if TYPE_CHECKING:
    from .network_model import Network

_LOOP = CompiledLoop(
    Path(__file__).with_suffix(".cpp"),
    (
        "n_links", "packet", "head", "between", "whole", "run", "chunk", "n_bytes", "port_bytes",
        "store", "room", "first", "turn", "own", "due", "lead", "next_peer", "next_run", "places",
        "frees",
        "look", "step", "compare", "heard", "inside", "reads", "ranges", "adding", "tell",
        "control", "gate", "divide", "located", "judge", "hear", "scan", "scan_down", "per_packet",
        "told", "burst", "land", "taken", "end", "heads", "addressed", "skip", "ahead", "freed",
        "known", "behind", "kept", "coded", "compress", "sized", "seen", "plan", "restore", "image",
        "verdicts", "credit", "sizes",
    ),
    ("probe", "value", "leaf", "ratio"),
    {
        "back": np.int32, "speed": np.float64, "latency": np.float64, "source": np.int32,
        "port": np.int32, "cutting": np.int64, "starts": np.int64, "size": np.int32,
        "leaves": np.int32,
    },
    ("need", "busy"),
)  # fmt: skip


def run(
    traffic: Traffic, topology: Topology, network: "Network", progress: Callable | None
) -> tuple[Any, ...]:
    """(finish, messages delivered, most floats parked, bytes of links, what rows still wait for,
    frames that found no room).

    ValueError where links are one-way or a node has fewer ports than links, or where PROBEs that go
    sooner than answers come keep the cards from all else; RuntimeError if there is no C++ compiler.
    """
    if topology.reverse is None or topology.port_limited:
        raise ValueError(f"offload cards need two-way links, a port each, not {topology.name}")
    t, cards = traffic, cast(EthernetCards, network.cards)
    latency = topology.latencies(network.link_latency)
    speed = topology.bandwidth * network.link_bytes_per_cycle
    probe = _probe_time(t, cards, latency, speed)
    codec = asdict(cards.codec)
    size = codec.pop("sizes")
    given = {
        **asdict(cards.times), **asdict(cards.parts), **codec, **asdict(cards.coder),
        "kept": cards.kept, "probe": probe, "port_bytes": cards.port_bytes,
        "run": cards.run, "store": cards.store, "room": cards.room, "n_links": topology.n_links,
        "head": HEAD, "between": WIRE_MORE, "whole": CONTROL, "chunk": t.chunk_floats,
        "back": np.concatenate([topology.reverse[list(path)][::-1] for path in t.paths]),
        "speed": speed,
        "latency": latency, "source": topology.links[:, 0],
        "port": _ports(topology), "cutting": _cutting(t), "starts": t.first * t.chunk_floats,
        "size": [] if size is None else size, "leaves": [] if size is None else leaves(t),
        "sizes": 0 if size is None else size.shape[1],
    }  # fmt: skip
    result, changed = _LOOP.run(t, topology.n_links, given, progress)
    if result.finish < 0:
        raise ValueError(f"PROBEs each {probe:g} cycles must not go sooner than answers come")
    return (
        result.finish, result.delivered, result.parked, changed["busy"], changed["need"],
        result.overruns,
    )  # fmt: skip


def _probe_time(t: Traffic, cards: EthernetCards, latency: np.ndarray, speed: np.ndarray) -> float:
    """Cycles between PROBEs, of the longest way and the slowest link."""
    ways = [list(path) for path in t.paths]
    each = (cards.probing(latency[way].sum(), speed[way[0]]) for way in ways)
    return max(each, default=cards.probe)


def _cutting(traffic: Traffic) -> np.ndarray:
    """Cycles that the splitter takes for a row's numbers, bit by bit, and for its chunks."""
    first, count = traffic.first, traffic.count
    bits = np.frexp(np.maximum(first, count).astype(float))[1]
    return bits + np.where(traffic.reduces, count, 1)


def leaves(traffic: Traffic) -> np.ndarray:
    """Nodes whose gradients are in the sums that each row sends; 0: it sends results."""
    t = traffic
    found = np.where(t.reduces, 1.0, 0.0)
    left = t.need.copy()
    ready = list(t.free_rows)
    while ready:
        row = ready.pop()
        sources = [*range(t.send_start[row], t.send_start[row + 1])]
        sources += [t.terminal_source[row]] if t.terminal_source[row] >= 0 else []
        for source in sources:
            for k in range(t.feed_start[source], t.feed_start[source + 1]):
                fed, n_chunks = t.feeds[k], t.feed_count[k]
                if t.reduces[fed]:
                    found[fed] += found[row] * n_chunks / t.count[fed]
                left[fed] -= n_chunks
                if not left[fed]:
                    ready.append(fed)
    return np.rint(found).astype(np.int32)


def _ports(topology: Topology) -> np.ndarray:
    """Number of the port at which each link arrives."""
    port, back = np.empty(topology.n_links, np.int32), cast(np.ndarray, topology.reverse)
    for links in topology.out:
        for k, (link, _) in enumerate(links):
            port[back[link]] = k
    return port
