"""Calls an event loop in C++ with numpy arrays: two models of a network have one each."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gradnic.native import library

from .traffic import Traffic

_COUNTS = ("n_messages", "n_rows", "n_nodes", "n_free")
_TRAFFIC = {
    "path_start": np.int64, "hops": np.int32, "path_of": np.int32, "dst": np.int32,
    "message_row": np.int32, "reduces": np.uint8, "row_floats": np.int64, "wait": np.int64,
    "need": np.int64, "terminal": np.int32, "node": np.int32, "send_start": np.int64,
    "feed_start": np.int64, "feeds": np.int32, "feed_count": np.int32, "turn_start": np.int64,
    "free_rows": np.int64, "busy": np.float64,
}  # fmt: skip
_PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_double)


class _Output(ctypes.Structure):
    _fields_ = [
        ("finish", ctypes.c_double),
        ("delivered", ctypes.c_int64),
        ("parked", ctypes.c_int64),
        ("overruns", ctypes.c_int64),
    ]


@dataclass(frozen=True)
class CompiledLoop:
    """The function of a C++ file that is called like the file, ``void f(Input *, Output *)``.

    numbers, reals, arrays : members of its own in their order: int64, double, pointers to arrays of
    these types; in Input they are between the two parts that ``loop.h`` has. ``progress`` ends the
    loop unless it gives 0. changed : arrays that the loop writes: it gets copies.
    """

    source: Path
    numbers: tuple[str, ...]
    reals: tuple[str, ...]
    arrays: dict
    changed: tuple[str, ...]

    def available(self, *, build: bool) -> bool:
        """Whether it is compiled, or, with `build`, can be; see `gradnic.native.library`."""
        return library(self.source, build=build) is not None

    def run(
        self, traffic: Traffic, n_busy: int, given: dict, progress: Callable | None
    ) -> tuple[_Output, dict[str, np.ndarray]]:
        """(Output, the arrays that changed) of a run.

        given : what is the loop's own. n_busy : links or places, whose bytes are counted. progress
        : called with the share done, now and then; its errors end the loop and are raised.
        RuntimeError if there is no compiler.
        """
        given = _given(traffic, n_busy) | given
        kinds = self.arrays | _TRAFFIC
        compiled = library(self.source)
        if compiled is None:
            raise RuntimeError("the compiled event loop needs a C++ compiler and filelock")
        arrays = {
            name: np.array(given[name], kind) if name in self.changed
            else np.ascontiguousarray(given[name], kind)
            for name, kind in kinds.items()
        }  # fmt: skip
        raised: list[BaseException] = []

        def tell(share: float) -> int:  # an error must not pass through C++
            try:
                if progress:
                    progress(share)
            except BaseException as error:
                raised.append(error)
            return len(raised)

        class Input(ctypes.Structure):
            _fields_ = [
                *((name, ctypes.c_int64) for name in (*_COUNTS, *self.numbers)),
                *((name, ctypes.c_double) for name in self.reals),
                *((name, ctypes.c_void_p) for name in kinds),
                ("progress", _PROGRESS),
            ]

        members = {name: given[name] for name in (*_COUNTS, *self.numbers, *self.reals)}
        pointers = {name: array.ctypes.data for name, array in arrays.items()}
        result = _Output()
        call = getattr(compiled, self.source.stem)
        call(ctypes.byref(Input(**members, **pointers, progress=_PROGRESS(tell))),
             ctypes.byref(result))  # fmt: skip
        if raised:
            raise raised[0]
        return result, {name: arrays[name] for name in self.changed}


def _given(t: Traffic, n_busy: int) -> dict:
    """What every loop is told of a `gradnic.models.schedule.traffic.Traffic`."""
    return {
        "n_messages": len(t.path), "n_rows": len(t.need), "n_nodes": t.n_nodes,
        "n_free": len(t.free_rows),
        "path_start": np.cumsum([0, *(len(path) for path in t.paths)]),
        "hops": np.concatenate(t.paths), "path_of": t.path, "dst": t.dst,
        "message_row": t.message_row, "reduces": t.is_reduce, "row_floats": t.row_floats,
        "wait": t.wait, "need": t.need, "terminal": t.terminal_source, "node": t.node,
        "send_start": t.send_start, "feed_start": t.feed_start, "feeds": t.feeds,
        "feed_count": t.feed_count, "turn_start": [*t.first_rows, len(t.need)],
        "free_rows": t.free_rows, "busy": np.zeros(n_busy),
    }  # fmt: skip
