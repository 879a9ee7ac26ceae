# amaranth: UnusedElaboratable=no
# (the note alone is made without the card)
"""The offload card in OpenNIC's box: its memory on the chip, filled and read over registers.

At 128 bits a beat, which simulates faster than the shell's 512.
"""

import re
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.simtime import get_sim_time
from cocotb.task import bridge
from cocotb.triggers import ClockCycles
from gradnic.hdl.shells.common import wide_ram
from gradnic.hdl.shells.common.shared_memory import ports_of
from gradnic.hdl.shells.opennic.wrapper import BASE, OpenNic
from gradnic.hdl.top import verilog
from gradnic.sim.engine import runner
from gradnic.sim.frame import frames as makers
from gradnic.sim.offload import host_jobs as jobs_bench
from gradnic.sim.offload import host_round as offload_bench
from gradnic.sim.shells import bench as shell_bench
from gradnic.sim.shells.opennic import Bench, receive, send, shell

from gradnic.host.offload_driver import OffloadDriver
from gradnic.interface import params
from gradnic.interface.card_memory import PAGE_BYTES, REGISTERS

N_PORTS = 1
CARD = offload_bench.CARD
KIB = 512  # a page each, so landing memory is on a page of its own
PATIENCE = 1e-4  # s of simulated time
N_ELEMS = 96  # a word takes 20 cycles


async def prepare(driver, round_, **landing):
    """Write all settings, and begin; landing : arguments of `OffloadDriver.register`."""
    await bridge(round_.prepare)(driver)
    if landing:
        await bridge(driver.register)("landing", n_elems=N_ELEMS, **landing)
    await bridge(driver.start)(offload_bench.TENSOR, offload_bench.GEN, timeout=PATIENCE)


async def pass_frames(bench, rng, mixed=()):
    """Foreign frames pass both ways at both ports, `mixed` among those from port 0's MAC."""
    foreign = list(makers.foreign_frames(rng).values())
    order = rng.permutation(len(foreign) + len(mixed))
    arriving = [[*foreign, *mixed][n] for n in order]
    for k, port in enumerate(bench.ports):
        port["adap_tx_250mhz"].set_pause_generator(shell_bench.pauses(rng, 0.3))
        port["qdma_c2h"].set_pause_generator(shell_bench.pauses(rng, 0.2))
        await send(port["qdma_h2c"], [(frame, 7 + n) for n, frame in enumerate(foreign)])
        frames = foreign if k else arriving
        await send(port["adap_rx_250mhz"], [(frame, 99 + n) for n, frame in enumerate(frames)])
    for k, port in enumerate(bench.ports):
        out = await receive(port["adap_tx_250mhz"], len(foreign))
        assert out == [(frame, 7 + n, 1 << 6 + k) for n, frame in enumerate(foreign)]
        back = await receive(port["qdma_c2h"], len(foreign))
        wanted = enumerate(foreign if k else arriving)
        assert back == [(frame, 99 + n, 1 << k) for n, frame in wanted if frame in foreign]
    return len(foreign)


async def reset(bench):
    bench.dut.quiet.value = 1
    await bench.reset()
    bench.dut.quiet.value = 0
    for port in bench.ports:
        for stream in port.values():
            stream.clear()


