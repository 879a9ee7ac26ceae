"""Which packet of which chunk an element offset means, or a packet number.

Twin of `gradnic.hdl.transport.locator`: what `packet_walk.Cut.span` says, the other way round, for
offsets that need not be a packet's, nor within the tensor.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Located:
    """chunk, within : the chunk, and which packet of it. number : that packet's in the tensor.
    whole : that is where a packet starts, if the tensor reaches so far.
    """

    chunk: int
    within: int
    number: int
    whole: bool = True


def locate_offset(offset: int, *, chunk: int, per_chunk: int, packet: int) -> Located:
    """Of data, whose SEQ is an `offset`: that, `chunk` and `packet` in one unit, such as elements.

    per_chunk : packets of a chunk.
    """
    at, rest = divmod(offset, chunk)
    within, over = divmod(rest, packet)
    return Located(at, within, at * per_chunk + within, over == 0)


def locate_number(number: int, *, per_chunk: int) -> Located:
    """Of a PROBE, whose SEQ is the number of a packet."""
    return Located(*divmod(number, per_chunk), number)
