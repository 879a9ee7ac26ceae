"""Mutation campaign of the small FIFO: what its test must notice, and what it cannot."""

from gradnic.hdl.stream.beats import Beat
from gradnic.hdl.stream.fifo import FIFO

from . import queues as campaign_queues

DEPTH = 4
WIDTH = 32


def component():
    """The circuit under mutation."""
    return FIFO(Beat(WIDTH), DEPTH)


def test(model):
    """The queue holds depth beats and the output register's one."""
    campaign_queues.test(model, WIDTH, latency=2, holds=DEPTH + 1)


ARGUED = {
    r"-portbit 1 -ctrlbit 3 -wire occupied ": "bit 2 is set where bit 3 is, and says what bit 1 "
    "would: only bit 0 of the next count changes, and decides nothing before it is right again",
}
