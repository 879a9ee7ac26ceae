"""What the range of a PROBE lacks, and the bitmap that says so to its sender.

Twin of `gradnic.hdl.transport.probe_scan`. Source: DLCP (arXiv 2008.08445) and MLT (NSDI 2024):
bitmaps that answer a PROBE; docs/spec/wire.md for their form.
"""

import numpy as np


def missing_bytes(weighed: np.ndarray, closed: np.ndarray) -> int:
    """Bytes times leaves of what is missing; 0: nothing is.

    weighed, closed : int and bool arrays (n_packets,), of the range: bytes of each packet times the
    leaves that it stands for; whether it is here or was given up.
    """
    return int(np.sum(weighed, where=~closed))


def bitmap(closed: np.ndarray, n_before: int = 0) -> bytes:
    """A bit for each packet of a range, 0 for one that is wanted, lowest bit of each byte first.

    closed : bool array (n_packets,). n_before : packets before the range, from the one on that the
    BITMAP names as its first: their bits are 1. Bits behind the range are 0 and not counted.
    """
    bits = np.concatenate([np.ones(n_before, bool), closed])
    return np.packbits(bits, bitorder="little").tobytes()
