"""Cards with jobs whose register bits change: what becomes of the jobs, and of those after them.

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
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.collectives import collective
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.interface.job import Job, JobCodec, JobStatus, Kind, Operation, collective_of

from .job_cluster import EVERYTHING, JobCluster

N, PACKET, N_MEMORY = 3, 96, 1 << 16
WATCHDOG, T_PROBE = 3000, 500
ABORTED = 6000  # cycles in which all is over, once hosts have aborted
REST = CALM + 256  # between rounds, as between steps of a training
SLOW = 12 * WATCHDOG  # jobs that take longer hang
GOOD = (JobStatus.DONE, JobStatus.SHORT)
FLAGS = ("bad", "length", "checksum", "format", "owner", "config", "codec", "outside")
LANES = re.compile(r"\.(add|times|lane)\d+\.")
"""Registers of one lane's arithmetic, which nothing looks at but the lane."""
WORDS = re.compile(
    r"\.(lanes\.(total|[ab]\d+)|combine\.([abz]|larger|largest|in_order|late)\d*"
    r"|(?<!core\.)(ring|rows|tag_rows|tails|bank\d|tag_store)\.(part\d\.)?(held\d*|write_data)"
    r"|(store|raw|round|waiting|(de)?compressor\.passed)\.write_data|prefetch\.held\d+"
    r"|(words|image\.queue|scaler\.queue)\.(held\d+|skid)|\w*narrow\.kept"
    r"|(outlet|reduce)\.queue\.(near\d+_\d+|write__data)"
    r"|(\w*\.)*slice\.(held\d+|skid)|(intake\.beats|decoder\.near)\.held\d+"
    r"|beats\.(prefetch\.o__payload|write_data)"
    r"|(contribution|partial)_queue\.word\d*"
    r"|codec\.(data_at\d+|payload\d*|columns|columns_near\d+)"
    r"|spreader\.(routed\d+_\d+|payload_held)|packer\.(kept|row)\d+"
    r"|compactor\.(routed\d+_\d+|turned\d+)|merger\.(chosen|(row|tag|tail)_bytes\d+))$"
)
"""Registers of payload: gradients, sums, and coded bytes of them; narrower ones of these names are
flags.
"""
BYTE = 8
KINDS = (
    {"elems": 700, "p_q16": 6500}, {"elems": 500, "codec": JobCodec.INCEPTIONN, "table": 1},
    {"elems": 640, "kind": Kind.BF16, "codec": JobCodec.RAW16, "op": Operation.MEAN, "layer": 5},
    {"elems": 300, "table": 2}, {"elems": 300, "table": 3, "layer": 1},
)  # fmt: skip


