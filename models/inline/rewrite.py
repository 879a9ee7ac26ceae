"""New heads for frames whose payload changed. Twin of `gradnic.hdl.inline.rewrite`.

Source: docs/spec/wire.md (in-line card), docs/spec/codec.md (marked frames); RFC 768: a UDP
checksum of 0 is none.
"""

from gradnic.interface import inline
from gradnic.interface.formats import GRADNIC, IPV4, UDP, Op

from ..frame.ipv4 import ip_checksum
from .parser import Unit


def coded_head(frame: bytes, unit: Unit) -> bytearray:
    """Head of a coded frame, but for lengths and checksums: OP, P0 and P1, or mark and count."""
    head = bytearray(frame[: unit.start])
    IPV4.tos.put(head, unit.tos)
    if unit.native:
        GRADNIC.op.put(head, Op.INC)
        GRADNIC.p0.put(head, unit.paper << 7 | unit.exponent)
        GRADNIC.p1.put(head, unit.prescale & 0xFF)
    else:
        head += unit.count.to_bytes(2, "big")
    return head


def restored_head(frame: bytes, unit: Unit) -> bytearray:
    """The same of a restored frame: RAW of one leaf, or without the count of floats."""
    head = bytearray(frame[: unit.start if unit.native else inline.PAPER_START])
    IPV4.tos.put(head, unit.tos)
    if unit.native:
        GRADNIC.op.put(head, Op.RAW)
        GRADNIC.p0.put(head, 1)
        GRADNIC.p1.put(head, 0)
    return head


def finish(head: bytearray, payload: bytes) -> bytes:
    """Frame of `head` and `payload`: lengths, IP checksum, no UDP checksum, padded."""
    size = len(head) + len(payload)
    IPV4.total_length.put(head, size - IPV4.start)
    UDP.length.put(head, size - UDP.start)
    UDP.checksum.put(head, 0)
    IPV4.checksum.put(head, ip_checksum(head[IPV4.start : UDP.start]))
    return (bytes(head) + payload).ljust(inline.MIN_FRAME, b"\0")
