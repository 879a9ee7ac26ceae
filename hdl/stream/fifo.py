"""Small FIFO in LUT RAM.

Plumbing: no golden model of its own.
"""

from functools import cached_property

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_range

from ..primitive.block_ram import HeldRAM
from ..primitive.names import signals
from ..primitive.target import dense
from .steering import copies, healed, steered

SMALL = 16  # beats that take the same LUT RAM as one
WIDE, LEAST_BITS = 240, 64  # from which on so small a queue, and a larger one, are in block RAM


class FIFO(wiring.Component):
    """Queue of ``depth`` beats, plus one in the output register: 1 beat per cycle.

    A beat taken in cycle t is offered at t + ``latency`` at the earliest. When ``depth`` beats
    wait behind the output register, ``i.ready`` is low from the next cycle on; nothing is lost.
    The occupancy is a thermometer, so that ``i.ready`` and ``o.valid`` come from registers
    without a comparison. It is one cycle old: ``o.ready`` comes late and reaches one flag of it,
    not every bit.

    Parameters
    ----------
    shape : shape-like
        Payload of both streams.
    depth : int
        Beats, 2 to 64; 16 and below take the same LUT RAM on an ECP5.
    never_full : bool
        The user lets in at most ``depth`` beats. ``i.ready`` is 1 always, and the count takes one
        LUT less.
    half_rate : bool
        A beat leaves every second cycle at most: ``o.ready`` reaches no clock enable of the data.
    bypass : bool
        What comes to an empty queue goes straight to the output register, for a multiplexer in
        front of it: ``latency`` is 1, else 2. Not with `half_rate`.
    registered : bool
        False: without an output register, for users that have one; ``latency`` is 1. ``o.valid``
        is a register all the same, ``o.p`` comes out of the memory.
    watched : bool
        `astray` is 1, until a reset, once nothing waits and the addresses of both ends are two:
        one has changed by itself, or a beat came or went that was none; and once the valid bits of
        a beat's parts differ. So beats that have left may be wrong. A LUT for each bit of an
        address.
    stops : bool
        Is `watched`, and `astray` is 1 as soon as a bit of an address has changed by itself. From
        that cycle on nothing leaves the memory until a reset. Not with `bypass`.

    Members
    -------
    i, o : In, Out(stream.Signature(shape))
    """

    latency = 2

    def __init__(
        self,
        shape: ShapeLike,
        depth: int,
        *,
        never_full: bool = False,
        half_rate: bool = False,
        bypass: bool = False,
        registered: bool = True,
        watched: bool = False,
        stops: bool = False,
    ) -> None:
        check_range("depth", depth, 2, 64)
        if half_rate + bypass + (not registered) > 1:
            raise ValueError("half_rate, bypass and registered=False exclude each other")
        if stops and bypass:
            raise ValueError("stops and bypass exclude each other")
        self.shape = shape
        self.depth = depth
        self.never_full, self.half_rate = never_full, half_rate
        self.bypass, self.registered = bypass, registered
        self.watched, self.stops = watched or stops, stops
        self.latency = 1 if bypass or not registered else FIFO.latency
        kept = {"keep_register": 1}  # of queues that work in step, each has its own
        self.waiting = Signal(attrs=kept)  # there are beats in the memory
        self.free = Signal(init=1, attrs=kept)  # fewer than depth
        self.occupied = Signal(depth, attrs=kept)  # bit k: more than k, one cycle ago
        # and what came and went
        self.pushed, self.popped = signals("pushed popped", attrs=kept)
        self.head = Signal(range(depth), attrs=kept)  # next slot to write
        self.tail = Signal(range(depth), attrs=kept)  # next slot to read
        self.astray = Signal()
        self.head_odd, self.tail_odd = signals("head_odd tail_odd")  # parities, if it stops
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self.valids = copies(self.o.p, "valid")

    @cached_property
    def array(self):
        """The memory; a proof may add a read port to it before elaboration."""
        # Yosys 0.70 would make slow block RAM of a deep one: 4.3 ns from clock to data
        return memory.Memory(
            shape=Shape.cast(self.shape).width,
            depth=self.depth,
            init=[],
            attrs={"ram_style": "distributed"},
        )

    @cached_property
    def _ports(self):
        write = self.array.write_port()
        read = self.array.read_port(domain="comb")
        return write, read

    def elaborate(self, platform):
        m = Module()
        in_block_ram = dense(platform) and self._is_large()
        if in_block_ram:
            m.submodules.array = ram = HeldRAM(Shape.cast(self.shape).width, self.depth)
            write, read = ram.ports
            m.d.comb += ram.read_en.eq(self._moves(self.valids[0]))
        else:
            m.submodules.array = self.array
            write, read = self._ports
        push = Signal()
        pop = Signal()
        waiting = self.waiting
        if self.watched:
            valids = Cat(self.valids)
            wrong = (~self.waiting & (self.head != self.tail)) | (valids.any() & ~valids.all())
            if self.stops:
                odd = Cat(self.head, self.head_odd, self.tail, self.tail_odd).xor()
                waiting = self.waiting & ~(self.astray | odd)
                wrong |= odd
            m.d.sync += self.astray.eq(self.astray | wrong)
        enters = self.i.valid & self.free
        m.d.comb += [
            self.i.ready.eq(self.free),
            push.eq(enters & (waiting | ~self._moves(self.o.valid)) if self.bypass else enters),
            pop.eq(waiting & self._moves(self.o.valid)),
            write.en.eq(self.free),  # the slot is not in use: `valid` need not be on this path
            write.addr.eq(self.head),
            write.data.eq(self.i.p),
            read.addr.eq(self.tail),
        ]

        def after(pointer):
            wraps = 2 ** len(pointer) != self.depth
            return Mux(pointer == self.depth - 1, 0, pointer + 1) if wraps else pointer + 1

        with m.If(push):
            m.d.sync += self.head.eq(after(self.head))
        with m.If(pop):
            m.d.sync += self.tail.eq(after(self.tail))
        now = healed(m, self.occupied, self.pushed, self.popped)
        m.d.sync += [
            self.pushed.eq(push),
            self.popped.eq(pop),
            self.occupied.eq(now),
            self.waiting.eq(push | now[1] | (self.waiting & ~pop)),
        ]
        if self.stops:
            with m.If(push):
                m.d.sync += self.head_odd.eq(after(self.head)[: len(self.head)].xor())
            with m.If(pop):
                m.d.sync += self.tail_odd.eq(after(self.tail)[: len(self.tail)].xor())
        if not self.never_full:
            full = (push & ~pop & now[self.depth - 2]) | (~self.free & ~pop)
            m.d.sync += self.free.eq(~full)
        if not self.registered:
            m.d.comb += [self.o.valid.eq(waiting), Value.cast(self.o.p).eq(read.data)]
            return m
        out, first = Value.cast(self.o.p), self.valids[0]
        # written out: `o.ready` does not pass the clock enables on its way to the flags
        takes = waiting & ~first if self.half_rate else waiting
        if self.bypass:
            takes = waiting | self.i.valid  # a full memory is not empty
        now_valid = takes | (first & ~self.o.ready)
        for (start, stop), valid in zip(steered(len(out)), self.valids, strict=True):
            m.d.sync += valid.eq(now_valid)
            if in_block_ram:  # which holds what it read
                m.d.comb += out[start:stop].eq(read.data[start:stop])
                continue
            held = Signal(stop - start, name=f"held{start}", reset_less=True)
            m.d.comb += out[start:stop].eq(held)
            with m.If(self._moves(valid)):
                oldest = read.data[start:stop]
                if self.bypass:
                    oldest = Mux(waiting, oldest, Value.cast(self.i.p)[start:stop])
                m.d.sync += held.eq(oldest)
        m.d.comb += self.o.valid.eq(first)
        return m

    def _is_large(self):
        """Block RAM, where there is some to spare, takes less of the device than LUT RAM."""
        width = Shape.cast(self.shape).width
        large = width >= WIDE if self.depth <= SMALL else width >= LEAST_BITS
        return large and self.registered and not self.bypass

    def _moves(self, valid):
        """The output register takes what comes next."""
        if not self.registered:
            return self.o.ready
        return ~valid if self.half_rate else self.o.ready | ~valid
