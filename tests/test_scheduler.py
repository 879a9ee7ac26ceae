"""The message scheduler: circuit and golden model leave each row in the same cycle."""

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from gradnic.hdl.scheduler import Scheduler
from gradnic.models import scheduler as golden
from gradnic.models import schedules, topology
from gradnic.models.schedules.rows import compile_table
from gradnic.sim import batch
from gradnic.sim.scheduling import Cluster, Player, replay

from gradnic.table import ROW, Layout

LAYOUT = replace(Layout.for_nodes(16, chunks=8), peer=5)
DEPTH, N_CHUNKS = 256, 128


@pytest.fixture(scope="module")
def circuit():
    """(batch model, component) for up to 16 nodes and 128 chunks."""
    component = Scheduler(LAYOUT, depth=DEPTH, n_chunks=N_CHUNKS, n_ports=4)
    return batch.build(component), component


def player(rows, setup):
    return Player(LAYOUT, rows, setup, depth=DEPTH, n_chunks=N_CHUNKS)


def table_of(network, algorithm, *, repeats=None, **options):
    schedule = schedules.build(topology.parse(network), algorithm)
    if repeats:
        schedule = replace(schedule, repeats=repeats)
    return compile_table(schedule, **options)


def rows_of(*rows):
    """ROW array: dicts of what is not 0."""
    table = np.zeros(len(rows), ROW)
    table["sends"] = -1
    for i, row in enumerate(rows):
        for name, value in row.items():
            if name == "sends":
                table["sends"][i, : len(value)] = value
            else:
                table[name][i] = value
    return table


def events_of(rows, setup):
    """All events that these rows wait for, and the chunks' ends: [(port, chunk)], in order."""
    events = []
    for item in golden.work(rows, setup):
        if isinstance(item, golden.Work) and not item.nop and not item.message.gather:
            chunks = range(item.message.first, item.message.first + item.message.count + 1)
            events += [("added", c) for c in chunks] * item.message.wait
            events += [("left", c) for c in chunks]
    return events + [("finals", c) for c in range(setup.live)]


def play(rows, setup, events, rng, *, duty=0.8, chance=0.4, asks=0.1, idle=0.9, most=6000):
    """One round with events at random times; the player, after it has ended."""
    played = player(rows, setup)
    events, end, begun = deque(events), None, N_CHUNKS + 5
    while end is None or played.model.now < end:
        now = played.model.now
        assert now < most, played.shown
        running = played.shown and played.shown["status"]["running"]
        while running and events and rng.random() < chance:
            port, chunk = events.popleft()
            played.queues[port].append(chunk)
        if running and rng.random() < asks:
            played.queues["asks"].append(int(rng.integers(setup.chunks)))
        played.cycle(start=now == begun, ready=rng.random() < duty, idle=rng.random() < idle)
        if end is None and now > begun + 5 and not played.shown["status"]["running"]:
            end = now + 12
    return played


TABLES = (
    ("torus:4x4", "multitree", 16),
    ("torus:4x4", "bfb", 64),
    ("mesh:4x4", "best", None),
    ("bigraph:2x8", "hdrm", 16),
    ("bigraph:2x8", "multitree", 16),
    ("fattree:4x2", "shift", 16),
    ("ring:8", "bidirectional", None),
    ("torus:4x4", "ring2d", None),
    ("torus:4x4", "dbtree", None),
    ("hypercube:4", "halving", 16),
    ("mesh:4x4", "overlapped", None),
)


@pytest.mark.parametrize(("network", "algorithm", "n_chunks"), TABLES)
def test_tables_run_as_golden(circuit, network, algorithm, n_chunks):
    """Some nodes of each algorithm, events and stalls at random."""
    model, component = circuit
    table = table_of(network, algorithm, repeats=9 if algorithm == "overlapped" else None)
    assert n_chunks in (None, table.n_chunks)
    rng = np.random.default_rng([7, *algorithm.encode()])
    for node, duty in zip(rng.permutation(table.n_nodes)[:3], (1.0, 0.8, 0.2), strict=True):
        rows = table.of(node)
        live = [None, None, table.n_chunks * table.repeats - 3][int(duty * 3) % 3]
        setup = golden.setup_of(table, node, live=live)
        events = events_of(rows, setup)
        rng.shuffle(events)
        played = play(rows, setup, [(p, int(c)) for p, c in events], rng, duty=duty)
        assert played.shown["status"]["done"], played.shown["status"]
        wanted = [w.message for w in golden.work(rows, setup) if w]
        assert played.log.messages == wanted
        replay(model, component, played.log)


@pytest.mark.parametrize(
    ("network", "algorithm", "options"),
    [
        ("torus:4x4", "multitree", {}),
        ("bigraph:2x8", "hdrm", {"duty": 1.0}),
        ("mesh:4x4", "overlapped", {"duty": 1.0}),
        ("mesh:4x4", "multitree", {"lockstep": 1, "step_cycles": 9}),
        ("torus:4x4", "multitree", {"live": 13, "barrier": True}),
    ],
)
def test_cluster_ends_as_golden(circuit, network, algorithm, options):
    """All nodes in a closed loop of messages; then each circuit with the events of its node."""
    model, component = circuit
    repeats = 6 if algorithm == "overlapped" else None
    table = table_of(
        network, algorithm, repeats=repeats, barrier=options.pop("barrier", False),
        nops="lockstep" in options,
    )  # fmt: skip
    rng = np.random.default_rng(11)
    cluster = Cluster(LAYOUT, table, rng, depth=DEPTH, n_chunks=N_CHUNKS, **options)
    for log in cluster.run():
        assert not any(log.status[-1][name] for name in ("foreign", "extra", "early", "stuck"))
        replay(model, component, log)
