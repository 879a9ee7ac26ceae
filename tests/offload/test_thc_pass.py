"""Passes of THC jobs over memories that pause, against golden workers: whole contents, and rate.

Those of indices and floats take minutes to build: here they are slow tests; in the quick ones they
are played by whole jobs, in ``test_thc_cluster.py``.
"""

import logging

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiRamRead, AxiRamWrite, AxiReadBus, AxiWriteBus
from gradnic.hdl.offload.thc_encode_pass import EncodePass
from gradnic.hdl.offload.thc_pass import (
    DecodePass,
    NormPass,
    PassJob,
    ThcCell,
    ThcRules,
)
from gradnic.hdl.thc.hadamard import BLOCKS
from gradnic.models.offload import bf16
from gradnic.models.thc import Worker, pack
from gradnic.sim.engine.drivers import given, options, reset
from gradnic.sim.engine.runner import simulate

SIZE = 2**16
PLACES = {"source": 0x1000, "own_norms": 0x4000, "norms": 0x4800, "indices": 0x5000, "sums": 0x6000,
          "result": 0x8000, "residual": 0xA000, "kept": 0xD000}  # fmt: skip
NODE, GEN, TENSOR, SEED, N = 3, 9, 5, 77, 3
GROUP = 1024  # elements that tensors are padded to
KINDS = {"norm": NormPass, "encode": EncodePass, "decode": DecodePass}


def images(worker, x, carried, half):
    """What each pass reads and writes, as bytes, by the names of their places; `carried` : residual
    before, or None. half : gradient and result are BF16.
    """
    source = bf16.narrow(x) if half else x
    x = bf16.widen(source) if half else x
    padded = np.zeros(-(-x.size // GROUP) * GROUP, np.float32)
    padded[: x.size] = x if carried is None else x + carried
    own = worker.norms(padded)
    norms = own.copy()
    norms[::3] += np.where(norms[::3], 1000, 0).astype(np.uint32)  # others had larger ones
    norms[5:6] = 0x7F800000
    codes = worker.encode(padded, norms, round=GEN, worker=NODE, tensor=TENSOR)
    lost = worker.residual(padded, codes, norms, tensor=TENSOR)[: x.size]
    sums = np.random.default_rng(1).integers(0, N * worker.g + 1, padded.size)
    mean = worker.decode(sums, norms, round=GEN, tensor=TENSOR)[: x.size]
    return {
        "source": source.tobytes(), "own_norms": own.tobytes(), "norms": norms.tobytes(),
        "indices": pack(codes, 4), "sums": sums.astype(np.uint8).tobytes(),
        "result": (bf16.narrow(mean) if half else mean).tobytes(),
        "residual": b"", "kept": lost.tobytes(),
    }, norms  # fmt: skip


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


def constant(shape, **fields):
    return shape.const(fields).as_value().value


def scale(worker, n):
    """C0 of the sums of `n` workers, FP32 bits."""
    return int(np.float32(worker.t_fixed / 256 / (n * worker.g * worker.B)).view(np.uint32))


async def load(dut, worker):
    """Settings, and the quantizers' table."""
    rules = {"log4": BLOCKS.index(worker.B), "t_fixed": worker.t_fixed, "unit": worker.unit,
             "g": worker.g, "middle": int(worker.table[len(worker.table) // 2]),
             "own_scale": scale(worker, 1)}  # fmt: skip
    dut.rules.value = constant(ThcRules, **rules)
    if not hasattr(dut, "cell"):
        return
    dut.node.value = NODE
    for index, (lower, level, gap) in enumerate(worker._cells.tolist()):
        cell = {"lower": lower, "above": index - level // 256, "gap": gap}
        dut.cell.value = constant(ThcCell, enable=1, index=index, cell=cell)
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
    n_blocks = norms.size
    dut.job.value = constant(
        PassJob(n_bytes, 64), **{name: place // n_bytes for name, place in PLACES.items()},
        n_beats=-(-x.nbytes // n_bytes), tail=x.size % (n_bytes // 2), n_blocks=n_blocks, seed=SEED,
        gen=GEN, tensor=TENSOR, offset=N * worker.g, scale=scale(worker, N),
        feedback=carried is not None, bf16=half,
    )  # fmt: skip
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
    name = {"norm": "own_norms", "encode": "indices", "decode": "result"}[kind]
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


@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize(
    ("kind", "n_bytes", "block", "feedback"),
    [
        ("norm", 16, 64, 1),
        pytest.param("encode", 16, 64, 1, marks=pytest.mark.slow),
        pytest.param("decode", 16, 64, 0, marks=pytest.mark.slow),
    ],
)
def test_pass(kind, n_bytes, block, feedback):
    x, carried = np.random.default_rng(4).standard_normal((2, 3000)).astype(np.float32)
    x[64:128], x[130], carried[:128] = 0, -1e30, -0.0
    x[70], carried[80], carried[2400] = np.float32(1e-42), np.float32(1e-42), np.inf
    more = {"feedback": True} if feedback else {}
    simulate(
        KINDS[kind](n_bytes, 64, block=block, bf16=True, **more), __file__,
        tests=["memory_as_golden"], simulator="verilator", data={"x": x, "carried": carried},
        options={"n_bytes": n_bytes, "kind": kind, "block": block, "feedback": feedback},
    )  # fmt: skip
