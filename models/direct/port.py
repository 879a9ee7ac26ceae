"""Words of the engine as payload of messages."""

import numpy as np

from gradnic.interface.flit import FLIT_BYTES


def payload(words: np.ndarray, n_flits: np.ndarray) -> np.ndarray:
    """Flits that words hold, uint8 (n, 16): the first so many of each word, from its low end.

    words : uint32 (n_words, n_lanes). n_flits : (n_words,), 1 to n_lanes / 4.
    """
    flits = np.ascontiguousarray(words, "<u4").view(np.uint8).reshape(len(words), -1, FLIT_BYTES)
    return flits[np.arange(flits.shape[1]) < np.asarray(n_flits)[:, None]]
