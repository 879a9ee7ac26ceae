"""A network of offload cards in ns-3: golden cards, with the times of the RTL's, on `ns3_fabric`.

A card is `gradnic.models.offload.card.Card`: its frames, runs, PROBEs and answers are the
circuit's. The golden card takes no time; `TimedCard` takes the circuit's, part by part. All cards
hang on one switch.
"""

from collections import Counter
from dataclasses import replace

from gradnic.models.offload.cluster import Cluster
from gradnic.models.offload.codec import Raw
from gradnic.models.schedule.ethernet_cards import WIRE_MORE

from gradnic.interface.formats import ETHERNET, GRADNIC, Op
from gradnic.interface.offload import Subtype

from .fabric import Fifo, Word
from .timed_card import RTL, TimedCard

ENDLESS = 1 << 30  # packets


def content(frame):
    """What tells a frame of a link from others there, but for its repetitions; a tuple.

    Of a BITMAP the end of its range: the circuit's begins at a multiple of 8, the golden card's at
    one of 32.
    """
    head = GRADNIC.parse(frame)
    kind = head["p0"] & 15 if head["op"] == Op.CONTROL else None
    first, count = head["seq"], head["elems"]
    if kind == Subtype.BITMAP and not head["p0"] >> 7:
        first, count = first + count, 0
    return ETHERNET.destination.get(frame) & 0xFFFF, head["op"], kind, head["ph"], first, count


class Same:
    """Losses of the frames that another network lost, and of no others.

    sent : (node, content, whether it was lost) of its frames, in order.
    """

    def __init__(self, sent):
        seen = Counter()
        self.lost, self.seen = set(), Counter()
        for node, what, lost in sent:
            seen[node, what] += 1
            if lost:
                self.lost.add((node, what, seen[node, what]))

    def loses(self, node, frame, number):
        """Whether a node's frame is lost; number : of the frame there, which does not matter."""
        key = node, content(frame)
        self.seen[key] += 1
        return (*key, self.seen[key]) in self.lost


class Drawn:
    """Losses by a draw for each frame of a link by its number: `LinkFaults`."""

    def __init__(self, faults):
        if faults.dead:
            raise ValueError(f"dead must be empty here, not {faults.dead!r}")
        self.faults = faults

    def loses(self, node, frame, number):
        return not self.faults.fate((node, 0), number)[0]


class _Frame(Word):
    """A frame of a card."""

    def __init__(self, path, frame, act):
        super().__init__(path, 0, act, (frame,))
        self.n_bytes = len(frame) + WIRE_MORE


class _Host:
    """A card at its link."""

    def __init__(self, network, node, settings, timed):
        self.network, self.node, self.n_frames = network, node, 0
        line = network.gbps * network.nanoseconds / 8
        self.card = TimedCard(settings, timed, network.after, self._leaves, line)

    def _leaves(self, frame):
        network, number = self.network, self.n_frames
        self.n_frames += 1
        to = ETHERNET.destination.get(frame) & 0xFFFF
        path, act = network.fabric.path(self.node, to, 0), network.hosts[to].arrived
        if network.losses.loses(self.node, frame, number):
            path, act = path[:1], network.lose  # it is on the first link, and nowhere else
        network.n_frames += 1
        network.fabric.send(_Frame(path, frame, act))

    def arrived(self, frame):
        """The last byte is here."""
        self.card.arrived(self.network.fabric.now / self.network.nanoseconds, frame)


class Cards:
    """As many cards as a table has nodes, each with one link to one switch without limits.

    table, topology, n_elems : as of `gradnic.models.offload.cluster.Cluster`, FP32 sums. make :
    the class of networks, as `gradnic.sim.reproduce.dlcp.fabric_of` gives it. gbps, hop : of every
    link, nanoseconds. clock : Hz of the cards. p, t_probe : as of the cluster. timed : of
    `timed_card`, `RTL` or `NO_TIMES`.
    """

    def __init__(self, table, topology, n_elems, make, *, gbps=100, clock=250e6, p=0.0,
                 t_probe=4000, timed=RTL):  # fmt: skip
        rows = table.rows.copy()
        rows["bar"] = 1  # the circuit issues strictly in order
        table = replace(table, rows=rows)
        golden = Cluster(table, topology, n_elems, Raw(table.n_nodes), p=p, t_probe=t_probe,
                         segment=timed.run)  # fmt: skip
        self.plan, self.gbps, self.nanoseconds = golden.plan, gbps, 1e9 / clock
        self.fabric = make(1, table.n_nodes, 1, lambda: Fifo(ENDLESS, ENDLESS), gbps=gbps)
        self.hosts = [_Host(self, v, card.settings, timed) for v, card in enumerate(golden.cards)]
        self.cards = [host.card for host in self.hosts]
        self.n_frames = self.n_lost = 0

    def after(self, cycle, act, *what):
        """Call act(cycle, *what) at this cycle, or now."""
        self.fabric.at(max(cycle * self.nanoseconds, self.fabric.now), act, cycle, *what)

    def lose(self, frame):
        self.n_lost += 1

    def run(self, gradients, losses, *, limit=1e9):
        """Cycles until the last card has the sums and its neighbors what they need from it.

        gradients : float32 (n_nodes, n_elems). losses : `Drawn` or `Same`. RuntimeError after
        `limit` nanoseconds.
        """
        self.losses = losses
        for card, mine in zip(self.cards, gradients, strict=True):
            card.arm(1, 1, mine)
            self.after(0, card.turn)
        self.fabric.run(lambda: sum(card.finished is None for card in self.cards), limit)
        return round(max(card.finished for card in self.cards))

    @property
    def n_given_up(self):
        """Packets that no card waits for any more, of those that were sent to it to be summed."""
        rounds = (round_ for card in self.cards for round_ in card.rounds.values())
        return sum(int(((up.sizes > 0) & ~up.here).sum()) for r in rounds for up in r.up.values())
