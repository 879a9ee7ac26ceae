"""Golden vectors of the self-test, made by the golden model when the bitstream is built.

Tables of beats, one dict a beat, as the streams of the engines carry them. The published vectors
come first, then every kind of unit: each count of floats modulo 8, both modes, pre-scale, all-zero
and all-raw units, one over its limit, one marked bad on its way in and one on its way back.
"""

import dataclasses

import numpy as np
from gradnic.models import inceptionn

PUBLISHED = (  # docs/spec/codec.md: its example, and one more unit of one group
    "3f800000 3f000000 be99999a 3cf5c28f ba902de0 00000000 3a800000 7f800000",
    "3f7fffef 3d000000 bca3d70a 3c800000 3c23d70a 3b83126f 3a000000 80000000 000116c2 7fc00000",
)


@dataclasses.dataclass
class Vectors:
    """Tables of the self-test.

    Attributes
    ----------
    n_lanes : int
    units : list of dict(count exponent paper prescale limit), for the compressor.
    floats : list of dict(data last drop), its input beats.
    sizes : list of dict(bytes dropped count exponent paper prescale): what it must report, and
        what the decompressor needs to know about the same unit.
    coded : list of dict(data keep last drop): its output beats; drop marks the unit as bad for the
        decompressor.
    verdicts : list of dict(ok). images : list of dict(data last), floats that must come back.
    n_floats : int, floats that go in.
    """

    n_lanes: int
    units: list = dataclasses.field(default_factory=list)
    floats: list = dataclasses.field(default_factory=list)
    sizes: list = dataclasses.field(default_factory=list)
    coded: list = dataclasses.field(default_factory=list)
    verdicts: list = dataclasses.field(default_factory=list)
    images: list = dataclasses.field(default_factory=list)
    n_floats: int = 0

    @property
    def n_beats(self):
        """Beats of all tables together."""
        return sum(map(len, (self.floats, self.coded, self.images))) + 3 * len(self.units)

    def add(
        self, x, *, exponent=117, mode="strict", prescale=0, limit=0xFFFF, drop=False, spoil=False
    ):
        """Append one unit of floats `x`; `drop` marks it bad going in, `spoil` coming back."""
        settings = {"exponent": exponent, "mode": mode, "prescale": prescale}
        about = {"exponent": exponent, "paper": int(mode == "paper"), "prescale": prescale}
        code = inceptionn.compress(x, **settings)
        dropped = drop or len(code) > limit
        self.n_floats += x.size
        self.units.append({"count": x.size, "limit": limit} | about)
        self.floats += _last(_beats(x.tobytes(), self.n_lanes), drop=drop)
        self.sizes.append({"count": x.size, "bytes": len(code), "dropped": int(dropped)} | about)
        if dropped:
            return
        coded = _last(_beats(code, self.n_lanes), drop=spoil)
        for beat in coded:
            beat["keep"] = (1 << 4 * self.n_lanes) - 1
        coded[-1]["keep"] >>= -len(code) % (4 * self.n_lanes)
        self.coded += coded
        self.verdicts.append({"ok": int(not spoil)})
        if not spoil:
            image = inceptionn.image(x, **settings)
            self.images += _last(_beats(image.tobytes(), self.n_lanes))


def golden_vectors(n_lanes, *, seed=1, n_units=48):
    """Vectors for engines of `n_lanes` lanes: the fixed units, then `n_units` random ones.

    The floats spread over all magnitudes from 2**-16 to 2, so that every tag and every alignment
    of a payload occurs. Returns `Vectors`.
    """
    rng = np.random.default_rng(seed)
    vectors = Vectors(n_lanes)

    def noise(count):
        x = rng.standard_normal(count) * 2.0 ** rng.uniform(-16, 1, count)
        return x.astype(np.float32)

    for text in PUBLISHED:
        x = np.array([int(word, 16) for word in text.split()], np.uint32).view(np.float32)
        vectors.add(x)
        vectors.add(x, mode="paper")
    vectors.add(np.zeros(100, np.float32))
    vectors.add(noise(100) + np.float32(100))
    vectors.add(noise(64), limit=40)
    vectors.add(noise(64), drop=True)
    vectors.add(noise(64), spoil=True)
    vectors.add(noise(1))
    for k in range(n_units):
        vectors.add(
            noise(336 if k % 8 == 0 else int(rng.integers(1, 90))),
            exponent=int(rng.integers(113, 127)),
            mode=("strict", "strict", "paper")[k % 3],
            prescale=int(rng.integers(-6, 7)) if k % 4 == 1 else 0,
        )
    return vectors


def _beats(octets, n_lanes):
    size = 4 * n_lanes
    return [
        {"data": int.from_bytes(octets[start : start + size], "little")}
        for start in range(0, len(octets), size)
    ]


def _last(beats, drop=None):
    for k, beat in enumerate(beats):
        beat["last"] = int(k == len(beats) - 1)
        if drop is not None:
            beat["drop"] = int(drop and beat["last"])
    return beats
