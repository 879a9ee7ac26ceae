"""Messages as the flits of a link: a head, or one for each packet, and the payload of a row.

Source: docs/spec/card.md; the head's fields are `gradnic.interface.flit.HEAD`.
"""

import numpy as np

from gradnic.interface.flit import FLIT_BYTES, HEAD, PACKET_FLITS

FLIT = np.dtype([("data", np.uint8, (FLIT_BYTES,)), ("head", bool), ("last", bool)])
"""A flit: its bytes; whether it is a head; whether it ends a message."""


def head(fields: dict[str, int]) -> np.ndarray:
    """Bytes of a head, uint8 (16,); fields that are not given are 0."""
    value = 0
    for name, width in reversed(HEAD.items()):
        value = value << width | fields.get(name, 0)
    return np.frombuffer(value.to_bytes(FLIT_BYTES, "little"), np.uint8)


def fields(octets: np.ndarray) -> dict[str, int]:
    """Inverse of `head`."""
    value, found = int.from_bytes(octets.tobytes(), "little"), {}
    for name, width in HEAD.items():
        found[name] = value & (1 << width) - 1
        value >>= width
    return found


def message(
    its: dict[str, int], payload: np.ndarray, *, packets: bool = False, last: bool = True
) -> np.ndarray:
    """Flits of a message, FLIT (n,).

    its : fields of the head. payload : uint8 (n, 16), one flit at least. packets : a head before
    each 16 flits of payload, all but the first with ``more``. last : the payload ends it.
    """
    step = PACKET_FLITS if packets else len(payload)
    parts = []
    for start in range(0, len(payload), step):
        part = np.zeros(1 + len(payload[start : start + step]), FLIT)
        part["data"][0] = head(its | {"more": its.get("more", 0) | (start > 0)})
        part["head"][0] = True
        part["data"][1:] = payload[start : start + step]
        parts.append(part)
    parts[-1]["last"][-1] = last
    return np.concatenate(parts)
