"""Compiled twin, in C++, of the event loop of `gradnic.models.schedule.network_model` and `worms`.

The same events in the same order and the same arithmetic, so the same figures; the tests hold both
against each other. Some thirty times as fast.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .compiled_loop import CompiledLoop

WORTH = 20_000
"""Messages from which compiling pays at once: they take Python about half a second."""

_LOOP = CompiledLoop(
    Path(__file__).with_suffix(".cpp"),
    ("n_places", "n_pools", "window", "together", "turn"),
    ("start", "receive", "credit"),
    {
        "pools": np.int32, "rate": np.float64, "latency": np.float64, "room": np.float64,
        "capacity": np.float64, "credits": np.float64, "round_trip": np.float64, "mixed": np.uint8,
        "pool_size": np.float64, "pool_grain": np.float64, "queue_start": np.int64,
        "position": np.int32, "cycles": np.float64, "wire": np.float64, "lead": np.int64,
        "adds": np.int64, "adding": np.int64, "merging": np.int64, "sending": np.int64,
        "work": np.int64, "first_block": np.int64, "n_slots": np.int64,
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


def _run(state: Any, progress: Callable | None) -> Any:
    t, network = state.traffic, state.network
    given = {
        "n_places": t.n_places, "n_pools": len(state.pool_size), "window": network.window,
        "together": network.order == "node", "turn": network.turn, "start": network.start,
        "receive": network.receive, "credit": network.credit,
        "pools": np.concatenate(state.pools), "rate": state.rate, "latency": state.latency,
        "room": state.room, "capacity": state.room, "mixed": state.mixed,
        "pool_size": state.pool_size, "pool_grain": state.pool_grain,
        "credits": state.credits, "round_trip": state.round_trip, "wire": state.wire,
        "queue_start": np.concatenate([[0], np.cumsum(np.array(t.queue_lengths) + 1)]),
        "position": t.position, "cycles": state.cycles, "lead": state.lead, "adds": state.adds,
        "adding": state.adding, "merging": state.merging, "sending": state.sending,
        "work": state.work, "first_block": state.first_block, "n_slots": state.n_slots,
    }  # fmt: skip
    result, changed = _LOOP.run(t, t.n_places, given, progress)
    return state.result(
        result.finish, result.delivered, result.parked, changed["busy"].tolist(), changed["need"]
    )
