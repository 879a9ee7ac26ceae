"""Jobs of an offload card in a shell's bench: its host, its memory, and a golden card opposite."""

import numpy as np
from gradnic.models.offload.cluster import addresses
from gradnic.models.offload.jobs import JobCluster, plan_of
from gradnic.models.schedule.all_reduce import all_reduce
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.models.transport.tagger import default_dscp

from gradnic.host import JobDriver
from gradnic.interface import params
from gradnic.interface.job import Job, JobStatus, collective_of
from gradnic.interface.schedule_table import Layout

CARD = params.Jobs(
    n_bytes=16, n_rows=16, n_chunks=4, n_packets=64, n_nodes=4, n_ranks=2, n_active=1, n_tables=1,
    inc=0, gives_up=0,
)  # fmt: skip
LAYOUT = Layout.for_nodes(CARD.n_nodes, ports=4, chunks=1)
MINE, OTHER = 0, 1  # nodes
TENANT, PACKET, SEQ_UNIT = 7, 32, 16
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
        own, other = self.book[MINE], self.book[OTHER]
        driver.identify(mac=own.mac, ip=own.ip, node=MINE, tenant=TENANT, udp_port=own.udp_port)
        driver.add_neighbor(0, node=OTHER, port=other.port, mac=other.mac, ip=other.ip)
        driver.tag(dscps=default_dscp(), threshold=0, back_layer=0)
        plan = plan_of(self.table, SEQ_UNIT * self.table.n_chunks, PACKET)
        load_table(driver, 0, self.table, plan, MINE, {OTHER: 0}, LAYOUT)
        driver.set("packet", units=PACKET // SEQ_UNIT)
        driver.write("t_probe", T_PROBE)
        driver.allow_memory(0, 0, MEMORY_BYTES)
        driver.set_landing([LANDING], max(ELEMS))
        driver.check()

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


def load_table(driver, number, table, plan, node, index, layout):
    """Load a node's part of a schedule table under a number.

    plan : `gradnic.models.offload.plan.Plan` of the table. index : {node: neighbor's number}.
    """
    rows, peers = table.of(node), table.peers[table.peers["node"] == node]
    places = []
    for chunk in range(plan.n_chunks):
        up = {
            told[chunk].rank: (index[u], told[chunk].leaves, told[chunk].flow)
            for u, told in plan.up[node].items()
            if chunk in told
        }
        down = [index[u] for u, chunks in plan.down[node].items() if chunk in chunks]
        places.append((up, down[0] if down else None))
    driver.load_table(
        number, layout.pack(rows), layout.row_bytes, places,
        [index[int(p["to"])] for p in sorted(peers, key=lambda p: p["index"])],
        n_chunks=plan.n_chunks, leaves=plan.n_leaves, repeats=table.repeats,
        stages=int(rows["repeat"].max(initial=0)) if table.period else 1,
        stride=table.n_chunks, collective=collective_of(table),
    )  # fmt: skip
