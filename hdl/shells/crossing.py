"""Streams and AXI4-Lite from one clock to another."""

from amaranth.hdl import Module, Shape, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ..axi import Lite

CHANNELS = {  # of AXI4-Lite: whether the manager sends, and its fields
    "aw": (True, ("awaddr", "awprot")),
    "w": (True, ("wdata", "wstrb")),
    "b": (False, ("bresp",)),
    "ar": (True, ("araddr", "arprot")),
    "r": (False, ("rdata", "rresp")),
}


class Crossing(wiring.Component):
    """Takes a stream from one clock to another: Gray-coded pointers, two synchronizer stages.

    1 beat per cycle of the slower clock; a beat is offered after 1 cycle of the first and 3 to 4
    of the second clock. When full, ``i.ready`` is low; nothing is lost. Reset both domains
    together. For timing analysis the paths between the clocks carry a Gray code or data that has
    long been stable: bound them by one period of the faster clock, without clock skew.

    Parameters
    ----------
    shape : shape-like
        Payload of both streams.
    i_domain, o_domain : str
        Clock domains of the two sides.
    depth : int
        Beats, a power of two, at least 8 for the full rate.

    Members
    -------
    i, o : In, Out(stream.Signature(shape))
    """

    def __init__(self, shape, *, i_domain, o_domain, depth=16):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two from 2 on, not {depth!r}")
        self.store = fifo.AsyncFIFO(
            width=Shape.cast(shape).width, depth=depth, w_domain=i_domain, r_domain=o_domain
        )
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = self.store
        m.d.comb += [
            store.w_data.eq(Value.cast(self.i.p)),
            store.w_en.eq(self.i.valid),
            self.i.ready.eq(store.w_rdy),
            Value.cast(self.o.p).eq(store.r_data),
            self.o.valid.eq(store.r_rdy),
            store.r_en.eq(self.o.ready),
        ]
        return m


class LiteCrossing(wiring.Component):
    """Takes AXI4-Lite from the manager's clock to the subordinate's, one `Crossing` a channel.

    Parameters
    ----------
    address_width : int
        Bits of a byte address.
    i_domain, o_domain : str
        Clock domains of manager and subordinate.

    Members
    -------
    i : In(Lite(address_width)), from the manager.
    o : Out(Lite(address_width)), to the subordinate.
    """

    def __init__(self, address_width, *, i_domain, o_domain):
        self.i_domain = i_domain
        self.o_domain = o_domain
        lite = Lite(address_width)
        super().__init__({"i": In(lite), "o": Out(lite)})

    def elaborate(self, platform):
        m = Module()
        for channel, (sent, names) in CHANNELS.items():
            source, target = (self.i, self.o) if sent else (self.o, self.i)
            shape = data.StructLayout({name: len(getattr(source, name)) for name in names})
            domains = (self.i_domain, self.o_domain) if sent else (self.o_domain, self.i_domain)
            m.submodules[channel] = crossing = Crossing(
                shape, i_domain=domains[0], o_domain=domains[1], depth=4
            )
            m.d.comb += [
                *(crossing.i.p[name].eq(getattr(source, name)) for name in names),
                crossing.i.valid.eq(getattr(source, f"{channel}valid")),
                getattr(source, f"{channel}ready").eq(crossing.i.ready),
                *(getattr(target, name).eq(crossing.o.p[name]) for name in names),
                getattr(target, f"{channel}valid").eq(crossing.o.valid),
                crossing.o.ready.eq(getattr(target, f"{channel}ready")),
            ]
        return m
