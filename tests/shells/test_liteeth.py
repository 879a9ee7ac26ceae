# amaranth: UnusedElaboratable=no
# (the note alone is made without the card)
"""The bridge on LiteEth's streams: last_be, error, narrow beats, and a MAC that never waits."""

import re
from dataclasses import replace
from functools import cache

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.simtime import get_sim_time
from cocotb.task import bridge
from cocotb.triggers import ClockCycles, with_timeout
from cocotbext.axi import AxiBus, AxiRam, AxiReadBus, AxiWriteBus
from gradnic.hdl.shells.common.shared_memory import ports_of
from gradnic.hdl.shells.liteeth.wrapper import STREAMS, Bridge, LiteEth
from gradnic.hdl.top.catalog import core
from gradnic.models.inline.card import InlineCard as GoldenCard
from gradnic.sim.engine import drivers, runner
from gradnic.sim.frame import frames as makers
from gradnic.sim.offload import host_jobs as jobs_bench
from gradnic.sim.offload import host_round as offload_bench
from gradnic.sim.shells import bench as shell_bench
from gradnic.sim.shells.liteeth import Endpoint, never_stalls

from gradnic.host.driver import InlineDriver
from gradnic.host.offload_driver import OffloadDriver
from gradnic.interface import params


def in_classes(frames, settings):
    """Frames as foreign and own ones: order is kept within each."""
    card = GoldenCard(settings)
    own = [f for f in frames if card.kind_in(f[0]) is not None]
    return [f for f in frames if card.kind_in(f[0]) is None], own


@cocotb.test()
async def between_mac_and_core(dut):
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    settings, early = makers.SETTINGS, drivers.options()["bits"] > 8
    cocotb.start_soon(Clock(dut.clk, 8, "ns").start())
    ends = {name: Endpoint(dut, name) for name in ("host_tx", "mac_tx", "mac_rx", "host_rx")}
    for name in ("host_tx", "mac_rx"):
        ends[name].valid.value = 0
    for name in ("mac_tx", "host_rx"):
        ends[name].ready.value = 0
    access = shell_bench.registers(dut, "bus", dut.clk, dut.rst, separator="__")
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 2)
    card, golden = InlineDriver(*access), GoldenCard(settings)
    await bridge(card.configure)(settings)

    frames = [*makers.foreign_frames(rng).values(), *makers.own_frames(rng, 12).values()]
    order = rng.permutation(len(frames))[: None if early else 12]  # 8 bits take their time
    sent = [(frames[k], bool(rng.random() < 0.15)) for k in order]
    coded = [golden.transmit(*frame) for frame in sent]
    kept = [frame for frame in coded if not frame[1]]  # a bad one cannot be spoiled: dropped
    cocotb.start_soon(ends["host_tx"].send(sent, rng, duty=0.7))
    wait = ends["mac_tx"].receive(len(kept), rng, gaps=False)
    out = await with_timeout(wait, 2000, "us")
    assert in_classes(out, settings) == in_classes(kept, settings)

    arriving = [(f, bool(rng.random() < 0.15)) for f, _ in coded]
    restored = [golden.receive(*frame) for frame in arriving]
    restored = [frame for frame in restored if frame is not None]
    always = cocotb.start_soon(never_stalls(ends["mac_rx"]))
    cocotb.start_soon(ends["mac_rx"].send(arriving, rng, early=early))
    back = await with_timeout(ends["host_rx"].receive(len(restored), rng, duty=0.8), 2000, "us")
    assert sorted(back) == sorted(restored)
    assert not always.done()
    always.cancel()
    assert await bridge(card.counters)() == golden.counters


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize("bits", [8, 32])
def test_between_mac_and_core(bits):
    card = core(params.preset("inline4"), meta_width=0)
    tests = ["between_mac_and_core"]
    runner.simulate(Bridge(card, bits), __file__, tests=tests, options={"bits": bits})


