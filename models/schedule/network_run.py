"""Compiled twin, in C++, of the event loop of `gradnic.models.schedule.network_model` and `worms`.

The same events in the same order and the same arithmetic, so the same figures; the tests hold both
against each other. Some thirty times as fast.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from .compiled_loop import CompiledLoop

WORTH = 20_000
"""Messages from which compiling pays at once: they take Python about half a second."""

_LOOP = CompiledLoop(
    Path(__file__).with_suffix(".cpp"),
    ("n_messages", "n_rows", "n_places", "n_nodes", "n_free", "n_pools", "window", "together",
     "turn"),
    ("start", "receive", "credit"),
    {
        "path_start": np.int64, "hops": np.int32, "pools": np.int32, "rate": np.float64,
        "latency": np.float64, "room": np.float64, "capacity": np.float64, "credits": np.float64,
        "round_trip": np.float64, "mixed": np.uint8, "pool_size": np.float64,
        "pool_grain": np.float64, "queue_start": np.int64, "path_of": np.int32,
        "dst": np.int32, "position": np.int32, "message_row": np.int32, "reduces": np.uint8,
        "cycles": np.float64, "wire": np.float64, "lead": np.int64,
        "adds": np.int64, "sending": np.int64,
        "work": np.int64, "first_block": np.int64, "row_floats": np.int64, "wait": np.int64,
        "need": np.int64, "terminal": np.int32, "node": np.int32, "send_start": np.int64,
        "feed_start": np.int64, "feeds": np.int32, "feed_count": np.int32, "turn_start": np.int64,
        "n_slots": np.int64, "free_rows": np.int64, "busy": np.float64,
    },
    ("room", "cycles", "need", "busy"),
)  # fmt: skip


def loop(n_messages: int, *, always: bool | None) -> Callable | None:
    """The compiled loop, called as ``loop(state, progress)``, or None.

    always : compile it, whatever the number of messages; RuntimeError if there is no compiler.
    """
    if always or _LOOP.available(build=n_messages >= WORTH):
        return _run
    return None


def advice(n_messages: int) -> str | None:
    """One line for the user where the compiled loop would pay and cannot be had."""
    if n_messages < WORTH or _LOOP.available(build=True):
        return None
    return "no C++ compiler (CXX, else g++) or no filelock: the event loop runs in Python, slowly"


def _run(state, progress):
    t, network = state.traffic, state.network
    ends = np.cumsum([len(path) for path in t.paths])
    given = {
        "n_messages": len(t.path), "n_rows": len(t.need), "n_places": t.n_places,
        "n_nodes": t.n_nodes, "n_free": len(t.free_rows), "n_pools": len(state.pool_size),
        "window": network.window,
        "together": network.order == "node", "turn": network.turn, "start": network.start,
        "receive": network.receive, "credit": network.credit,
        "path_start": np.concatenate([[0], ends]), "hops": np.concatenate(t.paths),
        "pools": np.concatenate(state.pools), "rate": state.rate, "latency": state.latency,
        "room": state.room, "capacity": state.room, "mixed": state.mixed,
        "pool_size": state.pool_size, "pool_grain": state.pool_grain,
        "credits": state.credits, "round_trip": state.round_trip, "wire": state.wire,
        "queue_start": np.concatenate([[0], np.cumsum(np.array(t.queue_lengths) + 1)]),
        "path_of": t.path, "dst": t.dst, "position": t.position, "message_row": t.message_row,
        "reduces": t.is_reduce, "cycles": state.cycles, "lead": state.lead, "adds": state.adds,
        "sending": state.sending, "work": state.work, "first_block": state.first_block,
        "row_floats": t.row_floats, "wait": t.wait, "need": t.need,
        "terminal": t.terminal_source, "node": t.node, "send_start": t.send_start,
        "feed_start": t.feed_start, "feeds": t.feeds, "feed_count": t.feed_count,
        "turn_start": [*t.first_rows, len(t.need)], "n_slots": state.n_slots,
        "free_rows": t.free_rows, "busy": np.zeros(t.n_places),
    }  # fmt: skip
    result, changed = _LOOP.run(given, progress)
    return state.result(
        result.finish, result.delivered, result.parked, changed["busy"].tolist(), changed["need"]
    )
