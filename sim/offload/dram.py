"""Memories of boards behind clusters of cards: `gradnic.models.offload.memory` in cycles."""

import ctypes

from gradnic.models.offload.memory import DRAMS

BURST_BEATS = 16  # of a channel before the next one, as `gradnic.hdl.axi.spread`


class Timing(ctypes.Structure):
    """As in ``dram.h``."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("n_channels", "granule")),
        ("rate", ctypes.c_double),
        *((name, ctypes.c_int64) for name in ("row_bytes", "n_banks", "row_miss", "turn")),
        *((name, ctypes.c_int64) for name in ("refresh_every", "refresh")),
    ]


def timing(name, n_channels, n_bytes, mhz):
    """`Timing` of `n_channels` of a memory of `DRAMS`, for cards of `n_bytes` a beat at `mhz`."""
    dram = DRAMS[name]
    times = (dram.row_miss, dram.turn, dram.refresh_every, dram.refresh)
    return Timing(
        n_channels, BURST_BEATS * n_bytes, dram.gbytes * 1000 / mhz, dram.row_bytes, dram.n_banks,
        *(-int(-ns * mhz // 1000) for ns in times),
    )  # fmt: skip
