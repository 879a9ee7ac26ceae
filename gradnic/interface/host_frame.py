"""Host frames: how a host reaches memory, registers and jobs of its own card by Ethernet frames.

Model, circuit and driver share these tables; the rules are in docs/spec/wire.md. A host frame has
the head of all gradnic frames, OP 14, and its destination is the card's host address; numbers in
payloads are big-endian, but for gradients, which are memory's bytes as they are.
"""

from enum import IntEnum

from .formats import HEAD_BYTES, Field, Header
from .job import COMPLETION, DESCRIPTOR

OUI = 0x02676E  # of the host address by default; below it are the low 24 bits of the card's own MAC
ALIGN = 64  # of addresses of READ and WRITE
MAX_PAYLOAD = 8192  # bytes; a multiple of ALIGN
MAX_READ = 65535  # bytes that one READ asks for
MAX_WORDS = 16  # of READ_REG and WRITE_REG
ACK_FRAMES = 16  # WRITEs that one ACK covers, at most
SILENCE = 64  # cycles after which an ACK says what was not acknowledged yet
SEQ_BITS = 24
LEAST_T_EVENT = 256  # cycles, whatever is asked for: frames are looked at in between
T_EVENT = 250_000  # cycles between copies of an EVENT, by default
FORMAT = 1  # version of this format


class Kind(IntEnum):
    """P0: what a host frame asks, or tells."""

    READ_REG = 0
    WRITE_REG = 1
    READ = 2
    WRITE = 3
    DATA = 4
    ACK = 5
    EVENT = 6
    POST = 7
    HELLO = 8


REQUESTS = (Kind.READ_REG, Kind.WRITE_REG, Kind.READ, Kind.WRITE, Kind.POST)
"""Kinds that are numbered by SEQ and carried out in its order."""


class Status(IntEnum):
    """P1 of ACK and DATA: how a request ended."""

    DONE = 0
    OUTSIDE = 1  # of the regions, or of the registers
    UNALIGNED = 2  # READ and WRITE: no multiple of 64; registers: of 4
    MEMORY = 3  # memory answered with an error
    UNKNOWN = 4  # no such kind of request
    FULL = 5  # the queue of jobs: nothing is posted
    STRANGER = 6  # not of the session that is open


class Drop(IntEnum):
    """Why a frame to the host address is dropped without an answer; the first that applies."""

    NONE = 0
    BAD = 1  # came marked bad
    FOREIGN = 2  # not Ethernet, IPv4 without options, whole, UDP, to our port, with our VER
    LENGTH = 3  # truncated, or a length field that disagrees
    CHECKSUM = 4  # IPv4 header or nonzero UDP checksum wrong
    FORMAT = 5  # OP is not 14, or ELEMS and payload are not as the kind wants them


HEAD = Header("host_head", 46, HEAD_BYTES - 46, (
    Field("address", 46, 48, doc="byte address in memory, or of a register"),
    Field("seq", 53, 24, doc="number of the request; of an EVENT: its own"),
    Field("elems", 56, 16, doc="bytes: of the payload, asked for, or the longest payload that "
          "the host takes (HELLO)"),
    Field("kind", 58, 8, doc="0 READ_REG, 1 WRITE_REG, 2 READ, 3 WRITE, 4 DATA, 5 ACK, "
          "6 EVENT, 7 POST, 8 HELLO"),
    Field("status", 59, 8, doc="0 done, 1 outside, 2 unaligned, 3 memory error, 4 unknown, "
          "5 queue full, 6 not of the session"),
    Field("session", 60, 32, doc="all but ACKs of the card: the session"),
    Field("next", 60, 16, doc="ACKs of the card: low bits of the next SEQ that is expected"),
    Field("credits", 62, 16, doc="ACKs of the card: units of 64 bytes that may be on their way "
          "from next on"),
))  # fmt: skip
"""What host frames have in bytes 46 to 63; bytes 44, 45 and 52 are 0 and not looked at."""

OPTIONS = (
    "inc", "bf16", "scale", "thc", "gives_up", "feedback", "maxima", "any_bits", "queues",
)  # fmt: skip
"""Bits of ``options``, lowest first: as in the register ``status``."""

HELLO = Header("hello", 0, 64, (
    Field("format", 0, 16, doc="version of this format: 1"),
    Field("map", 2, 16, doc="version of the register map: 1"),
    Field("beat_bytes", 4, 8, doc="bytes of a beat of the card"),
    Field("n_ports", 5, 8, doc="Ethernet ports"),
    Field("n_active", 6, 8, doc="jobs side by side"),
    Field("n_tables", 7, 8, doc="schedule tables that can be loaded"),
    Field("n_rows", 8, 16, doc="rows of a table, at most"),
    Field("n_chunks", 10, 16, doc="chunks of a table, at most"),
    Field("n_packets", 12, 16, doc="packets of a tensor, at most"),
    Field("n_ranks", 14, 8, doc="ranks of a chunk's places"),
    Field("address_width", 15, 8, doc="bits of a byte address"),
    Field("payload", 16, 16, doc="bytes of payload, at most, in WRITEs of this session and in "
          "its DATA"),
    Field("n_peers", 18, 16, doc="peer indices of a table"),
    Field("credits", 20, 32, doc="bytes of frames that the card has room for"),
    Field("options", 24, 32, doc="bit 0 inc, 1 bf16, 2 scale, 3 thc, 4 gives_up, 5 feedback, "
          "6 maxima, 7 any_bits, 8 queues: what the card was built with"),
    Field("n_nodes", 28, 16, doc="nodes of a table, at most"),
    Field("source0", 32, 64, doc="byte address of region 0, as registered now"),
    Field("source0_bytes", 40, 64, doc="its size"),
    Field("source1", 48, 64, doc="byte address of region 1, as registered now"),
    Field("source1_bytes", 56, 64, doc="its size"),
))  # fmt: skip
"""Payload of the answer to a HELLO."""

EVENT_BYTES = COMPLETION.n_bytes
POST_BYTES = DESCRIPTOR.n_bytes


def well_formed(kind: int, elems: int, payload: int) -> bool:
    """Whether ELEMS and the bytes of payload are as the kind wants them; True for unknown kinds."""
    if kind == Kind.WRITE:
        return payload == elems and elems % 4 == 0 and 0 < elems <= MAX_PAYLOAD
    if kind in (Kind.WRITE_REG, Kind.READ_REG):
        fits = elems % 4 == 0 and 0 < elems <= 4 * MAX_WORDS
        return fits and payload == (elems if kind == Kind.WRITE_REG else 0)
    if kind == Kind.POST:
        return payload == elems == POST_BYTES
    if kind == Kind.READ:
        return payload == 0 and elems > 0
    return payload == 0 or kind not in (Kind.HELLO, Kind.ACK)
