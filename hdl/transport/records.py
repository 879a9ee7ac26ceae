"""Records that the parts of the offload card hand to each other, and what the host has set.

Plumbing: no golden model of its own.
"""

from amaranth.lib import data
from amaranth.utils import ceil_log2

from gradnic.interface.formats import GRADNIC

from ..reduction.codec import Codec
from .tagger import TagRules

UNIT = 16  # elements that SEQ, and all offsets inside, count in
RUN = 64  # packets that one PROBE covers at most
N_NEIGHBORS = 16  # that a card exchanges packets with
N_LAYERS = 64  # of the tagger
BODY = 9  # bytes of a BITMAP: RUN bits, and up to 7 before them
CHUNK_WIDTH = 13
NUMBER_WIDTH = 16  # of a packet within its tensor
OFFSET_WIDTH = 24
ELEMS_WIDTH = 12
LEAVES_WIDTH = 12
BYTES_WIDTH = 40
FLOW_WIDTH = 13
CHECK_WIDTH = 20  # of ARG, below the leaves

Geometry = data.StructLayout(
    {
        "packet": 8,
        "chunk": OFFSET_WIDTH,
        "per_chunk": NUMBER_WIDTH,
        "last_chunk": CHUNK_WIDTH,
        "last_per_chunk": NUMBER_WIDTH,
        "tail": ELEMS_WIDTH,
        "last_tail": ELEMS_WIDTH,
    }
)
"""How a tensor is cut: units of a packet and of a chunk; packets of a chunk; the last chunk that
is not empty and its packets; elements of the last packet of a whole chunk and of the last one."""


Round = data.StructLayout(
    {
        "armed": 1,
        "over": 1,
        "last_tensor": 16,
        "last_gen": 16,
        "job": 8,
        "tensor": 16,
        "gen": 16,
        "geometry": Geometry,
        "codec": Codec,
        "t_probe": 24,
        "tos": 8,
        "spray": 1,
        "rule": 2,
        "tags": TagRules,
        "layer": ceil_log2(N_LAYERS),
        "bf16": 1,
        "at_share": 1,
    }
)
"""The round under way; must not change while ``armed``. over, last_tensor, last_gen: there was a
round before, its tensor and its number. t_probe: cycles between PROBEs. tos: of answers. rule: of
`gradnic.hdl.transport.spray`, with ``spray``. tags, layer: of `gradnic.hdl.transport.tagger`, for
packets and PROBEs. bf16: gradient and result are BF16 in memory. at_share: packets may be given up
once all that a neighbor sends is here but for its share, not by what is missing."""

EPOCH_WIDTH = 8

Context = data.StructLayout({"armed": 1, "tensor": 16, "gen": 16, "epoch": EPOCH_WIDTH})
"""One of several rounds under way; ``epoch`` tells it from those that were in its place before."""

Over = data.StructLayout({"valid": 1, "tensor": 16, "gen": 16})
"""The newest round of a tensor that is over."""

TagWrite = data.StructLayout(
    {"layer": 1, "dscp": 1, "threshold": 1, "address": ceil_log2(N_LAYERS), "value": 9}
)
"""One entry of the tagger's tables: the queue of a layer, the DSCP of 2 * queue + important, or
the threshold."""

Own = data.StructLayout({"mac": 48, "ip": 32, "node": 8, "udp_port": 16})
"""This card."""


def Neighbor(n_ports: int):
    """A node that packets are exchanged with, and the port at which it is heard."""
    return data.StructLayout(
        {"valid": 1, "node": 8, "port": max(1, ceil_log2(n_ports)), "mac": 48, "ip": 32}
    )


def NeighborWrite(n_ports: int):
    """One entry of the table of neighbors, to be written while ``enable`` is 1."""
    fields = {"enable": 1, "index": ceil_log2(N_NEIGHBORS), "neighbor": Neighbor(n_ports)}
    return data.StructLayout(fields)


HEAD_FIELDS = (
    "op", "ph", "imp", "last", "retx", "ecn", "gen", "lc", "slot", "tensor", "seq", "elems", "p0",
    "p1", "arg",
)  # fmt: skip
PacketHead = data.StructLayout(
    {name: GRADNIC[name].width for name in HEAD_FIELDS}
    | {
        "tos": 8,
        "path": 16,
        "neighbor": ceil_log2(N_NEIGHBORS),
        "length": 14,
        "body": 8 * BODY,
    }
)
"""A packet: header fields, the ToS of its frame, its UDP source port, the neighbor that it goes to
or came from, bytes of payload. CONTROL packets have theirs in ``body``. Answers take the ``path``
that they are given."""

