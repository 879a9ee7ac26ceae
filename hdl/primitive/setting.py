"""Registers that hosts have written: a reset of the parts around them leaves them as they are.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import ResetSignal, Signal, Value


def setting(m, shape, name, **more):
    """A register that the reset of its domain clears, and no `ResetInserter` around it."""
    held = Signal(shape, name=name, reset_less=True, **more)
    with m.If(ResetSignal("sync", allow_reset_less=True)):
        m.d.sync += Value.cast(held).eq(Value.cast(held).init)
    return held
