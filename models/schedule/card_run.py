"""Event loop of the network model for offload cards on Ethernet, packet by packet, in C++.

A row's turn comes as in `gradnic.models.schedule.network_model`. Its messages are cut into runs,
one after the other; a run takes the first empty one of the sender's places and keeps it until its
STOP. The walk takes places in turn, a run of packets and its PROBE each, and stays some packets
ahead of the maker, which all ports share: it stands still while the next packet's port has a full
store, and answers with it. A port sends what it has stored whole in the order in which it came. On
the other side a frame is looked at when it is in as a whole, one after the other for all ports; a
row's contributions count from then on, and an answer leaves from there. Switches pass frames on
in the order of their coming, without a limit to what waits.
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
        "control", "run", "places", "chunk", "n_bytes", "port_bytes", "store", "locate", "probe",
        "per_probed", "turn", "first", "row", "answer", "own", "end", "cut", "before",
        "look", "step", "ahead", "compare", "spread", "seed",
    ),
    (),
    {
        "path_start": np.int64, "hops": np.int32, "back": np.int32, "speed": np.float64,
        "latency": np.float64, "source": np.int32, "path_of": np.int32, "dst": np.int32,
        "reduces": np.uint8, "row_floats": np.int64, "wait": np.int64, "need": np.int64,
        "terminal": np.int32, "node": np.int32, "message_row": np.int32, "send_start": np.int64,
        "feed_start": np.int64, "feeds": np.int32, "feed_count": np.int32, "turn_start": np.int64,
        "free_rows": np.int64, "busy": np.float64,
    },
    ("need", "busy"),
)  # fmt: skip


def run(traffic, topology, network, progress, seed):
    """(finish, messages delivered, most floats parked, bytes of links, what rows still wait for).

    seed : of what packets take beyond the mean, see `spread` of `CardTimes`.
    ValueError where links are one-way or a node has fewer ports than links; RuntimeError if there
    is no C++ compiler.
    """
    if topology.reverse is None or topology.port_limited:
        raise ValueError(f"offload cards need two-way links, a port each, not {topology.name}")
    t, cards = traffic, network.cards
    given = {
        **asdict(cards.times), "port_bytes": cards.port_bytes, "run": cards.run,
        "store": cards.store, "seed": seed, "n_messages": len(t.path), "n_rows": len(t.need),
        "n_links": topology.n_links, "n_nodes": t.n_nodes, "n_free": len(t.free_rows),
        "packet": PACKET, "head": HEAD, "between": WIRE_MORE, "control": CONTROL,
        "chunk": t.chunk_floats,
        "path_start": np.cumsum([0, *(len(path) for path in t.paths)]),
        "hops": np.concatenate(t.paths),
        "back": np.concatenate([topology.reverse[list(path)][::-1] for path in t.paths]),
        "speed": topology.bandwidth * network.link_bytes_per_cycle,
        "latency": topology.latencies(network.link_latency), "source": topology.links[:, 0],
        "path_of": t.path, "dst": t.dst, "reduces": t.is_reduce, "row_floats": t.row_floats,
        "wait": t.wait, "need": t.need, "terminal": t.terminal_source, "node": t.node,
        "message_row": t.message_row, "send_start": t.send_start, "feed_start": t.feed_start,
        "feeds": t.feeds, "feed_count": t.feed_count,
        "turn_start": [*t.first_rows, len(t.need)], "free_rows": t.free_rows,
        "busy": np.zeros(topology.n_links),
    }  # fmt: skip
    result, changed = _LOOP.run(given, progress)
    return result.finish, result.delivered, result.parked, changed["busy"], changed["need"]
