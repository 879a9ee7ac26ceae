"""When the oldest completion is told by an EVENT, and told again.

Part of `gradnic.hdl.offload.host_port`, whose golden model it follows.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.host_frame import LEAST_T_EVENT, SEQ_BITS


class HostEvents(wiring.Component):
    """An EVENT is due at once, and again each ``t_event`` cycles until its completion is taken.

    Members
    -------
    waits : In(1)
        There is a completion, and a session that wants to be told.
    t_event : In(32)
        Cycles, `LEAST_T_EVENT` at least whatever it is.
    sends, taken, opens : In(1)
        It is sent; its completion leaves; a session begins, and counts from 0.
    due, seq : Out(1), Out(24)
    """

    def __init__(self) -> None:
        strobes = {name: In(1) for name in ("waits", "sends", "taken", "opens")}
        super().__init__({**strobes, "t_event": In(32), "due": Out(1), "seq": Out(SEQ_BITS)})

    def elaborate(self, platform):
        m = Module()
        was_told = Signal()
        since = Signal(32)
        early = (since < self.t_event) | ~since[LEAST_T_EVENT.bit_length() - 1 :].any()
        m.d.sync += [
            since.eq(Mux(was_told, since + 1, 0)),
            self.due.eq(self.waits & ~(was_told & early) & ~self.taken),
        ]
        with m.If(self.sends):
            m.d.sync += [was_told.eq(1), since.eq(0), self.due.eq(0)]
        with m.Elif(self.taken | ~self.waits):
            m.d.sync += was_told.eq(0)
        with m.If(self.taken):
            m.d.sync += self.seq.eq(self.seq + 1)
        with m.If(self.opens):
            m.d.sync += [self.seq.eq(0), was_told.eq(0), self.due.eq(0)]
        return m
