"""Plays contributions at an aggregation unit and its golden twin, and compares whole answers."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from gradnic.hdl.aggregation.unit import EVENTS, Answer, ContributionHead, JobRegisters
from gradnic.models.aggregation.jobs import CLOSE_RULES, OVERFLOW_RULES, W_CODES
from gradnic.models.aggregation.slot_verdict import index_parameters
from gradnic.models.aggregation.unit import SlotEngine
from gradnic.models.thc.worker import pack, solve_table

from gradnic.interface.formats import Op

from ..engine import encoding

FLAGS = ("last", "ovf", "ecn")


@dataclass
class Packet:
    """A contribution: header fields with the job's number in ``job``, and its payload."""

    head: dict
    payload: bytes


def registers(jobs, n_jobs):
    """`jobs`, at most `n_jobs`, as the unit's plain input of that name: uint8 (1, bytes)."""
    value = 0
    for place, job in enumerate(jobs):
        fields = {
            "first_slot": job.first_slot,
            "n_slots": job.n_slots,
            "n_children": len(job.children),
            **(_switchml_fields(job) if job.kind == "switchml" else _native_fields(job)),
        }
        value |= JobRegisters.const(fields).as_value().value << place * JobRegisters.size
    size = -(-n_jobs * JobRegisters.size // 8)
    return np.frombuffer(value.to_bytes(size, "little"), np.uint8)[None]


def _switchml_fields(job):
    return {"int32": 1, "switchml": 1, "large": int(job.values == 256)}


def _native_fields(job):
    return {
        "leaves": job.leaves,
        "int32": int(job.kind == "int32"),
        **index_parameters(job),
        "close": CLOSE_RULES.index(job.close),
        "n_min": job.n_min,
        "need_bytes": job.need_bytes,
        "deadline": job.deadline,
        "root": int(job.root),
        "overflow": OVERFLOW_RULES.index(job.overflow),
    }


def table_writes(jobs, b_max):
    """Values of write_en, write_addr and write_data, one a cycle, for the tables of `jobs`."""
    addresses, levels = [], []
    for place, job in enumerate(jobs):
        if job.kind == "thc":
            table = solve_table(job.b, job.g, job.p)
            addresses += [(place << b_max) + k for k in range(len(table))]
            levels += list(table)
    enable = [1] * len(addresses) + [0]
    return {"write_en": enable, "write_addr": [*addresses, 0], "write_data": [*levels, 0]}


def head_beats(packets, places):
    """Beats of ``heads`` for contributions; places : {job's number: its place in the table}."""
    names = [name for name, _ in ContributionHead if name not in ("job", "length")]
    columns = {name: [p.head[name] for p in packets] for name in names}
    columns["job"] = [places[p.head["job"]] for p in packets]
    columns["length"] = [len(p.payload) for p in packets]
    columns = {name: np.array(values, np.int64) for name, values in columns.items()}
    return encoding.pack(ContributionHead, **columns)


class Bench:
    """One instance of a unit beside one golden engine, for the same jobs.

    model : batch.Model of an `AggregationUnit`. sizes : its `Sizes`. jobs : sequence of Job or
    SwitchmlJob. twin : function of SwitchML's jobs and the counters, that makes their golden
    engine.

    Members
    -------
    engine : the golden `SlotEngine`.
    run : the last `batch.Run`.
    """

    def __init__(self, model, sizes, jobs, *, twin=None):
        self.model, self.sizes, self.jobs = model, sizes, list(jobs)
        native = [job for job in jobs if job.kind != "switchml"]
        others = [job for job in jobs if job.kind == "switchml"]
        self.engine = SlotEngine(native, n_words=sizes.n_words)
        engines = dict.fromkeys((job.job for job in native), self.engine)
        if others:
            engines |= dict.fromkeys((j.job for j in others), twin(others, self.engine.counters))
        self.engines = engines
        self.places = {job.job: place for place, job in enumerate(jobs)}
        self.instance = model.instance()
        self.counted = dict.fromkeys((*EVENTS, "overflow"), 0)
        writes = table_writes(jobs, sizes.b_max)
        n = len(writes["write_en"]) + 4 * 2 * sizes.n_slots
        signals = {"jobs": registers(jobs, sizes.n_jobs), "now": 0, **writes}
        self.instance.run(signals=signals, drain=False, max_cycles=n)

    def inputs(self, packets):
        """Beats of ``heads`` and ``values``."""
        return {
            "heads": head_beats(packets, self.places),
            "values": self._beats("values", [p.payload for p in packets]),
        }

    def expected(self, answers):
        """Beats of ``answers`` and ``sums`` for answers of the golden engine."""
        names = [name for name, _ in Answer if name not in ("job", "length")]
        columns = {name: np.array([int(h[name]) for h, _ in answers], np.int64) for name in names}
        columns["job"] = np.array([self.places[h["job"]] for h, _ in answers], np.int64)
        columns["length"] = np.array([len(payload) for _, payload in answers], np.int64)
        return {
            "answers": encoding.pack(Answer, **columns),
            "sums": self._beats("sums", [payload for _, payload in answers]),
        }

    def _beats(self, port, payloads):
        whole = [payload for payload in payloads if payload]
        if whole:
            return self.model.pack_frames(port, whole)
        return np.zeros((0, self.model.streams[port].size), np.uint8)

    def play(self, packets, *, now=0, **how):
        """Contributions in order, all at time `now`; compares answers, sums and counters."""
        golden, of_jobs = [], Counter()
        for packet in packets:
            before = Counter(self.engine.counters)
            golden += self.engines[packet.head["job"]].contribute(packet.head, packet.payload, now)
            for name, n in (self.engine.counters - before).items():
                of_jobs[self.places[packet.head["job"]], name] += n
        run = self._run(golden, self.inputs(packets), {"now": now}, **how)
        counted = self._of_jobs(run)
        if counted != of_jobs:
            raise AssertionError(f"jobs and events {counted}, not {of_jobs}")
        return run

    def _of_jobs(self, run):
        """How often each event of each job was seen: Counter of (job's place, name)."""
        events, counted = run.traces["events"], Counter()
        pulses = {name: events >> np.uint64(k) & np.uint64(1) for k, name in enumerate(EVENTS)}
        for name, pulse in (pulses | {"overflow": run.traces["overflow"]}).items():
            places = run.traces["overflow_job" if name == "overflow" else "event_job"]
            for place in places[pulse.astype(bool)]:
                counted[int(place), name] += 1
        return counted

    def tick(self, now, *, at=0, clear=None, clear_at=0, **how):
        """A visit to every slot at time `now`, asked for in cycle `at`; compares what it closes.

        clear : a job that is forgotten, from cycle `clear_at` on; none of its slots may be late.
        """
        signals = {"now": now, "tick": [*[0] * at, 1, 0]}
        if clear is not None:
            self.engine.clear(clear)
            signals |= {"clear": [*[0] * clear_at, 1, 0], "clear_job": self.places[clear]}
        idle = 16 * 2 * self.sizes.n_slots
        return self._run(self.engine.tick(now), {}, signals, idle_cycles=idle, **how)

    def clear(self, job):
        """Forget what a job's slots hold."""
        self.engine.clear(job)
        signals = {"clear": [1, 0], "clear_job": self.places[job]}
        n = 4 * 2 * self.sizes.n_slots
        self.instance.run(signals=signals, reset=False, drain=False, max_cycles=n)

    def _run(self, golden, inputs, signals, **how):
        traced = ("events", "event_job", "overflow", "overflow_job")
        run = self.instance.run(inputs, signals=signals, reset=False, trace=traced, **how)
        run.check(**self.expected(golden))
        for (_, name), n in self._of_jobs(run).items():
            self.counted[name] += n
        counted = {name: n for name, n in self.counted.items() if n}
        wanted = {name: n for name, n in self.engine.counters.items() if n}
        if counted != wanted:
            raise AssertionError(f"counted {counted}, not {wanted}")
        self.run = run
        return run


def contribution(job, child, generator=None, *, op=None, gen=0, slot=None, values=None, **fields):
    """A `Packet` of one child of a job, with random values unless given.

    op : Op, by default THC_IDX or INT32. values : of the lanes, or words. slot : by default the
    job's first. fields : other header fields.
    """
    op = op if op is not None else (Op.INT32 if job.kind == "int32" else Op.THC_IDX)
    words = op in (Op.NORM, Op.INT32)
    n = len(values) if values is not None else fields.get("elems", job.C)
    top = 2 ** {Op.THC_IDX: job.b, Op.THC_SUM: job.w}.get(op, 32)
    if values is None:
        values = generator.integers(0, top, n)
    values = np.asarray(values) % top
    if words:
        payload = values.astype("<u4").tobytes()
    else:
        payload = pack(values, job.b if op == Op.THC_IDX else job.w)
    p = index_parameters(job)
    parameters = {
        Op.THC_IDX: {"p0": p["bits"] << 5 | p["p"] << 2 | p["block"], "p1": p["g"]},
        Op.THC_SUM: {"p0": 1, "p1": W_CODES.index(job.w) << 6},
        Op.NORM: {"p0": 1, "p1": 0},
    }.get(op, {"p0": 0, "p1": 0})
    head = dict.fromkeys(("lc", "tensor", "tree", "seq", "arg", *FLAGS), 0) | {
        "job": job.job,
        "src": child,
        "op": int(op),
        "gen": gen,
        "slot": job.first_slot if slot is None else slot,
        "elems": n,
        **parameters,
    }
    return Packet(head | fields, payload)
