"""The golden THC worker: norm, rotation, quantization, table, shared random numbers."""

from .table import clip_point, solve_table
from .worker import Worker, hadamard, pack, unpack

__all__ = ["Worker", "clip_point", "hadamard", "pack", "solve_table", "unpack"]
