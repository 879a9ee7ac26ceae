"""Mutation campaign of the FIFO on block RAM: what its test must notice, and what it cannot."""

from gradnic.hdl.stream.beats import Beat
from gradnic.hdl.stream.block_fifo import N_CREDITS, BlockFIFO

from . import queues as campaign_queues

SLOTS = 16
WIDTH = 16


def component():
    """The circuit under mutation."""
    return BlockFIFO(Beat(WIDTH), SLOTS)


def test(model):
    """The queue holds its slots and the beats on their way out; a slot is free 4 cycles late."""
    campaign_queues.test(model, WIDTH, latency=7, holds=SLOTS + N_CREDITS, pauses=SLOTS + 5)
