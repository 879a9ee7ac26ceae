"""Three cards with jobs whose register bits change, and what of a card carries values.

A hang is not left to a reset: the watchdog of its context ends a job, or the host aborts it, and
the context is as after reset. What is beside the contexts has to come out of it by itself.
"""

import re
from collections import Counter

import numpy as np
from gradnic.hdl.offload.renewal import CALM
from gradnic.models.offload import bf16
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.job_sums import ends
from gradnic.models.offload.thc_job import residuals
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.collectives import collective
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.interface.job import ALIGN, Job, JobCodec, JobStatus, Kind, Operation, collective_of

from .job_cluster import EVERYTHING, JobCluster

N, PACKET, N_MEMORY = 3, 96, 1 << 17
WATCHDOG, T_PROBE = 3000, 500
LINK = {"faults": LinkFaults(delay=20), "link_bytes": 8}
ABORTED = 6000  # cycles in which all is over, once hosts have aborted
REST = CALM + 256  # between rounds, as between steps of a training
SLOW = 12 * WATCHDOG  # jobs that take longer hang
GOOD = (JobStatus.DONE, JobStatus.SHORT)
FLAGS = ("bad", "length", "checksum", "format", "owner", "config", "codec", "outside")
LANES = re.compile(
    r"\.(add|times|lane|convert|square)\d+\.|\.encoder\.(part|scale)\d+\.(?!\w*_copy)"
    r"|\.decoder\.turns\d*$"
)
"""Registers of one lane's arithmetic, which nothing looks at but the lane; signs of values."""
WORDS = re.compile(
    r"\.(lanes\.(total|[ab]\d+)|combine\d\.([abz]|larger|largest|in_order|late)\d*"
    r"|(?<!core\.)(ring|rows|tag_rows|tails|bank\d|tag_store)\.(part\d\.)?(held\d*|write_data)"
    r"|(store|raw|round|waiting|(de)?compressor\.passed)\.write_data|prefetch\.held\d+"
    r"|(words|image\.queue|scaler\.queue)\.(held\d+|skid)|\w*narrow\.kept"
    r"|(outlet|reduce)\.queue\.(near\d+_\d+|held\d+|write__data)"
    r"|rotate\.(across\d+\.(arrived\d*|(new|adds|out|word|rest|kept)\d+_\d*)|sum\d+_\d+)"
    r"|(\w*\.)*slice\.(held\d+|skid)|(intake\.beats|decoder\.near)\.held\d+"
    r"|beats\.(prefetch\.o__payload|write_data)"
    r"|(contribution|partial)_queue\.word\d*"
    r"|codec\.(data_at\d+|payload\d*|columns|columns_near\d+)"
    r"|spreader\.(routed\d+_\d+|payload_held)|packer\.(kept|row)\d+|words_delay\.delayed\d+"
    r"|compactor\.(routed\d+_\d+|turned\d+)|merger\.(chosen|(row|tag|tail)_bytes\d+))$"
)
"""Registers of payload: gradients, sums, and coded bytes of them; narrower ones of these names are
flags.
"""
BYTE = 8
RAW_KINDS = (
    {"elems": 700, "p_q16": 6500}, {"elems": 500, "codec": JobCodec.INCEPTIONN, "table": 1},
    {"elems": 640, "kind": Kind.BF16, "codec": JobCodec.RAW16, "op": Operation.MEAN, "layer": 5},
    {"elems": 300, "table": 2}, {"elems": 300, "table": 3, "layer": 1},
)  # fmt: skip
THC = {"B": 64}
THC_KINDS = (
    {"elems": 1500, "codec": JobCodec.THC, "feedback": 1},
    {"elems": 500, "codec": JobCodec.INCEPTIONN, "table": 1},
    {"elems": 640, "codec": JobCodec.THC, "kind": Kind.BF16, "table": 1, "layer": 5},
    {"elems": 300, "table": 2},
    {"elems": 200, "codec": JobCodec.THC, "p_q16": 6500, "layer": 1},
)  # fmt: skip


