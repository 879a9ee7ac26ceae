"""Path of each packet: round robin, random, or the one whose last congestion mark is oldest.

Twin of `gradnic.hdl.transport.spray`. Source: DLCP (arXiv 2008.08445), per-packet spraying. Ours:
paths by age of their last mark, and what becomes of a path that is silent.
"""

from gradnic.interface.params import check_range

SPRAYS = ("round_robin", "random", "least_marked")


class Spray:
    """Path of each packet.

    Parameters
    ----------
    n_paths : int
        1 to 256.
    rule : str
        ``round_robin``; ``random``: a 32-bit xorshift generator, its value modulo n_paths;
        ``least_marked``: the path whose last mark is oldest, of those without any mark the one
        used longest ago.
    seed : int
        Of the random rule, not 0.
    """

    def __init__(self, n_paths: int, rule: str = "round_robin", *, seed: int = 1) -> None:
        check_range("n_paths", n_paths, 1, 256)
        if rule not in SPRAYS:
            raise ValueError(f"rule must be one of {', '.join(SPRAYS)}, not {rule!r}")
        if not 1 <= seed < 1 << 32:
            raise ValueError(f"seed must be 1 to 2**32 - 1, not {seed!r}")
        self.n_paths, self.rule, self.state = n_paths, rule, seed
        self.order = list(range(n_paths))  # unmarked ones by use, then marked ones by age
        self.n_unmarked = n_paths

    def next(self) -> int:
        """The path of the next packet."""
        if self.rule == "random":
            self.state = xorshift(self.state)
            return self.state % self.n_paths
        path = self.order[0]
        turn = self.n_paths if self.rule == "round_robin" else self.n_unmarked
        if turn:
            self.order[:turn] = [*self.order[1:turn], path]
        return path

    def again(self, path: int) -> int:
        """The path of a PROBE that goes again. Nothing came back on `path`, which counts as marked:
        else a dead path, which never marks a packet, would draw all of them. Where that leaves none
        without a mark, all are: lost PROBEs must not end the spraying.
        """
        self.mark(path, silent=True)
        return self.next()

    def mark(self, path: int, *, silent: bool = False) -> None:
        """A packet on `path` met congestion, or got no answer. ValueError if there is no such path.

        silent : nothing came back. If no path is without a mark then, all are.
        """
        at = self.order.index(path)
        if self.rule == "least_marked":
            self.n_unmarked -= at < self.n_unmarked
            self.order.append(self.order.pop(at))
        if silent:
            self.n_unmarked = self.n_unmarked or self.n_paths


def xorshift(x: int) -> int:
    """Next state of the 32-bit xorshift generator (13, 17, 5)."""
    x ^= x << 13 & 0xFFFFFFFF
    x ^= x >> 17
    return x ^ x << 5 & 0xFFFFFFFF
