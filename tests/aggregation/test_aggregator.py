"""The RTL aggregator against the golden one: every frame at every port, every counter."""

from itertools import product

import numpy as np
import pytest
from gradnic.hdl.aggregation.aggregator import Aggregator
from gradnic.models.aggregation.aggregator import AggregatorTop
from gradnic.models.aggregation.jobs import Config, Job
from gradnic.sim.aggregation import frames as makers
from gradnic.sim.aggregation import soak as star_soak
from gradnic.sim.aggregation.aggregator import (
    AggregatorBench,
    build_aggregator,
    settings,
    word,
)

from gradnic.interface.aggregator import REGISTERS
from gradnic.interface.formats import GRADNIC, HEAD_BYTES, Op

CONFIG = makers.small_config()
THC, INT32, _ = CONFIG.jobs
# four ports share one unit: what comes faster than one beat a cycle together is lost
PACE = {f"{side}_rx__{k}": 0.2 for side in ("worker", "network") for k in range(2)}
OUTPUTS = [f"{side}_tx__{k}" for side in ("worker", "network") for k in range(2)]


@pytest.fixture(scope="module")
def model():
    return build_aggregator(2, **star_soak.SIZES)


def bench(model, **changes):
    return AggregatorBench(model, makers.small_config(**changes) if changes else CONFIG)


@pytest.mark.parametrize("ready", [1.0, 0.6])
@pytest.mark.parametrize(
    "changes",
    [{}, {"close": "n_min"}, {"close": "bounded", "total_bytes": 640, "p_q16": 20000}],
    ids=["all", "n_min", "bounded"],
)
def test_mixed_traffic(model, ready, changes):
    """Sound, foreign, broken and forged frames on all ports at once."""
    pair = bench(model, **changes)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        stalls = PACE | dict.fromkeys(OUTPUTS, ready)
        pair.play(makers.traffic(pair.config, rng, 200), stalls=stalls, seed=seed + 1)
    counters = pair.golden.counters
    silent = {"oversize", "overrun", "lost", "unsent", "partial", "late", "overflow"}
    assert {name for name, count in counters.items() if not count} <= silent
    if changes:
        assert counters["partial"]


def test_a_job_runs_in_lock_step(model):
    """Generations one after the other: each closes, and each child gets its copy."""
    pair = bench(model)
    rng = np.random.default_rng(5)
    given = {port: [] for port in range(4)}
    for gen in range(20):
        for slot in range(4):
            for child in range(2):
                fields = {"op": Op.THC_IDX, "gen": gen, "slot": slot, "seq": slot, "lc": gen % 8}
                frame = makers.sound(CONFIG, rng, job=THC, child=child, last=gen % 2, **fields)
                given[child].append((frame, False))
    run = pair.play(given)
    assert pair.golden.counters["answers"] == 2 * 20 * 4
    assert pair.golden.counters["accepted"] == 2 * 20 * 4
    # all the while the ports take turns
    heard = run.traces["ingress_port"][run.traces["ingress_valid"].astype(bool)]
    assert heard[20:60].tolist() == [0, 2] * 20 or heard[20:60].tolist() == [2, 0] * 20


def test_frames_of_all_lengths(model):
    """Foreign and ours, up to the longest, and longer: cut, marked bad, counted."""
    pair = bench(model)
    quietly = {"check_counters": False, "idle_cycles": 2500}  # a frame rests in each of two stores
    rng = np.random.default_rng(6)
    noise = makers.makers.with_bytes(rng.bytes(17000), 12, b"\x12\x34")
    frame = makers.sound(CONFIG, rng, job=THC, child=0, slot=1, gen=2, op=Op.THC_IDX)
    for n in (1, 15, 16, 17, 44, 45, 63, 64, 65, 16383, 16384, 16385, 16400, 17000):
        pair.play({0: [(noise[:n], False)], 3: [(noise[:n], True)]}, **quietly)
    for n in (16383, 16384, 16385, 17000):
        pair.play({0: [(frame.ljust(n, b"\x55"), False)]}, **quietly)
    pair.check_counters()
    assert pair.golden.counters["oversize"] == 8
    assert pair.golden.counters["bad"] == 2
    assert pair.golden.counters["accepted"] == 1


