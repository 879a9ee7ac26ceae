"""Streams, AXI4-Lite and AXI4 memory ports from one clock to another.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import DomainRenamer, Module, ResetSignal, Shape, ShapeLike, Value
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ...axi.axi4 import ReadPort, WritePort
from ...axi.axis import Lite
from ...axi.channel import Channel
from .fan import LiteFan

CHANNELS = {  # of AXI4-Lite: whether the manager sends, and its fields
    "aw": (True, ("addr", "prot")),
    "w": (True, ("data", "strb")),
    "b": (False, ("resp",)),
    "ar": (True, ("addr", "prot")),
    "r": (False, ("data", "resp")),
}
READ_CHANNELS = {  # of `ReadPort`: what changes from burst to burst
    "ar": (True, ("addr", "len")),
    "r": (False, ("data", "resp", "last")),
}
WRITE_CHANNELS = {
    "aw": (True, ("addr", "len")),
    "w": (True, ("data", "strb", "last")),
    "b": (False, ("resp",)),
}


class Crossing(wiring.Component):
    """Takes a stream from one clock to another: Gray-coded pointers, two synchronizer stages.

    1 beat per cycle of the slower clock; a beat is offered after 1 cycle of the first and 3 to 4
    of the second clock. When full or in reset, ``i.ready`` is low; nothing is lost. Reset both
    domains together. For timing analysis the paths between the clocks carry a Gray code or data
    that has long been stable: bound them by one period of the faster clock, without clock skew.

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

    def __init__(self, shape: ShapeLike, *, i_domain: str, o_domain: str, depth: int = 16) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two from 2 on, not {depth!r}")
        self.i_domain = i_domain
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
            self.i.ready.eq(store.w_rdy & ~ResetSignal(self.i_domain, allow_reset_less=True)),
            Value.cast(self.o.p).eq(store.r_data),
            self.o.valid.eq(store.r_rdy),
            store.r_en.eq(self.o.ready),
        ]
        return m


class LiteCrossing(wiring.Component):
    """Takes AXI4-Lite from the manager's clock to the subordinate's, one `Crossing` a channel.

    One read and one write are under way at a time. The channels cross apart from each other, so a
    `LiteFan` before them holds a read until the write that came before it has been answered.

    Parameters
    ----------
    address_width : int
        Bits of a byte address.
    i_domain, o_domain : str
        Clock domains of manager and subordinate.
    answers : str or None
        A domain of the manager's clock that lives while both are reset: there is ``away`` then.

    Members
    -------
    i : In(Lite(address_width)), from the manager.
    o : Out(Lite(address_width)), to the subordinate.
    away : In(1), with answers
        As of `LiteFan`.
    """

    def __init__(
        self, address_width: int, *, i_domain: str, o_domain: str, answers: str | None = None
    ) -> None:
        self.i_domain, self.o_domain, self.answers = i_domain, o_domain, answers
        lite = Lite(address_width)
        super().__init__({"i": In(lite), "o": Out(lite)} | ({"away": In(1)} if answers else {}))

    def elaborate(self, platform):
        m = Module()
        width = len(self.i.awaddr)
        fan = LiteFan([(0, width)], address_width=width, leaves=bool(self.answers))
        m.submodules.order = order = DomainRenamer(self.answers or self.i_domain)(fan)
        if self.answers:
            m.d.comb += order.away.eq(self.away)
        wiring.connect(m, wiring.flipped(self.i), order.i)
        _cross(m, self, CHANNELS, order.o0, self.o, depth=4)
        return m


class MemoryCrossing(wiring.Component):
    """Takes an AXI4 memory port from the card's clock to the memory's, one `Crossing` a channel.

    1 beat per cycle of the slower clock. What is the same for all bursts, such as their size, is
    wired; IDs that come back are not looked at.

    Parameters
    ----------
    port : ReadPort or WritePort
    i_domain, o_domain : str
        Clock domains of card and memory.

    Members
    -------
    i : In(port), from the card.
    o : Out(port), to the memory.
    """

    def __init__(self, port: ReadPort | WritePort, *, i_domain: str, o_domain: str) -> None:
        self.channels = READ_CHANNELS if isinstance(port, ReadPort) else WRITE_CHANNELS
        self.i_domain = i_domain
        self.o_domain = o_domain
        super().__init__({"i": In(port), "o": Out(port)})

    def elaborate(self, platform):
        m = Module()
        _cross(m, self, self.channels, self.i, self.o, depth=16)
        near, far = (Channel(port, next(iter(self.channels))) for port in (self.i, self.o))
        m.d.comb += far.put(near, "id", "size", "burst", "cache", "prot")
        return m


def _cross(m, part, channels, near, far, *, depth):
    """A `Crossing` for each of the channels between two ports in the domains of `part`."""
    for channel, (sent, names) in channels.items():
        ends = (near, far) if sent else (far, near)
        source, target = (Channel(port, channel) for port in ends)
        domains = (part.i_domain, part.o_domain) if sent else (part.o_domain, part.i_domain)
        m.submodules[channel] = crossing = Crossing(
            source.layout(*names), i_domain=domains[0], o_domain=domains[1], depth=depth
        )
        m.d.comb += [
            *source.take(crossing.i.p, *names),
            crossing.i.valid.eq(source.valid),
            source.ready.eq(crossing.i.ready),
            *target.put(crossing.o.p, *names),
            target.valid.eq(crossing.o.valid),
            crossing.o.ready.eq(target.ready),
        ]
