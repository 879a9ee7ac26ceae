"""The message scheduler: circuit and golden model leave each row in the same cycle."""

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.schedule.row_offer import countdown
from gradnic.hdl.schedule.scheduler import Scheduler
from gradnic.models.schedule import builders as schedules
from gradnic.models.schedule import row_reader as golden
from gradnic.models.schedule import topology
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.sim.engine import batch
from gradnic.sim.schedule.scheduler import Cluster, Player, Sizes, replay

from gradnic.interface.schedule_table import GATHER, NOP, REDUCE, ROW, Layout

LAYOUT = replace(Layout.for_nodes(16, chunks=8), peer=5)
DEPTH, N_CHUNKS = 256, 128


@pytest.fixture(scope="module")
def circuit():
    """(batch model, sizes) for up to 16 nodes and 128 chunks."""
    sizes = Sizes(LAYOUT, DEPTH, N_CHUNKS)
    return batch.build(sizes.component()), sizes


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
            events += [("released", c) for c in chunks]
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
    model, sizes = circuit
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
        replay(model, sizes, played.log)


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
    model, sizes = circuit
    repeats = 6 if algorithm == "overlapped" else None
    table = table_of(
        network, algorithm, repeats=repeats, barrier=options.pop("barrier", False),
        nops="lockstep" in options,
    )  # fmt: skip
    rng = np.random.default_rng(11)
    cluster = Cluster(LAYOUT, table, rng, depth=DEPTH, n_chunks=N_CHUNKS, **options)
    for log in cluster.run():
        assert not any(log.status[-1][name] for name in ("foreign", "extra", "early", "stuck"))
        replay(model, sizes, log)


def sequence(rows, setup, script, n_cycles=400, **controls):
    """A run with events and strobes at given cycles: script {cycle: [port, or (port, chunk)]}.

    Each control may be a function of the cycle. Cycle 0 of the script is the start.
    """
    played = player(rows, setup)
    begun = N_CHUNKS + 4
    for now in range(n_cycles + begun):
        strobes = {"start": now == begun}
        for item in script.get(now - begun, ()):
            if item in ("start", "abort"):
                strobes[item] = 1
            else:
                played.queues[item[0]].append(item[1])
        strobes |= {name: value(now - begun) for name, value in controls.items()}
        played.cycle(**strobes)
    return played, [cycle - begun for cycle in played.log.taken_messages]


def test_latency_and_rate(circuit):
    """6 cycles from the last event to the offer, one row a cycle, whatever the kind of row."""
    model, sizes = circuit
    n = 40
    rows = rows_of(*({"op": REDUCE, "first": c, "sends": [0]} for c in range(n)))
    setup = golden.Setup(rows=n, chunks=n, live=n, peers=1)
    played, cycles = sequence(rows, setup, {})
    assert cycles == list(range(cycles[0], cycles[0] + n))
    replay(model, sizes, played.log)
    head = {"op": REDUCE, "first": 0, "wait": 2, "sends": [0]}
    rest = [{"op": REDUCE, "first": c, "wait": 1, "sends": [0]} for c in range(1, 8)]
    more = [{"op": GATHER, "first": 20 + c, "sends": [0, 1]} for c in range(20)]
    wide = {"op": REDUCE, "first": 8, "count": 11, "wait": 2, "sends": [1]}
    late = {"op": GATHER, "first": 8, "count": 3, "sends": [1]}
    rows = rows_of(head, *rest, *more, wide, late)
    setup = golden.Setup(rows=len(rows), chunks=n, live=n, peers=2)
    script = {40 + c: [("added", c), ("finals", 20 + c)] for c in range(20)} | {90: [("added", 0)]}
    script |= {150 + c: [("added", 19 - c)] for c in range(12)}
    script |= {200: [("finals", 9)], 201: [("finals", 8)], 220: [("finals", 11)]}
    script |= {240: [("finals", 10)]}
    played, cycles = sequence(rows, setup, script)
    # the first row; all that were ready behind it; the last contribution to 8; the last final
    assert cycles == [*range(96, 96 + 28), 161 + 6, 240 + 6]
    replay(model, sizes, played.log)


