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
    campaign_queues.test(model, WIDTH, latency=2, holds=DEPTH + 1, pauses=DEPTH + 1)


ARGUED = {
    r"-mode (inv|const1) .* -port B -portbit 3 -given occupied_next,rst -feeds occupied": "after "
    "reset bit 3 of `occupied` stands alone: it heals in the next cycle, before a bit beside "
    "it follows it",
}
