"""Mutation campaign of the pass that makes norms of a gradient, and of a residual."""

from . import passes
from .passes import ELSEWHERE

__all__ = ["ELSEWHERE", "component", "test"]


def component():
    """The circuit under mutation, beside the memory that it reads."""
    return passes.component("norm")


def test(model):
    """See `passes.play`."""
    passes.play(model, "norm")


ARGUED = passes.ARGUED | {
    r"-mode cnot1 .*-ctrlbit 1[01] .*thc_pass\.py:\d+: (number|full)\.eq": (
        "no job has more than 1,024 blocks here, and those fill their last beat"
    ),
    r"-mode const0 .*-port B -portbit 10 .*full\.eq\(place\.all": (
        "no job has more than 1,024 blocks here, and those fill their last beat"
    ),
}
EXPLAINED = {}