def test_foreign_frames_pass_at_full_rate(model):
    """A flood of contributions costs foreign traffic nothing but its own beats at the input."""
    pair = bench(model)
    rng = np.random.default_rng(7)
    noise = [makers.makers.with_bytes(rng.bytes(64), 12, b"\x12\x34") for _ in range(300)]
    own = [makers.sound(CONFIG, rng, job=THC, child=0, gen=0) for _ in range(300)]
    alone, _, run = pair.run({0: [(f, False) for f in noise]})
    assert [f for _, f, _ in alone] == noise
    taken = run.taken["network_tx__0"]
    assert taken[0] - run.taken["worker_rx__0"][0] <= 24
    assert np.ptp(taken) == len(taken) - 1
    both = [(f, False) for pair_ in zip(noise, own, strict=True) for f in pair_]
    mixed, _, run = pair.run({0: both, 2: [(f, False) for f in noise]})
    assert [f for port, f, _ in mixed if port == 2] == noise
    assert np.ptp(run.taken["worker_rx__0"]) == len(run.taken["worker_rx__0"]) - 1


def test_what_is_too_much_is_lost_whole_and_counted(model):
    pair = bench(model)
    rng = np.random.default_rng(8)
    frames = [
        (makers.sound(CONFIG, rng, job=INT32, child=child, slot=4, gen=gen), False)
        for gen in range(200)
        for child in range(2)
    ]
    given = {1 - child: frames[child::2] * 4 for child in range(2)}
    out, order, _ = pair.run(given | {2: given[0][:300], 3: given[1][:300]})
    counters = pair.counters()
    offered = sum(map(len, given.values())) + 600
    assert counters["overrun"] > 100
    assert len(order) == offered - counters["overrun"]
    assert counters["answers"] == len(out)
    before = pair.counters()["answers"]
    later = makers.sound(CONFIG, rng, job=THC, child=0, slot=0, gen=1000, op=Op.NORM, seq=0)
    out, *_ = pair.run({0: [(later, False)]})
    other = makers.sound(CONFIG, rng, job=THC, child=1, slot=0, gen=1000, op=Op.NORM, seq=0,
                         payload=later[HEAD_BYTES:])  # fmt: skip
    out, *_ = pair.run({1: [(other, False)]})
    assert [f[HEAD_BYTES:] for _, f, _ in out] == [later[HEAD_BYTES:]] * 2
    assert pair.counters()["answers"] == before + 2


def test_a_port_that_stands_still_stops_nobody_else(model):
    """Worker 1 takes nothing: its answers are lost, those of worker 0 and all the rest arrive."""
    pair = bench(model, close="n_min", n_min=1)
    rng = np.random.default_rng(9)
    n = 400
    kind = {"job": pair.config.jobs[0], "slot": 0, "op": Op.THC_IDX, "payload": bytes(64)}
    frames = [makers.sound(pair.config, rng, child=0, gen=gen, **kind) for gen in range(n)]
    noise = [makers.makers.with_bytes(rng.bytes(64), 12, b"\x12\x34") for _ in range(50)]
    given = {0: [(f, False) for f in frames], 2: [(f, False) for f in noise]}
    stalls = PACE | {"worker_tx__1": ([0] * 30_000, 1)}
    out, _, _ = pair.run(given, stalls=stalls, idle_cycles=20_000)
    got = {port: [f for at, f, _ in out if at == port] for port in range(2)}
    assert [f for f in got[0] if f in set(noise)] == noise
    assert [GRADNIC.gen.get(f) for f in got[0] if f not in set(noise)] == list(range(n))
    counters = pair.counters()
    assert counters["lost"] > 50
    assert len(got[1]) == n - counters["lost"]
    assert [GRADNIC.gen.get(f) for f in got[1]] == list(range(len(got[1])))
    # the client asks again, and is served
    late = makers.sound(pair.config, rng, child=1, gen=n - 1, **kind)
    again, *_ = pair.run({1: [(late, False)]})
    assert [(port, GRADNIC.retx.get(f)) for port, f, _ in again] == [(1, 1)]


