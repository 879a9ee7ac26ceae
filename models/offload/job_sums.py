"""What a job leaves on each node, by table and order alone, from the list of what was given up.

The oracle of cards with jobs that lose packets for good: which ones those are depends on times that
no two cards share, the sums that are left do not. See `cluster.all_reduce`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradnic.interface.job import Completion, Job, JobCodec, JobStatus, Kind, Operation
from gradnic.interface.schedule_table import Table

from . import bf16
from .card import Tensor
from .cluster import all_reduce
from .codec import Inceptionn, Raw, Raw16
from .plan import SEQ_UNIT, Plan
from .thc_job import ThcJob

HALF_UNIT = 2 * SEQ_UNIT


def unit_of(job: Job) -> int:
    """Elements that chunks are rounded up to: twice as many where two are in a word."""
    is_half = job.kind == Kind.BF16 and job.codec != JobCodec.THC
    return HALF_UNIT if job.codec == JobCodec.RAW16 or is_half else SEQ_UNIT


def tensor_of(job: Job, plan: Plan, inceptionn: Mapping) -> Tensor:
    """`Tensor` of a job without THC. inceptionn : dict, fields of `codec.Inceptionn`."""
    how = {"mean": job.op == Operation.MEAN, "largest": job.op == Operation.MAX}
    if job.codec == JobCodec.RAW32:
        image = bf16.image if job.kind == Kind.BF16 else None
        codec = Raw(plan.n_nodes, image=image, **how)
    elif job.codec == JobCodec.RAW16:
        codec = Raw16(plan.n_nodes, **how)
    else:
        codec = Inceptionn(plan.n_nodes, **inceptionn, mean=how["mean"])
    return Tensor(job.tensor, plan, codec, layer=job.layer, p_q16=job.p_q16)


def ends(
    job: Job,
    table: Table,
    x: np.ndarray,
    given_up: Mapping[tuple[int, int], np.ndarray],
    *,
    packet: int,
    inceptionn: Mapping | None = None,
    thc: Mapping | None = None,
) -> list[tuple[Completion, np.ndarray, np.ndarray]]:
    """(Completion, float32 (elems,), bool (elems,): here) of each node; cycles are 0.

    x : float32 (n_nodes, elems), gradients as they enter the sums. given_up : {(node, source):
    numbers of packets}, as `Cluster.given_up` tells. packet, inceptionn, thc : of `jobs.JobCard`.
    """
    if job.codec == JobCodec.THC:
        steps = [ThcJob(job, table, node, one, packet, thc or {}) for node, one in enumerate(x)]
        worker, tensor = steps[0].worker, steps[0].of_sums
        norms = np.max([worker.norms(one.padded) for one in steps], axis=0)
        round_: dict[str, Any] = {"round": job.gen, "tensor": job.tensor}
        own = np.stack([
            worker.table[worker.encode(one.padded, norms, worker=node, **round_)].astype(np.int64)
            for node, one in enumerate(steps)
        ])  # fmt: skip
    else:
        plan = Plan(table, job.elems, unit=unit_of(job), packet=packet)
        tensor, own = tensor_of(job, plan, inceptionn or {}), x
    plan, codec = tensor.plan, tensor.codec

    def sent(values: np.ndarray) -> np.ndarray:
        op, p0, p1, payload = codec.encode(values, 1, is_leaf=False)
        return codec.decode({"op": op, "p0": p0, "p1": p1, "elems": len(values)}, payload)

    is_thc = job.codec == JobCodec.THC
    sums, leaves = all_reduce(plan, codec, own, np.array if is_thc else sent, given_up)
    result = worker.decode(sums, norms, **round_)[: job.elems] if is_thc else sums
    sizes = plan.elems * codec.elem_bits // 8
    made = []
    for node in range(plan.n_nodes):
        wanted = plan.wanted[node]
        lost = sum(
            int(sizes[k]) * plan.up[node][source][k // plan.per_chunk].leaves
            for (at, source), numbers in given_up.items()
            if at == node
            for k in numbers
        )
        mine = leaves[wanted]
        least, most = (int(mine.min()), int(mine.max())) if len(mine) else (0, 0)
        short = lost or (len(mine) and least < plan.n_leaves)
        status = JobStatus.SHORT if short else JobStatus.DONE
        ended = Completion(job.id, status, given_up=lost, leaves_least=least, leaves_most=most)
        made.append((ended, result, np.repeat(wanted, plan.elems)[: job.elems]))
    return made
