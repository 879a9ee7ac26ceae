"""A coded unit out of what its tags and payloads were stored in, a beat's length a row."""

import numpy as np


def merged(
    tag_rows: np.ndarray, rows: np.ndarray, tail: np.ndarray, *, tag_bytes: int, size: int
) -> np.ndarray:
    """Bytes of the unit: uint8 (size,).

    tag_rows : uint8 (n, n_bytes), tags from the first byte on. rows : payload rows, bytes in the
    columns where they leave, the first row being the one in which the tags end. tail : (n_bytes,),
    of a unit that does not end with a row: that row's payload bytes. What else rows have, before
    the first payload byte or behind the last, means nothing. size : of tags and payloads.
    """
    tags = tag_rows.reshape(-1)[:tag_bytes]
    before = tag_bytes // len(tail) * len(tail)  # of the rows that hold tags only
    payload = np.concatenate([rows.reshape(-1), tail])[tag_bytes - before : size - before]
    return np.concatenate([tags, payload])


def beats(octets: np.ndarray, n_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """A unit in beats: uint8 (n, n_bytes), 0 behind its end; and masks of what counts, bool."""
    padded = np.zeros((-(-len(octets) // n_bytes), n_bytes), np.uint8)
    padded.reshape(-1)[: len(octets)] = octets
    return padded, (np.arange(padded.size) < len(octets)).reshape(padded.shape)
