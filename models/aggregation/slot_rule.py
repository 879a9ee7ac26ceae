"""What is done after a slot's verdict: who closes, and the head that answers. Twin of
`gradnic.hdl.aggregation.slot_rule`.

Source: docs/spec/wire.md (answers of an aggregator), docs/internals/aggregator.md.
"""

from dataclasses import dataclass

from gradnic.interface.formats import Op

from .jobs import W_CODES, Job
from .slot_sweep import is_late, is_of
from .slot_verdict import Record, Verdict, verdict

STALE = 4  # subtype of a CONTROL packet


@dataclass
class TensorBytes:
    """Bytes accepted of the tensor of a job that arrives; a byte of another one begins anew."""

    tensor: int
    total: int = 0

    def enough(self, tensor: int, length: int, need: int) -> bool:
        """Count `length` bytes of `tensor`; whether `need` have come."""
        if tensor != self.tensor:
            self.tensor, self.total = tensor, 0
        self.total += length
        return self.total >= need


class SlotRule:
    """Records of all slots, and what contributions and time make of them.

    Parameters
    ----------
    n_words : int
        Most elements of a NORM or INT32 packet.

    Attributes
    ----------
    records : dict
        `Record` by (slot, set).
    tensors : dict
        `TensorBytes` by number of a job that closes with bounded loss.
    """

    def __init__(self, *, n_words: int = 256) -> None:
        self.n_words = n_words
        self.records: dict[tuple[int, int], Record] = {}
        self.tensors: dict[int, TensorBytes] = {}

    def contribute(
        self, head: dict[str, int], length: int, job: Job, now: int
    ) -> tuple[Verdict, list[Record]]:
        """Judge a contribution and enter it: (verdict, records that close with it, in order).

        head, length, job : as of `verdict`. now : int, time.
        """
        key = (head["slot"], head["gen"] & 1)
        found = verdict(head, length, job, self.records.get(key), n_words=self.n_words)
        if found is Verdict.CLAIMS:
            self.records[key] = Record(head["gen"], job, head, now)
        elif found is not Verdict.ACCEPTED:
            return found, []
        record, tensor, enough = self.records[key], head["tensor"], False
        record.enter(head)
        if job.close == "bounded" and head["op"] != Op.NORM:
            seen = self.tensors.setdefault(job.job, TensorBytes(tensor))
            enough = seen.enough(tensor, length, job.need_bytes)
        closing = self._close([record] if record.is_full else [])
        if enough:
            closing += self._close([r for r in self._all() if is_of(r, job.job, tensor)])
        return found, closing

    def tick(self, now: int) -> list[Record]:
        """Close every open slot whose deadline has passed, lowest (slot, set) first."""
        return self._close([record for record in self._all() if is_late(record, now)])

    def clear(self, job: Job) -> None:
        """Forget all that the slots of a job hold."""
        for key in [key for key in self.records if job.owns(key[0])]:
            del self.records[key]
        self.tensors.pop(job.job, None)

    def _all(self) -> list[Record]:
        return [self.records[key] for key in sorted(self.records)]

    @staticmethod
    def _close(records: list[Record]) -> list[Record]:
        for record in records:
            record.closed = True
        return records


def result_head(record: Record, children: int, *, again: bool = False) -> dict[str, int]:
    """Head of a slot's result for `children`, a bitmap; without the overflow flag of its sums.

    again : it was sent before.
    """
    job, claim, leaves = record.job, record.claim, record.leaves
    p0, p1 = leaves, 0
    if claim["op"] == Op.INT32:
        p0, p1 = (exponent & 0xFF for exponent in record.exponents)
    elif claim["op"] != Op.NORM:
        p1 = W_CODES.index(job.w) << 6
    return _echo(claim) | {
        "children": children,
        "op": Op.THC_SUM if claim["op"] == Op.THC_IDX else claim["op"],
        "retx": int(again),
        "part": int(record.bitmap.bit_count() < len(job.children)),
        "p0": p0,
        "p1": p1,
        "arg": record.bitmap,
        **record.flags,
    }


def stale_head(head: dict[str, int], gen: int) -> dict[str, int]:
    """Tell a sender that its generation is gone; ARG holds `gen`, the one that the slot has."""
    flags = dict.fromkeys(("last", "retx", "ovf", "ecn", "part"), 0)
    answer = {"op": Op.CONTROL, "p0": STALE, "p1": 0, "arg": gen, "elems": 0}
    return _echo(head) | flags | answer | {"children": 1 << head["src"]}


def _echo(head: dict[str, int]) -> dict[str, int]:
    """Fields that an answer takes over."""
    return {f: head[f] for f in ("job", "gen", "lc", "slot", "tensor", "tree", "seq", "elems")}
