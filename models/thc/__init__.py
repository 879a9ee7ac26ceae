"""The golden THC worker: norm, rotation, quantization, table, shared random numbers."""

from .bit_packer import pack, unpack
from .hadamard import hadamard
from .table import clip_point, solve_table
from .worker import Worker

__all__ = ["Worker", "clip_point", "hadamard", "pack", "solve_table", "unpack"]
