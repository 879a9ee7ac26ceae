"""Mutation campaign of the pass that makes floats of sums."""

import numpy as np
from gradnic.models.thc import Worker

from ..offload.pass_stand import Stand, Turn
from . import passes
from .passes import ELSEWHERE

__all__ = ["ELSEWHERE", "component", "test"]


def component():
    """The circuit under mutation, beside the memory that it reads."""
    return passes.component("decode")


def test(model):
    """See `passes.play`; and means of all large exponents, a block each, which BF16 rounds."""
    passes.play(model, "decode")
    exponents = np.repeat(np.minimum(np.arange(2, 136), 124.7), 64)
    noise = np.random.default_rng(5).standard_normal(exponents.size)
    x = (noise * np.exp2(exponents)).astype(np.float32)
    turn = Turn(Worker(3, 17, b=4, g=30, B=64), x, half=1)
    Stand(model, "decode", passes.N_BYTES, passes.WIDTHS).play(turn, cycles=5000)


_MOST = "no job has more than 1,024 blocks here"
ARGUED = passes.ARGUED | {
    r"-port D .*-ctrlbit 10 .*number = Signal\(blocks_width\)": _MOST,
    r"-mode const0 .*-port A -portbit 10 .*number\.eq\(number \+ 1\)": _MOST,
    r"-port [AB] .*x\.eq\(\(mix\.y \^ self\.node\) \+ GOLDEN\)": "no dice are rolled here",
    r"-mode const1 .*-port B .*number != self\.n_blocks": "norms behind the last change nothing",
    r"-mode const0 .*is_nan = \(word\[23:31\] == 0xFF\)": (
        "the decoder's only NaN is 0x7FC00000, whose rounding is itself"
    ),
}
EXPLAINED = {}
