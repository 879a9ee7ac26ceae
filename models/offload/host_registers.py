"""Words of registers in host frames: big-endian in payloads, one after the other from an address.

Golden twin of `gradnic.hdl.offload.host_registers`. Rules: docs/spec/wire.md.
"""

from collections.abc import Callable
from typing import Any


def write_words(address: int, payload: bytes, write: Callable[[int, int], Any]) -> None:
    """Write all words of a payload, in order. write : function (byte address, word)."""
    for at in range(0, len(payload), 4):
        write(address + at, int.from_bytes(payload[at : at + 4], "big"))


def read_words(address: int, n_words: int, read: Callable[[int], int]) -> bytes:
    """The payload of so many words, read in order. read : function (byte address), a word."""
    return b"".join(read(address + 4 * k).to_bytes(4, "big") for k in range(n_words))
