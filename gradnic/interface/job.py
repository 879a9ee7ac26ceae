"""Jobs of an offload card: descriptor, completion record, and why a descriptor is refused.

A job is one collective on one tensor. Model, circuit and driver share these tables. A record's
bytes are big-endian, as those of packets; word k of a register window is its bytes 4 k to 4 k + 3,
the first in the highest bits.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np

from .formats import Field, Header
from .schedule_table import GATHER, REDUCE, Table

QUEUE = 16  # descriptors that wait
RING = 16  # completions that wait for the host
TABLES = 16  # schedule tables that are loaded at a time
ACTIVE = 4  # jobs side by side, at most
HISTORY = 64  # tensors of which the last finished round is remembered
ALIGN = 64  # bytes: of source and result
MAX_ELEMS = (1 << 28) - 1
THC_PACKET = 1024  # elements of a packet of indices or sums of 8 bits; of wider ones, two. Areas of
# memory for THC are whole multiples of it


class Collective(IntEnum):
    """What is done with the tensors of all nodes."""

    ALL_REDUCE = 0
    REDUCE_SCATTER = 1
    ALL_GATHER = 2
    REDUCE = 3
    BROADCAST = 4


def collective_of(table: Table) -> Collective:
    """The `Collective` that a `gradnic.interface.schedule_table.Table` is for."""
    rows = table.rows
    alone = (rows["sends"] < 0).all(axis=1)
    adds = bool(((rows["op"] == REDUCE) & ~alone).any())
    gathers = bool((rows["op"] == GATHER).any())
    if adds and gathers:
        return Collective.ALL_REDUCE
    one_root = len(np.unique(rows["node"][(rows["op"] == REDUCE) & alone])) == 1
    if adds:
        return Collective.REDUCE if one_root else Collective.REDUCE_SCATTER
    return Collective.BROADCAST if one_root else Collective.ALL_GATHER


class Operation(IntEnum):
    """How contributions become one value."""

    SUM = 0
    MEAN = 1  # the sum times 1 / leaves that are in it
    MAX = 2


class Kind(IntEnum):
    """Type of gradient and result in memory."""

    FP32 = 0
    BF16 = 1


class JobCodec(IntEnum):
    """What packets hold."""

    RAW32 = 0
    RAW16 = 1
    INCEPTIONN = 2
    THC = 3


class JobStatus(IntEnum):
    """How a job ended."""

    DONE = 0
    SHORT = 1  # done, and packets were given up within p
    ABORTED = 2
    REFUSED = 3  # detail: a `Refusal`
    STUCK = 4  # the watchdog has barked; detail: the oldest row that is not out
    MEMORY = 5  # memory answered with an error, an access was outside of the regions, or the table
    # has a setup or a row that no table may have


class Refusal(IntEnum):
    """Why a descriptor is refused; the first that applies is the one told."""

    NONE = 0
    COLLECTIVE = 1
    OPERATION = 2
    KIND = 3
    CODEC = 4  # unknown, not built in, or not with this collective, operation, kind or share
    TABLE = 5  # no such table is loaded, or it is one of another collective
    LENGTH = 6  # no elements, more packets than the card can track, or packets that it cannot make
    ALIGNMENT = 7  # source or result is no multiple of 64
    REGION = 8  # source, result or residuals are not within the registered regions, or a context
    # has no landing area, or no scratch for THC
    SHARE = 9  # packets may miss, and the card gives none up
    ROUND = 10  # gen is not ahead of what is active, or was last, of this tensor
    FEEDBACK = 11  # error feedback without THC, or on a card that has none


def ending(status: int, detail: int) -> str:
    """How a job ended, in words: ``done``, ``refused: codec``, ``stuck at row 3``."""
    word = JobStatus(status).name.lower()
    if status == JobStatus.REFUSED:
        reasons = {reason.value: reason.name.lower() for reason in Refusal}
        return f"{word}: {reasons.get(detail, f'reason {detail}')}"
    return f"{word} at row {detail}" if status == JobStatus.STUCK else word


DESCRIPTOR = Header("descriptor", 0, 40, (
    Field("id", 0, 16, doc="the host's, returned with the completion"),
    Field("collective", 2, 3, 4, doc="0 all_reduce, 1 reduce_scatter, 2 all_gather, 3 reduce, "
          "4 broadcast"),
    Field("op", 2, 2, doc="0 sum, 1 mean, 2 max"),
    Field("kind", 3, 2, 4, doc="type in memory: 0 FP32, 1 BF16"),
    Field("codec", 3, 3, doc="0 raw FP32, 1 raw BF16, 2 INCEPTIONN, 3 THC"),
    Field("layer", 4, 3, 4, doc="class: queue and DSCP of its packets; 0 leaves first"),
    Field("table", 4, 4, doc="which of the loaded schedule tables"),
    Field("feedback", 5, 1, doc="THC: error feedback"),
    Field("half", 5, 1, 1, doc="THC with feedback: half of the residual region that is added; "
          "the other one gets what is lost"),
    Field("p_q16", 6, 16, doc="share that may miss, per hop, in 1/65536"),
    Field("tensor", 8, 16, doc="TENSOR of its packets"),
    Field("gen", 10, 16, doc="GEN of its packets; norms of THC have the one before"),
    Field("elems", 12, 28, doc="elements of the whole tensor"),
    Field("source", 16, 64, doc="byte address of the gradient"),
    Field("result", 24, 64, doc="byte address of the result; may be the source"),
    Field("seed", 32, 32, doc="THC: of shared signs and dice"),
    Field("residual", 36, 32, doc="THC with feedback: byte address of the residual region "
          "/ 64: two halves of whole 64 bytes, FP32"),
))  # fmt: skip
"""A job as it is posted: 10 words. Bits that no field has are written as 0 and not looked at."""

COMPLETION = Header("completion", 0, 28, (
    Field("id", 0, 16, doc="of the descriptor"),
    Field("detail", 2, 16, doc="refused: why; stuck: the row"),
    Field("status", 4, 4, doc="0 done, 1 short, 2 aborted, 3 refused, 4 stuck, 5 memory error"),
    Field("leaves_least", 6, 16, doc="fewest contributions in a packet of the result"),
    Field("leaves_most", 8, 16, doc="most contributions in a packet of the result"),
    Field("given_up", 12, 64, doc="bytes given up here, times the leaves that they stood for"),
    Field("cycles", 20, 64, doc="from post to end"),
))  # fmt: skip
"""How a job ended: 7 words. All but id, detail, status and cycles are 0 unless done or short."""


@dataclass(frozen=True)
class Job:
    """A descriptor by name; fields as in `DESCRIPTOR`. ValueError for one that does not fit."""

    id: int
    tensor: int
    gen: int
    elems: int
    source: int
    result: int
    table: int = 0
    collective: int = Collective.ALL_REDUCE
    op: int = Operation.SUM
    kind: int = Kind.FP32
    codec: int = JobCodec.RAW32
    layer: int = 0
    p_q16: int = 0
    seed: int = 0
    feedback: int = 0
    half: int = 0
    residual: int = 0

    def __post_init__(self) -> None:
        self.pack()

    def residual_at(self, half: int) -> int:
        """Byte address of a half of the residual region."""
        return (self.residual + half * -(-4 * self.elems // ALIGN)) * ALIGN

    def pack(self) -> bytes:
        """The descriptor, 40 bytes."""
        return DESCRIPTOR.pack(**{one.name: getattr(self, one.name) for one in fields(self)})

    @classmethod
    def parse(cls, octets: bytes) -> Any:
        """The job that a descriptor says; ValueError if it has not 40 bytes."""
        _check_size(DESCRIPTOR, octets)
        return cls(**DESCRIPTOR.parse(octets))


@dataclass(frozen=True)
class Completion:
    """A completion record by name; fields as in `COMPLETION`."""

    id: int
    status: int
    detail: int = 0
    given_up: int = 0
    leaves_least: int = 0
    leaves_most: int = 0
    cycles: int = 0

    def pack(self) -> bytes:
        """The record, 28 bytes."""
        return COMPLETION.pack(**{one.name: getattr(self, one.name) for one in fields(self)})

    @classmethod
    def parse(cls, octets: bytes) -> Any:
        """What a record says; ValueError if it has not 28 bytes."""
        _check_size(COMPLETION, octets)
        return cls(**COMPLETION.parse(octets))


def words(octets: bytes) -> list[int]:
    """The 32-bit words of a record, as its register window has them."""
    return [int.from_bytes(octets[k : k + 4], "big") for k in range(0, len(octets), 4)]


def _check_size(header: Header, octets: bytes) -> None:
    if len(octets) != header.n_bytes:
        raise ValueError(f"a {header.name} must have {header.n_bytes} bytes, not {len(octets)}")
