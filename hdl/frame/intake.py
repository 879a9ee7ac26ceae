"""One port's way in: tells our frames from foreign ones, and keeps ours until they are whole.

Twin of `gradnic.models.frame.intake`; a part of the aggregator and of the offload card.
"""

from collections.abc import Callable

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.aggregator import MAX_FRAME
from gradnic.interface.formats import (
    GRADNIC,
    IPV4,
    UDP,
    VERSION,
)
from gradnic.interface.params import check_least, check_power
from gradnic.interface.switchml import PORT, PORT_MASK, SWITCHML, TYPE

from ..stream.beats import FrameBeat
from ..stream.block_fifo import BlockFIFO
from ..stream.delays import delayed_flag
from ..stream.fifo import FIFO
from .head import collect, reaches
from .length_guard import LengthGuard
from .packet_fifo import PacketFIFO
from .parser import plain_udp

HEAD = GRADNIC.job.stop  # bytes that tell whose frame it is
QUEUE_BEATS = 16  # more than the beats that come in until a class is known


Speaker = data.StructLayout({"ip": 32, "enabled": 1})
"""Who may speak for a job at a port, by its IPv4 address."""


def Names(n_jobs: int):
    """What tells our frames: the UDP port, and the numbers of the jobs that are enabled, native
    ones and those of SwitchML.
    """
    job = data.StructLayout({"number": 8, "enabled": 1, "switchml": 1})
    return data.StructLayout({"port": 16, "jobs": data.ArrayLayout(job, n_jobs)})


def known_jobs(names, field: Callable):
    """Which jobs' frames a head may be of, native ones and those of SwitchML: for each (flag, port
    and version are right; one bit a job, its number is); both must be.

    names : Names. field : function from a `gradnic.interface.formats.Field` to its bits in the
    head.
    """
    port = field(UDP.destination_port)
    native, switchml = (
        Cat((field(number) == job.number) & job.enabled & (job.switchml == kind)
            for job in names.jobs)
        for kind, number in enumerate((GRADNIC.job, SWITCHML.job))
    )  # fmt: skip
    return (
        ((port == names.port) & (field(GRADNIC.ver) == VERSION), native),
        ((port & PORT_MASK == PORT) & (field(SWITCHML.type) == TYPE), switchml),
    )


