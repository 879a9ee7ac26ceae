"""In-network all-reduce in RTL: engines and aggregator against the golden cluster, with faults."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models.aggregation.star import Faults
from gradnic.models.thc.worker import Worker
from gradnic.sim.aggregation import soak as star_soak
from gradnic.sim.aggregation import star_run
from gradnic.sim.aggregation.aggregator import build_aggregator
from gradnic.sim.aggregation.worker import RtlWorker, build_engines

from gradnic import cli

N, SIZE = 2, 2500
SHAPE = {
    "n_slots": 8,
    "C": 128,
    "n_elems": 64,
}  # one library with tests/aggregation/test_aggregator.py
CONFIG = star_run.star_config(N, "thc", B=64, **SHAPE)
DEADLINE = star_run.star_config(N, "thc", B=64, deadline=3000, **SHAPE)
INT32 = star_run.star_config(N, "int32", **SHAPE)
FAULTS = {
    "clean": Faults(),
    "loss 0.1 %": Faults(loss=0.001),
    "loss 1 %, copies, depth 64": Faults(loss=0.01, duplicate=0.05, reorder=64),
    "loss 10 %, later than the timer": Faults(loss=0.1, duplicate=0.1, reorder=3000),
}


@pytest.fixture(scope="module")
def aggregator():
    assert star_run.sizes(CONFIG) == star_run.sizes(INT32)
    return build_aggregator(N, **star_run.sizes(CONFIG))


@pytest.fixture(scope="module")
def engines():
    return build_engines(4, 256)


def gradients(codec):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((N, SIZE)).astype(np.float32)
    x[1, 300:700] = 0
    x[:, 1100:1400] = 0
    if codec == "thc":
        x[0, 2100] = np.inf
    return x


@pytest.mark.parametrize("B", [64, 256])
def test_engines_make_a_worker(engines, B):
    golden, rtl = Worker(4, 42, B=B), RtlWorker(engines, 4, 42, B=B)
    x = gradients("thc")[1]
    norms = golden.norms(x)
    np.testing.assert_array_equal(rtl.norms(x), norms)
    agreed = norms + np.where(norms, np.uint32(100), np.uint32(0))
    agreed[2] -= 200  # below its own: silent
    for round in (3, 4):
        keys = {"round": round, "worker": 2, "tensor": 9, "first_block": 5}
        indices = golden.encode(x, agreed, **keys)
        np.testing.assert_array_equal(rtl.encode(x, agreed, **keys), indices)
    sums = np.random.default_rng(B).integers(0, 121, golden.blocks(x).size)
    floats = golden.decode(sums, agreed, round=1, tensor=9)
    assert rtl.decode(sums, agreed, round=1, tensor=9).tobytes() == floats.tobytes()


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("codec", ["thc", "int32"])
def test_every_frame_and_result_is_the_golden_clusters(aggregator, engines, codec, name):
    config = CONFIG if codec == "thc" else INT32
    result = star_run.cosim(
        gradients(codec), config, (aggregator, engines), FAULTS[name], codec=codec, seed=2
    )
    assert result.ok, result.first
    assert (result.mismatches, result.nodes) == (0, N)
    assert result.results.shape[0] == N
    chunks = result.counters["claims"]
    assert result.counters["accepted"] == N * chunks  # nothing lost, nothing counted twice


@pytest.mark.parametrize("k0", [(8 << 16) - 5, (8 << 15) - 3])
def test_generations_wrap(aggregator, engines, k0):
    faults = FAULTS["loss 1 %, copies, depth 64"]
    result = star_run.cosim(gradients("thc"), CONFIG, (aggregator, engines), faults, seed=3, k0=k0)
    assert result.ok, result.first


def test_a_worker_dies_in_mid_round(aggregator, engines):
    faults = Faults(loss=0.02, reorder=30, death=((1, 60),))
    result = star_run.cosim(
        gradients("thc"), DEADLINE, (aggregator, engines), faults, seed=4, timeout=500
    )
    assert result.ok, result.first
    assert len(result.results) == 1
    assert result.counters["partial"] > 0


def test_all_workers_die(aggregator, engines):
    faults = Faults(death=tuple((worker, 60) for worker in range(N)))
    result = star_run.cosim(gradients("thc"), DEADLINE, (aggregator, engines), faults)
    assert result.ok, result.first
    assert (result.done, result.results.shape) == (0, (0, SIZE))
    assert result.frames > 0


def test_switchml_workers():
    """Paths that keep their order, as its rule needs: packets get lost and come twice."""
    config = star_run.star_config(N, "switchml", n_slots=8)
    libraries = build_aggregator(N, **star_run.sizes(config)), None
    faults = Faults(loss=0.02, duplicate=0.05)
    x = gradients("int32")
    result = star_run.cosim(x, config, libraries, faults, codec="switchml", seed=5)
    assert result.ok, result.first
    assert result.counters["retransmitted"]
    np.testing.assert_allclose(result.results[0], x.sum(axis=0), atol=1e-6 * np.abs(x).max())


def test_a_wrong_sum_is_found_out(aggregator, engines, monkeypatch):
    """One bit of one answer: the run says where, and is not ok."""
    receive = star_run.RtlUnit.receive

    def flipped(self, frame, port, now):
        out = receive(self, frame, port, now)
        if out and len(self.log) > 20:
            at, answer = out[0]
            out[0] = at, answer[:-1] + bytes([answer[-1] ^ 1])
            self.log[-1] = (*self.log[-1][:3], out)
        return out

    monkeypatch.setattr(star_run.RtlUnit, "receive", flipped)
    result = star_run.cosim(gradients("thc"), CONFIG, (aggregator, engines), Faults(), seed=2)
    assert not result.ok
    assert result.mismatches > 0
    assert "answers" in result.first or "differs" in result.first


def test_the_command(tmp_path, monkeypatch):
    configure = star_run.star_config

    def small(n_workers, codec, **options):
        return configure(n_workers, codec, **options | SHAPE)

    monkeypatch.setattr(star_run, "star_config", small)
    rng = np.random.default_rng(5)
    files = []
    for k in range(N):
        np.save(tmp_path / f"{k}.npy", rng.standard_normal(SIZE).astype(np.float32))
        files += ["--gradients", str(tmp_path / f"{k}.npy")]
    report = tmp_path / "cosim.json"
    arguments = ["star", "--workers", N, "--codec", "int32", "--loss", 0.01]
    arguments += ["--reorder", 64, "--elements", 1000, "--json", report]
    result = CliRunner().invoke(cli.cli, ["cosim", *map(str, arguments), *files])
    assert result.exit_code == 0, result.output
    found = json.loads(report.read_text())
    assert {"ok", "nodes", "cycles", "bit_exact", "mismatches"} <= set(found)
    assert (found["ok"], found["bit_exact"], found["mismatches"]) == (True, True, 0)
    assert (found["nodes"], found["floats"], found["loss"]) == (N, 1000, 0.01)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "0"], "--workers must be 1 to 32, not 0"),
        (["--codec", "zip"], "codec must be thc, int32 or switchml, not zip"),
        (["--lanes", "12"], "lanes must be 4, 8, 16 or 32, not 12"),
        (["--loss", "1"], "loss must be 0 to below 1, not 1"),
        (["--death", "1-5"], "death must be WORKER:TIME, not '1-5'"),
        (["--gradients", __file__], "must be 4 files, one a node, not 1"),
        (["--codec", "switchml", "--deadline", "5"], "deadline must be 0 for switchml"),
        (["--block", "100"], "--block must be 64, 256, 1024 or 4096, not 100"),
        (["--death", "1:5"], "wants --deadline"),
        (["--codec", "switchml", "--death", "1:5"], "--death is for --codec thc or int32"),
        (["--death", "4:5", "--deadline", "9"], "must be of worker 0 to 3, not 4"),
        (["--codec", "int32", "--block", "64"], "--block is for --codec thc"),
    ],
)
def test_mistakes_are_errors(arguments, words):
    result = CliRunner().invoke(cli.cli, ["cosim", "star", *arguments])
    assert result.exit_code == 2 or isinstance(result.exception, ValueError), result.output
    assert words in result.output + str(result.exception)


def test_thousands_of_packets_and_attacks(aggregator):
    """The campaign of `gradnic soak`, a little of it."""
    result = star_soak.soak(3000, 3000, model=aggregator)
    assert (result.packets, result.attacks) == (6000, 3000)
    assert result.protected > 500
    often = {"foreign", "format", "owner", "config", "accepted", "claims", "abandoned"}
    often |= {"duplicates", "stale", "retransmitted", "answers"}
    assert often <= {name for name, count in result.counters.items() if count}
