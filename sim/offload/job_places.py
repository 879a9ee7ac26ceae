"""Where the memory of a job may fail: bytes of each place that `job_list.PLACES` names."""

from gradnic.models.offload.job_judge import ELEM_BYTES
from gradnic.models.offload.thc_job import areas

from gradnic.interface.job import ALIGN, JobCodec

from .job_list import TOO_LONG


def places(cluster, tables, one, posted, place):
    """(memory, first byte, stop) of where a job's memory may fail; ValueError where shorter jobs
    reach as far.
    """
    job = one.job
    if place in ("source", "result"):
        begin = getattr(job, place)
        return [(0, begin, begin + ELEM_BYTES.get(job.kind, 4) * job.elems)]
    if place in ("residual", "kept"):
        begin = job.residual_at(job.half if place == "residual" else 1 - job.half)
        return [(0, begin, begin + 4 * job.elems)]

    first, stop = beyond(tables, one, posted, place, thc=cluster.thc, n_ranks=cluster.n_ranks)
    if place == "landing":
        n, which, begin, step = cluster.n_engines, 1, 0, cluster.landing_bytes
    else:
        n, which, begin, step = cluster.n_active, 0, cluster.n_memory, cluster.scratch_bytes
    return [(which, begin + k * step + first, begin + k * step + stop) for k in range(n)]


def beyond(tables, one, posted, place, *, thc, n_ranks=1):
    """(first byte, stop) of an area, ``landing`` or ``scratch``, that no other job reaches;
    ValueError if there are none. thc : of cards with it, n_ranks : of theirs.
    """

    def reaches(job):
        landing, scratch = -(-4 * job.elems // ALIGN) * ALIGN, 0
        if job.codec == JobCodec.THC and thc is not None and job.table < len(tables):
            landing, scratch = areas(tables[job.table], job.elems, thc)
        return n_ranks * landing if place == "landing" else scratch

    others = [other.job for other in posted if other is not one and other.job.elems < TOO_LONG]
    first, stop = max(map(reaches, others), default=0), reaches(one.job)
    first = -(-first // ALIGN) * ALIGN
    if first >= stop:
        raise ValueError(
            f"job {one.job.id}: {place} must be longer than that of all other jobs, {first} bytes, "
            f"not {stop}"
        )
    return first, stop
