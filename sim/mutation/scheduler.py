"""Mutation campaign of the message scheduler: what its test must notice, and cannot."""

import numpy as np
from gradnic.models.schedule.row_reader import Setup

from gradnic.interface.schedule_table import GATHER, NOP, REDUCE, ROW, Layout

from ..schedule.scheduler import Player, Sizes, replay

LAYOUT = Layout(
    op=2, bar=1, repeat=3, flow=3, step=4, wait=2, rank=2, first=4, count=3, peer=2, n_sends=2
)
DEPTH, N_CHUNKS = 16, 12
SIZES = Sizes(LAYOUT, DEPTH, N_CHUNKS, 2)
_RECORDINGS = []


def component():
    """The circuit under mutation: everything small."""
    return SIZES.component()


def noise(seed, layout=LAYOUT, depth=DEPTH, n_chunks=N_CHUNKS, n_cycles=700):
    """A recording with random rows, events and strobes; every seed has its own mixture."""
    rng = np.random.default_rng(seed)
    periodic, lockstep, wild = seed % 3 == 0, seed % 4 == 1, seed % 5 == 2
    n = int(rng.integers(1, depth + 1))
    rows = np.zeros(n, ROW)
    repeats = int(rng.integers(1, 4)) if periodic else 1
    chunks = int(rng.integers(1, n_chunks // repeats + 1))
    stages = int(rng.integers(1, 5)) if periodic else 1
    rows["op"] = rng.choice([REDUCE, REDUCE, REDUCE, GATHER, GATHER, NOP], n)
    for name, most in (("wait", 4), ("step", 6), ("flow", 8), ("rank", 4)):
        rows[name] = rng.integers(0, most, n)
    rows["count"] = np.where(rng.random(n) < 0.4, rng.integers(0, 8, n), 0)
    rows["count"] = np.minimum(rows["count"], chunks - 1)
    rows["first"] = rng.integers(0, chunks - rows["count"] + wild)
    rows["bar"] = rng.random(n) < 0.1
    if periodic:
        rows["repeat"] = rng.integers(0, stages + 1, n)
    rows["sends"] = -1
    for i, op in enumerate(rows["op"]):
        n_sends = int(rng.integers(1, 3)) if op == GATHER else int(rng.random() < 0.8)
        rows["sends"][i, :n_sends] = rng.integers(0, 4, n_sends)
    total = chunks * repeats
    setup = Setup(
        rows=n, chunks=total, live=total - int(rng.integers(0, 2)), peers=3 if wild else 4,
        stride=chunks, repeats=repeats, iterations=repeats + stages - 1, lockstep=int(lockstep),
        step_cycles=int(rng.integers(0, 9)), watchdog=int(rng.choice([0, 30, 90])),
    )  # fmt: skip
    player = Player(layout, rows, setup, depth=depth, n_chunks=n_chunks)
    rates = rng.choice([0.1, 0.3, 0.9], 4) / (4, 4, 8, 8)
    ready, idle = rng.choice([0.3, 0.8, 1.0], 2)
    begun = False  # until then the states of chunks are what the memory began with
    for now in range(n_cycles):
        begun = begun or (now > 0 and bool(player.shown["status"]["running"]))
        if begun and now > 2 * n_chunks + 20:
            for port, rate in zip(player.queues, rates, strict=True):
                if rng.random() < rate:
                    player.queues[port].append(int(rng.integers(total + (rng.random() < 0.02))))
        player.cycle(
            start=now > n_chunks and rng.random() < 0.05, abort=rng.random() < 0.003,
            ready=rng.random() < ready, idle=rng.random() < idle,
        )  # fmt: skip
    return player.log


def round_of(seed):
    """A recording of three rounds in which all that rows wait for comes, as fast as may be."""
    rng = np.random.default_rng(seed)
    rows = np.zeros(DEPTH, ROW)
    rows["sends"], rows["first"] = -1, np.arange(DEPTH) % N_CHUNKS
    rows["op"] = np.where(np.arange(DEPTH) < N_CHUNKS, REDUCE, GATHER)
    rows["wait"][:N_CHUNKS] = rng.integers(0, 4, N_CHUNKS)
    rows["flow"], rows["rank"] = np.arange(DEPTH) % 8, np.arange(DEPTH) % 4
    rows["step"], rows["bar"] = np.arange(DEPTH), rng.random(DEPTH) < 0.1 * (seed % 2)
    rows["sends"][:, 0] = rng.integers(0, 4, DEPTH)
    rows["count"][N_CHUNKS:] = rng.integers(0, 3, DEPTH - N_CHUNKS)
    rows["first"][N_CHUNKS:] = rng.integers(0, N_CHUNKS - 2, DEPTH - N_CHUNKS)
    setup = Setup(DEPTH, N_CHUNKS, N_CHUNKS, 4, watchdog=400)
    player = Player(LAYOUT, rows, setup, depth=DEPTH, n_chunks=N_CHUNKS)
    for _ in range(3):
        for _ in range(30):
            player.cycle()
        events = [("added", c) for c in range(N_CHUNKS) for _ in range(rows["wait"][c])]
        events += [("released", c) for c in range(N_CHUNKS)]
        events += [("finals", c) for c in range(N_CHUNKS)]
        if seed % 3:
            rng.shuffle(events)
        player.cycle(start=1)
        for _ in range(6):
            player.cycle()
        for port, chunk in events:
            player.queues[port].append(int(chunk))
            player.queues["asks"].append(int(chunk))
            player.cycle()
        for _ in range(160):
            player.cycle(ready=rng.random() < (0.5, 1.0)[seed % 2])
    return player.log


def recordings():
    """What the test plays, made once: rounds that end well first, then noise."""
    if not _RECORDINGS:
        _RECORDINGS.extend([round_of(seed) for seed in range(4)])
        _RECORDINGS.extend(noise(seed) for seed in range(30))
    return _RECORDINGS


def test(model):
    """Each row, event and answer in its cycle, and the status in every cycle."""
    for recording in recordings():
        replay(model, SIZES, recording)


EXPLAINED = {}
