"""What a contribution may do to its slot, decided before anything changes. Twin of
`gradnic.hdl.aggregation.slot_verdict`.

The generation is compared first: an older one changes nothing, a newer one claims the set, an
equal one must agree with what the claim said. Contributions are counted by a bitmap of children.

Source: docs/internals/aggregator.md (the slot rule); SwitchML and ATP for slots and bitmaps.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gradnic.interface.formats import PARAMETERS, Op

from .jobs import W_CODES, Job

P_CODES = tuple(1 / 2**i for i in range(4, 11))  # p index 0..6; 7 is any other
MOST_LEAVES = 255  # the header has 8 bits for them


class Verdict(StrEnum):
    """What becomes of a contribution, by the name of its counter."""

    COLLISIONS = "collisions"  # the slot is another job's
    CONFIG = "config"  # its parameters are not the job's, or not the slot's
    LENGTH = "length"  # its payload has another length than its elements take
    STALE = "stale"  # of an older generation: its sender is told
    CLAIMS = "claims"  # the first of its generation: the slot is begun anew
    ACCEPTED = "accepted"  # added to what is there
    DUPLICATES = "duplicates"  # is in already
    RETRANSMITTED = "retransmitted"  # is in, and the slot closed: the result is sent again
    LATE = "late"  # is not in, and the slot closed: the result is sent


@dataclass
class Record:
    """What a (slot, set) holds beside its sums: replaced when a newer generation claims it."""

    gen: int
    job: Job
    claim: dict  # header of the first contribution
    opened: int  # time of the claim
    closed: bool = False
    bitmap: int = 0  # of children that are in
    leaves: int = 0
    flags: dict = field(default_factory=lambda: {"last": 0, "ecn": 0})
    exponents: tuple = (-128, -128)

    def enter(self, head: dict[str, int]) -> None:
        """Note that a contribution was added: who, how many leaves, flags, INT32's exponents."""
        self.bitmap |= 1 << head["src"]
        brings = head["p0"] if head["op"] in (Op.NORM, Op.THC_SUM) else 1
        self.leaves = min(self.leaves + brings, MOST_LEAVES)
        for name in self.flags:
            self.flags[name] |= head[name]
        if head["op"] == Op.INT32:
            own = tuple(int8(head[name]) for name in ("p0", "p1"))
            self.exponents = tuple(map(max, self.exponents, own))

    @property
    def key(self) -> tuple[int, int]:
        """Its (slot, set)."""
        return self.claim["slot"], self.gen & 1

    @property
    def is_full(self) -> bool:
        """Whether the children that are in are enough by their number, all or ``n_min``."""
        count, job = self.bitmap.bit_count(), self.job
        partial = job.close == "n_min" and self.claim["op"] != Op.NORM
        return count == len(job.children) or (partial and count >= job.n_min)


def verdict(
    head: dict[str, int], length: int, job: Job, record: Record | None, *, n_words: int = 256
) -> Verdict:
    """What a contribution may do to its slot, the first of `Verdict` that applies.

    head : fields of `gradnic.interface.formats.GRADNIC`, of a child of `job`. length : bytes of its
    payload. record : of the slot and set that it names, None if nothing was claimed there.
    n_words : most elements of a NORM or INT32 packet.
    """
    refused = refusal(head, length, job, n_words=n_words)
    if refused:
        return refused
    age = 1 if record is None else int16(head["gen"] - record.gen)
    if record is None or age > 0:
        return Verdict.CLAIMS
    if age < 0:
        return Verdict.STALE
    if any(head[name] != record.claim[name] for name in _claimed(head)):
        return Verdict.CONFIG
    seen = record.bitmap >> head["src"] & 1
    if record.closed:
        return Verdict.RETRANSMITTED if seen else Verdict.LATE
    return Verdict.DUPLICATES if seen else Verdict.ACCEPTED


def ends(record: Record | None, gen: int) -> bool:
    """Whether a slot whose time was over when it had generation `gen` still is to be closed."""
    return record is not None and not record.closed and record.gen == gen


def switchml_verdict(bitmap: int, awaited: int, worker: int) -> Verdict:
    """What a packet of SwitchML may do to its set: there is no generation, and no refusal.

    bitmap : workers that are in; a set is begun anew when it is empty. awaited : workers that are
    to come, 0 when the sum is whole. Source: p4app-switchML.
    """
    if bitmap >> worker & 1:
        return Verdict.DUPLICATES if awaited else Verdict.RETRANSMITTED
    return Verdict.ACCEPTED if bitmap else Verdict.CLAIMS


def switchml_awaited(awaited: int, n_workers: int) -> int:
    """Workers that are to come after one more of `n_workers` is in."""
    return (awaited or n_workers) - 1


def refusal(head: dict[str, int], length: int, job: Any, *, n_words: int = 256) -> Verdict | None:
    """Why a contribution may not touch a slot, by its job's registers; None if it may.

    job : Job or SwitchmlJob.
    """
    if not job.owns(head["slot"]):
        return Verdict.COLLISIONS
    ops = (Op.THC_IDX, Op.THC_SUM, Op.NORM) if job.kind == "thc" else (Op.INT32,)
    if head["op"] not in ops or not _agrees(head, job, n_words):
        return Verdict.CONFIG
    if length != payload_bytes(head["op"], head["elems"], job):
        return Verdict.LENGTH
    return None


def _agrees(head: dict[str, int], job: Any, n_words: int) -> bool:
    """Whether the packet's parameters are those of the job's registers."""
    op, elems = head["op"], head["elems"]
    if op in (Op.INT32, Op.NORM):
        wanted = elems == job.values if job.kind == "switchml" else True
        return wanted and 1 <= elems <= n_words
    fields = {f.name: f.get(bytes((head["p0"], head["p1"])), origin=58) for f in PARAMETERS[Op(op)]}
    if op == Op.THC_SUM:
        return elems == job.C and W_CODES.index(job.w) == fields["w"]
    return elems == job.C and fields == index_parameters(job)


def _claimed(head: dict[str, int]) -> tuple[str, ...]:
    """Fields that every contribution to one slot must share with the first."""
    common = ("tensor", "seq", "elems", "op", "lc", "tree")
    return (*common, "arg") if head["op"] in (Op.THC_IDX, Op.THC_SUM) else common


def index_parameters(job: Any) -> dict[str, int]:
    """Fields of P0 and P1 of the job's THC_IDX packets: `gradnic.interface.formats.PARAMETERS`."""
    p = P_CODES.index(job.p) if job.p in P_CODES else 7
    return {"bits": job.b - 1, "p": p, "block": (job.B.bit_length() - 1) // 2 - 3, "g": job.g}


def payload_bytes(op: int, elems: int, job: Any) -> int:
    """Payload bytes that `elems` elements of this kind take."""
    if op == Op.THC_IDX:
        return elems * job.b // 8
    return elems * (job.w if op == Op.THC_SUM else 32) // 8


def int16(value: int) -> int:
    """Two's complement of 16 bits: what a difference of generations means."""
    return (value + 0x8000) % 0x10000 - 0x8000


def int8(value: int) -> int:
    """Two's complement of 8 bits."""
    return (value + 0x80) % 0x100 - 0x80
