"""Jobs on cards of RTL against golden cards: what ``gradnic cosim card`` does with jobs."""

from dataclasses import dataclass, field, fields, replace

import numpy as np
from gradnic.models.offload import bf16
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.jobs import ELEM_BYTES
from gradnic.models.offload.plan import Plan
from gradnic.models.schedule import builders, checker
from gradnic.models.schedule.builders.collectives import COLLECTIVES, collective
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.errors import Unfinished
from gradnic.interface.formats import GRADNIC, Op
from gradnic.interface.job import ALIGN, TABLES, Job, JobCodec, JobStatus, Kind, Operation
from gradnic.quantities import joined
from gradnic.text_file import read_json

from .cards import PROBES
from .job_cluster import EVERYTHING, JobCluster
from .job_wanted import bounded, cards_say, left_of, result_of, sums_of

LATEST = 10_000_000  # cycles: the last that a job may be posted at
MOST, SLOW = 20_000_000, 100  # cycles from then on, and for each element of all jobs
GOLDEN_ELEMS = 1 << 18  # of all jobs on all nodes, that golden cards take in seconds
MEMORY_ANSWERS = 1000  # cycles in which it does, without a model of DRAM
TOO_LONG = 1 << 24  # elements of a job that all cards refuse: it has no memory here
WIRE_MORE = 24  # bytes around a frame: preamble, FCS and gap
CODECS = {
    "none": JobCodec.RAW32, "bf16": JobCodec.RAW16, "inceptionn": JobCodec.INCEPTIONN,
    "thc": JobCodec.THC,
}  # fmt: skip
KINDS = {"fp32": Kind.FP32, "bf16": Kind.BF16}
THC_BLOCKS = (64, 256, 1024)  # of cards with jobs
_NAMES = {one.name for one in fields(Job)}
_COLLECTIVES = list(COLLECTIVES)  # by number
_WORDS = {
    "collective": {name: number for number, name in enumerate(COLLECTIVES)},
    "codec": CODECS,
    "kind": KINDS,
    "op": {"sum": Operation.SUM, "mean": Operation.MEAN, "max": Operation.MAX},
}


@dataclass
class Posted:
    """A job of the run: when it is posted, and the nodes that post it (None: all). root : of reduce
    and broadcast. named : the table is the one that the job says, not the one of its collective.
    """

    job: Job
    at: int = 0
    nodes: tuple | None = None
    root: int = 0
    named: bool = False


@dataclass
class JobOutcome:
    """A run. jobs : what ``--json`` lists. sent : (time, node, port, frame). first : a mismatch.

    input_rate : beats of gradient a cycle and node, from the first post to the last end of all jobs
    that are done. steady_rate : the same of those that end behind the first `n_active`, from the
    last of these ends on, when all stages are filled; None where no more end. nmse : of the results
    of THC against the mean of the floats, None without. barked : ends that a short watchdog
    explains, which are not compared, see `sound_watchdog`.
    """

    cycles: int
    jobs: list
    line_share: float
    mismatches: int
    reference: str
    sent: list = field(repr=False)
    first: str = ""
    input_rate: float = 0.0
    steady_rate: float | None = None
    nmse: float | None = None
    barked: int = 0

    @property
    def ok(self):
        return not self.mismatches


def buckets(n, n_bytes, *, codec="none", kind="fp32", **told):
    """`n` jobs of `n_bytes` bytes each, all posted at once; ValueError if those are no floats.

    told : further fields, as of `from_dicts`.
    """
    size = ELEM_BYTES[KINDS[kind]]
    if n_bytes % size:
        raise ValueError(f"bytes must be a multiple of {size}, not {n_bytes}")
    one = {"bytes": n_bytes, "kind": kind, **told}
    return from_dicts([one] * n, codec=codec)


def read(path, *, codec="none"):
    """The jobs of a JSON file: see `from_dicts`. ValueError for one that is none."""
    told = read_json(path)
    if not isinstance(told, list) or not all(isinstance(one, dict) for one in told):
        raise ValueError(f"{path}: must be a list of objects, one a job")
    return from_dicts(told, codec=codec)


