"""The queue of descriptors of a card: what waits may still be aborted.

Golden model: `gradnic.models.offload.job_queue`; its cycles are in the mutation campaign.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.job import QUEUE

from ..primitive.names import signals
from .job_records import STAMP_WIDTH, Abort, Descriptor, Waiting


class JobQueue(wiring.Component):
    """Up to 16 jobs, oldest first. A post takes a cycle; when full, ``post`` is not ready.

    The job that ``abort`` names is looked for from the oldest on, one a cycle, and is marked: it
    keeps its place. While one is looked for, ``present`` is 0.

    Members
    -------
    post : In(stream.Signature(Descriptor))
    now : In(48)
    abort : In(stream.Signature(Abort))
        Ready again once it was looked for. One job at most is marked.
    oldest, aborted, present, pop : Out(Waiting), Out(1), Out(1), In(1)
        ``pop`` only while ``present``.
    busy : Out(1)
        Jobs wait, whether or not they may be taken.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "post": In(stream.Signature(Descriptor)),
                "now": In(STAMP_WIDTH),
                "abort": In(stream.Signature(Abort)),
                "oldest": Out(Waiting),
                "aborted": Out(1),
                "present": Out(1),
                "pop": In(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = array = memory.Memory(shape=Waiting, depth=QUEUE, init=[])
        m.submodules.ids = ids = memory.Memory(shape=16, depth=QUEUE, init=[])
        write = array.write_port()
        read = array.read_port(domain="comb")
        id_write = ids.write_port()
        id_read = ids.read_port(domain="comb")
        # to be written, and the oldest, modulo 32: what waits is between them, whatever befalls one
        head, tail = signals("head tail", range(2 * QUEUE))
        count = Signal.like(head)
        marks = Signal(QUEUE)
        push, waits = signals("push waits")
        at = Signal(range(QUEUE))
        left = Signal(range(QUEUE + 1))
        looks, popped = signals("looks popped")
        m.d.comb += [
            count.eq(head - tail),
            self.post.ready.eq(~count[-1]),
            push.eq(self.post.valid & self.post.ready),
            *(port.en.eq(push) for port in (write, id_write)),
            *(port.addr.eq(head[:-1]) for port in (write, id_write)),
            write.data.job.eq(self.post.p),
            write.data.posted.eq(self.now),
            id_write.data.eq(self.post.p.id),
            read.addr.eq(tail[:-1]),
            id_read.addr.eq(at),
            self.oldest.eq(read.data),
            self.aborted.eq(marks.bit_select(tail[:-1], 1)),
            self.present.eq(waits & ~looks),
            self.busy.eq(waits),
            self.abort.ready.eq(looks & (left == 0)),
        ]
        # count != 0, as a register: what a whole card decides begins here
        after = Mux(self.pop, tail + 1, tail)[: len(tail)]
        m.d.sync += [waits.eq(push | (head != after)), popped.eq(self.pop)]
        with m.If(push):
            m.d.sync += [head.eq(head + 1), marks.bit_select(head[:-1], 1).eq(0)]
        with m.If(self.pop):
            m.d.sync += tail.eq(tail + 1)
        with m.If(~looks):
            # a job that begins is called active two cycles after it left
            m.d.sync += looks.eq(self.abort.valid & ~self.pop & ~popped)
            m.d.sync += [at.eq(tail[:-1]), left.eq(count)]
        with m.Elif(left == 0):
            m.d.sync += looks.eq(0)
        with m.Else():
            m.d.sync += [at.eq(at + 1), left.eq(left - 1)]
            named = self.abort.p.any | (id_read.data == self.abort.p.id)
            with m.If(named & ~marks.bit_select(at, 1)):
                m.d.sync += [marks.bit_select(at, 1).eq(1), left.eq(0)]
        return m


SKIPS = (8, 4)  # leading digits that are not walked through where they are 0


class Divider(wiring.Component):
    """Divides, two bits a cycle: done ceil(`width` / 2) + 1 cycles after ``start``, or 4 or 8
    before that where as many of the digits of ``a`` are 0 in front.

    Members
    -------
    start, a, b : In
        Must not change until ``done``. b = 0 gives nonsense.
    done, quotient, remainder : Out
        Kept until the next start.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(
            {
                "start": In(1),
                "a": In(width),
                "b": In(width),
                "done": Out(1),
                "quotient": Out(width),
                "remainder": Out(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n_digits = -(-self.width // 2)
        left = Signal(range(n_digits + 1))
        quotient = Signal(2 * n_digits)
        rest = Signal(self.width + 2)
        thrice = Signal(self.width + 2, reset_less=True)
        # less b so many times: below 0, it does not fit
        less = [Signal(self.width + 3, name=f"less{k}") for k in range(1, 4)]
        fits = Cat(~one[-1] for one in less)
        m.d.comb += [
            self.quotient.eq(quotient),
            rest.eq(Cat(quotient[-2:], self.remainder)),
            *(
                one.eq(rest - multiple)
                for one, multiple in zip(less, (self.b, self.b << 1, thrice), strict=True)
            ),
        ]
        m.d.comb += self.done.eq(left == 0)
        with m.If(self.start):
            m.d.sync += [left.eq(n_digits), quotient.eq(self.a)]
            for skip in reversed(SKIPS):
                if skip < n_digits:
                    with m.If(~self.a[2 * (n_digits - skip) :].any()):
                        m.d.sync += [left.eq(n_digits - skip), quotient.eq(self.a << 2 * skip)]
            m.d.sync += [
                self.remainder.eq(0),
                thrice.eq(self.b + (self.b << 1)),
            ]
        with m.Elif(left != 0):
            digit = Cat(fits[2] | (fits[0] & ~fits[1]), fits[1])
            m.d.sync += [left.eq(left - 1), quotient.eq(Cat(digit, quotient[:-2]))]
            with m.Switch(digit):
                for k, value in enumerate((rest, *less)):
                    with m.Case(k):
                        m.d.sync += self.remainder.eq(value)
        return m
