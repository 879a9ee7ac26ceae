"""Reduce unit: every operation, every stall, at full rate; and several users of its lanes."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from gradnic.hdl.reduction import reduce
from gradnic.hdl.reduction.codec_image import CodecImage
from gradnic.hdl.reduction.reduce import Combine, Op, Reduce
from gradnic.hdl.reduction.shared_combine import SharedCombine
from gradnic.hdl.reduction.summing import Summing
from gradnic.models.reduction.reduce import combine, maximum
from gradnic.sim.engine import batch, encoding, stimulus
from gradnic.sim.reduction.blocks import NAMES, beats, blocks, words

GRID = [{}, {"o": 0.4}, {"i": 0.4}, {"i": 0.5, "o": 0.5}]


@pytest.mark.parametrize("stall", GRID, ids=str)
@pytest.mark.parametrize("lanes", [1, 4])
def test_operations_beat_by_beat(lanes, stall, monkeypatch):
    monkeypatch.setattr(reduce, "NEAR", 3)  # of 4 lanes three share an operation
    rng = stimulus.rng("reduce", lanes)
    n = 1200
    a, b = words(rng, n, lanes), words(rng, n, lanes)[::-1]
    ops = rng.choice([*range(5), Op.INT12, *[Op.MAXIMUM] * (lanes == 4)], n)
    small = (ops == Op.INT12) & (np.arange(n) % 8 > 0)  # corners stay, which no such sums are
    a[small] &= 0xFF0FFF0F
    b[small] &= 0xFF0FFF0F
    last = rng.integers(0, 2, n)
    want = np.stack([combine(x, y, NAMES[op]) for x, y, op in zip(a, b, ops, strict=True)])
    component = Reduce(lanes, maxima=lanes == 4)
    assert component.latency == {1: 18, 4: 19}[lanes]
    model = batch.build(component)
    stalls = {"partials": stall.get("i", 1), "contributions": stall.get("i", 1)}
    run = model.run(
        {
            "partials": beats(model, "partials", a, op=ops, last=last, alone=0),
            "contributions": beats(model, "contributions", b, last=0),
        },
        stalls={**stalls, "sums": stall.get("o", 1)},
    )
    run.check(sums=beats(model, "sums", want, last=last))
    if not stall:
        np.testing.assert_array_equal(run.taken["partials"], np.arange(n))
        np.testing.assert_array_equal(run.taken["sums"], np.arange(n) + component.latency)


def test_floats_only():
    rng = stimulus.rng("floats only")
    a, b = words(rng, 300, 2), words(rng, 300, 2)
    component = Combine(2, integers=False)
    run = batch.build(component).run(
        signals={"a": a.view(np.uint8).reshape(300, 8), "b": b.view(np.uint8).reshape(300, 8)},
        trace=["o"],
        drain=False,
        max_cycles=300 + component.latency,
    )
    got = encoding.pack(component.o.shape(), run.traces["o"])[component.latency :]
    np.testing.assert_array_equal(got, combine(a, b).view(np.uint8).reshape(300, 8))


def test_maxima_are_numpys_but_for_zeros_and_nan():
    a, b = (words(stimulus.rng("maxima", k), 4000, 2).view(np.float32) for k in range(2))
    got = maximum(a, b)
    nan = np.isnan(a) | np.isnan(b)
    assert nan.any()
    assert (got[nan].view(np.uint32) == 0x7FC00000).all()
    np.testing.assert_array_equal(got[~nan], np.maximum(a, b)[~nan])
    for zeros in ([0.0, -0.0], [-0.0, 0.0], [0.0, 0.0]):
        assert not np.signbit(maximum(*np.float32(zeros).reshape(2, 1))).any()
    assert np.signbit(maximum(np.float32([-0.0]), np.float32([-0.0]))).all()


def test_integer_sums_stay_in_their_codes():
    full = np.array([[0xFFFFFFFF]], np.uint32)
    one = np.array([[0x01010101]], np.uint32)
    assert combine(full, one, "int8")[0, 0] == 0xFFFFFFFF
    assert combine(full, np.array([[0x01000100]], np.uint32), "int16")[0, 0] == 0xFFFFFFFF
    assert combine(full, one, "int32")[0, 0] == 0x01010100
    half, odd = np.array([[0xFE0FFF80]], np.uint32), np.array([[0x01000180]], np.uint32)
    assert combine(half, odd, "int8")[0, 0] == 0xFF0FFFFF
    assert combine(half, odd, "int16")[0, 0] == 0xFF0FFFFF  # 0x0FFE + 1, and too much
    assert combine(half, odd, "int12")[0, 0] == 0xFF0FFF0F
    # most significant byte first: 0x00FF + 0x0001 = 0x0100 in bytes 00 FF and 00 01
    low, bit = np.array([[0x0000FF00]], np.uint32), np.array([[0x00000100]], np.uint32)
    assert combine(low, bit, "int16")[0, 0] == 0x00000001
    with pytest.raises(ValueError, match="maximum, int32, int16, int12 or int8, not 'sum'"):
        combine(full, one, "sum")
    with pytest.raises(ValueError, match="lanes differ in shape"):
        combine(full, np.zeros((2, 1), np.uint32))
    for other in (np.float32([[1.5]]), np.array([[1 << 33]]), [[1]]):
        with pytest.raises(ValueError, match=r"lanes must be uint32, not (float32|int64)"):
            combine(full, other)
    assert combine(full.astype(">u4"), one, "int32")[0, 0] == 0x01010100


class _Users(wiring.Component):
    """`n` units of sums that share their lanes, user 0 before the others, the last before 1."""

    def __init__(self, n):
        self.units = [Summing(2, max_beats=20, shared=True) for _ in range(n)]
        self.n, self.lanes = n, SharedCombine(2, n)
        ports = {
            f"u{k}_{name}": member
            for k, unit in enumerate(self.units)
            for name, member in unit.signature.members.items()
            if name != "adder"
        }
        super().__init__(ports)

    def elaborate(self, platform):
        m = Module()
        m.submodules.lanes = self.lanes
        for k, unit in enumerate(self.units):
            m.submodules[f"unit{k}"] = unit
            wiring.connect(m, unit.adder, self.lanes.users[k])
            for name in ("jobs", "own", "contributions", "sums"):
                wiring.connect(
                    m, wiring.flipped(getattr(self, f"u{k}_{name}")), getattr(unit, name)
                )
        order = [0, self.n - 1, *range(1, self.n - 1)]
        m.d.comb += [
            self.lanes.yields[k].eq(sum(1 << j for j in order[: order.index(k)]))
            for k in range(self.n)
        ]
        return m


@pytest.mark.parametrize("near", [1, 8])
def test_users_of_one_combine_have_their_own_sums_and_its_whole_rate(near, monkeypatch):
    """With lanes that share a register of the operation, and each with its own."""
    monkeypatch.setattr(reduce, "NEAR", near)
    model = batch.build(_Users(3))
    streams, want, beats_in = {}, {}, []
    for k in range(3):
        jobs, own, sums = blocks(stimulus.rng("shared", k), model, True, f"u{k}_")
        streams |= own
        want[f"u{k}_sums"] = sums
        beats_in.append(sum(max(1, ranks) * n for n, ranks, _ in jobs))
    run = model.run(streams)
    run.check(**want)
    alone = max(run.taken["u0_sums"])  # as if it had them for itself
    jobs, own, sums = blocks(stimulus.rng("shared", 0), model, True, "u0_")
    assert model.run(own).taken["u0_sums"][-1] == alone
    end = max(run.taken[name][-1] for name in want)
    assert end < 1.2 * sum(beats_in), (end, beats_in)
    model.run(streams, stalls={"u0_sums": 0.2, "u1_own": 0.3, "u2_sums": 0.5}).check(**want)


def test_what_goes_alone_takes_no_turn_of_the_lanes():
    """Packets of one's own values, of several jobs: all users a beat a cycle, bit for bit."""
    model = batch.build(_Users(3))
    streams, want = {}, {}
    for k in range(3):
        values = stimulus.rng("alone", k).integers(0, 1 << 64, 500, np.uint64)
        told = {"n_beats": np.full(25, 20), "n_contributions": np.zeros(25, int), "op": [0] * 25}
        last = np.arange(1, 501) % 20 == 0
        streams[f"u{k}_jobs"] = model.pack(f"u{k}_jobs", **told)
        streams[f"u{k}_own"] = model.pack(f"u{k}_own", data=values, last=0)
        want[f"u{k}_sums"] = model.pack(f"u{k}_sums", data=values, last=last)
    run = model.run(streams)
    run.check(**want)
    assert max(run.taken[name][-1] for name in want) < 500 + 60


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Reduce(0), "n_lanes must be 1 to 64, not 0"),
        (lambda: Reduce(0, shared=True), "n_lanes must be 1 to 64, not 0"),
        (lambda: Combine(4.0), "n_lanes must be 1 to 64, not 4.0"),
        (lambda: SharedCombine(4, 5), "n must be 1 to 4, not 5"),
        (lambda: SharedCombine(4, 0), "n must be 1 to 4, not 0"),
        (lambda: SharedCombine(65, 2), "n_lanes must be 1 to 64, not 65"),
        (lambda: CodecImage(4, codes=False), "passes must be True without codes, not False"),
        (lambda: CodecImage(4, wide=True), "wide must be False without passes, not True"),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