@cocotb.test()
async def rounds_in_the_box(dut):
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    bench = Bench(dut, N_PORTS)
    options = {"base": BASE, "clock": lambda: get_sim_time("sec")}
    driver = OffloadDriver(*bench.access, **options)
    memory = driver.memory
    await reset(bench)
    round_ = offload_bench.Round(rng, N_ELEMS)
    begin = get_sim_time("ns")
    await bridge(memory.store)("gradient", offload_bench.GRADIENT, round_.mine.tobytes())
    store_ns = (get_sim_time("ns") - begin) / N_ELEMS

    # A landing area behind the memory: writes are refused and counted, and foreign frames pass.
    await prepare(driver, round_, address=1024 * KIB)
    await pass_frames(bench, rng, round_.packets)
    for read, name in ((memory.read, "refused"), (driver.read, "outside")):
        for _ in range(100):  # foreign frames may be faster
            if (counted := await bridge(read)(name)) >= len(round_.packets):
                break
        assert counted == len(round_.packets)
    assert (await bridge(driver.get)("status"))["finished"] == 0

    # A reset in that round, with a frame inside; memory stays, and the next round is a round.
    await send(bench.ports[0]["adap_rx_250mhz"], [(round_.packets[0], 1)])
    await ClockCycles(dut.axis_aclk, 6)
    await reset(bench)
    assert await bridge(memory.counters)() == {"outside": 0, "refused": 0}
    await prepare(driver, round_)
    n_foreign = await pass_frames(bench, rng, round_.packets)
    await bridge(driver.finish)(PATIENCE)
    begin = get_sim_time("ns")
    result = await bridge(memory.load)("gradient", offload_bench.RESULT, 4 * N_ELEMS)
    load_ns = (get_sim_time("ns") - begin) / N_ELEMS
    assert result == (round_.mine + round_.theirs).tobytes()
    landed = await bridge(memory.load)("landing", offload_bench.LANDING, 4 * N_ELEMS)
    assert landed == round_.theirs.tobytes()
    counters = await bridge(driver.counters)()
    wanted = {"accepted": len(round_.packets), "foreign": n_foreign}
    wanted |= {"failed": 0, "outside": 0, "sent": 0}
    assert {name: counters[name] for name in wanted} == wanted
    for stream in ("adap_tx_250mhz", "qdma_c2h"):
        assert bench.ports[0][stream].empty()

    # Words behind both memories are counted; addresses that nobody has read 0.
    words = memory.base + REGISTERS.window("words").offset
    await bridge(memory.write)("page", 2)
    read, write = bench.access
    for address in (words, words + PAGE_BYTES - 4, BASE + 0x800, BASE + 0x1010, words - 4):
        await bridge(write)(address, 0xBAD)
        assert await bridge(read)(address) == 0
    assert await bridge(memory.counters)() == {"outside": 4, "refused": 0}
    dut._log.info(f"ns a word: {store_ns:.0f} stored, {load_ns:.0f} loaded")
    assert max(store_ns, load_ns) < 110  # cycles, so the same on every machine


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
def test_rounds_in_the_box():
    circuit = OpenNic(memory_kib=KIB).box(CARD)
    text = verilog.convert(circuit, "gradnic_250mhz") + wide_ram.VERILOG
    text += shell(CARD.n_bytes, N_PORTS)
    runner.simulate(None, __file__, tests=["rounds_in_the_box"], netlist=text)


def test_note_says_where_everything_is():
    box = OpenNic(memory_kib=KIB).box(CARD)
    files = OpenNic(memory_kib=KIB).texts(box, CARD)
    note = files["gradnic_250mhz.md"]
    for line in (
        "| 0x100000 | the card |",
        "| 0x101000 | registers of its memory |",
        "| 0x180000 - 0x1fffff | words of the page, 32 bits each |",
    ):
        assert line in note.splitlines()
    assert "512 KiB of landing areas (ranks x tensor), 32 UltraRAM blocks" in re.sub(
        r"\s+", " ", note
    )
    assert "-num_cmac_port 1" in note
    assert ".mod_rstn (mod_rstn[0])" in files["box_250mhz/user_plugin_250mhz_inst.vh"]


def test_a_card_with_jobs_has_the_same_two_memories():
    card = replace(jobs_bench.THC_CARD, n_bytes=64, n_active=2)
    box = OpenNic(memory_kib=KIB).box(card)
    assert ports_of(box.cards[0]) == {}
    assert sorted(ports_of(box.cards[0].card)) == [
        "gradient_read", "gradient_write", "landing_read", "landing_write",
    ]  # fmt: skip
    text = OpenNic(memory_kib=KIB).texts(box, card)["gradnic_250mhz.md"]
    text = re.sub(r"\s+", " ", text)
    for words in (
        "512 KiB for gradients, results and scratch, and 512 KiB of landing areas (engines x",
        "card = JobDriver(read, write, base=0x100000)",
        "card.set_landing([address0, address1], n_elems)",
        "A completion waits while `status.completion` is 1.",
        "`gradnic.host.JobDriver` drives it by name",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("options", "card", "said"),
    [
        ({"memory_kib": 1000}, {}, "memory_kib must be a power of two, 4 to 8192, not 1000"),
        ({"memory_kib": 2}, {}, "memory_kib must be a power of two, 4 to 8192, not 2"),
        ({"memory_kib": 16384}, {}, "memory_kib must be a power of two, 4 to 8192, not 16384"),
        ({"n_ports": 2}, {}, "n_ports must be the card's, not an option"),
        ({}, {"n_ports": 3}, "n_ports must be 1 or 2, not 3"),
        ({}, {"address_width": 19}, "address_width must be at least 20 for 1024 KiB, not 19"),
        ({}, {}, "the card must have 512 bits a beat, not 128"),
    ],
)
def test_options_are_checked(options, card, said):
    with pytest.raises(ValueError, match=said):
        OpenNic(**options).files(replace(offload_bench.CARD, **card))


def test_an_inline_card_has_no_memory():
    with pytest.raises(ValueError, match="memory_kib must be left out: an in-line card has no"):
        OpenNic(memory_kib=64).files(params.preset("inline16"))
