"""Jobs of an offload card in a shell's bench: its host, its memory, and a golden card opposite."""

import numpy as np
from gradnic.models.offload.cluster import addresses
from gradnic.models.offload.jobs import JobCluster
from gradnic.models.schedule.all_reduce import all_reduce
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.host import JobDriver
from gradnic.host.bring_up import bring_up
from gradnic.interface import params
from gradnic.interface.job import Job, JobStatus
from gradnic.interface.schedule_table import Layout

CARD = params.Jobs(
    n_bytes=16, n_rows=16, n_chunks=4, n_packets=64, n_nodes=4, n_ranks=2, n_active=1, n_tables=1,
    inc=0, gives_up=0,
)  # fmt: skip
LAYOUT = Layout.for_nodes(CARD.n_nodes, ports=4, chunks=1)
MINE, OTHER = 0, 1  # nodes
TENANT, PACKET = 7, 32
ELEMS = (300, 17)  # of each job
SOURCES, RESULTS = (0x1000, 0x2000), (0x4000, 0x5000)
LANDING, MEMORY_BYTES = 0x2000, 2**16
T_PROBE = 4000  # cycles
BEHIND = 64  # bytes that nobody writes
OTHER_TICKS = {"t_probe": 64, "t_retry": 16}


class Jobs:
    """All-reduces of two nodes: the bench's card is node 0, a `JobCard` of the model is node 1.

    Members
    -------
    jobs : list of Job. gradients : a pair of float32 (elems,) each, of node 0 and of node 1.
    """

    def __init__(self, rng):
        topology = parse("ring:2")
        self.table = compile_table(build(topology, "ring"))
        self.book = addresses(self.table, topology)[MINE]
        cluster = JobCluster(
            (self.table,), topology, MEMORY_BYTES, n_active=1, packet=PACKET,
            settings=OTHER_TICKS,
        )  # fmt: skip
        self.other = cluster.cards[OTHER]
        places = zip(ELEMS, SOURCES, RESULTS, strict=True)
        self.jobs = [
            Job(0x700 + k, tensor=k, gen=1, elems=n, source=source, result=result)
            for k, (n, source, result) in enumerate(places)
        ]
        self.gradients = [rng.standard_normal((2, n)).astype(np.float32) for n in ELEMS]
        for job, (_, theirs) in zip(self.jobs, self.gradients, strict=True):
            self.other.memory[job.source : job.source + 4 * job.elems] = theirs.view(np.uint8)
            self.other.post(job)

    @staticmethod
    def driver(access, **options):
        """The `JobDriver` of a `CARD` behind (read, write)."""
        return JobDriver(
            *access, n_ranks=CARD.n_ranks, n_bytes=CARD.n_bytes, n_rows=CARD.n_rows,
            n_chunks=CARD.n_chunks, n_peers=1 << LAYOUT.peer, **options,
        )  # fmt: skip

    def prepare(self, driver):
        """Write settings and the table; no job is posted."""
        bring_up(
            driver, MINE, (self.table,), self.book, LAYOUT, tenant=TENANT,
            memory=(0, MEMORY_BYTES), landing=[LANDING], n_elems=max(ELEMS), packet=PACKET,
            t_probe=T_PROBE,
        )  # fmt: skip

    def post(self, driver):
        """Post both jobs."""
        for job in self.jobs:
            assert driver.post(job)

    def completions(self, driver):
        """The completions that wait, taken."""
        told = []
        while (one := driver.completion()) is not None:
            told.append(one)
        return told

    def meet(self, frames, now):
        """Frames of the card reach the other node; what it sends."""
        out = [one for frame in frames for one in self.other.receive(frame, 0, now)]
        return [frame for _, frame in out + self.other.tick(now)]

    def check(self, told, read):
        """Whether both jobs ended well, and all memory that they wrote holds what it must.

        told : list of Completion. read : function of (address, n_bytes).
        """
        assert [(one.id, one.status) for one in told] == [(job.id, JobStatus.DONE)
                                                          for job in self.jobs]  # fmt: skip
        assert self.other.idle()
        for job, gradients in zip(self.jobs, self.gradients, strict=True):
            wanted = all_reduce(self.table, gradients)[MINE].tobytes()
            whole = -(-4 * job.elems // CARD.n_bytes) * CARD.n_bytes  # results are whole beats
            found = read(job.result, whole + BEHIND)
            assert found[: 4 * job.elems] == wanted
            assert found[whole:] == bytes(BEHIND)
            assert self.other.memory[job.result :][: 4 * job.elems].tobytes() == wanted
