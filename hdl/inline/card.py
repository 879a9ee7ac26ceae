"""The in-line card: between host and MAC, codes gradients one way and restores them the other."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface import inline
from gradnic.interface.inline import REGISTERS, Fate
from gradnic.interface.params import check_range

from ..axi.axis import Lite
from ..axi.register_bank import RegisterBank
from ..frame.arbiter import FrameArbiter
from ..frame.checksum import FrameCheck, Verdict
from ..frame.length_guard import LengthGuard
from ..frame.packet_fifo import PacketFIFO
from ..primitive.names import signals
from ..primitive.same import same
from ..stream.beats import Beat, FrameBeat
from ..stream.block_fifo import BlockFIFO
from ..stream.fifo import FIFO
from .gradient_path import GradientPath, Info
from .parser import Parser, Settings

QUEUE_BEATS = 32  # of our frames before the codec, where the sender may be stopped
MIN_BEATS = 512  # a block RAM is not smaller


class Lane(wiring.Component):
    """One direction of the card: tells our frames from foreign ones and merges them again.

    Foreign frames go through a queue of their own, cut through, and leave first. On the way in
    (`receive`) the input never waits for the codec: what the queue of our frames cannot hold is
    dropped and counted as overrun; only the output's back-pressure on foreign frames reaches it.

    Parameters
    ----------
    n_lanes, meta_width, rounding, max_floats :
        See `InlineCard`.
    receive : bool

    Members
    -------
    i, o : In, Out(stream.Signature(FrameBeat(4 * n_lanes, meta_width=meta_width)))
    settings : In(Settings())
    foreign, oversize : Out(1)
        One pulse per frame.
    fates : Out(10)
        Bit k pulses for a frame of ours with `gradnic.interface.inline.Fate` k.
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
        self.n_bytes = 4 * n_lanes
        self.receive = receive
        self.meta_width = meta_width
        self.path = GradientPath(
            n_lanes, receive=receive, meta_width=meta_width, rounding=rounding,
            max_floats=max_floats,
        )  # fmt: skip
        self.max_floats = max_floats
        frames = stream.Signature(FrameBeat(self.n_bytes, meta_width=meta_width))
        super().__init__(
            {
                "i": In(frames),
                "o": Out(frames),
                "settings": In(Settings()),
                "foreign": Out(1),
                "oversize": Out(1),
                "fates": Out(len(Fate)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n, meta_width, receive = self.n_bytes, self.meta_width, self.receive
        shape = FrameBeat(n, meta_width=meta_width)
        n_beats = max(MIN_BEATS, inline.MAX_FRAME // n)
        m.submodules.guard = guard = LengthGuard(
            n, meta_width=meta_width, max_bytes=inline.MAX_FRAME
        )
        m.submodules.parser = parser = Parser(
            n, receive=receive, meta_width=meta_width, max_floats=self.max_floats
        )
        m.submodules.foreign_queue = foreign = BlockFIFO(shape, n_beats)
        # Infos and verdicts never fill: an info leaves before its frame's first beat, and of
        # verdicts there is room for more frames than the queue has beats.
        if receive:
            queue = PacketFIFO(Beat(8 * n), n_beats, drop=None, lossy=True, cut_through=True)
            infos = BlockFIFO(Info(meta_width), n_beats, never_full=True)
            verdicts = BlockFIFO(Verdict(n), 2 * n_beats, never_full=True)
        else:
            queue = FIFO(Beat(8 * n), QUEUE_BEATS)
            infos = FIFO(Info(meta_width), QUEUE_BEATS, never_full=True)
            verdicts = FIFO(Verdict(n), 2 * QUEUE_BEATS, never_full=True)
        m.submodules.queue, m.submodules.infos, m.submodules.verdicts = queue, infos, verdicts
        m.submodules.check = check = FrameCheck(n)
        m.submodules.path = path = self.path
        m.submodules.arbiter = arbiter = FrameArbiter(n, meta_width=meta_width)

        wiring.connect(m, wiring.flipped(self.i), guard.i)
        wiring.connect(m, guard.o, parser.i)
        m.d.comb += [parser.settings.eq(self.settings), self.oversize.eq(guard.oversize)]

        beat, kind = parser.beats, parser.facts
        first = Signal(init=1)
        ready, push, stores, lost = signals("ready push stores lost")
        begun = Signal()  # the frame's first beat was stored
        m.d.comb += [
            ready.eq(kind.valid & (queue.i.ready & kind.p.ours | foreign.i.ready & ~kind.p.ours)),
            beat.ready.eq(ready),
            kind.ready.eq(beat.valid & ready & beat.p.last),
            foreign.i.valid.eq(beat.valid & kind.valid & ~kind.p.ours),
            foreign.i.p.eq(beat.p),
            push.eq(beat.valid & ready & kind.p.ours),
            stores.eq(queue.stores if receive else push),
            lost.eq(push & beat.p.last & ~stores),
            queue.i.valid.eq(push),
            queue.i.p.last.eq(beat.p.last),
            queue.i.p.data.eq(beat.p.data),
            infos.i.valid.eq(first & stores),
            infos.i.p.kind.eq(kind.p),
            check.push.eq(push),
            check.first.eq(first),
            *same(check, beat.p, "last bad data keep"),
            check.info.eq(kind.p),
            check.gone.eq(lost & (first | ~begun)),
            check.cut.eq(lost & ~first & begun),
            verdicts.i.valid.eq(check.done),
            verdicts.i.p.eq(check.verdict),
        ]
        if meta_width:
            m.d.comb += infos.i.p.meta.eq(beat.p.meta)
        with m.If(beat.valid & ready):
            m.d.sync += first.eq(beat.p.last)
        with m.If(push & first):
            m.d.sync += begun.eq(stores)

        wiring.connect(m, queue.o, path.beats)
        wiring.connect(m, infos.o, path.infos)
        wiring.connect(m, verdicts.o, path.verdicts)
        wiring.connect(m, foreign.o, arbiter.foreign)
        wiring.connect(m, path.o, arbiter.own)
        wiring.connect(m, arbiter.o, wiring.flipped(self.o))

        m.d.sync += self.foreign.eq(kind.valid & kind.ready & ~kind.p.ours)
        for fate in Fate:
            if fate is Fate.OVERRUN:  # counted where it happens; the path skips such frames
                m.d.sync += self.fates[fate].eq(lost)
            else:
                m.d.sync += self.fates[fate].eq(path.counted & (path.fate == fate))
        return m


class InlineCard(wiring.Component):
    """Compresses marked traffic on the way out, restores it on the way in, passes all else.

    What happens to a frame is `gradnic.models.inline`, bit for bit; order is kept among foreign
    frames and among our own. Both directions take one beat per cycle; a frame of ours takes
    ceil(max(bytes in, bytes out) / beat) cycles. Latency: see ``docs/internals/inline.md``.

    Parameters
    ----------
    n_lanes : int
        4, 8, 16 or 32 floats per cycle, hence beats of 16, 32, 64 or 128 bytes.
    meta_width : int
        Bits of side band that stay with each frame, coded or not.
    rx_meta_width : int or None
        The same from the MAC to the host, where shells keep a time stamp; None: as `meta_width`.
    rounding : str
        "trunc" or "nearest", of the compressor.
    max_floats : int
        Largest packet that is coded or restored, at most 2104.

    Members
    -------
    host_tx, mac_tx : In, Out(stream.Signature(FrameBeat(4 * n_lanes, meta_width=meta_width)))
    mac_rx, host_rx : In, Out(stream.Signature(FrameBeat(4 * n_lanes, meta_width=rx_meta_width)))
        Ethernet frames without preamble and FCS.
    bus : In(Lite)
        Registers, `gradnic.interface.inline.REGISTERS`.
    """

    def __init__(
        self,
        n_lanes: int,
        *,
        meta_width: int = 0,
        rx_meta_width: int | None = None,
        rounding: str = "trunc",
        max_floats: int = inline.MAX_FLOATS,
    ) -> None:
        rx_meta_width = meta_width if rx_meta_width is None else rx_meta_width
        check_range("max_floats", max_floats, 1, inline.MAX_FLOATS)
        if min(meta_width, rx_meta_width) < 0:
            raise ValueError(
                f"meta_width must be at least 0, not {min(meta_width, rx_meta_width)!r}"
            )
        self.n_lanes = n_lanes
        self.meta_width = meta_width
        self.tx = Lane(
            n_lanes, receive=False, meta_width=meta_width, rounding=rounding, max_floats=max_floats
        )
        self.rx = Lane(n_lanes, receive=True, meta_width=rx_meta_width, max_floats=max_floats)
        sent = stream.Signature(FrameBeat(4 * n_lanes, meta_width=meta_width))
        received = stream.Signature(FrameBeat(4 * n_lanes, meta_width=rx_meta_width))
        super().__init__(
            {
                "host_tx": In(sent),
                "mac_tx": Out(sent),
                "mac_rx": In(received),
                "host_rx": Out(received),
                "bus": In(Lite(REGISTERS.address_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.tx, m.submodules.rx = self.tx, self.rx
        m.submodules.bank = bank = RegisterBank(REGISTERS)
        wiring.connect(m, wiring.flipped(self.bus), bank.bus)
        wiring.connect(m, wiring.flipped(self.host_tx), self.tx.i)
        wiring.connect(m, self.tx.o, wiring.flipped(self.mac_tx))
        wiring.connect(m, wiring.flipped(self.mac_rx), self.rx.i)
        wiring.connect(m, self.rx.o, wiring.flipped(self.host_rx))

        settings = Signal(Settings())
        m.d.sync += [
            settings.paper.eq(bank.control.paper),
            *same(settings, bank.mark, "tos coded mask"),
            settings.low.eq(bank.ports.low),
            settings.high.eq(bank.ports.high),
            settings.port.eq(bank.native.port),
            settings.limit.eq(bank.native.limit),
            settings.exponent.eq(bank.codec.exponent),
            settings.paper_codec.eq(bank.codec.paper),
            settings.prescale.eq(bank.codec.prescale),
            *(
                settings.jobs[32 * k : 32 * k + 32].eq(bank.by_name[f"jobs_{k}"].enabled)
                for k in range(inline.N_JOBS // 32)
            ),
        ]
        m.d.comb += [self.tx.settings.eq(settings), self.rx.settings.eq(settings)]
        for lane, side, fates in (
            (self.tx, "tx", inline.TX_FATES),
            (self.rx, "rx", inline.RX_FATES),
        ):
            m.d.comb += [
                bank.by_name[f"{side}_foreign"].eq(lane.foreign),
                bank.by_name[f"{side}_oversize"].eq(lane.oversize),
                *(
                    bank.by_name[f"{side}_{fate.name.lower()}"].eq(lane.fates[fate])
                    for fate in fates
                ),
            ]
        return m
