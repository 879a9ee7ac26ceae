"""Arrays that commands read and write: .npy files of float32."""

import io

import numpy as np

from gradnic.output import write_whole


def load_floats(path):
    """The float32 array of an .npy file, at least one value; ValueError says what else it is."""
    with open(path, "rb") as file:
        try:
            x = np.lib.format.read_array(file, allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{path} must be an .npy file: {error}") from error
    if x.dtype != np.float32:
        raise ValueError(f"{path} must hold float32, not {x.dtype}")
    if x.size == 0:
        raise ValueError(f"{path} must hold at least one value, not shape {x.shape}")
    return x


def save_floats(path, x):
    """Write `x` as an .npy file, whole or not at all."""
    buffer = io.BytesIO()
    np.save(buffer, x)
    write_whole(path, buffer.getvalue())
