"""Receiver circuit against the golden reception: every verdict, answer, bitmap and state."""

import numpy as np
import pytest
from gradnic.hdl.transport import reception_records as types
from gradnic.hdl.transport.reception import Receptions
from gradnic.models.transport.reception import DONE, OPEN, SHORT, Reception
from gradnic.sim.engine import batch, stimulus

REASONS = (None, "stale", "range", "length", "duplicate", "late")
STATUS = (OPEN, DONE, SHORT)
PACKETS, CONTEXTS = 256, 5
GRID = [(1, 1), (0.5, 0.3), (0.2, 1)]


def model(n_contexts=CONTEXTS):
    return batch.build(Receptions(n_contexts, PACKETS))


class Geometry:
    """Chunks of packets with short tails, some of which the source does not send."""

    def __init__(self, rng, *, eager):
        self.per_chunk = int(rng.integers(1, 70))
        self.n = int(rng.integers(1, PACKETS + 1))
        self.packet, self.tail = 64 * int(rng.integers(1, 24)), int(rng.integers(1, 64))
        self.final = int(rng.integers(1, 64))
        k = np.arange(self.n)
        self.is_tail = k % self.per_chunk == self.per_chunk - 1
        self.sizes = np.where(self.is_tail, self.tail, self.packet)
        self.sizes[-1] = self.final
        chunk = k // self.per_chunk
        self.sent = np.ones(self.n, bool) if eager else rng.random(chunk[-1] + 1)[chunk] < 0.8
        self.weights = rng.integers(1, 5 if not eager else 2, chunk[-1] + 1)[chunk]
        self.chunk = chunk


def sessions(rng, n_contexts):
    """Openings, and the receptions that they make."""
    fields = {name: [] for name in types.Opening(n_contexts).members}
    made = []
    for context in range(n_contexts):
        eager, strict = int(rng.integers(2)), int(rng.integers(2))
        shape = Geometry(rng, eager=eager)
        p, gen = int(rng.choice([0, 3000, 20000, 50000])), int(rng.integers(1 << 16))
        sizes = np.where(shape.sent, shape.sizes, 0)
        reception = Reception(sizes, p_q16=p, round=gen, weights=shape.weights, eager=bool(eager),
                              strict_important=bool(strict))  # fmt: skip
        for name, value in (
            ("context", context), ("round", gen), ("n_packets", shape.n),
            ("n_expected", int((sizes > 0).sum())), ("packet_bytes", shape.packet),
            ("tail_bytes", shape.tail), ("final_bytes", shape.final),
            ("total", reception.total), ("p_q16", p), ("eager", eager), ("strict", strict),
            ("deadline", 0),
        ):  # fmt: skip
            fields[name].append(value)
        made.append((shape, reception))
    return fields, made


def packets(rng, made, n):
    """Random packets, a few of them wrong, as fields of the port."""
    fields = {name: [] for name in types.Arrival(CONTEXTS).members}
    for _ in range(n):
        context = int(rng.integers(len(made)))
        shape, reception = made[context]
        sent = np.flatnonzero(shape.sent)
        number = int(rng.choice(sent)) if len(sent) else 0
        kind = rng.random()
        beyond = kind > 0.98
        n_bytes = int(shape.sizes[number]) + (0.94 < kind < 0.96)
        for name, value in (
            ("context", context),
            ("number", number if not beyond else int(rng.integers(shape.n, 1 << 24))),
            ("n_bytes", 0 if 0.96 < kind < 0.97 else n_bytes),
            ("round", reception.round ^ (0.9 < kind < 0.93)),
            ("important", int(rng.integers(2))),
            ("weight", int(shape.weights[number])),
            ("tail", int(shape.is_tail[number])),
        ):
            fields[name].append(value)
    return fields


