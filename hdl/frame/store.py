"""Queue of whole frames, of which a reader takes all, a beginning, or nothing.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_least, check_power

from ..primitive.names import signals
from ..stream.beats import Beat
from ..stream.block_fifo import BlockFIFO

COUNT_WIDTH = 12  # beats of a frame


def ReadJob():
    """One stored frame to be read: its first `n_read` beats, of `n_stored`; n_read may be 0."""
    return data.StructLayout({"n_read": COUNT_WIDTH, "n_stored": COUNT_WIDTH})


class FrameStore(wiring.Component):
    """Stores beats in a `BlockFIFO`; a job reads the beginning of a frame and drops the rest.

    1 beat per cycle in and out; a job costs n_stored cycles, frames follow each other without a
    gap. The first beat is offered the cycle after its job was taken, if the frame is stored by
    then. When full, ``i.ready`` is low until beats have left; a frame whose job waits for its end
    must fit.

    Parameters
    ----------
    width : int
        Bits of a beat.
    n_slots : int
        Beats, a power of two from 8 to 16384.
    stops : bool
        As of `gradnic.hdl.stream.block_fifo.BlockFIFO`.

    Members
    -------
    i : In(stream.Signature(width))
        ``ready`` comes from a register.
    jobs : In(stream.Signature(ReadJob()))
        One per frame, in the order of the frames.
    o : Out(stream.Signature(Beat(width)))
        ``last`` ends what a job reads.
    """

    def __init__(self, width: int, n_slots: int, *, stops: bool = False) -> None:
        check_least("width", width, 1)
        check_power("n_slots", n_slots, 8, 16384)
        self.beats = BlockFIFO(width, n_slots, stops=stops)
        super().__init__(
            {
                "i": In(stream.Signature(width)),
                "jobs": In(stream.Signature(ReadJob())),
                "o": Out(stream.Signature(Beat(width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.beats = beats = self.beats
        wiring.connect(m, wiring.flipped(self.i), beats.i)
        busy, reads, ends, final = (Signal(name=n) for n in ("busy", "reads", "ends", "final"))
        n_read, n_stored = signals("n_read n_stored", COUNT_WIDTH)  # what is left of the job
        take, load = signals("take load")
        job = self.jobs.p
        m.d.comb += [
            self.o.valid.eq(reads & beats.o.valid),
            self.o.p.data.eq(beats.o.payload),
            self.o.p.last.eq(ends),
            beats.o.ready.eq(busy & (~reads | self.o.ready)),
            take.eq(beats.o.valid & beats.o.ready),
            self.jobs.ready.eq(~busy | (take & final)),
            load.eq(self.jobs.valid & self.jobs.ready),
        ]
        with m.If(take):
            m.d.sync += [
                n_read.eq(n_read - 1),
                n_stored.eq(n_stored - 1),
                ends.eq(n_read == 2),
                final.eq(n_stored == 2),
            ]
            with m.If(ends | final):
                m.d.sync += reads.eq(0)
            with m.If(final):
                m.d.sync += busy.eq(0)
        with m.If(load):
            m.d.sync += [
                busy.eq(1),
                reads.eq(job.n_read != 0),
                ends.eq(job.n_read == 1),
                final.eq(job.n_stored == 1),
                n_read.eq(job.n_read),
                n_stored.eq(job.n_stored),
            ]
        return m
