"""N whole cards of RTL that take jobs: their hosts do all by registers, with `JobDriver`.

As `gradnic.sim.offload.job_cluster`, where hosts are ports of the core. A register is read or
written while all cards run on.
"""

import ctypes

from gradnic.hdl.offload.job_card import JobCard
from gradnic.models.transport.tagger import default_dscp

from gradnic.host import JobDriver

from .cluster import JOB, LAYOUT, UNIT
from .host_jobs import load_table
from .job_cluster import JobCluster

WAIT = 4  # cycles between two looks whether a register was read
FLOOR = 28  # own beats for 256 foreign ones


class CardCluster(JobCluster):
    """Cards with jobs and their registers on one topology; parameters as of `JobCluster`.

    Attributes
    ----------
    drivers : list of `JobDriver`
    """

    card = JobCard

    def _load(self, node):
        if node == 0:
            self.drivers = []
        book, n_ports = self.books[node], 1 + max(a.port for b in self.books for a in b.values())
        driver = JobDriver(
            lambda address: self._read_word(node, address),
            lambda address, word: self.library.cluster_access(self._self, node, 1, address, word),
            n_ports=n_ports, n_ranks=self.n_ranks, n_bytes=self.n_bytes, n_rows=self.depth,
            n_chunks=self.n_chunks, n_peers=2**LAYOUT.peer, sleep=lambda seconds: None,
        )  # fmt: skip
        self.drivers.append(driver)
        own = book[node]
        driver.identify(mac=own.mac, ip=own.ip, node=node, tenant=JOB, udp_port=own.udp_port)
        others = [u for u in book if u != node]
        index = {u: k for k, u in enumerate(others)}
        for u in others:
            a = book[u]
            driver.add_neighbor(index[u], node=u, port=a.port, mac=a.mac, ip=a.ip)
        driver.tag(dscps=default_dscp(), threshold=0, back_layer=0)
        if self.thc_codecs:
            worker = self.thc_codecs[0].worker
            driver.set_thc(
                worker.table.tolist(), block=worker.B, clip=worker.t_fixed,
                index_p=self.thc_codecs[0].index_p,
            )  # fmt: skip
            driver.set_scratch(
                [self.n_memory + k * self.scratch_bytes for k in range(self.n_active)],
                self.n_elems, max(one.n for one in self.thc_codecs),
            )  # fmt: skip
        for number, (table, plan) in enumerate(zip(self.tables, self.plans, strict=True)):
            load_table(driver, number, table, plan, node, index, LAYOUT)
        exponent, prescale = self.codec.p
        driver.set("codec", exponent=exponent & 127, paper=exponent >> 7, prescale=prescale)
        driver.set("packet", units=self.packet // UNIT)
        driver.write("t_probe", self.t_probe)
        driver.write("watchdog", self.watchdog)
        driver.set("ports", floor=FLOOR)
        driver.allow_memory(0, 0, self.n_memory)
        driver.set_landing(
            [k * self.landing_bytes for k in range(self.n_active)],
            self.landing * self.n_bytes // 4 // self.n_ranks,
        )
        driver.check()  # all of it is written

    def _read_word(self, node, address):
        """A register's word, when it has come."""
        word = ctypes.c_uint32()
        self.library.cluster_access(self._self, node, 0, address, 0)
        while not self.library.cluster_accessed(self._self, node, ctypes.addressof(word)):
            self.library.cluster_idle(self._self, WAIT)
        return word.value

    def post_now(self, node, job):
        posted = self.drivers[node].post(job)
        self.hosts[node].overruns += not posted
        return posted

    def abort(self, node, id):
        self.drivers[node].abort(id)

    def take(self, node):
        return self.drivers[node].completion()

    def counts(self, node):
        """Counters of the card's registers; but ``outside``: accesses that no memory has."""
        return self.drivers[node].counters() | {"outside": super().counts(node)["outside"]}

    def _waits(self, node):
        status = self.drivers[node].get("status")
        return not status["idle"] or bool(status["told"])
