"""Offload cards over Ethernet: the parts of their times, and what codecs make of packets.

A message of the network model is a row's floats to one neighbor. Here it leaves as packets, in runs
with a PROBE behind each and an answer on the way back; frames are stored whole on their way in and
out. `gradnic.models.schedule.card_run` goes through all of that.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gradnic.interface.aggregator import MAX_FRAME

from .wire_ratio import wire_ratio

if TYPE_CHECKING:
    from .network_model import Network

FLOAT = 4  # bytes
PACKET = 352  # floats, at most
INDICES = 1024  # of THC, and sums: in a packet, and under a norm
MOST_THC = 18  # nodes whose sums have 8 bits, as the cards' have
HEAD = 64  # bytes of a frame in front of its values
WIRE_MORE = 24  # bytes of a frame's FCS, preamble and gap
CONTROL = HEAD + WIRE_MORE  # of a PROBE or an answer, on the wire
RUN, NARROW_RUN = 64, 16  # packets at most, and where ports are narrower than the datapath
STORE, NARROW_STORE = 2, 16  # longest frames that a port stores at least (hdl/offload/way_out.py)
SHORT, LONG_TURN = 32, 26  # beats up to which sums go round in LUT RAM, and cycles above that
KEPT, AHEAD = 5, 17  # packets in the compressor's store; beats ahead at its exit (merger.py)
SLACK = 1000  # cycles that an answer takes at most on short links, its card busy
ROOM = 512  # beats of frames that a port keeps on the way in, at least (hdl/frame/intake.py)
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

    def beats(self, n_floats: int) -> int:
        """Of a frame with so many floats; 0 for a card without times."""
        return -(-(HEAD + 4 * n_floats) // self.n_bytes) * (self.turn > 0)

    def made(self, n_floats: int, parts: np.ndarray) -> np.ndarray:
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
    through them, and `gradnic.sim.reproduce.timed_card`, which alone has give.

    From the sources. lead, next_peer, next_run : from a message at the splitter to its first run,
    beside the bits of its chunks' numbers and the chunks of a reduce, and from a run to the next
    peer's, or to the next one (hdl/transport/run_splitter.py). places : of runs under way; frees :
    from an empty one to the run that takes it; look : at one of them; step, skip : the walk's, a
    packet, and one that its mask leaves out; compare : an answer with a place; heard : answers that
    wait (hdl/transport/sender.py). inside :
    packets between the walk and the sums (sender.py 5, packet_steps.py 1). reads, ranges : beats of
    contributions that are read ahead (hdl/axi/dma.py 256, hdl/reduction/reduce.py 15), and
    contributions that wait behind them (hdl/axi/bursts.py). adding : packets that wait for their
    sums, and known : with the one under way and one in a register, those whose values are asked
    for (hdl/reduction/summing.py). raw : packets whose sums wait for the framer
    (hdl/offload/packet_sums.py). heads, addressed : that the framer takes ahead, and what each
    takes (hdl/transport/framer.py). ahead, freed : beats on their way out of a port's store, beside
    those in it, and cycles until the place of one that goes in is free, of which 7 until it is
    offered (hdl/stream/block_fifo.py). control : framer's and gate's for a frame of a head alone;
    others take their beats. divide : each of the locator's two steps, the second of data only
    (hdl/transport/locator.py); located : packets that it is ahead (hdl/offload/core.py). judge,
    hear : the receiver's, of data and of an answer. scan, per_packet : of a PROBE of n packets that
    came up, 14 + 6 n, and a cycle for each bit of its leaves but the first; scan_down : of one that
    came down, which has 8 bits of them; give : a packet that is given up
    (hdl/transport/receiver_states.py, probe_scan.py).

    From captures of a ring of four cards of RTL, memories of 40 cycles. due : from a row's turn
    until its message is at the splitter; taken : until its first run has a place. tell : from the
    walk to a packet's head at the framer. gate : from a frame's last beat on the way in to the
    locator. land : from a packet's last beat to memory to its row's turn, where a burst of `burst`
    beats goes on once it is whole (hdl/axi/dma.py). told : from the
    receiver's verdict on a PROBE to the framer. end : from the last STOP, heard, to ``finished``.

    From a card's registers in a round of THC, memories of 40 cycles. behind : from a packet's last
    sum to the first one of the packet `known` behind it, whose values are asked for then.
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
    located: int = 16
    judge: int = 9
    hear: int = 2
    scan: int = 14
    scan_down: int = 21
    per_packet: int = 6
    give: int = 9
    burst: int = 16
    land: int = 35
    told: int = 3
    heads: int = 3
    addressed: int = 7
    ahead: int = 8
    freed: int = 12
    known: int = 6
    behind: int = 71
    end: int = 4


@dataclass(frozen=True)
class Codec:
    """What a codec makes of a tensor on these cards: sizes.

    packet : values, at most. unit : of so many values are chunks multiples. value, leaf : bytes of
    a value in sums, results and memory, and of one that only its own node has. ratio : of those
    bytes over what a link carries, on average. coded : INCEPTIONN's circuits make it. block :
    values of a norm, whose all-reduce comes before; 0: none. sizes : int (nodes + 1, units of 16
    floats), bytes of the payload that begins there, by the nodes in its sums, row 0 of results;
    None: by `ratio` all.
    """

    packet: int = PACKET
    unit: int = 16
    value: float = FLOAT
    leaf: float = FLOAT
    ratio: float = 1.0
    coded: bool = False
    block: int = 0
    sizes: np.ndarray | None = None

    def held(self, n_values: int) -> int:
        """Bytes of so many in memory."""
        return math.ceil(self.value * n_values)

    def sent(self, n_values: int) -> int:
        """And on a link, a result's."""
        return math.ceil(self.held(n_values) / self.ratio)

    @property
    def wire_ratio(self) -> float:
        """Bytes on links per byte of floats, heads not counted."""
        return self.value / self.ratio / FLOAT + (1 / self.block if self.block else 0)


