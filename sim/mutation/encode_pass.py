"""Mutation campaign of the pass that makes indices of a gradient, and keeps what they lose."""

from . import passes
from .passes import ELSEWHERE

__all__ = ["ELSEWHERE", "component", "test"]


def component():
    """The circuit under mutation, beside the memory that it reads."""
    return passes.component("encode")


def test(model):
    """See `passes.play`."""
    passes.play(model, "encode")


ARGUED = passes.ARGUED
EXPLAINED = {}
