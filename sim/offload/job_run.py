"""Jobs on cards of RTL against golden cards: what ``gradnic cosim card`` does with jobs."""

from dataclasses import dataclass, field, replace

import numpy as np
from gradnic.models.offload import bf16
from gradnic.models.offload import job_cluster as golden
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.plan import Plan
from gradnic.models.schedule import builders, checker
from gradnic.models.schedule.builders.collectives import COLLECTIVES, collective
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.errors import Unfinished
from gradnic.interface.job import ALIGN, TABLES, JobCodec, Kind, Operation

from .cards import PAGE, probing
from .foreign import Foreign
from .job_cluster import EVERYTHING, JobCluster
from .job_figures import input_rate, line_share, nmse, steady_rate, told
from .job_hosts import ReachedCards
from .job_judge import barked, compare, sound_watchdog
from .job_list import TOO_LONG, check_apart
from .job_places import beyond, places
from .job_wanted import PACKET, bounded, cards_say, sums_of

CORNERS = np.array(
    [0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x80800000, 0x3F800000,
     0xBF800000, 0x3F7FFFFF, 0x3F808000, 0x3F818000, 0x3A800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F7F8000,
     0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF], np.uint32,
).view(np.float32)  # fmt: skip
"""Floats that codecs, sums and roundings may take for others: zeros, subnormals, powers of two and
their neighbors, ties of BF16, the largest ones, infinities, NaNs."""
MOST, SLOW = 20_000_000, 100  # cycles from then on, and for each element of all jobs
NAMED = 1 << 24  # bytes of memory that jobs may name addresses of
GOLDEN_ELEMS = 1 << 18  # of all jobs on all nodes, that golden cards take in seconds
MEMORY_ANSWERS = 1000  # cycles in which it does, without a model of DRAM
THC_BLOCKS = (64, 256, 1024)  # of cards with jobs
_COLLECTIVES = list(COLLECTIVES)  # by number