def test_frames_with_coll_arrive_or_are_counted(model):
    """The network at port 0 takes nothing: those of port 1 wait behind it, and some are lost."""
    pair = bench(model)
    rng = np.random.default_rng(12)
    job = pair.config.jobs[0]
    given = {}
    for child, n in enumerate((3, 400)):
        frame = bytearray(makers.sound(pair.config, rng, job=job, child=child, slot=0, gen=1))
        GRADNIC.slot.put(frame, pair.config.jobs[2].first_slot)
        given[job.children[child].port] = [(bytes(frame), False)] * n
    stalls = {"network_tx__0": ([0] * 30_000, 1)}
    out, _, _ = pair.run(given, stalls=stalls, idle_cycles=40_000)
    counters = pair.counters()
    assert all(GRADNIC.coll.get(frame) for _, frame, _ in out)
    assert counters["collisions"] == 403
    assert counters["unsent"] > 100
    assert len(out) == 403 - counters["unsent"]
    out, _, _ = pair.run(given)  # who takes loses nothing
    assert len(out) == 403
    assert pair.counters()["unsent"] == counters["unsent"]


def test_deadlines(model):
    pair = bench(model, deadline=50)
    rng = np.random.default_rng(10)
    frames = [makers.sound(pair.config, rng, job=pair.config.jobs[0], child=0, slot=s, gen=2,
                           op=Op.THC_IDX) for s in range(3)]  # fmt: skip
    for at, frame in zip((10, 30, 59), frames, strict=True):
        pair.play({0: [(frame, False)]}, now=at)
    for now, n_closed in ((59, 0), (60, 1), (80, 2), (108, 2), (109, 3), (500, 3)):
        out, _, _ = pair.run({}, now=now, tick=1)
        assert out == pair.golden.tick(now)
        assert pair.golden.counters["partial"] == n_closed
    pair.check_counters()


def test_one_job_never_sees_another(model):
    """Answers of job 5 are the same whether job 200's child attacks all the while or not."""
    rng = np.random.default_rng(11)
    own = {0: [], 1: []}
    for gen in range(40):
        for child in range(2):
            fields = {"op": Op.THC_IDX, "gen": gen, "slot": gen % 4, "seq": 0}
            own[child].append((makers.sound(CONFIG, rng, job=THC, child=child, **fields), False))
    hostile = [f for _ in range(60)
               for f in makers.attacks(makers.sound(CONFIG, rng, job=INT32, child=0), rng).values()
               if GRADNIC.job.get(f) != 5 or GRADNIC.src.get(f) != 1]  # fmt: skip
    quiet = bench(model)
    quiet.play(own, stalls=PACE)
    alone = quiet.run({}, now=0)[0]
    assert alone == []
    expected = bench(model).run(own, stalls=PACE)[0]
    loud = bench(model)
    attacked = {0: own[0], 1: own[1], 2: [(f, False) for f in hostile[::2]],
                3: [(f, False) for f in hostile[1::2]]}  # fmt: skip
    out = loud.run(attacked, stalls=PACE)[0]

    def answers(frames):
        mac = CONFIG.mac.to_bytes(6, "big")  # what is foreign crosses, whatever its job
        own = [(port, f) for port, f, _ in frames if port < 2 and f[6:12] == mac]
        return [(port, f) for port, f in own if GRADNIC.job.get(f) == 5]

    assert answers(out) == answers(expected)
    assert len(answers(out)) == 80


QUEUES = ([5, 8, 12, 16, 20, 25, 30, 30], 40)  # beats


