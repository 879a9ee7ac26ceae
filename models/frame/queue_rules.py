"""Which rules the egress queues of a port obey, whatever software asks for. Twin of
`gradnic.hdl.frame.queue_rules`.

Source: docs/guide/aggregator_cosim.md (queues of the worker ports).
"""

from collections.abc import Sequence

FRAMES = 8  # of the longest, that a queue holds at least


def queue_beats(own_beats: int) -> int:
    """Beats that each queue holds, a power of two: `FRAMES` frames of `own_beats` beats."""
    return 1 << (FRAMES * own_beats - 1).bit_length()


def obeyed(limit: int, thresholds: Sequence[int], own_beats: int) -> tuple[int, tuple[int, ...]]:
    """(limit, thresholds) in beats, as queues for frames of up to `own_beats` beats have them.

    A limit of 0, or one that leaves no room for a frame while it is judged, is the highest; a
    threshold of 0, or above the limit, is the limit: nothing is cut or marked before it.
    """
    most = queue_beats(own_beats) - own_beats
    limit = limit if 0 < limit <= most else most
    return limit, tuple(one if 0 < one <= limit else limit for one in thresholds)
