"""What a neighbor may still lose of a round, or what must still come of it.

Twin of `gradnic.hdl.transport.allowances`, which keeps one for each neighbor; `allowance_walk` says
how much it is at first. Ours.
"""


def weighed_bytes(elems: int, bits: int, leaves: int) -> int:
    """Bytes of a packet's `elems` of so many bits, times the leaves that they stand for."""
    return elems * bits // 8 * leaves


class Allowance:
    """Bytes times leaves, never below 0.

    Attributes
    ----------
    left : int, below 2**40; who gives up packets sets it anew, see `reception.Reception.probe`.
    """

    def __init__(self, left: int) -> None:
        self.left = left

    def came(self, n_bytes: int) -> None:
        """A packet came, of what must come: more of them than had to leave 0."""
        self.left = max(0, self.left - n_bytes)