@cocotb.test()
async def a_round_on_the_bridge(dut):
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    cocotb.start_soon(Clock(dut.clk, 8, "ns").start())
    ends = {name: Endpoint(dut, name, "_") for name in STREAMS}
    for name, enters in STREAMS.items():
        (ends[name].valid if enters else ends[name].ready).value = 0
    memories = []
    for name in ("gradient", "landing"):
        write = AxiWriteBus.from_prefix(dut, f"{name}_write")
        read = AxiReadBus.from_prefix(dut, f"{name}_read")
        size = offload_bench.MEMORY_BYTES
        memories.append(AxiRam(AxiBus(write, read), dut.clk, dut.rst, size=size))
    access = shell_bench.registers(dut, "bus", dut.clk, dut.rst)
    driver = OffloadDriver(*access, clock=lambda: get_sim_time("sec"))
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 2)
    round_ = offload_bench.Round(rng)
    memories[0].write(offload_bench.GRADIENT, round_.mine.tobytes())
    await bridge(round_.prepare)(driver)
    await bridge(driver.start)(offload_bench.TENSOR, offload_bench.GEN, timeout=1e-4)

    foreign = [(frame, False) for frame in makers.foreign_frames(rng).values()]
    always = cocotb.start_soon(never_stalls(ends["mac_rx"]))
    cocotb.start_soon(ends["host_tx"].send(foreign, rng, duty=0.7))
    out = cocotb.start_soon(ends["mac_tx"].receive(len(foreign), rng, gaps=False))
    mixed = [(frame, False) for frame in round_.packets] + foreign
    mixed = [mixed[k] for k in rng.permutation(len(mixed))]
    cocotb.start_soon(ends["mac_rx"].send(mixed, rng))
    back = await with_timeout(ends["host_rx"].receive(len(foreign), rng, duty=0.8), 2000, "us")
    assert back == [frame for frame in mixed if frame in foreign]
    assert await with_timeout(out, 2000, "us") == foreign
    await bridge(driver.finish)(1e-4)
    round_.check(*memories)
    assert not always.done()
    always.cancel()
    counters = await bridge(driver.counters)()
    assert (counters["accepted"], counters["foreign"]) == (len(round_.packets), len(foreign))


CARD = replace(offload_bench.CARD, address_width=34)


@cache
def written():
    """The files of an offload card."""
    return LiteEth(64).files(CARD)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
def test_a_round_on_the_bridge():
    text = written()["gradnic_liteeth.v"].replace("module gradnic_liteeth(", "module top(")
    runner.simulate(None, __file__, tests=["a_round_on_the_bridge"], netlist=text)


def test_the_offload_card_has_its_memory_in_the_note():
    assert "data_width=128, address_width=34" in written()["gradnic_liteeth.md"]
    for pin in ("gradient_read_araddr", "landing_write_wlast", "interrupt"):
        assert re.search(rf"^  (in|out)put .*{pin};$", written()["gradnic_liteeth.v"], re.M)


def test_a_card_has_one_port_at_a_mac_core():
    with pytest.raises(ValueError, match="n_ports must be 1 at a MAC core, not 2"):
        LiteEth().files(replace(CARD, n_ports=2))


def test_a_card_with_jobs_has_the_same_two_memories():
    card = replace(jobs_bench.THC_CARD, address_width=34)
    bridge, liteeth = LiteEth(64).bridge(card), LiteEth(64)
    assert sorted(ports_of(bridge)) == sorted(ports_of(liteeth.bridge(CARD)))
    text = " ".join(liteeth.note(bridge, card).split())
    assert "data_width=128, address_width=34" in text
    assert "scratch and residuals, too" in text
    assert "card = JobDriver(read, write, base=base)" in text


def test_options_are_checked():
    with pytest.raises(ValueError, match="bits must be 8, 16, 32 or 64, not 24"):
        LiteEth(24)


@pytest.mark.parametrize("preset", ["inline32", "offload1024"])
def test_a_card_is_at_most_64_times_as_wide_as_the_core(preset):
    with pytest.raises(ValueError, match="bits must be at least 16 around a card of 1024, not 8"):
        LiteEth(8).files(params.preset(preset))