def test_late_events_ready_no_later_row(circuit):
    """A second final or a contribution too many, about when its row leaves, is not for the row
    that has its place in the window next.
    """
    model, sizes = circuit
    most = 2**LAYOUT.wait - 1
    first = {"op": GATHER, "sends": [0]}, {"op": REDUCE, "wait": most, "sends": [0]}
    between = [{"op": REDUCE, "first": c, "sends": [0]} for c in range(1, 9)]
    rest = [{"op": REDUCE, "first": c, "wait": 1, "sends": [0]} for c in range(9, 12)]
    setup = golden.Setup(rows=12, chunks=12, live=12, peers=1)
    for row, port, n in (first[0], "finals", 1), (first[1], "added", most):
        for gap in range(1, 12):
            script = {60: [(port, 0)] * n, 60 + n - 1 + gap: [(port, 0)]}
            script |= {150 + c: [("added", c)] for c in range(9, 12)}
            played, cycles = sequence(rows_of(row, *between, *rest), setup, script, 250)
            assert cycles[:10] == [60 + n + 5 + k for k in range(9)] + [165]
            replay(model, sizes, played.log)


def test_bar_lockstep_and_nops(circuit):
    """BAR waits for the ports; lock-step besides for each step's end, NOP rows for their time."""
    model, sizes = circuit
    rows = rows_of(
        {"op": REDUCE, "sends": [0]},
        {"op": NOP, "step": 1, "count": 2},
        {"op": REDUCE, "step": 4, "first": 1, "sends": [0]},
        {"op": REDUCE, "step": 4, "first": 2, "sends": [1]},
        {"op": NOP, "step": 5},
        {"op": REDUCE, "step": 6, "bar": 1, "first": 3, "sends": [1]},
        {"op": REDUCE, "step": 6, "bar": 1, "first": 4, "sends": [1]},
    )
    free = golden.Setup(rows=len(rows), chunks=8, live=8, peers=2)
    busy_until = {}

    def idle(now):
        return now >= 100 and now >= busy_until.get("end", 0)

    played, cycles = sequence(rows, free, {}, idle=idle)
    assert cycles[2] < 30  # what is not held
    assert cycles[3:] == [103, 109]
    replay(model, sizes, played.log)
    setup = replace(free, lockstep=1, step_cycles=50)
    played, cycles = sequence(rows, setup, {}, 600, idle=idle)
    assert cycles[0] < 30
    assert cycles[1] - 100 in range(150, 165)  # 3 steps of NOP
    assert cycles[2] == cycles[1] + 1  # the same step
    assert cycles[3] - cycles[2] in range(50, 70)
    assert cycles[4] - cycles[3] == 6
    replay(model, sizes, played.log)


def test_empty_chunks_complete_at_once(circuit):
    model, sizes = circuit
    table = table_of("bigraph:2x8", "hdrm")
    rng = np.random.default_rng(5)
    for live in (0, 1, 5, 16):
        rows, setup = table.of(0), golden.setup_of(table, 0, live=live)
        played = play(rows, setup, events_of(rows, setup), rng)
        assert played.shown["status"]["done"]
        assert all(m.first + m.count < live for m in played.log.messages)
        replay(model, sizes, played.log)


def status(played, *names):
    return [played.shown["status"][name] for name in names]


