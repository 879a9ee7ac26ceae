"""What is done after a slot's verdict: who closes, and the head that answers. Twin of
`gradnic.hdl.aggregation.slot_rule`.

Source: docs/spec/wire.md (answers of an aggregator), docs/internals/aggregator.md.
"""

from dataclasses import dataclass

from gradnic.interface.formats import Op

from .jobs import W_CODES
from .slot_verdict import Record

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
