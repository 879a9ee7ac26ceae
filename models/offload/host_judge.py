"""Whether a host frame is of the session, the one expected, and within what it may reach.

Golden twin of `gradnic.hdl.offload.host_judge`. Format and rules: docs/spec/wire.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gradnic.interface.host_frame import ALIGN, REQUESTS, SEQ_BITS, Kind, Status

SEQS = 1 << SEQ_BITS
OF_MEMORY = (Kind.READ, Kind.WRITE)
OF_REGISTERS = (Kind.READ_REG, Kind.WRITE_REG)


def apart(seq: int, expected: int) -> int:
    """How far a SEQ is ahead of the one expected, -SEQS / 2 to SEQS / 2 - 1: 0 is the one, and all
    below are copies of requests that came before.
    """
    return (seq - expected + SEQS // 2) % SEQS - SEQS // 2


def place(address: int, n_bytes: int, regions: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """(number of the first region that holds all these bytes, bytes before them there), or None.

    regions : (first byte, bytes) of each.
    """
    for k, (first, size) in enumerate(regions):
        if first <= address and address + n_bytes <= first + size:
            return k, address - first
    return None


def status(
    asked: Mapping[str, Any], regions: Sequence[tuple[int, int]], register_bytes: int
) -> Status:
    """How a request would end before it is carried out: UNKNOWN, UNALIGNED, OUTSIDE or DONE.

    asked : fields ``kind``, ``address``, ``elems`` (bytes) of `gradnic.interface.host_frame.HEAD`.
    regions : see `place`. register_bytes : of the register map.
    """
    kind, address, n_bytes = asked["kind"], asked["address"], asked["elems"]
    if kind not in REQUESTS:
        return Status.UNKNOWN
    if kind == Kind.POST:
        return Status.DONE
    if address % (ALIGN if kind in OF_MEMORY else 4):
        return Status.UNALIGNED
    inside = (
        address + n_bytes <= register_bytes
        if kind in OF_REGISTERS
        else place(address, n_bytes, regions) is not None
    )
    return Status.DONE if inside else Status.OUTSIDE