def test_a_new_round_shows_nothing_of_the_last(circuit):
    """From the first cycle of a round on, row, chunk and step are its own, or 0 before they are."""
    model, sizes = circuit
    rows = rows_of(*({"op": REDUCE, "first": c, "step": 7, "sends": [0]} for c in range(5)))
    rows[0]["wait"] = 1
    setup = golden.Setup(rows=5, chunks=5, live=5, peers=1)
    ends = [("added", 0), *(("finals", c) for c in range(5))]
    played, _ = sequence(rows, setup, {60: ends, 300: ["start"]}, 400)
    shown = [(s["row"], s["chunk"], s["step"]) for s in played.log.status]
    begins = 300 + N_CHUNKS + 4
    assert shown[begins] == (5, 0, 7)
    assert set(shown[begins + 4 :]) == {(0, 0, 0)}
    replay(model, sizes, played.log)
    wrong = player(rows, setup)
    for now in range(600):
        if now == 300:
            wrong.model.setup = wrong.log.setup = replace(setup, live=6)
        for port, chunk in ends if now == 200 else ():
            wrong.queues[port].append(chunk)
        wrong.cycle(start=now in (N_CHUNKS + 4, 400))
    assert status(wrong, "fault", "row", "step") == [golden.SETUP, 0, 0]


def test_bad_rows_and_setups_are_refused(circuit):
    """The fault and its row; what stands before it may leave; the next round is right."""
    model, sizes = circuit
    good = [{"op": REDUCE, "first": c, "sends": [0]} for c in range(5)]
    chunk = {"op": REDUCE, "first": 5, "count": 3, "sends": [0]}
    setup = golden.Setup(rows=6, chunks=8, live=6, peers=3)
    for bad, code in (
        ({"op": 3}, golden.OPERATION),
        ({"op": REDUCE, "sends": [0, 1]}, golden.OPERATION),
        ({"op": GATHER}, golden.OPERATION),
        (chunk, golden.CHUNK),
        ({"op": GATHER, "first": 100, "sends": [0]}, golden.CHUNK),
        ({"op": GATHER, "sends": [0, 1, 3]}, golden.PEER),
    ):
        played, _ = sequence(rows_of(*good, bad), setup, {100: ["start"]}, 200)
        assert status(played, "fault", "row", "running", "done") == [code, 5, 0, 0]
        replay(model, sizes, played.log)
    played, _ = sequence(rows_of(*good, chunk | {"count": 2}), setup, {}, 200)
    assert status(played, "fault", "running") == [0, 1]
    replay(model, sizes, played.log)
    for wrong in (
        {"rows": 0}, {"rows": DEPTH + 1}, {"chunks": 0}, {"chunks": N_CHUNKS + 1}, {"live": 9},
        {"repeats": 0}, {"iterations": 0},
    ):  # fmt: skip
        played, cycles = sequence(rows_of(*good, chunk), replace(setup, **wrong), {}, 60)
        assert status(played, "fault", "running") == [golden.SETUP, 0]
        assert not cycles
        replay(model, sizes, played.log)


def test_watchdog_names_the_row(circuit):
    """A child that never sends, an offer that is never taken, a chunk that never becomes final."""
    model, sizes = circuit
    table = table_of("torus:4x4", "multitree")
    rows = table.of(5)
    setup = golden.setup_of(table, 5, watchdog=100)
    waits = int(np.flatnonzero(rows["wait"])[0])
    played, _ = sequence(rows, setup, {}, 200)
    first = int(rows["first"][waits])
    assert status(played, "stuck", "row", "chunk", "running") == [1, waits, first, 1]
    replay(model, sizes, played.log)
    played, _ = sequence(rows, setup, {}, 200, ready=lambda now: 0)
    assert status(played, "stuck", "row", "chunk") == [1, 0, rows["first"][0]]
    replay(model, sizes, played.log)
    alone = rows_of({"op": REDUCE, "sends": [0]})
    setup = golden.Setup(rows=1, chunks=1, live=1, peers=1, watchdog=100)
    script = {300: [("finals", 0)], 400: ["start"], 425: [("finals", 0)], 426: [("finals", 0)]}
    played, _ = sequence(alone, setup, script, 500)
    trace = [(s["stuck"], s["row"], s["done"]) for s in played.log.status]
    assert {(1, 1, 0), (1, 1, 1)} < set(trace)
    assert trace[-1] == (0, 1, 1)
    replay(model, sizes, played.log)
    quiet = replace(setup, watchdog=0)
    played, _ = sequence(alone, quiet, {}, 500)
    assert status(played, "stuck") == [0]
    replay(model, sizes, played.log)


