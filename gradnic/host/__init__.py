"""The host's side: drivers, DDP hooks, dissector."""

from .driver import Driver, InlineDriver, MemoryDriver, OffloadDriver

__all__ = ["Driver", "InlineDriver", "MemoryDriver", "OffloadDriver"]
