"""Claims are over the best of what there was, and no baseline is slower than it has to be."""

from types import SimpleNamespace

import numpy as np
import pytest
from gradnic.models.training.constants import value
from gradnic.models.training.exchange import Codec
from gradnic.sim.reproduce import accuracy_time, composed, dlcp, inceptionn, learning, thc
from gradnic.sim.reproduce.claims import Result


def test_dlcp_trains_faster_than_the_best_system_before_it():
    """pFabric's last flow is sooner than DCTCP's, which waits for a timeout."""
    last = {"DCTCP": 10_000.0, "pFabric": 600.0}
    found = {(kind, 16, 0.0): (1.0, 1.0, us) for kind, us in last.items()}
    found |= {("ours", 16, p): (1.0, 1.0, 300.0) for p in (0.0, dlcp.BOUND)}
    result = Result("dlcp")
    dlcp._training(result, found, 16, (0.0, dlcp.BOUND))
    (claim,) = result.claims
    assert claim.ours == pytest.approx(100 * (1 / 0.75 - 1))
    assert claim.high == pytest.approx(100 * (1 / 0.55 - 1))
    assert not claim.holds


def learned(variant, model, epochs, seed, reach=0.95):
    """A made-up training run, the same for all codecs."""
    return {"accuracy": [0.1 + (reach - 0.1) * i / epochs for i in range(epochs + 1)], "nmse": 0.0,
            "wire_ratio": 2.0}  # fmt: skip


STEPS = {accuracy_time.BASE: 9.0, "FP32": 4.0, "BF16": 3.6, "PowerSGD, rank 4": 3.0,
         "INCEPTIONN 2^-10": 4.0, "THC": 3.0, "THC along MultiTree, 1 % lost": 3.6}  # fmt: skip


def test_a_codec_that_saves_nothing_is_not_faster_than_fp32(monkeypatch):
    """A ring is faster than a worker-aggregator without any codec, and BF16 is none of ours."""
    monkeypatch.setattr(accuracy_time, "step_seconds", lambda model, curve_of: STEPS)
    result = accuracy_time.run(True, lambda _: None, learned)
    claims = result.claims
    assert [claim.ours for claim in claims] == pytest.approx([0.9, 1.2, 1.0])
    assert [claim.holds for claim in claims] == [False, True, True]
    # waiting for 90 % of a step leaves 0.7 of 2.7 for compute: 7 over 1, not 9 over 3
    assert (claims[1].low, claims[1].high) == pytest.approx((1.0, 7.0))
    by_share = {row[0]: dict(zip(result.tables[1].columns, row, strict=True))
                for row in result.tables[1].rows}  # fmt: skip
    assert list(by_share) == [0.6, 0.7, 0.8, 0.9]
    gains = [row[accuracy_time.BASE] / row["THC"] for row in by_share.values()]
    assert gains == pytest.approx([10.5 / 4.5, 3.0, 7.875 / 1.875, 7.0])
    assert all("the best is BF16 on a ring" in claim.differs for claim in claims)


def test_a_target_that_is_never_reached_is_no_gain(monkeypatch):
    """Neither for ours, nor where FP32 itself stays below."""
    monkeypatch.setattr(accuracy_time, "step_seconds", lambda model, curve_of: STEPS)

    def ours(below):
        claims = accuracy_time.run(
            True, lambda _: None, lambda v, *run: learned(v, *run, 0.5 if v == below else 0.95)
        ).claims
        return [claim.ours for claim in claims]

    assert ours("THC") == pytest.approx([0.9, 0.0, 1.0])
    assert ours("BF16") == pytest.approx([1.0, 4 / 3, 4 / 3.6])
    with pytest.raises(ValueError, match="FP32 does not reach 90 %"):
        ours("FP32")


