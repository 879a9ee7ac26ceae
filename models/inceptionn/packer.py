"""Payload bytes of a unit in rows as long as a beat, placed where they will leave."""

import numpy as np


def rows_and_tail(octets: np.ndarray, base: int, n_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """(Full rows, the tail): int16 (n_rows, n_bytes) and (n_bytes,), -1 where nothing is known.

    octets : uint8, all payload bytes of a unit, the first of them in column `base`, behind the
    tags. A row is full once its last column is; what is left is the tail, of a unit that ends with
    a row too: there it has nothing.
    """
    n_rows = (base + len(octets)) // n_bytes
    known = np.full((n_rows + 1) * n_bytes, -1, np.int16)
    known[base : base + len(octets)] = octets
    rows = known.reshape(-1, n_bytes)
    return rows[:-1], rows[-1]
