"""Slot engine: sums contributions exactly once, and answers. Twin of
`gradnic.hdl.aggregation.unit`.

A slot belongs to one job and holds one chunk's sum. Its generation is compared before anything
changes, so a late copy of an old packet can never touch a newer sum: unlike SwitchML's one-bit
shadow set, the rule needs no ordered paths. Contributions are counted by a bitmap of children.

Sources: THC (NSDI 2024), the switch's lookup and add; SwitchML and ATP for slots and multicast.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradnic.interface.formats import PARAMETERS, Op

from ..thc.worker import pack, solve_table, unpack
from .jobs import W_CODES, Job

STALE = 4  # subtype of a CONTROL packet
P_CODES = tuple(1 / 2**i for i in range(4, 11))  # p index 0..6; 7 is any other
MOST_LEAVES = 255  # the header has 8 bits for them


@dataclass
class Slot:
    """State of one (slot, set): all of it is replaced when a newer generation claims it."""

    gen: int
    job: Job
    claim: dict  # header of the first contribution
    opened: int  # time of the claim
    sums: np.ndarray
    closed: bool = False
    bitmap: int = 0
    leaves: int = 0
    flags: dict = field(default_factory=lambda: {"last": 0, "ecn": 0, "ovf": 0})
    exponents: tuple = (-128, -128)


class SlotEngine:
    """Heads and payloads in; answers, each with the children that get it, out.

    Parameters
    ----------
    jobs : sequence of Job
    n_words : int
        Most elements of a NORM or INT32 packet.

    Attributes
    ----------
    slots : dict
        `Slot` by (slot, set).
    counters : collections.Counter
        ``accepted``, ``claims``, ``abandoned`` (claimed while open), ``duplicates``, ``stale``,
        ``late``, ``retransmitted``, ``partial``, ``overflow``, and refusals: ``collisions``,
        ``config``, ``length``.
    """

    def __init__(self, jobs: Sequence[Job], *, n_words: int = 256) -> None:
        self.jobs = {job.job: job for job in jobs}
        self.n_words = n_words
        self.tables = {
            job.job: np.array(solve_table(job.b, job.g, job.p)) for job in jobs if job.kind == "thc"
        }
        self.slots = {}
        self.counters = Counter()
        self.accepted_bytes = {}  # by job: (tensor, bytes) of the tensor that arrives

    def contribute(
        self, head: dict[str, int], payload: bytes, now: int
    ) -> list[tuple[dict, bytes]]:
        """Take one contribution; return its answers, a list of (head, payload).

        head : dict of header fields (`gradnic.interface.formats.GRADNIC`), ``ecn`` or-ed with an IP
        congestion mark; its job must exist and its src be a child. payload : bytes. now : int.
        An answer's head has ``children``, the bitmap of who gets a copy, beside header fields.
        """
        job = self.jobs[head["job"]]
        reason = self._refusal(head, payload, job)
        if reason:
            self.counters[reason] += 1
            return []
        key = (head["slot"], head["gen"] & 1)
        slot = self.slots.get(key)
        age = 1 if slot is None else _int16(head["gen"] - slot.gen)
        if slot is not None and age < 0:
            self.counters["stale"] += 1
            return [_stale(head, slot)]
        if slot is None or age > 0:
            if slot is not None and not slot.closed:
                self.counters["abandoned"] += 1
            self.counters["claims"] += 1
            empty = np.zeros(head["elems"], np.int64)
            slot = self.slots[key] = Slot(head["gen"], job, head, now, empty)
        elif any(head[f] != slot.claim[f] for f in _claimed(head)):
            self.counters["config"] += 1
            return []
        bit = 1 << head["src"]
        if slot.closed:
            self.counters["retransmitted" if slot.bitmap & bit else "late"] += 1
            return [_result(slot, bit, retransmitted=True)]
        if slot.bitmap & bit:
            self.counters["duplicates"] += 1
            return []
        self._add(slot, head, payload, job)
        slot.bitmap |= bit
        self.counters["accepted"] += 1
        return self._closed_by(slot, head, job)

    def tick(self, now: int) -> list[tuple[dict, bytes]]:
        """Close every open slot whose deadline has passed, lowest (slot, set) first."""
        out = []
        for key in sorted(self.slots):
            slot = self.slots[key]
            waited = (now - slot.opened) % 2**32
            due = slot.job.deadline and waited >= slot.job.deadline
            if due and not slot.closed and slot.claim["op"] != Op.NORM:
                out += self._close(slot)
        return out

    def clear(self, job: int) -> None:
        """Forget all that the slots of job number `job` hold."""
        owner = self.jobs[job]
        for key in [key for key in self.slots if owner.owns(key[0])]:
            del self.slots[key]
        self.accepted_bytes.pop(job, None)

    def _refusal(self, head: dict[str, int], payload: bytes, job: Job) -> str | None:
        """Why a contribution may not touch a slot, or None."""
        if not job.owns(head["slot"]):
            return "collisions"
        ops = (Op.THC_IDX, Op.THC_SUM, Op.NORM) if job.kind == "thc" else (Op.INT32,)
        if head["op"] not in ops or not self._agrees(head, job):
            return "config"
        if len(payload) != payload_bytes(head["op"], head["elems"], job):
            return "length"
        return None

    def _agrees(self, head: dict[str, int], job: Job) -> bool:
        """Whether the packet's parameters are those of the job's registers."""
        op, elems = head["op"], head["elems"]
        if op in (Op.INT32, Op.NORM):
            return 1 <= elems <= self.n_words
        fields = {f.name: f.get(bytes((head["p0"], head["p1"])), origin=58)
                  for f in PARAMETERS[Op(op)]}  # fmt: skip
        if op == Op.THC_SUM:
            return elems == job.C and W_CODES.index(job.w) == fields["w"]
        return elems == job.C and fields == index_parameters(job)

    def _add(self, slot: Slot, head: dict[str, int], payload: bytes, job: Job) -> None:
        """Add one contribution to the slot's sums, lane by lane."""
        op = head["op"]
        if op == Op.NORM:
            slot.sums = np.maximum(slot.sums, np.frombuffer(payload, "<u4"))
        elif op == Op.INT32:
            first = slot.bitmap == 0
            values = np.frombuffer(payload, "<i4").astype(np.int64)
            exact = values if first else slot.sums + values
            wrapped = (exact + 2**31) % 2**32 - 2**31
            if (exact != wrapped).any():
                self._overflow(slot)
            saturated = np.clip(exact, -(2**31), 2**31 - 1)
            slot.sums = saturated if job.overflow == "saturate" else wrapped
            own = tuple(_int8(head[name]) for name in ("p0", "p1"))
            slot.exponents = tuple(map(max, slot.exponents, own))
        else:
            width = job.b if op == Op.THC_IDX else job.w
            values = unpack(payload, width, job.C)
            values = self.tables[job.job][values] if op == Op.THC_IDX else values.astype(np.int64)
            slot.sums = slot.sums + values
            if slot.sums.max() >= 2**job.w:
                self._overflow(slot)
                slot.sums = np.minimum(slot.sums, 2**job.w - 1)
        leaves = head["p0"] if op in (Op.NORM, Op.THC_SUM) else 1
        slot.leaves = min(slot.leaves + leaves, MOST_LEAVES)
        for name in slot.flags:
            slot.flags[name] |= head[name]

    def _overflow(self, slot: Slot) -> None:
        if not slot.flags["ovf"]:
            self.counters["overflow"] += 1
        slot.flags["ovf"] = 1

    def _closed_by(self, slot: Slot, head: dict[str, int], job: Job) -> list[tuple[dict, bytes]]:
        """Results that leave because this contribution completed something."""
        count = slot.bitmap.bit_count()
        enough = self._tensor_is_enough(head, job)
        partial = job.close == "n_min" and count >= job.n_min and head["op"] != Op.NORM
        out = self._close(slot) if count == len(job.children) or partial else []
        if enough:
            for key in sorted(self.slots):
                other = self.slots[key]
                same = other.job is job and other.claim["tensor"] == head["tensor"]
                if same and not other.closed and other.claim["op"] != Op.NORM:
                    out += self._close(other)
        return out

    def _tensor_is_enough(self, head: dict[str, int], job: Job) -> bool:
        """Count the tensor's accepted bytes; whether they close its open slots."""
        if job.close != "bounded" or head["op"] == Op.NORM:
            return False
        tensor, total = self.accepted_bytes.get(job.job, (head["tensor"], 0))
        total = total if tensor == head["tensor"] else 0
        total += payload_bytes(head["op"], head["elems"], job)
        self.accepted_bytes[job.job] = (head["tensor"], total)
        return total >= job.need_bytes

    def _close(self, slot: Slot) -> list[tuple[dict, bytes]]:
        slot.closed = True
        if slot.bitmap.bit_count() < len(slot.job.children):
            self.counters["partial"] += 1
        return [_result(slot, 2 ** len(slot.job.children) - 1)]


