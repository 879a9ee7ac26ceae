"""How a tensor is cut into chunks, and each chunk into packets: what a number stands for.

Twin of `gradnic.hdl.transport.packet_walk`, which steps from one packet to the next. A packet never
crosses a chunk, so that the last one of a chunk may be shorter. Ours.
"""

from dataclasses import dataclass, field

from gradnic.interface.params import check_least


@dataclass(frozen=True)
class Place:
    """A packet. chunk, within : its chunk, and which one of it. start, chunk_start : first elements
    of the packet and of its chunk. elems : its elements. ends_chunk, ends_tensor : it is the last.
    """

    number: int
    chunk: int
    within: int
    start: int
    chunk_start: int
    elems: int
    ends_chunk: bool
    ends_tensor: bool


@dataclass(frozen=True)
class Cut:
    """A tensor of `n_elems` in chunks and packets of so many elements, or all three in another
    unit; the last ones may be short.

    Attributes
    ----------
    per_chunk : int, packets of a whole chunk: packet j of chunk c has the number c * per_chunk + j.
    n_packets : int, numbers from 0 on that have elements.
    """

    n_elems: int
    chunk: int
    packet: int
    per_chunk: int = field(init=False)
    n_packets: int = field(init=False)

    def __post_init__(self) -> None:
        for name in ("n_elems", "chunk", "packet"):
            check_least(name, getattr(self, name), 1)
        whole, rest = divmod(self.n_elems, self.chunk)
        per_chunk = -(-self.chunk // self.packet)
        object.__setattr__(self, "per_chunk", per_chunk)
        object.__setattr__(self, "n_packets", whole * per_chunk + -(-rest // self.packet))

    def span(self, number: int) -> tuple[int, int]:
        """Elements start, stop of a packet."""
        chunk, j = divmod(number, self.per_chunk)
        start = chunk * self.chunk + j * self.packet
        return start, min(start + self.packet, (chunk + 1) * self.chunk, self.n_elems)

    def packets(self, first: int, stop: int) -> range:
        """Range of the packets of chunks first .. stop - 1 that have elements."""
        low, high = (min(c * self.per_chunk, self.n_packets) for c in (first, stop))
        return range(low, high)

    def place(self, number: int) -> Place:
        """What packet `number`, 0 to n_packets - 1, stands for."""
        chunk, within = divmod(number, self.per_chunk)
        start, stop = self.span(number)
        is_last = number == self.n_packets - 1
        ends = is_last or number == self.packets(chunk, chunk + 1)[-1]
        return Place(number, chunk, within, start, chunk * self.chunk, stop - start, ends, is_last)