RAW = Codec()


def probe_time(n_bytes: int, port_bytes: int) -> int:
    """Cycles between PROBEs on links with a round trip of at most `SLACK`, an answer's own time.

    A PROBE waits behind its port's store of whole frames, and so does its answer. One that goes
    again before the answer to the first came costs the receiver as much again, answers come later
    still, and each run is asked for ever more often.
    """
    frames = NARROW_STORE if port_bytes < n_bytes else 0
    return 2 * SLACK + 2 * frames * -(-(CONTROL + FLOAT * PACKET) // port_bytes)


def codec_of(name: str, n_nodes: int) -> Codec:
    """Of one of the codecs of `gradnic.models.schedule.wire_ratio`. ValueError for THC of more
    nodes than sums of 8 bits hold.
    """
    if name == "none":
        return RAW
    if name == "thc":
        if n_nodes > MOST_THC:
            raise ValueError(f"nodes must be at most {MOST_THC} for thc, not {n_nodes}")
        return Codec(packet=INDICES, unit=INDICES, value=1, leaf=0.5, block=INDICES)
    return Codec(ratio=1 / wire_ratio(name, n_nodes), coded=True)


@dataclass(frozen=True)
class CoderTimes:
    """Cycles of a card's compressor and decompressor, which pass a beat of floats each.

    All from the sources; nothing was measured in a cluster. compress : from the last sum to the
    payload's first beat, `Compressor.latency`, less the 7 of the queue of raw packets, whose times
    `CardTimes.first` has; sized : until the framer has the head, which waits for the size that
    comes 14 before that beat. plan : from a payload's first beat at the decompressor to its
    verdict, beside its beats of floats (hdl/inceptionn/planner.py), and seen : from the locator's
    turn to that beat, 9 for the descriptor (packet_decoder.py, decompressor.py). restore : from the
    verdict until the values go to memory, `Decompressor.latency` and the 7 of the queue behind it,
    less 3 from the receiver's decision. image : of a root's sums, `LaneImage.latency`. verdicts :
    that wait for the receiver, at most, and credit : from one that it takes until the next unit may
    begin (hdl/inceptionn/decompressor.py, hdl/stream/admission.py).
    """

    compress: int
    sized: int
    plan: int
    restore: int
    seen: int = 5
    image: int = 5
    verdicts: int = 8
    credit: int = 2

    @classmethod
    def of(cls, n_lanes: int) -> "CoderTimes":
        """With words of so many floats."""
        k = n_lanes.bit_length() - 1
        return cls(compress=20 + 2 * k, sized=7 + 2 * k, plan=26 + k, restore=27 + k)


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
    beats that a port stores. probe : cycles between PROBEs of a run.
    """

    times: CardTimes
    port_bytes: int
    run: int
    store: int
    probe: int
    coder: CoderTimes
    parts: PartTimes = PartTimes()
    codec: Codec = RAW

    @classmethod
    def of(cls, n_lanes: int, port_lanes: int, codec: Codec = RAW) -> "EthernetCards":
        """Of cards with words of so many floats, ports of `port_lanes`."""
        run, frames = (RUN, STORE) if port_lanes == n_lanes else (NARROW_RUN, NARROW_STORE)
        store = 1 << (frames * -(-LONGEST // (4 * n_lanes)) - 1).bit_length()  # a block RAM's
        turn = CardTimes.turn if SHORT * n_lanes >= PACKET else LONG_TURN
        times = CardTimes(4 * n_lanes, turn=turn)
        coder, probe = CoderTimes.of(n_lanes), probe_time(4 * n_lanes, 4 * port_lanes)
        return cls(times, 4 * port_lanes, run, store, probe, coder, codec=codec)

    def probing(self, latency: float, link_bytes: float) -> int:
        """Cycles between PROBEs on ways of `latency` cycles and `link_bytes` a cycle: no sooner
        than answers come, which takes a round trip and what the ports' stores hold on their lines.
        """
        trip = math.ceil(2 * latency)
        store = math.ceil(2 * self.store * self.times.n_bytes / link_bytes)
        return max(self.probe + max(0, trip - SLACK), trip + store)

    @property
    def kept(self) -> int:
        """Packets whose sums wait for the framer."""
        if not self.codec.coded:
            return self.parts.raw
        beats = -(-self.codec.sent(self.codec.packet) // self.times.n_bytes)
        return KEPT + AHEAD // beats

    @property
    def room(self) -> int:
        """Beats that a port keeps of frames on the way in (hdl/frame/intake.py)."""
        return max(ROOM, MAX_FRAME // self.times.n_bytes)

    @property
    def narrow(self) -> bool:
        """Whether ports are narrower than the datapath that they share."""
        return self.port_bytes < self.times.n_bytes

    def suits(self, length: int) -> bool:
        """Whether chunks of `length` floats are one run of whole packets: longer ones wait to be
        stored as a whole, shorter ones are mostly heads.
        """
        packet = self.codec.packet
        return packet <= length <= self.run * packet

    def of_chunk(self, length: int, network: "Network") -> ChunkTimes:
        """`ChunkTimes` of messages of `length` floats."""
        times, codec, packet = self.times, self.codec, min(length, self.codec.packet)
        packets = -(-length // codec.packet)
        runs = -(-packets // self.run)
        wire = codec.sent(length) + packets * (HEAD + WIRE_MORE) + 2 * runs * CONTROL
        floats, sent = codec.held(packet) // FLOAT, codec.sent(packet)
        inside, frame = times.beats(floats), times.beats(sent // FLOAT)
        lead = times.first + inside
        turn = times.locate + times.row - times.first + inside + frame
        if codec.coded:
            coder, parts = self.coder, self.parts
            lead += coder.compress + frame
            turn += coder.seen + coder.plan + inside + coder.restore
            turn -= 2 * parts.divide + parts.judge
        way_in = network.link_latency + -(-(HEAD + sent) // self.port_bytes) + turn
        return ChunkTimes(
            line=wire / network.link_bytes_per_cycle, start=lead, turn=way_in + lead,
            own=times.own + lead,
            made=lambda parts: packets * times.made(floats, np.asarray(parts)),
        )  # fmt: skip
