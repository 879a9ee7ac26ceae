"""Jobs of an offload card in a shell's bench: its host, its memory, and a golden card opposite."""

from dataclasses import replace

import numpy as np
from gradnic.models.offload.cluster import LinkFaults, addresses
from gradnic.models.offload.job_cluster import JobCluster
from gradnic.models.offload.thc_job import coded
from gradnic.models.schedule.all_reduce import all_reduce
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.host import JobDriver
from gradnic.host.bring_up import bring_up
from gradnic.interface import params
from gradnic.interface.job import Job, JobCodec, JobStatus
from gradnic.interface.schedule_table import Layout

CARD = params.Jobs(
    n_bytes=16, n_rows=16, n_chunks=4, n_packets=64, n_nodes=4, n_ranks=2, n_active=1, n_tables=1,
    inc=0, gives_up=0,
)  # fmt: skip
THC_CARD = replace(CARD, thc=1, feedback=1)
HOST_CARD = replace(CARD, host=1)
THC = {"B": 64}
LAYOUT = Layout.for_nodes(CARD.n_nodes, ports=4, chunks=1)
MINE, OTHER = 0, 1  # nodes
TENANT, PACKET = 7, 32
SOURCES, RESULTS = (0x1000, 0x2400), (0x4000, 0x5400)
RESIDUAL, SCRATCH, LANDING, MEMORY_BYTES = 0x6000, 0x9000, 0xC000, 2**16
ALLOWED = SCRATCH  # bytes from 0 on that jobs may name
T_PROBE = 4000  # cycles
BEHIND = 64  # bytes that nobody writes
OTHER_TICKS = {"t_probe": 64, "t_retry": 16}


class Jobs:
    """All-reduces of two nodes: the bench's card is node 0, a `JobCard` of the model is node 1.

    thc : bool, the first job has THC with error feedback.

    Members
    -------
    jobs : list of Job. gradients : a pair of float32 (elems,) each, of node 0 and of node 1.
    other : the golden card.
    """

    def __init__(self, rng, *, thc=False):
        self.topology, self.thc = parse("ring:2"), THC if thc else None
        self.table = compile_table(build(self.topology, "ring"))
        self.book = addresses(self.table, self.topology)[MINE]
        self.elems = (1100 if thc else 300, 17)
        more = {"codec": JobCodec.THC, "gen": 2, "feedback": 1, "residual": RESIDUAL // 64}
        first, second = zip(self.elems, SOURCES, RESULTS, strict=True)
        self.jobs = [
            Job(0x700 + k, k, elems=elems, source=source, result=result, **fields)
            for k, ((elems, source, result), fields) in enumerate(
                [(first, more if thc else {"gen": 1}), (second, {"gen": 1})]
            )
        ]
        self.gradients = [rng.standard_normal((2, n)).astype(np.float32) for n in self.elems]
        self.other = self._cluster().cards[OTHER]
        for job in self.jobs:
            self.other.post(job)

    def _cluster(self):
        """Both cards as models, gradients in place."""
        cluster = JobCluster(
            (self.table,), self.topology, MEMORY_BYTES, n_active=1, packet=PACKET, thc=self.thc,
            settings=OTHER_TICKS,
        )  # fmt: skip
        for job, gradients in zip(self.jobs, self.gradients, strict=True):
            for card, mine in zip(cluster.cards, gradients, strict=True):
                card.memory[job.source : job.source + 4 * job.elems] = mine.view(np.uint8)
        return cluster

    @staticmethod
    def driver(access, **options):
        """The `JobDriver` of a `CARD` behind (read, write)."""
        return JobDriver(
            *access, n_ranks=CARD.n_ranks, n_bytes=CARD.n_bytes, n_rows=CARD.n_rows,
            n_chunks=CARD.n_chunks, n_peers=1 << LAYOUT.peer, **options,
        )  # fmt: skip

    def prepare(self, driver):
        """Write settings and the table; no job is posted."""
        thc, scratch = None, ()
        if self.thc:
            codec = coded(self.thc, 2)
            worker = codec.worker
            thc = {"levels": worker.table.tolist(), "block": worker.B, "clip": worker.t_fixed,
                   "index_p": codec.index_p}  # fmt: skip
            scratch = [SCRATCH]
        bring_up(
            driver, MINE, (self.table,), self.book, LAYOUT, tenant=TENANT, memory=(0, ALLOWED),
            landing=[LANDING], n_elems=max(self.elems), packet=PACKET, t_probe=T_PROBE, thc=thc,
            scratch=scratch,
        )  # fmt: skip

    def post(self, driver):
        """Post both jobs."""
        for job in self.jobs:
            assert driver.post(job)

    def completions(self, driver):
        """The completions that wait, taken."""
        completions = []
        while (one := driver.completion()) is not None:
            completions.append(one)
        return completions

    def meet(self, frames, now):
        """Frames of the card reach the other node; what it sends."""
        out = [one for frame in frames for one in self.other.receive(frame, 0, now)]
        return [frame for _, frame in out + self.other.tick(now)]

    def check(self, completions, read):
        """Whether both jobs ended well, and all memory that they wrote holds what it must.

        told : list of Completion. read : function of (address, n_bytes).
        """
        assert [(one.id, one.status) for one in completions] == [(job.id, JobStatus.DONE)
                                                          for job in self.jobs]  # fmt: skip
        assert self.other.idle()
        cluster = self._cluster()
        for node in range(2):
            for job in self.jobs:
                cluster.post(node, job)
        cluster.run(LinkFaults())
        golden, opposite = (cluster.cards[node].memory for node in (MINE, OTHER))
        for job, gradients in zip(self.jobs, self.gradients, strict=True):
            size = 4 * job.elems
            whole = -(-size // CARD.n_bytes) * CARD.n_bytes  # results are whole beats
            found = read(job.result, whole + BEHIND)
            assert found[:size] == golden[job.result :][:size].tobytes()
            assert found[whole:] == bytes(BEHIND)
            theirs = self.other.memory[job.result :][:size].tobytes()
            assert theirs == opposite[job.result :][:size].tobytes()
            if job.codec == JobCodec.RAW32:
                assert found[:size] == all_reduce(self.table, gradients)[MINE].tobytes()
            if job.feedback:
                whole = job.residual_at(2) - RESIDUAL  # both halves
                found, wanted = (read(RESIDUAL, whole), golden[RESIDUAL:][:whole].tobytes())
                assert found == wanted
                assert any(wanted)
