"""Which frames are a card's, from whom, and of which round, as their heads say.

Golden twin of `gradnic.hdl.offload.parser`, which sees no more than the head; what the rest of a
frame shows is told behind it. Whether a packet is one of its round's is asked later.
Source: docs/spec/wire.md, docs/spec/card.md.
"""

from collections.abc import Iterable, Mapping

from gradnic.interface.formats import ETHERNET, GRADNIC, HEAD_BYTES, IPV4

from ..frame.parser import native_job
from ..frame.parser import refusal as head_refusal

Speakers = Mapping[tuple[int, int, int], int]
"""{(port, MAC, IPv4 address): node} of a card's neighbors."""


def is_ours(frame: bytes, job: int, udp_port: int, speakers: Speakers) -> bool:
    """Whether a frame is of `job`, at `udp_port`, and from the IPv4 address of a neighbor."""
    if native_job(frame, udp_port) != job:
        return False
    return IPV4.source.get(frame) in {ip for _, _, ip in speakers}


def speaker(frame: bytes, port: int, speakers: Speakers) -> int | None:
    """The neighbor that a frame at `port` comes from, by its addresses and its SRC, or None."""
    node = speakers.get((port, ETHERNET.source.get(frame), IPV4.source.get(frame)))
    return node if node == GRADNIC.src.get(frame) else None


def refusal(frame: bytes, port: int, bad: bool, speakers: Speakers) -> str | None:
    """Why a frame of ours is dropped before its packet is looked at: ``bad``, ``length``,
    ``checksum``, ``format`` or ``owner``, the first that applies; or None.
    """
    reason = head_refusal(frame, bad, HEAD_BYTES)
    if reason is None and speaker(frame, port, speakers) is None:
        return "owner"
    return reason


def standing(tensor: int, gen: int, under_way: Iterable[tuple[int, int]], over: int | None) -> str:
    """Whether the round of a packet is under way: ``ready``, ``stale`` or ``not_ready``.

    under_way : (tensor, GEN) of rounds. over : newest GEN of this tensor that is over, or None. A
    round that is not under way is stale where one of its tensor, at it or over, is not before it.
    """
    under_way = list(under_way)
    if (tensor, gen) in under_way:
        return "ready"
    known = [g for t, g in under_way if t == tensor]
    known += [] if over is None else [over]
    return "stale" if any(ahead(g, gen) >= 0 for g in known) else "not_ready"


def ahead(a: int, b: int) -> int:
    """How many rounds `a` is ahead of `b`, modulo 2**16."""
    return (a - b + 0x8000) % 0x10000 - 0x8000
