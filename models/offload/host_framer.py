"""Frames between a card and its own host, and whose turn it is to be sent.

Golden twin of `gradnic.hdl.offload.host_framer`. Format: docs/spec/wire.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from gradnic.interface.formats import Op
from gradnic.interface.host_frame import HEAD

from ..frame.address import Address
from ..frame.ipv4 import gradnic_frame


def framed(
    source: Address, destination: Address, head: Mapping[str, int], address: int, payload: bytes
) -> bytes:
    """A host frame.

    head : fields of gradnic's head but for OP: ``seq``, ``elems``, ``p0`` (kind), ``p1`` (status),
    ``arg``, ``last``; 0 where not given. address : 48 bits, of memory or of a register.
    """
    made = bytearray(gradnic_frame(source, destination, 0, {**head, "op": Op.HOST}, payload))
    HEAD.address.put(made, address)
    return bytes(made)


def in_turns(answers: Sequence[bytes], reads: Sequence[bytes]) -> Iterator[bytes]:
    """Frames as they are sent while both wait: an answer, one of DATA read, and so on."""
    for pair in zip_longest(answers, reads, fillvalue=None):
        yield from (one for one in pair if one is not None)