def test_strange_events_are_named(circuit):
    """Foreign chunks, contributions after the last, before the start; none of them counts."""
    model, sizes = circuit
    rows = rows_of(
        {"op": REDUCE, "wait": 1, "sends": [0]}, {"op": REDUCE, "first": 1, "wait": 3, "sends": [0]}
    )
    setup = golden.Setup(rows=2, chunks=2, live=2, peers=1)
    for script, flags in (
        ({60: [("added", 2)]}, [1, 0, 0]),
        ({60: [("finals", 127), ("released", 3)]}, [1, 0, 0]),
        ({60: [("added", 0), ("released", 0)], 70: [("added", 0)]}, [0, 1, 0]),
        ({60: [("finals", 0), ("finals", 0)]}, [0, 1, 0]),
        ({60: [("added", 1)] * 16, 90: [("asks", 1)]}, [0, 1, 0]),
        ({-3: [("added", 0)]}, [0, 0, 0]),
        ({60: ["abort"], 70: [("released", 0)]}, [0, 0, 1]),
    ):
        played, _ = sequence(rows, setup, script, 120)
        assert status(played, "foreign", "extra", "early") == flags
        replay(model, sizes, played.log)


def test_noise(circuit):
    """Random rows, events, strobes: whatever happens, both do the same."""
    model, sizes = circuit
    rng = np.random.default_rng(3)
    for trial in range(40):
        n = int(rng.integers(1, 40))
        rows = rows_of(*({"op": int(rng.choice([0, 0, 0, 1, 1, 2]))} for _ in range(n)))
        chunks, stages = int(rng.integers(1, 24)), int(rng.integers(1, 5))
        repeats = int(rng.integers(1, 4)) if trial % 3 == 0 else 1
        for name, most in (
            ("first", chunks), ("count", 1 + chunks // 4), ("wait", 3), ("step", 6), ("flow", 9),
            ("rank", 3),
        ):  # fmt: skip
            rows[name] = rng.integers(0, most, n)
        rows["bar"] = rng.random(n) < 0.1
        rows["repeat"] = rng.integers(0, stages + 1, n) if trial % 3 == 0 else 0
        for i in range(n):
            n_sends = int(rng.integers(1, 5)) if rows["op"][i] else int(rng.random() < 0.8)
            rows["sends"][i, :n_sends] = rng.integers(0, 8, n_sends)
        total = (chunks + chunks // 4) * repeats
        setup = golden.Setup(
            rows=n, chunks=total, live=int(rng.integers(0, total + 1)),
            peers=int(rng.choice([8, 8, 8, 7])), stride=chunks, repeats=repeats,
            iterations=repeats + stages - 1, lockstep=int(trial % 4 == 0),
            step_cycles=int(rng.integers(0, 12)), watchdog=int(rng.choice([0, 5, 40])),
            sums_stay=int(trial % 5 == 1),
        )  # fmt: skip
        played = player(rows, setup)
        rate = rng.choice([0.05, 0.3, 1.0], 4)
        ready, idle = rng.choice([0.2, 0.7, 1.0], 2)
        begun = False  # until then the states of chunks are what the memory began with
        for now in range(900):
            begun = begun or (now > 0 and bool(played.shown["status"]["running"]))
            for port, chance in zip(played.queues, rate, strict=True):
                if begun and rng.random() < chance:
                    played.queues[port].append(int(rng.integers(0, total + (rng.random() < 0.02))))
            played.cycle(
                start=now > N_CHUNKS and rng.random() < 0.03, abort=rng.random() < 0.004,
                ready=rng.random() < ready, idle=rng.random() < idle,
            )  # fmt: skip
        replay(model, sizes, played.log)


def test_abort_and_restart(circuit):
    """After an abort at any time, the next round is as if nothing had been."""
    model, sizes = circuit
    table = table_of("torus:4x4", "multitree")
    rng = np.random.default_rng(8)
    for node in range(6):
        rows, setup = table.of(node), golden.setup_of(table, node)
        played = player(rows, setup)
        wanted = [w.message for w in golden.work(rows, setup) if w]
        for _ in range(3):
            for _ in range(150):
                played.cycle()
            events = deque(events_of(rows, setup))
            before = len(played.log.messages)
            abort_at = int(rng.integers(5, 90))
            played.cycle(start=1)
            for _ in range(abort_at):
                while played.shown["status"]["running"] and events and rng.random() < 0.4:
                    port, chunk = events.popleft()
                    played.queues[port].append(chunk)
                played.cycle(ready=rng.random() < 0.6)
            played.cycle(abort=1)
            for queue in played.queues.values():
                queue.clear()
            sent = len(played.log.messages) - before
            assert played.log.messages[before:] == wanted[:sent]
        for _ in range(150):
            played.cycle()
        assert status(played, "running", "done") == [0, 0]
        before = len(played.log.messages)
        played.cycle(start=1)
        events = deque(events_of(rows, setup))
        for _ in range(400):
            if played.shown["status"]["running"] and events:
                port, chunk = events.popleft()
                played.queues[port].append(chunk)
            played.cycle()
        assert status(played, "done") == [1]
        assert played.log.messages[before:] == wanted
        replay(model, sizes, played.log)


def test_other_sizes():
    """Narrow layout, one peer a row, a number of chunks that is no power of two."""
    table = table_of("ring:8", "ring")
    layout = Layout.fit(table.rows)
    sizes = Sizes(layout, depth=table.of(0).size, n_chunks=9, n_ports=1)
    model = batch.build(sizes.component())
    cluster = Cluster(
        layout, table, np.random.default_rng(2), depth=sizes.depth, n_chunks=9, watchdog=9999
    )
    for log in cluster.run():
        replay(model, sizes, log)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"depth": 1}, "depth must be 2 to 16384, not 1"),
        ({"n_chunks": 8193}, "n_chunks must be 2 to 8192, not 8193"),
        ({"n_ports": 9}, "n_ports must be 1 to 8, not 9"),
    ],
)
def test_parameters_are_checked(options, text):
    with pytest.raises(ValueError, match=text):
        Scheduler(LAYOUT, **options)


