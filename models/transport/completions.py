"""When packets are in memory: the events that had to wait for it.

Twin of `gradnic.hdl.transport.completions`. A chunk is complete once its last packet and all
before it are stored; a packet that is not to be stored waits for those before it only. Ours.
"""

from collections.abc import Sequence


def events(
    written: Sequence[int], event: Sequence[int], chunk: Sequence[int], stored: Sequence[int]
) -> list[tuple[int, int]]:
    """[(time, chunk)] of the events, in order: when each may be told at the earliest.

    written, event, chunk : of each packet, in order: whether it is to be stored, whether its chunk
    is complete with it, and that chunk. stored : times at which packets were stored, rising, one
    for each that is written. Time 0: nothing had to be waited for.
    """
    made, n_written = [], 0
    for writes, tells, which in zip(written, event, chunk, strict=True):
        n_written += int(writes)
        if tells:
            made.append((int(stored[n_written - 1]) if n_written else 0, int(which)))
    if n_written != len(stored):
        raise ValueError(f"stored must have {n_written} times, not {len(stored)}")
    return made
