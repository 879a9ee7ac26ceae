"""Event loop of the network model for offload cards on Ethernet, packet by packet, in C++.

A row's turn comes as in `gradnic.models.schedule.network_model`. Its messages are cut into runs,
one after the other; a run takes the first empty one of the sender's places and keeps it until its
STOP. The walk takes places in turn, a run of packets and its PROBE each, and stays some packets
ahead of the sums, which all ports share. The framer takes some heads in that order, answers before
the next of them; it waits for what they head, and where a frame's port has no room for it. A port
sends what it has stored whole in the order in which it came.

On the other side a frame is stored whole at its port. The ports take turns on the way in, a frame
each, at a word a cycle; behind a pause the one whose turn it was goes first, and others a cycle
later (hdl/frame/round_robin.py). Behind it locator, receiver and memory take one frame after the
other. A row's contributions count once they are written. A PROBE is answered when the receiver has
looked at its packets; the sender hears one answer after the other, which takes the longer the later
the place of its run is, and the receiver stands still while some wait. Switches pass frames on in
the order of their coming, without a limit to what waits.
"""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from .compiled_loop import CompiledLoop
from .ethernet_cards import CONTROL, HEAD, PACKET, WIRE_MORE

_LOOP = CompiledLoop(
    Path(__file__).with_suffix(".cpp"),
    (
        "n_messages", "n_rows", "n_links", "n_nodes", "n_free", "packet", "head", "between",
        "whole", "run", "chunk", "n_bytes", "port_bytes", "store", "first", "turn", "own", "due",
        "lead", "next_peer", "next_run", "places", "frees", "look", "step", "compare", "heard",
        "inside", "reads", "ranges", "adding", "raw", "tell", "control", "gate", "divide", "judge",
        "hear", "scan", "scan_down", "per_packet", "told", "land", "taken", "end", "heads",
        "addressed",
    ),
    (),
    {
        "path_start": np.int64, "hops": np.int32, "back": np.int32, "speed": np.float64,
        "latency": np.float64, "source": np.int32, "port": np.int32, "path_of": np.int32,
        "dst": np.int32, "reduces": np.uint8, "row_floats": np.int64, "wait": np.int64,
        "cutting": np.int64, "need": np.int64, "terminal": np.int32, "node": np.int32,
        "message_row": np.int32, "send_start": np.int64, "feed_start": np.int64,
        "feeds": np.int32, "feed_count": np.int32, "turn_start": np.int64,
        "free_rows": np.int64, "busy": np.float64,
    },
    ("need", "busy"),
)  # fmt: skip


def run(traffic, topology, network, progress):
    """(finish, messages delivered, most floats parked, bytes of links, what rows still wait for).

    ValueError where links are one-way or a node has fewer ports than links; RuntimeError if there
    is no C++ compiler.
    """
    if topology.reverse is None or topology.port_limited:
        raise ValueError(f"offload cards need two-way links, a port each, not {topology.name}")
    t, cards = traffic, network.cards
    given = {
        **asdict(cards.times), **asdict(cards.parts), "port_bytes": cards.port_bytes,
        "run": cards.run, "store": cards.store, "n_messages": len(t.path), "n_rows": len(t.need),
        "n_links": topology.n_links, "n_nodes": t.n_nodes, "n_free": len(t.free_rows),
        "packet": PACKET, "head": HEAD, "between": WIRE_MORE, "whole": CONTROL,
        "chunk": t.chunk_floats,
        "path_start": np.cumsum([0, *(len(path) for path in t.paths)]),
        "hops": np.concatenate(t.paths),
        "back": np.concatenate([topology.reverse[list(path)][::-1] for path in t.paths]),
        "speed": topology.bandwidth * network.link_bytes_per_cycle,
        "latency": topology.latencies(network.link_latency), "source": topology.links[:, 0],
        "port": _ports(topology), "path_of": t.path, "dst": t.dst, "reduces": t.is_reduce,
        "row_floats": t.row_floats, "wait": t.wait, "cutting": _cutting(t), "need": t.need,
        "terminal": t.terminal_source, "node": t.node, "message_row": t.message_row,
        "send_start": t.send_start, "feed_start": t.feed_start, "feeds": t.feeds,
        "feed_count": t.feed_count,
        "turn_start": [*t.first_rows, len(t.need)], "free_rows": t.free_rows,
        "busy": np.zeros(topology.n_links),
    }  # fmt: skip
    result, changed = _LOOP.run(given, progress)
    return result.finish, result.delivered, result.parked, changed["busy"], changed["need"]


def _cutting(traffic):
    """Cycles that the splitter takes for a row's numbers, bit by bit, and for its chunks."""
    first, count = traffic.first, traffic.count
    bits = np.frexp(np.maximum(first, count).astype(float))[1]
    return bits + np.where(traffic.reduces, count, 1)


def _ports(topology):
    """Number of the port at which each link arrives."""
    port = np.empty(topology.n_links, np.int32)
    for links in topology.out:
        for k, (link, _) in enumerate(links):
            port[topology.reverse[link]] = k
    return port
