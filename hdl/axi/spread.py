"""One AXI4 memory port spread over several channels: bursts go to them in turns, by address.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.fifo import FIFO
from .axi4 import ReadPort, WritePort
from .channel import Channel
from .share import FIELDS

BURST_BEATS = 16  # no burst crosses a multiple of so many: `gradnic.hdl.axi.dma` cuts them so
N_OPEN = 32  # bursts under way
N_BEATS = 64  # that wait at a channel: four bursts


class _Spread(wiring.Component):
    """What both directions have in common.

    Byte a of the manager is byte a % g + a // (g * n) * g of channel a // g % n, with g of
    `BURST_BEATS` beats: channels work at the same time, and together give n times the rate of one,
    up to the manager's beat a cycle.

    Parameters
    ----------
    n_bytes, address_width : int
        See `ReadPort`.
    n : int
        Channels, 2 or 4.

    Members
    -------
    manager : In(port)
    ports : Out(port).array(n)
    """

    def __init__(self, signature, prefix: str, n: int) -> None:
        if n not in (2, 4):
            raise ValueError(f"n must be 2 or 4, not {n!r}")
        self.n, self.prefix = n, prefix
        self.low = ceil_log2(BURST_BEATS * signature.n_bytes)
        super().__init__({"manager": In(signature), "ports": Out(signature).array(n)})

    def _addresses(self, m, orders):
        """Addresses go to their channels; which one, into each of the queues `orders`."""
        manager = Channel(self.manager, self.prefix)
        shape, address = manager.layout(*FIELDS), manager["addr"]
        high = self.low + ceil_log2(self.n)
        channel = address[self.low : high]
        queues = []
        for k, port in enumerate(Channel(port, self.prefix) for port in self.ports):
            m.submodules[f"addresses{k}"] = queue = FIFO(shape, 4)
            queues.append(queue)
            m.d.comb += [
                *manager.take(queue.i.p, *FIELDS),
                queue.i.p["addr"].eq(Cat(address[: self.low], address[high:])),
                port["id"].eq(0),
                *port.put(queue.o.p, *FIELDS),
                port.valid.eq(queue.o.valid),
                queue.o.ready.eq(port.ready),
            ]
        ready = Array(queue.i.ready for queue in queues)[channel]
        taken = Signal()
        m.d.comb += [
            manager.ready.eq(ready & Cat(order.i.ready for order in orders).all()),
            taken.eq(manager.valid & manager.ready),
            *(queue.i.valid.eq(taken & (channel == k)) for k, queue in enumerate(queues)),
        ]
        for order in orders:
            m.d.comb += [order.i.valid.eq(taken), order.i.payload.eq(channel)]

    def _order(self, m, name):
        m.submodules[name] = order = FIFO(range(self.n), N_OPEN)
        return order


class ReadSpread(_Spread):
    """Reads, whose data come back in the order of their addresses; 3 cycles more."""

    def __init__(self, n_bytes: int, address_width: int = 64, *, n: int) -> None:
        super().__init__(ReadPort(n_bytes, address_width), "ar", n)

    def elaborate(self, platform):
        m = Module()
        order = self._order(m, "order")
        self._addresses(m, [order])
        manager = self.manager
        shape = data.StructLayout({"data": len(manager.rdata), "resp": 2, "last": 1})
        beats = []
        for k, port in enumerate(self.ports):
            m.submodules[f"beats{k}"] = queue = FIFO(shape, N_BEATS)
            beats.append(queue.o)
            m.d.comb += [
                queue.i.p.data.eq(port.rdata),
                queue.i.p.resp.eq(port.rresp),
                queue.i.p.last.eq(port.rlast),
                queue.i.valid.eq(port.rvalid),
                port.rready.eq(queue.i.ready),
                queue.o.ready.eq(order.o.valid & (order.o.payload == k) & manager.rready),
            ]
        now = data.View(shape, Array(beat.p.as_value() for beat in beats)[order.o.payload])
        m.d.comb += [
            manager.rid.eq(0),
            manager.rdata.eq(now.data),
            manager.rresp.eq(now.resp),
            manager.rlast.eq(now.last),
            manager.rvalid.eq(order.o.valid & Array(b.valid for b in beats)[order.o.payload]),
            order.o.ready.eq(manager.rvalid & manager.rready & now.last),
        ]
        return m


class WriteSpread(_Spread):
    """Writes, whose answers come back in the order of their addresses; 3 cycles more."""

    def __init__(self, n_bytes: int, address_width: int = 64, *, n: int) -> None:
        super().__init__(WritePort(n_bytes, address_width), "aw", n)

    def elaborate(self, platform):
        m = Module()
        writing, asking = self._order(m, "writing"), self._order(m, "asking")
        self._addresses(m, [writing, asking])
        manager = self.manager
        fields = ("data", "strb", "last")
        beats = Channel(manager, "w")
        queues = []
        for k, port in enumerate(self.ports):
            m.submodules[f"beats{k}"] = queue = FIFO(beats.layout(*fields), N_BEATS)
            queues.append(queue)
            m.d.comb += [
                *beats.take(queue.i.p, *fields),
                queue.i.valid.eq(manager.wvalid & writing.o.valid & (writing.o.payload == k)),
                *Channel(port, "w").put(queue.o.p, *fields),
                port.wvalid.eq(queue.o.valid),
                queue.o.ready.eq(port.wready),
                port.bready.eq(asking.o.valid & (asking.o.payload == k) & manager.bready),
            ]
        ready = Array(queue.i.ready for queue in queues)[writing.o.payload]
        m.d.comb += [
            manager.wready.eq(writing.o.valid & ready),
            writing.o.ready.eq(manager.wvalid & manager.wready & manager.wlast),
            manager.bid.eq(0),
            manager.bresp.eq(Array(port.bresp for port in self.ports)[asking.o.payload]),
            manager.bvalid.eq(
                asking.o.valid & Array(port.bvalid for port in self.ports)[asking.o.payload]
            ),
            asking.o.ready.eq(manager.bvalid & manager.bready),
        ]
        return m
