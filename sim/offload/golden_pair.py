"""Cards of RTL with jobs beside golden ones: the same memory, jobs and losses, the same ends."""

import numpy as np
from gradnic.models.offload.cluster import LinkFaults

from gradnic.interface.job import Job

HARSH = LinkFaults(loss=0.03, duplicate=0.05, reorder=60, delay=20, seed=4)
UNTOUCHED = 0xEE  # all memory that no job has written


class GoldenPair:
    """Two clusters that are given the same; a bench derives from it and says what its jobs are.

    Parameters
    ----------
    rtl : gradnic.sim.offload.job_cluster.JobCluster
    golden : gradnic.models.offload.job_cluster.JobCluster
    pauses : as of `gradnic.sim.offload.cards.Cards.pause`, or None

    Attributes
    ----------
    jobs : {id: Job} that `check` looks at.
    at : int
        First byte of memory that no job has taken yet.
    rng : numpy.random.Generator, of the jobs' values
    """

    align = 64  # bytes that a job's memory begins at multiples of

    def __init__(self, rtl, golden, *, pauses=None):
        self.rtl, self.golden, self.n = rtl, golden, len(golden.cards)
        if pauses is not None:
            rtl.pause(pauses)
        self.rng, self.jobs, self.at = np.random.default_rng(3), {}, 0
        self.half = len(self.memories(0)[0]) // 2
        for node in range(self.n):
            for memory in self.memories(node):
                memory[:] = UNTOUCHED

    def memories(self, node):
        """Memory of a node, uint8: of the circuit, and golden."""
        return self.rtl.memory(node), self.golden.cards[node].memory

    def normal(self, elems, scale):
        """Random values, float32 (n, elems)."""
        return self.rng.standard_normal((self.n, elems)).astype(np.float32) / scale

    def store(self, values):
        """Put each node's values in its memory, from `at` on."""
        for node, mine in enumerate(values):
            for memory in self.memories(node):
                memory[self.at : self.at + mine.nbytes] = mine.view(np.uint8)

    def take(self, n_bytes):
        """The next job's memory begins behind so many bytes."""
        self.at += -(-n_bytes // self.align) * self.align

    def job(self, id, elems, *, in_place=False, **fields):
        """A job on random values, whose result goes to the other half of memory."""
        defaults = {"tensor": id, "gen": 1, "source": self.at}
        defaults["result"] = self.at + self.half * (not in_place)
        self.jobs[id] = job = Job(id, elems=elems, **(defaults | fields))
        self.store(self.normal(elems, 8))
        self.take(4 * elems)
        return job

    def post(self, *jobs, nodes=None):
        """Post jobs to nodes, or to all."""
        for node in range(self.n) if nodes is None else nodes:
            for job in jobs:
                self.rtl.post(node, job)
                self.golden.post(node, job)

    def run(self, faults=HARSH, *, golden_late=None, **options):
        """All that was posted, golden first; what the circuits' run returns."""
        self.golden.run(faults, late=golden_late)
        return self.rtl.run(faults, max_cycles=400_000, **options)

    def check(self, *, but=()):
        """Completions and memory are golden, but of jobs `but`; values have 4 bytes, beats 16."""
        for node in range(self.n):
            records = {id: ended.record for id, ended in self.rtl.hosts[node].ended.items()}
            want = self.golden.ended[node]
            assert set(records) == set(want)
            names = ("status", "detail", "given_up", "leaves_least", "leaves_most")
            for id in set(want) - set(but):
                found = tuple(getattr(records[id], name) for name in names)
                assert found == tuple(getattr(want[id], name) for name in names), (node, id)
            ours, theirs = (memory.copy() for memory in self.memories(node))
            for id, job in self.jobs.items():
                stop = job.result + 4 * job.elems
                # the circuit writes whole beats: what is behind the result in its last one is free
                free = slice(job.result if id in but else stop, -(-stop // 16) * 16)
                ours[free] = theirs[free] = 0
            np.testing.assert_array_equal(ours, theirs)
            assert self.rtl.counts(node)["outside"] == 0
