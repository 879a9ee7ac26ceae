"""Frames of other programs between the hosts of cards, while cards do their own work."""

import ctypes

import numpy as np

DRAIN = 20_000  # cycles in which all that is under way arrives


class Foreign:
    """Programs at both ends of links, one link at most a port, which send each other frames.

    cluster : `gradnic.sim.offload.cards.Cards`. load : share of each link, 0 to 1. least, most :
    bytes of a frame.
    """

    def __init__(self, cluster, load, least=60, most=1514):
        self.cluster, self.sizes = cluster, (least, most)
        self.ends = _ends(cluster.books)
        self._load(load)

    def _load(self, load):
        for node, port, other in self.ends:
            self.cluster.call("programs", node, port, other, load, *self.sizes)

    def told(self):
        """({made, good, wrong} of all ports, {(node, port): cycles at which its frames left}). good
        : came whole and in order; wrong : came otherwise.
        """
        total, times = np.zeros(3, np.int64), {}
        for node, port, _ in self.ends:
            counts, at = (ctypes.c_int64 * 3)(), ctypes.c_void_p()
            n = self.cluster.call("program_counts", node, port, counts, ctypes.byref(at))
            total += np.array(counts)
            raw = (ctypes.c_int64 * n).from_address(at.value) if n else []
            times[node, port] = np.array(raw, np.int64)
        return dict(zip(("made", "good", "wrong"), map(int, total), strict=True)), times

    def drain(self):
        """No more frames; those under way arrive."""
        self._load(0.0)
        self.cluster.call("idle", DRAIN)


def _ends(books):
    """(node, port, the other node) of both ends of links, each port in one of them at most."""
    used, ends = set(), []
    for node, book in enumerate(books):
        for other, address in book.items():
            pair = [(node, address.port), (other, books[other][node].port)]
            if node < other and not used & {*pair}:
                used |= {*pair}
                ends += [(*pair[0], other), (*pair[1], node)]
    return ends
