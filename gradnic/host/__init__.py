"""The host's side: drivers, DDP hooks, dissector."""

from .driver import CardGone, Driver, InlineDriver, MemoryDriver, OffloadDriver

__all__ = ["CardGone", "Driver", "InlineDriver", "MemoryDriver", "OffloadDriver"]
