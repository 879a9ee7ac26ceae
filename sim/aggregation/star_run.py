"""In-network all-reduce in RTL: N workers' engines and one aggregator, over links with faults.

The hosts' part is the golden clients of `gradnic.models.aggregation.star`; a THC worker's
arithmetic runs on the three RTL engines, the aggregator is the RTL top. Links draw loss, copies and
delay from one seed. The same run is done first with golden workers and the golden aggregator: every
frame that reaches the aggregator, every answer, and every worker's result must be equal, bit for
bit.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from gradnic.models.aggregation.aggregator import AggregatorTop
from gradnic.models.aggregation.jobs import W_CODES, Config, Job
from gradnic.models.aggregation.star import Client, Int32Client, run
from gradnic.models.aggregation.switchml import SwitchmlJob
from gradnic.models.aggregation.switchml_worker import SwitchmlWorker
from gradnic.models.frame.address import Address
from gradnic.models.thc.worker import BLOCKS, Worker

from gradnic.interface.formats import GRADNIC

from .aggregator import AggregatorBench, build_aggregator
from .worker import RtlWorker, build_engines

CODECS = ("thc", "int32", "switchml")
VALUES = 256  # of a SwitchML packet
MAC, IP = 0x02AA00000000, 0x0A0000FE
JOB = 5
SEED, ROUND, TENSOR = 42, 3, 1
N_BYTES = 16  # beat of the aggregator
N_JOBS = 3
N_SLOTS = 16


def star_config(n_workers, codec="thc", *, n_slots=None, B=1024, deadline=0, n_elems=256, **job):
    """A `Config` of one job with a worker at each port; w and C follow from the workers' number.

    job : further fields of `Job`.
    """
    children = tuple(Address(i, 0x020000000000 + i, 0x0A000001 + i) for i in range(n_workers))
    if codec == "switchml":
        if deadline:
            raise ValueError(f"deadline must be 0 for switchml, which has none, not {deadline}")
        only = SwitchmlJob(JOB, children, n_slots=n_slots or N_SLOTS, values=VALUES)
        return Config(MAC, IP, n_workers, (only,), n_words=VALUES)
    kind = {"kind": codec, "n_slots": n_slots or N_SLOTS, "deadline": deadline}
    if codec == "thc":
        if B not in BLOCKS:
            raise ValueError(f"B must be 64, 256, 1024 or 4096, not {B!r}")
        g = job.get("g", 30)
        w = next((w for w in W_CODES if n_workers * g < 1 << w), W_CODES[-1])
        kind |= {"B": B, "w": w, "C": min(B, 1024 if w == 8 else 512)}
    else:
        kind["C"] = 256
    return Config(MAC, IP, n_workers, (Job(JOB, children, **kind | job),), n_words=n_elems)


def sizes(config):
    """Arguments of the RTL aggregator that serves `config`."""
    job = config.jobs[0]
    native = job.kind != "switchml"
    return {
        "n_bytes": N_BYTES,
        "n_slots": max(2, 1 << (job.n_slots - 1).bit_length()),
        "n_jobs": N_JOBS,
        **({"chunk": job.C, "width": job.w, "b_max": job.b} if native else {"chunk": 256}),
        "n_words": config.n_words,
    }


class GoldenUnit:
    """The golden aggregator as `star.run` wants it; keeps what came and what left.

    Attributes: `log`, one (time, port, frame or None for a tick, answers) each.
    """

    def __init__(self, config):
        self.config = config
        self.top = AggregatorTop(config)
        self.log = []

    def receive(self, frame, port, now):
        """Answers to one frame, as (port, frame)."""
        return self._noted(now, port, frame, self.top.receive(frame, port, now))

    def tick(self, now):
        """Answers of slots whose time is over."""
        return self._noted(now, None, None, self.top.tick(now))

    def _noted(self, now, port, frame, out):
        answers = [(at, answer) for at, answer, _ in out]
        if frame is not None or answers:
            self.log.append((now, port, frame, answers))
        return answers


class RtlUnit(GoldenUnit):
    """The RTL aggregator in the golden one's place: each frame is played until nothing moves.

    model : of `star_card.build_aggregator` with `sizes(config)`.
    """

    def __init__(self, config, model):
        super().__init__(config)
        job, built = config.jobs[0], {"width": 8} | sizes(config)
        self.bench = AggregatorBench(model, config)
        # a packet is stored three times on its way: nothing moves at the ports meanwhile
        longest = max(built["chunk"] * built["width"] // 8, 4 * config.n_words)
        self.idle_cycles = 200 + 3 * longest // N_BYTES
        self.sweep_cycles = 200 + 8 * sizes(config)["n_slots"]
        self.rank = {child.port: src for src, child in enumerate(job.children)}

    def receive(self, frame, port, now):
        out, _, _ = self.bench.run(
            {port: [(frame, False)]}, now=now, idle_cycles=self.idle_cycles, probe_cycles=0
        )
        return self._noted(now, port, frame, self._in_order(out))

    def tick(self, now):
        job = self.config.jobs[0]
        if job.kind == "switchml" or not job.deadline:
            return []
        out, _, _ = self.bench.run(
            {}, now=now, tick=1, idle_cycles=self.sweep_cycles, probe_cycles=0
        )
        return self._noted(now, None, None, self._in_order(out))

    def _in_order(self, out):
        """What left all ports at once, as the golden lists it: answer by answer, child by child."""
        places, keyed = {}, []
        for port, frame, bad in out:
            places[port] = places.get(port, -1) + 1
            keyed.append((places[port], self.rank[port], (port, frame, bad)))
        return [entry for *_, entry in sorted(keyed, key=lambda k: k[:2])]


@dataclass
class StarRun:
    """What one all-reduce left behind.

    ok : RTL and golden cluster agree, and every living worker has the same result.
    bit_exact : frames and results agree. mismatches : frames, answers and results that differ.
    first : the first of them in words, or None.
    nodes, done : workers, and those of them that have a result; 0 if all died before.
    cycles, worker_cycles : of the aggregator, and of all workers' engines.
    frames, answers : that reached the aggregator, and that it sent.
    counters : of the RTL aggregator.
    finished : time at which the last living worker was done, in units of the links' delay.
    results : float32 (done, n), from the RTL.
    """

    ok: bool
    nodes: int
    done: int
    cycles: int
    bit_exact: bool
    mismatches: int
    first: str | None
    worker_cycles: int
    frames: int
    answers: int
    finished: int
    counters: dict
    results: np.ndarray = field(repr=False)

    def summary(self):
        """Everything that fits into JSON."""
        return {name: value for name, value in self.__dict__.items() if name != "results"}


def build(config, codec="thc", *, lanes=4):
    """Libraries for `cosim`: (the aggregator's, the engines or None); a minute or two when new."""
    with ThreadPoolExecutor(2) as pool:
        engines = None
        if codec == "thc":
            engines = pool.submit(build_engines, lanes, config.jobs[0].B)
        aggregator = build_aggregator(config.n_ports, **sizes(config))
        return aggregator, engines and engines.result()


def clients_of(config, gradients, codec, make_worker, *, k0=0, timeout=1000):
    """One client of `gradnic.models.aggregation.star` for each row of `gradients`."""
    job, options = config.jobs[0], {"tensor": TENSOR, "k0": k0, "timeout": timeout}
    if codec == "switchml":
        switch = config.mac, config.ip
        return [
            SwitchmlWorker(switch, job, i, x, shift=k0, timeout=timeout)
            for i, x in enumerate(gradients)
        ]
    if codec == "int32":
        return [
            Int32Client(config, job, i, x, n_elems=config.n_words, **options)
            for i, x in enumerate(gradients)
        ]
    return [
        Client(config, job, i, make_worker(), x, round=ROUND, **options)
        for i, x in enumerate(gradients)
    ]


def cosim(gradients, config, libraries, faults, *, codec="thc", seed=0, k0=0, timeout=1000):
    """One all-reduce of `gradients`, float32 (n_workers, n), by RTL and by the golden cluster.

    libraries : of `build`. faults : `models.star.Faults`. k0 : packets that the job has sent
    before. timeout : of the clients' first try.

    Returns a `StarRun`. `Unfinished` if the run does not end.
    """
    model, engines = libraries
    job = config.jobs[0]
    options = {name: getattr(job, name) for name in ("b", "g", "p", "B")} if codec == "thc" else {}
    sides = []
    for unit, make in (
        (GoldenUnit(config), partial(Worker, len(gradients), SEED, **options)),
        (RtlUnit(config, model), partial(RtlWorker, engines, len(gradients), SEED, **options)),
    ):
        clients = clients_of(config, gradients, codec, make, k0=k0, timeout=timeout)
        finished = run(unit, clients, faults, seed=seed)
        sides.append((unit, clients, finished))
    (golden, expected, _), (rtl, clients, finished) = sides
    results = [client.result() for client in clients if client.done]
    differences = list(_differences(golden, expected, rtl, clients, codec))
    return StarRun(
        ok=not differences and len({result.tobytes() for result in results}) <= 1,
        nodes=len(gradients),
        done=len(results),
        cycles=rtl.bench.cycles,
        bit_exact=not differences,
        mismatches=len(differences),
        first=differences[0] if differences else None,
        worker_cycles=sum(c.worker.cycles for c in clients) if codec == "thc" else 0,
        frames=sum(frame is not None for _, _, frame, _ in rtl.log),
        answers=sum(len(answers) for *_, answers in rtl.log),
        finished=finished,
        counters=rtl.bench.counters(),
        results=np.stack(results) if results else np.empty((0, gradients.shape[1]), np.float32),
    )


def _differences(golden, expected, rtl, clients, codec):
    """One line for each frame, answer, counter and result that differs."""
    for k, (got, want) in enumerate(zip(rtl.log, golden.log, strict=False)):
        if got[:3] != want[:3]:
            yield f"event {k} at time {got[0]}: another frame at the aggregator"
        elif got[3] != want[3]:
            head = GRADNIC.parse(want[2]) if want[2] else "a tick"
            yield f"event {k} at time {got[0]}: {len(got[3])} answers, {len(want[3])} by {head}"
    if len(rtl.log) != len(golden.log):
        yield f"{len(rtl.log)} events at the aggregator, not {len(golden.log)}"
    counted, wanted = rtl.bench.counters(), golden.top.counters
    for name, count in wanted.items():
        if counted[name] != count:
            yield f"counter {name} is {counted[name]}, not {count}"
    for worker, (a, b) in enumerate(zip(clients, expected, strict=True)):
        if a.done != b.done:
            yield f"worker {worker} is {'' if a.done else 'not '}done"
        elif a.done and a.result().tobytes() != b.result().tobytes():
            yield f"result of worker {worker} differs"
        elif codec != "switchml" and (a.bitmaps, a.lost) != (b.bitmaps, b.lost):
            yield f"worker {worker} was told of other contributors"
