"""Mutation campaign of what lets packets of contexts leave: order, payloads, what is told."""

from itertools import pairwise

import numpy as np
from amaranth.hdl import Shape
from gradnic.hdl.offload.context_paths import PacketPick
from gradnic.hdl.transport.records import PacketHead

from gradnic.interface.formats import Op

from ..engine import encoding

N, N_BYTES = 3, 16
N_HEADS, N_CYCLES = 40, 700
N_FREE, HELD = 6, 150  # runs whose payloads leave at once; cycles in which none does in others
_RECORDINGS = []


def component():
    """The circuit under mutation, with three contexts."""
    return PacketPick(N_BYTES, N)


def _heads(rng, n):
    """Random heads, each kind of which there is: with a payload, without, and answers."""
    width = Shape.cast(PacketHead).width
    rows = []
    for _ in range(n):
        value = int.from_bytes(rng.bytes(-(-width // 8)), "little") & (1 << width) - 1
        length, op = PacketHead["length"], PacketHead["op"]
        if rng.random() < 0.3:
            value &= ~((1 << length.width) - 1 << length.offset)
        elif rng.random() < 0.3:
            value = value & ~((1 << length.width) - 1 << length.offset) | (
                1 << length.offset + int(rng.integers(length.width))
            )
        if rng.random() < 0.3:
            value = value & ~((1 << op.width) - 1 << op.offset) | int(Op.CONTROL) << op.offset
        rows.append(np.frombuffer(value.to_bytes(-(-width // 8), "little"), np.uint8))
    return np.array(rows)


class Recording:
    """What goes into a run. begins : for each cycle, whose age is the least from it on."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.heads = [_heads(rng, N_HEADS) for _ in range(N)]
        self.replies = [_heads(rng, int(rng.integers(5, 30))) for _ in range(N)]
        self.full = []
        for heads in self.heads:
            fields = encoding.unpack(PacketHead, heads)
            self.full.append((fields["length"] != 0) & (fields["op"] != Op.CONTROL))
        sizes = [rng.integers(1, 5, full.sum()) for full in self.full]
        self.beats = [
            [rng.integers(0, 256, (n, N_BYTES), np.uint8) for n in mine.tolist()] for mine in sizes
        ]
        changes = rng.random(N_CYCLES) < (0, 0.02)[seed % 2]
        self.started = np.where(changes, 1 << rng.integers(0, N, N_CYCLES), 0)
        self.started[:N] = 1 << rng.permutation(N)
        self.layers = np.repeat(rng.integers(0, 8, (1 + N_CYCLES // 50, N)), 50, axis=0)[:N_CYCLES]
        if seed % 3 == 0:
            self.layers[:] = 5
        pause = np.repeat(rng.integers(0, 1 << N, 1 + N_CYCLES // 30), 30)[:N_CYCLES]
        self.pause = pause * (seed % 2)
        self.pause[: N + 3] = (1 << N) - 1  # until ages are known
        self.pause[N_CYCLES * 2 // 3 :] = 0
        self.duty = (1, 1, 0.4)[seed % 3]
        # payloads that wait behind their heads, as many as may; that come late, others between them
        self.payload_duty = ([0] * HELD, 1) if seed >= N_FREE else self.duty
        self.source_duty = 0.6 if seed % 4 == 2 else 1
        self.echoed = rng.integers(0, 2, (N, N_CYCLES))
        self.marks = rng.integers(0, 2, (N, N_CYCLES))

    def before(self):
        """bool (cycles, N, N): who goes before whom, as the circuit knows it in a cycle."""
        older, out = np.zeros((N, N), bool), np.zeros((N_CYCLES + 1, N, N), bool)
        for cycle in range(N_CYCLES):
            layers = self.layers[cycle]
            less, same = layers[:, None] < layers, layers[:, None] == layers
            out[cycle + 1] = less | (same & older)
            for i in range(N):
                if self.started[cycle] >> i & 1:
                    older[:, i], older[i, :] = True, False
        return out


def recordings():
    """What the test plays, made once."""
    if not _RECORDINGS:
        _RECORDINGS.extend(Recording(seed) for seed in range(N_FREE + 3))
    return _RECORDINGS


def _play(model, recording, rng):
    """One run; what is told beside the packets goes by port."""
    stalls = {"heads": recording.duty, "replies": recording.duty, "payload": recording.payload_duty}
    inputs, signals = {}, {"started": recording.started, "pause": recording.pause}
    packed = sum(recording.layers[:, k].astype(int) << 3 * k for k in range(N))
    signals["layers"] = packed
    values = {}
    for k in range(N):
        port = f"sources__{k}__"
        inputs[port + "heads"], inputs[port + "replies"] = recording.heads[k], recording.replies[k]
        beats = recording.beats[k]
        data = np.concatenate(beats) if beats else np.zeros((0, N_BYTES), np.uint8)
        last = np.concatenate([np.arange(len(b)) == len(b) - 1 for b in beats] or [[]]).astype(int)
        inputs[port + "payload"] = model.pack(port + "payload", data=data, last=last)
        stalls[port + "payload"] = recording.source_duty
        signals[port + "echoed"] = recording.echoed[k]
        for name, flags in (("echo", None), ("path_mark", recording.marks[k])):
            width = Shape.cast(model.levels[port + name].shape).width
            value = rng.integers(0, 1 << width, N_CYCLES)
            values[k, name] = value if flags is None else value & ~1 | flags
            signals[port + name] = values[k, name]
    run = model.instance().run(
        inputs, signals=signals, stalls=stalls,
        trace=["sending", "echoed", "echo", "path_mark", "before"], drain=False,
        max_cycles=N_CYCLES, probe_cycles=0,
    )  # fmt: skip
    return run, inputs, values


def _check_order(recording, run, before):
    """Whose heads were taken when; none of them waits for one behind it."""
    taken = [run.taken[f"sources__{k}__heads"] for k in range(N)]
    picks = sorted((int(c), k) for k in range(N) for c in taken[k])
    ends = [int(t[-1]) if len(t) == N_HEADS else N_CYCLES for t in taken]
    for cycle, k in picks:
        assert not recording.pause[cycle] >> k & 1, "a paused one leaves"
        for j in range(N):
            offers = cycle <= ends[j] and not recording.pause[cycle] >> j & 1
            assert j == k or not (offers and before[cycle][j, k]), "out of order"
    return picks


def test(model):
    """Order by class and age, each payload behind its head, rates, and what is told, by cycles."""
    for seed, recording in enumerate(recordings()):
        run, inputs, values = _play(model, recording, np.random.default_rng(seed))
        before = recording.before()
        picks = _check_order(recording, run, before)
        weights = 1 << np.arange(N * N).reshape(N, N)
        known = (before[:N_CYCLES] * weights).sum(axis=(1, 2))
        assert _numbers(run.traces["before"]) == known.tolist(), "before"
        counts, want, payload, comes = [0] * N, [], [], []
        for cycle, k in picks:
            at = counts[k]
            counts[k] += 1
            want.append(inputs[f"sources__{k}__heads"][at])
            if recording.full[k][at]:
                beats = recording.beats[k][recording.full[k][:at].sum()]
                comes.append((cycle, k))
                payload += [(*beat, j == len(beats) - 1) for j, beat in enumerate(beats)]
        assert min(counts) == N_HEADS, f"{counts} heads"
        assert run.outputs["heads"].tolist() == [row.tolist() for row in want], "heads"
        assert len(run.outputs["payload"]) == len(payload), "beats of payload"
        rows = model.pack(
            "payload",
            data=np.array([row[:-1] for row in payload], np.uint8).reshape(-1, N_BYTES),
            last=np.array([row[-1] for row in payload], int),
        )
        assert np.array_equal(run.outputs["payload"], rows), "payload"
        sending = np.zeros((N, N_CYCLES + 2), int)
        for cycle, k in comes:
            sending[k, cycle + 1 :] += 1
        for k in range(N):
            ends = np.cumsum([len(beats) for beats in recording.beats[k]]) - 1
            for cycle in run.taken[f"sources__{k}__payload"][ends]:
                sending[k, cycle + 1 :] -= 1
        bits = sum((sending[k, :N_CYCLES] != 0).astype(int) << k for k in range(N))
        assert run.traces["sending"].astype(int).tolist() == bits.tolist(), "sending"
        _check_told(recording, run, values)
        _check_replies(inputs, run)
        if (
            recording.duty == recording.source_duty == 1 and not recording.pause[N + 3 :].any()
        ):  # few wait for their payloads yet
            gaps = {b - a for (a, _), (b, _) in pairwise(picks[:8])}
            assert gaps == {2}, f"heads {sorted(gaps)} cycles apart"


def _check_told(recording, run, values):
    any_ = recording.echoed.any(axis=0)
    assert run.traces["echoed"].astype(bool).tolist() == any_.tolist(), "echoed"
    first = recording.echoed.argmax(axis=0)
    echo = np.where(any_, np.choose(first, [values[k, "echo"] for k in range(N)]), 0)
    got = _numbers(run.traces["echo"])
    assert got == echo.tolist(), "echo"
    first, any_ = recording.marks.argmax(axis=0), recording.marks.any(axis=0)
    mark = np.where(any_, np.choose(first, [values[k, "path_mark"] for k in range(N)]), 0)
    assert _numbers(run.traces["path_mark"]) == mark.tolist(), "path_mark"


def _numbers(trace):
    """Whole numbers of a trace."""
    return np.asarray(trace).astype(np.int64).tolist()


def _check_replies(inputs, run):
    """The lowest that has one first; all of each in order."""
    taken = {k: run.taken[f"sources__{k}__replies"].tolist() for k in range(N)}
    order = sorted((cycle, k) for k, cycles in taken.items() for cycle in cycles)
    counts, want = [0] * N, []
    for _, k in order:
        assert all(counts[j] == len(inputs[f"sources__{j}__replies"]) for j in range(k)), "replies"
        want.append(inputs[f"sources__{k}__replies"][counts[k]].tolist())
        counts[k] += 1
    assert sum(counts) == sum(len(inputs[f"sources__{k}__replies"]) for k in range(N)), "replies"
    assert run.outputs["replies"].tolist() == want, "replies"


ARGUED = {}
EXPLAINED = {}
