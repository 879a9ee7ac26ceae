"""What INCEPTIONN makes of floats, without coding them: what the root of a tree keeps."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .fifo import FIFO
from .inceptionn import (
    BANDS,
    SCALES,
    LaneDecoder,
    LaneEncoder,
    band_gap,
    band_zero,
    bands,
    check_lanes,
)
from .offload_types import Codec
from .pipeline import copied, credit, delayed, delayed_flag
from .streams import Beat

DEPTH = 32  # beats under way or waiting


class CodecImage(wiring.Component):
    """Each float as a compressor and a decompressor would restore it: 1 beat per cycle.

    Latency `latency` cycles; equal to `gradnic.models.inceptionn.image`, truncating.

    Parameters
    ----------
    n_lanes : int
        4, 8, 16 or 32.
    passes : bool
        Where ``codec.coded`` is 0 beats pass in 2 cycles, ``fill`` added to each of their bytes.

    Members
    -------
    codec : In(Codec)
        Must not change while there are beats inside.
    fill : In(8)
        Of the beat at ``i``; only with `passes`.
    i, o : In, Out(stream.Signature(Beat(32 * n_lanes)))
    """

    latency = LaneEncoder().latency + LaneDecoder.latency + 2

    def __init__(self, n_lanes, *, passes=False):
        check_lanes(n_lanes)
        self.n_lanes, self.passes = n_lanes, passes
        beats = stream.Signature(Beat(32 * n_lanes))
        members = {"codec": In(Codec), "i": In(beats), "o": Out(beats)}
        super().__init__(members | ({"fill": In(8)} if passes else {}))

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = FIFO(Beat(32 * self.n_lanes), DEPTH)
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        codec = self.codec
        prescale = codec.prescale.as_signed()
        gap, zero = band_gap(codec.exponent), band_zero(codec.exponent, prescale)
        known = bands(codec.exponent, gap, zero, codec.paper, prescale)
        settings, scales = Signal(BANDS), Signal(SCALES)
        m.d.sync += [
            *(settings[name].eq(value) for name, value in known.items()),
            scales.half.eq(126 - settings.prescale),
            scales.byte.eq(settings.top - settings.prescale),
        ]
        go = Signal()
        free = credit(m, DEPTH, take=go, give=self.o.valid & self.o.ready)
        m.d.comb += [
            go.eq(self.i.valid & free),
            self.i.ready.eq(free),
        ]
        at_queue = {
            "valid": delayed_flag(m, go, self.latency - 2, name="go"),
            "last": delayed(m, self.i.p.last, self.latency - 2, name="last"),
        }
        images = []
        for lane in range(self.n_lanes):
            at = slice(32 * lane, 32 * lane + 32)
            m.submodules[f"encoder{lane}"] = encoder = LaneEncoder()
            m.submodules[f"decoder{lane}"] = decoder = LaneDecoder()
            wait = encoder.latency - encoder.tag_latency
            m.d.comb += [
                encoder.float.eq(self.i.p.data[at]),
                encoder.live.eq(1),
                encoder.bands.eq(settings),
                decoder.tag.eq(delayed(m, encoder.tag, wait, name=f"tag{lane}_")),
                decoder.payload.eq(encoder.payload),
                decoder.scales.eq(scales),
            ]
            images.append(decoder.float)
        if self.passes:
            coded, *by_lane = copied(m, codec.coded, self.n_lanes + 1, name="coded")
            octets = (self.i.p.data[k : k + 8] + self.fill for k in range(0, 32 * self.n_lanes, 8))
            whole = Cat(octet[:8] for octet in octets)
            images = [
                Mux(flag, one, whole[32 * lane : 32 * lane + 32])
                for lane, (flag, one) in enumerate(zip(by_lane, images, strict=True))
            ]
            at_queue = {
                "valid": Mux(coded, at_queue["valid"], go),
                "last": Mux(coded, at_queue["last"], self.i.p.last),
            }
        m.d.comb += [
            queue.i.valid.eq(at_queue["valid"]),
            queue.i.p.last.eq(at_queue["last"]),
            queue.i.p.data.eq(Cat(images)),
        ]
        return m
