"""Coverage: what the FIFO's bench reaches, with the Python line of what it does not, and bins."""

import numpy as np
import pytest
from gradnic.hdl.stream.beats import Beat
from gradnic.hdl.stream.fifo import FIFO
from gradnic.sim.engine import coverage, runner, stimulus
from gradnic.sim.engine.encoding import pack

SHAPE = Beat(40)


def points_of(beats, n_cycles):
    component = FIFO(SHAPE, 4)
    ports = {"inputs": ["i"], "outputs": ["o"], "n_cycles": n_cycles}
    stalls = stimulus.patterns(stimulus.rng("coverage"), n_cycles, i=0.7, o=0.5)
    result = runner.simulate(
        component,
        runner.PLAYER,
        simulator="verilator",
        coverage=True,
        data={"beats.i": beats} | {f"stall.{name}": p for name, p in stalls.items()},
        options=ports,
    )
    verilog = (result.folder.parent.parent / "design.v").read_text()
    return coverage.read(result.folder / "coverage.dat"), verilog


def test_fifo_is_covered():
    if reason := runner.missing("verilator"):
        pytest.skip(reason)
    data = np.concatenate([stimulus.byte_corners(5)] * 4)
    points, verilog = points_of(pack(SHAPE, data=data, last=np.arange(len(data)) % 2), 700)
    reached = coverage.summary(points)
    for kind in ("line", "branch", "expr"):
        assert reached[kind][0] == reached[kind][1], coverage.missed(points, verilog)
    hits, total = reached["toggle"]
    assert hits / total > 0.95, coverage.missed(points, verilog)
    # One beat alone fills nothing: what is missed carries its line.
    points, verilog = points_of(pack(SHAPE, data=data[:1], last=1), 40)
    few = coverage.missed(points, verilog)
    assert coverage.summary(points)["toggle"][0] < hits
    assert any("fifo.py:" in text for text in few)


def test_read_refuses(tmp_path):
    (tmp_path / "coverage.dat").write_text("# SystemC::Coverage-3\n")
    with pytest.raises(ValueError, match="holds no coverage points"):
        coverage.read(tmp_path / "coverage.dat")


def test_bins():
    bins = coverage.Bins(size=["small", "large"], stall=["none", "in", "out"])
    bins.sample(size=[0, 0, 1], stall=[0, 0, 2])
    assert bins.counts.tolist() == [[2, 0, 0], [0, 0, 1]]
    assert bins.missed() == [("small", "in"), ("small", "out"), ("large", "none"), ("large", "in")]
    with pytest.raises(ValueError, match=r"stall must be within 0..2, not 3..3"):
        bins.sample(size=[0], stall=[3])
    with pytest.raises(ValueError, match=r"axes must be \['size', 'stall'\], not \['size'\]"):
        bins.sample(size=[0])
