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


ARGUED = {
    r"-mode const1 -cell \S*\\prefetch\.\$47 -port [ABY] .*: stays = ": "`below | above`, of a bit "
    "that is 1: all below it are 1, too, but where one changes by itself",
    r"-mode cnot0 .*-port Q -portbit [4-7] -ctrlbit [0-3] -wire credits ": "a bit above a 0 comes "
    "down and goes up behind that, and where the 0 is the last bit nothing comes down",
}
