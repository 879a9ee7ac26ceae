"""Queue between the parser and the codec: waits, or drops whole frames where nobody may wait.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_least, check_range

from ..primitive.names import signals
from ..stream.beats import Beat
from ..stream.block_fifo import BlockFIFO
from ..stream.fifo import FIFO


class FrameQueue(wiring.Component):
    """Queues beats and, beside them, one info word per frame, offered with its first beat.

    Without `lossy`, ``ready`` stops the sender. With it, ``ready`` is always high and frames are
    lost when the queue is full: a frame that finds no room for its first beat vanishes (``gone``);
    one that runs out of room in its middle is cut off, and a last beat of undefined data ends it
    (``cut``). The two flags count in the cycle in which the frame's last beat is pushed.

    Parameters
    ----------
    n_bytes : int
        Bytes per beat.
    info : shape-like
        What goes with a frame.
    depth : int
        Beats: 2 to 64, with `lossy` 1 to 16384.
    lossy : bool

    Members
    -------
    push, first, last, data, info : In
        A beat; the first one of a frame brings ``info``. ``push`` only while ``ready``.
    ready : Out(1)
    gone, cut : Out(1)
    beats : Out(stream.Signature(Beat(8 * n_bytes)))
    infos : Out(stream.Signature(info))
    """

    def __init__(self, n_bytes: int, info, depth: int, *, lossy: bool) -> None:
        check_least("n_bytes", n_bytes, 1)
        check_range("depth", depth, *((1, 16384) if lossy else (2, 64)))
        self.n_bytes = n_bytes
        self.info_shape = info
        self.depth = depth
        self.lossy = lossy
        super().__init__(
            {
                "push": In(1),
                "first": In(1),
                "last": In(1),
                "data": In(8 * n_bytes),
                "info": In(info),
                "ready": Out(1),
                "gone": Out(1),
                "cut": Out(1),
                "beats": Out(stream.Signature(Beat(8 * n_bytes))),
                "infos": Out(stream.Signature(info)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        shape = Beat(8 * self.n_bytes)
        queue = BlockFIFO if self.lossy else FIFO
        m.submodules.beats = beats = queue(shape, self.depth)
        # Frames of one beat: as many infos as beats, and the beats under way behind the store.
        m.submodules.infos = infos = queue(self.info_shape, self.depth)
        wiring.connect(m, beats.o, wiring.flipped(self.beats))
        wiring.connect(m, infos.o, wiring.flipped(self.infos))
        m.d.comb += [
            beats.i.p.data.eq(self.data),
            beats.i.p.last.eq(self.last),
            infos.i.p.eq(self.info),
        ]
        if not self.lossy:
            m.d.comb += [
                self.ready.eq(beats.i.ready & infos.i.ready),
                beats.i.valid.eq(self.push),
                infos.i.valid.eq(self.push & self.first),
            ]
            return m

        losing = Signal()  # the rest of this frame is not stored
        was_cut = Signal()  # though its beginning was
        owed = Signal()  # a last beat is to end that beginning
        room, begin, store = signals("room begin store")
        m.d.comb += [
            self.ready.eq(1),
            room.eq(beats.i.ready & ~owed),
            begin.eq(self.push & self.first & room & infos.i.ready),
            store.eq(begin | (self.push & ~self.first & ~losing & room)),
            beats.i.valid.eq(store | owed),
            beats.i.p.last.eq(self.last | owed),
            infos.i.valid.eq(begin),
            self.gone.eq(self.push & self.last & ~store & (self.first | (losing & ~was_cut))),
            self.cut.eq(self.push & self.last & ~store & ~self.gone),
        ]
        with m.If(owed & beats.i.ready):
            m.d.sync += owed.eq(0)
        with m.If(self.push):
            with m.If(self.first):
                m.d.sync += [losing.eq(~store & ~self.last), was_cut.eq(0)]
            with m.Elif(self.last):
                m.d.sync += [losing.eq(0), was_cut.eq(0)]
            with m.Elif(~store):
                m.d.sync += losing.eq(1)
            with m.If(~self.first & ~store & ~losing):
                m.d.sync += [was_cut.eq(~self.last), owed.eq(1)]
        return m
