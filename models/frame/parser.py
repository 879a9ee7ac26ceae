"""What the head of a frame says, whoever reads it. Twin of `gradnic.hdl.frame.parser`.

Source: docs/spec/wire.md (what happens to a frame). Which jobs and senders there are, and what
else a packet must be, are the rules of each card.
"""

from gradnic.interface.formats import GRADNIC, IPV4, NETWORK_OPS, UDP

from .ipv4 import checksums_hold, is_native, is_plain_udp

_KNOWN_OPS = {int(op) for op in NETWORK_OPS}


def native_job(frame: bytes, udp_port: int) -> int | None:
    """JOB of a frame to the native port `udp_port` that may be gradnic's; None of any other."""
    if not is_plain_udp(frame) or UDP.destination_port.get(frame) != udp_port:
        return None
    return GRADNIC.job.get(frame) if is_native(frame) else None


def refusal(
    frame: bytes, bad: bool, stop: int, *, fits: bool = True, native: bool = True
) -> str | None:
    """Why a frame of ours is dropped, whoever sent it: ``bad``, ``length``, ``checksum``,
    ``format``, the first that applies; None if it is sound.

    stop : bytes of all its heads, which its UDP length must hold. fits : whether its payload is as
    long as its kind wants it. native : it has the gradnic head.
    """
    if bad:
        return "bad"
    total, udp = IPV4.total_length.get(frame), UDP.length.get(frame)
    ip_end = IPV4.start + total
    if udp + (UDP.start - IPV4.start) != total or len(frame) < ip_end:
        return "length"
    if udp < stop - UDP.start or not fits:
        return "length"
    if not checksums_hold(frame, ip_end):
        return "checksum"
    if native and not is_sound(frame):
        return "format"
    return None


def is_sound(frame: bytes) -> bool:
    """Whether the gradnic head has a known OP, and SET is GEN[0]."""
    head = GRADNIC.parse(frame)
    return head["op"] in _KNOWN_OPS and head["set"] == head["gen"] & 1