def _result(slot: Slot, children: int, *, retransmitted: bool = False) -> tuple[dict, bytes]:
    """A closed slot's result for some children: (head, payload)."""
    job, claim = slot.job, slot.claim
    head = _echo(claim) | {
        "children": children,
        "op": Op.THC_SUM if claim["op"] == Op.THC_IDX else claim["op"],
        "retx": int(retransmitted),
        "part": int(slot.bitmap.bit_count() < len(job.children)),
        "p0": slot.leaves,
        "p1": 0,
        "arg": slot.bitmap,
        **slot.flags,
    }
    if claim["op"] == Op.NORM:
        return head, slot.sums.astype("<u4").tobytes()
    if claim["op"] == Op.INT32:
        head["p0"], head["p1"] = (e & 0xFF for e in slot.exponents)
        return head, slot.sums.astype("<i4").tobytes()
    head["p1"] = W_CODES.index(job.w) << 6
    missing = max(job.leaves - slot.leaves, 0) * job.g // 2 if job.root else 0
    return head, pack(np.minimum(slot.sums + missing, 2**job.w - 1), job.w)


def _stale(head: dict[str, int], slot: Slot) -> tuple[dict, bytes]:
    """Tell a sender that its generation is gone; ARG holds the one that the slot has."""
    flags = dict.fromkeys(("last", "retx", "ovf", "ecn", "part"), 0)
    answer = {"op": Op.CONTROL, "p0": STALE, "p1": 0, "arg": slot.gen, "elems": 0}
    return _echo(head) | flags | answer | {"children": 1 << head["src"]}, b""


