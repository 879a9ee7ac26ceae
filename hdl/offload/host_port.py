"""The card's end of host frames: memory, registers and jobs for the host's own frames.

Golden model: `gradnic.models.offload.host_port`. Format and rules: docs/spec/wire.md.
"""

from types import SimpleNamespace

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.host_frame import MAX_PAYLOAD, Kind

from ..axi.axi4 import ReadPort, WritePort
from ..axi.axis import Lite
from ..axi.dma import WriteEngine
from ..frame.packet_fifo import PacketFIFO
from ..primitive.same import by_name, same
from ..primitive.target import with_exit
from ..stream.beats import FrameBeat
from . import host_states as states
from .host_events import HostEvents
from .host_framer import Answer, HostFramer
from .host_intake import LONGEST, HostIntake, Judged
from .host_judge import HostJudge
from .host_parser import Ends
from .host_reader import HostReader
from .host_registers import HostRegisters
from .host_text import HostText
from .host_writes import HostWrites
from .job_records import Descriptor, Record

COUNTED = ("frames", "foreign", "length", "checksum", "format", "late", "gaps", "strangers")


class HostPort(wiring.Component):
    """Takes frames to the host address, and makes the frames that come back.

    WRITEs and DATA go at 1 beat a cycle each, at the same time; a frame is looked at about 30
    cycles after its last beat, another one 6 cycles later. Frames come and go whole: no stream
    pauses in the middle of an answer.

    Parameters
    ----------
    n_bytes, address_width : int
        Bytes of a beat, 16, 32 or 64; see `gradnic.hdl.axi.axi4.ReadPort`.
    register_width : int
        Bits of a byte address of registers.
    build : dict
        Fields of `gradnic.interface.host_frame.HELLO` that tell what the card was built with.

    Members
    -------
    i, o : In, Out(stream.Signature(FrameBeat(n_bytes)))
    mac, udp_port : In(48), In(16)
        The host address, our UDP port.
    regions : In(ArrayLayout(Region, 2))
        Where READ and WRITE may go.
    read, write : Out(ReadPort), Out(WritePort)
    bus : Out(Lite(register_width))
    job, posts, posted, full : Out(Descriptor), Out(1), In(1), In(1)
        While ``posts``, ``job`` is to be posted, until it is ``posted`` or all is ``full``.
    events, t_event : In(1), In(32)
        Completions go out as frames; cycles between copies.
    record_valid, record, take : In(1), In(Record), Out(1)
        The oldest completion; it leaves as ``take`` is 1.
    bad, overrun : Out(1), Out(2)
        See `HostIntake`.
    <each of `COUNTED`> : Out(1)
        A pulse: a frame that is whole; dropped, by reason; a copy; ahead; of another session.
    """

    def __init__(self, n_bytes: int, address_width: int, register_width: int, build: dict) -> None:
        self.n_bytes, self.address_width = n_bytes, address_width
        self.register_width = register_width
        self.intake, self.framer = HostIntake(n_bytes), HostFramer(n_bytes)
        self.reader = HostReader(n_bytes, address_width)
        self.writer = WriteEngine(n_bytes, address_width, n_regions=2)
        self.registers = HostRegisters(register_width)
        self.judge = HostJudge(n_bytes, address_width, register_width)
        self.text, self.writes = HostText(n_bytes, address_width, build), HostWrites()
        self.timer = HostEvents()
        frames = stream.Signature(FrameBeat(n_bytes))
        super().__init__(
            {
                "i": In(frames),
                "o": Out(frames),
                "mac": In(48),
                "udp_port": In(16),
                "regions": In(self.writer.splitter.regions_shape),
                "read": Out(ReadPort(n_bytes, address_width)),
                "write": Out(WritePort(n_bytes, address_width)),
                "bus": Out(Lite(register_width)),
                "job": Out(Descriptor),
                "posts": Out(1),
                "posted": In(1),
                "full": In(1),
                "events": In(1),
                "t_event": In(32),
                "record_valid": In(1),
                "record": In(Record),
                "take": Out(1),
                "bad": Out(1),
                "overrun": Out(2),
                **{name: Out(1) for name in COUNTED},
            }
        )  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.intake, m.submodules.framer = intake, framer = self.intake, self.framer
        m.submodules.reader, m.submodules.writer = reader, writer = self.reader, self.writer
        m.submodules.registers = registers = self.registers
        m.submodules.judge = self.judge
        m.submodules.text, m.submodules.writes = text, writes = self.text, self.writes
        # the line never waits in the middle of an answer, whatever memory does
        m.submodules.whole = whole = PacketFIFO(
            FrameBeat(self.n_bytes), 2 * LONGEST // self.n_bytes, drop="bad"
        )
        for source, sink in (
            (wiring.flipped(self.i), intake.i), (reader.port, wiring.flipped(self.read)),
            (writer.port, wiring.flipped(self.write)), (registers.bus, wiring.flipped(self.bus)),
            (reader.heads, framer.heads), (reader.values, framer.values),
            (framer.o, whole.i), (whole.o, wiring.flipped(self.o)),
            (intake.values, text.values), (text.beats, writer.beats),
        ):  # fmt: skip
            wiring.connect(m, source, sink)
        m.d.comb += [
            framer.text.eq(text.text),
            registers.text.eq(text.text),
            *same(text, registers, "place word enable"),
            text.record.eq(self.record),
            self.job.eq(text.job),
            writes.ended.eq(writer.done),
            writes.stored.eq(writer.stored),
            *(part.udp_port.eq(self.udp_port) for part in (intake, framer)),
            framer.mac.eq(self.mac),
            *(part.regions.eq(self.regions) for part in (reader, writer, text, self.judge)),
            self.bad.eq(intake.bad),
            self.overrun.eq(intake.overrun),
        ]
        self._session(m)
        self._act(m)
        return m

    def _session(self, m):
        """What is of the session, what is due by time, and the frame that is looked at."""
        self.is_open = Signal()
        self.session = Signal(32)
        self.ends = Signal(Ends)
        self.unit = Signal(16, init=MAX_PAYLOAD)
        self.expected = Signal(24)  # SEQ of the request to be taken
        self.takes = Signal()  # the oldest completion was acknowledged
        self.frame = Signal(Judged(self.n_bytes), reset_less=True)
        m.submodules.timer = timer = self.timer
        m.d.comb += [
            self.judge.asked.eq(self.frame.asked),
            *same(self.judge, self, "is_open session expected"),
            *same(self.reader, self, "ends session unit"),
            self.reader.next.eq(states.credit(self)),
            self.text.unit.eq(self.unit),
            timer.waits.eq(self.record_valid & ~self.take & self.events & self.is_open),
            timer.t_event.eq(self.t_event),
            timer.taken.eq(self.takes),
        ]
        m.d.sync += self.take.eq(self.takes)

    def _act(self, m):
        """One frame after the other; between them, what is due by time."""
        frame, asked, intake, reader = self.frame, self.frame.asked, self.intake, self.reader
        answer = Signal(Answer)
        pending = Signal()  # the frame was not taken yet
        status = Signal(8)
        take, ranges = intake.takes, self.writer.ranges
        is_kind = {kind: Signal(name=f"is_{kind.name.lower()}") for kind in Kind}
        judge, writes = self.judge, self.writes
        heard = Signal()  # an ACK of the event that was told
        reading = Signal()
        m.d.sync += [
            heard.eq(asked.seq == self.timer.seq),
            reading.eq(reader.busy),
            *(flag.eq(asked.kind == int(kind)) for kind, flag in is_kind.items()),
        ]
        accepts = is_kind[Kind.WRITE] & judge.right & ~writes.failed
        waits = ~writes.settled | ((is_kind[Kind.HELLO] | is_kind[Kind.WRITE_REG]) & reading)
        m.d.comb += [
            self.framer.answers.p.eq(answer),
            take.p.n_stored.eq(frame.n_stored),
            take.p.tail.eq(frame.tail),
            take.p.is_text.eq(~is_kind[Kind.WRITE]),
            writes.first.eq(asked.seq + 1),
            *same(ranges.p, judge, "region offset n_beats"),
            *same(reader, judge, "region offset n_beats"),
            *same(reader.reads.p, asked, "address seq elems"),
            self.registers.writes.eq(is_kind[Kind.WRITE_REG]),
            self.registers.address.eq(asked.address),
            self.registers.n_words.eq(asked.elems >> 2),
        ]
        w = SimpleNamespace(
            answer=answer, pending=pending, status=status, is_kind=is_kind, accepts=accepts,
            waits=waits, heard=heard,
        )  # fmt: skip
        self.counts = {name: by_name(self)[name] for name in COUNTED}
        m.d.sync += [pulse.eq(0) for pulse in self.counts.values()]
        with m.FSM() as fsm:
            states.listen(m, self, w)
            states.act(m, self, w)
            states.carry_out(m, self, w)
            states.answer(m, self, w)
            states.tell(m, self, w)
        with_exit(fsm)
