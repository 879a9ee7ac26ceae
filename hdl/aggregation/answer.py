"""Makes frames of the slots' answers, and copies them to the children's ports.

Twin of `gradnic.models.aggregation.answer`; a part of the aggregator.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.aggregator import MAX_FRAME
from gradnic.interface.formats import AGGREGATOR, ETHERNET, GRADNIC, HEAD_BYTES, IPV4, UDP
from gradnic.interface.params import check_range
from gradnic.interface.switchml import PORT, SWITCHML, TYPE, VALUES

from ..frame.egress import Event
from ..frame.intake import Names
from ..frame.packet_fifo import PacketFIFO
from ..frame.plain_head import DF, PLAIN, WITHOUT_FLAGS, put
from ..frame.queue_rules import MOST_BEATS, port_members, ruled_queues
from ..primitive.names import signals
from ..primitive.zeroed_table import ZeroedTable
from ..stream.beats import Beat, FrameBeat
from ..stream.delays import delayed, delayed_flag
from ..stream.slice import Slice
from .parser import Child, ChildWrite, check_shape, index_width, turned_words
from .slot_records import MAX_CHILDREN, Answer

IMPORTANT_ECT = 2
LEAD = 4  # cycles from a copy's announcement to its first beat

CUT = HEAD_BYTES - SWITCHML.stop  # bytes that SwitchML's head is shorter

Notice = data.StructLayout(
    {"children": MAX_CHILDREN, "job": 4, "sum": 20, "switchml": 1, "udp_port": 16}
)
"""Who gets the frame that comes; sum of its IPv4 header but for the destination; and, if it is
SwitchML's, the UDP port that it goes to, which all copies share."""


def Sender(n_jobs):
    """Settings: the aggregator's addresses, and the numbers of the jobs."""
    return data.StructLayout({"mac": 48, "ip": 32, "names": Names(n_jobs)})


