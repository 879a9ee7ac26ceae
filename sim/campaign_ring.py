"""Mutation campaign of the FIFO on block RAM: what its test must notice, and what it cannot."""

from ..hdl.ring import N_CREDITS, BlockFIFO
from ..hdl.streams import Beat
from . import campaign_queues

SLOTS = 16
WIDTH = 16


def component():
    """The circuit under mutation."""
    return BlockFIFO(Beat(WIDTH), SLOTS)


def test(model):
    """The queue holds its slots and the beats on their way out."""
    campaign_queues.test(model, WIDTH, latency=7, holds=SLOTS + N_CREDITS)
