"""Whose frame it is that comes in at a port: ours, or one that crosses. Twin of
`gradnic.hdl.frame.intake`.

Ours is Ethernet, IPv4 without options, no fragment, UDP to the port of a format, with the format's
version or type, the number of a job that is enabled, and the IPv4 address of one who may speak for
that job here. Nothing else is asked: a frame that is ours and wrong is dropped later, and counted.
Source: docs/spec/wire.md (what happens to a frame).
"""

from collections.abc import Collection, Mapping

from gradnic.interface.aggregator import MAX_FRAME
from gradnic.interface.formats import IPV4, UDP
from gradnic.interface.switchml import PORT, PORT_MASK, SWITCHML, TYPE

from .ipv4 import is_plain_udp
from .parser import native_job


def switchml_job(frame: bytes) -> int | None:
    """Job number of a frame that may be SwitchML's, by its UDP port and type; None of any other."""
    if not is_plain_udp(frame) or UDP.destination_port.get(frame) & PORT_MASK != PORT:
        return None
    if len(frame) < SWITCHML.job.stop or SWITCHML.type.get(frame) != TYPE:
        return None
    return SWITCHML.job.get(frame)


def is_heard(frame: bytes, speakers: Collection[int]) -> bool:
    """Whether a plain UDP frame comes from one of the IPv4 addresses `speakers`."""
    return IPV4.source.get(frame) in speakers


def is_ours(
    frame: bytes,
    udp_port: int,
    native: Mapping[int, Collection[int]],
    switchml: Mapping[int, Collection[int]],
) -> bool:
    """Whether the frame is ours.

    udp_port : of native frames, none of SwitchML's. native, switchml : who may speak for each job,
    {number: IPv4 addresses}.
    """
    number = native_job(frame, udp_port)
    if number is not None:
        return is_heard(frame, native.get(number, ()))
    number = switchml_job(frame)
    return number is not None and is_heard(frame, switchml.get(number, ()))


def cut(frame: bytes, bad: bool) -> tuple[bytes, bool]:
    """(frame, bad mark) as a port lets it in: one above `MAX_FRAME` ends there, and is bad."""
    return frame[:MAX_FRAME], bad or len(frame) > MAX_FRAME
