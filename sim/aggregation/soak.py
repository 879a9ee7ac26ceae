"""Millions of packets through the RTL aggregator, each compared with the golden one.

Two kinds of load on three jobs, of THC, INT32 and SwitchML, and all ports at once. *Protocol*:
generations move on, packets come twice, late, too early, or not at all. *Attack*: as many packets
again with forged bytes in their heads, those of the other jobs among them, from all ports; what the
first job's children are sent must be what they are sent without them.
"""

import random
from dataclasses import dataclass

import numpy as np
from gradnic.models.aggregation.aggregator import AggregatorTop

from gradnic.interface.aggregator import COUNTERS
from gradnic.interface.formats import GRADNIC, HEAD_BYTES, UDP, UDP_PORT, Op
from gradnic.interface.switchml import SWITCHML

from . import frames as makers
from .aggregator import AggregatorBench, build_aggregator

N_PORTS = 2
SIZES = {"n_bytes": 16, "n_slots": 8, "n_jobs": 3, "chunk": 128, "n_words": 64}
ROUND = 2000  # packets played at once
PACE = 0.2  # beats a cycle at the busiest input: all together stay below what the unit takes
REORDER = 32  # contributions by which a packet may come too late
FORGED = (*range(6, 12), *range(26, 30), *range(42, 64))  # sender's addresses, gradnic header
POOL = 4096  # bytes from which payloads are cut
PROTECTED = 5  # the job that is attacked
MAC_BYTES = makers.MAC.to_bytes(6, "big")


class Source:
    """Makes contributions fast: a template for each child and slot, another payload each time."""

    def __init__(self, config, seed):
        self.config = config
        self.dice = random.Random(seed)
        rng = np.random.default_rng(seed)
        self.pool = rng.bytes(POOL)
        self.first_gen = {}  # by (job, slot): the generation about to close
        self.templates = {
            (job.job, child, slot): makers.sound(config, rng, job=job, child=child, slot=slot)
            for job in config.jobs
            for child in range(len(job.children))
            for slot in range(job.first_slot, job.first_slot + job.n_slots)
        }
        self.keys = list(self.templates)

    def contribution(self):
        """(port, frame) of a packet near the generation that its slot has reached."""
        key = job, child, slot = self.keys[self.dice.randrange(len(self.keys))]
        members = next(j for j in self.config.jobs if j.job == job)
        if members.kind == "switchml":
            return members.children[child].port, self._switchml(self.templates[key])
        gen = self.first_gen.setdefault((job, slot), self.dice.randrange(65536))
        step = self.dice.random()
        if step < 0.2:
            gen = self.first_gen[job, slot] = (gen + 1) % 65536
        elif step < 0.3:
            gen = (gen + self.dice.choice((-3, -2, -1, -1, 1))) % 65536
        frame = bytearray(self.templates[key])
        frame[46:48] = gen.to_bytes(2, "big")
        frame[43] = frame[43] & ~0x10 | (gen & 1) << 4
        size = len(frame) - HEAD_BYTES
        at = self.dice.randrange(POOL - size)
        if frame[42] & 15 != Op.THC_SUM:  # sums stay those of one leaf
            frame[HEAD_BYTES:] = self.pool[at : at + size]
        return members.children[child].port, bytes(frame)

    def _switchml(self, template):
        """A template with another set, packet number, exponents and values."""
        frame = bytearray(template)
        size = len(frame) - SWITCHML.stop
        at = self.dice.randrange(POOL - size)
        frame[44:48] = self.dice.randbytes(4)
        frame[48] = frame[48] & 0x7F | self.dice.getrandbits(1) << 7
        frame[50:52] = self.dice.randbytes(2)
        frame[SWITCHML.stop :] = self.pool[at : at + size]
        return bytes(frame)

    def attack(self):
        """(port, frame) with none to three bytes of its head forged: from the network, or, if it
        does not claim to be of the protected job, from a worker.
        """
        _, frame = self.contribution()
        forged = bytearray(frame)
        for _ in range(self.dice.randrange(4)):
            at = self.dice.choice(FORGED)
            flip = 1 << self.dice.randrange(8)
            forged[at] = forged[at] ^ flip if self.dice.random() < 0.5 else self.dice.getrandbits(8)
        claims = _is_protected(forged)
        port = self.dice.randrange(N_PORTS if claims else 0, 2 * N_PORTS)
        return port, makers.makers.refreshed(bytes(forged))