PathMark = data.StructLayout({"valid": 1, "path": 16})
"""In cycles of ``valid``: an answer says that its PROBE met congestion on this path."""

Packet = data.StructLayout(
    {
        "probe": 1,
        "ph": 1,
        "terminal": 1,
        "flow": FLOW_WIDTH,
        "neighbor": ceil_log2(N_NEIGHBORS),
        "wait": 8,
        "chunk": CHUNK_WIDTH,
        "number": NUMBER_WIDTH,
        "offset": OFFSET_WIDTH,
        "elems": ELEMS_WIDTH,
        "retx": 1,
        "last": 1,
        "stamp": 32,
    }
)
"""A packet to be made: of a partial sum with ``wait`` contributions, or (``ph``) of the result;
``terminal`` ones stay here. Of a PROBE ``number`` is the first packet and ``elems`` how many."""

Weighed = data.StructLayout({"valid": 1, "number": NUMBER_WIDTH, "important": 1})
"""In cycles of ``valid``: whether a packet that leaves for the first time is important."""

Control = data.StructLayout(
    {
        "subtype": 4,
        "ph": 1,
        "neighbor": ceil_log2(N_NEIGHBORS),
        "seq": 24,
        "elems": 16,
        "share": 8,
        "arg": 32,
        "body": 8 * BODY,
    }
)
"""A CONTROL packet that came for the sender: STOP, BITMAP or NOT_READY. share : of the
packets that came since the last answer, how many were marked, in 1/256."""

Arrival = data.StructLayout({"head": PacketHead, "ready": 1, "stale": 1, "tree": 1, "wrong": 1})
"""A packet that came. ready : it is of the round under way; stale : of one that is over; tree :
TREE is not 0; wrong : data of another codec, for a tree, or of a length that cannot be."""


def Places(n_ranks: int):
    """Who sends a chunk here: up, by rank in the order of addition, with the leaves that it
    stands for and the flow that it names; and down.
    """
    neighbor = ceil_log2(N_NEIGHBORS)
    up = data.StructLayout({"valid": 1, "neighbor": neighbor, "leaves": 8, "flow": FLOW_WIDTH})
    down = data.StructLayout({"valid": 1, "neighbor": neighbor})
    return data.StructLayout({"up": data.ArrayLayout(up, n_ranks), "down": down})


Mark = data.StructLayout({"here": 1, "closed": 1, "packed": 1, "leaves": LEAVES_WIDTH})
"""A packet of one sender: it came; it came or was given up; it holds indices, two in a byte;
contributions in it."""


def Marks(n_ranks: int):
    """All that is known of one packet number: up by rank, and the result."""
    return data.StructLayout({"up": data.ArrayLayout(Mark, n_ranks), "down": Mark})


def Answer(n_ranks: int):
    """What is known of one packet number, and its norms' check."""
    return data.StructLayout({"marks": Marks(n_ranks), "check": CHECK_WIDTH})


CheckWrite = data.StructLayout({"enable": 1, "number": NUMBER_WIDTH, "check": CHECK_WIDTH})
"""The check of a packet's agreed norms, to be set while ``enable`` is 1: the low bits of their
XOR."""

Allowance = data.StructLayout({"enable": 1, "index": ceil_log2(N_NEIGHBORS), "bytes": BYTES_WIDTH})
"""What a neighbor may lose in a round, or with ``Round.at_share`` what must come of it, in bytes
times leaves, to be set while ``enable`` is 1."""

Destination = data.StructLayout({"keep": 1, "down": 1})
"""Where a packet's values go: to the result (``down``), to a landing area, or nowhere."""

OwnPacket = data.StructLayout(
    {
        "chunk": CHUNK_WIDTH,
        "number": NUMBER_WIDTH,
        "offset": OFFSET_WIDTH,
        "elems": ELEMS_WIDTH,
        "leaves": LEAVES_WIDTH,
    }
)
"""A packet of a terminal row: it goes to the result."""

GivenUp = data.StructLayout({"neighbor": ceil_log2(N_NEIGHBORS), "number": NUMBER_WIDTH})
"""A packet that was given up, and who should have sent it."""
