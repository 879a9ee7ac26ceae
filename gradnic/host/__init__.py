"""The host's side: drivers, DDP hooks, dissector."""

from .driver import CardGone, Driver, InlineDriver
from .jobs import JobDriver
from .offload_driver import MemoryDriver, OffloadDriver

__all__ = ["CardGone", "Driver", "InlineDriver", "JobDriver", "MemoryDriver", "OffloadDriver"]
