"""Compiled twin of the event loop of `gradnic.models.schedule.network_model`, in C++.

The same events in the same order and the same arithmetic, so the same figures; the tests hold both
against each other. Some thirty times as fast.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gradnic.native import library as compiled

WORTH = 20_000
"""Messages from which compiling pays at once: they take Python about half a second."""

_SOURCE = Path(__file__).with_suffix(".cpp")
_PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_double)
_NUMBERS = ("n_messages", "n_rows", "n_places", "n_nodes", "n_free", "window", "together", "turn")
_ARRAYS = {
    "path_start": np.int64, "hops": np.int32, "rate": np.float64, "held": np.int64,
    "latency": np.float64, "room": np.float64, "queue_start": np.int64, "path_of": np.int32,
    "dst": np.int32, "position": np.int32, "message_row": np.int32, "reduces": np.uint8,
    "cycles": np.float64, "lead": np.int64, "adds": np.int64, "sending": np.int64,
    "work": np.int64, "first_block": np.int64, "row_floats": np.int64, "wait": np.int64,
    "need": np.int64, "terminal": np.int32, "node": np.int32, "send_start": np.int64,
    "feed_start": np.int64, "feeds": np.int32, "feed_count": np.int32, "turn_start": np.int64,
    "n_slots": np.int64, "free_rows": np.int64, "busy": np.float64,
}  # fmt: skip
_CHANGED = ("room", "cycles", "need", "busy")  # by the loop: it gets copies


class _Input(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in _NUMBERS),
        ("start", ctypes.c_double),
        ("receive", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in _ARRAYS),
        ("progress", _PROGRESS),
    ]


class _Output(ctypes.Structure):
    _fields_ = [
        ("finish", ctypes.c_double),
        ("delivered", ctypes.c_int64),
        ("parked", ctypes.c_int64),
    ]


def loop(n_messages: int, *, always: bool | None) -> Callable | None:
    """The compiled loop, called as ``loop(state, progress)``, or None.

    always : compile it, whatever the number of messages; RuntimeError if there is no compiler.
    """
    library = compiled(_SOURCE, build=bool(always) or n_messages >= WORTH)
    if library is None:
        if always:
            raise RuntimeError("the compiled event loop needs a C++ compiler and filelock")
        return None
    return lambda state, progress: _run(library, state, progress)


def advice(n_messages: int) -> str | None:
    """One line for the user where the compiled loop would pay and cannot be had."""
    if n_messages < WORTH or compiled(_SOURCE) is not None:
        return None
    return "no C++ compiler (CXX, else g++) or no filelock: the event loop runs in Python, slowly"


def _run(library, state, progress):
    t, network = state.traffic, state.network
    ends = np.cumsum([len(path) for path in t.paths])
    numbers = {
        "n_messages": len(t.path), "n_rows": len(t.need), "n_places": t.n_places,
        "n_nodes": t.n_nodes, "n_free": len(t.free_rows), "window": network.window,
        "together": network.order == "node", "turn": network.turn,
    }  # fmt: skip
    given = {
        "path_start": np.concatenate([[0], ends]), "hops": np.concatenate(t.paths),
        "rate": state.rate, "held": state.held, "latency": state.latency, "room": state.room,
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
    arrays = {
        name: np.array(given[name], kind) if name in _CHANGED
        else np.ascontiguousarray(given[name], kind)
        for name, kind in _ARRAYS.items()
    }  # fmt: skip
    raised = []

    def tell(share):  # an error must not pass through C++: it ends the loop and is raised below
        try:
            if progress:
                progress(share)
        except BaseException as error:
            raised.append(error)
        return len(raised)

    given = _Input(
        **numbers, start=network.start, receive=state.receive, progress=_PROGRESS(tell),
        **{name: array.ctypes.data for name, array in arrays.items()},
    )  # fmt: skip
    result = _Output()
    library.network_run(ctypes.byref(given), ctypes.byref(result))
    if raised:
        raise raised[0]
    return state.result(
        result.finish, result.delivered, result.parked, arrays["busy"].tolist(), arrays["need"]
    )
