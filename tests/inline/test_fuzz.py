"""Bad frames through the RTL card: a sample of `gradnic fuzz`, and that it can fail."""

import json

import pytest
from click.testing import CliRunner
from gradnic.sim.frame import frames as makers
from gradnic.sim.inline import fuzz

from gradnic.commands.fuzz import command


@pytest.fixture(scope="module")
def model():
    return fuzz.build(4)


def test_bad_frames_harm_nobody(model):
    report = fuzz.fuzz(3000, model=model)
    assert report["bad"] >= 3000
    assert report["good"] == report["bad"]
    assert len(report["classes"]) >= 50
    seen = {name for name, count in report["counters"].items() if count}
    assert {"rx_length", "rx_checksum", "rx_codec", "rx_format", "rx_bad", "tx_length"} <= seen
    assert report["counters"]["rx_overrun"] == 0


def test_a_difference_is_seen(model, monkeypatch):
    """A model that takes a wrong length for a right one disagrees with the circuit."""
    monkeypatch.setattr("gradnic.models.inline.card.InlineCard.receive", lambda *_: None)
    with pytest.raises(AssertionError, match=r"host_rx|counters differ"):
        fuzz.fuzz(10, model=model)


def test_every_kind_is_made():
    rng = fuzz.stimulus.rng("kinds")
    frame = makers.coded({0: makers.native_frame(makers.gradient(rng, 20))})[0]
    kinds = {name for name, _, _ in fuzz.bad_frames(frame, rng, coded=True)}
    assert {"truncated", "runt", "marked bad", "unit, bit", "unit, count", "head elems"} <= kinds
    assert len(fuzz.large_frames(rng)) == 4


def test_command(model, monkeypatch):
    monkeypatch.setattr(fuzz, "build", lambda n_lanes: model)
    run = CliRunner().invoke(command, ["--frames", "100", "--json", "-"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["ok"]
