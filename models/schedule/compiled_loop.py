"""Calls an event loop in C++ with numpy arrays: two models of a network have one each."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gradnic.native import library

_PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_double)


class _Output(ctypes.Structure):
    _fields_ = [
        ("finish", ctypes.c_double),
        ("delivered", ctypes.c_int64),
        ("parked", ctypes.c_int64),
    ]


@dataclass(frozen=True)
class CompiledLoop:
    """The function of a C++ file that is called like the file, ``void f(Input *, Output *)``.

    numbers, reals, arrays : members of Input in their order: int64, double, pointers to arrays of
    these types; ``int (*progress)(double share)``, which ends the loop unless 0, is behind them.
    changed : arrays that the loop writes: it gets copies. Output is {double finish; int64_t
    delivered, parked}.
    """

    source: Path
    numbers: tuple[str, ...]
    reals: tuple[str, ...]
    arrays: dict
    changed: tuple[str, ...]

    def available(self, *, build: bool) -> bool:
        """Whether it is compiled, or, with `build`, can be; see `gradnic.native.library`."""
        return library(self.source, build=build) is not None

    def run(self, given: dict, progress: Callable | None):
        """(Output, the arrays that changed) of a run. progress : called with the share done, now
        and then; its errors end the loop and are raised. RuntimeError if there is no compiler.
        """
        compiled = library(self.source)
        if compiled is None:
            raise RuntimeError("the compiled event loop needs a C++ compiler and filelock")
        arrays = {
            name: np.array(given[name], kind) if name in self.changed
            else np.ascontiguousarray(given[name], kind)
            for name, kind in self.arrays.items()
        }  # fmt: skip
        raised: list[BaseException] = []

        def tell(share):  # an error must not pass through C++
            try:
                if progress:
                    progress(share)
            except BaseException as error:
                raised.append(error)
            return len(raised)

        class Input(ctypes.Structure):
            _fields_ = [
                *((name, ctypes.c_int64) for name in self.numbers),
                *((name, ctypes.c_double) for name in self.reals),
                *((name, ctypes.c_void_p) for name in self.arrays),
                ("progress", _PROGRESS),
            ]

        members = {name: given[name] for name in (*self.numbers, *self.reals)}
        pointers = {name: array.ctypes.data for name, array in arrays.items()}
        result = _Output()
        call = getattr(compiled, self.source.stem)
        call(ctypes.byref(Input(**members, **pointers, progress=_PROGRESS(tell))),
             ctypes.byref(result))  # fmt: skip
        if raised:
            raise raised[0]
        return result, {name: arrays[name] for name in self.changed}
