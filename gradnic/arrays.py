"""Arrays that commands read and write: .npy files of float32."""

import io
import math
import os
import stat
import tokenize
from pathlib import Path

import numpy as np

from gradnic.output import write_whole

UNREADABLE = (ValueError, OverflowError, MemoryError, RecursionError, SyntaxError)
UNREADABLE += (tokenize.TokenError,)  # of a header that nests too deep, from Python 3.12 on


def load_floats(path):
    """The float32 array of an .npy file, of either byte order, at least one value; ValueError says
    what else it is.
    """
    with Path(path).open("rb") as file:
        try:
            _check_size(file)
            x = np.lib.format.read_array(file, allow_pickle=False)
            more = file.read(1)
        except UNREADABLE as error:
            why = str(error).partition("\n")[0] or type(error).__name__
            raise ValueError(f"{path} must be an .npy file: {why}") from error
    if x.dtype.newbyteorder("=") != np.float32:
        raise ValueError(f"{path} must hold float32, not {x.dtype}")
    if x.size == 0:
        raise ValueError(f"{path} must hold at least one value, not shape {x.shape}")
    if more:  # as numpy.save writes one array behind the other
        raise ValueError(f"{path} must hold one array: more comes behind the first, of {x.shape}")
    return x.astype(np.float32, copy=False)


def _check_size(file):
    """ValueError if the header of `file`, a plain file at its start, claims more than there is."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0,
               (2, 0): np.lib.format.read_array_header_2_0}  # fmt: skip
    if version in readers:
        shape, _, dtype = readers[version](file)
        claimed, there = math.prod(shape) * dtype.itemsize, os.fstat(file.fileno()).st_size
        if min(shape, default=0) < 0 or claimed > there - file.tell():
            raise ValueError(f"its header claims shape {shape}, {claimed} bytes, of {there} in all")
    file.seek(0)


def save_floats(path, x):
    """Write `x` as an .npy file, whole or not at all."""
    buffer = io.BytesIO()
    np.save(buffer, x)
    write_whole(path, buffer.getvalue())
