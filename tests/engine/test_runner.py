"""One FIFO under both layers: cocotb on each simulator, and the batch engine, cycle for cycle."""

import subprocess
import sys

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import with_timeout
from gradnic.hdl.stream.beats import Beat
from gradnic.hdl.stream.fifo import FIFO
from gradnic.sim.engine import batch, runner, stimulus
from gradnic.sim.engine.drivers import Stream, collect, drive, given, leave, reset, rests
from gradnic.sim.engine.encoding import pack

SHAPE = Beat(40)


@cocotb.test()
@cocotb.parametrize(i_duty=[1.0, 0.4], o_duty=[1.0, 0.3])
async def delivers(dut, i_duty, o_duty):
    """All beats, in order, unchanged, and nothing after them."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    beats = given()["beats"]
    await reset(dut, inputs="i", outputs="o")
    cocotb.start_soon(drive(Stream(dut, "i"), beats, rng, i_duty))
    task = collect(Stream(dut, "o"), rng, o_duty, n_beats=len(beats))
    got, taken = await with_timeout(task, 1, "ms")
    np.testing.assert_array_equal(got, beats)
    if i_duty == o_duty == 1:
        np.testing.assert_array_equal(taken, np.arange(2, 2 + len(beats)))  # latency 2, full rate
    await rests(Stream(dut, "o"), 20)
    leave(rate=len(taken) / (taken[-1] + 1))


@cocotb.test()
async def resets_in_mid_packet(dut):
    """Nothing of the beats before a reset comes out after it."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    beats = given()["beats"]
    for n_before in range(1, 8):
        await reset(dut, inputs="i", outputs="o", start_clock=n_before == 1)
        before = cocotb.start_soon(drive(Stream(dut, "i"), beats, rng))
        await collect(Stream(dut, "o"), rng, 0.5, n_cycles=n_before)
        before.cancel()
        await reset(dut, inputs="i", outputs="o", start_clock=False)
        cocotb.start_soon(drive(Stream(dut, "i"), beats[::-1][:20], rng))
        got, _ = await collect(Stream(dut, "o"), rng, 0.5, n_cycles=200)
        np.testing.assert_array_equal(got, beats[::-1][:20])


@cocotb.test()
async def fails(dut):
    """Never passes: what a failure looks like is tested with it."""
    await reset(dut, inputs="i", outputs="o")
    raise AssertionError("as it must")


def beats():
    rng = stimulus.rng("fifo")
    noise = rng.integers(0, 256, (60, 5), np.uint8)
    data = np.concatenate([stimulus.byte_corners(5), noise])
    return pack(SHAPE, data=data, last=rng.integers(0, 2, len(data)))


def need(simulator):
    if reason := runner.missing(simulator):
        pytest.skip(reason)


@pytest.mark.parametrize("simulator", runner.SIMULATORS)
def test_fifo_in_cocotb(simulator):
    need(simulator)
    tests = ["delivers", "resets_in_mid_packet"]
    result = runner.simulate(
        FIFO(SHAPE, 4), __file__, simulator=simulator, tests=tests, data={"beats": beats()}
    )
    assert len(result.tests) == 5
    assert 0 < result.left["rate"] <= 1


@pytest.mark.parametrize("simulator", runner.SIMULATORS)
def test_layers_agree_cycle_for_cycle(simulator):
    need(simulator)
    patterns = stimulus.patterns(stimulus.rng("layers"), 4000, i=0.6, o=0.5)
    batched = batch.build(FIFO(SHAPE, 4)).run({"i": beats()}, stalls=patterns)
    outputs, taken = runner.play(
        FIFO(SHAPE, 4), {"i": beats()}, patterns=patterns, n_cycles=1000, simulator=simulator
    )
    batched.check(o=beats())
    np.testing.assert_array_equal(outputs["o"], batched.outputs["o"])
    for port in ("i", "o"):
        np.testing.assert_array_equal(taken[port], batched.taken[port])


def test_a_failure_is_a_replay():
    with pytest.raises(AssertionError, match=r"fails: .*as it must") as caught:
        runner.simulate(FIFO(SHAPE, 4), __file__, tests=["fails"], data={"beats": beats()})
    command = str(caught.value).split("replay: python ")[1].split()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "as it must" in done.stdout


def test_no_test_is_a_failure():
    with pytest.raises(AssertionError, match=r"no test of test_runner.py ran, asked for \['one'\]"):
        runner.simulate(FIFO(SHAPE, 4), __file__, tests=["one"], data={"beats": beats()})


def test_ports_with_names_of_systemverilog_are_let_at():
    text = "module top(\\cell , i__valid);\n  input [9:0] \\cell ;\n  input i__valid;\nendmodule\n"
    lines = runner._public_ports(text).splitlines()
    names = [line.split('"')[3] for line in lines if line.startswith("public_flat_rw")]
    assert names == ["cell", "i__valid"]


class Forgetful(wiring.Component):
    """A register stage whose ``valid`` reset forgets: only an X run shows it."""

    def __init__(self):
        codes = stream.Signature(SHAPE)
        super().__init__({"i": In(codes), "o": Out(codes)})

    def elaborate(self, platform):
        m = Module()
        valid = Signal(reset_less=True)
        m.d.comb += [self.o.valid.eq(valid), self.i.ready.eq(self.o.ready | ~valid)]
        with m.If(self.i.ready):
            m.d.sync += [valid.eq(self.i.valid), self.o.p.eq(self.i.p)]
        return m


def test_x_on_valid_is_caught():
    need("icarus")
    options = {"tests": ["resets_in_mid_packet"], "data": {"beats": beats()}, "keep_init": False}
    runner.simulate(FIFO(SHAPE, 2), __file__, simulator="icarus", **options)
    with pytest.raises(AssertionError, match=r"o.valid is X"):
        runner.simulate(Forgetful(), __file__, simulator="icarus", **options)


def test_refuses():
    with pytest.raises(ValueError, match="simulator must be among"):
        runner.missing("modelsim")
