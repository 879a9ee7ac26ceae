"""Tagger circuit against the golden tagger: scores, histograms, thresholds, tags, rate."""

import numpy as np
import pytest
from gradnic.hdl.transport import tagger as circuit
from gradnic.models.transport import tagger as golden
from gradnic.sim.engine import batch, stimulus

LANES, LAYERS, TENSORS = 4, 40, 3


def start(rules):
    """An instance whose registers and tables hold `rules`."""
    unit = batch.Instance(batch.build(circuit.Tagger(LANES, LAYERS, TENSORS)))
    unit.run(drain=False, max_cycles=4 * 256 + 2)
    layers = list(enumerate(rules.queues))
    dscp = [(2 * q + i, rules.dscp[q][i]) for q in range(8) for i in (0, 1)]
    for name, table, value in (("layer", layers, "queue"), ("dscp", dscp, "value")):
        for address, entry in table:
            play(unit, {f"{name}_en": 1, f"{name}_addr": address, f"{name}_{value}": entry})
        play(unit, {f"{name}_en": 0})
    fields = {
        "by_sum": rules.score == "sum", "unit": rules.unit, "share": rules.share,
        "source": golden.THRESHOLDS.index(rules.source),
        "back_layer_start": rules.back_layer_start,
        "pull_all_important": rules.pull_all_important,
    }  # fmt: skip
    word, at = 0, 0
    for name, width in (("by_sum", 1), ("unit", 8), ("source", 2), ("share", 8),
                        ("back_layer_start", 13), ("pull_all_important", 1)):  # fmt: skip
        word |= int(fields[name]) << at
        at += width
    play(unit, {"rules": word})
    return unit


def play(unit, signals):
    unit.run(signals=signals, reset=False, drain=False, max_cycles=1)


def some_floats(rng, n):
    bits = stimulus.float_noise(n, rng, center=int(rng.integers(90, 140)), spread=8)
    if rng.random() < 0.2:
        bits[rng.integers(n)] = rng.choice(stimulus.float_corners())
    return bits


def packets_of(rng, n, n_tensors=TENSORS):
    """(packet, float bits) in order; kind 3 ends a round."""
    out = []
    for _ in range(n):
        kind = int(rng.choice([0, 0, 0, 0, 0, 1, 2, 3], p=[0.16] * 5 + [0.1, 0.06, 0.04]))
        elems = int(rng.choice([1, 3, 4, 5, 16, 40]))
        packet = golden.Packet(int(rng.integers(n_tensors)), int(rng.integers(LAYERS)), kind,
                               bool(rng.random() < 0.9) and kind < 3, elems)  # fmt: skip
        out.append((packet, some_floats(rng, elems)))
    return out


def beats_of(model, packets):
    names = ("tensor", "layer", "kind", "scored", "elems")
    heads = model.pack("packets", **{n: [int(getattr(p, n)) for p, _ in packets] for n in names})
    units = [x.tobytes().ljust(-(-x.size // LANES) * 4 * LANES, b"\0")
             for p, x in packets if p.scored and p.kind != golden.CONTROL]  # fmt: skip
    return {"packets": heads, "floats": model.pack_frames("floats", units)}


def expected(tagger, packets):
    tags = []
    for packet, bits in packets:
        if packet.kind == circuit.END:
            tagger.end_round(packet.tensor)
            continue
        tag = tagger.tag(packet, bits.view(np.float32))
        tags.append((tag.queue, tag.important, tag.score, tag.tos))
    return tags


@pytest.mark.parametrize(
    ("rules", "i", "o"),
    [
        ({"source": "histogram"}, 1, 1),
        ({"source": "histogram", "score": "sum", "share": 30}, 0.5, 0.1),
        ({"source": "histogram", "share": 0, "back_layer_start": 20}, 1, 0.5),
        ({"source": "host", "score": "sum", "unit": 112}, 0.7, 1),
        ({"source": "off", "pull_all_important": False}, 1, 1),
    ],
)
def test_equals_the_golden_tagger(rules, i, o):
    rng = stimulus.rng("tagger", i, o)
    dscp = tuple(tuple(rng.integers(0, 64, 2).tolist()) for _ in range(8))
    rules = golden.Rules(n_layers=LAYERS, n_tensors=TENSORS, dscp=dscp, **rules)
    unit, tagger = start(rules), golden.Tagger(rules)
    for tensor, value in enumerate((120, 0, 256)):
        tagger.thresholds[tensor].value = value
        play(unit, {"threshold_en": 1, "threshold_tensor": tensor, "threshold_value": value})
    play(unit, {"threshold_en": 0})
    packets = packets_of(rng, 400)
    inputs = beats_of(unit.model, packets)
    run = unit.run(inputs, stalls={"packets": i, "floats": i, "tags": o}, reset=False,
                   max_cycles=60_000, idle_cycles=700)  # fmt: skip
    got = run.unpack("tags")
    got = list(zip(*(got[n].tolist() for n in ("queue", "important", "score", "tos")), strict=True))
    assert got == expected(tagger, packets)


def test_a_beat_per_cycle():
    unit = start(golden.Rules(n_layers=LAYERS, n_tensors=TENSORS, queues=(0,) * LAYERS))
    packets = [(golden.Packet(0, 0, 0, True, 48), np.zeros(48, np.uint32))] * 50
    run = unit.run(beats_of(unit.model, packets), reset=False)
    assert np.diff(run.taken["floats"]).max() == 1
    short = [(golden.Packet(0, 0, 0, True, 4), np.zeros(4, np.uint32))] * 50
    run = unit.run(beats_of(unit.model, short), reset=False)
    assert set(np.diff(run.taken["tags"])[10:].tolist()) == {9}
    one = unit.run(beats_of(unit.model, packets[:1]), reset=False)
    lag = one.taken["tags"][0] - one.taken["floats"][-1]
    assert lag <= circuit.Tagger(LANES, LAYERS, TENSORS).scorer.latency + 15


def test_parameters():
    with pytest.raises(ValueError, match="n_layers must be 2 to 4096, not 1"):
        circuit.Tagger(4, 1, 1)
    with pytest.raises(ValueError, match="n_tensors must be 1 to 64, not 65"):
        circuit.Tagger(4, 2, 65)
