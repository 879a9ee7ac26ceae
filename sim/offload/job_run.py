"""Jobs on cards of RTL against golden cards: what ``gradnic cosim card`` does with jobs."""

from dataclasses import dataclass, field, replace

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
from gradnic.interface.job import (
    ALIGN,
    TABLES,
    Collective,
    JobCodec,
    JobStatus,
    Kind,
    Operation,
)

from .cards import PROBES
from .foreign import Foreign
from .job_cluster import EVERYTHING, JobCluster
from .job_hosts import ReachedCards
from .job_list import TOO_LONG, check_apart
from .job_places import places
from .job_wanted import bounded, cards_say, leaves_of, left_of, result_of, sums_of, written_by

MOST, SLOW = 20_000_000, 100  # cycles from then on, and for each element of all jobs
GOLDEN_ELEMS = 1 << 18  # of all jobs on all nodes, that golden cards take in seconds
HOP = 400  # cycles from a packet to the one that it becomes, beside memory's
MEMORY_ANSWERS = 1000  # cycles in which it does, without a model of DRAM
WIRE_MORE = 24  # bytes around a frame: preamble, FCS and gap
THC_BLOCKS = (64, 256, 1024)  # of cards with jobs
_COLLECTIVES = list(COLLECTIVES)  # by number
_WHOLE = ("source", "result", "residual", "kept")  # which an all-reduce goes through


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


