"""Cards of RTL at UDP sockets or TAP devices: host programs drive the Verilog itself.

`RtlTwin` takes the place of the golden `gradnic.sim.offload.twin.Twin` in its servers.
"""

from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.host_port import default_address

from gradnic.interface.neighbor import CARD_IP

from .host_cluster import HostCluster
from .job_cluster import EVERYTHING

STEP = 256  # cycles between two looks for frames of hosts
WAITING = 1 << 16  # bytes of frames of a host that wait; what is behind them waits in its socket
QUIET = 20_000  # cycles without a frame or a beat, until nothing is under way


class RtlTwin:
    """Cards with jobs and host frames in RTL, on one topology; the ends of their host frames.

    Tables, addresses and settings are written here by registers, and hosts may write them anew by
    frames. Card k has 198.51.100.2k as ``host_ip``. Where nothing is under way cards run a `STEP`
    each time a server looks for frames, so that what they count in cycles, such as copies of an
    EVENT, comes late.

    Parameters
    ----------
    tables, topology : as of `HostCluster`
    n_bytes : int, of memory, all the host's; a tensor may fill it
    lanes : int, floats a cycle
    faults : LinkFaults, between the cards
    options : further ones of `HostCluster`. Unless they say otherwise, cards take all jobs but
        THC's, and have two ports or more, so that one build serves most small networks.

    Attributes
    ----------
    macs : list of int, addresses that the cards have for their hosts
    """

    def __init__(self, tables, topology, n_bytes, *, lanes=4, faults=None, **options):
        self.cluster = HostCluster(
            tables,
            topology,
            n_bytes,
            n_bytes // 4,
            n_bytes=4 * lanes,
            **{"n_ports": 2} | EVERYTHING | options,
        )
        self.cluster.call("keep", 0, 1)
        for node, (host, driver) in enumerate(
            zip(self.cluster.hosts, self.cluster.drivers, strict=True)
        ):
            host.takes_completions = False  # hosts take by ACKs of EVENTs
            driver.write("host_ip", CARD_IP + 2 * node)
        self.faults = faults or LinkFaults(delay=1)
        self.macs = [
            default_address(book[node].mac) for node, book in enumerate(self.cluster.books)
        ]
        self._moved, self._until = 0, 0
        self._waiting = [0 for _ in self.macs]  # bytes of frames that the cards have not yet
        self._takes = 4 * lanes * STEP  # a port takes a beat a cycle

    def busy(self):
        """Whether something was under way a short time ago."""
        return self.cluster.now < self._until

    def rest(self, cycles):
        """Nothing: time goes on by `step` alone."""

    def step(self):
        """Some cycles of all cards: [(node, frame to its host)]."""
        self.cluster.step(self.faults, n_cycles=STEP)
        self._waiting = [max(0, n_bytes - self._takes) for n_bytes in self._waiting]
        frames = [
            (node, frame)
            for node in range(len(self.macs))
            for frame in self.cluster.to_host(node, 0)
        ]
        if frames:
            self.cluster.call("forget")
        moved = self.cluster.call("moved")
        if frames or moved != self._moved:
            self._moved = moved
            self._go_on()
        return frames

    def room(self, node):
        """Whether another frame of card `node`'s host may wait."""
        return self._waiting[node] < WAITING

    def frame(self, node, frame):
        """A frame of card `node`'s host goes in; what the card answers comes out of `step`."""
        self.cluster.send(node, 0, frame)
        self._waiting[node] += len(frame)
        self._go_on()
        return []

    def _go_on(self):
        self._until = self.cluster.now + QUIET
