"""What a neighbor may lose of a round: its share of all that it sends up, weighed by leaves.

Twin of `gradnic.hdl.transport.allowance_walk`, which works it out for all neighbors. Source: DLCP
(arXiv 2008.08445), which stops at (1 - p) of the bytes. Ours: weights, and one allowance for all
that a neighbor sends.
"""

from collections.abc import Iterable

NEVER = (1 << 40) - 1  # more bytes than can come


def need_bytes(total: int, p_q16: int) -> int:
    """Bytes that complete `total` at loss bound p_q16 / 2**16: total - floor(total * p)."""
    if not 0 <= p_q16 < 1 << 16:
        raise ValueError(f"p_q16 must be 0 to 65535, not {p_q16!r}")
    return total - (total * p_q16 >> 16)


def allowance(sent: Iterable[tuple[int, int]], p_q16: int, *, at_share: bool = False) -> int:
    """Bytes times leaves that may miss of what a neighbor sends; `at_share`: that must come.

    sent : (bytes, leaves below it) of each chunk. `at_share` without a loss bound is `NEVER`: then
    nothing may be given up at any time.
    """
    total = sum(n_bytes * leaves for n_bytes, leaves in sent)
    need = need_bytes(total, p_q16)
    if not at_share:
        return total - need
    return need if p_q16 else NEVER
