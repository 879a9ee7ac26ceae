"""What else is on a network: flows of others up to a load, and links that are down, or go down.

Others come at random to random hosts, with the sizes of a web search cluster: its CDF by DCTCP
(Alizadeh et al., SIGCOMM 2010), as pFabric's simulations have it (SIGCOMM 2013).
"""

import numpy as np

from .transports import PAYLOAD, Dctcp, Pfabric

WARM, COME = 100e3, 1e6  # nanoseconds of others before the jobs begin, and in all
FALL, KNOWN = 20e3, 1e6  # nanoseconds: links go down behind the jobs' begin, and all know
LAST_QUEUE = 7
_PACKETS = (1, 6, 13, 19, 33, 53, 133, 667, 1333, 3333, 6667, 20000)  # of a flow of others, at most
_SHARE = (0, 0.15, 0.2, 0.3, 0.4, 0.53, 0.6, 0.7, 0.8, 0.9, 0.97, 1)


def sizes(rng, n):
    """Packets of `n` flows of others; int64."""
    return np.interp(rng.random(n), _SHARE, _PACKETS).astype(np.int64)


def mean_size():
    """Of one, in packets; float."""
    return float(np.dot(np.diff(_SHARE), np.add(_PACKETS[1:], _PACKETS[:-1]) / 2))


class Others:
    """Flows of others; they come for `COME` nanoseconds from now on, in which most jobs end.

    kind : of the jobs' transport: DCTCP and pFabric are that of others, too; beside ours, which
    leaves them the last of its queues, they have DCTCP. load : of each host's link, on the mean.
    """

    def __init__(self, fabric, kind, load, *, seed=2):
        self.fabric, self.rng = fabric, np.random.default_rng(seed)
        self.transport = Pfabric if kind == "pFabric" else Dctcp
        self.queue = LAST_QUEUE if kind.startswith("ours") else 0
        self.between = fabric.time * mean_size() / (fabric.n_hosts * load)
        self.flows, self.until = [], fabric.now + COME
        self._wait()

    def _wait(self):
        gap = self.rng.exponential(self.between)
        if self.fabric.now + gap < self.until:
            self.fabric.at(self.fabric.now + gap, self._begin)

    def _begin(self):
        source, to = self.rng.choice(self.fabric.n_hosts, 2, replace=False).tolist()
        n_bytes = PAYLOAD * int(sizes(self.rng, 1)[0])
        seed = int(self.rng.integers(1 << 30))
        flow = self.transport(self.fabric, source, to, n_bytes, queue=self.queue, seed=seed)
        self.flows.append(flow)
        flow.start()
        self._wait()


def dead_links(n_links, share):
    """So many of the links between switches, drawn at random: a sorted list of numbers."""
    drawn = np.random.default_rng(4).choice(n_links, round(share * n_links), replace=False)
    return sorted(drawn.tolist())