def test_heads_of_coded_packets_count_once(monkeypatch):
    """A run's ratio is of whole frames; the exchange adds heads to payload."""
    made = {}

    def in_line(ratio):
        made["INCEPTIONN"] = ratio
        return inceptionn.in_line(ratio)

    def blocks(payload_ratio, n_floats=5000):  # bytes of a ring's block, in frames of 336 floats
        return 4 * n_floats / payload_ratio + 88 * -(-n_floats // 336)

    wire = blocks(1) / blocks(2.48)
    curve = learning.Curve(np.ones((1, 2)), 0.0, wire)
    monkeypatch.setattr(accuracy_time, "task_of", lambda model: (None, [], 20_000))
    monkeypatch.setattr(accuracy_time, "in_line", in_line)
    accuracy_time.step_seconds("mlp", lambda variant: curve)
    assert wire < 2.3
    assert made["INCEPTIONN"] == pytest.approx(2.48)


def test_powersgd_is_two_all_reduces_and_what_its_host_makes_of_them(monkeypatch):
    """Of half the bytes: each as BF16 of half the floats, which hosts code, too, and no casts."""
    curve = learning.Curve(np.ones((1, 2)), 0.0, 2.0)

    def without(n_floats, codec, variant):
        """Seconds of a variant's network: neither compute nor what its hosts do."""
        monkeypatch.setattr(accuracy_time, "task_of", lambda model: (None, [], n_floats))
        times = accuracy_time.step_seconds("mlp", lambda variant: curve)
        compute = times[accuracy_time.BASE] - inceptionn.aggregator(4).seconds(4 * n_floats)
        rates = [value(f"host.{codec}.{way}") for way in ("encode", "decode")]
        return times[variant] - compute - 4 * n_floats * sum(1 / rate for rate in rates)

    halves = 2 * without(10_000, "bf16", "BF16")
    assert without(20_000, "powersgd", "PowerSGD, rank 4") == pytest.approx(halves, rel=1e-9)


def test_an_aggregator_sums_indices_while_it_sends_sums(monkeypatch):
    """Its links send the bytes of the sums meanwhile: neither half of both, nor FP32 at a card."""
    curve = learning.Curve(np.ones((1, 2)), 0.0, 2.0)
    n_floats = 1 << 21
    monkeypatch.setattr(accuracy_time, "task_of", lambda model: (None, [], n_floats))
    times = accuracy_time.step_seconds("mlp", lambda variant: curve)
    base = inceptionn.aggregator(4).seconds(4 * n_floats)
    compute = times[accuracy_time.BASE] - base
    packet = 336 * 4 * thc.DOWN + 88
    sums = n_floats / 336 * packet * 8 / (accuracy_time.GBPS * 1e9)
    assert sums < times["THC"] - compute < 1.1 * sums


def test_every_collective_is_there_with_every_codec():
    """Gradients are a half of what an aggregator's link carries, and all of a ring's."""
    result = Result("inceptionn")
    inceptionn._codecs(result, inceptionn.in_line(4.0))
    (table,) = result.tables
    assert table.columns[1:] == ("FP32", "FP16 or BF16", "INCEPTIONN", "cut 16 bits",
                                 "cut 22 bits", "cut 24 bits")  # fmt: skip
    share = {row[0]: np.array(row[2:]) / row[1] for row in table.rows}
    assert len(share) == 5
    for name, (_, inc, cut16, cut22, cut24) in share.items():
        through = "aggregator" in name
        assert cut16 == pytest.approx((0.5 + 1) / 2 if through else 0.5, rel=0.09)
        assert inc == pytest.approx((0.25 + 1) / 2 if through else 0.25, rel=0.3)
        assert cut24 < cut22 < cut16 < 1


def test_a_late_worker_is_waited_for_or_not_by_both_kinds_of_servers(monkeypatch):
    monkeypatch.setattr(thc, "accuracy_lost", lambda *_: (0.1, [0.1]))
    result = Result("thc")
    thc._stragglers(result, True, lambda _: None)
    (table,) = result.tables
    assert {row[0] for row in table.rows} == {"THC, software servers", "THC, in network"}
    assert all(row[4] == pytest.approx(row[2] / row[3]) for row in table.rows)
    assert all((row[4] > 1) == (row[1] > 0) for row in table.rows)


@pytest.fixture
def ratio(monkeypatch):
    """A payload ratio of INCEPTIONN, without the gradients; twice as much with a coarse bound."""
    known = {composed.SETTING: 4.0, ("sum", 200, 121): 8.0}
    monkeypatch.setattr(composed, "ratios", lambda: known)
    composed.systems.cache_clear()
    yield 4.0
    composed.systems.cache_clear()


@pytest.mark.parametrize(("network", "ports"), [("torus:4x4", 4), ("bigraph:4x8", 1)])
def test_engines_are_shared_by_the_ports_that_send(ratio, network, ports):
    """A ring sends by one port of the torus's four: its engine is all its own."""
    systems = composed.systems(network)
    inceptionn = value("inceptionn.encode")
    thc = min(value("thc.norm"), value("thc.encode"), value("thc.decode"))
    assert systems["INCEPTIONN"].codec.engine == inceptionn
    assert systems[composed.COARSE].codec.up == systems["INCEPTIONN"].codec.up / 2
    engines = [systems[label].codec.engine for label in ("THC", "composed")]
    assert engines == [thc / ports] * 2
    assert systems["composed, engines a port"].codec.engine == thc


def test_the_composition_counts_where_it_wins_least(monkeypatch):
    """Ours is the smaller number of both networks, not the better network's."""

    def step(model, device, batch, exchange, order="ready"):
        seconds = exchange.seconds
        return SimpleNamespace(total=seconds, compute=0.0, communication=seconds)

    def systems(network):
        ours = 1.0 if network == "torus:4x4" else 2.0
        seconds = dict.fromkeys(composed.ALONE, 2.0) | {composed.COARSE: 0.5}
        seconds |= {label: ours for label in ("composed", "composed, engines a port")}
        codec = Codec("half up, a quarter down", 0.5, 0.25)
        return {k: SimpleNamespace(seconds=v, codec=codec) for k, v in seconds.items()}

    monkeypatch.setattr(composed, "step", step)
    monkeypatch.setattr(composed, "systems", systems)
    lost = {"THC along MultiTree, 1 % lost": 0.25}  # whole branches, as the composition sums
    monkeypatch.setattr(composed, "accuracy_lost", lambda v, _: (lost[v], [lost[v]]))
    claims = {claim.claim: claim for claim in composed.run(True, lambda _: None).claims}
    claim = claims["models on which the composition beats all five"]
    assert (claim.ours, claim.high, claim.holds) == (0, len(composed.MODELS), False)
    first = claims["alexnet on torus:4x4: step over the best paper alone"]
    assert (first.ours, first.low) == (2.0, 0.5)  # the coarser bound counts in the range
    assert "7 on torus:4x4 and 0 on bigraph:4x8" in claim.differs
    assert "THC along trees has 16.0 bits a value up and 8.0 down" in first.differs
    assert claims["accuracy lost by THC along MultiTree's trees under 1 % loss"].ours == 0.25


@pytest.mark.parametrize(("reach", "epochs"), [(0.95, 1.0), (0.6, 0.0)])
def test_thc_that_never_gets_there_is_no_faster(monkeypatch, reach, epochs):
    """A step that is shorter does not make up for a target that is not reached."""
    told = []

    def curve(variant, quick):
        accuracy = learned(variant, "mlp", 3, 0, reach if variant == "THC" else 0.95)["accuracy"]
        return learning.Curve(np.array([accuracy]), 0.0, 1.0)

    monkeypatch.setattr(thc, "curve", curve)
    monkeypatch.setattr(thc, "_time_to_accuracy", lambda result, epochs, say: told.append(epochs))
    for part in ("_losses", "_stragglers", "_errors"):
        monkeypatch.setattr(thc, part, lambda *_: None)
    thc.run(True, lambda _: None)
    assert told == [epochs]


def test_thc_needs_an_fp32_that_gets_there(monkeypatch):
    """Nothing can be said of epochs then."""
    monkeypatch.setattr(thc, "curve", lambda *_: learning.Curve(np.array([[0.1, 0.5]]), 0.0, 1.0))
    with pytest.raises(ValueError, match="FP32 does not reach 90 % in 3 epochs"):
        thc.run(True, lambda _: None)


def test_servers_on_more_workers_are_faster_up_to_the_ring():
    """One is worker-aggregator without its own gradient's way; n share the links as a ring does."""
    result = Result("inceptionn")
    inceptionn._servers(result)
    (table,) = result.tables
    faster = {row[:2]: row[3] for row in table.rows}
    for k in range(1, 5):
        assert faster[4, f"servers on {k}"] == pytest.approx(k * 4 / 3, rel=0.01)
    for n in 4, 8, 16:
        assert faster[n, "worker-aggregator"] == 1
        assert faster[n, f"servers on {n}"] == pytest.approx(faster[n, "ring"], rel=0.01)
