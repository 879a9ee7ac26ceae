"""How memories behind clusters of cards pause, as AXI4 lets them: see ``pauses.h``."""

import ctypes
from enum import IntEnum

import numpy as np

SHARES = ("aw", "w", "b", "ar", "r", "all")  # of cycles in which a pause begins


class Order(IntEnum):
    """What a write's address waits for; data wait for their address otherwise."""

    ADDRESS_FIRST = 0
    DATA_OFFERED = 1
    DATA_FIRST = 2  # all of the burst


class Pauses(ctypes.Structure):
    """As in ``pauses.h``."""

    _fields_ = [
        ("seed", ctypes.c_uint32),
        *((name, ctypes.c_uint32) for name in SHARES),
        *((name, ctypes.c_int32) for name in ("longest", "longest_all", "order")),
        *((name, ctypes.c_int32) for name in ("under_way", "turns")),
    ]

    def __repr__(self):
        return f"Pauses({', '.join(f'{name}={getattr(self, name)}' for name, _ in self._fields_)})"


def drawn(seed):
    """`Pauses` of a seed: channels that rest for up to half of the time, in short or long pauses;
    of even seeds, with one memory for all ports of a card.
    """
    rng = np.random.default_rng(seed)
    longest, longest_all = int(rng.choice([2, 20, 200])), int(rng.choice([200, 2000]))
    rests = [*rng.choice([0, 0.02, 0.2, 0.5], 5), rng.choice([0, 0.1])]  # shares of the time
    lengths = [*[longest] * 5, longest_all]
    begins = [rest / (1 - rest) * 2 / (1 + n) for rest, n in zip(rests, lengths, strict=True)]
    return Pauses(
        seed, *(min(2**32 - 1, int(2**32 * share)) for share in begins), longest, longest_all,
        int(rng.integers(len(Order))), int(rng.choice([1, 4, 64])),
        0 if seed % 2 else int(rng.choice([1, 4, 32])),
    )  # fmt: skip
