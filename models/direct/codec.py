"""Messages as coded units of up to 64 flits of one chunk, each with a head; and back.

Settings are those of `gradnic.models.inceptionn`: {exponent, mode, prescale}.
"""

from typing import Any

import numpy as np

from gradnic.interface.flit import FLIT_BYTES, FLIT_FLOATS, UNIT_FLITS

from .. import inceptionn
from .link import FLIT, fields, head, message


def coded(
    its: dict[str, int], payload: np.ndarray, sizes: list[int], settings: dict[str, Any]
) -> list[np.ndarray]:
    """A message's units, each FLIT (n,): a head with its flits and coded bytes, then these.

    its : fields of the message's head. payload : uint8 (n, 16). sizes : flits of each of its
    chunks, n in all. The message's last unit has ``ends``, all but its first ``more``;
    ``count`` is that of the chunks which are left, its own among them.
    """
    units = [
        (left, chunk[k : k + UNIT_FLITS])
        for left, chunk in zip(
            range(len(sizes), 0, -1), np.split(payload, np.cumsum(sizes)[:-1]), strict=True
        )
        for k in range(0, len(chunk), UNIT_FLITS)
    ]
    result = []
    for k, (left, unit) in enumerate(units):
        octets = inceptionn.compress(unit.reshape(-1).view("<f4"), **settings)
        flits = np.zeros((-(-len(octets) // FLIT_BYTES), FLIT_BYTES), np.uint8)
        flits.reshape(-1)[: len(octets)] = np.frombuffer(octets, np.uint8)
        own = {"flits": len(unit), "bytes": len(octets), "count": left}
        own |= {"ends": k == len(units) - 1, "more": k > 0}
        result.append(message(its | own, flits))
    return result


def decoded(units: list[np.ndarray], settings: dict[str, Any]) -> tuple[np.ndarray, bool]:
    """Messages of coded units, FLIT (n,), with their first unit's head; whether one is unsound.

    A unit that is unsound leaves no floats, nor its message's end.
    """
    flits, unsound = [np.zeros(0, FLIT)], False
    for unit in units:
        its = fields(unit["data"][0])
        if not its["more"]:
            flits.append(_flits(head(its)[None], head=True))
        octets = unit["data"][1:].tobytes()[: its["bytes"]]
        try:
            if len(unit) - 1 != -(-its["bytes"] // FLIT_BYTES):
                raise ValueError(f"unit has {len(unit) - 1} flits for {its['bytes']} bytes")
            floats = inceptionn.decompress(octets, FLIT_FLOATS * its["flits"], **settings)
        except ValueError:
            unsound = True
            continue
        flits.append(_flits(floats.view(np.uint8).reshape(-1, FLIT_BYTES)))
        flits[-1]["last"][-1] = its["ends"]
    return np.concatenate(flits), unsound


def _flits(data: np.ndarray, *, head: bool = False) -> np.ndarray:
    result = np.zeros(len(data), FLIT)
    result["data"], result["head"] = data, head
    return result