class Ring:
    """Three cards, and rounds of five jobs on them, two at a time, whose results are known.

    pauses : of memory, see `gradnic.sim.offload.pauses.drawn`; None: it does not. apart : as
    `JobCluster` has it.
    """

    def __init__(self, seed=1, pauses=None, apart=False):
        self.topology = parse("ring:3")
        sums = build(self.topology, "multitree")
        tables = (build(self.topology, "ring"), sums)
        tables += tuple(collective(sums, name) for name in ("reduce_scatter", "all_gather"))
        self.tables = tuple(map(compile_table, tables))
        self.rng, self.pauses = np.random.default_rng(seed), pauses
        self.apart = apart
        self.restart()

    def restart(self):
        """Cards out of reset, with their tables filled."""
        self.n_rounds = 0
        self.cluster = JobCluster(
            self.tables, self.topology, N_MEMORY, 1000, packet=PACKET, t_probe=T_PROBE,
            watchdog=WATCHDOG, apart=self.apart, **EVERYTHING,
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
        for k, told in enumerate(KINDS):
            number = (len(KINDS) * self.n_rounds + k) & 0xFFFF
            fields = {"id": number, "tensor": number, "gen": 1, "source": place}
            fields |= {"result": N_MEMORY // 2 + place}
            fields["collective"] = collective_of(self.tables[told.get("table", 0)])
            jobs.append(Job(**(fields | told)))
            place += -(-4 * told["elems"] // 64) * 64
        values = [self.rng.standard_normal((N, job.elems)).astype(np.float32) / 8 for job in jobs]
        for node, host in enumerate(cluster.hosts):
            cluster.memory(node)[:] = 0
            host.ended.clear(), host.to_post.clear(), host.posted.clear()
            for job, x in zip(jobs, values, strict=True):
                octets = (bf16.narrow(x[node]) if job.kind == Kind.BF16 else x[node]).view(np.uint8)
                cluster.memory(node)[job.source : job.source + octets.size] = octets
                cluster.post(node, job)
        cluster.sent.clear(), cluster._lost.clear()
        if at:
            cluster.call("upset", *at)
        cycles = self._finish(SLOW)
        told = [self._told(job, x) for job, x in zip(jobs, values, strict=True)]
        statuses = {
            (node, job.id): host.ended[job.id].record.status if job.id in host.ended else None
            for node, host in enumerate(cluster.hosts)
            for job in jobs
        }
        return cycles, cycles is not None and all(told), statuses

    def _finish(self, most):
        """Cycles until all jobs have ended; None after so many."""
        begin = self.cluster.now
        while self.cluster.now - begin < most:
            self.cluster.step(LinkFaults(delay=20), link_bytes=8)
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
                self.cluster.step(LinkFaults(delay=20), n_cycles=64)
        return self._finish(ABORTED) is not None

    def _told(self, job, x):
        """Whether a job ended on all nodes as it must, but for what was given up."""
        if job.kind == Kind.BF16:
            x = bf16.image(x)
        lost = self.cluster.given_up.get((job.tensor, job.gen), {})
        told = ends(job, self.tables[job.table], x, lost, packet=PACKET)
        for node, (want, values, here) in enumerate(told):
            ended = self.cluster.hosts[node].ended.get(job.id)
            if ended is None or ended.record.status != want.status:
                return False
            values = bf16.narrow(values) if job.kind == Kind.BF16 else values.view(np.uint32)
            octets = self.cluster.memory(node)[job.result : job.result + values.nbytes]
            if (octets.view(values.dtype)[here] != values[here]).any():
                return False
        return True

    def counts(self):
        """What all cards counted."""
        return sum((Counter(self.cluster.counts(node)) for node in range(N)), Counter())


def carries(name, width):
    """Whether a register holds values, and says nothing of where, when and whether."""
    plain = re.sub(r"\$\d*", "", name)
    return bool(LANES.search(plain) or (width >= BYTE and WORDS.search(plain)))


def job_upsets(n, *, seed=1, beside=False, among=None, progress=None):
    """One register bit of a card changes while jobs run, `n` times; what became of it.

    beside : only registers that all contexts share, which no end of a job resets. among : pattern
    of names of registers; ValueError where none has it.

    Fates as of `gradnic.sim.offload.upsets.upsets`; a wrong result is detected, too, where the
    completion says so. Registers that carry values, see `carries`, and others, which control, are
    counted apart. hangs: jobs that neither ended well nor by their watchdogs, and what
    helped: "abort", or "reset". after: rounds that were wrong after that, and what helped: the
    "next" round, tables "written anew", or "reset". resets : of both. found : the registers of
    those, and of what was silent.
    """
    ring = Ring(seed, apart=True)
    ring.round()
    usual, exact, _ = ring.round()
    assert exact
    n_bits = ring.cluster.call("state_bits")
    names = [ring.cluster.call("state_name", bit).decode() for bit in range(n_bits)]
    widths = Counter(names)
    away = r"\bengine\d" if beside else r"(?!)"
    bits = [
        bit
        for bit, name in enumerate(names)
        if not re.search(away, name) and re.search(among or "", name)
    ]
    if not bits:
        raise ValueError(f"no register has {among!r} in its name")
    fates = {"control": Counter(), "datapath": Counter()}
    hangs, after, found = Counter(), Counter(), []
    for k in range(n):
        node, bit, at = (int(ring.rng.integers(m)) for m in (N, len(bits), usual))
        bit = bits[bit]
        name = names[bit]
        kind = "datapath" if carries(name, widths[name]) else "control"
        before = ring.counts()
        cycles, exact, statuses = ring.round((node, bit, at))
        counted = ring.counts()
        noted = any(counted[flag] != before[flag] for flag in FLAGS)
        told = any(status not in GOOD for status in statuses.values())
        if exact:
            fate = "repaired" if noted or cycles > usual + T_PROBE else "masked"
        else:
            fate = "detected" if noted or told or cycles is None else "silent"
        fates[kind][fate] += 1
        healed = cycles is not None
        if not healed:
            healed = ring.abort()
            hangs["abort" if healed else "reset"] += 1
        helped = _after(ring) if healed else "reset"
        if helped:
            after[helped] += helped != "reset" or healed
        if fate == "silent" or helped:
            where = {"node": node, "bit": bit, "cycle": at, "register": name}
            found.append(where | {"fate": fate, "kind": kind, "helped": helped})
        if helped == "reset":
            ring.restart()
            assert ring.round()[1], f"bit {bit} of card {node}, {name}: reset does not heal"
        if progress:
            progress(k + 1, n)
    return {
        "upsets": n,
        "register_bits": len(bits),
        "fates": {kind: dict(told) for kind, told in fates.items()},
        "hangs": dict(hangs),
        "after": {name: number for name, number in after.items() if number},
        "resets": hangs["reset"] + after["reset"],
        "found": found,
    }


def _after(ring):
    """What helps until the jobs of a round are exact again: "" if nothing is wrong."""
    for helped in ("", "next", "written anew"):
        if helped == "written anew":
            ring.reload()
        cycles, exact, _ = ring.round()
        if exact:
            return helped
        if cycles is None and not ring.abort():
            break
    return "reset"
