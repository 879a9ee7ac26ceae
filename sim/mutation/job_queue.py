"""Mutation campaign of the queue of jobs: each output of each cycle against a twin."""

import numpy as np
from amaranth.hdl import Shape
from gradnic.hdl.offload.job_queue import JobQueue
from gradnic.hdl.offload.job_records import Descriptor

from gradnic.interface.job import DESCRIPTOR, QUEUE

N_CYCLES = 900
_RECORDINGS = []


def component():
    """The circuit under mutation, at its one size."""
    return JobQueue()


class Twin:
    """The queue, cycle for cycle; entries are [number of the post, when, mark]."""

    def __init__(self):
        self.entries, self.looks, self.at, self.left, self.popped = [], 0, 0, 0, False

    def shown(self):
        """(post is ready, abort is ready, present, busy, [number, when, mark] of the oldest)."""
        full, any_ = len(self.entries) == QUEUE, bool(self.entries)
        ends = bool(self.looks and not self.left)
        present = any_ and not self.looks
        return not full, ends, present, any_, list(self.entries[0]) if present else None

    def cycle(self, now, post, pop, abort, id_of):
        """Inputs of a cycle: number of what is posted, pop, what to abort; None for none."""
        n, begins = len(self.entries), not self.looks
        if begins:
            waits = pop or self.popped  # a job that begins is called active two cycles later
            self.looks, self.at, self.left = int(abort is not None and not waits), 0, n
        elif not self.left:
            self.looks = 0
        else:
            entry = self.entries[self.at]
            self.at, self.left = self.at + 1, self.left - 1
            if (abort >> 16 or id_of(entry[0]) == abort) and not entry[2]:
                entry[2], self.left = 1, 0
        if post is not None and n < QUEUE:
            self.entries.append([post, now, 0])
        if pop:
            self.entries.pop(0)
        self.popped = pop


def record(seed):
    """One run of the twin: what goes in and comes out, cycle by cycle."""
    rng = np.random.default_rng(seed)
    n_ids = int(rng.choice([2, 6, 40]))  # few: an id is in the queue more than once
    jobs = {f.name: rng.integers(0, 1 << min(f.width, 63), N_CYCLES, np.uint64) for f in DESCRIPTOR}
    jobs["source"] |= rng.integers(0, 2, N_CYCLES, np.uint64) << np.uint64(63)
    jobs["result"] |= rng.integers(0, 2, N_CYCLES, np.uint64) << np.uint64(63)
    ids = rng.integers(0, 1 << 16, n_ids)
    jobs["id"] = ids[rng.integers(0, n_ids, N_CYCLES)].astype(np.uint64)
    near = ids ^ (1 << rng.integers(0, 16, n_ids))  # one bit away from one that is there
    wanted = np.concatenate([ids, near])[rng.integers(0, 2 * n_ids, N_CYCLES)]
    wanted |= (rng.random(N_CYCLES) < 0.1) << 16  # whatever its id
    rates = rng.choice([0.05, 0.3, 0.9], 3)
    now = rng.integers(0, 1 << 48, N_CYCLES)
    twin, post, abort, n_posts, n_aborts = Twin(), None, None, 0, 0
    log = {name: [] for name in ("post", "abort", "pop", "shown", "posted", "sought")}
    for cycle in range(N_CYCLES):
        fills = cycle % 300 < 60  # to the brim, then empty
        begins = post is None and rng.random() < (1 if fills else rates[0])
        if begins:
            post, n_posts = n_posts, n_posts + 1
        seeks = abort is None and rng.random() < rates[1] / 4
        if seeks:
            abort, n_aborts = int(wanted[n_aborts]), n_aborts + 1
        shown = twin.shown()
        pop = shown[2] and not fills and rng.random() < rates[2]
        for name, value in (("post", begins), ("abort", seeks), ("pop", pop), ("shown", shown)):
            log[name].append(value)
        twin.cycle(int(now[cycle]), post, pop, abort, lambda k: int(jobs["id"][k]))
        if post is not None and shown[0]:
            log["posted"].append(cycle)
            post = None
        if abort is not None and shown[1]:
            log["sought"].append(cycle)
            abort = None
    jobs = {name: values[:n_posts] for name, values in jobs.items()}
    return jobs, wanted[:n_aborts], now, log


def recordings():
    """What the test plays, made once."""
    if not _RECORDINGS:
        _RECORDINGS.extend(record(seed) for seed in range(32))
    return _RECORDINGS


def _oldest(jobs, number, posted, model):
    """Bytes of a job and its time, as the port has them."""
    octets = model.pack("post", **{k: v[number : number + 1] for k, v in jobs.items()})
    return int.from_bytes(octets[0].tobytes(), "little") | posted << Shape.cast(Descriptor).width


def test(model):
    """Each output in each cycle; a queue that was left in the middle of all begins anew."""
    instance = model.instance()
    for jobs, wanted, now, log in recordings():
        run = instance.run(
            {
                "post": model.pack("post", **jobs),
                "abort": model.pack("abort", id=wanted & 0xFFFF, any=wanted >> 16),
            },
            stalls={"post": (np.array(log["post"], int), 0.0),
                    "abort": (np.array(log["abort"], int), 0.0)},
            signals={"now": now, "pop": np.array(log["pop"], int)},
            trace=["oldest", "aborted", "present", "busy"], drain=False, max_cycles=N_CYCLES,
            probe_cycles=0,
        )  # fmt: skip
        shown = log["shown"]
        got = {
            "posted": run.taken["post"].tolist(),
            "sought": run.taken["abort"].tolist(),
            "present": run.traces["present"].astype(bool).tolist(),
            "busy": run.traces["busy"].astype(bool).tolist(),
        }
        want = {
            "posted": log["posted"],
            "sought": log["sought"],
            "present": [bool(one[2]) for one in shown],
            "busy": [bool(one[3]) for one in shown],
        }
        for name, values in want.items():
            assert got[name] == values, name
        at = [k for k, one in enumerate(shown) if one[2]]
        marks = run.traces["aborted"][at].astype(int).tolist()
        assert marks == [shown[k][4][2] for k in at], "aborted"
        for row, k in zip(run.traces["oldest"][at], at, strict=True):
            number, posted, _ = shown[k][4]
            value = int.from_bytes(row.tobytes(), "little")
            assert value == _oldest(jobs, number, posted, model), "oldest"


ARGUED = {}
EXPLAINED = {}
