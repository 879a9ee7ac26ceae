"""WRITEs of the host that are under way to memory: what is stored, and when that is told.

Golden model: `gradnic.models.offload.host_writes`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.host_frame import ACK_FRAMES, SEQ_BITS

N_WRITES = 32  # under way, at most


class HostWrites(wiring.Component):
    """Memory answers in order: all WRITEs before ``done`` are stored.

    Members
    -------
    goes, ended, stored : In(1)
        A WRITE begins, while ``has_room``; memory has answered one, well.
    acks : In(1)
        An ACK is being made: it tells of all so far.
    opens, first, advances : In(1), In(24), In(1)
        The next request has this SEQ; one that is no WRITE is done.
    forgives : In(1)
        What has ``failed`` was told; in a cycle without any under way.
    done : Out(24)
        SEQ of the request that is not done yet.
    has_room, under_way, failed : Out(1)
        One has failed: those behind it are stored or not, and not told as done.
    ack_due, settled : Out(1)
        `ACK_FRAMES` wait to be told, or one has for `SILENCE` cycles, 2 cycles late, but never in
        the cycle after ``acks``. None under way, none failed.
    """

    def __init__(self) -> None:
        inputs = ("goes", "ended", "stored", "acks", "opens", "advances", "forgives")
        outputs = ("has_room", "under_way", "failed", "ack_due", "settled")
        super().__init__(
            {
                **{name: In(1) for name in inputs},
                "first": In(SEQ_BITS),
                "done": Out(SEQ_BITS),
                **{name: Out(1) for name in outputs},
            }
        )

    def elaborate(self, platform):
        m = Module()
        n_writes = Signal(range(N_WRITES + 1))
        untold = Signal(range(N_WRITES + ACK_FRAMES + 1))
        silence = Signal(7)
        stored = self.ended & self.stored & ~self.failed
        m.d.comb += [
            self.has_room.eq(n_writes < N_WRITES),
            self.under_way.eq(n_writes != 0),
            self.settled.eq(~self.under_way & ~self.failed),
        ]
        m.d.sync += [
            n_writes.eq(n_writes + self.goes - self.ended),
            untold.eq(Mux(self.acks, 0, untold) + stored),
            silence.eq(Mux(stored, 0, silence + ~silence[6])),
            self.ack_due.eq(~self.acks & ((untold >= ACK_FRAMES) | ((untold != 0) & silence[6]))),
        ]
        with m.If(self.opens):
            m.d.sync += self.done.eq(self.first)
        with m.Elif(stored | self.advances):
            m.d.sync += self.done.eq(self.done + 1)
        with m.If(self.ended & ~self.stored):
            m.d.sync += self.failed.eq(1)
        with m.Elif(self.forgives):
            m.d.sync += self.failed.eq(0)
        return m
