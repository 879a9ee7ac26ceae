"""Units for the INCEPTIONN engines: their beats, and what the golden model makes of them."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from gradnic.models import inceptionn

from ..engine import stimulus

MAX_FLOATS = 2104
NO_LIMIT = 65535
REMEMBERED = 1 << 14  # units whose outcome is kept: a campaign plays the same ones to each mutant
KINDS = ("zero", "raw", "mixed", "bits", "corners")


@dataclass(frozen=True)
class Unit:
    """One unit as the engines are told of it.

    words : uint32 (n,), the floats' bits; or bytes of the coded unit.
    count : floats as announced; size : coded bytes as announced (decompressor).
    settings : exponent, paper, prescale. limit : most coded bytes (compressor).
    beats : beats that come, by default those of the content. drop : flag with the last beat.
    """

    words: object
    count: int
    size: int = 0
    exponent: int = 117
    paper: int = 0
    prescale: int = 0
    limit: int = NO_LIMIT
    beats: int | None = None
    drop: int = 0

    @property
    def options(self):
        """Settings as the model takes them."""
        mode = "paper" if self.paper else "strict"
        return {"exponent": self.exponent, "mode": mode, "prescale": self.prescale}

    def content(self):
        """All bytes that are sent, before they fill beats."""
        if isinstance(self.words, bytes):
            return np.frombuffer(self.words, np.uint8)
        return np.ascontiguousarray(self.words).view(np.uint8)

    def n_beats(self, n_lanes):
        """Beats that come."""
        return (
            max(1, -(-len(self.content()) // (4 * n_lanes))) if self.beats is None else self.beats
        )


def floats(kind, n, generator):
    """Bits of `n` floats of a kind: all below the bound, all raw, a mix, anything, or corners."""
    if kind == "zero":
        return np.zeros(n, np.uint32)
    if kind == "raw":
        return generator.integers(0x3F800000, 0x7F800000, n, np.uint32)
    if kind == "mixed":
        return stimulus.float_noise(n, generator, center=122, spread=9)
    if kind == "bits":
        return generator.integers(0, 1 << 32, n, np.uint32)
    if kind == "corners":
        return generator.choice(stimulus.float_corners(range(108, 132)), n)
    raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")


def of_floats(kind, n, generator, **settings):
    """A unit of `n` floats for the compressor."""
    return Unit(floats(kind, n, generator), n, **settings)


def coded(unit, *, rounding="trunc"):
    """Bytes that the model makes of a unit of floats; paper mode truncates always."""
    rounding = "trunc" if unit.paper else rounding
    return _coded(unit.words.tobytes(), rounding, **unit.options)


@lru_cache(REMEMBERED)
def _coded(octets, rounding, **options):
    return inceptionn.compress(np.frombuffer(octets, np.float32), rounding=rounding, **options)


@lru_cache(REMEMBERED)
def _restored(octets, count, **options):
    """Bits of the floats, or None where the unit is wrong."""
    try:
        return inceptionn.decompress(octets, count, **options).view(np.uint32)
    except ValueError:
        return None


def of_bytes(unit, **changed):
    """The unit for the decompressor that a unit of floats becomes."""
    octets = coded(unit)
    return replace(unit, words=octets, size=len(octets), **changed)


def noisy_units(n, generator):
    """Units whose magnitudes no encoder would make: noise behind noisy tags."""
    units = []
    for _ in range(n):
        count = int(generator.integers(1, 60))
        tags = generator.integers(0, 4, -(-count // 8) * 8)
        tags[count:] = 0
        words = (tags.reshape(-1, 8) << np.arange(0, 16, 2)).sum(axis=1).astype("<u2").tobytes()
        n_payload = int(np.array([0, 1, 2, 4])[tags].sum())
        octets = words + generator.integers(0, 256, n_payload, np.uint8).tobytes()
        units.append(
            Unit(
                octets,
                count,
                size=len(octets),
                exponent=int(generator.integers(113, 127)),
                paper=int(generator.integers(2)),
                prescale=int(generator.integers(-128, 128)),
            )
        )
    return units


def _beats(units, n_lanes, generator):
    """Fields ``data``, ``last``, ``drop`` of all beats; what is beyond the content is noise."""
    rows, last, drop = [], [], []
    for unit in units:
        n = unit.n_beats(n_lanes)
        content = unit.content()[: 4 * n_lanes * n]
        noise = generator.integers(0, 256, 4 * n_lanes * n - len(content), np.uint8)
        rows.append(np.concatenate([content, noise]).reshape(n, 4 * n_lanes))
        last += [0] * (n - 1) + [1]
        drop += [*list(generator.integers(0, 2, n - 1)), unit.drop]
    return {"data": np.concatenate(rows), "last": last, "drop": drop}


def _column(units, *names):
    return {name: [getattr(unit, name) for unit in units] for name in names}


def compressor_inputs(model, units, n_lanes, generator, *, port="floats"):
    """Beats for ``units`` and for the floats' port of a compressor."""
    fields = _column(units, "count", "exponent", "paper", "prescale", "limit")
    beats = _beats(units, n_lanes, generator)
    return {"units": model.pack("units", **fields), port: model.pack(port, **beats)}


def _wrong(unit, max_floats):
    return not (1 <= unit.count <= max_floats and 113 <= unit.exponent <= 126) or unit.drop


