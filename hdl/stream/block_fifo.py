"""Queue on block RAM, whose writer may take back what it wrote.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.params import check_range

from ..primitive.block_ram import BlockRAM
from .fifo import FIFO

N_CREDITS = 8  # beats between the read address and the output; 5 sustain one beat per cycle


def _thermometer(count, n):
    """Bit k of n says that `count` is more than k; n is 3 or 4. Written out, to avoid carries."""
    four = count[2:].any()
    bits = (four | count[:2].any(), four | count[1], four | count[:2].all(), four)
    return Cat(bits[:n])


class BlockFIFO(wiring.Component):
    """Queue on block RAM: 1 beat per cycle in and out, `latency` cycles from in to out.

    Holds at least ``depth`` beats, and up to 8 more on their way out. When all slots hold beats,
    ``i.ready`` is low until one has left; the freed slot is usable 4 cycles later. Nothing is lost.

    With `commits` the writer commits or discards what it wrote. Beats are written behind a mark;
    `commit` moves the mark behind the beat taken in the same cycle, `discard` takes the writer back
    to the mark, the beat of that cycle included. Only beats before the mark leave, `latency` cycles
    after they were committed. Others stay forever: a user that may fill the queue without
    committing must discard (`gradnic.hdl.frame.packet_fifo.PacketFIFO` does).

    All decisions are made on registered, two cycles old distances between pointers, kept as
    thermometers and corrected by what was pushed or issued since: no carry chain is in a ready
    path.

    Parameters
    ----------
    shape : shape-like
        Payload of both streams.
    depth : int
        Least number of beats; rounded up to a power of two, 4 to 16384.
    never_full : bool
        The user lets in at most ``depth`` beats; ``i.ready`` is 1 always.
    commits : bool
    stops : bool
        A bit of a pointer, or of what is on its way into the memory or out of it, that changes by
        itself stops the queue: from the next cycle on nothing leaves its memory until a reset, nor
        what was read by then. Else beats would be lost, or come again, and nobody would know. More
        or fewer beats between the pointers than there can be stop it, too, a beat later, and the
        addresses of the last beats (`FIFO`, `watched`) when none waits, and a beat that is
        none, or that was there and never leaves. A LUT for two bits of pointers. Not with
        `commits`.

    Members
    -------
    i, o : In, Out(stream.Signature(shape))
    commit, discard : In(1), In(1)
        With `commits`. Count in a cycle in which ``i`` transfers; not both.
    """

    latency = 7

    def __init__(
        self,
        shape: ShapeLike,
        depth: int,
        *,
        never_full: bool = False,
        commits: bool = False,
        stops: bool = False,
    ) -> None:
        check_range("depth", depth, 1, 16384)
        if commits and stops:
            raise ValueError("commits and stops exclude each other")
        self.shape = shape
        self.depth = depth
        self.never_full, self.commits, self.stops = never_full, commits, stops
        self.n_slots = max(4, 2 ** ceil_log2(depth))
        pointer = range(2 * self.n_slots)
        self.head = Signal(pointer)  # next slot to write
        # first slot not committed
        self.mark = Signal(pointer, name="mark") if commits else self.head
        self.tail = Signal(pointer)  # next slot to read
        self.free = Signal(pointer, init=self.n_slots)  # slots, one cycle old
        self.whole = Signal(pointer)  # committed beats not issued (mark - tail), one cycle old
        self.room = Signal(4, init=-1)  # bit k: more than k free slots, two cycles old
        self.waiting = Signal(3)  # bit k: more than k committed beats, two cycles old
        self.pushed = Signal(2)  # bit k: pushed k + 1 cycles ago
        self.issued = Signal(2)  # bit k: read address issued k + 1 cycles ago
        self.credits = Signal(N_CREDITS, init=-1)  # bit k: more than k credits left
        # A copy of tail, for the many block RAMs of a wide word; it counts by itself, or a tool
        # might take the two for one.
        read = pointer if stops else range(self.n_slots)
        self.read_addr = Signal(read, attrs={"keep_register": 1})
        self.written = Signal(shape, reset_less=True)
        self.write_addr = Signal(range(self.n_slots), reset_less=True)
        # parities of pointers, and that one was wrong
        self.head_odd = Signal()
        self.write_odd = Signal(reset_less=True)
        self.pushed_odd = Signal()
        self.issued_odd = Signal()
        self.stopped = Signal()
        members = {"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))}
        if commits:
            members |= {"commit": In(1), "discard": In(1)}
        super().__init__(members)
        self.ram = BlockRAM(Shape.cast(shape).width, self.n_slots)
        self.prefetch = FIFO(shape, N_CREDITS, never_full=True, watched=stops)

    def elaborate(self, platform):
        m = Module()
        m.submodules.ring = ram = self.ram
        m.submodules.prefetch = prefetch = self.prefetch
        wiring.connect(m, prefetch.o, wiring.flipped(self.o))
        push = Signal()
        after = Signal.like(self.head)
        self._write(m, ram, push, after)
        if self.never_full:
            m.d.comb += self.i.ready.eq(1)
        else:
            self._admit(m, push)
        self._read(m, ram, prefetch, push, after)
        return m

    def _write(self, m, ram, push, after):
        """Beats that come, into the RAM; a frame that is discarded is overwritten."""
        commit, discard = (self.commit, self.discard) if self.commits else (1, 0)
        m.d.comb += [push.eq(self.i.valid & self.i.ready), after.eq(self.head + 1)]
        with m.If(push):
            m.d.sync += self.head.eq(Mux(discard, self.mark, after))
            if self.commits:
                with m.If(commit):
                    m.d.sync += self.mark.eq(after)
        # One register between the input and the many block RAMs of a wide word.
        m.d.sync += [
            self.pushed.eq(Cat(push, self.pushed)),
            self.written.eq(self.i.p),
            self.write_addr.eq(self.head),
        ]
        m.d.comb += [
            ram.write_en.eq(self.pushed[0]),
            ram.write_addr.eq(self.write_addr),
            ram.write_data.eq(self.written),
        ]

    def _admit(self, m, push):
        """`i.ready` by what was free, less what has come since then."""
        p, (q, r) = push, self.pushed
        m.d.sync += [
            self.free.eq((self.tail ^ self.n_slots) - self.head),
            self.room.eq(_thermometer(self.free, 4)),
            self.i.ready.eq(
                self.room[3]
                | (self.room[2] & ~(p & q & r))
                | (self.room[1] & ~((p & q) | (p & r) | (q & r)))
                | (self.room[0] & ~(p | q | r))
            ),
        ]

    def _watch(self, m, prefetch, push, after, issue, goes):
        """Parities of all that tells where beats are; what is wrong stops the queue."""
        with m.If(push):
            m.d.sync += self.head_odd.eq(after.xor())
        positions = (self.head, self.head_odd, self.write_addr, self.write_odd)
        positions += (self.tail, self.read_addr, self.pushed, self.pushed_odd)
        too_many = self.whole[-1] & self.whole[:-1].any()
        m.d.comb += goes.eq(~Cat(self.issued, self.issued_odd).xor())
        # else a beat that is none is offered, or one that was there never will be
        ahead = Cat(self.issued, prefetch.waiting, self.o.valid).any()
        miscounted = ahead == self.credits.all()
        m.d.sync += [
            self.write_odd.eq(self.head[:-1].xor()),
            self.pushed_odd.eq(push ^ self.pushed[0]),
            self.issued_odd.eq(issue ^ self.issued[0]),
            self.stopped.eq(
                self.stopped
                | Cat(positions).xor()
                | ~goes
                | too_many
                | prefetch.astray
                | miscounted
            ),
        ]

    def _read(self, m, ram, prefetch, push, after):
        """Beats out of the RAM, as long as there are credits for the queue behind it."""
        issue = Signal()
        may_issue = Signal()
        refund = Signal()
        goes = Signal()  # what is told to come out of the memory does
        m.d.comb += goes.eq(1)
        if self.stops:
            self._watch(m, prefetch, push, after, issue, goes)
        m.d.sync += [
            self.whole.eq(self.mark - self.tail),
            self.waiting.eq(_thermometer(self.whole, 3)),
            self.issued.eq(Cat(issue, self.issued)),
        ]
        m.d.comb += [
            may_issue.eq(
                self.waiting[2]
                | (self.waiting[1] & ~self.issued.all())
                | (self.waiting[0] & ~self.issued.any())
            ),
            issue.eq(self.credits[0] & may_issue & ~self.stopped),
            refund.eq(self.o.valid & self.o.ready),
            ram.read_addr.eq(self.read_addr[: len(ram.read_addr)]),
            prefetch.i.valid.eq(self.issued[1] & goes & ~self.stopped),
            Value.cast(prefetch.i.p).eq(ram.read_data),
        ]
        with m.If(issue):
            m.d.sync += [self.tail.eq(self.tail + 1), self.read_addr.eq(self.read_addr + 1)]
        with m.If(issue & ~refund):
            m.d.sync += self.credits.eq(self.credits[1:])
        with m.Elif(refund & ~issue):
            m.d.sync += self.credits.eq(Cat(1, self.credits))
