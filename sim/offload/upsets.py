"""Offload cards whose register bits change: rounds of a small all-reduce, whose result is known."""

from collections import Counter

import numpy as np
from gradnic.models.offload.cluster import all_reduce
from gradnic.models.offload.codec import Inceptionn
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.interface.formats import GRADNIC, HEAD_BYTES

from .cluster import OffloadCluster

LINK_BYTES = 8  # a cycle: the parser takes a frame of 64 bytes in less than its time on the wire
SLOW = 20  # a round that takes so many times its usual cycles hangs
FLAGS = ("bad", "length", "checksum", "format", "owner", "config", "not_ready", "codec", "outside")


class Pair:
    """Two cards on a link, and rounds of an all-reduce between them."""

    def __init__(self, codec, n_elems, seed=1):
        topology = parse("ring:2")
        self.table, self.topology = compile_table(build(topology, "ring")), topology
        self.codec, self.n_elems = codec, n_elems
        self.rng = np.random.default_rng(seed)
        self.restart()

    def restart(self):
        """Cards out of reset, with their tables filled."""
        self.gen = 0
        self.cluster = OffloadCluster(
            self.table, self.topology, self.n_elems, self.codec, packet=64, t_probe=500
        )

    def round(self, max_cycles=None):
        """One all-reduce of new values: (its result, whether it is as it must be)."""
        self.gen += 1
        x = self.rng.standard_normal((2, self.n_elems)).astype(np.float32)
        result = self.cluster.run(x, gen=self.gen, link_bytes=LINK_BYTES, max_cycles=max_cycles)
        golden, _ = all_reduce(self.cluster.plan, self.codec, x, self._sent, {})
        same = result.replicas.view(np.uint32) == golden.astype(np.float32).view(np.uint32)
        return result, result.cycles is not None and bool(same.all())

    def _sent(self, values):
        """Values as they arrive at the other end of a link."""
        return self.codec.finish(values, 2)

    def counts(self):
        """What both cards counted."""
        return sum((Counter(self.cluster.counts(node)) for node in range(2)), Counter())


def upsets(n, *, seed=1, progress=None):
    """One register bit of a card changes during a round, `n` times; what became of it.

    masked: the round is exact and nothing was counted. repaired: exact, with frames sent again or
    dropped. detected: wrong or not complete, and a reason, a fault or the watchdog says so.
    silent: wrong, and nothing says so. Rounds that hang are counted beside, and how they ended:
    "next round" if the round after is exact, "reset" if that takes a reset.
    """
    pair = Pair(Inceptionn(2, exponent=117, mode="strict", prescale=0), 256, seed)
    pair.round()
    result, exact = pair.round()
    assert exact
    usual = result.cycles
    n_bits = pair.cluster.call("state_bits")
    fates, hangs, lasting = Counter(), Counter(), 0
    for k in range(n):
        node, bit, at = (int(pair.rng.integers(m)) for m in (2, n_bits, usual))
        before = pair.counts()
        pair.cluster.call("upset", node, bit, at)
        result, exact = pair.round(max_cycles=SLOW * usual)
        after = pair.counts()
        noted = any(after[name] != before[name] for name in FLAGS)
        noted |= any(status["fault"] or status["stuck"] for status in result.status)
        whole = (f for f in result.frames[-200:] if len(f) >= HEAD_BYTES)  # a hit card cuts frames
        again = any(GRADNIC.parse(f)["retx"] for f in whole)
        hangs_now = result.cycles is None
        if hangs_now:
            pair.cluster.abort()
        if exact:
            fates["repaired" if noted or again else "masked"] += 1
        else:
            fates["detected" if noted or hangs_now else "silent"] += 1
        _, next_exact = pair.round(max_cycles=SLOW * usual)
        if hangs_now:
            hangs["next round" if next_exact else "reset"] += 1
        if not next_exact:
            lasting += not hangs_now
            pair.restart()
            _, healed = pair.round(max_cycles=SLOW * usual)
            assert healed, f"bit {bit} of card {node}: reset does not heal"
        if progress:
            progress(k + 1, n)
    return {
        "upsets": n,
        "register_bits": int(n_bits),
        "fates": dict(fates),
        "hangs": dict(hangs),
        "wrong_again_until_reset": lasting,
    }