def test_answers_wait_in_queues_that_drop_and_mark():
    """A worker that takes a beat in ten: SwitchML's answers are dropped at their threshold, the
    others marked, all beyond the limit lost; each fate, frame and counter is the golden one.
    """
    config = makers.small_config(1)
    pair = AggregatorBench(build_aggregator(1, **star_soak.SIZES, queues=8), config, queues=QUEUES)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        given = []
        for gen, job in product(range(80), config.jobs):
            native = {"gen": gen, "lc": gen % 8}
            fields = {"set": gen % 2} if job.kind == "switchml" else native
            frame = makers.sound(config, rng, job=job, child=0, slot=job.first_slot, **fields)
            given.append((frame, False))
        frames = {0: given, 1: [(bytes(64), False)] * 50}
        pair.play(frames, stalls={"worker_rx__0": 0.3, "worker_tx__0": 0.1}, seed=seed + 1)
    found = pair.golden.egress[0].counters
    wanted = found.copy()
    for (what, *place), number in found.items():
        if what == "marked":
            wanted["enqueued", *place] -= number
    assert pair.queue_counts(0) == dict(+wanted)
    assert {what for what, _, important in wanted if important} == {"enqueued", "marked", "limit"}
    assert wanted["threshold", 7, 0]


def test_children_beyond_what_was_built_are_ignored(model):
    """Places of jobs and ports that are not there overwrite no other's entry."""
    pair = bench(model)
    offset = REGISTERS["child"].offset
    for job, port in [(k, 0) for k in range(3, 16)] + [(0, k) for k in range(2, 32)]:
        taken_away = word("child", job=job, port=port, enabled=0, write=1)
        pair._bus(writes=[(offset, taken_away), (offset, 0)])
    pair.play(makers.traffic(pair.config, np.random.default_rng(3), 100), stalls=PACE)
    assert pair.golden.counters["answers"]


BUILT = {  # as the registers ``build`` and ``packets`` of `model` say
    "n_ports": 2, "n_jobs": 3, "b_max": 4, "slot_bits": 3, "width": 8, "chunk": 128, "n_words": 64,
}  # fmt: skip


def test_an_aggregator_tells_what_it_was_built_with(model):
    assert bench(model).built == BUILT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_ports": 1}, "ports must be at most 1, as the circuit has, not 2"),
        ({"n_jobs": 2}, "jobs must be at most 2, as the circuit has, not 3"),
        ({"b_max": 3}, "bits of an index must be at most 3, as the circuit has, not 4"),
        ({"slot_bits": 2}, "slots must be at most 4, as the circuit has, not 8"),
        ({"n_words": 32}, "values of SwitchML must be at most 32, as the circuit has, not 64"),
        ({"chunk": 512}, "C must be 512, as the circuit has, not 128"),
        ({"width": 12}, "w must be 12, as the circuit has, not 8"),
    ],
)
def test_a_driver_refuses_what_was_not_built(changes, message):
    with pytest.raises(ValueError, match=message):
        settings(CONFIG, **BUILT | changes)


DOUBLED = Config(1, 2, 2, (Job(1, makers.children((0, 0))),))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Aggregator(33), "n_ports must be 1 to 32, not 33"),
        (lambda: Aggregator(2, n_bytes=8), "n_bytes must be a power of two from 16 to 64, not 8"),
        (lambda: Aggregator(2, n_jobs=1), "n_jobs must be 2 to 16, not 1"),
        (lambda: Aggregator(2, queues=4), "queues must be 0 or 8, not 4"),
        (lambda: Aggregator(2, chunk=8192, width=16),
         "chunk must be at most 8160, of 16 bits each, where frames have 16384 bytes at most, "
         "not 8192"),
        (lambda: Aggregator(2, n_bytes=16, n_slots=16, chunk=8192, queues=8),
         "chunk must be at most 4032, of 8 bits each, where frames in queues have 4096 bytes at "
         "most, not 8192"),
        (lambda: Aggregator(2, n_bytes=16, n_slots=16, n_words=2048, queues=8),
         "n_words must be at most 1008, of 32 bits each, where frames in queues have 4096 bytes "),
        (lambda: word("job", number=256), "job.number must be below 256, not 256"),
        (lambda: AggregatorTop(DOUBLED), "must be at different ports: \\[0, 0\\]"),
    ],
)  # fmt: skip
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