@dataclass
class Soak:
    """What a run has shown.

    packets, attacks : contributions, and forged packets. cycles, counters : of the circuit.
    answers : copies that were sent; protected : those of the attacked job, each equal to what it
    gets when left alone.
    """

    packets: int = 0
    attacks: int = 0
    cycles: int = 0
    answers: int = 0
    protected: int = 0
    counters: dict = None

    def summary(self):
        """Everything, for JSON."""
        return dict(self.__dict__)


def soak(packets, attacks, *, seed=1, model=None, on_round=None):
    """Play so many contributions, then so many forged packets among as many contributions.

    on_round(n) is told how many packets each round had. AssertionError at the first frame or
    counter that differs from the golden aggregator, or from what job 5 gets when left alone.

    Returns a `Soak`.
    """
    model = build_aggregator(N_PORTS, **SIZES) if model is None else model
    config = makers.small_config(N_PORTS)
    result = Soak(counters=dict.fromkeys(COUNTERS, 0))
    for total, hostile in ((packets, False), (attacks, True)):
        pair, alone = AggregatorBench(model, config), AggregatorTop(config)
        source, played = Source(config, seed + hostile), 0
        while played < total:
            n = min(ROUND, total - played)
            made = _mixed(source, n, hostile)
            given = {port: [] for port in range(2 * N_PORTS)}
            for port, frame in made:
                given[port].append((frame, False))
            result.cycles += _round(pair, alone, given, result)
            played += n
            result.packets += n
            result.attacks += n if hostile else 0
            if on_round:
                on_round(len(made))
        pair.check_counters()
        for name, count in pair.counters().items():
            result.counters[name] += count
    result.answers = result.counters["answers"]
    return result


def _mixed(source, n, hostile):
    """`n` contributions, each with an attack if `hostile`, in an order that is nearly theirs."""
    dice, made = source.dice, []
    for k in range(n):
        kinds = (source.contribution, source.attack) if hostile else (source.contribution,)
        made += [(k + dice.random() * REORDER, *make()) for make in kinds]
    return [(port, frame) for _, port, frame in sorted(made)]


def _is_protected(frame):
    """Whether a frame, or an answer, is of the protected job."""
    native = UDP_PORT in (UDP.source_port.get(frame), UDP.destination_port.get(frame))
    return native and GRADNIC.job.get(frame) == PROTECTED


def _round(pair, alone, given, result):
    """One round on circuit and twin; returns the circuit's cycles."""
    n_bytes = [sum(len(frame) for frame, _ in given[port]) for port in given]
    # all ports end together, or the generations of one would leave those of the others behind
    paces = [max(0.01, PACE * n / max(n_bytes)) for n in n_bytes]
    stalls = dict(zip(pair.inputs, paces, strict=True))
    out, order, run = pair.run(given, stalls=stalls, probe_cycles=0)
    pair.compare(out, *pair.expected(given, order))
    left = {
        port: iter([x for x in frames if pair.golden.is_ours(x[0], port)])
        for port, frames in given.items()
    }
    wanted = {port: [] for port in range(N_PORTS)}
    for port in order:
        frame, bad = next(left[port])
        if port < N_PORTS and _is_protected(frame):
            for at, answer, _ in alone.receive(frame, port, 0, bad=bad):
                wanted[at].append(answer)
    for port, answers in wanted.items():
        got = [f for at, f, _ in out if at == port and f[6:12] == MAC_BYTES]
        got = [f for f in got if _is_protected(f)]
        if got != answers:
            raise AssertionError(
                f"port {port}: job {PROTECTED} is not answered as if it were alone"
            )
        result.protected += len(answers)
    return run.cycles
