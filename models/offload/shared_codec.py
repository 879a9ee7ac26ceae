"""INCEPTIONN for all contexts of a card: what becomes of a packet's payload on its way.

Golden twin of `gradnic.hdl.offload.shared_codec`: only packets with OP `INC` are coded, by the
settings that their heads say; the payloads of all others pass as they are. Rounds towards zero.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradnic.interface.formats import Op

from .. import inceptionn


def settings(head: Mapping[str, int]) -> dict[str, Any]:
    """Of `gradnic.models.inceptionn`, as P0 and P1 of a packet have them."""
    prescale = (head["p1"] ^ 0x80) - 0x80
    mode = "paper" if head["p0"] >> 7 else "strict"
    return {"exponent": head["p0"] & 0x7F, "mode": mode, "prescale": prescale}


def compressed(head: Mapping[str, int], payload: bytes) -> tuple[dict[str, int], bytes]:
    """(head with the new ``length``, payload) of a packet that leaves. payload : its float32."""
    if head["op"] == Op.INC:
        payload = inceptionn.compress(np.frombuffer(payload, "<f4"), **settings(head))
        return {**head, "length": len(payload)}, payload
    return dict(head), payload


def decompressed(
    head: Mapping[str, int], payload: bytes, *, ready: bool, max_elems: int
) -> bytes | None:
    """Payload of a packet that came; None: an unsound unit, or one of more floats than `max_elems`.

    ready : it is of a round under way; others stay as they are.
    """
    if head["op"] != Op.INC or not ready:
        return payload
    if head["elems"] > max_elems:
        return None
    try:
        return inceptionn.decompress(payload, head["elems"], **settings(head)).tobytes()
    except ValueError:
        return None
