"""Figures of a run of jobs: times, shares of the line, rates, errors.

Part of `gradnic.sim.offload.job_run`.
"""

import numpy as np
from gradnic.models.offload import bf16
from gradnic.models.offload.job_judge import ELEM_BYTES

from gradnic.interface.formats import GRADNIC, Op
from gradnic.interface.job import JobCodec, JobStatus, Kind

from .job_wanted import result_of

WIRE_MORE = 24  # bytes around a frame: preamble, FCS and gap


def told(one, cluster):
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


def nmse(cluster, posted, memory):
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
