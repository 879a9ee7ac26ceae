"""Runs: consecutive packets of one chunk, which go to one peer and which one PROBE covers.

Twin of `gradnic.hdl.transport.run_splitter`, which makes them of the messages of a schedule. Ours:
DLCP (arXiv 2008.08445) and MLT (NSDI 2024) probe whole tensors.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from .packet_walk import Cut

Peer = TypeVar("Peer")


def runs(
    cut: Cut, first: int, stop: int, peers: Sequence[Peer], *, longest: int
) -> Iterator[tuple[Peer, range]]:
    """(peer, packet numbers) of chunks first .. stop - 1, all of one peer before the next one's.

    longest : packets of a run, at most. A run never crosses a chunk.
    """
    for peer in peers:
        for chunk in range(first, stop):
            mine = cut.packets(chunk, chunk + 1)
            for at in range(mine.start, mine.stop, longest):
                yield peer, range(at, min(at + longest, mine.stop))
