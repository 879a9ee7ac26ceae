"""The host's side: drivers, DDP hooks, dissector."""

from .driver import CardGone, Driver, InlineDriver, MemoryDriver, OffloadDriver
from .jobs import JobDriver

__all__ = ["CardGone", "Driver", "InlineDriver", "JobDriver", "MemoryDriver", "OffloadDriver"]
