"""The self-test design: passes through its serial port, and fails for each kind of wrong vector."""

import re

import cocotb
import numpy as np
import pytest
from amaranth.lib import data
from click.testing import CliRunner
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer
from gradnic.fpga.board import build as board
from gradnic.fpga.board.playback import Checker, Player
from gradnic.fpga.board.printer import Decimal, Printer
from gradnic.fpga.board.selftest import SelfTest
from gradnic.fpga.board.uart import UartTx
from gradnic.fpga.board.vectors import golden_vectors
from gradnic.models import inceptionn
from gradnic.sim.engine import batch, drivers, runner

from gradnic.commands.fpga import command

CYCLE_NS = 10
DIVISOR = 2  # the shortest: the serial port takes most of the time in simulation
ROUND = re.compile(
    r"round (\d{4}): cycles (\d{8}), "
    r"wrong: sizes (\d{4}) coded (\d{4}) verdicts (\d{4}) floats (\d{4}): (PASS|FAIL|HANG)"
)


@cocotb.test()
async def listen(dut):
    """A terminal: receives until the last line, and leaves the text and the LEDs."""
    Clock(dut.clk, CYCLE_NS, "ns", impl="gpi").start()
    dut.rst.value = 1
    await Timer(2.5 * CYCLE_NS, "ns")
    dut.rst.value = 0
    bit = DIVISOR * CYCLE_NS
    text = bytearray()
    while not re.search(rb"\nself-test: .*\n", text):
        await FallingEdge(dut.tx)
        await Timer(bit * 3 // 2, "ns")  # the middle of the first bit
        octet = 0
        for k in range(8):
            octet |= int(dut.tx.value) << k
            await Timer(bit, "ns")
        assert int(dut.tx.value) == 1, "stop bit"
        text.append(octet)
    leds = [int(dut.leds.value)]
    drivers.leave(text=np.frombuffer(bytes(text), np.uint8), leds=np.array(leds))


def report(vectors, *, rounds):
    """Play a self-test in the simulator: (lines of its report, LEDs at the end)."""
    result = runner.simulate(SelfTest(vectors, rounds=rounds, divisor=DIVISOR), __file__)
    text = result.left["text"].tobytes().decode("ascii")
    assert text.endswith("\r\n")
    return text.split("\r\n")[:-1], int(result.left["leds"][0])


def heard(tx):
    """Text of a line's level in each cycle, as `listen` hears it."""
    text, at, tx = bytearray(), 0, np.asarray(tx)
    while len(low := np.flatnonzero(tx[at:] == 0)):
        at += int(low[0])
        bits = tx[at + DIVISOR // 2 :: DIVISOR][1:10]
        assert bits[8] == 1, "stop bit"
        text.append(int(np.packbits(bits[:8].astype(np.uint8), bitorder="little")[0]))
        at += 10 * DIVISOR - 1
    return text.decode("ascii")


def compiled_report(vectors, *, rounds):
    """As `report`, in the batch engine: a round that hangs takes Icarus 15 s."""
    model = batch.build(SelfTest(vectors, rounds=rounds, divisor=DIVISOR))
    most = rounds * (64 * vectors.n_beats + 4096) + (rounds + 2) * 120 * 10 * DIVISOR
    run = model.run(trace=["tx"], drain=False, max_cycles=most)
    text = heard(run.traces["tx"])
    assert text.endswith("\r\n")
    return text.split("\r\n")[:-1], run.signals["leds"]


def test_passes():
    vectors = golden_vectors(4, n_units=8)
    (hello, *lines, end), leds = report(vectors, rounds=4)
    assert hello == (
        f"gradnic self-test: 4 lanes, {len(vectors.units)} units, {vectors.n_floats} floats"
    )
    rounds = [ROUND.fullmatch(line) for line in lines]
    assert all(rounds), lines
    assert [int(r[1]) for r in rounds] == [1, 2, 3, 4]
    assert [r.group(3, 4, 5, 6, 7) for r in rounds] == 4 * [("0000",) * 4 + ("PASS",)]
    assert end == "self-test: PASS"
    cycles = [int(r[2]) for r in rounds]
    assert min(cycles[1:]) > cycles[0]  # the first round is the one without stalls
    assert leds & 0b1110 == 0b0100  # not testing, passed, no round failed
    assert leds >> 4 == 4


def one_to_four(vectors):
    """Another number of wrong ones of each kind, so that none counts as another."""
    kept = next(size for size in vectors.sizes if not size["dropped"])
    kept["bytes"] += 1
    vectors.coded[0]["data"] ^= 1 << 77  # a full beat
    vectors.coded[1]["data"] ^= 1 << 5
    for verdict in vectors.verdicts[:3]:
        verdict["ok"] ^= 1
    for beat in vectors.images[:4]:
        beat["data"] ^= 1


def one_more(vectors):
    vectors.images.append(vectors.images[-1])


def one_less(vectors):
    vectors.images.pop()


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        (one_to_four, ["0001", "0002", "0003", "0004", "FAIL"]),
        (one_less, ["0000", "0000", "0000", "0001", "FAIL"]),
        (one_more, ["0000", "0000", "0000", "0000", "HANG"]),
    ],
)
def test_broken_vector_fails(spoil, wrong):
    vectors = golden_vectors(4, n_units=0)
    spoil(vectors)
    (_, line, end), leds = compiled_report(vectors, rounds=1)
    assert list(ROUND.fullmatch(line).group(3, 4, 5, 6, 7)) == wrong
    assert end == "self-test: FAIL"
    assert leds & 0b1110 == 0b1000