def probes(rng, made, n):
    """PROBEs of ranges within chunks that the source sends, or of all where it is eager."""
    fields = {name: [] for name in types.Probing(CONTEXTS).members}
    while len(fields["context"]) < n:
        context = int(rng.integers(len(made)))
        shape, reception = made[context]
        if reception.eager:
            first, count = 0, shape.n
        else:
            if not shape.sent.any():
                continue
            chunk = shape.chunk[rng.choice(np.flatnonzero(shape.sent))]
            inside = np.flatnonzero(shape.chunk == chunk)
            first = int(rng.choice(inside))
            count = int(rng.integers(1, inside[-1] - first + 2))
        for name, value in (
            ("context", context), ("first", first), ("count", count),
            ("weight", int(shape.weights[first])), ("tail", int(shape.is_tail[first + count - 1])),
            ("n_important", int(rng.integers(0, shape.n))),
        ):  # fmt: skip
            fields[name].append(value)
    return fields


def word_of(body, first, count):
    """The golden BITMAP of form 0 as words."""
    start = first - first % 32
    return np.frombuffer(body.ljust(-(-(first + count - start) // 32) * 4, b"\0"), "<u4")


def wanted_words(reception, first, count):
    start = first - first % 32
    n = first + count - start
    bits = np.ones(n, bool)
    bits[first - start :] = reception.closed[first : first + count]
    return word_of(np.packbits(bits, bitorder="little").tobytes(), first, count), start, n


@pytest.mark.parametrize(("i", "o"), GRID)
def test_equals_the_golden_reception(i, o):
    rng = stimulus.rng("reception", i, o)
    unit = batch.Instance(model())
    early = {name: [0] for name in types.Arrival(CONTEXTS).members}
    run = unit.run({"packets": unit.model.pack("packets", **early)}, reset=True)
    assert run.unpack("verdicts")["reason"].tolist() == [1]  # nothing is open yet
    for _ in range(4):
        opened, made = sessions(rng, CONTEXTS)
        unit.run({"opens": unit.model.pack("opens", **opened)}, reset=False)
        for _ in range(3):
            arrive, ask = packets(rng, made, 300), probes(rng, made, 40)
            inputs = {"packets": unit.model.pack("packets", **arrive),
                      "probes": unit.model.pack("probes", **ask)}  # fmt: skip
            stalls = {"packets": i, "probes": 0.05} | dict.fromkeys(
                ("verdicts", "answers", "words", "closings"), o
            )
            run = unit.run(inputs, stalls=stalls, reset=False)
            compare(run, arrive, ask, made)
        looks = unit.run(
            {"looks": unit.model.pack("looks", np.arange(CONTEXTS))}, reset=False
        ).unpack("states")
        for k, (_, r) in enumerate(made):
            assert STATUS[int(looks["status"][k])] == r.status
            for name in ("n_bytes", "lost", "n_important"):
                assert int(looks[name][k]) == getattr(r, name)
        context, (shape, r) = CONTEXTS - 1, made[-1]
        asked = unit.model.pack("lookups", context=context, number=np.arange(shape.n))
        here = unit.run({"lookups": asked}, reset=False).unpack("present")
        np.testing.assert_array_equal(here, r.here)


def compare(run, arrive, ask, made):
    """Replay the operations in the order in which the circuit took them."""
    order = sorted(
        [(int(t), "packet", k) for k, t in enumerate(run.taken["packets"])]
        + [(int(t), "probe", k) for k, t in enumerate(run.taken["probes"])]
    )
    verdicts, answers, words, closings = [], [], [], []
    for _, kind, k in order:
        _shape, r = made[(arrive if kind == "packet" else ask)["context"][k]]
        before = r.status
        if kind == "packet":
            reason = r.data(
                arrive["number"][k], arrive["n_bytes"][k], round=arrive["round"][k], now=0,
                important=arrive["important"][k],
            )  # fmt: skip
            verdicts.append((REASONS.index(reason), int(r.status != before)))
        else:
            first, count = ask["first"][k], ask["count"][k]
            if r.probe(first, count, n_important=ask["n_important"][k]):
                answers.append((1, first, count))
            else:
                body, start, n = wanted_words(r, first, count)
                answers.append((0, start, n))
                words += [(int(w), int(j == len(body) - 1)) for j, w in enumerate(body)]
        if r.status != before:
            closings.append((arrive if kind == "packet" else ask)["context"][k])
    got = run.unpack("verdicts")
    assert list(zip(got["reason"], got["complete"], strict=True)) == verdicts
    got = run.unpack("answers")
    assert list(zip(got["stop"], got["first"], got["n"], strict=True)) == answers
    got = run.unpack("words")
    assert list(zip(got["data"], got["last"], strict=True)) == words
    assert run.unpack("closings")["context"].tolist() == closings


def test_need_bytes_of_a_large_tensor():
    """232 MB at 10 %: completes with byte 208,798,584 of packets of 65,535 bytes."""
    unit = batch.Instance(model(1))
    need, size = 208798584, 65535
    opened = {"n_packets": 256, "n_expected": 256, "packet_bytes": size, "final_bytes": size,
              "total": 232000000, "p_q16": 0x199A, "eager": 1}  # fmt: skip
    unit.run({"opens": unit.model.pack("opens", **{k: [v] for k, v in opened.items()})})
    weight = 4000  # 14 packets of 262,140,000 weighted bytes would be too much
    number = np.arange(256)
    beats = unit.model.pack("packets", number=number, n_bytes=size, weight=np.where(
        number == 0, need // size // 2, np.where(number == 1, need // size - need // size // 2, 1)
    ))  # fmt: skip
    got = unit.run({"packets": beats}, reset=False).unpack("verdicts")
    complete = np.flatnonzero(got["complete"])
    assert complete.tolist() == [2]
    assert got["reason"][3:].tolist() == [5] * 253
    assert weight > need // size // 2


def test_the_deadline_closes_short():
    unit = batch.Instance(model())
    opened = {"context": 3, "n_packets": 64, "n_expected": 64, "packet_bytes": 8, "tail_bytes": 8,
              "final_bytes": 8, "total": 512, "deadline": 500}  # fmt: skip
    unit.run({"opens": unit.model.pack("opens", **{k: [v] for k, v in opened.items()})})
    clock = np.arange(2**32 - 300, 2**32 + 2000) % 2**32
    beats = unit.model.pack("packets", context=3, number=[5, 6], n_bytes=8, weight=1)
    run = unit.run({"packets": beats}, signals={"now": clock}, stalls={"packets": ([0] * 50, 1)},
                   reset=False, drain=False, max_cycles=1000)  # fmt: skip
    at = run.taken["closings"]
    assert run.unpack("closings") == {"context": [3], "short": [1]}
    assert 550 <= at[0] <= 550 + 13 + 7 * CONTEXTS
    late = unit.run({"packets": beats}, reset=False).unpack("verdicts")
    assert late["reason"].tolist() == [4, 4]


def test_pace():
    unit = batch.Instance(model(1))
    opened = {"n_packets": 256, "n_expected": 256, "packet_bytes": 8, "final_bytes": 8,
              "total": 2048}  # fmt: skip
    unit.run({"opens": unit.model.pack("opens", **{k: [v] for k, v in opened.items()})})
    beats = unit.model.pack("packets", number=np.arange(255), n_bytes=8, weight=1)
    run = unit.run({"packets": beats}, reset=False)
    assert set(np.diff(run.taken["packets"]).tolist()) == {14}
    assert set((run.taken["verdicts"] - run.taken["packets"]).tolist()) == {13}
    run = unit.run({"packets": beats}, reset=False)
    assert set(np.diff(run.taken["packets"]).tolist()) == {6}
    asked = unit.model.pack("probes", first=[0, 1, 254, 255], count=[32, 254, 1, 1], weight=1)
    run = unit.run({"probes": asked}, reset=False)
    assert (run.taken["answers"] - run.taken["probes"]).tolist() == [15, 22, 15, 28]


def test_parameters():
    with pytest.raises(ValueError, match="n_packets must be a power of two from 32 on, not 33"):
        Receptions(1, 33)
    with pytest.raises(ValueError, match="at most 524288, not 1048576"):
        Receptions(4, 1 << 18)
