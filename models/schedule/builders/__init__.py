"""Schedules of all-reduce: one format (`schedule`), one file per family of algorithms."""

from .catalog import ALGORITHMS, build
from .schedule import GATHER, REDUCE, Schedule

__all__ = ["ALGORITHMS", "GATHER", "REDUCE", "Schedule", "build"]
