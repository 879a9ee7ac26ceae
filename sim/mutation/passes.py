"""What mutation campaigns of the passes of THC jobs have in common."""

import numpy as np
from gradnic.models.thc import Worker

from ..offload.pass_stand import GEN, KINDS, SEED, WIDTH, N, PassStand, Stand

ELSEWHERE = r"^(?!.*-src \S*hdl/offload/)"
"""Parts of other packages have campaigns and proofs of their own; the stand is a bench."""

RATE = 300, 2  # cycles beside those of the beats; blocks on their way
SHAPES = ((2500, 64), (1000, 256), (1, 64), (2048, 256), (1023, 64))
STALLS = {"written": 0.6, "asked": 0.4, "reads": 0.5, "residual_reads": 0.5,
          "residual_asked": 0.4, "residual_written": 0.6}  # fmt: skip
_VALUES = []


def values():
    """A gradient and a residual, with corners; made once."""
    if not _VALUES:
        x, carried = np.random.default_rng(4).standard_normal((2, 5000)).astype(np.float32)
        x[64:128], x[130], carried[:128] = 0, -1e30, -0.0
        x[70], carried[80], carried[2400] = np.float32(1e-42), np.float32(1e-42), np.inf
        _VALUES.extend((x, carried))
    return _VALUES


def component(kind):
    """A pass with all that it may have, beside a memory."""
    more = {} if kind == "decode" else {"feedback": True}
    return PassStand(KINDS[kind](16, WIDTH, block=256, bf16=True, **more))


def play(model, kind):
    """All block sizes, lengths with and without rest, both types, with and without a residual, full
    rate and pauses of memory and ports; answers that are errors.
    """
    stand, (x, carried) = Stand(model, kind), values()
    feedback = kind != "decode"
    known = {name: share for name, share in STALLS.items() if name in model.outputs}
    for turn, (size, block) in enumerate((*SHAPES, *SHAPES[:3])):
        worker = Worker(N, SEED, sign_round=GEN, B=block)
        more = carried[:size] if feedback and turn != 2 else None
        slow = turn >= len(SHAPES)
        how = {"stalls": known, "holds": 0.3} if slow else {}
        half = (turn + slow) % 2
        cycles = stand.play(worker, x[:size], more, half, **how)
        if not slow:
            most = -(-size // 1024) * 256 + RATE[0] + RATE[1] * block
            assert cycles <= most, f"{cycles} cycles, {most} allowed"
    for bad in ("read", "write"):
        stand.play(worker, x[:300], carried[:300] if feedback else None, bad=bad)
