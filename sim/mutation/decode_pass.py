"""Mutation campaign of the pass that makes floats of sums."""

from . import passes
from .passes import ELSEWHERE

__all__ = ["ELSEWHERE", "component", "test"]


def component():
    """The circuit under mutation, beside the memory that it reads."""
    return passes.component("decode")


def test(model):
    """See `passes.play`."""
    passes.play(model, "decode")


ARGUED = {}
EXPLAINED = {}