class Down(wiring.Component):
    """A `countdown` of few bits, so that all its starts can be played."""

    def __init__(self, until):
        self.until = until
        super().__init__({"start": In(8), "load": In(1), "hit": Out(1)})

    def elaborate(self, platform):
        m = Module()
        hit = countdown(m, self.start, self.load, until=self.until, name="test")
        m.d.comb += self.hit.eq(hit)
        return m


@pytest.mark.parametrize("until", [0, 2])
def test_counters_of_two_halves(until):
    """Every start, loaded for long and again while the counter is at work."""
    model = batch.build(Down(until))
    start, load, hits, value = [], [], [], None
    for first, again in zip(range(256), np.random.default_rng(4).permutation(256), strict=True):
        for length in (int(again) % 40, first + 6):
            start += [first] * (length + 3)
            load += [0, 0, 1] + [0] * length
    for now, (first, loads) in enumerate(zip(start, load, strict=True)):
        if value == until and not loads:
            hits.append(now + 1)
        if loads:
            value = first
        elif value is not None:
            value -= 1
    signals = {"start": np.array(start), "load": np.array(load)}
    run = model.run({}, signals=signals, trace=["hit"], drain=False, max_cycles=len(load))
    assert np.flatnonzero(run.traces["hit"]).tolist() == hits