class AnswerFramer(wiring.Component):
    """Puts a head before each answer's payload: 1 beat per cycle, frames back to back.

    What differs between the copies (addresses, UDP port, IPv4 checksum) is 0, for `AnswerPort` to
    fill in. The first beat of a frame follows its notice by `LEAD` cycles, or as soon as the sum is
    there (SwitchML's, 64-byte beats); nothing else waits.

    Parameters
    ----------
    n_bytes, n_jobs : int
        Bytes of a beat, 16, 32 or 64; places in the table of jobs, 1 to 16.

    Members
    -------
    sender : In(Sender(n_jobs))
    answers : In(stream.Signature(Answer))
    sums : In(stream.Signature(Beat(8 * n_bytes)))
    notice_valid, notice : Out(1), Out(Notice)
    valid, beat : Out(1), Out(FrameBeat(n_bytes))
    """

    def __init__(self, n_bytes: int, n_jobs: int) -> None:
        check_shape(n_bytes, n_jobs=n_jobs)
        self.n_bytes, self.n_jobs = n_bytes, n_jobs
        super().__init__(
            {
                "sender": In(Sender(n_jobs)),
                "answers": In(stream.Signature(Answer)),
                "sums": In(stream.Signature(Beat(8 * n_bytes))),
                "notice_valid": Out(1),
                "notice": Out(Notice),
                "valid": Out(1),
                "beat": Out(FrameBeat(n_bytes)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n, sized = self.n_bytes, self._sized(m)
        # the frame under way: its head, as long as `left` says, then its payload
        n_head = HEAD_BYTES // n
        head = Signal(8 * HEAD_BYTES, reset_less=True)
        left = Signal(range(n_head + 1))
        body = Signal()
        empty, cut = signals("empty cut", reset_less=True)
        tail = Signal(ceil_log2(n), reset_less=True)  # bytes of the payload's last beat, less 1
        load, ends, in_head = signals("load ends in_head")
        valid = Signal()
        beat = Signal(FrameBeat(n))
        m.d.comb += [
            in_head.eq(left != 0),
            valid.eq(in_head | (body & self.sums.valid)),
            self.sums.ready.eq(body & ~in_head),
            beat.last.eq(Mux(in_head, empty & (left == 1), self.sums.p.last)),
            beat.data.eq(
                Mux(
                    in_head,
                    head[: 8 * n],
                    Mux(cut, turned_words(self.sums.p.data), self.sums.p.data),
                )
            ),
            beat.keep.eq(Cat(in_head | ~beat.last | (tail >= k) for k in range(n))),
            ends.eq(valid & beat.last),
            load.eq(sized.valid & (ends | ~(in_head | body))),
            sized.ready.eq(load),
        ]
        with m.If(in_head):
            m.d.sync += [left.eq(left - 1), head.eq(head >> 8 * n)]
        with m.If(ends):
            m.d.sync += body.eq(0)
        with m.If(load):
            m.d.sync += [
                left.eq(n_head),
                head.eq(self._head(m, sized.p)),
                body.eq(sized.p.answer.length != 0),
                empty.eq(sized.p.answer.length == 0),
                tail.eq(sized.p.answer.length - 1),
                cut.eq(sized.p.switchml),
            ]
        answer, switchml = sized.p.answer, sized.p.switchml
        native = self._tos(answer.lc) + DF
        m.d.sync += [
            self.notice_valid.eq(load),
            self.notice.children.eq(answer.children),
            self.notice.job.eq(answer.job),
            self.notice.switchml.eq(switchml),
            self.notice.udp_port.eq(answer.tensor),
            self.notice.sum.eq(
                (self.sender.ip[:16] + self.sender.ip[16:])
                + (sized.p.total + WITHOUT_FLAGS + Mux(switchml, 0, native))
            ),
        ]
        # the notice is out one cycle after the load, and so is the first beat
        moves, in_body = cut & (left <= 1), cut & (left == 0)
        valid, beat = self._shorten(m, valid, beat, moves, in_body)
        m.d.comb += [
            self.valid.eq(delayed_flag(m, valid, LEAD - 1, name="valid")),
            self.beat.eq(delayed(m, beat, LEAD - 1, name="beat")),
        ]
        return m

    def _sized(self, m):
        """Answers with the lengths of their heads, and their jobs' numbers and formats."""
        prepared = data.StructLayout(
            {"answer": Answer, "total": 16, "udp": 16, "number": 8, "switchml": 1}
        )
        m.submodules.sized = sized = Slice(prepared)
        answer, jobs = self.answers.p, self.sender.names.jobs
        number, switchml = Const(0, 8), Const(0, 1)
        for k in range(self.n_jobs):
            number = Mux(answer.job == k, jobs[k].number, number)
            switchml = Mux(answer.job == k, jobs[k].switchml, switchml)
        stop = Mux(switchml, SWITCHML.stop, HEAD_BYTES)
        m.d.comb += [
            sized.i.valid.eq(self.answers.valid),
            self.answers.ready.eq(sized.i.ready),
            sized.i.p.answer.eq(answer),
            sized.i.p.total.eq(answer.length + (stop - IPV4.start)),
            sized.i.p.udp.eq(answer.length + (stop - UDP.start)),
            sized.i.p.number.eq(number),
            sized.i.p.switchml.eq(switchml),
        ]
        return sized.o

    def _shorten(self, m, valid, beat, moves, in_body):
        """Takes the last `CUT` bytes out of a SwitchML frame's head: what follows `moves` up.

        Beats leave a cycle later, or as soon as the next one is there: (valid, beat).
        """
        n = self.n_bytes
        held = Signal(FrameBeat(n), reset_less=True)
        out = Signal(FrameBeat(n))
        goes = Signal()
        waits = Signal()
        moved, shifted = signals("moved shifted", reset_less=True)
        with m.If(valid):
            m.d.sync += [held.eq(beat), moved.eq(moves), shifted.eq(in_body)]
        kept = held.data[: 8 * (n - CUT)]
        spliced = Cat(Mux(shifted, held.data[8 * CUT :], kept), beat.data[: 8 * CUT])
        m.d.sync += waits.eq(valid | (waits & ~goes))
        m.d.comb += [
            goes.eq(waits & (valid | held.last | ~moved)),
            out.eq(held),
            out.data.eq(Mux(moved, spliced, held.data)),
            out.keep.eq(Mux(shifted & held.last, held.keep >> CUT, held.keep)),
        ]
        return goes, out

    @staticmethod
    def _tos(lc):
        return Cat(Const(IMPORTANT_ECT, 5), ~lc)  # DSCP 8 * (7 - LC)

    def _head(self, m, sized):
        """The 64 bytes, byte 0 lowest; addresses of the receiver and the IPv4 checksum are 0."""
        answer = sized.answer
        head = Signal(8 * HEAD_BYTES)
        fields = PLAIN | {
            ETHERNET.source: self.sender.mac,
            IPV4.tos: self._tos(answer.lc),
            IPV4.total_length: sized.total,
            IPV4.source: self.sender.ip,
            UDP.source_port: self.sender.names.port,
            UDP.length: sized.udp,
            GRADNIC.ph: 1,
            GRADNIC.imp: 1,
            GRADNIC.set: answer.gen[0],
            GRADNIC.job: sized.number,
            GRADNIC.src: AGGREGATOR,
        }
        same = ("op", "gen", "slot", "lc", "tensor", "tree", "seq", "elems", "p0", "p1", "arg")
        same += ("last", "retx", "ovf", "ecn", "part")
        fields |= {GRADNIC[name]: answer[name] for name in same}
        switchml = {
            IPV4.tos: 0,
            IPV4.dont_fragment: 0,
            UDP.source_port: PORT | answer.tree[:4],
            SWITCHML.type: TYPE,
            SWITCHML.size: Mux(answer.elems == 256, VALUES[256], VALUES[64]),
            SWITCHML.job: sized.number,
            SWITCHML.packet: answer.arg,
            SWITCHML.set: answer.gen[0],
            SWITCHML.slot: answer.slot,
            SWITCHML.e0: answer.p0,
            SWITCHML.e1: answer.p1,
        }

        native = {field: value for field, value in fields.items() if field.byte >= GRADNIC.start}
        put(m, head, {field: value for field, value in fields.items() if field not in native})
        with m.If(sized.switchml):
            put(m, head, switchml)
        with m.Else():
            put(m, head, native)
        return head


class AnswerPort(wiring.Component):
    """One port's copies: takes the frames that are for its child, and fills in its addresses.

    Never waits: a copy that finds no room is lost whole, and counted. A frame leaves 7 cycles
    after its last beat came; 1 beat per cycle. With `queued` copies wait in eight queues instead of
    one, which drop or mark them as of `EgressQueues`, and leave 10 cycles after.

    Parameters
    ----------
    n_bytes, n_ports, n_jobs : int
        Bytes of a beat, 16, 32 or 64; pairs of ports, 1 to 32; places in the table of jobs, 1 to
        16.
    number : int
        Of this port, below `n_ports`.
    queued : int
        0, or beats of the longest answer, up to 256.

    Members
    -------
    notice_valid, notice, valid, beat : In
        From `AnswerFramer`.
    write : In(ChildWrite(n_ports, n_jobs))
    o : Out(stream.Signature(FrameBeat(n_bytes)))
    copied, lost : Out(1)
        One cycle per copy; per copy that was lost.
    rules, shown, count, judged, dequeued
        With `queued`: see `port_members`, and `EgressQueues` for its events.
    """

    def __init__(
        self, n_bytes: int, n_ports: int, n_jobs: int, number: int, *, queued: int = 0
    ) -> None:
        check_shape(n_bytes, n_ports=n_ports, n_jobs=n_jobs)
        check_range("number", number, 0, n_ports - 1)
        check_range("queued", queued, 0, MOST_BEATS)
        self.n_bytes, self.n_jobs, self.number, self.queued = n_bytes, n_jobs, number, queued
        events = {"judged": Out(Event), "dequeued": Out(Event)}
        super().__init__(
            {
                "notice_valid": In(1),
                "notice": In(Notice),
                "valid": In(1),
                "beat": In(FrameBeat(n_bytes)),
                "write": In(ChildWrite(n_ports, n_jobs)),
                "o": Out(stream.Signature(FrameBeat(n_bytes))),
                "copied": Out(1),
                "lost": Out(1),
                **(port_members() | events if queued else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n_bytes
        m.submodules.children = children = ZeroedTable(Child, 2 ** index_width(self.n_jobs))
        child = Signal(Child, reset_less=True)
        m.d.comb += [
            children.write_en.eq(self.write.enable & (self.write.port == self.number)),
            children.write_addr.eq(self.write.job),
            children.write_data.eq(self.write.child),
            children.read_addr.eq(self.notice.job),
        ]
        # the copy's fields are ready with its first beat, `LEAD` cycles after the notice
        m.d.sync += child.eq(children.read_data)
        sums = delayed(m, self.notice.sum, 1, name="sum")
        wanted = delayed(m, self.notice.children, 1, name="children")
        total = Signal(21, reset_less=True)
        folded = Signal(17, reset_less=True)
        chosen = Signal(reset_less=True)
        m.d.sync += [
            total.eq(sums + child.ip[:16] + child.ip[16:]),
            chosen.eq(child.enabled & wanted.bit_select(child.src, 1)),
            folded.eq(total[:16] + total[16:]),
        ]
        to = Signal(Child, reset_less=True)
        port = Signal(16, reset_less=True)
        checksum = Signal(16, reset_less=True)
        takes = Signal()
        child = delayed(m, child, LEAD - 2, name="child")
        shared = delayed(m, Cat(self.notice.switchml, self.notice.udp_port), LEAD - 1, name="port")
        chosen = delayed(m, chosen, LEAD - 3, name="chosen")
        with m.If(delayed_flag(m, self.notice_valid, LEAD - 1, name="notice_valid")):
            m.d.sync += [
                to.eq(child),
                port.eq(Mux(shared[0], shared[1:], child.udp_port)),
                checksum.eq(~(folded[:16] + folded[16])),
                takes.eq(chosen),
            ]
        m.submodules.store = store = self._store(m)
        wiring.connect(m, store.o, wiring.flipped(self.o))
        m.d.comb += [
            store.i.valid.eq(self.valid & takes),
            store.i.p.eq(self.beat),
        ]
        m.d.sync += self.copied.eq(store.i.valid & self.beat.last)
        index = Signal(range(HEAD_BYTES // n + 1))
        with m.If(self.valid):
            with m.If(self.beat.last):
                m.d.sync += index.eq(0)
            with m.Elif(index != HEAD_BYTES // n):
                m.d.sync += index.eq(index + 1)
        for field, value in (
            (ETHERNET.destination, to.mac),
            (IPV4.checksum, checksum),
            (IPV4.destination, to.ip),
            (UDP.destination_port, port),
        ):
            for octet in range(field.n_bytes):
                byte = field.byte + octet
                low = 8 * (field.n_bytes - 1 - octet)
                place = 8 * (byte % n)
                with m.If(index == byte // n):
                    m.d.comb += store.i.p.data[place : place + 8].eq(value[low : low + 8])
        return m

    def _store(self, m):
        n = self.n_bytes
        if not self.queued:
            store = PacketFIFO(FrameBeat(n), MAX_FRAME // n, drop=None, lossy=True)
            m.d.comb += self.lost.eq(store.overflow)
            return store
        queues = ruled_queues(m, n, self.queued, self)
        m.d.comb += [self.judged.eq(queues.event), self.dequeued.eq(queues.dequeued)]
        m.d.sync += self.lost.eq(queues.event.valid & queues.event.what[1])  # dropped
        return queues
