"""Slot engine: sums contributions exactly once, and answers. Twin of
`gradnic.hdl.aggregation.unit`.

A slot belongs to one job and holds one chunk's sum. Its generation is compared before anything
changes, so a late copy of an old packet can never touch a newer sum: unlike SwitchML's one-bit
shadow set, the rule needs no ordered paths. Contributions are counted by a bitmap of children.

Sources: THC (NSDI 2024), the switch's lookup and add; SwitchML and ATP for slots and multicast.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradnic.interface.formats import Op

from ..thc.worker import pack, solve_table
from .jobs import Job
from .slot_lanes import add_lanes, add_words, fill_lanes, larger_words, read_lanes
from .slot_rule import SlotRule, result_head, stale_head
from .slot_verdict import Record, Verdict


@dataclass
class Slot:
    """State of one (slot, set): all of it is replaced when a newer generation claims it."""

    record: Record
    sums: np.ndarray
    overflowed: bool = False


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
        self.rule = SlotRule(n_words=n_words)
        self.tables = {
            job.job: np.array(solve_table(job.b, job.g, job.p)) for job in jobs if job.kind == "thc"
        }
        self.slots: dict[tuple[int, int], Slot] = {}
        self.counters: Counter[str] = Counter()

    def contribute(
        self, head: dict[str, int], payload: bytes, now: int
    ) -> list[tuple[dict, bytes]]:
        """Take one contribution; return its answers, a list of (head, payload).

        head : dict of header fields (`gradnic.interface.formats.GRADNIC`), ``ecn`` or-ed with an IP
        congestion mark; its job must exist and its src be a child. payload : bytes. now : int.
        An answer's head has ``children``, the bitmap of who gets a copy, beside header fields.
        """
        job = self.jobs[head["job"]]
        key = (head["slot"], head["gen"] & 1)
        slot = self.slots.get(key)
        was_open = slot is not None and not slot.record.closed
        found, closing = self.rule.contribute(head, len(payload), job, now)
        self.counters[found] += 1
        if found is Verdict.CLAIMS:
            self.counters["accepted"] += 1
            if was_open:
                self.counters["abandoned"] += 1
            empty = np.zeros(head["elems"], np.int64)
            slot = self.slots[key] = Slot(self.rule.records[key], empty)
        elif slot is None:
            return []
        elif found is Verdict.STALE:
            return [(stale_head(head, slot.record.gen), b"")]
        elif found in (Verdict.RETRANSMITTED, Verdict.LATE):
            return [_result(slot, 1 << head["src"], again=True)]
        elif found is not Verdict.ACCEPTED:
            return []
        self._add(slot, head, payload)
        return [self._closed(record) for record in closing]

    def tick(self, now: int) -> list[tuple[dict, bytes]]:
        """Close every open slot whose deadline has passed, lowest (slot, set) first."""
        return [self._closed(record) for record in self.rule.tick(now)]

    def clear(self, job: int) -> None:
        """Forget all that the slots of job number `job` hold."""
        self.rule.clear(self.jobs[job])
        self.slots = {key: slot for key, slot in self.slots.items() if key in self.rule.records}

    def _add(self, slot: Slot, head: dict[str, int], payload: bytes) -> None:
        """Add one contribution to the slot's sums, lane by lane."""
        op, job, over = head["op"], slot.record.job, False
        if op == Op.NORM:
            slot.sums = larger_words(slot.sums, np.frombuffer(payload, "<u4").astype(np.int64))
        elif op == Op.INT32:
            values = np.frombuffer(payload, "<i4").astype(np.int64)
            slot.sums, over = add_words(slot.sums, values, saturates=job.overflow == "saturate")
        else:
            levels = self.tables[job.job] if op == Op.THC_IDX else None
            width = job.b if op == Op.THC_IDX else job.w
            values = read_lanes(payload, width=width, n=job.C, levels=levels)
            slot.sums, over = add_lanes(slot.sums, values, job.w)
        if over and not slot.overflowed:
            self.counters["overflow"] += 1
        slot.overflowed |= over or bool(head["ovf"])

    def _closed(self, record: Record) -> tuple[dict, bytes]:
        """The result of a slot that closes, for all children."""
        everyone = 2 ** len(record.job.children) - 1
        if record.bitmap != everyone:
            self.counters["partial"] += 1
        return _result(self.slots[record.key], everyone)


def _result(slot: Slot, children: int, *, again: bool = False) -> tuple[dict, bytes]:
    """A closed slot's result for some children: (head, payload)."""
    record = slot.record
    job, op = record.job, record.claim["op"]
    head = result_head(record, children, again=again) | {"ovf": int(slot.overflowed)}
    if op in (Op.NORM, Op.INT32):
        return head, (slot.sums % 2**32).astype("<u4").tobytes()
    missing = max(job.leaves - record.leaves, 0) if job.root else 0
    return head, pack(fill_lanes(slot.sums, missing, job.g, job.w), job.w)
