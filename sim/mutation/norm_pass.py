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


ARGUED = {}
EXPLAINED = {}