class Ring:
    """Three cards, and rounds of five jobs on them, two at a time, whose results are known.

    pauses : of memory, see `gradnic.sim.offload.pauses.drawn`; None: it does not. thc : three of
    the five jobs are THC's, on cards with it.
    """

    flags = FLAGS

    def __init__(self, seed=1, pauses=None, thc=False):
        self.topology = parse("ring:3")
        sums = build(self.topology, "multitree")
        tables = (build(self.topology, "ring"), sums)
        tables += tuple(collective(sums, name) for name in ("reduce_scatter", "all_gather"))
        self.tables = tuple(map(compile_table, tables))
        self.rng, self.pauses = np.random.default_rng(seed), pauses
        self.kinds = THC_KINDS if thc else RAW_KINDS
        self.options = EVERYTHING
        if thc:
            self.options = {"bf16": True, "gives_up": True, "thc": THC, "feedback": True, "bits": 8}
            self.options |= {"n_active": 3, "n_engines": 2}  # as presets have fewer, too
        self.restart()

    def restart(self):
        """Cards out of reset, with their tables filled."""
        self.n_rounds = 0
        self.cluster = JobCluster(
            self.tables, self.topology, N_MEMORY, 1500, packet=PACKET, t_probe=T_PROBE,
            watchdog=WATCHDOG, **self.options,
        )  # fmt: skip
        if self.pauses is not None:
            self.cluster.pause(self.pauses)

    def reload(self):
        """Hosts write tables and settings anew, as after reset."""
        for node in range(N):
            self.cluster._load(node)

    def round(self, at=None):
        """Five jobs: (cycles, or None if they hang; whether all is as it must be; statuses).

        at : (node, bit, cycles from now) of an upset.
        """
        cluster, jobs, place = self.cluster, [], 0
        cluster.call("rest", REST)
        self.n_rounds += 1
        for k, kind in enumerate(self.kinds):
            number = (len(self.kinds) * self.n_rounds + k) & 0xFFFF
            fields = {"id": number, "tensor": number, "gen": 2, "seed": number, "source": place}
            fields |= {"result": N_MEMORY // 2 + place}
            if kind.get("feedback"):
                fields["residual"] = (N_MEMORY // 4 + 2 * place) // ALIGN
            fields["collective"] = collective_of(self.tables[kind.get("table", 0)])
            jobs.append(Job(**(fields | kind)))
            place += -(-4 * kind["elems"] // ALIGN) * ALIGN
        values = [self.rng.standard_normal((N, job.elems)).astype(np.float32) / 8 for job in jobs]
        before = [self.rng.standard_normal(x.shape).astype(np.float32) / 64 for x in values]
        for node, host in enumerate(cluster.hosts):
            cluster.memory(node)[:] = 0
            host.ended.clear(), host.to_post.clear(), host.posted.clear()
            for job, x, kept in zip(jobs, values, before, strict=True):
                halved = bf16.narrow(x[node]) if job.kind == Kind.BF16 else x[node]
                self._at(node, job.source, halved)[:] = halved
                if job.feedback:
                    self._at(node, job.residual_at(0), kept[node])[:] = kept[node]
                cluster.post(node, job)
        cluster.sent.clear(), cluster._lost.clear()
        if at:
            cluster.call("upset", *at)
        cycles = self._finish(SLOW)
        exact = [self._told(*one) for one in zip(jobs, values, before, strict=True)]
        statuses = {
            (node, job.id): host.ended[job.id].record.status if job.id in host.ended else None
            for node, host in enumerate(cluster.hosts)
            for job in jobs
        }
        return cycles, cycles is not None and all(exact), statuses

    def _finish(self, most):
        """Cycles until all jobs have ended; None after so many."""
        begin = self.cluster.now
        while self.cluster.now - begin < most:
            self.cluster.step(**LINK)
            if self.cluster.idle():
                return self.cluster.now - begin
        return None

    def abort(self):
        """Hosts abort all that has not ended; whether that frees the cards."""
        for node, host in enumerate(self.cluster.hosts):
            host.to_post.clear()
            for id in set(host.posted) - set(host.ended):
                self.cluster._set(node, "id", id)
                self.cluster._change(node, "aborts")
                self.cluster.step(LINK["faults"], n_cycles=64)
        return self._finish(ABORTED) is not None

    def _at(self, node, begin, like):
        """What a node's memory has from an address on, of the size and type of an array: a view."""
        return self.cluster.memory(node)[begin : begin + like.nbytes].view(like.dtype)

    def _told(self, job, x, kept):
        """Whether a job ended on all nodes as it must, but for what was given up."""
        if job.kind == Kind.BF16:
            x = bf16.image(x)
        if job.feedback:
            x = x + kept
            for node, want in enumerate(residuals(self.tables[job.table], job, x, THC)):
                found = self._at(node, job.residual_at(1), want)
                if (found.view(np.uint32) != want.view(np.uint32)).any():
                    return False
        lost = self.cluster.given_up.get((job.tensor, job.gen), {})
        wanted = ends(job, self.tables[job.table], x, lost, packet=PACKET, thc=THC)
        for node, (want, values, here) in enumerate(wanted):
            ended = self.cluster.hosts[node].ended.get(job.id)
            if ended is None or ended.record.status != want.status:
                return False
            values = bf16.narrow(values) if job.kind == Kind.BF16 else values.view(np.uint32)
            if (self._at(node, job.result, values)[here] != values[here]).any():
                return False
        return True

    def tells(self, statuses):
        """Whether a completion says that something is wrong, or is missing."""
        return any(status not in GOOD for status in statuses.values())

    def repeats(self, cycles, usual):
        """Whether the last round took as long as if frames had been sent again."""
        return cycles > usual + T_PROBE

    def counts(self):
        """What all cards counted."""
        return sum((Counter(self.cluster.counts(node)) for node in range(N)), Counter())


def carries(name, width):
    """Whether a register holds values, and says nothing of where, when and whether."""
    plain = re.sub(r"\$\d*", "", name)
    return bool(LANES.search(plain) or (width >= BYTE and WORDS.search(plain)))