def cosim(spelling, algorithm, posted, *, chunks=None, lanes=4, n_active=2, n_engines=0,
          faults=None, settings=None, block=1024, link_bytes=None, memory_latency=40, t_probe=2000,
          watchdog=0, p=0.0, at_share=False, dram=None, built=None, foreign=0.0,
          reaches=()):  # fmt: skip
    """Run jobs on cards of RTL; a `JobOutcome`.

    `Unfinished` at `MOST` cycles, and `SLOW` for each element, behind the last post.

    spelling, algorithm, chunks : as of ``gradnic schedule``; tables are checked first. posted :
    list of `job_list.Posted`. settings : of INCEPTIONN. block : of THC, 64, 256 or 1024. link_bytes
    : of a link and cycle; default a beat. p : share of contributions that may miss, end to end, of
    jobs that name none. at_share : when it may: see `gradnic.models.transport.reception.Reception`.
    dram : of the cards' memories, `gradnic.sim.offload.dram.timing`; None: a beat a cycle a port.
    built : what cards are built with, of `JobCluster`; jobs that want more are refused; host : as
    whole cards with host frames. None: what the jobs want. foreign : share of each link that frames
    of other programs fill. reaches : list of (cycle, node, id of a job, bytes): the host reads them
    of its source then, by frames; with id -1 it writes them before, where no job reaches.
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
        for what in ("errors", "silent"):
            told = getattr(one, what)
            if told and not 0 <= told[0] < n_nodes:
                raise ValueError(f"node of {what} must be 0 to {n_nodes - 1}, not {told[0]}")
    sized = [one.job for one in posted if one.job.elems < TOO_LONG]
    check_apart([one for one in posted if one.job.elems < TOO_LONG])
    wants = _wants(posted, block)
    halves_of = 4 if wants["feedback"] else 2  # sources, results; residuals before and after
    n_memory = halves_of * sum(-(-4 * job.elems // ALIGN) * ALIGN for job in sized) or ALIGN
    n_jobs, n_memory = n_memory, n_memory + sum(-(-n // ALIGN) * ALIGN for *_, n in reaches)
    longest = max((job.elems for job in sized), default=1)
    takes_all = built is None
    if takes_all:
        few = wants["thc"] or not any(wants[name] for name in EVERYTHING)
        built = wants if few else wants | EVERYTHING
    if takes_all and wants["thc"] and wants["scale"]:
        k = next(k for k, one in enumerate(posted) if _scales(one.job))
        raise ValueError(
            f"job {k}: op must be sum or max, or codec thc, whose results are means, not mean: "
            "cards of jobs with THC have no means of others"
        )
    options = {key: value for key, value in built.items() if key != "host"}
    cluster = (ReachedCards if built.get("host") else JobCluster)(
        tables, topology, n_memory, longest, n_active=n_active, n_engines=n_engines,
        n_bytes=4 * lanes, t_probe=t_probe, watchdog=watchdog, settings=settings, at_share=at_share,
        **options,
    )  # fmt: skip
    if dram is not None:
        cluster.dram(dram, dram)
    memory = _memories(n_nodes, cluster.n_memory, sized)
    for node in range(n_nodes):
        cluster.memory(node)[:] = memory[node]
    late = {}
    for one in posted:
        if one.errors:
            node, place = one.errors
            for memory_of, begin, end in places(cluster, tables, one, posted, place):
                cluster.spoil(node, begin, end, "errors", memory=memory_of)
        if one.silent:
            node, place, first, n = one.silent
            for memory_of, begin, end in places(cluster, tables, one, posted, place):
                for at, fault in ((first, "silent"), (first + n, "sound")):
                    late.setdefault(at, []).append(
                        (cluster.spoil, node, begin, end, fault, memory_of)
                    )
        nodes = one.posters(n_nodes)
        late.setdefault(one.at, []).extend((cluster.post, v, one.job) for v in nodes)
        if one.abort is not None:
            calls = late.setdefault(one.abort, [])
            calls.extend((cluster.withdraw, v, one.job.id) for v in nodes)
    rng = np.random.default_rng(2)
    for at, node, id, n in sorted(reaches):
        if id < 0:
            address, octets, n_jobs = n_jobs, rng.bytes(n), n_jobs + -(-n // ALIGN) * ALIGN
            memory[node, address : address + n] = np.frombuffer(octets, np.uint8)
        else:
            address = next(one.job.source for one in posted if one.job.id == id)
            octets = memory[node, address : address + n].tobytes()
        late.setdefault(at, []).append((cluster.reach, node, address, octets, id < 0))
    others = Foreign(cluster, foreign) if foreign else None
    most = max(late) + MOST + SLOW * sum(job.elems for job in sized)
    try:
        cycles = cluster.run(
            faults, max_cycles=most, link_bytes=link_bytes, memory_latency=memory_latency,
            late={at: _in_turn(calls) for at, calls in late.items()},
        )  # fmt: skip
    except Unfinished as error:
        partly = [
            str(one.job.id) for one in posted
            if one.errors or (one.nodes and len(one.nodes) < n_nodes)
        ]  # fmt: skip
        if watchdog or not partly:
            raise
        raise Unfinished(
            f"{error}. Without --watchdog nothing ends jobs that some nodes never post, or "
            f"fail: {', '.join(partly)}"
        ) from None
    small = n_nodes * sum(job.elems for job in sized) <= GOLDEN_ELEMS
    plain = takes_all and all(
        one.nodes is one.abort is one.errors is one.silent is None and one.job.elems < TOO_LONG
        for one in posted
    )
    if small or not plain or any(wants[name] for name in ("bf16", "scale", "feedback")):
        reference = "cards"
        want = cards_say(tables, topology, posted, memory, cluster, faults, settings)
    else:
        reference, want = "sums", sums_of(tables, posted, memory, settings, cluster.thc)
    if wants["gives_up"]:
        reference += ", less what was given up"
        want |= bounded(tables, posted, memory, settings, cluster.thc, want, cluster.given_up)
    silence = sum(one.silent[-1] for one in posted if one.silent)
    link_bytes = link_bytes or cluster.port_bytes
    least = silence + sound_watchdog(
        t_probe, faults, sized, link_bytes * (1 - foreign), n_nodes=n_nodes,
        memory_latency=memory_latency, drops=bool(cluster.egress),
    )  # fmt: skip
    slow = dram is not None or watchdog < MEMORY_ANSWERS + silence
    n_barked = _barked(cluster, posted, want, slow) if 0 < watchdog < least else 0
    mismatches, first = _compare(cluster, posted, want, memory)
    if others:
        others.drain()
        made, good, wrong = others.told()[0].values()
        if made != good or wrong:
            first = first or f"{made} frames of others, {good} came as they were, {wrong} otherwise"
            mismatches += made - good + wrong
    if reaches and cluster.wrong:
        first, mismatches = first or cluster.wrong[0], mismatches + len(cluster.wrong)
    told = [_told(one, cluster) for one in posted]
    share = line_share(cluster.sent, link_bytes)
    return JobOutcome(
        cycles, told, share, mismatches, reference, cluster.sent, first,
        input_rate(told, 4 * lanes), steady_rate(told, 4 * lanes, n_active),
        _nmse(cluster, posted, memory), n_barked,
    )  # fmt: skip


def sound_watchdog(t_probe, faults, jobs, link_bytes, *, n_nodes, memory_latency=40, drops=False):
    """Cycles from which on a watchdog ends only jobs that some node never posts, at one row.

    A shorter one barks while PROBEs are on their way, or while links and memories are busy with
    other jobs, which depends on times that no golden card shares. It is no shorter than a job
    takes: a node where one before it failed begins it, and waits for others that are not there yet.
    drops : frames get lost in queues, too.
    """
    n_probes = PROBES if faults.loss or faults.duplicate or drops else 4
    busy = 16 * sum(job.elems for job in jobs) / link_bytes  # four times their way
    n_rounds = 2 if any(job.codec == JobCodec.THC for job in jobs) else 1
    hop = 2 * memory_latency + HOP + faults.delay + faults.reorder
    return n_probes * t_probe + n_rounds * 2 * n_nodes * hop + int(busy)


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
            (status, _, left, _), found = want[key], ended.record
            ended_early = (slow and found.status == JobStatus.MEMORY) or (
                found.status == JobStatus.STUCK and found.cycles >= cluster.watchdog
            )
            if ended_early and status in (JobStatus.DONE, JobStatus.SHORT, JobStatus.STUCK):
                n_barked += 1
                want[key] = found.status, found.detail, left, None
    return n_barked


def _wants(posted, block):
    """What cards must be built with for these jobs: arguments of `JobCluster`."""
    jobs = [one.job for one in posted]
    codecs = {job.codec for job in jobs}
    if JobCodec.THC in codecs and block not in THC_BLOCKS:
        raise ValueError(f"block must be 64, 256 or 1024 for jobs, not {block}")
    return {
        "inc": JobCodec.INCEPTIONN in codecs,
        "bf16": JobCodec.RAW16 in codecs or any(job.kind == Kind.BF16 for job in jobs),
        "scale": any(map(_scales, jobs)),
        "maxima": any(job.op == Operation.MAX for job in jobs),
        "gives_up": any(job.p_q16 for job in jobs),
        "feedback": any(job.feedback for job in jobs),
        "thc": {"B": block} if JobCodec.THC in codecs else None,
    }


def _scales(job):
    """Whether the root multiplies its sums."""
    return job.op == Operation.MEAN and job.codec != JobCodec.THC


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


def _in_turn(calls):
    """Function that makes all of `calls`, tuples of a function and its arguments."""

    def make():
        for function, *arguments in calls:
            function(*arguments)

    return make


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


def _compare(cluster, posted, want, memory):
    """(mismatches, the first one): of completions, of bytes where a job is done, and of bytes that
    no job may write. memory : before the run.
    """
    n_wrong, first = 0, ""
    for one in posted:
        for node, host in enumerate(cluster.hosts):
            wrong, said = _differs(
                one,
                node,
                want.get((node, one.job.id)),
                host.ended.get(one.job.id),
                cluster.memory(node),
            )
            if wrong and not first:
                first = f"job {one.job.id} on node {node}: {said}"
            n_wrong += wrong
    for node, before in enumerate(memory):
        changed = cluster.memory(node) != before
        for one in posted:
            ended = cluster.hosts[node].ended.get(one.job.id)
            if ended is not None and ended.record.status != JobStatus.REFUSED:
                for region in written_by(changed, one.job):
                    region[:] = False
        wrong = int(changed.sum())
        if wrong and not first:
            first = f"{wrong} bytes of node {node} that no job may write, from {changed.argmax()}"
        n_wrong += wrong
    return n_wrong, first


def _differs(one, node, wanted, ended, memory):
    """(mismatches, what is wrong) of a job's end on one node, where it ended with `memory`."""
    if ended is None or wanted is None:
        if ended is None and wanted is None:
            return 0, ""
        status = wanted[:2] if ended is None else (ended.record.status, ended.record.detail)
        return 1, f"{tuple(map(int, status))} {'is missing' if ended is None else 'is too much'}"
    found = ended.record
    if one.abort is not None and found.status == JobStatus.ABORTED and ended.done >= one.abort:
        return 0, ""
    fails_here = one.errors and node == one.errors[0]
    if one.errors and (
        found.status == JobStatus.STUCK or (fails_here and found.status == JobStatus.MEMORY)
    ):
        return 0, ""
    status, detail, left, told = wanted
    must = fails_here and one.job.collective == Collective.ALL_REDUCE and one.errors[1] in _WHOLE
    if must and found.status in (JobStatus.DONE, JobStatus.SHORT):
        return 1, f"it is done, though its memory answers with errors at its {one.errors[1]}"
    if (found.status, found.detail) != (status, detail):
        said = tuple(map(int, (found.status, found.detail)))
        return 1, f"{said}, not {(int(status), int(detail))}"
    if found.status not in (JobStatus.DONE, JobStatus.SHORT):
        return 0, ""
    if told is not None and leaves_of(found) != told:
        return 1, f"given up, fewest and most leaves are {leaves_of(found)}, not {told}"
    wrong = int((left_of(memory, one.job) != left).sum())
    return wrong, f"{wrong} bytes of what it leaves"


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
