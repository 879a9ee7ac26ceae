"""What jobs on cards of RTL must come to: part of `gradnic.sim.offload.job_run`.

Golden are either the cards of `gradnic.models.offload.job_cluster`, frame by frame over the same
links, or for runs that are too large for them the sums of the table in its order of additions. What
cards give up depends on times that no two cards share: sums are then those without it.
"""

import numpy as np
from gradnic.models import inceptionn
from gradnic.models.offload import bf16
from gradnic.models.offload import job_cluster as golden
from gradnic.models.offload.job_judge import ELEM_BYTES
from gradnic.models.offload.job_sums import ends
from gradnic.models.offload.thc_job import mean
from gradnic.models.reduction.reduce import maximum
from gradnic.models.schedule.all_reduce import add, run_table

from gradnic.interface.job import JobCodec, JobStatus, Kind, Operation

PACKET = 352  # elements of a packet, as cards are built


def cards_say(tables, topology, posted, memory, cluster, faults, settings, *, has_room=True):
    """{(node, id): (status, detail, bytes that it leaves, `leaves_of` or None)} of golden cards.

    has_room : whether landing areas and scratch are large enough for all jobs.
    """
    options = {"t_probe": 400, "t_retry": 100, "at_share": cluster.at_share}
    areas = {"n_ranks": cluster.n_ranks, "landing": cluster.landing * cluster.n_bytes,
             "scratch": cluster.scratch_bytes}  # fmt: skip
    cards = golden.JobCluster(
        tables, topology, memory.shape[1], n_active=cluster.n_active, packet=cluster.packet,
        n_packets=cluster.n_packets, inceptionn=settings, settings=options,
        watchdog=20_000 if cluster.watchdog else 0, **cluster.built, **({} if has_room else areas),
    )  # fmt: skip
    for card, mine in zip(cards.cards, memory, strict=True):
        card.memory[:] = mine
    _ = [
        cards.post(node, one.job)
        for one in sorted(posted, key=lambda one: one.at)
        for node in one.posters(topology.n_nodes)
    ]
    cards.run(faults)
    return {
        (node, one.job.id): (
            completion.status,
            completion.detail,
            left_of(card.memory, one.job),
            leaves_of(completion),
        )
        for node, card in enumerate(cards.cards)
        for one in posted
        if (completion := cards.ended[node].get(one.job.id)) is not None
    }


def sums_of(tables, posted, memory, settings, thc):
    """The same from the tables' order of additions; all jobs are done."""

    def image(values):
        return inceptionn.image(values, **(settings or {})) if values.size else values

    want = {}
    for one in posted:
        job = one.job
        own = memory[:, job.source : job.source + 4 * job.elems].copy().view(np.float32)
        if job.codec == JobCodec.THC:
            result = mean(tables[job.table], job, own, thc).view(np.uint8)
            want |= {(node, job.id): (JobStatus.DONE, 0, result, None) for node in range(len(own))}
            continue
        coded = job.codec == JobCodec.INCEPTIONN
        how = {"combine": lambda a, b: add(a, image(b)), "image": image} if coded else {}
        how |= {"combine": maximum} if job.op == Operation.MAX else {}
        results, here = run_table(tables[job.table], own, **how)
        for node, (values, mine) in enumerate(zip(results, here, strict=True)):
            before = result_of(memory[node], job).copy().view(np.float32)
            before[mine] = values[mine]
            want[node, job.id] = JobStatus.DONE, 0, before.view(np.uint8), None
    return want


def bounded(tables, posted, memory, settings, thc, want, given_up, packet=PACKET):
    """What `cards_say` gives of the jobs that end well, of sums without what cards gave up.

    packet : elements of one.
    """
    made = {}
    for one in posted:
        job = one.job
        ends_well = {
            node for (node, id), (status, *_) in want.items()
            if id == job.id and status in (JobStatus.DONE, JobStatus.SHORT)
        }  # fmt: skip
        if not ends_well:
            continue
        n_bytes = ELEM_BYTES[job.kind] * job.elems
        own = memory[:, job.source : job.source + n_bytes].copy()
        halves = job.kind == Kind.BF16
        x = bf16.widen(own.view(np.uint16)) if halves else own.view(np.float32)
        if job.feedback:
            at = job.residual_at(job.half)
            x = x + memory[:, at : at + 4 * job.elems].copy().view(np.float32)
        wanted = ends(
            job, tables[job.table], x, given_up.get((job.tensor, job.gen), {}), packet=packet,
            inceptionn=settings, thc=thc,
        )  # fmt: skip
        for node, (ended, values, here) in enumerate(wanted):
            if node not in ends_well:
                continue
            result = result_of(memory[node], job).copy()
            halved = bf16.narrow(values) if halves else values.view(np.uint32)
            result.view(halved.dtype)[here] = halved[here]
            residuals = want[node, job.id][2][len(result) :]  # no packets come between them
            made[node, job.id] = (
                ended.status, ended.detail, np.concatenate([result, residuals]), leaves_of(ended)
            )  # fmt: skip
    return made


def result_of(memory, job):
    """Its bytes in the memory of a node: a view."""
    return memory[job.result : job.result + ELEM_BYTES.get(job.kind, 4) * job.elems]


def left_of(memory, job):
    """Bytes that a job leaves: its result, and with feedback both halves of the residual region."""
    halves = [_residual(memory, job, k) for k in range(2) if job.feedback]
    return np.concatenate([result_of(memory, job), *halves])


def written_by(memory, job):
    """Views of the bytes that a job may write."""
    regions = [result_of(memory, job)]
    return [*regions, _residual(memory, job, 1 - job.half)] if job.feedback else regions


def _residual(memory, job, half):
    return memory[job.residual_at(half) :][: 4 * job.elems]


def leaves_of(completion):
    """What a completion says of what is missing: bytes given up, fewest and most leaves."""
    return completion.given_up, completion.leaves_least, completion.leaves_most
