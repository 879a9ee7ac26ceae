"""Mutation campaign of the pass that makes floats of sums."""

import numpy as np
from gradnic.models.thc import Worker

from ..offload.pass_stand import GROUP, Stand, Turn, scale
from . import passes
from .passes import ELSEWHERE

__all__ = ["ELSEWHERE", "component", "test"]


def component():
    """The circuit under mutation, beside the memory that it reads."""
    return passes.component("decode")


def test(model):
    """See `passes.play`; and means of all large exponents, a block each, which BF16 rounds, others
    that lie in the middle of two BF16, those that are infinite, and a large job whose last beat is
    not whole.
    """
    passes.play(model, "decode")
    stand = Stand(model, "decode", passes.N_BYTES, passes.WIDTHS)
    for turn in (*(_ties(n) for n in (3, 12, 50, 200, 800, 2000)), _infinite()):
        stand.play(turn, cycles=5000)
    exponents = np.repeat(np.minimum(np.arange(2, 136), 124.7), 64)
    noise = np.random.default_rng(5).standard_normal(exponents.size)
    x = (noise * np.exp2(exponents)).astype(np.float32)
    turn = Turn(Worker(3, 17, b=4, g=30, B=64), x, half=1)
    stand.play(turn, cycles=5000)
    part = Turn(Worker(3, 17, b=4, g=30, B=64), passes.values()[0][: (4 << passes.WIDTHS[0]) - 19])
    stand.play(part, cycles=20_000)


def _ties(n):
    """Means of `n` workers that are whole numbers times a power of two; the more, the more bits."""
    worker, n_blocks = Worker(n, 17, b=4, g=30, B=64), 4 * GROUP // 64
    unit = np.uint32(scale(worker, n)).view(np.float32)
    near = np.float32(2.0**5 / unit).view(np.uint32) + np.arange(-3, 4, dtype=np.int32)
    near = near.astype(np.uint32).view(np.float32)
    exact = near[near * unit == 2.0**5][:1]
    norms = np.repeat(exact.view(np.uint32), n_blocks)
    code = 0 if n == 3 else 2
    return Turn(worker, np.ones(4 * GROUP, np.float32), half=1, code=code, norms=norms)


def _infinite():
    """The whole of a block's mean in one of its first floats, above the largest number."""
    worker, at = Worker(3, 17, b=4, g=30, B=64), np.arange(64)
    odd = [np.bitwise_count(at & k) & 1 for k in range(GROUP // 64)]
    sums = np.concatenate([np.where(one, 0, 90) for one in odd])
    norms = np.full(GROUP // 64, 0x7F7FFFFF, np.uint32)
    return Turn(worker, np.ones(GROUP, np.float32), half=1, norms=norms, sums=sums)


_MOST = "no job has more than 1,024 blocks here"
ARGUED = passes.ARGUED | {
    r"-port D .*-ctrlbit 10 .*number = Signal\(blocks_width\)": _MOST,
    r"-mode const0 .*-port A -portbit 10 .*number\.eq\(number \+ 1\)": _MOST,
    r"-port A .*both = Mux\(second, Cat\(kept, words\), words\)": (
        "padding makes beats even: what is not the second of two is never offered"
    ),
    r"-cell \S*reader\S* -port A -portbit [0-3] .*with m\.If\(left == 0\)": (
        "16 beats or more are left, or none, and ranges of none bring no beat"
    ),
    r"-mode const0 -cell \S+\\writer\S+ -port A .*self\.i\.ready\.eq\(surplus": (
        "padding vanishes as soon as there is room for a beat, and nothing waits for it"
    ),
    r"-mode const1 .*-port B .*number != self\.n_blocks": "norms behind the last change nothing",
    r"-mode const0 .*is_nan = \(word\[23:31\] == 0xFF\)": (
        "the decoder's only NaN is 0x7FC00000, whose rounding is itself"
    ),
}
EXPLAINED = {}
