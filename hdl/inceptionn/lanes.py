"""INCEPTIONN's value codec: one float to tag and payload, and back.

Twin of `gradnic.models.inceptionn.lanes`.

| test, in this order                      | tag      | payload bytes             |
| ---------------------------------------- | -------- | ------------------------- |
| e == 255, or e > 0 and e + prescale >= 127 | 3 RAW  | 4: the float, unscaled    |
| e == 0, or e + prescale < exponent       | 0 ZERO   | 0                         |
| e + prescale < exponent + `band_gap`     | 1 BYTE   | 1: sign, 7 bits magnitude |
| else                                     | 2 HALF   | 2: sign, 15 bits          |

A magnitude is the significand with its hidden one, shifted right, so that the leading one tells
the exponent. Source: INCEPTIONN, MICRO 2018, as reconstructed from secondary accounts.
"""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..stream.delays import delayed

__all__ = [
    "BANDS",
    "GROUP",
    "LANES",
    "SCALES",
    "LaneDecoder",
    "LaneEncoder",
    "LaneImage",
    "legal",
]

LANES = (4, 8, 16, 32)
GROUP = 8  # floats per tag word
ROUNDINGS = ("trunc", "nearest")
ZERO, BYTE, HALF, RAW = range(4)

#: What an encoder lane must know of its unit. zero, byte: exponents of the float, plus 128, from
#: which on a tag is not ZERO, not BYTE. round: add half a step (strict mode only).
BANDS = data.StructLayout({"zero": 9, "byte": 9, "top": 7, "prescale": signed(8), "round": 1})
#: What a decoder lane must know of its unit: exponent of a leading one at the top of a magnitude.
SCALES = data.StructLayout({"half": signed(10), "byte": signed(10)})


def check_lanes(n_lanes: int) -> None:
    """ValueError unless `n_lanes` is a number of lanes that the engines come in."""
    if n_lanes not in LANES:
        raise ValueError(f"n_lanes must be 4, 8, 16 or 32, not {n_lanes!r}")


def check_rounding(rounding) -> None:
    """ValueError unless `rounding` is one of "trunc" and "nearest"."""
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be trunc or nearest, not {rounding!r}")


def band_gap(exponent):
    """Exponents in the byte band, 4 bits: 1 to 7 for legal bounds."""
    return ((128 - exponent) >> 1)[:4]


def legal(exponent):
    """Is a bound's exponent 113 to 126? Written out: a comparison would be a carry chain."""
    return exponent[4:].all() & exponent[:4].any() & ~exponent[:4].all()


def band_zero(exponent, prescale):
    """`BANDS` field ``zero``, 9 bits: 114 to 382 for legal bounds."""
    return (Cat(exponent, Const(1, 1)) - prescale)[:9]


def band_top(exponent, gap, paper):
    """Exponent of a leading one at the top of a byte's magnitude, before the pre-scale."""
    return Mux(paper, 126, exponent) + Mux(paper, 0, (gap - 1)[:4])


def bands(exponent, gap, zero, paper, prescale, *, rounding: str = "trunc"):
    """`BANDS` of a unit as {field: value}; gap is `band_gap`, zero `band_zero`.

    Paper mode always truncates.
    """
    return {
        "zero": zero,
        "byte": (zero + gap)[:9],
        "top": band_top(exponent, gap, paper),
        "prescale": prescale,
        "round": ~paper if rounding == "nearest" else 0,
    }


def n_payload(tag):
    """Payload bytes behind a tag, 3 bits: 0, 1, 2 or 4."""
    return Cat(tag[0] & ~tag[1], ~tag[0] & tag[1], tag[0] & tag[1])


def _less(a, b):
    """Is `a` below `b`, bit by bit."""
    less = Const(0, 1)
    for p, q in zip(a, b, strict=True):
        less = (~p & q) | (~(p ^ q) & less)
    return less


class _Below:
    """Is the exponent `e`, 8 bits, below `bound` - 128? In two cycles of LUT, no carry chain."""

    def __init__(self, m, e, bound, name):
        x = Cat(e[:7], ~e[7], e[7])  # e + 128
        pieces = [(x[j:k], bound[j:k]) for j, k in ((0, 2), (2, 4), (4, 6), (6, 9))]
        self.less = Signal(4, name=f"{name}_less", reset_less=True)
        self.same = Signal(3, name=f"{name}_same", reset_less=True)
        m.d.sync += [
            self.less.eq(Cat(_less(a, b) for a, b in pieces)),
            self.same.eq(Cat(~(a ^ b).any() for a, b in pieces[1:])),
        ]

    def verdict(self):
        """The answer, one cycle after `e` and `bound` were given; to be registered."""
        below = self.less[0]
        for less, same in zip(self.less[1:], self.same, strict=True):
            below = less | (same & below)
        return below


def _held(m, value, name, **attrs):
    """Register without reset that holds `value` of the cycle before."""
    held = Signal(value.shape(), name=name, reset_less=True, attrs=attrs)
    m.d.sync += held.eq(value)
    return held


