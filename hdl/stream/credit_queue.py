"""A queue for users far away: one says that a beat goes, and the beat arrives two cycles later.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Shape, ShapeLike, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.names import signals
from ..primitive.parity import astray
from .admission import credit
from .delays import copied
from .steering import CHUNK, chunks

DEPTH = 16  # beats; fewer take the same LUT RAM


class CreditQueue(wiring.Component):
    """Queue in LUT RAM whose user decides from flags alone: 1 beat per cycle.

    Plumbing: no golden model of its own. Units that take a word of several queues in the same cycle
    stand far from each of them. Here the decision reaches a flag and a register at each piece of
    the queue; no bit of a payload waits for it, and the beat comes through a register that loads in
    every cycle. When full, ``i.ready``, a register, is low.

    Parameters
    ----------
    shape : shape-like
        A beat.
    depth : int
        Beats. Below a power of two there is a slot that is never in use, and may be written at any
        time: nothing but registers reaches the memory's write enables.
    never_full : bool
        The user lets in at most ``depth`` beats, one that is taken makes room from the next cycle
        on, and knows when there is one: ``i.ready`` is 1 always, nothing counts, and there is no
        `available`. An address serves a quarter of the bits. ``strays`` : flag, an address changed
        by itself, see `gradnic.hdl.primitive.parity.astray`.

    Members
    -------
    i : In(stream.Signature(shape))
        A beat that comes in may be taken from the second cycle on.
    available, take : Out(1), In(1)
        A beat is at hand, from the third cycle after it came on; the oldest one is taken in this
        cycle. ``take`` only where there is one; users who count themselves need no ``available``.
    word : Out(shape)
        The beat that was taken `latency` cycles ago, or the next one to be taken if it was there
        by then.
    """

    latency = 2

    def __init__(self, shape: ShapeLike, depth: int = DEPTH, *, never_full: bool = False) -> None:
        self.depth = depth
        self.never_full = never_full
        self.strays = Signal()
        n_slots = 2 ** ceil_log2(depth)
        # an address reaches as many LUT RAMs of a deep queue as of one of 16 beats; records that
        # engines look up in every cycle are cut finer
        chunk = CHUNK // 4 if never_full else CHUNK
        self.ranges = chunks(Shape.cast(shape).width, chunk * DEPTH // max(DEPTH, n_slots))
        self.heads, self.tails = (  # of each piece
            [
                Signal(range(n_slots), name=f"{end}{start}", attrs={"keep_register": 1})
                for start, _ in self.ranges
            ]
            for end in ("head", "tail")
        )
        self.arrays = [
            memory.Memory(
                shape=stop - start, depth=n_slots, init=[], attrs={"ram_style": "distributed"}
            )
            for start, stop in self.ranges
        ]
        beats = stream.Signature(shape, always_ready=never_full)
        members = {"i": In(beats), "take": In(1), "word": Out(shape)}
        super().__init__(members if never_full else members | {"available": Out(1)})

    def elaborate(self, platform):
        m = Module()
        push, pushed = signals("push pushed")
        m.d.comb += push.eq(self.i.valid & self.i.ready)
        room = push
        if not self.never_full:
            room = credit(m, self.depth, take=push, give=self.take, name="free")
            m.d.sync += pushed.eq(push)
            m.d.comb += [
                self.i.ready.eq(room),
                self.available.eq(
                    credit(m, self.depth, take=self.take, give=pushed, none=True, name="stored")
                ),
            ]
        i, o = Value.cast(self.i.p), Value.cast(self.word)
        takes = copied(m, self.take, len(self.ranges), name="takes")
        for (start, stop), array, head, tail, taken in zip(
            self.ranges, self.arrays, self.heads, self.tails, takes, strict=True
        ):
            m.submodules[f"array{start}"] = array
            write = array.write_port()
            read = array.read_port(domain="comb")
            word = Signal(stop - start, name=f"word{start}", reset_less=True)
            with m.If(push):
                m.d.sync += head.eq(head + 1)
            with m.If(taken):
                m.d.sync += tail.eq(tail + 1)
            m.d.sync += word.eq(read.data)
            m.d.comb += [
                # the slot is not in use then: `valid` need not be on this path
                write.en.eq(room if self.depth == array.depth else 1),
                write.addr.eq(head),
                write.data.eq(i[start:stop]),
                read.addr.eq(tail),
                o[start:stop].eq(word),
            ]
        if self.never_full:
            m.d.comb += self.strays.eq(astray(m, (*self.heads, *self.tails), push | takes[0]))
        return m
