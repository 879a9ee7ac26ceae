"""Cards with jobs whose hosts reach memory by frames meanwhile; jobs are posted by registers."""

from gradnic.models.offload.cluster import LinkFaults

from .host_cluster import HostCluster


class ReachedCards(HostCluster):
    """As `gradnic.sim.offload.job_cluster.JobCluster`, of whole cards with host frames.

    Attributes
    ----------
    wrong : list of str, what hosts read otherwise than it was, or were refused
    """

    def __init__(self, *given, **options):
        self._links, self.wrong = {}, []
        super().__init__(*given, **options)

    def step(self, faults=None, *, link_bytes=None, memory_latency=40, **more):
        self._by = self._rules(faults or LinkFaults(), link_bytes, memory_latency)
        super().step(faults, link_bytes=link_bytes, memory_latency=memory_latency, **more)

    def reach(self, node, address, octets, write):
        """Let a host read memory: what it writes before, or what must be there. Jobs go on."""
        try:
            if node not in self._links:
                self._links[node] = self._session(node)
            if write:
                self._links[node].store(address, octets)
            if bytes(self._links[node].load(address, len(octets))) != octets:
                self.wrong.append(f"host of node {node} reads other bytes from {address} on")
        except (OSError, ValueError) as error:
            self.wrong.append(f"host of node {node}, from {address} on: {error}")
