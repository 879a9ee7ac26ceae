"""Threshold of a tensor's scores: written by the host, or taken from the scores of the last round.

Twin of `gradnic.hdl.transport.tag_threshold`, which holds one for each tensor. The histogram is
ours: DLCP (arXiv 2008.08445) and MLT (NSDI 2024) do not say where thresholds come from.
"""

import numpy as np

N_BINS = 256  # scores of 8 bits
NOTHING = N_BINS  # threshold that no score reaches


class Threshold:
    """One tensor's threshold and histogram.

    Attributes
    ----------
    value : int
        0 to 256: a score is important if it is at least that. The host may write it; 0 at first.
    histogram : int64, shape (256,)
        Elements by score since the last `end_round`.
    """

    def __init__(self) -> None:
        self.value, self.histogram = 0, np.zeros(N_BINS, np.int64)

    def reached(self, score: int, elems: int) -> bool:
        """Whether a packet's score, 0 to 255, is important; its elements are counted."""
        self.histogram[score] += elems
        return score >= self.value

    def end_round(self, share: int | None) -> None:
        """The round is out, and the histogram starts anew.

        share : int, 0 to 255: what it counted sets the threshold, so that `share` / 256 of the
        elements are important; a round without elements leaves it. None: the host's stays.
        """
        if share is not None and self.histogram.any():
            self.value = quantile(self.histogram, share)
        self.histogram[:] = 0


def quantile(histogram: np.ndarray, share: int) -> int:
    """Largest threshold at which at least `share` / 256 of the weight is important.

    histogram : ints, shape (256,), weight of each score. `NOTHING` where share or weight is 0.
    """
    total, above = int(histogram.sum()), 0
    if not share or not total:
        return NOTHING
    for score in range(N_BINS - 1, -1, -1):
        above += int(histogram[score])
        if above * 256 >= total * share:
            return score
    raise AssertionError("the weights above 0 are all of them")
