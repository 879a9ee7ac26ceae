"""One port's way in: tells our frames from foreign ones, and keeps ours until they are whole."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..aggregator import MAX_FRAME
from ..formats import ETHERNET, ETHERTYPE_IPV4, GRADNIC, IP_PROTOCOL_UDP, IPV4, UDP
from .fifo import FIFO
from .guard import LengthGuard
from .ring import BlockFIFO, Ring
from .streams import FrameBeat

HEAD = GRADNIC.job.stop  # bytes that tell whose frame it is
QUEUE_BEATS = 16  # more than the beats that come in until a class is known


def Names(n_jobs):
    """What tells our frames: the UDP port, and the numbers of the jobs that are enabled."""
    job = data.StructLayout({"number": 8, "enabled": 1})
    return data.StructLayout({"port": 16, "jobs": data.ArrayLayout(job, n_jobs)})


class DropTail(wiring.Component):
    """Keeps whole frames; loses those that do not fit, and never waits.

    A frame leaves once its last beat is in, 7 cycles later; 1 beat per cycle. A frame that finds
    no room for one of its beats vanishes, and so does one whose last beat says `drop`.

    Parameters
    ----------
    shape : data.StructLayout
        With a field ``last``.
    depth : int
        Beats, 4 to 16384, not fewer than the longest frame has.

    Members
    -------
    i : In(stream.Signature(shape))
        ``ready`` is always 1.
    drop : In(1)
        Counts with the last beat.
    o : Out(stream.Signature(shape))
    lost : Out(1)
        One cycle for each frame that did not fit.
    """

    def __init__(self, shape, depth):
        self.shape = shape
        self.ring = Ring(shape, depth)
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "drop": In(1),
                "o": Out(stream.Signature(shape)),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ring = ring = self.ring
        wiring.connect(m, ring.o, wiring.flipped(self.o))
        losing = Signal()  # the rest of this frame is not stored
        inside = Signal()  # the ring holds beats of a frame that has not ended
        owed = Signal()  # they are to be discarded, with the next beat that the ring takes
        stores = Signal()
        last = self.i.p.last
        m.d.comb += [
            self.i.ready.eq(1),
            stores.eq(self.i.valid & ring.i.ready & ~losing & ~owed),
            ring.i.p.eq(self.i.p),
            ring.i.valid.eq((self.i.valid & ~losing) | owed),
            ring.commit.eq(stores & last & ~self.drop),
            ring.discard.eq(owed | (last & self.drop)),
        ]
        m.d.sync += self.lost.eq(self.i.valid & last & ~stores & ~self.drop)
        with m.If(owed & ring.i.ready):
            m.d.sync += owed.eq(0)
        with m.If(self.i.valid):
            m.d.sync += losing.eq(~last & (losing | ~stores))
            with m.If(stores):
                m.d.sync += inside.eq(~last)
            with m.Elif(inside):
                m.d.sync += [inside.eq(0), owed.eq(1)]
        return m


class Intake(wiring.Component):
    """Sorts the frames of a port: foreign ones are cut through, ours are kept until they are whole.

    A frame is ours if it is Ethernet, IPv4 without options, no fragment, UDP to the given port, and
    its JOB is enabled. The input waits only for foreign frames: those of ours that find no room
    are lost, and counted. 1 beat per cycle; a foreign frame leaves about 20 cycles after its
    45th byte, or its last, came in.

    Parameters
    ----------
    n_bytes, n_jobs : int
        Bytes of a beat, 16, 32 or 64; places in the table of jobs.

    Members
    -------
    i : In(stream.Signature(FrameBeat(n_bytes)))
    names : In(Names(n_jobs))
        Read once per frame.
    foreign, ours : Out(stream.Signature(FrameBeat(n_bytes)))
    crossed, oversize, overrun : Out(1)
        One cycle per frame: foreign; cut for its length; ours and lost.
    """

    def __init__(self, n_bytes, n_jobs):
        self.n_bytes = n_bytes
        self.n_beats = max(512, MAX_FRAME // n_bytes)
        self.shape = FrameBeat(n_bytes)
        frames = stream.Signature(self.shape)
        super().__init__(
            {
                "i": In(frames),
                "names": In(Names(n_jobs)),
                "foreign": Out(frames),
                "ours": Out(frames),
                "crossed": Out(1),
                "oversize": Out(1),
                "overrun": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.guard = guard = LengthGuard(self.n_bytes, max_bytes=MAX_FRAME)
        m.submodules.beats = beats = FIFO(self.shape, QUEUE_BEATS)
        # Never fills: it holds no more frames than there are beats in the queue and its output.
        m.submodules.classes = classes = FIFO(1, 2 * QUEUE_BEATS)
        m.submodules.foreign = foreign = BlockFIFO(self.shape, self.n_beats)
        m.submodules.ours = ours = DropTail(self.shape, self.n_beats)
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
            ours.i.p.eq(beat.p),
            self.overrun.eq(ours.lost),
            self.oversize.eq(guard.oversize),
        ]
        m.d.sync += self.crossed.eq(classes.o.valid & classes.o.ready & ~own)
        return m

    def _classify(self, m, beats, classes):
        """One bit per frame, 3 cycles after the byte that tells it."""
        n, beat = self.n_bytes, beats.p
        n_beats = -(-HEAD // n)
        head = Signal(8 * n * n_beats, reset_less=True)
        index = Signal(range(n_beats + 1))  # n_beats: the head is complete
        done, compared, whole = Signal(), Signal(), Signal(reset_less=True)
        take = Signal()
        m.d.comb += take.eq(beats.valid & beats.ready)
        m.d.sync += [
            done.eq(take & ((index == n_beats - 1) | (beat.last & (index != n_beats)))),
            compared.eq(done),
            classes.valid.eq(compared),
        ]
        with m.If(take):
            m.d.sync += whole.eq((index == n_beats - 1) & (beat.keep[(HEAD - 1) % n] | ~beat.last))
            with m.If(beat.last):
                m.d.sync += index.eq(0)
            with m.Elif(index != n_beats):
                m.d.sync += index.eq(index + 1)
            for k in range(n_beats):
                with m.If(index == k):
                    m.d.sync += head[8 * n * k : 8 * n * (k + 1)].eq(beat.data)

        def field(field):
            return Cat(head[a:b] for a, b in field.slices)

        tests = Cat(
            whole,
            field(ETHERNET.ethertype) == ETHERTYPE_IPV4,
            (field(IPV4.version) == 4) & (field(IPV4.ihl) == 5),
            field(IPV4.protocol) == IP_PROTOCOL_UDP,
            ~field(IPV4.more_fragments) & (field(IPV4.fragment_offset) == 0),
            field(UDP.destination_port) == self.names.port,
        )
        known = Cat((field(GRADNIC.job) == j.number) & j.enabled for j in self.names.jobs)
        passed = Signal(len(tests), reset_less=True)
        knows = Signal(len(known), reset_less=True)
        m.d.sync += [
            passed.eq(tests),
            knows.eq(known),
            classes.payload.eq(passed.all() & knows.any()),
        ]
