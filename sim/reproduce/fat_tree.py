"""A fat-tree of three levels (Al-Fares et al., SIGCOMM 2008), packet by packet as in `fabric`."""

from .fabric import Network


class FatTree(Network):
    """Of switches with k ports: k pods of k/2 switches of k/2 hosts, and k/2 above them in each
    pod; k/2 groups of k/2 cores, a group linked to one such switch of every pod. k^3/4 hosts, and
    between hosts of two pods k^2/4 ways.

    k : even. make, gbps, dead : as of `gradnic.sim.reproduce.fabric.Network`; links are numbered
    edge switch * k/2 + the one above, and behind these the one above * k/2 + the core of its group.
    """

    def __init__(self, k, make, **options):
        if k < 2 or k % 2:
            raise ValueError(f"k must be even and at least 2, not {k!r}")
        self.half = half = k // 2
        self.n_edges = k * half
        super().__init__(self.n_edges * half, half, 2 * self.n_edges * half, make, **options)

    def ports(self, link):
        up = self.n_hosts + link
        return up, up + self.n_links

    def ends(self, link):
        half, below = self.half, self.n_edges * self.half
        if link < below:
            edge, above = divmod(link, half)
            return edge, self.n_edges + edge // half * half + above
        above, core = divmod(link - below, half)
        return self.n_edges + above, 2 * self.n_edges + above % half * half + core

    def _n_ways(self, a, b):
        if a == b:
            return 1
        return self.half if a // self.half == b // self.half else self.half**2

    def path(self, source, to, way):
        """Ports from one host to another; `way` is that of the switch above the edge, and between
        pods that times k/2 and the core of its group.
        """
        half, a, b = self.half, source // self.per_edge, to // self.per_edge
        if a == b:
            return (source, self._last + to)
        if a // half == b // half:
            up, _ = self.ports(a * half + way)
            _, down = self.ports(b * half + way)
            return (source, up, down, self._last + to)
        above, core = divmod(way, half)
        links = [a * half + above, self._above(a, above) + core,
                 self._above(b, above) + core, b * half + above]  # fmt: skip
        ups = [self.ports(link)[0] for link in links[:2]]
        downs = [self.ports(link)[1] for link in links[2:]]
        return (source, *ups, *downs, self._last + to)

    def _above(self, edge, above):
        """First of the links to cores of the switch `above` in the pod of `edge`."""
        return self.n_edges * self.half + (edge // self.half * self.half + above) * self.half
