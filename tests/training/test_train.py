"""Training with codecs in the loop: sums as the golden models give them, bytes, the command."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models.inceptionn import image
from gradnic.models.inceptionn.measure import frame_bytes
from gradnic.models.inline.ring import Cards, Framing, ring_allreduce
from gradnic.models.thc.worker import Worker
from gradnic.sim.training import codecs as train_codecs
from gradnic.sim.training import network as training
from gradnic.sim.training import run as train

from gradnic import cli
from gradnic.interface.inline import InlineSettings

N_WORKERS = 3


@pytest.fixture
def gradients():
    return np.random.default_rng(1).normal(0, 0.02, (N_WORKERS, 5000)).astype(np.float32)


def test_exact_sum(gradients):
    exchange = train_codecs.make("none", N_WORKERS, {})
    np.testing.assert_array_equal(exchange(gradients), gradients.sum(axis=0))
    one = 14 * frame_bytes(4 * 336) + frame_bytes(4 * (5000 - 14 * 336))
    assert exchange.raw_bytes == exchange.wire_bytes == 2 * N_WORKERS * one


@pytest.mark.parametrize("rescale", [False, True])
def test_lost_packets_are_zero(gradients, rescale):
    options = {"loss": 0.2, "rescale": rescale, "seed": 4}
    got = train_codecs.make("none", N_WORKERS, options)(gradients)
    arrived = train_codecs.make("none", N_WORKERS, options).arrivals(5000)
    packets = arrived[:, ::336]
    assert list((~packets).sum(axis=1)) == [3] * N_WORKERS  # of 15, rounded down
    total = (gradients * arrived).sum(axis=0)
    count = arrived.sum(axis=0)
    wanted = total * (np.float32(3) / np.maximum(count, 1)).astype(np.float32) if rescale else total
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("mode", ["strict", "paper"])
def test_inceptionn_is_the_ring_of_cards(gradients, mode):
    exchange = train_codecs.make("inceptionn", N_WORKERS, {"mode": mode, "exponent": 119})
    got = exchange(gradients)
    settings = InlineSettings(paper=True, exponent=119, paper_codec=mode == "paper")
    cards = Cards(N_WORKERS, settings, Framing(n_floats=336))
    owner = lambda block: image(block, exponent=119, mode=mode)  # noqa: E731
    wanted = ring_allreduce(gradients, cards, owner)
    np.testing.assert_array_equal(got.view("u4"), wanted[0].view("u4"))
    assert 1.2 < exchange.raw_bytes / exchange.wire_bytes < 4


@pytest.mark.parametrize("norm", ["block", "tensor"])
@pytest.mark.parametrize("feedback", [False, True])
def test_thc_with_its_error_memory(gradients, norm, feedback):
    """Two rounds, written out: what the first lost is part of what the second sends."""
    options = {"norm": norm, "feedback": feedback, "seed": 9, "B": 256}
    exchange = train_codecs.make("thc", N_WORKERS, options)
    worker = Worker(N_WORKERS, 9, B=256, norm=norm)
    x = gradients
    for turn in range(2):
        norms = np.max([worker.norms(row) for row in x], axis=0)
        own = [worker.encode(row, norms, round=turn, worker=k) for k, row in enumerate(x)]
        sums = np.sum([worker.table[z] for z in own], axis=0)
        wanted = worker.decode(sums, norms, round=turn)[:5000] * np.float32(N_WORKERS)
        np.testing.assert_array_equal(exchange(gradients), wanted)
        if feedback:
            lost = [worker.residual(r, z, norms)[:5000] for r, z in zip(x, own, strict=True)]
            x = gradients + np.stack(lost)
    up, down = frame_bytes(512), frame_bytes(1024)
    n_norms = 20 if norm == "block" else 1
    one = 5 * (up + down) + 2 * frame_bytes(4 * n_norms)
    assert exchange.wire_bytes == 2 * N_WORKERS * one


def test_thc_without_some_packets_stays_close(gradients):
    gradients = gradients[:1] + gradients / np.float32(8)  # of workers that mostly agree
    whole = train_codecs.make("thc", N_WORKERS, {"seed": 2})(gradients)
    exchange = train_codecs.make("thc", N_WORKERS, {"seed": 2, "loss": 0.4, "rescale": True})
    some = exchange(gradients)
    arrived = train_codecs.make("thc", N_WORKERS, {"seed": 2, "loss": 0.4}).arrivals(5120)
    there = arrived.all(axis=0)[:5000]
    assert 0 < there.sum() < 5000
    np.testing.assert_allclose(some[there], whole[there], rtol=1e-6)
    error = some - gradients.sum(axis=0)
    assert np.square(error).sum() < np.square(gradients.sum(axis=0)).sum() / 3


def test_a_short_training(tmp_path):
    """One epoch of each codec: it learns, and the table is the JSON."""
    words = ["train", "--epochs", "1", "--workers", "2", "--batch", "100", "--rate", "0.1"]
    run = CliRunner().invoke(cli.cli, [*words, "--json", str(tmp_path / "j")])
    assert run.exit_code == 0, run.output
    told = json.loads((tmp_path / "j").read_text())
    asked = {"workers": 2, "batch": 100, "loss": "sum", "rate": 0.1, "seed": 0}
    assert {key: told[key] for key in asked} == asked
    runs = {r["codec"]: r for r in told["runs"]}
    assert list(runs) == ["none", "inceptionn", "thc"]
    rows = {codec: r["epochs"][0] for codec, r in runs.items()}
    assert all(len(r["epochs"]) == 1 for r in runs.values())
    assert min(row["accuracy"] for row in rows.values()) > 0.75
    assert rows["none"]["nmse"] < 1e-10
    assert rows["none"]["wire_ratio"] == 1
    assert rows["inceptionn"]["nmse"] < 1e-4 < rows["thc"]["nmse"] < 0.1
    assert 1.5 < rows["inceptionn"]["wire_ratio"] < rows["thc"]["wire_ratio"] < 5.2


@pytest.mark.parametrize("codec", train_codecs.CODECS)
def test_an_overflow_is_skipped_and_forgotten(codec):
    """One Inf in iteration 2, as loss scaling makes: that one is left out, and training goes on."""
    exchange, seen = train_codecs.make(codec, 2, {}), []

    def overflows(gradients):
        if len(seen) == 1:
            gradients = gradients.copy()
            gradients[1, 7] = np.inf
        seen.append(exchange(gradients))
        return seen[-1]

    _, network = training.train([4], n_workers=2, loss="sum", exchange=overflows)
    assert [bool(np.isfinite(total).all()) for total in seen] == [True, False, True, True]
    assert network.skipped == 1
    assert np.isfinite(network.parameters).all()


def test_a_rate_that_diverges_says_so():
    rows = train.run("none", epochs=1, n_workers=2, batch=200, rate=1e30)
    assert rows[0].skipped == 9  # of 10: after the first no sum is finite
    assert train.as_json(rows)[0]["loss"] is None  # JSON has no NaN


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed", "4294967296"], "--seed must be 0 to 4,294,967,295, not 4294967296"),
        (
            ["--drop", "0.02", "--codec", "thc-partial"],
            "--drop goes with all but powersgd and thc-partial, and thc-partial is among",
        ),
        (
            ["--codec", "zip"],
            "none, inceptionn, thc, bf16, fp16, truncated, powersgd, prioritized or thc-partial, "
            "not zip",
        ),
        (["--codec", "none", "--drop", "1"], "--drop must be 0 to below 1, not 1"),
        (
            ["--codec", "powersgd", "--drop", "0.1"],
            "--drop goes with all but powersgd and thc-partial",
        ),
        (["--codec", "inceptionn", "--exponent", "127"], "127"),
        (["--codec", "thc", "--bits", "9"], "9"),
        (
            ["--codec", "none", "--batch", "4000"],
            "--workers * --batch must be at most 4000, not 4 * 4000",
        ),
    ],
)
def test_mistakes(words, said):
    run = CliRunner().invoke(cli.cli, ["train", *words])
    assert run.exit_code != 0
    assert said in run.output + str(run.exception)


@pytest.mark.parametrize("codec", ["inceptionn", "truncated"])
def test_a_small_share_of_a_rings_packets_is_lost_too(codec):
    """Ten workers send blocks of 70 packets: 1 % of them, rounded down, would be none."""
    words = ["train", "--codec", codec, "--workers", "10", "--epochs", "1", "--json", "-"]

    def nmse(*more):
        run = CliRunner().invoke(cli.cli, [*words, *more])
        assert run.exit_code == 0, run.output
        return json.loads(run.stdout)["runs"][0]["epochs"][0]["nmse"]

    assert nmse("--drop", "0.01") > 1.2 * nmse()


def test_epochs_are_checked():
    with pytest.raises(ValueError, match="epochs must be at least 1, not 0"):
        train.run("none", epochs=0)
