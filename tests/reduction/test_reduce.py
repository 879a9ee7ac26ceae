"""Reduce unit and sums in order of ranks: every operation, every stall, at full rate."""

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
from gradnic.sim.engine import amaranth_run, batch, encoding, stimulus

NAMES = {op: op.name.lower() for op in Op}
GRID = [{}, {"o": 0.4}, {"i": 0.4}, {"i": 0.5, "o": 0.5}]


def words(rng, n, lanes):
    """Random words, every fourth a float of everyday size, every eighth a corner."""
    values = rng.integers(0, 1 << 32, (n, lanes), dtype=np.uint32)
    values[::4] = rng.standard_normal((len(values[::4]), lanes)).astype(np.float32).view("u4")
    corners = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 1, 0xFFFFFFFF], np.uint32)
    values[::8] = rng.choice(corners, (len(values[::8]), lanes))
    return values


def beats(model, port, values, **fields):
    data = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    return model.pack(port, data=data, **fields)


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


def ends(parts):
    """Which beats are the last ones of `parts`."""
    return np.concatenate([np.arange(len(part)) == len(part) - 1 for part in parts])


def blocks(rng, model, integers, prefix=""):
    """(Jobs, streams of `Summing`, its sums) of 60 blocks."""
    jobs, own, more, want = [], [], [], []
    for _ in range(60):
        n, ranks, op = (int(x) for x in rng.integers([1, 0, 0], [21, 5, 5 if integers else 2]))
        op = op if integers else int((Op.FLOAT, Op.MAXIMUM)[op])
        jobs.append((n, ranks, op))
        total = words(rng, n, 2)
        own.append(total)
        for _ in range(ranks):
            more.append(words(rng, n, 2))
            total = combine(total, more[-1], NAMES[op])
        want.append(total)
    names = ("n_beats", "n_contributions", "op")
    told = dict(zip(names, np.array(jobs).T, strict=True))
    streams = {
        f"{prefix}jobs": model.pack(f"{prefix}jobs", **told),
        f"{prefix}own": beats(model, f"{prefix}own", np.concatenate(own), last=ends(own)),
        f"{prefix}contributions": beats(
            model, f"{prefix}contributions", np.concatenate(more), last=ends(more)
        ),
    }
    return jobs, streams, beats(model, f"{prefix}sums", np.concatenate(want), last=ends(want))


@pytest.mark.parametrize("stall", [{}, {"own": 0.5, "sums": 0.3, "contributions": 0.7}], ids=str)
@pytest.mark.parametrize(("integers", "most", "turn"), [(True, 20, 21), (False, 33, 26)])
def test_blocks_in_order_of_ranks(stall, integers, most, turn):
    """Through LUT RAM, and through block RAM, which takes longer."""
    rng = stimulus.rng("summing")
    model = batch.build(Summing(2, max_beats=most, integers=integers, maxima=not integers))
    jobs, streams, sums = blocks(rng, model, integers)
    run = model.run(streams, stalls=stall, trace=["astray"])
    run.check(sums=sums)
    assert not run.traces["astray"].any()
    if not stall:
        bound = sum(max(1, ranks) * max(n, turn) for n, ranks, _ in jobs)
        assert run.taken["sums"][-1] < bound


@pytest.mark.parametrize(("most", "turn"), [(22, 21), (33, 26)])
def test_a_short_block_takes_turns_but_for_its_last_rank(most, turn):
    """Behind full ones and among its like: 29 cycles for 8 beats and two contributions, not 42."""
    model = batch.build(Summing(4, max_beats=most, integers=False))
    for ranks in (1, 2, 3, 7):
        for n_beats in (2, 8, 20, 21, 22, most):
            sizes = [most, most, *[n_beats] * 3, most, most]
            own = [np.zeros((n, 4), np.uint32) for n in sizes]
            more = [block for block in own for _ in range(ranks)]
            told = {"n_beats": sizes, "n_contributions": [ranks] * len(sizes)}
            streams = {
                "jobs": model.pack("jobs", **told, op=[0] * len(sizes)),
                "own": beats(model, "own", np.concatenate(own), last=ends(own)),
                "contributions": beats(
                    model, "contributions", np.concatenate(more), last=ends(more)
                ),
            }
            left = model.run(streams).taken["sums"][np.cumsum(sizes) - 1]
            want = [(ranks - 1) * max(n, turn) + n for n in sizes[1:]]
            assert np.diff(left).tolist() == want, (ranks, n_beats)


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


@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("name", ["own", "contributions"])
def test_a_beat_more_or_less_is_told(name, integers):
    model = batch.build(Summing(2, max_beats=20, integers=integers))
    _, streams, _ = blocks(stimulus.rng("more"), model, integers)
    sound = streams[name]
    for k in (0, 7, len(sound) // 2):
        for one in (np.delete(sound, k, axis=0), np.insert(sound, k, sound[0], axis=0)):
            more = {"trace": ["astray"], "max_cycles": 20000, "drain": False}
            run = model.run(streams | {name: one}, **more)
            assert run.traces["astray"][-1], (k, len(one))


@pytest.mark.parametrize("changes", [False, True])
def test_a_sum_that_nobody_made_is_told(changes):
    """In the middle of a block, while its next beat is late."""
    part = Summing(2, max_beats=20)

    async def bench(ctx):
        ctx.set(part.jobs.p, {"n_beats": 10, "n_contributions": 0, "op": Op.FLOAT})
        ctx.set(part.sums.ready, 1)
        for cycle in range(120):
            ctx.set(part.jobs.valid, cycle == 0)
            ctx.set(part.own.valid, 20 <= cycle < 25 or 80 <= cycle < 85)
            ctx.set(part.own.p.last, cycle == 84)
            if cycle == 60 and changes:
                ctx.set(part.reduce.queue.came, 1)
            await ctx.tick()
        assert ctx.get(part.astray) == changes

    amaranth_run.simulate(part, bench)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Reduce(0), "n_lanes must be 1 to 64, not 0"),
        (lambda: Reduce(0, shared=True), "n_lanes must be 1 to 64, not 0"),
        (lambda: Combine(4.0), "n_lanes must be 1 to 64, not 4.0"),
        (lambda: Summing(4, max_beats=0), "max_beats must be 1 to 16384, not 0"),
        (lambda: Summing(65, max_beats=4, shared=True), "n_lanes must be 1 to 64, not 65"),
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
