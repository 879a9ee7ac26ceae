"""The reset handshake of OpenNIC.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

N_CYCLES = 100  # what the shell's own blocks hold; long enough for every clock of a box


class ResetHandshake(wiring.Component):
    """Holds reset for `n_cycles` when asked to, and says when it is over.

    A low ``rstn`` of one cycle or more is a request. ``done`` is low from the next cycle on until
    the reset has been held and is over; then it stays high. It is low before the first request,
    and the box is not held in reset then: its registers have initial values.

    The domain that this runs in needs no reset of its own.

    Parameters
    ----------
    n_cycles : int
        Cycles of reset, counted from the end of the request.

    Members
    -------
    rstn : In(1)
    done : Out(1)
    reset : Out(1)
        Active high, from a register.
    """

    rstn: In(1, init=1)
    done: Out(1)
    reset: Out(1)

    def __init__(self, n_cycles: int = N_CYCLES) -> None:
        self.n_cycles = n_cycles
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        left = Signal(range(self.n_cycles + 1))
        with m.If(~self.rstn):
            m.d.sync += [self.reset.eq(1), self.done.eq(0), left.eq(self.n_cycles)]
        with m.Elif(self.reset):
            m.d.sync += left.eq(left - 1)
            with m.If(left == 1):
                m.d.sync += [self.reset.eq(0), self.done.eq(1)]
        return m
