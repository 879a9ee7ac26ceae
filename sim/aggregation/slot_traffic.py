"""Contributions as a hostile network delivers them: again, late, stale, forged, in any order."""

import numpy as np

from gradnic.interface.formats import Op

from .unit import contribution

KINDS = ("honest", "again", "old", "far", "forged", "cut", "outside")
SHARES = (0.80, 0.06, 0.05, 0.02, 0.04, 0.01, 0.02)


class Traffic:
    """An endless mix of contributions to some jobs' slots.

    What a slot's generation is about (op, elements, tensor, number, tag) follows from the slot and
    the generation, so that honest children agree. Generations of a slot move on as contributions
    come, and start so that they wrap soon.

    jobs : sequence of Job. n_words : most words of a packet. generator : numpy Generator.
    pace : generations of a slot last so many contributions per child on average. slots : most
    slots of a job that are used. first_gen : of the lowest slot; the others' lie behind it.
    """

    def __init__(self, jobs, generator, *, n_words=16, pace=1.3, slots=4, first_gen=0xFFFA):
        self.jobs, self.generator, self.n_words, self.pace = jobs, generator, n_words, pace
        self.slots, self.first_gen = slots, first_gen
        self.gens = {}
        self.sent = []

    def packets(self, n):
        """The next `n` contributions, a list of `slots.Packet`."""
        return [self._packet() for _ in range(n)]

    def _packet(self):
        rng = self.generator
        kind = KINDS[int(np.searchsorted(np.cumsum(SHARES), rng.random() * 0.9999))]
        if kind == "again" and self.sent:
            return self.sent[int(rng.integers(len(self.sent)))]
        job = self.jobs[int(rng.integers(len(self.jobs)))]
        slot = job.first_slot + int(rng.integers(min(self.slots, job.n_slots)))
        if kind == "outside":
            slot = (job.first_slot + int(rng.choice([-1, job.n_slots, 4096]))) % 8192
        gen = self._gen(job, slot, kind)
        packet = self._contribution(job, slot, gen)
        if kind == "forged":
            name, width = [("tensor", 16), ("seq", 24), ("arg", 32), ("lc", 3), ("tree", 8),
                           ("op", 4), ("elems", 16), ("p0", 8), ("p1", 8)][
                int(rng.integers(9))]  # fmt: skip
            packet.head[name] ^= 1 << int(rng.integers(width))
        elif kind == "cut":
            cut = int(rng.integers(0, len(packet.payload) + 1))
            packet.payload = packet.payload[:cut] or b""
        else:
            self.sent = [*self.sent[-40:], packet]
        return packet

    def _gen(self, job, slot, kind):
        rng = self.generator
        gen = self.gens.setdefault((job.job, slot), (self.first_gen + slot % 4) % 65536)
        if kind == "old":
            return (gen - int(rng.integers(1, 5))) % 65536
        if kind == "far":
            return (gen + int(rng.choice([2, 3, 0x7FFF, 0x8000, 0x8001]))) % 65536
        if rng.random() < 1 / (self.pace * len(job.children)):
            gen = self.gens[job.job, slot] = (gen + 1) % 65536
        return gen if rng.random() < 0.8 else (gen - 1) % 65536

    def _contribution(self, job, slot, gen):
        rng, key = self.generator, (gen * 0x6C8F + slot * 0x4D35 >> 3) & 0xFFFF
        if job.kind == "int32":
            op = Op.INT32
        else:
            op = (Op.THC_IDX, Op.THC_IDX, Op.THC_SUM, Op.NORM)[key % 4]
        words = op in (Op.INT32, Op.NORM)
        n = 1 + key % self.n_words if words else job.C
        top = 2 ** {Op.THC_IDX: job.b, Op.THC_SUM: job.w}.get(op, 32)
        values = rng.integers(0, top, n)
        corner = rng.random()
        if corner < 0.15:
            values[:] = top - 1
        elif corner < 0.3:
            values = values * 0 + rng.choice([0, 1, top // 2, top // 2 - 1])
        elif corner < 0.6 and op == Op.THC_SUM:
            values = values % (top // 4)
        fields = {
            "tensor": (gen >> 1 & 7) * 0x9D6B & 0xFFFF,
            "seq": key * 0x9E3779 & 0xFFFFFF,
            "lc": key & 7,
            "tree": key * 0x95 >> 3 & 0xFF,
            "arg": key * 65537 if op in (Op.THC_IDX, Op.THC_SUM) else int(rng.integers(2**32)),
            "last": int(rng.random() < 0.1),
            "ecn": int(rng.random() < 0.1),
            "ovf": int(rng.random() < 0.03),
        }
        if op == Op.INT32:
            fields |= {"p0": int(rng.integers(256)), "p1": int(rng.integers(256))}
        elif op != Op.THC_IDX:
            fields["p0"] = int(rng.choice([0, 1, 1, 1, 2, rng.integers(256)]))
        child = int(rng.integers(len(job.children)))
        return contribution(job, child, op=op, gen=gen, slot=slot, values=values, **fields)
