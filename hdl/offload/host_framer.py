"""Frames of the card to its own host: a head, and what was read of memory or is at hand.

Golden model: `gradnic.models.offload.host_framer`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.formats import ETHERNET, GRADNIC, HEAD_BYTES, IPV4, UDP, Op
from gradnic.interface.host_frame import HEAD, MAX_PAYLOAD

from ..frame.plain_head import DF, PLAIN, WITHOUT_FLAGS, put
from ..primitive.names import signals
from ..stream.beats import Beat, FrameBeat
from .host_parser import Ends

TEXT_BYTES = 64  # of the longest payload that is not read of memory

Answer = data.StructLayout(
    {"kind": 8, "status": 8, "seq": 24, "address": 48, "elems": 16, "arg": 32, "last": 1,
     "ends": Ends}
)  # fmt: skip
"""What a frame says, and to whom; ``elems`` is its payload, in bytes."""


class HostFramer(wiring.Component):
    """One frame for each answer and each head of DATA, in turns: 1 beat per cycle, back to back.

    A head leaves 1 cycle after it was taken, 5 after it was offered at the earliest, and a frame
    takes 5 cycles at least; the next head is made meanwhile.

    Parameters
    ----------
    n_bytes : int
        Bytes of a beat, 16, 32 or 64.

    Members
    -------
    mac, udp_port : In(48), In(16)
        The host address, our UDP port.
    answers, text : In(stream.Signature(Answer)), In(8 * TEXT_BYTES)
        Up to `TEXT_BYTES` of payload, byte 0 lowest, that stay until the answer is taken, and a
        cycle longer: no enable has both heads and payload on it.
    heads, values : In(stream.Signature(Answer)), In(stream.Signature(Beat(8 * n_bytes)))
        Those whose payload is read of memory: ceil(elems / n_bytes) beats for each with any.
    o : Out(stream.Signature(FrameBeat(n_bytes)))
    """

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        super().__init__(
            {
                "mac": In(48),
                "udp_port": In(16),
                "answers": In(stream.Signature(Answer)),
                "text": In(8 * TEXT_BYTES),
                "heads": In(stream.Signature(Answer)),
                "values": In(stream.Signature(Beat(8 * n_bytes))),
                "o": Out(stream.Signature(FrameBeat(n_bytes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n, low, n_head = self.n_bytes, ceil_log2(self.n_bytes), HEAD_BYTES // self.n_bytes
        free = Signal()  # nothing is being sent, or its last beat leaves
        made, complete, is_read = self._make(m, free)
        head = Signal(8 * HEAD_BYTES, reset_less=True)
        body = Signal(8 * TEXT_BYTES, reset_less=True)
        sends, in_head, begins, began = signals("sends in_head begins began")
        reads = Signal(reset_less=True)
        head_left = Signal(range(n_head), reset_less=True)
        body_left = Signal(range(MAX_PAYLOAD // n + 1), reset_less=True)
        tail = Signal(low, reset_less=True)  # bytes of the last beat, less 1
        o = self.o
        waits = Signal()
        m.d.comb += [
            waits.eq(~in_head & reads & ~self.values.valid),
            o.valid.eq(sends & ~waits),
            o.p.data.eq(Mux(in_head, head[: 8 * n], Mux(reads, self.values.p.data, body[: 8 * n]))),
            o.p.last.eq(Mux(in_head, (head_left == 0) & (body_left == 0), body_left == 1)),
            o.p.keep.eq(Mux(o.p.last & ~in_head, Cat(tail >= k for k in range(n)), (1 << n) - 1)),
            self.values.ready.eq(sends & ~in_head & reads & o.ready),
            free.eq(~sends | (o.valid & o.ready & o.p.last)),
            begins.eq(complete & free),
        ]
        m.d.sync += began.eq(begins)
        with m.If(o.valid & o.ready):
            m.d.sync += [head.eq(head >> 8 * n), head_left.eq(head_left - 1)]
            with m.If(in_head):
                m.d.sync += in_head.eq(head_left != 0)
            with m.Else():
                m.d.sync += [body.eq(body >> 8 * n), body_left.eq(body_left - 1)]
            with m.If(o.p.last):
                m.d.sync += sends.eq(0)
        with m.If(began):  # while the head is there
            m.d.sync += body.eq(self.text)
        with m.If(begins):
            m.d.sync += [
                head.eq(self._head(m, made)),
                sends.eq(1),
                in_head.eq(1),
                reads.eq(is_read),
                head_left.eq(n_head - 1),
                body_left.eq((made.elems + (n - 1)) >> low),
                tail.eq((made.elems - 1)[:low]),
            ]
        return m

    def _make(self, m, free):
        """What is sent next with its checksum, whether it is complete, and of which stream it is;
        it is taken from there once `free`.
        """
        held = Signal(data.StructLayout({**Answer.members, "checksum": 16}), reset_less=True)
        busy = Signal()
        is_read = Signal(reset_less=True)
        turn = Signal()
        age = Signal(4)
        chosen = self.heads.valid & (turn | ~self.answers.valid)
        complete = age[3]
        m.d.comb += [
            self.answers.ready.eq(busy & complete & free & ~is_read),
            self.heads.ready.eq(busy & complete & free & is_read),
        ]
        source = Mux(chosen, self.heads.p.as_value(), self.answers.p.as_value())
        m.d.sync += age.eq(Cat(0, age[:3]) | Cat(0, 0, 0, complete))
        with m.If(~busy):
            m.d.sync += [
                busy.eq(self.heads.valid | self.answers.valid),
                age.eq(self.heads.valid | self.answers.valid),
                is_read.eq(chosen),
                turn.eq(~chosen),
                *(held[name].eq(data.View(Answer, source)[name]) for name in Answer.members),
            ]
        with m.Elif(complete & free):
            m.d.sync += [busy.eq(0), age.eq(0)]
        ends, total = held.ends, held.elems + (HEAD_BYTES - IPV4.start)
        mine, theirs = signals("mine theirs", 17)
        rest = Signal(20)
        words = Signal(20)
        folded = Signal(17)
        m.d.sync += [
            mine.eq(ends.me[:16] + ends.me[16:]),
            theirs.eq(ends.ip[:16] + ends.ip[16:]),
            rest.eq(total + (WITHOUT_FLAGS + DF)),
            words.eq(mine + theirs + rest),
            folded.eq(words[:16] + words[16:]),
        ]
        made = Signal.like(held)
        m.d.comb += [made.eq(held), made.checksum.eq(~(folded[:16] + folded[16]))]
        return made, complete, is_read

    def _head(self, m, made):
        """The 64 bytes, byte 0 lowest."""
        fields = PLAIN | {
            ETHERNET.destination: made.ends.mac,
            ETHERNET.source: self.mac,
            IPV4.total_length: made.elems + (HEAD_BYTES - IPV4.start),
            IPV4.checksum: made.checksum,
            IPV4.source: made.ends.me,
            IPV4.destination: made.ends.ip,
            UDP.source_port: self.udp_port,
            UDP.destination_port: made.ends.port,
            UDP.length: made.elems + (HEAD_BYTES - UDP.start),
            GRADNIC.op: Op.HOST,
            GRADNIC.last: made.last,
            HEAD.address: made.address,
            HEAD.seq: made.seq,
            HEAD.elems: made.elems,
            HEAD.kind: made.kind,
            HEAD.status: made.status,
            HEAD.session: made.arg,
        }
        head = Signal(8 * HEAD_BYTES)
        put(m, head, fields)
        return head