def compressor_outcome(units, n_lanes, *, rounding="trunc", max_floats=MAX_FLOATS):
    """(bytes or None if they do not count, dropped, coded unit or None) of each unit."""
    result = []
    for unit in units:
        if _wrong(unit, max_floats) or unit.n_beats(n_lanes) != -(-unit.count // n_lanes):
            result.append((None, True, None))
            continue
        octets = coded(unit, rounding=rounding)
        dropped = len(octets) > unit.limit
        result.append((len(octets), dropped, None if dropped else octets))
    return result


def check_compressor(run, units, n_lanes, **options):
    """Compare all that a compressor gave with the model; AssertionError with the difference."""
    outcome = compressor_outcome(units, n_lanes, **options)
    model = run._instance.model
    got = run.unpack("sizes")["bytes"].tolist()
    if len(got) != len(units):
        raise AssertionError(f"sizes: {len(got)} units, not {len(units)}")
    # bytes of a unit that was dropped for another reason than its size are not defined
    known = [n if n is not None else got[k] for k, (n, _, _) in enumerate(outcome)]
    frames = [octets for _, _, octets in outcome if octets is not None]
    empty = np.zeros((0, model.streams["coded"].size), np.uint8)
    run.check(
        sizes=model.pack("sizes", bytes=known, dropped=[dropped for _, dropped, _ in outcome]),
        coded=model.pack_frames("coded", frames) if frames else empty,
    )


def decompressor_inputs(model, units, n_lanes, generator):
    """Beats for ``units`` and ``coded`` of a decompressor."""
    fields = _column(units, "count", "exponent", "paper", "prescale")
    fields["bytes"] = [unit.size for unit in units]
    beats = _beats(units, n_lanes, generator)
    return {"units": model.pack("units", **fields), "coded": model.pack("coded", **beats)}


def decompressor_outcome(units, n_lanes, *, max_floats=MAX_FLOATS):
    """Bits of each unit's floats, or None where it must vanish."""
    result = []
    for unit in units:
        wanted = -(-unit.size // (4 * n_lanes))
        octets = unit.content()[: unit.size].tobytes()
        # Where bytes are missing, noise takes their places; no such unit here is right.
        whole = unit.size == len(octets) > 0 and unit.n_beats(n_lanes) == wanted
        right = whole and not _wrong(unit, max_floats)
        result.append(_restored(octets, unit.count, **unit.options) if right else None)
    return result


def check_decompressor(run, units, n_lanes, **options):
    """Compare all that a decompressor gave with the model; AssertionError with the difference."""
    outcome = decompressor_outcome(units, n_lanes, **options)
    model = run._instance.model
    rows, last = [np.zeros((0, n_lanes), np.uint32)], []
    for bits in outcome:
        if bits is not None:
            padded = np.pad(bits, (0, -len(bits) % n_lanes)).reshape(-1, n_lanes)
            rows.append(padded)
            last += [0] * (len(padded) - 1) + [1]
    data = np.concatenate(rows)
    run.check(
        verdicts=model.pack("verdicts", ok=[bits is not None for bits in outcome]),
        floats=model.pack("floats", data=data, last=np.array(last, np.uint8))
        if len(last)
        else np.zeros((0, model.streams["floats"].size), np.uint8),
    )


def faults_of_floats(n_lanes, generator, *, max_floats=MAX_FLOATS):
    """Units that a compressor must not let through, each of another kind."""
    good = of_floats("mixed", 3 * n_lanes + 1, generator)
    size = len(coded(good))
    return [
        replace(good, limit=size - 1),
        replace(good, limit=0),
        replace(good, drop=1),
        replace(good, beats=1),
        replace(good, beats=3),
        replace(good, beats=5),
        replace(good, beats=40),
        replace(good, count=0),
        replace(good, count=0, beats=1),
        replace(good, count=max_floats + 1),
        replace(good, count=65535),
        replace(good, exponent=112),
        replace(good, exponent=127),
        replace(good, exponent=0, beats=20),
        replace(of_floats("raw", n_lanes, generator), drop=1),
        replace(of_floats("raw", n_lanes, generator), beats=2),
        replace(of_floats("zero", n_lanes + 1, generator), beats=1),
    ]


def faults_of_bytes(n_lanes, generator, *, max_floats=MAX_FLOATS):
    """Units that a decompressor must not let through, each of another kind."""
    good = of_bytes(of_floats("mixed", 5 * n_lanes + 3, generator))
    octets, beat = good.words, 4 * n_lanes
    n = good.n_beats(n_lanes)
    zeros = of_bytes(of_floats("zero", 40 * n_lanes, generator))
    padded = of_bytes(of_floats("zero", 3, generator))
    padded_4 = of_bytes(of_floats("zero", 13, generator))
    long = of_bytes(of_floats("raw", 19, generator))
    flipped = bytearray(octets)
    flipped[0] ^= 3
    return [
        replace(good, drop=1),
        replace(good, beats=n - 1),
        replace(good, beats=n + 1),
        replace(good, beats=n + 30),
        replace(good, beats=1),
        replace(good, size=good.size - 1, beats=-(-(good.size - 1) // beat)),
        replace(good, size=good.size + 1, beats=-(-(good.size + 1) // beat)),
        replace(good, size=good.size + beat, beats=n + 1),
        replace(good, words=bytes(flipped)),
        replace(good, count=good.count - 8),
        replace(good, count=good.count + 8),
        replace(good, count=0),
        replace(good, count=0, beats=1),
        replace(good, count=max_floats + 1),
        replace(good, count=65535),
        replace(good, exponent=112),
        replace(good, exponent=127, beats=n + 2),
        replace(good, size=0),
        replace(good, size=0, beats=1),
        replace(good, size=65535),
        replace(zeros, beats=1, size=beat),
        replace(zeros, beats=1),
        replace(padded, words=padded.words[:1] + b"\x40", size=2),  # lane 7
        replace(padded, words=b"\x40\x00" + b"\x80", size=3),  # lane 3, with its byte
        replace(padded_4, words=padded_4.words[:3] + b"\x04\x11", size=5),  # lane 5 of group 1
        replace(long, count=18),
        replace(long, words=long.words[:5], size=5),
    ]
