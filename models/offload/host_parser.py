"""Reads frames to the host address: is it one of ours, and what does it ask.

Golden twin of `gradnic.hdl.offload.host_parser`, which sees no more than the head; what the rest of
a frame shows is told behind it. Format: docs/spec/wire.md.
"""

from typing import Any

from gradnic.interface.formats import ETHERNET, GRADNIC, HEAD_BYTES, IPV4, UDP, UDP_PORT, Op
from gradnic.interface.host_frame import HEAD, Drop, well_formed

from ..frame.address import Address
from ..frame.parser import native_job
from ..frame.parser import refusal as head_refusal


def parse(frame: bytes) -> dict[str, Any]:
    """Fields of a host frame as of `HEAD`, and its ``payload``."""
    end = UDP.start + UDP.length.get(frame)
    return HEAD.parse(frame) | {"payload": frame[HEAD_BYTES:end]}


def is_ours(frame: bytes, udp_port: int = UDP_PORT) -> bool:
    """Whether a frame is a datagram to `udp_port` with a gradnic head of this version."""
    return native_job(frame, udp_port) is not None


def is_formed(frame: bytes) -> bool:
    """Whether one of ours, whole, is a host frame, and ELEMS and payload are as its kind wants."""
    asked = parse(frame)
    sound = well_formed(asked["kind"], asked["elems"], len(asked["payload"]))
    return sound and GRADNIC.op.get(frame) == Op.HOST


def refusal(frame: bytes, bad: bool, udp_port: int = UDP_PORT) -> Drop:
    """Why a frame to the host address is dropped without an answer; NONE: it is not.

    bad : its mark.
    """
    if bad:
        return Drop.BAD
    if not is_ours(frame, udp_port):
        return Drop.FOREIGN
    why = head_refusal(frame, bad, HEAD_BYTES, native=False)
    if why is not None:
        return Drop[why.upper()]
    return Drop.NONE if is_formed(frame) else Drop.FORMAT


def ends(frame: bytes, mac: int, udp_port: int = UDP_PORT) -> tuple[Address, Address]:
    """(the card, the host) as the frame names them; `mac` is the card's host address."""
    me = Address(0, mac, IPV4.destination.get(frame), udp_port)
    host = ETHERNET.source.get(frame), IPV4.source.get(frame), UDP.source_port.get(frame)
    return me, Address(0, *host)
