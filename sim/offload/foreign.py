"""Frames of other programs between the hosts of cards, while cards do their own work."""

import ctypes

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

    def end(self):
        """What was made, what came whole and in order, and what came otherwise: three numbers."""
        self._load(0.0)
        self.cluster.call("idle", DRAIN)
        made = good = wrong = 0
        for node, port, _ in self.ends:
            counts, at = (ctypes.c_int64 * 3)(), ctypes.c_void_p()
            self.cluster.call("program_counts", node, port, counts, ctypes.byref(at))
            made, good, wrong = made + counts[0], good + counts[1], wrong + counts[2]
        return made, good, wrong


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
