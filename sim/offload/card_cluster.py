"""N whole cards of RTL that take jobs: their hosts do all by registers, with `JobDriver`.

As `gradnic.sim.offload.job_cluster`, where hosts are ports of the core. A register is read or
written while all cards run on.
"""

import ctypes

from gradnic.hdl.offload.job_card import JobCard

from gradnic.host import JobDriver
from gradnic.host.bring_up import bring_up

from .cards import JOB, LAYOUT, N_NODES
from .job_cluster import JobCluster

WAIT = 4  # cycles between two looks whether a register was read
FLOOR = 28  # own beats for 256 foreign ones


class CardCluster(JobCluster):
    """Cards with jobs and their registers on one topology; parameters as of `JobCluster`.

    Attributes
    ----------
    drivers : list of `JobDriver`
    """

    card, sizes = JobCard, {"n_nodes": N_NODES}  # its hosts are told how rows are laid out

    def _load(self, node):
        if node == 0:
            self.drivers = []
        self.drivers.append(self._driver(node))
        self._bring_up(node)

    def _driver(self, node):
        return JobDriver(
            lambda address: self._read_word(node, address),
            lambda address, word: self.library.cluster_access(self._self, node, 1, address, word),
            sleep=lambda seconds: None,
        )

    def _bring_up(self, node):
        book, driver, thc = self.books[node], self.drivers[node], {}
        if self.thc_codecs:
            worker = self.thc_codecs[0].worker
            thc["thc"] = {
                "levels": worker.table.tolist(),
                "block": worker.B,
                "clip": worker.t_fixed,
                "index_p": self.thc_codecs[0].index_p,
            }
            thc["scratch"] = [self.n_memory + k * self.scratch_bytes for k in range(self.n_active)]
        bring_up(
            driver, node, self.tables, book, LAYOUT, tenant=JOB, memory=(0, self.n_memory),
            landing=[k * self.landing_bytes for k in range(self.n_engines)],
            n_elems=self.landing * self.n_bytes // 4 // self.n_ranks, packet=self.packet,
            t_probe=self.t_probe, watchdog=self.watchdog, **thc,
        )  # fmt: skip
        exponent, prescale = self.codec.p
        driver.set("codec", exponent=exponent & 127, paper=exponent >> 7, prescale=prescale)
        driver.set("ports", floor=FLOOR)
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
        return not status["idle"] or bool(status["completion"])
