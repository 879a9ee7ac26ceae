"""Frames to the host address: stored whole, judged, and their payload handed on or dropped.

Part of `gradnic.hdl.offload.host_port`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.formats import HEAD_BYTES
from gradnic.interface.host_frame import MAX_PAYLOAD, Drop
from gradnic.interface.inline import Fate

from ..frame.gate import store_and_check
from ..frame.length_guard import LengthGuard
from ..frame.packet_fifo import PacketFIFO
from ..frame.store import COUNT_WIDTH, ReadJob
from ..stream.beats import FrameBeat
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from .host_parser import Asked, HostParser

STORE_BYTES = 32768  # of frames that wait; those behind them are lost
LONGEST = MAX_PAYLOAD + 2 * HEAD_BYTES  # bytes; longer ones are cut, and lost
N_FRAMES = 32  # of which the end was seen, but no verdict yet


def Judged(n_bytes: int):
    """A frame that is whole: why it is dropped, or what it asks; how it is stored.

    tail : bytes of the last beat of payload, less 1.
    """
    stored = {"n_stored": COUNT_WIDTH, "n_read": COUNT_WIDTH, "tail": ceil_log2(n_bytes)}
    return data.StructLayout({"drop": 3, "asked": Asked, **stored})


def Taken(n_bytes: int):
    """What becomes of a frame's payload: ``n_read`` 0 drops it; ``is_text`` : it is no memory's."""
    return data.StructLayout({**ReadJob().members, "tail": ceil_log2(n_bytes), "is_text": 1})


def PayloadBeat(n_bytes: int):
    """A beat of a payload that is read; ``is_text`` : it is no memory's."""
    return data.StructLayout({"data": 8 * n_bytes, "keep": n_bytes, "last": 1, "is_text": 1})


class HostIntake(wiring.Component):
    """1 beat per cycle; never waits: frames without room are lost.

    A frame is offered about 25 cycles after its last beat, its payload 3 cycles after it was taken.

    Parameters
    ----------
    n_bytes : int
        Bytes of a beat, 16, 32 or 64.

    Members
    -------
    i : In(stream.Signature(FrameBeat(n_bytes)))
        Always ready.
    udp_port : In(16)
    frames : Out(stream.Signature(Judged(n_bytes)))
    takes : In(stream.Signature(Taken(n_bytes)))
        One per frame, in order.
    values : Out(stream.Signature(PayloadBeat(n_bytes)))
        Payloads that are read.
    bad, overrun : Out(1), Out(2)
        Frames marked bad; without room, or too long: so many.
    """

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        super().__init__(
            {
                "i": In(stream.Signature(FrameBeat(n_bytes))),
                "udp_port": In(16),
                "frames": Out(stream.Signature(Judged(n_bytes))),
                "takes": In(stream.Signature(Taken(n_bytes))),
                "values": Out(stream.Signature(PayloadBeat(n_bytes))),
                "bad": Out(1),
                "overrun": Out(2),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n, low = self.n_bytes, ceil_log2(self.n_bytes)
        m.submodules.guard = guard = LengthGuard(n, max_bytes=LONGEST)
        m.submodules.whole = whole = PacketFIFO(
            FrameBeat(n), STORE_BYTES // n, drop="bad", lossy=True
        )
        m.submodules.parser = parser = HostParser(n)
        wiring.connect(m, wiring.flipped(self.i), guard.i)
        wiring.connect(m, guard.o, whole.i)
        wiring.connect(m, whole.o, parser.i)
        n_slots = 1 << ceil_log2(LONGEST // n)
        store, records, verdicts, _ = store_and_check(m, parser, n_slots=n_slots, n_frames=N_FRAMES)
        m.submodules.judged = judged = Slice(Judged(n), half_rate=True)
        wiring.connect(m, judged.o, wiring.flipped(self.frames))
        facts, verdict, frame = records.p.facts, verdicts.p, judged.i.p
        broken = Mux(verdict.fate == Fate.CHECKSUM, Drop.CHECKSUM, Drop.LENGTH)
        sound = Mux(facts.formed, Drop.NONE, Drop.FORMAT)
        m.d.comb += [
            parser.udp_port.eq(self.udp_port),
            judged.i.valid.eq(records.valid & verdicts.valid),
            records.ready.eq(judged.i.ready & verdicts.valid),
            verdicts.ready.eq(judged.i.ready & records.valid),
            frame.drop.eq(
                Mux(facts.foreign, Drop.FOREIGN, Mux(verdict.fate == Fate.CODED, sound, broken))
            ),
            frame.asked.eq(facts.asked),
            frame.n_stored.eq(records.p.n_beats),
            frame.n_read.eq((facts.check.end + (n - 1)) >> low),
            frame.tail.eq((facts.asked.elems - 1)[:low]),
        ]
        m.d.sync += [
            self.bad.eq(self.i.valid & self.i.ready & self.i.p.last & self.i.p.bad),
            self.overrun.eq(whole.overflow + guard.oversize),
        ]
        self._deliver(m, store)
        return m

    def _deliver(self, m, store):
        """What is read of a frame, without its head."""
        n, n_head = self.n_bytes, HEAD_BYTES // self.n_bytes
        kind = data.StructLayout({"tail": ceil_log2(n), "is_text": 1})
        m.submodules.kinds = kinds = FIFO(kind, 4)
        m.submodules.jobs = jobs = Slice(ReadJob(), half_rate=True)
        wiring.connect(m, jobs.o, store.jobs)
        took, reads = self.takes, self.takes.p.n_read != 0
        m.d.comb += [
            took.ready.eq(jobs.i.ready & kinds.i.ready),
            jobs.i.valid.eq(took.valid & kinds.i.ready),
            jobs.i.p.n_read.eq(took.p.n_read),
            jobs.i.p.n_stored.eq(took.p.n_stored),
            kinds.i.valid.eq(took.valid & jobs.i.ready & reads),
            kinds.i.p.tail.eq(took.p.tail),
            kinds.i.p.is_text.eq(took.p.is_text),
        ]
        frames, o = store.o, self.values
        left = Signal(range(n_head), init=n_head - 1)
        in_body = Signal()
        ends = Cat(kinds.o.p.tail >= k for k in range(n))
        m.d.comb += [
            o.valid.eq(frames.valid & kinds.o.valid & in_body),
            o.p.data.eq(frames.p.data),
            o.p.last.eq(frames.p.last),
            o.p.keep.eq(Mux(frames.p.last, ends, (1 << n) - 1)),
            o.p.is_text.eq(kinds.o.p.is_text),
            frames.ready.eq(kinds.o.valid & (~in_body | o.ready)),
            kinds.o.ready.eq(frames.valid & frames.ready & frames.p.last),
        ]
        with m.If(frames.valid & frames.ready):
            m.d.sync += [left.eq(left - 1), in_body.eq(in_body | (left == 0))]
            with m.If(frames.p.last):
                m.d.sync += [left.eq(n_head - 1), in_body.eq(0)]
