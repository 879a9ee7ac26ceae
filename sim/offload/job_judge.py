"""Whether jobs on cards of RTL ended as golden cards say: part of `gradnic.sim.offload.job_run`."""

from gradnic.interface.job import Collective, JobCodec, JobStatus

from .cards import PROBES, again
from .job_wanted import PACKET, leaves_of, left_of, written_by

N_PATHS = 8  # that packets are sprayed over
HOP = 400  # cycles from a packet to the one that it becomes, beside memory's
_WHOLE = ("source", "result", "residual", "kept")  # which an all-reduce goes through


def sound_watchdog(t_probe, faults, jobs, link_bytes, *, n_nodes, n_chunks=0, memory_latency=40,
                   drops=False, packet=PACKET, skew=0):  # fmt: skip
    """Cycles from which on a watchdog ends only jobs that some node never posts, at one row.

    A shorter one barks while PROBEs are on their way, or while links and memories are busy with
    other jobs, which depends on times that no golden card shares. It is no shorter than a job
    takes: a node where one before it failed begins it, and waits for others that are not there yet.
    n_chunks : of a table, whose PROBEs and answers may fill a link for longer than `t_probe`, and
    then hold data up. drops : frames get lost in queues, too. packet : elements of one, of which
    those of fewer than 64 take longer for as many. skew : cycles that each path is longer than the
    one before.
    """
    t_again = again(t_probe, n_chunks, link_bytes)
    late = faults.loss or faults.duplicate or drops or t_again > t_probe
    n_probes = PROBES if late else 4
    busy = 16 * sum(job.elems for job in jobs) / link_bytes  # four times their way
    busy *= max(1, 64 / packet)
    n_rounds = 2 if any(job.codec == JobCodec.THC for job in jobs) else 1
    hop = 2 * memory_latency + HOP + faults.delay + (N_PATHS - 1) * skew + faults.reorder
    return n_probes * t_again + n_rounds * 2 * n_nodes * hop + int(busy)


def barked(cluster, posted, want, slow):
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


def compare(cluster, posted, want, memory):
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
    status, detail, left, given_up = wanted
    lasts = fails_here and len(one.errors) == 2
    must = lasts and one.job.collective == Collective.ALL_REDUCE and one.errors[1] in _WHOLE
    if must and found.status in (JobStatus.DONE, JobStatus.SHORT):
        return 1, f"it is done, though its memory answers with errors at its {one.errors[1]}"
    if (found.status, found.detail) != (status, detail):
        said = tuple(map(int, (found.status, found.detail)))
        return 1, f"{said}, not {(int(status), int(detail))}"
    if found.status not in (JobStatus.DONE, JobStatus.SHORT):
        return 0, ""
    if given_up is not None and leaves_of(found) != given_up:
        return 1, f"given up, fewest and most leaves are {leaves_of(found)}, not {given_up}"
    wrong = int((left_of(memory, one.job) != left).sum())
    return wrong, f"{wrong} bytes of what it leaves"
