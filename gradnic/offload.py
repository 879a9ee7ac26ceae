"""What model and circuit of the offload card share: subtypes of CONTROL, reasons, registers."""

from enum import IntEnum

MAX_FRAME = 16384  # bytes without FCS; a longer frame is cut here and marked bad


class Subtype(IntEnum):
    """Subtypes of a CONTROL packet."""

    PROBE = 1
    BITMAP = 2
    STOP = 3
    STALE = 4
    NOT_READY = 5


class Drop(IntEnum):
    """Why one of our frames changed nothing; the first that applies is the one counted."""

    NONE = 0
    BAD = 1  # came marked bad
    LENGTH = 2  # truncated, or a length field that disagrees
    CHECKSUM = 3  # IPv4 header or nonzero UDP checksum wrong
    FORMAT = 4  # wrong VER, reserved OP, or SET != GEN[0]
    OWNER = 5  # port, MAC, IPv4 address and SRC are not those of a neighbor
    CONFIG = 6  # not a packet of this tensor, or not from who sends it here
    NOT_READY = 7  # of a round that is not armed
    CODEC = 8  # malformed INCEPTIONN unit
    DUPLICATE = 9  # is here already, or was given up