def _echo(head: dict[str, int]) -> dict[str, int]:
    """Fields that an answer takes over."""
    return {f: head[f] for f in ("job", "gen", "lc", "slot", "tensor", "tree", "seq", "elems")}


def _claimed(head: dict[str, int]) -> tuple[str, ...]:
    """Fields that every contribution to one slot must share with the first."""
    common = ("tensor", "seq", "elems", "op", "lc", "tree")
    return (*common, "arg") if head["op"] in (Op.THC_IDX, Op.THC_SUM) else common


def index_parameters(job: Any) -> dict[str, int]:
    """Fields of P0 and P1 of the job's THC_IDX packets: `gradnic.interface.formats.PARAMETERS`."""
    p = P_CODES.index(job.p) if job.p in P_CODES else 7
    return {"bits": job.b - 1, "p": p, "block": (job.B.bit_length() - 1) // 2 - 3, "g": job.g}


def payload_bytes(op: int, elems: int, job: Job) -> int:
    """Payload bytes that `elems` elements of this kind take."""
    widths: dict[int, int] = {Op.THC_IDX: job.b, Op.THC_SUM: job.w}
    return elems * widths.get(op, 32) // 8


def _int16(value: int) -> int:
    return (value + 0x8000) % 0x10000 - 0x8000


def _int8(value: int) -> int:
    return (value + 0x80) % 0x100 - 0x80
