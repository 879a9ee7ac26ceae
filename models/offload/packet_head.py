"""Heads of the packets that a node sends: what each says, and what it gets as it leaves.

Golden twin of `gradnic.hdl.offload.packet_head`. Format: docs/spec/wire.md.
"""

from collections.abc import Mapping
from typing import Any

from gradnic.interface.formats import Op
from gradnic.interface.offload import Subtype

CHECK_BITS = 20  # of ARG, below the leaves
FLOAT_BYTES = 4
INDICES = 16  # a packet of THC holds a multiple of so many elements


def octets_of(codec: Mapping[str, int], elems: int) -> int:
    """Bytes of so many elements in a landing area: floats, norms, or sums of THC of 8, 12 or 16
    bits, of which there is an even number.
    """
    if not codec["thc"]:
        return FLOAT_BYTES * elems
    return elems * (8, 12, 16)[codec["code"]] // 8


def index_octets(codec: Mapping[str, int], elems: int) -> int:
    """Bytes of so many indices of THC, a multiple of `INDICES`."""
    return elems * codec["bits"] // 8


def said(
    codec: Mapping[str, int], packet: Mapping[str, int], leaves: int, check: int, *, leaf: bool
) -> dict[str, int]:
    """Fields of a packet's head that its codec and its sums settle; others are 0.

    codec : fields of `gradnic.hdl.reduction.codec.Codec`. packet : of
    `gradnic.hdl.transport.records.Packet`. leaves, check : of the sums, 12 and 20 bits.
    leaf : its values are the node's own indices. length : bytes of payload, without coding.
    """
    head: dict[str, int] = {name: packet[name] for name in ("ph", "neighbor", "elems", "retx")}
    head["slot"] = packet["flow"]
    if packet["probe"]:
        about = {"seq": packet["number"], "arg": packet["stamp"]}
        return head | about | {"op": Op.CONTROL, "p0": Subtype.PROBE}
    elems = packet["elems"]
    head |= {"last": packet["last"], "seq": packet["offset"], "p0": min(255, leaves)}
    head |= {"arg": check | leaves << CHECK_BITS, "length": octets_of(codec, elems), "op": Op.RAW}
    if codec["coded"]:
        settings = codec["exponent"] | codec["paper"] << 7
        head |= {"op": Op.INC, "p0": settings, "p1": codec["prescale"]}
    elif leaf:
        head |= {"op": Op.THC_IDX, "p0": codec["index_p0"], "p1": codec["index_p1"]}
        head["length"] = index_octets(codec, elems)
    elif codec["thc"]:
        head |= {"op": Op.THC_SUM, "p1": codec["code"] << 6}
    elif codec["norm"]:
        head["op"] = Op.NORM
    elif codec["bf16"]:
        head |= {"op": Op.RAW16, "length": 2 * elems}
    return head


def left(
    head: Mapping[str, int], tag: Mapping[str, int], round_: Mapping[str, Any], size: int
) -> dict[str, int]:
    """A head as it leaves, with its tag, its round, and the size of its coded unit, if it is one.

    tag : ``important``, ``queue``, ``tos``. round_ : ``gen``, ``tensor``. size : bytes.
    """
    more = {"imp": tag["important"], "lc": tag["queue"], "tos": tag["tos"]}
    more |= {name: round_[name] for name in ("gen", "tensor")}
    if head["op"] == Op.INC:
        more["length"] = size
    return {**head, **more}
