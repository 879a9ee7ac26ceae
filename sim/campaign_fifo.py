"""Mutation campaign of the small FIFO: what its test must notice, and what it cannot."""

from ..hdl.fifo import FIFO
from ..hdl.streams import Beat
from . import campaign_queues

DEPTH = 4
WIDTH = 32


def component():
    """The circuit under mutation."""
    return FIFO(Beat(WIDTH), DEPTH)


def test(model):
    """The queue holds depth beats and the output register's one."""
    campaign_queues.test(model, WIDTH, latency=2, holds=DEPTH + 1)