def from_dicts(told, *, codec="none"):
    """`Posted` of dicts with ``bytes`` or ``elems``; optional ``class``, ``at``, ``nodes``,
    ``root`` and any field of `Job`; collective, codec and kind by name or number. What is not said
    is chosen: ids from 0, tensors by id, tables by collective, addresses one behind the other,
    results behind all sources, residuals behind all results. ValueError names the job, its field
    and what that takes.
    """
    if not told:
        raise ValueError("jobs must be at least 1, not 0")
    sizes = [_size(k, one) for k, one in enumerate(told)]
    steps = [-(-4 * n // ALIGN) * ALIGN if 0 < n < TOO_LONG else 0 for n in sizes]
    half, at, made = sum(steps), 0, []
    for k, (one, n, step) in enumerate(zip(told, sizes, steps, strict=True)):
        named = {"layer" if name == "class" else name: value for name, value in one.items()}
        unknown = sorted(set(named) - _NAMES - {"bytes", "at", "nodes", "root"})
        if unknown:
            raise ValueError(f"job {k} has no field {unknown[0]!r}")
        chosen = {"id": k, "gen": 1, "elems": n, "source": at, "result": half + at,
                  "codec": CODECS[codec]}  # fmt: skip
        values = chosen | {name: value for name, value in named.items() if name in _NAMES}
        for name, words in _WORDS.items():
            if isinstance(values.get(name), str):
                if values[name] not in words:
                    raise ValueError(
                        f"job {k}: {name} must be {joined(words)}, not {values[name]!r}"
                    )
                values[name] = words[values[name]]
        values.setdefault("tensor", values["id"])
        if "feedback" in values and isinstance(values["feedback"], bool):
            values["feedback"] = int(values["feedback"])
        values = {name: _whole(k, name, value) for name, value in values.items()}
        if values.get("feedback") and "residual" not in values:
            values["residual"] = (2 * half + 2 * at) // ALIGN
        posted, root = _whole(k, "at", named.get("at", 0)), _whole(k, "root", named.get("root", 0))
        if not 0 <= posted <= LATEST:
            raise ValueError(f"job {k}: at must be 0 to {LATEST:,} cycles, not {posted}")
        has_table = "table" in named
        made.append(Posted(Job(**values), posted, _nodes(k, named.get("nodes")), root, has_table))
        at += step
    if len({one.job.id for one in made}) != len(made):
        raise ValueError("ids of jobs must differ")
    return made


def _whole(k, name, value):
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"job {k}: {name} must be a whole number, not {value!r}")
    return value


def _size(k, one):
    """Elements of job k."""
    if "elems" in one:
        return _whole(k, "elems", one["elems"])
    n_bytes, width = _whole(k, "bytes", one.get("bytes", 0)), _width(one)
    if n_bytes % width:
        raise ValueError(f"job {k}: bytes must be a multiple of {width}, not {n_bytes}")
    return n_bytes // width


def _nodes(k, value):
    """Nodes that post job k, a tuple, or None for all."""
    if value is None:
        return None
    if not isinstance(value, list) or not value or len({*map(repr, value)}) < len(value):
        raise ValueError(f"job {k}: nodes must be a list of different nodes, not {value!r}")
    return tuple(_whole(k, "nodes", node) for node in value)


def _width(told):
    """Bytes of an element of such a job."""
    kind = told.get("kind", Kind.FP32)
    kind = KINDS.get(kind, kind) if isinstance(kind, str) else kind
    return ELEM_BYTES.get(kind, 4) if isinstance(kind, int) else 4


def cosim(spelling, algorithm, posted, *, chunks=None, lanes=4, n_active=2, n_engines=0,
          faults=None, settings=None, block=1024, link_bytes=None, memory_latency=40, t_probe=2000,
          watchdog=0, p=0.0, at_share=False, dram=None):  # fmt: skip
    """Run jobs on cards of RTL; a `JobOutcome`.

    `Unfinished` at `MOST` cycles, and `SLOW` for each element, behind the last post.

    spelling, algorithm, chunks : as of ``gradnic schedule``; tables are checked first. posted :
    list of `Posted`. settings : of INCEPTIONN. block : of THC, 64, 256 or 1024. link_bytes : of a
    link and cycle; default a beat. p : share of contributions that may miss, end to end, of jobs
    that name none. at_share : when it may: see `gradnic.models.transport.reception.Reception`.
    dram : of the cards' memories, `gradnic.sim.offload.dram.timing`; None: a beat a cycle a port.
    """
    topology = parse(spelling)
    options = {} if chunks is None else {"chunks": chunks}
    tables, posted = _tables(builders.build(topology, algorithm, **options), topology, posted)
    n_nodes, faults = topology.n_nodes, faults or LinkFaults()
    if p:
        posted = [_bounded(one, tables, p) for one in posted]
    for one in posted:
        if one.nodes and not set(one.nodes) <= set(range(n_nodes)):
            raise ValueError(f"nodes must be 0 to {n_nodes - 1}, not {list(one.nodes)}")
    sized = [one.job for one in posted if one.job.elems < TOO_LONG]
    _check_apart(sized)
    feedback = any(one.job.feedback for one in posted)
    halves_of = 4 if feedback else 2  # sources, results; residuals before and after
    n_memory = halves_of * sum(-(-4 * job.elems // ALIGN) * ALIGN for job in sized) or ALIGN
    longest = max((job.elems for job in sized), default=1)
    inc = any(one.job.codec == JobCodec.INCEPTIONN for one in posted)
    scale = any(one.job.op == Operation.MEAN and one.job.codec != JobCodec.THC for one in posted)
    maxima = any(one.job.op == Operation.MAX for one in posted)
    halves = any(one.job.kind == Kind.BF16 or one.job.codec == JobCodec.RAW16 for one in posted)
    thc = _thc(block) if any(one.job.codec == JobCodec.THC for one in posted) else None
    if thc and scale:
        k = next(k for k, one in enumerate(posted)
                 if one.job.op == Operation.MEAN and one.job.codec != JobCodec.THC)  # fmt: skip
        raise ValueError(
            f"job {k}: op must be sum or max, or codec thc, whose results are means, not mean: "
            "cards of jobs with THC have no means of others"
        )
    built = {"bf16": halves, "scale": scale, "maxima": maxima,
             "gives_up": any(one.job.p_q16 for one in posted)}  # fmt: skip
    if thc is None and any(built.values()):
        built = EVERYTHING
    cluster = JobCluster(
        tables, topology, n_memory, longest, n_active=n_active, n_engines=n_engines,
        n_bytes=4 * lanes, t_probe=t_probe, watchdog=watchdog, inc=inc, settings=settings, thc=thc,
        feedback=feedback, at_share=at_share, **built,
    )  # fmt: skip
    if dram is not None:
        cluster.dram(dram, dram)
    memory = _memories(n_nodes, cluster.n_memory, sized)
    for node in range(n_nodes):
        cluster.memory(node)[:] = memory[node]
    late = {}
    for one in posted:
        late.setdefault(one.at, []).append(one)
    most = max(late) + MOST + SLOW * sum(job.elems for job in sized)
    try:
        cycles = cluster.run(
            faults, max_cycles=most, link_bytes=link_bytes, memory_latency=memory_latency,
            late={at: _poster(cluster, group, n_nodes) for at, group in late.items()},
        )  # fmt: skip
    except Unfinished as error:
        partly = [str(one.job.id) for one in posted if one.nodes and len(one.nodes) < n_nodes]
        if watchdog or not partly:
            raise
        raise Unfinished(
            f"{error}. Without --watchdog nothing ends jobs that some nodes never post: "
            f"{', '.join(partly)}"
        ) from None
    small = n_nodes * sum(job.elems for job in sized) <= GOLDEN_ELEMS
    plain = all(one.nodes is None and one.job.elems < TOO_LONG for one in posted)
    if small or halves or scale or feedback or not plain:
        reference, want = (
            "cards",
            cards_say(tables, topology, posted, memory, cluster, faults, settings, thc),
        )
    else:
        reference, want = "sums", sums_of(tables, posted, memory, settings, thc)
    if any(one.job.p_q16 for one in posted):
        reference += ", less what was given up"
        want |= bounded(tables, posted, memory, settings, thc, want, cluster.given_up)
    least = sound_watchdog(t_probe, faults, sized, link_bytes or 4 * lanes)
    slow = dram is not None or watchdog < MEMORY_ANSWERS
    n_barked = _barked(cluster, posted, want, slow) if 0 < watchdog < least else 0
    mismatches, first = _compare(cluster, posted, want, n_nodes)
    told = [_told(one, cluster) for one in posted]
    share = line_share(cluster.sent, link_bytes or 4 * lanes)
    return JobOutcome(
        cycles, told, share, mismatches, reference, cluster.sent, first,
        input_rate(told, 4 * lanes), steady_rate(told, 4 * lanes, n_active),
        _nmse(cluster, posted, memory), n_barked,
    )  # fmt: skip


def _check_apart(jobs):
    """ValueError if a job reads or writes what another one writes: what comes of it would depend on
    times. Jobs with THC of one tensor follow each other, and one may go on with what another left.
    """
    regions = []  # (first, stop, is written, job)
    for job in jobs:
        size = ELEM_BYTES.get(job.kind, 4) * job.elems
        regions += [(job.source, job.source + size, False, job)]
        regions += [(job.result, job.result + size, True, job)]
        if job.feedback:
            for half in range(2):
                at = job.residual_at(half)
                regions.append((at, at + 4 * job.elems, half != job.half, job))
    before = []
    for region in sorted(regions, key=lambda region: region[:2]):
        first, stop, written, job = region
        before = [other for other in before if other[1] > first]
        for *_, other_written, other in before:
            follows = job.tensor == other.tensor and job.codec == other.codec == JobCodec.THC
            if other is not job and (written or other_written) and not follows:
                writer, user = (job, other) if written else (other, job)
                raise ValueError(
                    f"job {user.id} must keep off what job {writer.id} writes, not share its byte "
                    f"{first}"
                )
        if stop > first:
            before.append(region)


def sound_watchdog(t_probe, faults, jobs, link_bytes):
    """Cycles from which on a watchdog ends only jobs that some node never posts, at one row.

    A shorter one barks while PROBEs are on their way, or while links and memories are busy with
    other jobs, which depends on times that no golden card shares.
    """
    n_probes = PROBES if faults.loss or faults.duplicate else 4
    busy = 16 * sum(job.elems for job in jobs) / link_bytes  # four times their way
    return n_probes * t_probe + 2 * (faults.delay + faults.reorder) + int(busy)


def _barked(cluster, posted, want, slow):
    """Take ends that a short watchdog explains into `want`; how many those are.

    It explains STUCK, after as many cycles at least, where golden cards' jobs end well or at
    another row, and MEMORY, where that may be slower than it (`slow`).
    """
    n_barked = 0
    for one in posted:
        for node, host in enumerate(cluster.hosts):
            key, ended = (node, one.job.id), host.ended.get(one.job.id)
            if ended is None or key not in want:
                continue
            (status, _, left), found = want[key], ended.record
            ended_early = (slow and found.status == JobStatus.MEMORY) or (
                found.status == JobStatus.STUCK and found.cycles >= cluster.watchdog
            )
            if ended_early and status in (JobStatus.DONE, JobStatus.SHORT, JobStatus.STUCK):
                n_barked += 1
                want[key] = found.status, found.detail, left
    return n_barked


def _thc(block):
    """Workers of the cards: 16 levels from 0 to 30, whose sums take 8, 12 or 16 bits."""
    if block not in THC_BLOCKS:
        raise ValueError(f"block must be 64, 256 or 1024 for jobs, not {block}")
    return {"B": block}


def _done(jobs):
    ended = [job for job in jobs if job["status"] in (JobStatus.DONE, JobStatus.SHORT)]
    return sorted(ended, key=lambda job: job["done"])


def steady_rate(jobs, n_bytes, n_active):
    """Beats of gradient a cycle behind the end number `n_active`; None where no more end."""
    done = _done(jobs)
    later = done[n_active:]
    if not later or later[-1]["done"] == done[n_active - 1]["done"]:
        return None
    cycles = later[-1]["done"] - done[n_active - 1]["done"]
    return sum(-(-job["bytes"] // n_bytes) for job in later) / cycles


def input_rate(jobs, n_bytes):
    """Beats of gradient a cycle, from the first post to the last end, of jobs as ``--json`` lists
    them; 0 if none is done.
    """
    done = _done(jobs)
    if not done:
        return 0.0
    cycles = max(job["done"] for job in done) - min(job["posted"] for job in done)
    return sum(-(-job["bytes"] // n_bytes) for job in done) / cycles


def _nmse(cluster, posted, memory):
    """Error of the results of THC on node 0, against the mean of the gradients in float64."""
    error = energy = 0.0
    for one in posted:
        job, ended = one.job, cluster.hosts[0].ended.get(one.job.id)
        if job.codec != JobCodec.THC or ended is None or ended.record.status != JobStatus.DONE:
            continue
        size, is_half = ELEM_BYTES[job.kind] * job.elems, job.kind == Kind.BF16
        own = memory[:, job.source : job.source + size].copy()
        own = bf16.widen(own.view(np.uint16)) if is_half else own.view(np.float32)
        if job.feedback:
            at = job.residual_at(job.half)
            own = own + memory[:, at : at + 4 * job.elems].copy().view(np.float32)
        exact = own.astype(np.float64).mean(axis=0)
        found = result_of(cluster.memory(0), job)
        found = bf16.widen(found.view(np.uint16)) if is_half else found.view(np.float32)
        error += np.square(found - exact).sum()
        energy += np.square(exact).sum()
    return error / energy if energy else None


def _tables(schedule, topology, posted):
    """(tables, jobs that name them): one for each collective and root that the jobs have."""
    places, tables, made = {}, [], []
    for one in posted:
        number = min(one.job.collective, len(_COLLECTIVES))  # one that is unknown is refused
        name = "all_reduce" if number == len(_COLLECTIVES) else _COLLECTIVES[number]
        if not 0 <= one.root < topology.n_nodes:
            raise ValueError(f"root must be 0 to {topology.n_nodes - 1}, not {one.root}")
        key = name, one.root if name in ("reduce", "broadcast") else 0
        if key not in places:
            places[key] = len(tables)
            tables.append(compile_table(collective(schedule, name, root=one.root)))
            checker.check(tables[-1], topology, name, root=one.root)
        made.append(one if one.named else replace(one, job=replace(one.job, table=places[key])))
    if len(tables) > TABLES:
        raise ValueError(f"collectives and roots of the jobs must be at most {TABLES}")
    return tuple(tables), made


def _bounded(one, tables, p):
    """The job with the share that may miss at each hop, of `p` in all, if it names none."""
    if one.job.p_q16 or one.job.table >= len(tables):
        return one
    hops = max(1, Plan(tables[one.job.table], one.job.elems or 1).depth)
    return replace(one, job=replace(one.job, p_q16=int(p / hops * 65536)))


def _poster(cluster, group, n_nodes):
    def post():
        for one in group:
            for node in range(n_nodes) if one.nodes is None else one.nodes:
                cluster.post(node, one.job)

    return post


def _memories(n_nodes, n_bytes, jobs):
    """uint8 (n_nodes, n_bytes): small normal values where sources are."""
    rng = np.random.default_rng(1)
    memory = np.zeros((n_nodes, n_bytes), np.uint8)
    for job in jobs:
        stop = job.source + 4 * job.elems
        if job.elems and stop <= n_bytes and job.source % 4 == 0:
            values = rng.standard_normal((n_nodes, job.elems)).astype(np.float32) / 64
            if job.kind == Kind.BF16:
                values, stop = bf16.narrow(values), job.source + 2 * job.elems
            memory[:, job.source : stop] = values.view(np.uint8)
        at = job.residual_at(job.half)
        if job.feedback and at + 4 * job.elems <= n_bytes:
            values = rng.standard_normal((n_nodes, job.elems)).astype(np.float32) / 512
            memory[:, at : at + 4 * job.elems] = values.view(np.uint8)
    return memory


def _compare(cluster, posted, want, n_nodes):
    """(mismatches, the first one): of statuses, and of bytes where a job is done."""
    n_wrong, first = 0, ""
    for one in posted:
        for node in range(n_nodes):
            wanted = want.get((node, one.job.id))
            ended = cluster.hosts[node].ended.get(one.job.id)
            found = None if ended is None else (ended.record.status, ended.record.detail)
            if wanted is None or found is None or found != wanted[:2]:
                wrong = int(wanted is not None or found is not None)
            elif found[0] in (JobStatus.DONE, JobStatus.SHORT):
                wrong = int((left_of(cluster.memory(node), one.job) != wanted[2]).sum())
            else:
                wrong = 0
            if wrong and not first:
                expected = None if wanted is None else tuple(map(int, wanted[:2]))
                first = f"job {one.job.id} on node {node}: {found}, not {expected}; {wrong} bytes"
            n_wrong += wrong
    return n_wrong, first


def _told(one, cluster):
    """What ``--json`` says of a job: times of the first post and the last end of all nodes."""
    ended = [host.ended[one.job.id] for host in cluster.hosts if one.job.id in host.ended]
    worst = max((e.record for e in ended), key=lambda record: record.status, default=None)
    return {
        "id": one.job.id,
        "class": one.job.layer,
        "posted": min((e.posted for e in ended), default=None),
        "done": max((e.done for e in ended), default=None),
        "status": None if worst is None else int(worst.status),
        "detail": None if worst is None else int(worst.detail),
        "bytes": ELEM_BYTES.get(one.job.kind, 4) * one.job.elems,
        "given_up": sum(e.record.given_up for e in ended),
    }


def line_share(sent, link_bytes):
    """Share of the time from the first to the last packet in which a line carries one with payload.

    Over all ports that send any; frames count with what is around them on the wire.
    """
    data = [
        (at, node, port, len(f)) for at, node, port, f in sent if GRADNIC.op.get(f) != Op.CONTROL
    ]
    if not data:
        return 0.0
    times = [(length + WIRE_MORE) / link_bytes for *_, length in data]
    begin = min(at - time for (at, *_), time in zip(data, times, strict=True))
    end = max(at for at, *_ in data)
    n_ports = len({(node, port) for _, node, port, _ in data})
    return sum(times) / (n_ports * (end - begin))
