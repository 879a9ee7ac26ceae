"""Two cards on a link whose register bits change, and rounds whose result is known."""

from collections import Counter

import numpy as np
from gradnic.models.offload.cluster import all_reduce
from gradnic.models.offload.codec import Inceptionn
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.interface.formats import GRADNIC, HEAD_BYTES

from .cluster import OffloadCluster

N_ELEMS = 256
LINK_BYTES = 8  # a cycle: the parser takes a frame of 64 bytes in less than its time on the wire
SLOW = 20  # a round that takes so many times the cycles of the first one hangs
FLAGS = ("bad", "length", "checksum", "format", "owner", "config", "not_ready", "codec", "outside")


class Pair:
    """Two cards on a link, and rounds of an all-reduce between them."""

    flags = FLAGS

    def __init__(self, seed=1):
        topology = parse("ring:2")
        self.table, self.topology = compile_table(build(topology, "ring")), topology
        self.codec = Inceptionn(2, exponent=117, mode="strict", prescale=0)
        self.rng, self.longest = np.random.default_rng(seed), None
        self.restart()

    def restart(self):
        """Cards out of reset, with their tables filled."""
        self.gen = 0
        self.cluster = OffloadCluster(
            self.table, self.topology, N_ELEMS, self.codec, packet=64, t_probe=500
        )

    def reload(self):
        """Hosts write tables and settings anew, as after reset."""
        for node in range(2):
            self.cluster._load(node)

    def round(self, at=None):
        """One all-reduce of new values: (cycles, or None if it hangs; whether it is exact; status
        of each card).

        at : (node, bit, cycles from now) of an upset.
        """
        self.gen += 1
        x = self.rng.standard_normal((2, N_ELEMS)).astype(np.float32)
        if at:
            self.cluster.call("upset", *at)
        result = self.cluster.run(x, gen=self.gen, link_bytes=LINK_BYTES, max_cycles=self.longest)
        self.longest = self.longest or SLOW * result.cycles
        golden, _ = all_reduce(self.cluster.plan, self.codec, x, self._sent, {})
        same = result.replicas.view(np.uint32) == golden.astype(np.float32).view(np.uint32)
        self.frames = result.frames
        return result.cycles, result.cycles is not None and bool(same.all()), result.status

    def _sent(self, values):
        """Values as they arrive at the other end of a link."""
        return self.codec.finish(values, 2)

    def abort(self):
        """Hosts abort the round that hangs; the next one shows whether that frees the cards."""
        self.cluster.abort()
        return True

    def tells(self, statuses):
        """Whether a card says that something is wrong."""
        return any(status["fault"] or status["stuck"] for status in statuses)

    def repeats(self, cycles, usual):
        """Whether frames of the last round were sent again."""
        whole = (f for f in self.frames[-200:] if len(f) >= HEAD_BYTES)  # a hit card cuts frames
        return any(GRADNIC.parse(f)["retx"] for f in whole)

    def counts(self):
        """What both cards counted."""
        return sum((Counter(self.cluster.counts(node)) for node in range(2)), Counter())
