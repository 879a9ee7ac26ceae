"""All floats through the RTL value path: encoder and decoder lane, against model and bound."""

import functools
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from amaranth.hdl import Module, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.inceptionn.lanes import LaneDecoder, LaneEncoder, band_gap, band_zero, bands
from gradnic.hdl.stream.delays import delayed
from gradnic.models import inceptionn

from ..engine.bitslice import Pipeline

MODES = ("strict", "paper")
EXPONENTS = (117, 119, 121)  # bounds 2^-10, 2^-8, 2^-6
CHUNK = 1 << 18  # arrays of this many floats stay in the caches
N_FLOATS = 1 << 32


class ValuePath(wiring.Component):
    """One encoder lane and one decoder lane in series, without the packing between them.

    Members
    -------
    float : In(32)
    exponent, paper, prescale : In(7), In(1), In(signed(8))
        Settings, constant.
    tag, decoded : Out(2), Out(32)
        ``latency`` cycles after ``float``.
    """

    def __init__(self, *, rounding="trunc"):
        self.encoder, self.decoder = LaneEncoder(rounding=rounding), LaneDecoder()
        self.rounding = rounding
        self.latency = self.encoder.latency + self.decoder.latency
        super().__init__(
            {
                "float": In(32),
                "exponent": In(7),
                "paper": In(1),
                "prescale": In(signed(8)),
                "tag": Out(2),
                "decoded": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.encoder, m.submodules.decoder = encoder, decoder = self.encoder, self.decoder
        gap, zero = band_gap(self.exponent), band_zero(self.exponent, self.prescale)
        settings = bands(
            self.exponent, gap, zero, self.paper, self.prescale, rounding=self.rounding
        )
        wait = encoder.latency - encoder.tag_latency
        m.d.comb += [
            *(encoder.bands[name].eq(value) for name, value in settings.items()),
            encoder.live.eq(1),
            encoder.float.eq(self.float),
            decoder.payload.eq(encoder.payload),
            decoder.tag.eq(delayed(m, encoder.tag, wait, name="tag")),
            decoder.scales.half.eq(126 - self.prescale),
            decoder.scales.byte.eq(settings["top"] - self.prescale),
            self.decoded.eq(decoder.float),
            self.tag.eq(delayed(m, decoder.tag, decoder.latency, name="tag_late")),
        ]
        return m


@functools.cache
def pipeline(rounding="trunc"):
    """The value path as a function of arrays."""
    path = ValuePath(rounding=rounding)
    return Pipeline(path, word="float", outputs=["tag", "decoded"], latency=path.latency)


def largest_error(exponent, mode, prescale):
    """Bound on the error of finite values: errors are less than this."""
    strict = 2.0 ** (exponent - 127 - prescale)
    return strict if mode == "strict" else max(strict, 2.0 ** (-7 - prescale))


def _compare(path, mode, rounding, words, **options):
    """(mismatches, largest error) of `words` through the RTL `path` against the model."""
    got = path(words, paper=int(mode == "paper"), **options)
    values = words.view(np.float32)
    image = inceptionn.image(values, mode=mode, rounding=rounding, **options)
    mismatches = np.count_nonzero(got["decoded"] != image.view(np.uint32))
    mismatches += np.count_nonzero(got["tag"] != inceptionn.tags(values, **options))
    with np.errstate(invalid="ignore"):  # Inf - Inf and NaN pass as they are
        error = np.abs(values - got["decoded"].view(np.float32))
    return int(mismatches), float(np.fmax.reduce(error))


def sweep(
    *,
    mode="strict",
    exponent=117,
    prescale=0,
    rounding="trunc",
    stride=1,
    offset=0,
    jobs=None,
    progress=None,
):
    """Compare every `stride`-th float from `offset` on with the model and with the bound.

    mode, exponent, prescale, rounding : as `gradnic.models.inceptionn.compress` takes them.
    jobs : threads, default one a core.
    progress : called with (floats done, floats in all).

    Returns a dict: ``mode exponent prescale rounding floats mismatches max_abs_error bound ok
    seconds``.
    """
    begin = time.monotonic()
    path = pipeline(rounding)
    bound = largest_error(exponent, mode, prescale)
    total = len(range(offset, N_FLOATS, stride))
    options = {"exponent": exponent, "prescale": prescale}

    def chunk(start):
        index = np.arange(start, min(start + CHUNK, total), dtype=np.uint64) * np.uint64(stride)
        words = (index + np.uint64(offset)).astype(np.uint32)
        return len(words), *_compare(path, mode, rounding, words, **options)

    done, mismatches, worst = 0, 0, 0.0
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:  # C++ and numpy leave the lock free
        for n, wrong, error in pool.map(chunk, range(0, total, CHUNK)):
            done, mismatches, worst = done + n, mismatches + wrong, max(worst, error)
            if progress:
                progress(done, total)
    return {
        "mode": mode,
        "exponent": exponent,
        "prescale": prescale,
        "rounding": rounding,
        "floats": total,
        "mismatches": mismatches,
        "max_abs_error": worst,
        "bound": bound,
        "ok": mismatches == 0 and worst < bound,
        "seconds": round(time.monotonic() - begin, 1),
    }
