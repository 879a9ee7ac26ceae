"""Which slots a visit to all of them closes. Twin of `gradnic.hdl.aggregation.slot_sweep`."""

from gradnic.interface.formats import Op

from .slot_verdict import Record


def may_close(record: Record) -> bool:
    """Whether a slot is open, and of a kind that may close in part: norms may not."""
    return not record.closed and record.claim["op"] != Op.NORM


def is_late(record: Record, now: int) -> bool:
    """Whether a slot is past its job's deadline; 0 is none.

    now : time in the deadline's units, 32 bits that wrap: waiting longer than that is not seen.
    """
    deadline = record.job.deadline
    return may_close(record) and bool(deadline) and (now - record.opened) % 2**32 >= deadline


def is_of(record: Record, job: int, tensor: int) -> bool:
    """Whether a slot is to close because enough has come of this tensor of job number `job`."""
    return may_close(record) and record.job.job == job and record.claim["tensor"] == tensor