def test_vectors_are_the_models():
    """Tables decode back: what goes in, what is coded, and what must come back agree."""
    vectors = golden_vectors(8)
    floats = _units(vectors.floats, vectors.units, [4 * unit["count"] for unit in vectors.units])
    kept = [size for size in vectors.sizes if not size["dropped"]]
    coded = _units(vectors.coded, kept, [size["bytes"] for size in kept])
    assert len(vectors.verdicts) == len(kept)
    assert {True, False} == {bool(v["ok"]) for v in vectors.verdicts}
    images, inputs = [], iter(zip(vectors.sizes, floats, strict=True))
    verdicts = iter(vectors.verdicts)
    for size, octets in inputs:
        if size["dropped"]:
            continue
        settings = {
            "exponent": size["exponent"],
            "mode": "paper" if size["paper"] else "strict",
            "prescale": size["prescale"],
        }
        x = np.frombuffer(octets, np.float32)
        data = coded.pop(0)
        assert inceptionn.compress(x, **settings) == data
        if next(verdicts)["ok"]:
            images.append(inceptionn.decompress(data, x.size, **settings).tobytes())
    back = _units(vectors.images, images, [len(image) for image in images])
    assert back == images
    tags = {(tag >> 2 * k) & 3 for unit in _coded_tags(vectors) for tag in unit for k in range(8)}
    assert tags == {0, 1, 2, 3}