class Intake(wiring.Component):
    """Sorts the frames of a port: foreign ones are cut through, ours are kept until they are whole.

    A frame is ours if it is Ethernet, IPv4 without options, no fragment, UDP to the given port, or
    to one of SwitchML's, its VER (SwitchML's type) is right, its JOB is enabled there, and it comes
    from the IPv4 address of one who may speak for that job. The input waits only for foreign
    frames: those of ours that find no room are lost, and counted. 1 beat per cycle; a foreign frame
    leaves 13 cycles after its 45th byte, or its last, came in, if nothing is before it.

    Parameters
    ----------
    n_bytes, n_jobs : int
        Bytes of a beat, 16, 32, 64 or 128; places in the table of jobs.
    n_senders : int
        Who may speak for each job here, at most; at least 1, as `n_jobs`.
    meta_width : int
        Bits of side band, which foreign frames keep and ours lose.

    Members
    -------
    i, foreign : In, Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
    names, senders : In(Names(n_jobs)), In(ArrayLayout(ArrayLayout(Speaker, n_senders), n_jobs))
        Read once per frame.
    ours : Out(stream.Signature(FrameBeat(n_bytes)))
    crossed, oversize, overrun : Out(1)
        One cycle per frame: foreign; cut for its length; ours and lost.
    """

    def __init__(
        self, n_bytes: int, n_jobs: int, *, n_senders: int = 1, meta_width: int = 0
    ) -> None:
        check_power("n_bytes", n_bytes, 16, 128)
        check_least("n_jobs", n_jobs, 1)
        check_least("n_senders", n_senders, 1)
        self.n_bytes, self.meta_width = n_bytes, meta_width
        self.n_beats = max(512, MAX_FRAME // n_bytes)
        self.shape = FrameBeat(n_bytes, meta_width=meta_width)
        self.ours_shape = FrameBeat(n_bytes)
        frames = stream.Signature(self.shape)
        super().__init__(
            {
                "i": In(frames),
                "names": In(Names(n_jobs)),
                "senders": In(data.ArrayLayout(data.ArrayLayout(Speaker, n_senders), n_jobs)),
                "foreign": Out(frames),
                "ours": Out(stream.Signature(self.ours_shape)),
                "crossed": Out(1),
                "oversize": Out(1),
                "overrun": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.guard = guard = LengthGuard(
            self.n_bytes, meta_width=self.meta_width, max_bytes=MAX_FRAME
        )
        m.submodules.beats = beats = FIFO(self.shape, QUEUE_BEATS)
        # Never fills: it holds no more frames than there are beats in the queue and its output.
        m.submodules.classes = classes = FIFO(1, 2 * QUEUE_BEATS)
        m.submodules.foreign = foreign = BlockFIFO(self.shape, self.n_beats)
        m.submodules.ours = ours = PacketFIFO(self.ours_shape, self.n_beats, drop=None, lossy=True)
        wiring.connect(m, wiring.flipped(self.i), guard.i)
        wiring.connect(m, guard.o, beats.i)
        wiring.connect(m, foreign.o, wiring.flipped(self.foreign))
        wiring.connect(m, ours.o, wiring.flipped(self.ours))
        self._classify(m, beats.i, classes.i)

        beat, own = beats.o, classes.o.payload
        passes = Signal()
        m.d.comb += [
            passes.eq(classes.o.valid & (own | foreign.i.ready)),
            beat.ready.eq(passes),
            classes.o.ready.eq(passes & beat.valid & beat.p.last),
            foreign.i.valid.eq(beat.valid & classes.o.valid & ~own),
            foreign.i.p.eq(beat.p),
            ours.i.valid.eq(beat.valid & classes.o.valid & own),
            *(ours.i.p[name].eq(beat.p[name]) for name in self.ours_shape.members),
            self.overrun.eq(ours.overflow),
            self.oversize.eq(guard.oversize),
        ]
        m.d.sync += self.crossed.eq(classes.o.valid & classes.o.ready & ~own)
        return m

    def _classify(self, m, beats, classes):
        """One bit per frame, 3 cycles after the byte that tells it."""
        head, take, complete, index = collect(m, beats, self.n_bytes, n_head=HEAD)
        field, stops = head.field, (GRADNIC.job.stop, SWITCHML.job.stop)
        whole = Signal(2, reset_less=True)
        m.d.comb += classes.valid.eq(delayed_flag(m, complete, 3, name="valid"))
        with m.If(take):
            m.d.sync += whole.eq(reaches(beats, index, self.n_bytes, stops, n_head=HEAD))
        tests = Cat(plain_udp(field).values())
        passed = Signal(len(tests), reset_less=True)
        m.d.sync += passed.eq(tests)
        speaks = Signal(len(self.names.jobs), reset_less=True)  # for which jobs the sender may
        source = field(IPV4.source)
        heard = [
            Signal(len(some), name=f"heard{k}", reset_less=True)
            for k, some in enumerate(self.senders)
        ]
        for some, flags in zip(self.senders, heard, strict=True):
            m.d.sync += flags.eq(Cat(one.enabled & (one.ip == source) for one in some))
        m.d.comb += speaks.eq(Cat(flags.any() for flags in heard))
        ours = []
        formats = zip(known_jobs(self.names, field), whole, strict=True)
        for k, ((port, jobs), ends) in enumerate(formats):
            listens = Signal(name=f"listens{k}", reset_less=True)
            knows = Signal(len(jobs), name=f"knows{k}", reset_less=True)
            m.d.sync += [listens.eq(port & ends), knows.eq(jobs)]
            ours.append(listens & (knows & speaks).any())
        m.d.sync += classes.payload.eq(passed.all() & Cat(ours).any())
