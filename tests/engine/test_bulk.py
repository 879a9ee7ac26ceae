"""Copies of circuits as bit planes: the same beats as one copy after the other, and volume."""

import json

import numpy as np
import pytest
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from click.testing import CliRunner
from gradnic.hdl.stream.beats import Beat
from gradnic.hdl.stream.fifo import FIFO
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.bulk import COPIES, Bulk
from gradnic.sim.inceptionn import chain

from gradnic.commands.chain import command
from gradnic.errors import Unfinished

DEPTH, WIDTH = 5, 40


@pytest.fixture(scope="module")
def fifo():
    return Bulk(FIFO(Beat(WIDTH), DEPTH))


@pytest.mark.parametrize("stalls", [0, 1, 3])
def test_every_copy_keeps_its_own_beats(fifo, stalls):
    """Memory, registers and handshakes of 256 FIFOs, each with another number of beats."""
    rng = stimulus.rng("bulk", stalls)
    n = 30
    rows = np.zeros((n, COPIES, fifo.row_bytes("i")), np.uint8)
    rows[:, :, : WIDTH // 8] = rng.integers(0, 256, (n, COPIES, WIDTH // 8), np.uint8)
    rows[:, :, WIDTH // 8] = rng.integers(0, 2, (n, COPIES))
    counts = rng.integers(0, n + 1, COPIES)
    outputs, cycles = fifo.run({"i": (rows, counts)}, {"o": n}, max_cycles=5000, stalls=stalls)
    got, n_got = outputs["o"]
    assert np.array_equal(n_got, counts)
    for copy in range(COPIES):
        assert np.array_equal(got[: counts[copy], copy], rows[: counts[copy], copy])
    if not stalls:
        assert cycles == counts.max() + 2  # full rate, and the FIFO's latency


def test_one_beat_too_many_is_counted(fifo):
    rows = np.zeros((4, COPIES, fifo.row_bytes("i")), np.uint8)
    outputs, _ = fifo.run({"i": (rows, np.full(COPIES, 4))}, {"o": 3}, max_cycles=1000)
    assert (outputs["o"][1] == 4).all()


def test_errors(fifo):
    rows = np.zeros((4, COPIES, fifo.row_bytes("i")), np.uint8)
    with pytest.raises(Unfinished, match="not drained after 3 cycles"):
        fifo.run({"i": (rows, np.full(COPIES, 4))}, {"o": 4}, max_cycles=3)
    with pytest.raises(ValueError, match=r"i: rows must have shape \('n', 256, 8\)"):
        fifo.run({"i": (rows[:, :3], np.full(COPIES, 4))}, {"o": 4}, max_cycles=3)

    class Plain(wiring.Component):
        a: In(1)
        b: Out(1)

    with pytest.raises(ValueError, match="must have streams only, not a"):
        Bulk(Plain())


def test_a_difference_is_told_by_the_command(monkeypatch):
    def differs(**_):
        raise AssertionError("round 7: coded differs from the model")

    monkeypatch.setattr(chain, "run", differs)
    run = CliRunner().invoke(command, ["--json", "-"])
    assert run.exit_code == 1
    assert "circuit and model differ: round 7: coded differs from the model" in run.stderr
    assert (json.loads(run.stdout)["ok"], json.loads(run.stdout)["seed"]) == (False, 1)


@pytest.mark.slow
def test_chain_of_engines_equals_the_model():
    """A round of packets at 4 lanes, at full speed and under stalls, through the command too."""
    n_floats, cycles, _ = chain.play(4, 1, n_units=6)
    assert n_floats > 100_000
    assert cycles < 1.3 * n_floats / COPIES / 4 + 300
    chain.play(4, 2, n_units=6, stalls=2)
    run = CliRunner().invoke(
        command, ["--lanes", "4", "--floats", "1000", "--jobs", "1", "--json", "-"]
    )
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["floats"] >= 1000


@pytest.mark.slow
def test_a_wrong_float_is_seen(monkeypatch):
    right = chain.inceptionn.image

    def wrong(x, **options):
        image = right(x, **options).copy()
        image[-1, -1] += 1
        return image

    monkeypatch.setattr(chain.inceptionn, "image", wrong)
    with pytest.raises(AssertionError, match="restored differs from the model"):
        chain.play(4, 3, n_units=2)
