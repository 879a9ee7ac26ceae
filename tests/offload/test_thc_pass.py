"""Passes of THC jobs against golden workers: all that they read, write and tell, and their rate.

`test_pass` plays each beside a memory in the batch engine: both types, with and without residuals,
pauses, errors. `test_pass_over_axi`, minutes and slow, puts cocotbext-axi's memories, which hold
AXI's rules, in its place; in the quick tests the proofs of ports hold those
(``tests/proof/test_port_proofs.py``). Whole jobs are in ``test_thc_cluster.py``.
"""

import logging

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiRamRead, AxiRamWrite, AxiReadBus, AxiWriteBus
from gradnic.hdl.offload.thc_pass import PassJob, ThcCell, ThcRules
from gradnic.models.thc import Worker
from gradnic.sim.engine import batch
from gradnic.sim.engine.drivers import given, options, reset
from gradnic.sim.engine.runner import simulate
from gradnic.sim.mutation import passes
from gradnic.sim.offload.pass_stand import (
    GEN,
    GROUP,
    KINDS,
    NODE,
    PLACES,
    SEED,
    SIZE,
    WRITES,
    N,
    cells,
    constant,
    images,
    job,
    rules,
)


@pytest.mark.parametrize("kind", KINDS)
def test_pass(kind):
    passes.play(batch.build(passes.component(kind)), kind)


def pauses(rng, share):
    while True:
        yield bool(rng.random() < share)


def memories(dut, share, rng):
    """The sides of the pass's memory by name; their channels pause with a share of cycles."""
    rams = {}
    for kind, bus, prefix in (
        (AxiRamRead, AxiReadBus, "read"),
        (AxiRamWrite, AxiWriteBus, "write"),
        (AxiRamRead, AxiReadBus, "residual_read"),
        (AxiRamWrite, AxiWriteBus, "residual_write"),
    ):
        if not hasattr(dut, f"{prefix}__{'arvalid' if kind is AxiRamRead else 'awvalid'}"):
            continue
        ram = kind(bus.from_prefix(dut, prefix, bus_separator="__"), dut.clk, dut.rst, size=SIZE)
        ram.log.setLevel(logging.WARNING)
        for name in ("ar_channel", "r_channel", "aw_channel", "w_channel", "b_channel"):
            if share and hasattr(ram, name):
                getattr(ram, name).set_pause_generator(pauses(rng, share))
        rams[prefix] = ram
    return rams


async def load(dut, worker):
    """Settings, and the quantizers' table."""
    dut.rules.value = constant(ThcRules, **rules(worker))
    if not hasattr(dut, "cell"):
        return
    dut.node.value = NODE
    for cell in cells(worker):
        dut.cell.value = constant(ThcCell, **cell)
        await RisingEdge(dut.clk)
    dut.cell.value = 0


async def play(dut, rams, kind, n_bytes, worker, x, carried=None, half=0):
    """Run one pass; its cycles, once memory has what it must."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    wanted, norms = images(worker, x, carried, half)
    for name in ("start", "job", "rules", "node", "cell"):
        if hasattr(dut, name):
            getattr(dut, name).value = 0
    reads, writes = rams["read"], rams["write"]
    for name, place in PLACES.items():
        reads.write(place, wanted[name])
    before = rng.integers(0, 256, SIZE, dtype=np.uint8).tobytes()
    writes.write(0, before)
    if carried is not None:
        rams["residual_read"].write(PLACES["residual"], carried.tobytes())
    if "residual_write" in rams:
        rams["residual_write"].write(0, before)
    await reset(dut)
    await load(dut, worker)
    fields = job(n_bytes, worker, x, norms, carried=carried, half=half)
    dut.job.value = constant(PassJob(n_bytes, 64), **fields)
    dut.start.value = 1
    cycles, checks = 0, {}
    while not dut.done.value:
        await RisingEdge(dut.clk)
        cycles += 1
        assert not dut.failed.value
        assert cycles < 40_000
        if kind == "encode" and (check := int(dut.check.value)) & 1:
            checks[check >> 1 & 0xFFFF] = check >> 17
    await ClockCycles(dut.clk, 50)
    name = WRITES[kind]
    found = bytearray(writes.read(0, SIZE))
    place, size = PLACES[name], len(wanted[name])
    assert found[place : place + size] == wanted[name]
    spare = -size % n_bytes if kind == "norm" else 0  # norms end with their beat
    found[place : place + size + spare] = before[place : place + size + spare]
    assert bytes(found) == before
    if "residual_write" in rams:
        size = 0 if carried is None else x.nbytes
        place, found = PLACES["kept"], bytearray(rams["residual_write"].read(0, SIZE))
        assert found[place : place + size] == wanted["kept"][:size]
        found[place : place + size] = before[place : place + size]
        assert bytes(found) == before
    if kind == "encode":
        per = GROUP // worker.B
        told = np.bitwise_xor.reduce(norms.reshape(-1, per), axis=1) & 0xFFFFF
        assert checks == dict(enumerate(told.tolist()))
    return cycles


@cocotb.test()
@cocotb.parametrize(share=[0, 0.4])
async def memory_as_golden(dut, share):
    worker = Worker(N, SEED, sign_round=GEN, B=options()["block"])
    n = options()["n_bytes"]
    rams = memories(dut, share, np.random.default_rng(cocotb.RANDOM_SEED))
    carried = given()["carried"]
    for turn, size in enumerate((1, 1000, 2048, 2500)):
        x, more = given()["x"][:size], carried[:size] if options()["feedback"] and turn else None
        cycles = await play(dut, rams, options()["kind"], n, worker, x, more, turn % 2)
        dut.start.value = 0
    if not share:
        beats = 4 * GROUP * -(-size // GROUP) // n  # fixed: keys, blocks on their way, answers
        more = 4 * worker.B * 4 // n + 100 if options()["feedback"] else 0
        assert cycles < beats + 2 * worker.B * 4 // n + 400 + more


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize("kind", KINDS)
def test_pass_over_axi(kind):
    x, carried = passes.values()
    n_bytes, block, feedback = 16, 64, kind != "decode"
    more = {"feedback": True} if feedback else {}
    simulate(
        KINDS[kind](n_bytes, 64, block=block, bf16=True, **more), __file__,
        tests=["memory_as_golden"], simulator="verilator", data={"x": x, "carried": carried},
        options={"n_bytes": n_bytes, "kind": kind, "block": block, "feedback": feedback},
    )  # fmt: skip
