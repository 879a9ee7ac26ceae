"""The way of our frames through the card: codec on one side, the frame as it came on the other.

Part of `gradnic.hdl.inline.card`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface import inline
from gradnic.interface.formats import HEAD_BYTES
from gradnic.interface.inline import MAX_FRAME, Fate

from ..frame.checksum import Verdict
from ..frame.classes import FATE_WIDTH, FrameClass, Unit
from ..frame.realign import Realigner
from ..frame.splice import SpliceJob, Splicer
from ..frame.store import COUNT_WIDTH, FrameStore, ReadJob
from ..inceptionn.compressor import Compressor
from ..inceptionn.decompressor import Decompressor
from ..primitive.names import signals
from ..stream.beats import Beat, FrameBeat
from ..stream.fifo import FIFO
from .rewrite import HeadMath, HeadPatcher, Patch, head_bytes

N_AHEAD = 16  # frames that the codec may know before their beats come
N_FRAMES = 64  # inside a path; at one frame a cycle its latency is the limit


def Info(meta_width):
    """What goes with a frame of ours: its class and its side band."""
    fields = {"kind": FrameClass()}
    if meta_width:
        fields["meta"] = meta_width
    return data.StructLayout(fields)


class GradientPath(wiring.Component):
    """Codes (or restores) frames, or lets them pass as they came, in order.

    Every frame is stored as it came, and its payload is offered to the codec while it comes in, so
    there is one packet time of latency and no second one. When its end and the codec's result are
    known, one of the two copies leaves and the other is skipped: the stored copy by a jump, the
    coded one inside the codec. ceil(max(bytes in, bytes out) / beat) cycles per frame.

    Parameters
    ----------
    n_lanes : int
        4, 8, 16 or 32: beats of 4 * n_lanes bytes.
    receive : bool
        Restore instead of code.
    meta_width, rounding, max_floats :
        See `InlineCard`.

    Members
    -------
    beats : In(stream.Signature(Beat(32 * n_lanes)))
    infos : In(stream.Signature(Info(meta_width)))
        One per frame, with its first beat or before.
    verdicts : In(stream.Signature(Verdict(4 * n_lanes)))
        One per frame.
    o : Out(stream.Signature(FrameBeat(4 * n_lanes, meta_width=meta_width)))
    counted, fate : Out(1), Out(4)
        One pulse per frame: what became of it, see `gradnic.interface.inline.Fate`.
    """

    def __init__(
        self,
        n_lanes: int,
        *,
        receive: bool,
        meta_width: int = 0,
        rounding: str = "trunc",
        max_floats: int = inline.MAX_FLOATS,
    ) -> None:
        self.n_lanes = n_lanes
        self.n_bytes = 4 * n_lanes
        self.receive = receive
        self.meta_width = meta_width
        self.max_floats = max_floats
        if receive:
            self.codec = Decompressor(n_lanes, max_floats=max_floats)
        else:
            self.codec = Compressor(n_lanes, rounding=rounding, max_floats=max_floats)
        super().__init__(
            {
                "beats": In(stream.Signature(Beat(8 * self.n_bytes))),
                "infos": In(stream.Signature(Info(meta_width))),
                "verdicts": In(stream.Signature(Verdict(self.n_bytes))),
                "o": Out(stream.Signature(FrameBeat(self.n_bytes, meta_width=meta_width))),
                "counted": Out(1),
                "fate": Out(FATE_WIDTH),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.codec = self.codec
        m.submodules.store = store = FrameStore(8 * self.n_bytes, 2 * MAX_FRAME // self.n_bytes)
        entered = data.StructLayout(
            {
                "coding": 1,
                "unit": Unit(),
                "verdict": Verdict(self.n_bytes),
                "n_stored": COUNT_WIDTH,
                "meta": self.meta_width,
            }
        )
        m.submodules.frames = frames = FIFO(entered, N_FRAMES)
        self._enter(m, store, frames)
        self._leave(m, store, self._decide(m, frames))
        return m

    def _enter(self, m, store, frames):
        """Beats to the store and to the codec; one record per frame once its end is known."""
        n, codec = self.n_bytes, self.codec
        paper = inline.PAPER_CODED_START if self.receive else inline.PAPER_START
        m.submodules.realigner = realigner = Realigner(n, (paper, HEAD_BYTES))
        payload = codec.coded if self.receive else codec.floats
        m.d.comb += [
            payload.p.eq(realigner.o.p),
            payload.valid.eq(realigner.o.valid),
            realigner.o.ready.eq(payload.ready),
        ]
        # The codec is told of a frame as soon as it is known, and plans while the last one comes.
        m.submodules.frames_ahead = frames_ahead = FIFO(self.infos.p.shape(), N_AHEAD)
        asks = self.infos.p.kind.coding
        m.d.comb += [
            codec.units.valid.eq(self.infos.valid & asks & frames_ahead.i.ready),
            *(
                codec.units.p[name].eq(self.infos.p.kind.unit[name])
                for name in ("count", "exponent", "paper", "prescale")
                + (("bytes",) if self.receive else ("limit",))
            ),
            frames_ahead.i.valid.eq(self.infos.valid & (~asks | codec.units.ready)),
            frames_ahead.i.p.eq(self.infos.p),
            self.infos.ready.eq(frames_ahead.i.ready & (~asks | codec.units.ready)),
        ]
        beat, kind, verdict = self.beats.p, frames_ahead.o.p.kind, self.verdicts.p
        unit = kind.unit
        ready, go, ends = signals("ready go ends")
        m.d.comb += [
            ready.eq(
                store.i.ready
                & (~kind.coding | realigner.i.ready)
                & (~beat.last | (self.verdicts.valid & frames.i.ready))
            ),
            go.eq(self.beats.valid & frames_ahead.o.valid & ready),
            ends.eq(go & beat.last),
            self.beats.ready.eq(frames_ahead.o.valid & ready),
            frames_ahead.o.ready.eq(ends),
            self.verdicts.ready.eq(ends),
            store.i.valid.eq(go),
            store.i.p.eq(beat.data),
            realigner.i.valid.eq(go & kind.coding),
            realigner.i.p.data.eq(beat.data),
            realigner.i.p.last.eq(beat.last),
            realigner.i.p.drop.eq(verdict.fate != Fate.CODED),
            realigner.i.p.second.eq(unit.native),
            realigner.i.p.n_less_1.eq((unit.bytes - 1)[ceil_log2(n) :]),
        ]
        n_before = Signal(COUNT_WIDTH)
        with m.If(go):
            m.d.sync += n_before.eq(Mux(beat.last, 0, n_before + 1))
        m.d.comb += [
            frames.i.valid.eq(ends),
            frames.i.p.coding.eq(kind.coding),
            frames.i.p.unit.eq(unit),
            frames.i.p.verdict.eq(verdict),
            frames.i.p.n_stored.eq(n_before + 1),
        ]
        if self.meta_width:
            m.d.comb += frames.i.p.meta.eq(frames_ahead.o.p.meta)

    def _decide(self, m, frames):
        """Decides what leaves, and computes its new head."""
        codec = self.codec
        results = codec.verdicts if self.receive else codec.sizes
        beside = data.StructLayout(
            {
                **({"send": 1} if self.receive else {}),
                "bad": 1,
                "n_stored": COUNT_WIDTH,
                "tail": len(self.verdicts.p.tail),
                "meta": self.meta_width,
            }
        )
        m.submodules.math = math = HeadMath(
            beside, receive=self.receive, max_floats=self.max_floats
        )
        frame = frames.o.p
        unit, verdict = frame.unit, frame.verdict
        sound = results.p.ok if self.receive else ~results.p.dropped
        refused = Fate.CODEC if self.receive else Fate.SIZE
        fate = Signal(FATE_WIDTH)
        rewrite = Signal()
        m.d.comb += [
            fate.eq(
                Mux(frame.coding & (verdict.fate == Fate.CODED) & ~sound, refused, verdict.fate)
            ),
            rewrite.eq(fate == Fate.CODED),
            math.i.valid.eq(frames.o.valid & (~frame.coding | results.valid)),
            frames.o.ready.eq(math.i.ready & (~frame.coding | results.valid)),
            results.ready.eq(math.i.ready & frames.o.valid & frame.coding),
            math.i.p.rewrite.eq(rewrite),
            math.i.p.head.n_payload.eq(unit.count << 2 if self.receive else results.p.bytes),
            *(
                math.i.p.head[name].eq(unit[name])
                for name in ("native", "count", "exponent", "paper", "prescale", "tos", "base")
            ),
            *([math.i.p.rest.send.eq(rewrite | (fate == Fate.KEPT))] if self.receive else []),
            math.i.p.rest.bad.eq(verdict.bad & ~rewrite),
            math.i.p.rest.n_stored.eq(frame.n_stored),
            math.i.p.rest.tail.eq(verdict.tail),
            math.i.p.rest.meta.eq(frame.meta),
        ]
        m.d.sync += [self.counted.eq(math.i.valid & math.i.ready), self.fate.eq(fate)]
        return math

    def _leave(self, m, store, math):
        """Puts frames together, as `math` says."""
        n, codec = self.n_bytes, self.codec
        # Three copies of the job, for the three places along the way out.
        m.submodules.reads = reads = FIFO(ReadJob(), 16)
        m.submodules.patches = patches = FIFO(Patch(self.max_floats), 16)
        m.submodules.splices = splices = FIFO(SpliceJob(self.meta_width), 16)
        patch, rest = math.o.p.patch, math.o.p.rest
        sends = rest.send if self.receive else Const(1)  # all that the host sends leaves
        heads = [head_bytes(native, receive=self.receive) for native in (False, True)]
        n_head = Mux(patch.native, -(-heads[1] // n), -(-heads[0] // n))
        ready = Signal()
        stored = Cat(rest.tail, (rest.n_stored - 1)[:COUNT_WIDTH])
        m.d.comb += [
            ready.eq(reads.i.ready & patches.i.ready & splices.i.ready),
            math.o.ready.eq(ready),
            reads.i.valid.eq(math.o.valid & ready),
            reads.i.p.n_stored.eq(rest.n_stored),
            reads.i.p.n_read.eq(Mux(sends, Mux(patch.rewrite, n_head, rest.n_stored), Const(0))),
            patches.i.valid.eq(math.o.valid & ready & sends),
            patches.i.p.eq(patch),
            splices.i.valid.eq(math.o.valid & ready & sends),
            splices.i.p.whole.eq(~patch.rewrite),
            splices.i.p.second.eq(patch.native),
            splices.i.p.n_less_1.eq(Mux(patch.rewrite, patch.n_frame - 1, stored)),
            splices.i.p.bad.eq(rest.bad),
        ]
        if self.meta_width:
            m.d.comb += splices.i.p.meta.eq(rest.meta)
        m.submodules.patcher = patcher = HeadPatcher(
            n, receive=self.receive, max_floats=self.max_floats
        )
        m.submodules.splicer = splicer = Splicer(n, heads, meta_width=self.meta_width)
        wiring.connect(m, reads.o, store.jobs)
        wiring.connect(m, store.o, patcher.i)
        wiring.connect(m, patches.o, patcher.patches)
        wiring.connect(m, patcher.o, splicer.heads)
        wiring.connect(m, splices.o, splicer.jobs)
        body = codec.floats if self.receive else codec.coded
        m.d.comb += [
            splicer.bodies.p.data.eq(body.p.data),
            splicer.bodies.p.last.eq(body.p.last),
            splicer.bodies.valid.eq(body.valid),
            body.ready.eq(splicer.bodies.ready),
        ]
        wiring.connect(m, splicer.o, wiring.flipped(self.o))
