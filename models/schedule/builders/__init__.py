"""Schedules of all-reduce: one format (`schedule`), one file per family of algorithms."""

from .catalog import ALGORITHMS, ISSUE, build
from .schedule import GATHER, REDUCE, Schedule

__all__ = ["ALGORITHMS", "GATHER", "ISSUE", "REDUCE", "Schedule", "build"]
