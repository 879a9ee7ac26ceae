"""What the head of a frame of ours says: who speaks, and what is contributed. Twin of
`gradnic.hdl.aggregation.parser`.

Frames are the gradnic ones of a `Job`, or SwitchML's of a `SwitchmlJob`, which name no sender and
no generation. Source: docs/spec/wire.md (who may speak; the profiles).
"""

from typing import Any

from gradnic.interface.aggregator import Refusal
from gradnic.interface.formats import ETHERNET, GRADNIC, HEAD_BYTES, IPV4, UDP, Op
from gradnic.interface.switchml import SWITCHML, VALUES

_BOTH = ("src", "op", "gen", "slot", "lc", "tensor", "tree", "seq", "elems", "p0", "p1", "arg")


def speaker(frame: bytes, job: Any, port: int) -> int | None:
    """Number of the child of `job` that a frame is from, or None.

    A child speaks at its port, from its MAC and IPv4 address, by its SRC, and in a frame for the
    aggregator, PH = 0. port : where the frame came in; n_ports and more are the network's side.
    """
    native = job.kind != "switchml"
    found = (port, ETHERNET.source.get(frame), IPV4.source.get(frame))
    for number, child in enumerate(job.children):
        named = (GRADNIC.ph.get(frame), GRADNIC.src.get(frame)) == (0, number)
        if found == (child.port, child.mac, child.ip) and (named or not native):
            return number
    return None


def claim(frame: bytes, job: Any, port: int) -> Refusal:
    """Whether a sound frame's sender may contribute to the slot that it names: OWNER, COLLISIONS,
    the first that applies, or NONE.

    A SwitchML frame cannot say that it is sent on: the slots refuse it.
    """
    if speaker(frame, job, port) is None:
        return Refusal.OWNER
    if job.kind == "switchml" or job.owns(GRADNIC.slot.get(frame)):
        return Refusal.NONE
    return Refusal.COLLISIONS


def head_bytes(native: bool) -> int:
    """Bytes of a frame before its payload."""
    return HEAD_BYTES if native else SWITCHML.stop


def payload(frame: bytes, *, native: bool = True) -> bytes:
    """Payload of a sound frame, as long as its UDP length says."""
    return frame[head_bytes(native) : UDP.start + UDP.length.get(frame)]


def contribution_head(frame: bytes, *, native: bool = True) -> dict[str, int]:
    """What a frame contributes: fields of `gradnic.interface.formats.GRADNIC` by name, ``ecn``
    or-ed with an IP congestion mark, and ``length``, bytes of payload as UDP has them.

    Of SwitchML's ``gen`` is the set, ``p0`` and ``p1`` are exponents, and what an answer only
    repeats is in ``tensor`` (source port), ``tree`` (low bits of the destination port) and ``arg``
    (packet number); elements of a reserved size are 0.
    """
    length = UDP.length.get(frame) + UDP.start - head_bytes(native)
    if native:
        head = {name: GRADNIC[name].get(frame) for name in (*_BOTH, "last", "ovf", "ecn")}
        head["ecn"] |= int(IPV4.ecn.get(frame) == 3)
        return head | {"length": length}
    own = SWITCHML.parse(frame)
    sizes = {code: n for n, code in VALUES.items()}
    return dict.fromkeys((*_BOTH, "last", "ovf", "ecn"), 0) | {
        "op": Op.INT32,
        "gen": own["set"],
        "slot": own["slot"],
        "tensor": UDP.source_port.get(frame),
        "tree": UDP.destination_port.get(frame) & 15,
        "arg": own["packet"],
        "p0": own["e0"] & 0xFF,
        "p1": own["e1"] & 0xFF,
        "elems": sizes.get(own["size"], 0),
        "length": length,
    }
