"""Integers become floats and products round as numpy's do; what is subnormal is +0."""

import numpy as np
import pytest
from amaranth.hdl import Const, Module, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.stream.delays import delayed_flag
from gradnic.hdl.thc.float_times import IntToFloat, Times, unpacked
from gradnic.models.thc.float_times import times as golden_times
from gradnic.sim.engine import batch
from gradnic.sim.thc.worker import fields_to_bytes


class IntToFloatStream(wiring.Component):
    """`IntToFloat` times one, as a stream of FP32 words; always ready."""

    def __init__(self, width):
        self.convert = IntToFloat(width)
        super().__init__({"i": In(stream.Signature(signed(width))), "o": Out(stream.Signature(32))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.convert, m.submodules.times = convert, times = self.convert, Times()
        lag = convert.latency + times.latency
        m.d.comb += [
            self.i.ready.eq(1),
            convert.i.eq(self.i.payload),
            times.a.eq(convert.o),
            *(times.b[n].eq(v) for n, v in unpacked(Const(0x3F800000, 32)).items()),
            self.o.payload.eq(times.o),
            self.o.valid.eq(delayed_flag(m, self.i.valid, lag)),
        ]
        return m


class TimesStream(wiring.Component):
    """`Times` as a stream of FP32 words; always ready."""

    i: In(stream.Signature(data.StructLayout({"a": 32, "b": 32})))
    o: Out(stream.Signature(32))

    def elaborate(self, platform):
        m = Module()
        m.submodules.times = times = Times()
        m.d.comb += [
            self.i.ready.eq(1),
            *(times.a[n].eq(v) for n, v in unpacked(self.i.p.a).items()),
            *(times.b[n].eq(v) for n, v in unpacked(self.i.p.b).items()),
            self.o.payload.eq(times.o),
            self.o.valid.eq(delayed_flag(m, self.i.valid, times.latency)),
        ]
        return m


@pytest.mark.parametrize("width", [9, 21, 24, 25, 33])
def test_integers_become_floats_as_numpy_rounds(width):
    model = batch.build(IntToFloatStream(width))
    rng = np.random.default_rng(width)
    top = 2 ** (width - 1)
    near_ties = np.concatenate([[top - 1, -top, 0, 1, -1], 2 ** np.arange(width - 1)])
    near_ties = np.concatenate([near_ties + d for d in (-1, 0, 1)])
    values = np.concatenate([near_ties, rng.integers(-top, top, 4000)]).clip(-top, top - 1)
    run = model.run({"i": fields_to_bytes(values[:, None], width)}, ["o"], probe_cycles=0)
    np.testing.assert_array_equal(
        run.unpack("o").astype(np.uint32), values.astype(np.float32).view(np.uint32)
    )


def test_products_round_as_numpy_does():
    model = batch.build(TimesStream())
    rng = np.random.default_rng(2)
    mantissas = np.array([0, 1, 0x7FFFFF, 0x7FFFFE, 0x400000, 0x3FFFFF, 0x555555], np.uint32)
    exponents = np.array([1, 2, 60, 63, 64, 126, 127, 128, 190, 253, 254], np.uint32)
    corners = (exponents[:, None] << np.uint32(23) | mantissas).reshape(-1)
    corners = np.concatenate([corners, corners | np.uint32(1 << 31), [np.uint32(0)]])
    a, b = (v.reshape(-1) for v in np.meshgrid(corners, corners))
    noise = rng.integers(0, 2**32, (2, 50_000), dtype=np.uint64).astype(np.uint32)
    noise = noise[:, ((noise >> 23 & 255) % 255 != 0).all(axis=0)]
    # products near the least normal number, where rounding decides whether they are flushed
    edge = rng.integers(0, 1 << 23, (2, 50_000)).astype(np.uint32) | 0x7FF000
    edge |= np.array([[63], [64]], np.uint32) << np.uint32(23)
    a, b = (np.concatenate(v) for v in ((a, noise[0], edge[0]), (b, noise[1], edge[1])))
    expected = golden_times(a.view(np.float32), b.view(np.float32))
    run = model.run({"i": model.pack("i", a=a, b=b)}, ["o"], probe_cycles=0)
    np.testing.assert_array_equal(run.unpack("o").astype(np.uint32), expected.view(np.uint32))


def test_errors_name_the_value_and_the_limit():
    with pytest.raises(ValueError, match="width must be 2 to 33, not 40"):
        IntToFloat(40)


def test_the_model_flushes_what_is_subnormal():
    least = np.float32(np.finfo(np.float32).tiny)
    a = np.array([least, -least, least, 3e38], np.float32)
    b = np.array([0.99, 0.99, 1, 3e38], np.float32)
    got = golden_times(a, b)
    assert got.view(np.uint32).tolist() == [0, 0, 0x00800000, 0x7F800000]