@dataclass
class JobOutcome:
    """A run. jobs : what ``--json`` lists. sent : (time, node, port, frame). first : a mismatch.

    input_rate : beats of gradient a cycle and node, from the first post to the last end of all jobs
    that are done. steady_rate : the same of those that end behind the first `n_active`, from the
    last of these ends on, when all stages are filled; None where no more end. nmse : of the results
    of THC against the mean of the floats, None without. barked : ends that a short watchdog
    explains, which are not compared, see `sound_watchdog`. dropped, marked : frames, by queues.
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
    dropped: int = 0
    marked: int = 0

    @property
    def ok(self):
        return not self.mismatches


def cosim(spelling, algorithm, posted, *, chunks=None, lanes=4, n_active=2, n_engines=0,
          faults=None, settings=None, block=1024, link_bytes=None, memory_latency=40, t_probe=None,
          watchdog=0, p=0.0, at_share=False, dram=None, built=None, port_bytes=None, queues=None,
          switches=None, foreign=0.0, reaches=(), room=0,
          packet=PACKET, corners=0.0, marks=None):  # fmt: skip
    """Run jobs on cards of RTL; a `JobOutcome`.

    `Unfinished` at `MOST` cycles, and `SLOW` for each element, behind the last post.

    spelling, algorithm, chunks : as of ``gradnic schedule``; tables are checked first. posted :
    list of `job_list.Posted`. settings : of INCEPTIONN. block : of THC, 64, 256 or 1024. link_bytes
    : of a link and cycle; default a beat. p : share of contributions that may miss, end to end, of
    jobs that name none. at_share : when it may: see `gradnic.models.transport.reception.Reception`.
    dram : of the cards' memories, `gradnic.sim.offload.dram.timing`; None: a beat a cycle a port.
    built : what cards are built with, of `JobCluster`; jobs that want more are refused; host : as
    whole cards with host frames. None: what the jobs want. port_bytes, queues, switches : of
    `JobCluster`, where `built` does not say them. t_probe : None: `probing` of links and ports.
    foreign : share of each link that frames of other programs fill. reaches : list of (cycle, node,
    id of a job, bytes): the host reads them of its source then, by frames; with id -1 it writes
    them before, where no job reaches.
    room : elements that landing areas and scratch are made for, by which longer jobs are refused;
    0: as many as the longest job has. packet : elements of a packet, a multiple of 16, of which
    cards take PACKET at most. corners : share of values that are zeros, infinite, none, or as large
    or small as there are, instead of normal ones. marks : skew, rule and tags, as of `JobCluster`.
    """
    topology = parse(spelling)
    options = {} if chunks is None else {"chunks": chunks}
    tables, posted = _tables(builders.build(topology, algorithm, **options), topology, posted)
    n_nodes, faults = topology.n_nodes, faults or LinkFaults()
    if p:
        posted = [_bounded(one, tables, p) for one in posted]
    _check_nodes(posted, n_nodes)
    short = [one for one in posted if one.job.elems < TOO_LONG]
    jobs = [one.job for one in short]
    wants = _wants(posted, block)
    n_jobs = _bytes_of(jobs, wants["feedback"])
    n_memory = n_jobs + sum(-(-n // ALIGN) * ALIGN for *_, n in reaches)
    n_memory = -(-n_memory // PAGE) * PAGE
    longest = room or max((job.elems for job in jobs), default=1)
    takes_all = built is None
    if takes_all:
        built = _takes_all(posted, wants)
    built = {"port_bytes": port_bytes, "queues": queues, "switches": switches} | built
    check_apart(
        [one for one in short if _taken(one.job, tables, topology, built, n_memory, packet)]
    )
    drops = bool(built["queues"] or built["switches"])
    t_probe = t_probe or probing(
        tables, faults, (marks or {}).get("skew", 0), 4 * lanes, built["port_bytes"] or 4 * lanes,
        link_bytes,
    )  # fmt: skip
    for one in posted:  # told of before a card is built
        for where in (one.errors, one.silent):
            if where and where[1] in ("landing", "scratch"):
                beyond(tables, one, posted, where[1], thc=built.get("thc"))
    options = {key: value for key, value in built.items() if key != "host"}
    cluster = (ReachedCards if built.get("host") else JobCluster)(
        tables, topology, n_memory, longest, n_active=n_active, n_engines=n_engines,
        n_bytes=4 * lanes, packet=packet, t_probe=t_probe, watchdog=watchdog, settings=settings,
        at_share=at_share, **options, **(marks or {}),
    )  # fmt: skip
    if dram is not None:
        cluster.dram(dram, dram)
    memory = _memories(n_nodes, cluster.n_memory, jobs, corners)
    for node in range(n_nodes):
        cluster.memory(node)[:] = memory[node]
    late = _late(cluster, tables, posted)
    _reach(late, cluster, posted, reaches, memory, n_jobs)
    others = Foreign(cluster, foreign) if foreign else None
    try:
        cycles = cluster.run(
            faults, max_cycles=max(late) + MOST + SLOW * sum(job.elems for job in jobs),
            share=1 - foreign, link_bytes=link_bytes, memory_latency=memory_latency,
            late={at: _in_turn(calls) for at, calls in late.items()},
        )  # fmt: skip
    except Unfinished as error:
        raise _unfinished(error, posted, n_nodes, watchdog) from None

    plain = takes_all and not room and all(_plain(one) for one in posted)
    plain &= not any(wants[name] for name in ("bf16", "scale", "feedback"))
    if n_nodes * sum(job.elems for job in jobs) <= GOLDEN_ELEMS or not plain:
        reference = "cards"
        want = cards_say(
            tables, topology, posted, memory, cluster, faults, settings, has_room=not room
        )
    else:
        reference, want = "sums", sums_of(tables, posted, memory, settings, cluster.thc)
    if wants["gives_up"]:
        reference += ", less what was given up"
        want |= bounded(
            tables, posted, memory, settings, cluster.thc, want, cluster.given_up, packet
        )
    silence = sum(one.silent[-1] for one in posted if one.silent)
    link_bytes = link_bytes or cluster.port_bytes
    least = silence + sound_watchdog(
        t_probe, faults, jobs, link_bytes * (1 - foreign), n_nodes=n_nodes,
        n_chunks=max(plan.n_chunks for plan in cluster.plans), memory_latency=memory_latency,
        drops=drops, packet=packet, skew=cluster.skew,
    )  # fmt: skip
    slow = dram is not None or watchdog < MEMORY_ANSWERS + silence
    n_barked = barked(cluster, posted, want, slow) if 0 < watchdog < least else 0
    mismatches, first = compare(cluster, posted, want, memory)
    if others:
        n_wrong, said = _wrong_frames(others)
        mismatches, first = mismatches + n_wrong, first or said
    if reaches and cluster.wrong:
        first, mismatches = first or cluster.wrong[0], mismatches + len(cluster.wrong)
    ends = [told(one, cluster) for one in posted]
    return JobOutcome(
        cycles, ends, line_share(cluster.sent, link_bytes), mismatches, reference, cluster.sent,
        first, input_rate(ends, 4 * lanes), steady_rate(ends, 4 * lanes, n_active),
        nmse(cluster, posted, memory), n_barked,
        *(cluster.by_queues() if drops else (0, 0)),
    )  # fmt: skip


def _wrong_frames(others):
    """(Frames of other programs that did not come as they were, a line of them or "")."""
    others.drain()
    made, good, wrong = others.told()[0].values()
    if made == good and not wrong:
        return 0, ""
    said = f"{made} frames of others, {good} came as they were, {wrong} otherwise"
    return made - good + wrong, said


def _taken(job, tables, topology, built, n_memory, packet):
    """Whether cards that are built so may take a job, when it is the first of its tensor."""
    takes = {name: built.get(name, name == "inc") for name in ("inc", "feedback", *EVERYTHING)}
    cards = golden.JobCluster(
        tables, topology, 0, packet=packet, regions=[(0, n_memory)], thc=built.get("thc"), **takes
    )
    return not cards.cards[0].refusal(job)


def _check_nodes(posted, n_nodes):
    for one in posted:
        if one.nodes and not set(one.nodes) <= set(range(n_nodes)):
            raise ValueError(f"nodes must be 0 to {n_nodes - 1}, not {list(one.nodes)}")
        for what in ("errors", "silent"):
            where = getattr(one, what)
            if where and not 0 <= where[0] < n_nodes:
                raise ValueError(f"node of {what} must be 0 to {n_nodes - 1}, not {where[0]}")


def _bytes_of(jobs, feedback):
    """Bytes of a node's memory that jobs need, one behind the other, or where they say."""
    halves = 4 if feedback else 2  # sources, results; residuals before and after
    chosen = halves * sum(-(-4 * job.elems // ALIGN) * ALIGN for job in jobs) or ALIGN
    starts = [(at, job) for job in jobs for at in (job.source, job.result)]
    starts += [(job.residual_at(half), job) for job in jobs if job.feedback for half in range(2)]
    ends = [-(-(at + 4 * job.elems) // ALIGN) * ALIGN for at, job in starts]
    return max([chosen, *(end for end in ends if end <= NAMED)])


def _takes_all(posted, wants):
    """What cards are built with that take all of the jobs."""
    if wants["thc"] and wants["scale"]:
        k = next(k for k, one in enumerate(posted) if _scales(one.job))
        raise ValueError(
            f"job {k}: op must be sum or max, or codec thc, whose results are means, not mean: "
            "cards of jobs with THC have no means of others"
        )
    few = wants["thc"] or not any(wants[name] for name in EVERYTHING)
    return wants if few else wants | EVERYTHING


def _plain(one):
    """Whether all nodes post a job that nothing befalls."""
    return one.nodes is one.abort is one.errors is one.silent is None and one.job.elems < TOO_LONG


def _late(cluster, tables, posted):
    """Calls by the cycle in which they are due: posts and aborts. Memory that fails is told of."""
    late = {}
    for one in posted:
        for what in ("errors", "silent"):
            where = getattr(one, what)
            if not where:
                continue
            node, place, *times = where
            for memory_of, begin, end in places(cluster, tables, one, posted, place):
                if not times:
                    cluster.spoil(node, begin, end, what, memory=memory_of)
                    continue
                first, n = times
                for at, fault in ((first, what), (first + n, "sound")):
                    cluster.spoil(node, begin, end, fault, memory_of, at=cluster.now + at)
        nodes = one.posters(len(cluster.hosts))
        late.setdefault(one.at, []).extend((cluster.post, v, one.job) for v in nodes)
        if one.abort is not None:
            calls = late.setdefault(one.abort, [])
            calls.extend((cluster.withdraw, v, one.job.id) for v in nodes)
    return late


def _reach(late, cluster, posted, reaches, memory, free):
    """Add to `late` what the host reads and writes by frames; it writes from byte `free` on."""
    rng = np.random.default_rng(2)
    for at, node, id, n in sorted(reaches):
        if id < 0:
            address, octets, free = free, rng.bytes(n), free + -(-n // ALIGN) * ALIGN
            memory[node, address : address + n] = np.frombuffer(octets, np.uint8)
        else:
            address = next(one.job.source for one in posted if one.job.id == id)
            octets = memory[node, address : address + n].tobytes()
        late.setdefault(at, []).append((cluster.reach, node, address, octets, id < 0))


def _unfinished(error, posted, n_nodes, watchdog):
    """The error, and the jobs that nothing ends without a watchdog."""
    partly = [
        str(one.job.id) for one in posted
        if one.errors or (one.nodes and len(one.nodes) < n_nodes)
    ]  # fmt: skip
    if watchdog or not partly:
        return error
    return Unfinished(
        f"{error}. Without --watchdog nothing ends jobs that some nodes never post, or "
        f"fail: {', '.join(partly)}"
    )


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


def _memories(n_nodes, n_bytes, jobs, corners=0.0):
    """uint8 (n_nodes, n_bytes): small normal values where sources are, a share of `CORNERS`."""
    rng = np.random.default_rng(1)
    memory = np.zeros((n_nodes, n_bytes), np.uint8)
    for job in jobs:
        stop = job.source + 4 * job.elems
        if job.elems and stop <= n_bytes and job.source % 4 == 0:
            values = rng.standard_normal((n_nodes, job.elems)).astype(np.float32) / 64
            if corners:
                there = rng.random(values.shape) < corners
                values[there] = rng.choice(CORNERS, int(there.sum()))
            if job.kind == Kind.BF16:
                values, stop = bf16.narrow(values), job.source + 2 * job.elems
            memory[:, job.source : stop] = values.view(np.uint8)
        at = job.residual_at(job.half)
        if job.feedback and at + 4 * job.elems <= n_bytes:
            values = rng.standard_normal((n_nodes, job.elems)).astype(np.float32) / 512
            memory[:, at : at + 4 * job.elems] = values.view(np.uint8)
    return memory