def _units(beats, units, sizes):
    """Octets of each unit, cut from beats at their last."""
    result, octets = [], b""
    for beat in beats:
        octets += beat["data"].to_bytes(32, "little")
        if beat["last"]:
            size = sizes[len(result)]
            assert len(octets) == -(-size // 32) * 32
            assert not any(octets[size:])
            result.append(octets[:size])
            octets = b""
    assert octets == b""
    assert len(result) == len(units)
    return result


def _coded_tags(vectors):
    kept = [size for size in vectors.sizes if not size["dropped"]]
    coded = _units(vectors.coded, kept, [size["bytes"] for size in kept])
    for size, octets in zip(kept, coded, strict=True):
        yield np.frombuffer(octets[: 2 * -(-size["count"] // 8)], "<u2").tolist()


def receive(line, divisor):
    """Octets on a serial line, one sample a cycle; every start and stop bit must be right."""
    octets, at = bytearray(), 0
    while (line[at:] == 0).any():
        start = at + int(np.argmax(line[at:] == 0))
        bits = line[start : start + 10 * divisor].reshape(10, divisor)
        assert (bits == bits[:, :1]).all(), f"bit of another length at {start}"
        assert (bits[0, 0], bits[9, 0]) == (0, 1)
        octets.append(int(np.packbits(bits[1:9, 0], bitorder="little")[0]))
        at = start + 10 * divisor
    return bytes(octets)


@pytest.mark.parametrize("divisor", [2, 3, 7])
def test_uart(divisor):
    octets = bytes([0, 255, 0x55, 0xAA, *b"gradnic\r\n"])
    model = batch.build(UartTx(divisor))
    run = model.run(
        inputs={"i": np.frombuffer(octets, np.uint8).reshape(-1, 1)},
        trace=["tx"],
        drain=False,
        max_cycles=10 * divisor * (len(octets) + 1),
    )
    assert receive(run.traces["tx"].astype(np.uint8), divisor) == octets
    gaps = np.diff(run.taken["i"])
    assert (gaps[1:] == 10 * divisor).all()  # bytes follow each other without a gap


def test_decimal_counts_and_stops():
    model = batch.build(Decimal(2))
    count = np.ones(130, np.uint8)
    run = model.run(
        signals={"count": count, "clear": (np.arange(130) == 120).astype(np.uint8)},
        trace=["value"],
        drain=False,
        max_cycles=130,
    )
    value = run.traces["value"].astype(int)
    decimal = 10 * (value >> 4) + (value & 15)
    expected = [*range(100), *[99] * 21, *range(9)]
    np.testing.assert_array_equal(decimal, expected)


def test_printer_fills_lines_in():
    model = batch.build(Printer(["n = {n}!", "{verdict} {m}{n}"], {"n": 3, "m": 1}))
    instance = batch.Instance(model)
    for line, verdict, text in [
        (0, 0, "n = 072!\r\n"),
        (1, 0, "PASS 5072\r\n"),
        (1, 1, "FAIL 5072\r\n"),
        (1, 2, "HANG 5072\r\n"),
    ]:
        run = instance.run(
            signals={
                "n": 0x072,
                "m": 5,
                "line": line,
                "verdict": verdict,
                "start": np.array([0, 1, 0], np.uint8),
            },
            stalls={"o": 0.3},
            trace=["idle"],
        )
        assert run.outputs["o"].tobytes().decode() == text
        assert run.traces["idle"][0] == 1
        assert run.traces["idle"][-1] == 1
        assert 0 in run.traces["idle"]
    with pytest.raises(ValueError, match="must name a counter"):
        Printer(["{other}"], {"n": 1})
    with pytest.raises(ValueError, match="counters must have 124 digits at most, not 125"):
        Printer([""], {"n": 125})


def test_player_plays_again():
    rows = list(range(10, 17))
    model = batch.build(Player(8, rows))
    start = np.zeros(400, np.uint8)
    start[[3, 150]] = 1
    for stall, ready in [(0, 1), (1, 0.4)]:
        run = model.run(
            signals={
                "start": start,
                "stall": np.random.default_rng(5).integers(0, 1 + stall, 400).astype(np.uint8),
            },
            stalls={"o": ready},
            trace=["played"],
            drain=False,
            max_cycles=400,
        )
        np.testing.assert_array_equal(run.outputs["o"][:, 0], rows * 2)
        if not stall:
            assert (np.diff(run.taken["o"][: len(rows)]) == 1).all()
        assert run.traces["played"][2] == run.traces["played"][149] == 1
        assert run.traces["played"][10] == 0


def test_checker_sees_every_bit():
    layout = data.StructLayout({"x": 40, "y": 3})
    checker = Checker(layout, layout, lambda beat, golden: [beat.x ^ golden.x, beat.y ^ golden.y])
    model = batch.build(checker)
    for bit in [0, 15, 16, 39, 40, 42]:
        golden = np.zeros((5, 6), np.uint8)
        beats = golden.copy()
        beats[2, bit // 8] ^= 1 << bit % 8
        run = model.run(
            inputs={"i": beats, "expected": golden}, stalls={"i": 0.5, "o": 0.5}, trace=["wrong"]
        )
        assert run.traces["wrong"].sum() == 1
        assert len(run.outputs["o"]) == 5
    run = model.run(inputs={"i": np.zeros((3, 6), np.uint8)}, signals={"over": 1}, trace=["wrong"])
    assert run.traces["wrong"].sum() == 3  # nothing was expected
    assert len(run.outputs["o"]) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UartTx(1), "divisor must be at least 2, not 1"),
        (lambda: Decimal(0), "n_digits must be at least 1, not 0"),
        (lambda: Player(8, []), "rows must be at least 1, not 0"),
        (
            lambda: SelfTest(golden_vectors(4, n_units=0), rounds=0, divisor=2),
            "rounds must be 1 to 9999, not 0",
        ),
    ],
)
def test_mistakes(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("clock_mhz", [110, 0, 825])
def test_pll_refuses(clock_mhz):
    with pytest.raises(ValueError, match=f"up to 800, not {clock_mhz}$"):
        board.Clock(None, reset=None, reference_mhz=25, clock_mhz=clock_mhz)


@pytest.mark.parametrize("clock_mhz", [25, 50, 100, 125, 150, 200])
def test_pll_stays_in_range(clock_mhz):
    clock = board.Clock(None, reset=None, reference_mhz=25, clock_mhz=clock_mhz)
    assert 25 * clock.multiple == clock_mhz
    assert 400 <= clock_mhz * clock.divider <= 800


def test_command_names_the_boards():
    result = CliRunner().invoke(command, ["arty"])
    assert isinstance(result.exception, ValueError)
    assert str(result.exception) == "board must be ulx3s, not 'arty'; see --list"