def _tests(m, float_, live, bands):
    """The bands that a float, and what else decides, meet: registers, 2 cycles late.

    Returns (dead, high, below, low, half_shift, byte_shift): the tag is that of the first flag set,
    ZERO, RAW, ZERO, BYTE, or else HALF; the shifts are how far a magnitude goes down.
    """
    # cycle 1: the scaled exponent
    e = float_[23:31]
    x = _held(m, e + bands.prescale, "x")
    denormal = _held(m, e == 0, "denormal")
    special = _held(m, e == 255, "special")
    live = _held(m, live, "live_1")
    to_zero, to_byte = (_Below(m, e, bands[name], name) for name in ("zero", "byte"))
    top = _held(m, bands.top, "top_1")
    # cycle 2
    one_or_more = ~x[9] & (x[7:9].any() | x[:7].all())  # x >= 127, without a carry chain
    return SimpleNamespace(
        dead=_held(m, denormal | ~live, "dead"),
        high=_held(m, one_or_more | special, "high"),
        below=_held(m, to_zero.verdict(), "below"),
        low=_held(m, to_byte.verdict(), "low"),
        half_shift=_held(m, (126 - x)[:4], "half_shift"),
        byte_shift=_held(m, (top - x)[:4], "byte_shift"),
    )


class LaneEncoder(wiring.Component):
    """Codes one float per cycle: tag after 3 cycles, payload after 6 (nearest: 7). Never stalls.

    Parameters
    ----------
    rounding : str
        "trunc" or "nearest"; the latter adds half a step before the shift and stops at the top of
        the band.

    Members
    -------
    float : In(32)
        The float's bits.
    live : In(1)
        0: the lane is beyond the unit's count and gets tag 0.
    bands : In(BANDS)
    tag : Out(2)
    payload : Out(32)
        The bytes of the tag's size count, the rest is undefined.
    """

    def __init__(self, *, rounding: str = "trunc") -> None:
        check_rounding(rounding)
        self.rounding = rounding
        self.latency = 6 if rounding == "trunc" else 7  # of the payload
        super().__init__(
            {
                "float": In(32),
                "live": In(1),
                "bands": In(BANDS),
                "tag": Out(2),
                "payload": Out(32),
            }
        )

    tag_latency = 3

    def elaborate(self, platform):
        m = Module()

        def register(value, name, **attrs):
            return _held(m, value, name, **attrs)

        tests = _tests(m, self.float, self.live, self.bands)
        low, half_shift, byte_shift = tests.low, tests.half_shift, tests.byte_shift

        # cycle 3: the tag
        held = Signal(2, name="tag_held", reset_less=True)
        with m.If(tests.dead):
            m.d.sync += held.eq(ZERO)
        with m.Elif(tests.high):
            m.d.sync += held.eq(RAW)
        with m.Elif(tests.below):
            m.d.sync += held.eq(ZERO)
        with m.Else():
            m.d.sync += held.eq(Mux(low, BYTE, HALF))
        m.d.comb += self.tag.eq(held)
        shift = Mux(low, byte_shift, half_shift)
        near, near_too = (register(shift[:2], f"near_{k}", keep_register=1) for k in range(2))
        far = register(shift[2:], "far_3")
        is_byte = register(low, "is_byte_3")

        # cycles 4 and 5: one shifter for both sizes; a byte is the upper end of the half word
        bits = delayed(m, self.float, 3, name="bits")
        guard = 0 if self.rounding == "trunc" else 1  # bits kept below the last one
        significand = Cat(bits[9 - guard : 23], Const(1, 1))
        half = len(significand) // 2
        shifted = Cat((significand >> near)[:half], (significand >> near_too)[half:])
        shifted = register(shifted, "shifted_4")
        far = register(far, "far_4")
        shifted = register(shifted >> Cat(Const(0, 2), far), "shifted_5")
        if guard:
            # cycle 6: half a step more, unless the magnitude is at the top of its band
            is_byte = delayed(m, is_byte, 2, name="is_byte_5")
            halfway = Mux(is_byte, shifted[8], shifted[0])
            magnitude = Mux(is_byte, shifted[9:16], shifted[1:16])
            full = shifted[9:16].all() & (is_byte | shifted[1:9].all())
            rounds = delayed(m, self.bands.round, 5, name="rounds")
            up = halfway & ~full & rounds
            magnitude = register((magnitude + up)[:15], "magnitude")
            byte = magnitude[:7]
        else:
            magnitude, byte = shifted, shifted[8:15]

        # last cycle: bytes
        n = self.latency
        tag = delayed(m, self.tag, n - 1 - self.tag_latency, name="tag")
        bits = delayed(m, bits, n - 1 - 3, name="bits_late")
        sign = bits[31]
        payload = Signal(32, name="payload_held", reset_less=True)
        m.d.comb += self.payload.eq(payload)
        m.d.sync += payload.eq(
            Cat(
                Mux(
                    tag == RAW,
                    bits[:8],
                    Mux(tag[0], Cat(byte, sign), magnitude[:8]),
                ),
                Mux(tag[0], bits[8:16], Cat(magnitude[8:15], sign)),
                bits[16:],
            )
        )
        return m


