"""What INCEPTIONN makes of floats, without coding them: what the root of a tree keeps."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..inceptionn.lanes import BANDS, LaneImage, band_gap, band_zero, bands, check_lanes
from ..primitive.names import signals
from ..stream.admission import entering
from ..stream.beats import Beat
from ..stream.delays import copied, delayed, delayed_flag
from ..stream.fifo import FIFO
from .codec import Codec
from .reduce import capped

DEPTH = 16  # beats under way or waiting


class CodecImage(wiring.Component):
    """Each float as a compressor and a decompressor would restore it: 1 beat per cycle.

    Latency `latency` cycles; equal to `gradnic.models.inceptionn.image`, truncating.

    Parameters
    ----------
    n_lanes : int
        4, 8, 16 or 32.
    passes : bool
        Where ``codec.coded`` is 0 beats pass in 2 cycles, ``fill`` added to each of their bytes:
        255 where that is more.
    wide : bool
        Only with `passes`. Where ``codec.code`` is not 0, ``fill`` is added to each two bytes, the
        first more significant: 65,535 at most, 4,095 if ``codec.code`` is 1.
    codes : bool
        False: ``codec.coded`` is never 1; only with `passes`.

    Members
    -------
    codec : In(Codec)
        Must not change while there are beats inside.
    fill : In(8), with `wide` In(16)
        Of the beat at ``i``; only with `passes`.
    i, o : In, Out(stream.Signature(Beat(32 * n_lanes)))
    """

    latency = LaneImage.latency + FIFO.latency

    def __init__(
        self, n_lanes: int, *, passes: bool = False, codes: bool = True, wide: bool = False
    ) -> None:
        check_lanes(n_lanes)
        if not codes and not passes:
            raise ValueError("passes must be True without codes, not False")
        if wide and not passes:
            raise ValueError("wide must be False without passes, not True")
        self.n_lanes, self.passes, self.codes, self.wide = n_lanes, passes, codes, wide
        self.queue = FIFO(Beat(32 * n_lanes), DEPTH, watched=True)
        beats = stream.Signature(Beat(32 * n_lanes))
        members = {"codec": In(Codec), "i": In(beats), "o": Out(beats)}
        super().__init__(members | ({"fill": In(16 if wide else 8)} if passes else {}))

    def elaborate(self, platform):
        m = Module()
        queue = self.queue
        go = entering(m, self, queue, DEPTH)
        ways = []
        if self.codes:
            ways.append(self._masked(m, go))
        if self.passes:
            ways.append((go, self.i.p.last, self._filled(m)))
        valid, last, values = ways[0]
        if len(ways) == 2:
            coded, *by_lane = copied(m, self.codec.coded, self.n_lanes + 1, name="coded")
            lanes = [slice(32 * k, 32 * k + 32) for k in range(self.n_lanes)]
            valid, last = (Mux(coded, *way) for way in zip(*(way[:2] for way in ways), strict=True))
            values = Cat(
                Mux(flag, *(way[2][lane] for way in ways))
                for flag, lane in zip(by_lane, lanes, strict=True)
            )
        m.d.comb += [
            queue.i.valid.eq(valid),
            queue.i.p.last.eq(last),
            queue.i.p.data.eq(values),
        ]
        return m

    def _filled(self, m):
        beat, fill = self.i.p.data, self.fill
        wide, twelve, narrow = signals("wide twelve narrow")
        added = Signal(17)
        filled = Signal(len(beat))
        m.d.comb += [
            wide.eq(self.codec.code != 0 if self.wide else 0),
            twelve.eq(self.codec.code == 1 if self.wide else 0),
            narrow.eq(~wide),
            added.eq(Cat(fill[:8], Const(0, 1), Mux(wide, fill[8:], fill[:8]))),
        ]
        for k in range(0, 32 * self.n_lanes, 16):
            sums = Signal(18, name=f"sums{k}")
            m.d.comb += [
                sums.eq(Cat(beat[k + 8 : k + 16], wide, beat[k : k + 8]) + added),
                Cat(filled[k + 8 : k + 16], filled[k : k + 8]).eq(
                    capped(m, sums, wide, twelve, narrow, name=f"more{k}")
                ),
            ]
        return filled

    def _masked(self, m, go):
        """(valid, last, values) of what goes in where it is coded, `LaneImage.latency` later."""
        codec = self.codec
        prescale = codec.prescale.as_signed()
        gap = delayed(m, band_gap(codec.exponent), 1, name="gap")
        zero = delayed(m, band_zero(codec.exponent, prescale), 1, name="zero")
        known = bands(codec.exponent, gap, zero, codec.paper, prescale)
        settings = Signal(BANDS)
        m.d.sync += [settings[name].eq(value) for name, value in known.items()]
        images = []
        for lane in range(self.n_lanes):
            m.submodules[f"lane{lane}"] = unit = LaneImage()
            m.d.comb += [
                unit.float.eq(self.i.p.data[32 * lane : 32 * lane + 32]),
                unit.bands.eq(settings),
            ]
            images.append(unit.image)
        return (
            delayed_flag(m, go, unit.latency, name="go"),
            delayed(m, self.i.p.last, unit.latency, name="last"),
            Cat(images),
        )
