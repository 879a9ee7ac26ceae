"""Offload cards over Ethernet: the parts of their times.

A message of the network model is a row's floats to one neighbor. Here it leaves as packets, in runs
with a PROBE behind each and an answer on the way back; frames are stored whole on their way in and
out. `gradnic.models.schedule.card_run` goes through all of that.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PACKET = 352  # floats, at most
HEAD = 64  # bytes of a frame in front of its values
WIRE_MORE = 24  # bytes of a frame's FCS, preamble and gap
CONTROL = HEAD + WIRE_MORE  # of a PROBE or an answer, on the wire
RUN, NARROW_RUN = 64, 16  # packets at most, and where ports are narrower than the datapath
STORE, NARROW_STORE = 2, 16  # longest frames that a port stores at least (hdl/offload/way_out.py)
SHORT, LONG_TURN = 32, 26  # beats up to which sums go round in LUT RAM, and cycles above that
LONGEST = HEAD + PACKET * 17 // 4 + 17  # bytes of such a frame


@dataclass(frozen=True)
class CardTimes:
    """Cycles of an offload card with words of `n_bytes` that is built for a single round.

    From the sources. locate : the receiver has the next packet so long after one of data
    (hdl/transport/locator.py). turn : a contribution's, where there are several, at least; 26
    where packets have more than 32 beats (hdl/reduction/summing.py).

    Measured on rings of four cards of RTL, memories of 40 cycles; docs/internals/card_times.md says
    how. first : from the round's start to the first beat, less the beats of its frame. row : from
    the last packet that a row waited for, looked up, to the row's first beat, less three times the
    beats of a frame: it is stored by the gate, by the memory, and on the way out. own : from a
    terminal row's last sum to its gather row's turn.

    `PartTimes` has the same ways part by part.
    """

    n_bytes: int = 64
    locate: int = 16
    turn: int = 21
    first: int = 133
    row: int = 255
    own: int = 33

    def beats(self, n_floats):
        """Of a frame with so many floats; 0 for a card without times."""
        return -(-(HEAD + 4 * n_floats) // self.n_bytes) * (self.turn > 0)

    def made(self, n_floats, parts):
        """Cycles of the maker for a packet that adds up so many contributions; arrays, too.

        RTL needs no turn behind the last of them, so a short packet counts too long here: why that
        stays says docs/internals/card_times.md.
        """
        beats = -(-4 * n_floats // self.n_bytes)
        several = parts * np.maximum(beats, self.turn)  # sums go round the adder
        return np.where(parts > 1, several, beats) * (self.turn > 0)


@dataclass(frozen=True)
class PartTimes:
    """Cycles and sizes of the parts of the same card, as `gradnic.models.schedule.card_run` goes
    through them, and `gradnic.sim.reproduce.timed_card`, which alone has skip and give.

    From the sources. lead, next_peer, next_run : from a message at the splitter to its first run,
    beside the bits of its chunks' numbers and the chunks of a reduce, and from a run to the next
    peer's, or to the next one (hdl/transport/run_splitter.py). places : of runs under way; frees :
    from an empty one to the run that takes it; look : at one of them; step, skip : the walk's, a
    packet, and one that its mask leaves out; compare : an answer with a place; heard : answers that
    wait (hdl/transport/sender.py). inside :
    packets between the walk and the sums (sender.py 5, packet_steps.py 1). reads, ranges : beats of
    contributions that are read ahead (hdl/axi/dma.py 256, hdl/reduction/reduce.py 15), and
    contributions that wait behind them (hdl/axi/bursts.py). adding : packets that wait for their
    sums (hdl/reduction/summing.py). raw : packets whose sums wait for the framer
    (hdl/offload/packet_sums.py). heads, addressed : that the framer takes ahead, and what each
    takes (hdl/transport/framer.py). control : framer's and gate's for a frame of a head alone;
    others take their beats. divide : each of the locator's two steps, the second of data only
    (hdl/transport/locator.py). judge, hear : the receiver's, of data and of an answer. scan,
    per_packet : of a PROBE of n packets that came up, 14 + 6 n, and a cycle for each bit of its
    leaves but the first; scan_down : of one that came down, which has 8 bits of them; give : a
    packet that is given up (hdl/transport/receiver_states.py, probe_scan.py).

    From captures of a ring of four cards of RTL, memories of 40 cycles. due : from a row's turn
    until its message is at the splitter; taken : until its first run has a place. tell : from the
    walk to a packet's head at the framer. gate : from a frame's last beat on the way in to the
    locator. land : from a packet's last beat to memory to its row's turn. told : from the
    receiver's verdict on a PROBE to the framer. end : from the last STOP, heard, to ``finished``.
    """

    due: int = 21
    taken: int = 31
    lead: int = 7
    next_peer: int = 7
    next_run: int = 6
    places: int = 16
    frees: int = 2
    look: int = 4
    step: int = 6
    skip: int = 4
    compare: int = 5
    heard: int = 4
    inside: int = 6
    reads: int = 271
    ranges: int = 4
    adding: int = 4
    raw: int = 4
    tell: int = 32
    control: int = 2
    gate: int = 49
    divide: int = 15
    judge: int = 9
    hear: int = 2
    scan: int = 14
    scan_down: int = 21
    per_packet: int = 6
    give: int = 9
    land: int = 51
    told: int = 3
    heads: int = 3
    addressed: int = 7
    end: int = 4


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

    port_bytes : of a beat at a port, and of its line. run : packets of a run, at most. store :
    beats that a port stores.
    """

    times: CardTimes
    port_bytes: int
    run: int
    store: int
    parts: PartTimes = PartTimes()

    @classmethod
    def of(cls, n_lanes, port_lanes):
        """Of cards with words of so many floats, ports of `port_lanes`."""
        run, frames = (RUN, STORE) if port_lanes == n_lanes else (NARROW_RUN, NARROW_STORE)
        store = 1 << (frames * -(-LONGEST // (4 * n_lanes)) - 1).bit_length()  # a block RAM's
        turn = CardTimes.turn if SHORT * n_lanes >= PACKET else LONG_TURN
        return cls(CardTimes(4 * n_lanes, turn=turn), 4 * port_lanes, run, store)

    @property
    def narrow(self):
        """Whether ports are narrower than the datapath that they share."""
        return self.port_bytes < self.times.n_bytes

    def suits(self, length):
        """Whether chunks of `length` floats are one run of whole packets: longer ones wait to be
        stored as a whole, shorter ones are mostly heads.
        """
        return PACKET <= length <= self.run * PACKET

    def of_chunk(self, length, network):
        """`ChunkTimes` of messages of `length` floats."""
        times, packet = self.times, min(length, PACKET)
        packets = -(-length // PACKET)
        runs = -(-packets // self.run)
        wire = 4 * length + packets * (HEAD + WIRE_MORE) + 2 * runs * CONTROL
        lead = times.first + times.beats(packet)
        turn = times.locate + times.row - times.first + 2 * times.beats(packet)
        way_in = network.link_latency + -(-(HEAD + 4 * packet) // self.port_bytes) + turn
        return ChunkTimes(
            line=wire / network.link_bytes_per_cycle, start=lead, turn=way_in + lead,
            own=times.own + lead,
            made=lambda parts: packets * times.made(packet, np.asarray(parts)),
        )  # fmt: skip