class LaneImage(wiring.Component):
    """What coding leaves of one float per cycle, truncating; 5 cycles of latency. Never stalls.

    No encoder and decoder: a mask clears the bits below the last of the magnitude, as in
    `gradnic.models.inceptionn.image`.

    Members
    -------
    float : In(32)
    bands : In(BANDS)
    image : Out(32)
    """

    latency = 5

    def __init__(self) -> None:
        super().__init__({"float": In(32), "bands": In(BANDS), "image": Out(32)})

    def elaborate(self, platform):
        m = Module()
        tests = _tests(m, self.float, Const(1, 1), self.bands)
        # cycle 3: behind a leading one at the top of a magnitude there are 6 or 14 bits
        low = tests.low
        whole = _held(m, tests.high, "whole")
        byte_cut = Cat(tests.byte_shift[:3], 1)  # 8 more: right as far as not all is lost
        cut = _held(m, Mux(low, byte_cut, tests.half_shift), "cut")  # of the 14
        lost = tests.below | (low & (tests.byte_shift > 6))
        nothing = _held(m, tests.dead | (~tests.high & lost), "nothing")
        # cycle 4; ``cut <= k`` would be a carry chain
        up_to = [Cat(cut == n for n in range(k + 1)).any() for k in range(14)]
        kept = _held(m, Cat(whole | reached for reached in up_to), "kept")
        whole = _held(m, whole, "whole_4")
        nothing = _held(m, nothing, "nothing_4")
        # cycle 5
        bits = delayed(m, self.float, 4, name="bits")
        keep = Cat(whole.replicate(9), kept, Const(0x1FF, 9))
        m.d.comb += self.image.eq(_held(m, Mux(nothing, 0, bits & keep), "result"))
        return m


class LaneDecoder(wiring.Component):
    """Restores one float per cycle, 5 cycles of latency. Never stalls.

    A magnitude of 0 and a result below the smallest normal float become +0. The scaled exponent
    cannot pass 254.

    Members
    -------
    tag : In(2)
    payload : In(32)
        The bytes of the tag's size count.
    scales : In(SCALES)
    float : Out(32)
    """

    latency = 5

    def __init__(self) -> None:
        super().__init__({"tag": In(2), "payload": In(32), "scales": In(SCALES), "float": Out(32)})

    def elaborate(self, platform):
        m = Module()

        def register(value, name):
            return _held(m, value, name)

        # cycle 1: the magnitude at the upper end of 15 bits; are its first eight places empty, and
        # the four after that?
        is_byte = self.tag[0]
        half, byte = self.payload[:15], self.payload[:7]
        magnitude = register(Mux(is_byte, Cat(Const(0, 8), byte), half), "magnitude_1")
        tag = register(self.tag, "tag_1")
        raw = register(self.payload, "raw_1")
        sign = register(Mux(is_byte, self.payload[7], self.payload[15]), "sign_1")
        scale = register(Mux(is_byte, self.scales.byte, self.scales.half), "scale_1")
        eight = register(Mux(is_byte, byte == 0, half[7:] == 0), "eight_1")
        four = register(Mux(is_byte, byte[3:] == 0, half[11:] == 0), "four_1")
        four_more = register(half[3:7] == 0, "four_more_1")

        # cycle 2: eight and four places up, and how many of the next three are empty
        places = Cat(Mux(eight, four_more, four), eight)
        fours = [Cat(Const(0, 1), magnitude)[k : k + 4] for k in (12, 8, 4, 0)]
        empty = [Cat(~f[3] & (f[2] | ~f[1]), ~f[3] & ~f[2]) for f in fours]
        lifted = Mux(places[1], magnitude << 8, magnitude)[:15]
        magnitude = register(Mux(places[0], lifted << 4, lifted)[:15], "magnitude_2")
        few = Mux(places[1], Mux(places[0], *empty[:1:-1]), Mux(places[0], empty[1], empty[0]))
        places = register(Cat(few, places), "places_2")
        tag = register(tag, "tag_2")
        raw = register(raw, "raw_2")
        sign = register(sign, "sign_2")
        scale = register(scale, "scale_2")

        # cycle 3: two and one places up; exponent
        mantissa = register((magnitude << places[:2])[:14], "mantissa_3")
        nothing = register((magnitude[11:] == 0) | (tag == ZERO), "nothing_3")
        exponent = register(scale - places, "exponent_3")
        is_raw = register(tag == RAW, "is_raw_3")
        raw = register(raw, "raw_3")
        sign = register(sign, "sign_3")

        # cycle 4: is there a float at all?
        positive = ~exponent[9] & exponent[:9].any()
        normal = register(~nothing & positive, "normal_4")
        is_raw = register(is_raw, "is_raw_4")
        coded = register(Cat(mantissa, exponent[:8], sign), "coded_4")
        raw = register(raw, "raw_4")

        # cycle 5: the float
        coded = Cat(Const(0, 9), coded)
        m.d.comb += self.float.eq(register(Mux(is_raw, raw, Mux(normal, coded, 0)), "result"))
        return m
