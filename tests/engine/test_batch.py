"""The batch engine: values, rate, stalls and resets, and that each broken rule is caught."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import or_

import numpy as np
import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.stream.beats import Beat
from gradnic.hdl.stream.fifo import FIFO
from gradnic.sim.engine import batch, tools, verilated

FAULTS = ("none", "drops", "changes", "in reset", "waits", "sticks", "loses")


class Slip(wiring.Component):
    """Register stage with a side output and one seeded fault, chosen by ``fault``.

    The side output `extra[1]` copies each taken beat without being asked whether it is ready for
    it: a test stalls it only together with `extra[0]`.
    """

    def __init__(self):
        s = stream.Signature(Beat(40))
        ports = {"i": In(s), "extra": Out(s).array(2), "fault": In(3), "count": Out(72)}
        super().__init__({**ports, "level": Out(1)})

    def elaborate(self, platform):
        m = Module()
        o, side = self.extra
        chain = Signal(8)  # a part-assigned signal: no loop, bit by bit
        m.d.comb += chain[0].eq(self.i.valid)
        for k in range(1, 8):
            m.d.comb += chain[k].eq(chain[k - 1] & (self.i.p.data[k] | self.i.valid))
        m.d.comb += [self.i.ready.eq(o.ready | ~o.valid), self.level.eq(o.valid)]
        with m.If(self.i.ready):
            m.d.sync += [o.valid.eq(chain[7] & (self.fault != 6)), o.p.eq(self.i.p)]
        with m.If(self.i.ready & self.i.valid):
            m.d.sync += self.count.eq(self.count + 1)
        m.d.comb += side.valid.eq(o.valid & o.ready)
        m.d.comb += side.p.eq(o.p)
        tick = Signal(4)
        m.d.sync += tick.eq(tick + 1)
        with m.Switch(self.fault):
            with m.Case(1), m.If(tick == 0):
                m.d.sync += o.valid.eq(0)
            with m.Case(2), m.If(tick == 0):
                m.d.sync += o.p.data[39].eq(~o.p.data[39])
            with m.Case(3):
                m.d.comb += side.valid.eq(1)
            with m.Case(5):
                m.d.comb += self.i.ready.eq(0)
        return m


@pytest.fixture(scope="module")
def slip():
    return batch.build(Slip())


def beats_for(model, n, seed=1):
    rng = np.random.default_rng(seed)
    return model.pack("i", data=rng.integers(0, 256, (n, 5), np.uint8), last=rng.integers(0, 2, n))


def run(slip, beats, **options):
    """One run of a sane `Slip`: the side output waits for nobody, hence no probing for that."""
    return slip.run({"i": beats}, probe_cycles=0, **options)


def test_values_cycles_and_signals(slip):
    beats = beats_for(slip, 1000)
    got = run(slip, beats, trace=["level", "count"], idle_cycles=10)
    got.check(extra__0=beats, extra__1=beats)
    np.testing.assert_array_equal(got.taken["i"], np.arange(1000))
    np.testing.assert_array_equal(got.taken["extra__0"], np.arange(1, 1001))
    assert got.cycles == 1001 + 10
    assert got.signals == {"count": (1000).to_bytes(9, "little"), "level": 0}
    np.testing.assert_array_equal(np.flatnonzero(got.traces["level"]), np.arange(1, 1001))
    assert got.traces["count"].shape == (1011, 9)


@pytest.mark.parametrize("offered", [1, 0.3])
@pytest.mark.parametrize("taken", [1, 0.3, [0, 0, 1], (np.zeros(10_000), [0, 1])])
def test_stalls(slip, offered, taken):
    beats = beats_for(slip, 500)
    got = run(slip, beats, stalls={"i": offered, "extra__0": taken}, seed=7)
    got.check(extra__0=beats, extra__1=beats)
    if taken == [0, 0, 1]:
        assert set(got.taken["extra__0"] % 3) == {2}
    if isinstance(taken, tuple):
        assert got.taken["extra__0"][0] == 10_001


def test_a_seed_is_a_run(slip):
    beats = beats_for(slip, 300)
    cycles = [
        run(slip, beats, stalls={"i": 0.5, "extra__0": 0.5}, seed=seed).taken["extra__0"]
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(cycles[0], cycles[1])
    assert (cycles[0] != cycles[2]).any()


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("drops", batch.ProtocolError, "extra__0: valid dropped before ready at cycle"),
        ("changes", batch.ProtocolError, "extra__0: payload changed while stalled at cycle"),
        ("in reset", batch.ProtocolError, "extra__1: valid is high in reset at cycle 1"),
        ("waits", batch.ProtocolError, "extra__1: valid waits for ready at cycle"),
        ("sticks", batch.DrainError, "not drained after 3000 cycles"),
        ("loses", AssertionError, "extra__0: 0 beats, not 300"),
    ],
)
def test_faults_are_caught_and_replay(slip, fault, error, message, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADNIC_BUILD", str(tmp_path))
    beats = beats_for(slip, 300)
    probe = {"probe_cycles": 1 if fault == "waits" else 0}
    stalls = {"extra__0": 0.5 if fault != "waits" else [1, 0]}
    signals = {"fault": FAULTS.index(fault)}
    with pytest.raises(error, match=message) as caught:
        slip.run({"i": beats}, stalls=stalls, signals=signals, max_cycles=3000, **probe).check(
            extra__0=beats
        )
    command = str(caught.value).split("replay: python ")[1].split()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert message in done.stdout
    assert "replay" in done.stdout


def test_beats_where_none_are_allowed(slip):
    with pytest.raises(AssertionError, match="extra__1: 3 beats, not 0"):
        run(slip, beats_for(slip, 3), outputs=["extra__0"])


def test_levels_per_cycle(slip):
    beats = beats_for(slip, 64)
    got = run(slip, beats, signals={"fault": [0] * 10 + [5] * 20 + [0]})
    np.testing.assert_array_equal(got.taken["i"], [*range(10), *range(30, 84)])


def test_instances_keep_their_own_state(slip):
    one, two = slip.instance(), slip.instance()
    beats = beats_for(slip, 10)
    for instance, rounds in ((one, 2), (two, 1), (one, 1)):
        for _ in range(rounds):
            instance.run({"i": beats}, reset=False, probe_cycles=0).check(extra__0=beats)
    assert int.from_bytes(one.read("count"), "little") == 30
    assert int.from_bytes(two.read("count"), "little") == 10


def test_stop_and_reset_at_every_cycle():
    model = batch.build(FIFO(Beat(40), 4))
    instance = model.instance()
    first, second = beats_for(model, 8, 1), beats_for(model, 8, 2)
    for cycle in range(14):
        part = instance.run({"i": first}, stalls={"o": 0.4}, max_cycles=cycle, drain=False)
        assert part.cycles == cycle
        np.testing.assert_array_equal(part.outputs["o"], first[: len(part.outputs["o"])])
        instance.run({"i": second}, stalls={"o": 0.4}).check(o=second)


def test_until_ends_at_once(slip):
    beats = beats_for(slip, 100)
    got = run(slip, beats, until={"extra__0": 40})
    assert got.cycles == 41
    with pytest.raises(batch.DrainError, match="extra__0 101 wanted"):
        run(slip, beats, until={"extra__0": 101})


def test_parts_and_flattened_agree(slip):
    streams, plain = slip.streams.values(), [*slip.levels.values(), *slip.probes.values()]
    text = rtlil.convert(Slip(), name="top", emit_src=False)
    prepare = verilated.PREPARE[: verilated.PREPARE.index("flatten")]
    parts = batch.build_rtlil(text, streams, plain, name="Parts", prepare=prepare)
    assert parts.folder != slip.folder
    beats = beats_for(slip, 2000)
    options = {"stalls": {"i": 0.6, "extra__0": 0.6}, "trace": ["count", "level"]}
    a, b = run(slip, beats, **options), run(parts, beats, **options)
    a.check(extra__0=beats)
    b.check(**a.outputs)
    assert a.cycles == b.cycles
    for port in a.taken:
        np.testing.assert_array_equal(a.taken[port], b.taken[port])
    for port in a.traces:
        np.testing.assert_array_equal(a.traces[port], b.traces[port])


class Knot(wiring.Component):
    """With `y` in place of the 0, a ring of one inverter while `en` is high."""

    def __init__(self):
        super().__init__({"en": In(1), "y": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.y.eq(~(Signal() & self.en))
        return m


def test_a_loop_that_does_not_settle_is_a_finding():
    plain = batch.ports_of(Knot().signature)[1]
    text = rtlil.convert(Knot(), name="top", emit_src=False)
    knotted = text.replace("connect \\A 1'0", "connect \\A \\y")
    assert knotted != text  # Amaranth itself would refuse the loop
    model = batch.build_rtlil(knotted, [], plain, name="Knot")
    instance = model.instance()
    with pytest.raises(batch.ProtocolError, match="loop does not settle at cycle 3"):
        instance.run(signals={"en": [0, 0, 0, 1]}, drain=False, max_cycles=9)
    with pytest.raises(batch.ProtocolError, match="loop does not settle as y is read"):
        instance.read("y")
    assert instance.run(signals={"en": 0}, drain=False, max_cycles=9).signals["y"] == 1


def test_several_builders_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADNIC_BUILD", str(tmp_path))
    with ThreadPoolExecutor(3) as pool:
        models = list(pool.map(lambda _: batch.build(FIFO(Beat(8), 2)), range(3)))
    assert len({model.folder for model in models}) == 1
    assert [p.name for p in (tmp_path / "batch").glob("[!.]*")] == [models[0].folder.name]


class TwoClocks(wiring.Component):
    i: In(1)
    o: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.fast += self.o.eq(self.i)
        return m


class Adder(wiring.Component):
    """No clock at all."""

    a: In(8)
    b: In(8)
    total: Out(9)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.total.eq(self.a + self.b)
        return m


def test_without_a_clock():
    a, b = np.arange(256), np.arange(256)[::-1] // 3
    model = batch.build(Adder())
    got = model.run(signals={"a": a, "b": b}, trace=["total"], drain=False, max_cycles=256)
    np.testing.assert_array_equal(got.traces["total"], a + b)


class Bare(wiring.Component):
    """Shows payloads, also of what is not offered."""

    i: In(stream.Signature(37))
    j: In(stream.Signature(64))
    narrow: Out(40)
    wide: Out(64)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.i.ready.eq(1), self.narrow.eq(self.i.payload)]
        m.d.comb += [self.j.ready.eq(1), self.wide.eq(self.j.payload)]
        return m


def test_payloads_are_noise_between_offers():
    """All bits of it, in each gap another one."""
    model = batch.build(Bare())
    beats = {"i": np.zeros((20, 5), np.uint8), "j": np.zeros((20, 8), np.uint8)}
    options = {"stalls": {"i": [0, 0, 1], "j": [0, 1]}, "drain": False, "max_cycles": 100}
    run = model.run(beats, trace=["narrow", "wide"], **options)
    for port, trace, width in (("i", "narrow", 37), ("j", "wide", 64)):
        shown, taken = run.traces[trace], run.taken[port]
        assert len(taken) == 20
        assert not shown[taken].any()
        noise = np.delete(shown, taken).tolist()
        assert all(noise)
        assert len(set(noise)) == 21 - (taken[0] == 0)
        assert reduce(or_, noise) == 2**width - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": {"j": np.zeros((1, 6), np.uint8)}}, r"among \['i'\], not 'j'"),
        ({"inputs": {"i": np.zeros((1, 5), np.uint8)}}, r"uint8 \(n, 6\), not uint8 \(0, 5\)"),
        ({"inputs": {"i": np.full((1, 6), 255, np.uint8)}}, "top 7 bits of a beat must be 0"),
        ({"stalls": {"i": 1.5}}, r"a duty must be within 0..1, not 1.5"),
        ({"signals": {"fault": 8}}, "must be within 0..7, not 8"),
        ({"drain": False}, "max_cycles or until must be given"),
    ],
)
def test_run_refuses(slip, options, message):
    with pytest.raises(ValueError, match=message):
        slip.run(**options)


def test_two_clocks_are_refused():
    with pytest.raises(ValueError, match="must have one clock domain, sync"):
        batch.build(TwoClocks())


def test_a_failing_tool_is_no_verdict(tmp_path):
    with pytest.raises(tools.ToolError, match="ended with status"):
        tools.yosys("read_rtlil missing.il\n", folder=tmp_path, outputs=[])
    assert not issubclass(tools.ToolError, AssertionError)
