"""When packets are in memory: the events that had to wait for it.

Golden model: `gradnic.models.transport.completions`.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.fifo import FIFO
from .records import CHUNK_WIDTH

N_WRITES = 32  # packets on their way to memory


class Completions(wiring.Component):
    """Holds what a packet completes until it, and all before it, are in memory.

    1 packet per cycle; an event is offered 3 cycles after its packet's pulse. Up to `N_WRITES`
    packets wait, then ``entries`` is not ready.

    Members
    -------
    entries : In(stream.Signature({written, event, chunk}))
        In order. written : the packet is to be stored; event : its chunk is complete with it.
    stored : In(1)
        One pulse per packet that is in memory, in order.
    events : Out(stream.Signature(CHUNK_WIDTH))
    """

    Entry = data.StructLayout({"written": 1, "event": 1, "chunk": CHUNK_WIDTH})

    def __init__(self) -> None:
        super().__init__(
            {
                "entries": In(stream.Signature(self.Entry)),
                "stored": In(1),
                "events": Out(stream.Signature(CHUNK_WIDTH)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = FIFO(self.Entry, N_WRITES)
        m.submodules.out = out = FIFO(CHUNK_WIDTH, 16)
        wiring.connect(m, wiring.flipped(self.entries), queue.i)
        wiring.connect(m, out.o, wiring.flipped(self.events))
        n_stored = Signal(range(2 * N_WRITES))
        entry = queue.o
        pop = Signal()
        m.d.comb += [
            pop.eq(entry.valid & (~entry.p.written | (n_stored != 0)) & out.i.ready),
            entry.ready.eq(pop),
            out.i.valid.eq(pop & entry.p.event),
            out.i.p.eq(entry.p.chunk),
        ]
        m.d.sync += n_stored.eq(n_stored + self.stored - (pop & entry.p.written))
        return m
