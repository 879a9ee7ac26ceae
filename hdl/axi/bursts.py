"""Ranges of a registered region, cut into AXI4 bursts.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.params import check_power, check_range

from ..primitive.names import signals
from ..primitive.parity import strayed
from ..stream.delays import step
from .axi4 import BEAT_BYTES, BOUNDARY

N_BURSTS = 16  # on their way at a time
LENGTH_WIDTH = 24  # beats of a range or a region


def Region(n_bytes: int, address_width: int = 64):
    """What the host registered: first beat (byte address / n_bytes) and number of beats."""
    return data.StructLayout(
        {"first": address_width - ceil_log2(n_bytes), "n_beats": LENGTH_WIDTH + 1}
    )


def Range(n_regions: int = 1):
    """Beats of a region: ``offset`` from its start, ``n_beats``; 0 beats are no work at all.

    With several regions, ``region`` is the number of the one that is meant.
    """
    fields = {"offset": LENGTH_WIDTH, "n_beats": LENGTH_WIDTH}
    if n_regions > 1:
        fields["region"] = ceil_log2(n_regions)
    return data.StructLayout(fields)


def Burst(n_bytes: int, address_width: int, burst_beats: int):
    """One burst: absolute beat address, beats less one; refused ones never leave the card."""
    return data.StructLayout(
        {
            "beat": address_width - ceil_log2(n_bytes),
            "n_less_1": ceil_log2(burst_beats),
            "ends": 1,  # the range
            "refused": 1,
        }
    )


class BurstSplitter(wiring.Component):
    """Cuts ranges into bursts that keep to their own size's boundaries: 2 cycles a burst.

    A range takes 1 cycle more, so each register in front of that keeps one in 2 cycles.

    Plumbing: no golden model of its own.

    A burst never crosses a multiple of ``burst_beats`` beats, hence none of 4 KiB. A range that
    does not lie within the region is cut as well, with all its bursts marked ``refused``.
    Latency 5 cycles.

    Parameters
    ----------
    n_bytes, address_width : int
        See `gradnic.hdl.axi.axi4.ReadPort`.
    burst_beats : int
        Most beats of a burst: a power of two, 2 to 256, and at most 4096 bytes.
    n_regions : int
        Regions that the host may register, 1 to 8.

    Members
    -------
    regions : In(data.ArrayLayout(Region(n_bytes, address_width), n_regions))
        Must not change while there are ranges under way.
    ranges : In(stream.Signature(Range(n_regions)))
    bursts : Out(stream.Signature(Burst(n_bytes, address_width, burst_beats)))
    astray : Out(1)
        1 from then on, once a range is missing or comes twice, or what the present one still needs
        has changed by itself while it stood; no burst leaves any more.
    """

    def __init__(
        self, n_bytes: int, address_width: int = 64, *, burst_beats: int = 16, n_regions: int = 1
    ) -> None:
        check_power("n_bytes", n_bytes, *BEAT_BYTES)
        most = min(256, BOUNDARY // n_bytes)
        if burst_beats < 2 or burst_beats > most or burst_beats & (burst_beats - 1):
            raise ValueError(
                f"burst_beats must be a power of two from 2 to {most}, not {burst_beats!r}"
            )
        check_range("n_regions", n_regions, 1, 8)
        self.n_bytes = n_bytes
        self.burst_beats = burst_beats
        self.n_regions = n_regions
        self.regions_shape = data.ArrayLayout(Region(n_bytes, address_width), n_regions)
        self.range = Range(n_regions)
        self.burst = Burst(n_bytes, address_width, burst_beats)
        # of the present range: `left` beats, less one
        self.left = Signal(LENGTH_WIDTH, reset_less=True)
        # it has bursts left, and one is offered; a third, so that an even number of them is 1
        self.busy, self.offered, self.one_of_two = signals("busy offered one_of_two")
        self.enters, self.leaves = signals("enters leaves")  # the next range is an odd one
        super().__init__(
            {
                "regions": In(self.regions_shape),
                "ranges": In(stream.Signature(self.range)),
                "bursts": Out(stream.Signature(self.burst)),
                "astray": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._cut(m, self._placed(m))
        return m

    def _placed(self, m):
        """Ranges, with where they are in memory, and whether they are refused: three steps."""
        one = self.regions_shape.elem_shape
        beat_width = one["first"].width
        # ranges are even and odd in turn
        found_shape = data.StructLayout({"region": one, "range": self.range, "odd": 1})
        found, pairs = step(m, "found", self.ranges, found_shape, half_rate=True)
        number = self.ranges.p.region if self.n_regions > 1 else 0
        m.d.comb += [found.region.eq(self.regions[number]), found.range.eq(self.ranges.p)]
        enters = self.enters
        m.d.comb += found.odd.eq(enters)
        with m.If(self.ranges.valid & self.ranges.ready):
            m.d.sync += enters.eq(~enters)
        placed_shape = data.StructLayout(
            {
                "beat": beat_width,
                "n_beats": LENGTH_WIDTH,
                "end": LENGTH_WIDTH + 1,
                "size": one["n_beats"].width,
                "odd": 1,
            }
        )
        placed, places = step(m, "placed", pairs, placed_shape, half_rate=True)
        m.d.comb += [
            placed.beat.eq(pairs.p.region.first + pairs.p.range.offset),
            placed.n_beats.eq(pairs.p.range.n_beats),
            placed.end.eq(pairs.p.range.offset + pairs.p.range.n_beats),
            placed.size.eq(pairs.p.region.n_beats),
            placed.odd.eq(pairs.p.odd),
        ]
        checked_shape = data.StructLayout(
            {"beat": beat_width, "n_less_1": LENGTH_WIDTH, "any": 1, "refused": 1, "odd": 1}
        )
        checked, ranges = step(m, "checked", places, checked_shape, half_rate=True)
        m.d.comb += [
            checked.beat.eq(places.p.beat),
            checked.n_less_1.eq(places.p.n_beats - 1),
            checked.any.eq(places.p.n_beats.any()),
            checked.refused.eq(places.p.end > places.p.size),
            checked.odd.eq(places.p.odd),
        ]
        return ranges

    def _cut(self, m, ranges):
        """One range after the other, into bursts that end where `burst_beats` do."""
        low, leaves = ceil_log2(self.burst_beats), self.leaves
        beat_width = len(ranges.p.beat)
        busy, offered, one_of_two = self.busy, self.offered, self.one_of_two
        beat = Signal(beat_width, reset_less=True)
        left = self.left
        refused = Signal(reset_less=True)
        burst = Signal(self.burst, reset_less=True)
        m.d.comb += [
            ranges.ready.eq(~busy),
            self.bursts.valid.eq(offered & busy & ~self.astray),
            self.bursts.p.eq(burst),
        ]
        to_boundary = Signal(low, reset_less=True)  # beats, less one
        fits = Signal()  # the rest of the range goes into one burst
        m.d.comb += fits.eq(~left[low:].any() & (left[:low] <= to_boundary))
        moved = Signal(init=1)
        m.d.sync += moved.eq(~offered | self.bursts.ready)
        present = Cat(beat, left, to_boundary, refused, burst)
        stray = strayed(m, present, ~moved, name="range")
        begins = ranges.valid & ranges.p.any
        wrong = busy ^ offered ^ one_of_two | (ranges.valid & ~busy & (ranges.p.odd != leaves))
        m.d.sync += self.astray.eq(self.astray | stray | wrong)
        with m.If(ranges.valid & ~busy):
            m.d.sync += leaves.eq(~leaves)
        with m.If(~busy):
            m.d.sync += [
                busy.eq(begins),
                one_of_two.eq(begins),
                beat.eq(ranges.p.beat),
                left.eq(ranges.p.n_less_1),
                to_boundary.eq(~ranges.p.beat[:low]),
                refused.eq(ranges.p.refused),
            ]
        with m.Elif(~offered):
            m.d.sync += [
                offered.eq(1),
                one_of_two.eq(0),
                burst.beat.eq(beat),
                burst.n_less_1.eq(Mux(fits, left, to_boundary)),
                burst.ends.eq(fits),
                burst.refused.eq(refused),
            ]
        with m.Elif(self.bursts.ready):
            m.d.sync += [
                offered.eq(0),
                busy.eq(~burst.ends),
                one_of_two.eq(~burst.ends),
                beat.eq((beat[low:] + 1) << low),
                left.eq(left + ~Cat(to_boundary, 0).as_signed()),
                to_boundary.eq(-1),
            ]
