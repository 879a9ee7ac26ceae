"""Ring buffer of whole frames, of which a reader takes all, a beginning, or nothing.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.block_ram import BlockRAM
from ..stream.beats import Beat
from ..stream.block_fifo import N_CREDITS
from ..stream.fifo import FIFO
from ..stream.steering import moved

COUNT_WIDTH = 12  # beats of a frame


def ReadJob():
    """One stored frame to be read: its first `n_read` beats, of `n_stored`; n_read may be 0."""
    return data.StructLayout({"n_read": COUNT_WIDTH, "n_stored": COUNT_WIDTH})


class FrameStore(wiring.Component):
    """Stores beats; reads the beginning of each frame and jumps over the rest.

    1 beat per cycle in and out; a job costs max(1, n_read) cycles. The first beat is offered 5
    cycles after its job was taken. When full, ``i.ready`` is low until a job has freed beats; a
    job must not be given before its frame is stored, and a frame longer than the store never fits.

    Parameters
    ----------
    width : int
        Bits of a beat.
    n_slots : int
        Beats, a power of two from 8 to 16384.

    Members
    -------
    i : In(stream.Signature(width))
        ``ready`` comes from a register.
    jobs : In(stream.Signature(ReadJob()))
        One per frame, in the order of the frames.
    o : Out(stream.Signature(Beat(width)))
        ``last`` ends what a job reads.
    """

    def __init__(self, width: int, n_slots: int) -> None:
        if not 8 <= n_slots <= 16384 or n_slots & (n_slots - 1):
            raise ValueError(f"n_slots must be a power of two from 8 to 16384, not {n_slots!r}")
        self.width = width
        self.n_slots = n_slots
        super().__init__(
            {
                "i": In(stream.Signature(width)),
                "jobs": In(stream.Signature(ReadJob())),
                "o": Out(stream.Signature(Beat(width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = BlockRAM(self.width, self.n_slots)
        m.submodules.prefetch = prefetch = FIFO(Beat(self.width), N_CREDITS)
        wiring.connect(m, prefetch.o, wiring.flipped(self.o))
        pointer = range(2 * self.n_slots)
        head, tail, base = Signal(pointer), Signal(pointer), Signal(pointer)

        # Writer. As in `BlockFIFO`: decide on registered distances, corrected by the latest pushes.
        push = Signal()
        pushed = Signal(2)
        free, room = Signal(pointer, init=self.n_slots), Signal(3, init=4)
        pending = Signal(2)
        written, write_addr = Signal(self.width, reset_less=True), Signal(range(self.n_slots))
        m.d.comb += [
            push.eq(self.i.valid & self.i.ready),
            pending.eq(pushed[0] + pushed[1] + push),
            ram.write_en.eq(pushed[0]),
            ram.write_addr.eq(write_addr),
            ram.write_data.eq(written),
        ]
        m.d.sync += [
            head.eq(head + push),
            pushed.eq(Cat(push, pushed)),
            written.eq(self.i.p),
            write_addr.eq(head),
            free.eq((tail ^ self.n_slots) - head),
            room.eq(Mux(free[2:].any(), 4, free[:2])),
            self.i.ready.eq(room > pending),
        ]

        # Reader. `base` ends the frame under way; the address runs up to it or stops early.
        busy, final = Signal(), Signal()
        addr, left = Signal(pointer), Signal(COUNT_WIDTH)
        issue, load, refund = Signal(), Signal(), Signal()
        credits = Signal(N_CREDITS, init=-1)  # what came back in the cycle before counts, too
        issued, ends = Signal(2), Signal(2)
        m.d.comb += [
            issue.eq(busy & credits[0]),
            load.eq(self.jobs.valid & (~busy | (issue & final))),
            self.jobs.ready.eq(~busy | (issue & final)),
            ram.read_addr.eq(addr),
            prefetch.i.valid.eq(issued[1]),
            prefetch.i.p.data.eq(ram.read_data),
            prefetch.i.p.last.eq(ends[1]),
        ]
        m.d.sync += [
            refund.eq(self.o.valid & self.o.ready),
            credits.eq(moved(credits, refund & ~issue, issue & ~refund)),
            issued.eq(Cat(issue, issued)),
            ends.eq(Cat(final, ends)),
            tail.eq(Mux(busy, addr, base)),
        ]
        with m.If(issue):
            m.d.sync += [addr.eq(addr + 1), left.eq(left - 1), final.eq(left == 2)]
            with m.If(final):
                m.d.sync += busy.eq(0)
        with m.If(load):
            m.d.sync += [
                addr.eq(base),
                base.eq(base + self.jobs.p.n_stored),
                left.eq(self.jobs.p.n_read),
                final.eq(self.jobs.p.n_read == 1),
                busy.eq(self.jobs.p.n_read != 0),
            ]
        return m
