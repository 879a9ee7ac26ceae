"""Offload cards over Ethernet: the parts of their times, and what they make of the network model.

A message of the model is a row's floats to one neighbor. Here it leaves as packets, in runs with a
PROBE behind each and an answer on the way back; frames are stored whole on their way in and out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PACKET = 352  # floats, at most
HEAD = 64  # bytes of a frame in front of its values
WIRE_MORE = 24  # bytes of a frame's FCS, preamble and gap
CONTROL = HEAD + WIRE_MORE  # of a PROBE or an answer, on the wire
RUN, NARROW_RUN = 64, 16  # packets at most, and where ports are narrower than the datapath


@dataclass(frozen=True)
class CardTimes:
    """Cycles of an offload card with words of `n_bytes` that is built for a single round.

    From the sources. locate : the receiver has the next packet so long after one of data
    (hdl/transport/locator.py). probe, per_probed : after a PROBE of n packets 25 + 6 n
    (hdl/transport/receiver.py). walk : per packet of a run until it is offered, and of a mask that
    is sent again (hdl/transport/run_splitter.py, sender.py). make : beyond a packet's beats, or its
    contributions' (hdl/offload/packet_maker.py). turn : a contribution's, where there are several,
    at least (hdl/reduction/summing.py: up to 27; 26 where a packet has 22 beats).

    Measured on rings of four cards of RTL, memories of 40 cycles; docs/internals/offload.md says
    how. first : from the round's start to the first beat, and once more the beats of its frame.
    row : from the last packet that a row waited for, looked up, to the row's first beat, less
    `walk`, and three times the beats of a frame: it is stored by the gate, by the memory, and on
    the way out. answer : from a PROBE, looked up, to its answer. again : from a BITMAP to what it
    asks for, less `walk`. own : from a terminal row's last sum to its gather row's turn. end : from
    the last STOP to ``finished``.
    """

    n_bytes: int = 64
    locate: int = 16
    probe: int = 25
    per_probed: int = 6
    walk: int = 4
    make: int = 1
    turn: int = 26
    first: int = 189
    row: int = 284
    answer: int = 100
    again: int = 230
    own: int = 170
    end: int = 70

    def beats(self, n_floats):
        """Of a frame with so many floats; 0 for a card without times."""
        return -(-(HEAD + 4 * n_floats) // self.n_bytes) * (self.make > 0)

    def made(self, n_floats, parts):
        """Cycles of the maker for a packet that adds up so many contributions; arrays, too."""
        beats = -(-4 * n_floats // self.n_bytes)
        several = parts * np.maximum(beats, self.turn)  # sums go round the adder
        return (np.where(parts > 1, several, beats) + self.make) * (self.make > 0)


@dataclass(frozen=True)
class ChunkTimes:
    """Cycles of one chunk's message: on its link; until the first one's first beat; from its end to
    that of what waits for it; from a root's sums to theirs; made(contributions), of the datapath.
    """

    line: float
    start: int
    turn: int
    own: int
    made: Callable


@dataclass(frozen=True)
class EthernetCards:
    """The nodes of a `gradnic.models.schedule.network_model.Network` that are offload cards.

    port_bytes : of a beat at a port, and of its line. run : packets of a run, at most.
    """

    times: CardTimes
    port_bytes: int
    run: int

    @classmethod
    def of(cls, n_lanes, port_lanes):
        """Of cards with words of so many floats, ports of `port_lanes`."""
        run = RUN if port_lanes == n_lanes else NARROW_RUN
        return cls(CardTimes(4 * n_lanes), 4 * port_lanes, run)

    @property
    def narrow(self):
        """Whether ports are narrower than the datapath that they share."""
        return self.port_bytes < self.times.n_bytes

    def suits(self, length):
        """Whether chunks of `length` floats are runs that the model is right for: one, and of four
        packets at least.
        """
        return 3 * PACKET < length <= self.run * PACKET

    def refine(self, state, topology):
        """Set the cycles of messages and rows that the event loop of `state` starts from."""
        times, traffic = self.times, state.traffic
        length, floats = traffic.chunk_floats, traffic.row_floats
        usual, part = np.minimum(floats, length), floats % length
        packets = floats // length * -(-length // PACKET) + -(-part // PACKET)
        longest = PACKET * self.run
        runs = floats // length * -(-length // longest) + -(-part // longest)
        in_run = np.minimum(-(-usual // PACKET), self.run)  # packets, and of each
        packet = np.minimum(usual, PACKET)
        one = times.made(packet, state.ranks)
        state.adds = state.work = packets * one
        state.first_block = in_run * one
        state.lead = (times.first + times.beats(packet) + times.walk * in_run) * (floats > 0)
        # a terminal row's gather rows are due `own` after its sums; of its lead that hides the rest
        hidden = times.first + times.beats(packet) - times.own
        state.sending = np.where(traffic.terminal_source >= 0, hidden, state.sending)
        self._way_in(state, min(length, PACKET), min(-(-length // PACKET), self.run))
        wire = floats * 4 + packets * (HEAD + WIRE_MORE) + runs * CONTROL
        wire = wire[traffic.message_row].astype(float)
        answers = (runs * CONTROL)[traffic.message_row]
        wire *= 1 + _answered(wire, answers, traffic, topology)
        rates = np.array(state.rate)[traffic.path]
        cycles = np.ceil(wire / rates - 1e-9).astype(np.int64)
        state.cycles = np.maximum(cycles, state.adds[traffic.message_row])

    def of_chunk(self, length, network):
        """`ChunkTimes` of messages of `length` floats."""
        times, packet = self.times, min(length, PACKET)
        packets = -(-length // PACKET)
        in_run = min(packets, self.run)
        runs = -(-packets // self.run)
        wire = 4 * length + packets * (HEAD + WIRE_MORE) + 2 * runs * CONTROL
        lead = times.first + times.beats(packet) + times.walk * in_run
        turn = times.locate + times.row - times.first + 2 * times.beats(packet)
        way_in = network.link_latency + -(-(HEAD + 4 * packet) // self.port_bytes) + turn
        return ChunkTimes(
            line=wire / network.link_bytes_per_cycle, start=lead, turn=way_in + lead,
            own=times.own + times.row - times.first + 2 * times.beats(packet),
            made=lambda parts: packets * times.made(packet, np.asarray(parts)),
        )  # fmt: skip

    def _way_in(self, state, packet, n_packets):
        """From a message's end on the line, behind its PROBE, to the turn of what waits for it; and
        from the last one's to the end of all.
        """
        times, port = self.times, self.port_bytes
        turn = times.locate + times.row - times.first + 2 * times.beats(packet)
        probe = -(-CONTROL // port)
        state.receive = -(-(HEAD + 4 * packet) // port) + turn - -(-(CONTROL + WIRE_MORE) // port)
        told = probe + times.probe + times.per_probed * n_packets + times.answer
        back = probe + state.network.link_latency + -(-HEAD // port) + times.end
        state.end = told + back - (turn - times.locate)


def _answered(wire, answers, traffic, topology):
    """Share of each message's bytes that answers to what comes the other way are on top of it."""
    back = topology.reverse
    if back is None:
        return 0
    n_links = topology.n_links
    load, told = np.zeros(n_links), np.zeros(n_links)
    counts = [np.bincount(traffic.path, what, len(traffic.paths)) for what in (wire, answers)]
    links = [[place for place in path if place < n_links] for path in traffic.paths]
    for path, n, more in zip(links, *counts, strict=True):
        load[path] += n
        told[back[path]] += more
    share = told / np.maximum(1, np.maximum(load, load[back]))
    return np.array([share[path].max() for path in links])[traffic.path]
