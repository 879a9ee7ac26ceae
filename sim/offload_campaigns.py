"""Offload cards under what should not happen: broken frames, changed register bits.

Both campaigns play rounds of one small all-reduce between two cards, whose result is known.
"""

import ctypes
from collections import Counter

import numpy as np

from gradnic.formats import ETHERNET, GRADNIC, IPV4, UDP

from ..models.offload_cluster import all_reduce
from ..models.offload_codec import Inceptionn, Raw
from ..models.schedules import build
from ..models.schedules.rows import compile_table
from ..models.topology import parse
from .offload_cluster import OffloadCluster

KINDS = ("one field", "several fields", "bytes of the heads", "cut", "grown", "oversize")
ROUND = 50_000  # broken frames between two rounds
LINK_BYTES = 8  # a cycle: the parser takes a frame of 64 bytes in less than its time on the wire
SETTLES = 4000  # cycles until a card is at rest
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

    def port(self, node):
        return self.cluster.books[node][1 - node].port

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
        return values if type(self.codec) is Raw else self.codec.finish(values, 2)

    def counts(self):
        """What both cards counted."""
        return sum((Counter(self.cluster.counts(node)) for node in range(2)), Counter())


def fields():
    """(first bit, width) of each field of the heads that the breaker works on."""
    heads = (ETHERNET, IPV4, UDP, GRADNIC)
    runs = [(8 * f.stop - f.lsb - f.width, f.width) for head in heads for f in head]
    return np.array(runs, np.int32)


def fuzz(n_frames, *, seed=1, progress=None):
    """Broken frames into a card whose round is complete, with a good round after each part.

    Nothing may be accepted, memory must stay as it is, each frame must be counted by exactly one
    reason, and the next round must be exact. AssertionError with the first of these that fails.
    Returns {"frames", "rounds", "kinds", "reasons"}.
    """
    pair = Pair(Raw(2), 700, seed)
    cluster, node = pair.cluster, 1
    own = fields()
    kinds = (ctypes.c_int64 * len(KINDS))()
    reasons, n_done, n_rounds = Counter(), 0, 0
    while n_done < n_frames:
        result, exact = pair.round()
        assert exact, f"round {pair.gen}, after {n_done} broken frames, is wrong"
        n_rounds += 1
        cluster.call("breaker", seed * 1000 + n_rounds, len(own), own.ctypes.data)
        for sent, frame in zip(result.sent, result.frames, strict=True):
            if sent["node"] != node and GRADNIC.parse(frame)["gen"] == pair.gen:
                cluster.call("specimen", len(frame), frame)
        cluster.call("keep", 0, 0)
        cluster.call("idle", SETTLES)
        before, memory = Counter(cluster.counts(node)), cluster.snapshot(node)
        n = min(ROUND, n_frames - n_done)
        cluster.call("break", node, pair.port(node), n, kinds)
        cluster.call("idle", SETTLES)
        found = Counter(cluster.counts(node))
        found.subtract(before)
        oversize = found.pop("oversize")
        assert not found["accepted"], f"{found['accepted']} broken frames were accepted"
        assert not found["outside"], "an access left the registered regions"
        assert all((a == b).all() for a, b in zip(memory, cluster.snapshot(node), strict=True))
        assert found.total() == n, f"{n} broken frames, {found.total()} counted: {dict(found)}"
        reasons += found + Counter(oversize=oversize)
        n_done += n
        cluster.call("keep", 1, 0)
        if progress:
            progress(n_done, n_frames)
    result, exact = pair.round()
    assert exact, "the round after the last broken frame is wrong"
    named = {name: count for name, count in zip(KINDS, kinds, strict=True)}
    return {"frames": n_done, "rounds": n_rounds + 1, "kinds": named, "reasons": dict(reasons)}


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
        again = any(GRADNIC.parse(f)["retx"] for f in result.frames[-200:])
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
