"""One codec for all contexts: packets in order, coded ones as the golden model codes them."""

from dataclasses import replace

import numpy as np
import pytest
from gradnic.hdl.offload.shared_codec import SharedCompressor, SharedDecompressor
from gradnic.hdl.transport.records import Arrival, PacketHead
from gradnic.models import inceptionn
from gradnic.models.offload import shared_codec as golden
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.inceptionn import units as engines

from gradnic.interface.formats import Op

N_BYTES, MOST = 16, 96
STALLS = [{}, {"o": 0.5, "payload": 0.8}, {"heads": 0.4, "heads out": 0.3}]


def stalled(heads_out, stalls):
    return {heads_out if name == "heads out" else name: rate for name, rate in stalls.items()}


def rows(shape, entries):
    """Entries of a shape as the bench wants them, each a dictionary."""
    n = -(-shape.size // 8)
    told = [shape.const(entry).as_value().value.to_bytes(n, "little") for entry in entries]
    return np.frombuffer(b"".join(told), np.uint8).reshape(-1, n)


def beats(octets):
    """(Rows of data, their ``last``) of a payload, what is beyond it 0."""
    n = -(-len(octets) // N_BYTES)
    data = np.frombuffer(octets.ljust(n * N_BYTES, b"\0"), np.uint8).reshape(n, N_BYTES)
    return data, [0] * (n - 1) + [1]


def packed(model, port, payloads, drops=None):
    pairs = [beats(octets) for octets in payloads]
    data, last = (np.concatenate(part) for part in zip(*pairs, strict=True))
    drop = {} if drops is None else {"drop": np.repeat(drops, [len(pair[1]) for pair in pairs])}
    return model.pack(port, data=data, last=last, **drop)


def packets(generator, n):
    """(Op, unit of floats) of packets, half of them coded; some have no payload."""
    found = []
    for _ in range(n):
        kind = engines.KINDS[int(generator.integers(len(engines.KINDS)))]
        unit = engines.of_floats(
            kind, int(generator.integers(1, MOST + 1)), generator,
            exponent=int(generator.integers(113, 127)), paper=int(generator.integers(2)),
            prescale=int(generator.choice([0, 10, -3, -128, 127])),
        )  # fmt: skip
        found.append((generator.choice([Op.INC, Op.INC, Op.RAW, Op.THC_SUM, Op.CONTROL]), unit))
    return found


def head(op, unit, length):
    settings = {"p0": unit.exponent | unit.paper << 7, "p1": unit.prescale & 0xFF}
    length = 0 if op == Op.CONTROL else length
    return {"op": int(op), "elems": unit.count, "length": length, **settings}


def test_the_model_is_the_codec_by_the_settings_of_the_head():
    generator = stimulus.rng("shared codec's model")
    for op, unit in packets(generator, 60):
        octets = unit.words.tobytes()
        told = head(op, unit, len(octets))
        left, coded = golden.compressed(told, octets)
        assert coded == (engines.coded(unit) if op == Op.INC else octets)
        assert left["length"] == (len(coded) if op != Op.CONTROL else 0)
        again = golden.decompressed(left, coded, ready=True, max_elems=MOST)
        image = inceptionn.image(unit.words.view(np.float32), **unit.options)
        assert again == (image.tobytes() if op == Op.INC else octets)
        assert golden.decompressed(left, coded, ready=False, max_elems=MOST) == coded
        if op == Op.INC:
            less = unit.count - 1
            assert golden.decompressed(left, coded, ready=True, max_elems=less) is None
            assert golden.decompressed(left, coded + b"\0", ready=True, max_elems=MOST) is None


@pytest.mark.parametrize("stalls", STALLS, ids=str)
def test_floats_leave_as_units_with_their_sizes(stalls):
    model = batch.build(SharedCompressor(N_BYTES, max_elems=MOST))
    sent = packets(stimulus.rng("shared compressor"), 120)
    raw = [unit.words.tobytes() for _, unit in sent]
    came = [head(*packet, len(octets)) for packet, octets in zip(sent, raw, strict=True)]
    left = [golden.compressed(*packet) for packet in zip(came, raw, strict=True)]
    held = [(r, x) for (op, _), r, (_, x) in zip(sent, raw, left, strict=True) if op != Op.CONTROL]
    heads = [came, [one for one, _ in left]]
    run = model.run(
        {
            "heads": rows(PacketHead, heads[0]),
            "payload": packed(model, "payload", [r for r, _ in held]),
        },
        stalls=stalled("o_heads", stalls),
    )
    run.check(o_heads=rows(PacketHead, heads[1]), o=packed(model, "o", [x for _, x in held]))
    if not stalls:  # the longer of what comes and what leaves, and little besides
        most = sum(-(-max(len(r), len(x)) // N_BYTES) for r, x in held)
        assert run.taken["o"][-1] < 1.25 * most


@pytest.mark.parametrize("stalls", STALLS, ids=str)
def test_units_become_floats_and_unsound_ones_vanish(stalls):
    model = batch.build(SharedDecompressor(N_BYTES, max_elems=MOST))
    generator = stimulus.rng("shared decompressor")
    heads, came, left, drops = [], [], [], []
    for k, (op, unit) in enumerate(packets(generator, 160)):
        ready, octets = int(generator.random() < 0.8), unit.words.tobytes()
        if op == Op.INC:
            if k % 4 == 1:  # sound, but for its size
                unit = engines.of_floats("mixed", MOST + 1 + k % 8, generator)
            coded = engines.of_bytes(unit)
            if k % 4 == 0:
                coded = replace(coded, count=MOST + 1 if k % 8 else unit.count % MOST + 1)
            unit, octets = coded, coded.words
        heads.append({"head": head(op, unit, len(octets)), "ready": ready})
        floats = golden.decompressed(heads[-1]["head"], octets, ready=ready, max_elems=MOST)
        if op != Op.CONTROL:
            came.append(octets)
            left.append(bytes(1) if floats is None else floats)
            drops.append(int(floats is None))
    assert sum(drops) > 5
    run = model.run(
        {"heads": rows(Arrival, heads), "payload": packed(model, "payload", came)},
        stalls=stalled("passes", stalls),
    )
    got = np.array(run.outputs["o"])
    want = packed(model, "o", left, drops)
    dropped = want[:, -1] & 2 != 0
    got[dropped, :N_BYTES] = 0  # a beat of ``drop`` holds nothing
    np.testing.assert_array_equal(got, want)
    run.check(passes=rows(Arrival, heads))
    if not stalls:
        most = sum(-(-max(len(a), len(b)) // N_BYTES) for a, b in zip(came, left, strict=True))
        assert run.taken["o"][-1] < 1.25 * most
