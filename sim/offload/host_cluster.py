"""Whole cards of RTL with host frames: their hosts may do all by frames, with `FrameHost`.

As `gradnic.sim.offload.card_cluster`, where hosts write and read registers over a bus.
"""

from functools import partial

from gradnic.models.frame.address import Address
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.host_port import carried, default_address

from gradnic.host.framed_card import FramedCard
from gradnic.host.frames import FrameHost
from gradnic.interface.formats import GRADNIC_START
from gradnic.interface.job_card import HOSTED

from .card_cluster import CardCluster

IP = 0xC6336400  # of the card for its host, and of the host behind it
CYCLE = 4e-9  # seconds
POLL = 50  # cycles between two looks whether a frame has come


def card_and_host(node, mac=0):
    """Ends of host frames of this node, whose card got its own address before they began.

    mac : of the card. A card after reset has none yet, and keeps the host address that it has then.
    """
    card = Address(0, default_address(mac), IP)
    return card, Address(0, 0x020000000001 + node, IP + 1, 41000)


class HostCluster(CardCluster):
    """Cards with host frames on one topology; parameters as of `CardCluster`.

    by_frames : False: as a `CardCluster`. True: cards are as after reset until `open` has made them
    ready; then ``drivers`` are `FramedCard`.
    """

    sizes = CardCluster.sizes | {"host": True}

    def __init__(self, *given, by_frames=False, **options):
        self.by_frames = by_frames
        super().__init__(*given, **options)

    def _load(self, node):
        if not self.by_frames:
            super()._load(node)

    def _driver(self, node):
        driver = super()._driver(node)
        driver.map = HOSTED
        return driver

    def open(self, faults=None, **options):
        """Hosts find their cards and make them ready, all by frames. faults : of the cards' links
        from here on. options : of `FrameHost`.
        """
        self._by, self.drivers = self._rules(faults or LinkFaults()), []
        for node in range(len(self.books)):
            link = self._session(node, **options)
            self.drivers.append(FramedCard(link, old=1000 * CYCLE))
            self._bring_up(node)
            link.flush()

    def _session(self, node, **options):
        """A `FrameHost` of this node's card. While it waits cards run, by the rules ``_by``."""
        heard = iter(self._frames(node))
        return FrameHost(
            partial(self._say, node), partial(self._listen, node, heard), timeout=5000 * CYCLE,
            patience=10**6 * CYCLE, clock=lambda: self.now * CYCLE, **options,
        )  # fmt: skip

    def _say(self, node, octets):
        card, host = card_and_host(node, 0 if self.by_frames else self.books[node][node].mac)
        self.send(node, 0, carried(host, card, octets))

    def _frames(self, node):
        """Frames to the host, one after the other; None while there is none."""
        n = 0
        while True:
            frames = self.to_host(node, 0, n)
            n += len(frames)
            yield from frames or (None,)

    def _listen(self, node, heard, seconds):
        end = self.now + max(1, round(seconds / CYCLE))
        while (frame := next(heard)) is None:
            if self.now >= end:
                return None
            self._advance(self._by, min(POLL, end - self.now))
        return frame[GRADNIC_START:]
