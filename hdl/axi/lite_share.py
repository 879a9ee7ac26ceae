"""One AXI4-Lite subordinate for two managers.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..stream.slice import Slice
from .axis import Lite
from .channel import Channel

_FORWARD = {"aw": ("addr", "prot"), "w": ("data", "strb"), "ar": ("addr", "prot")}
_BACK = {"b": ("resp",), "r": ("data", "resp")}
_ANSWER = {"aw": "b", "w": "b", "ar": "r"}


class LiteShare(wiring.Component):
    """The second manager goes between two requests of the first one; a cycle more, each way.

    The first has one read and one write under way at most. Once the second waits, nothing new of
    the first is taken; as soon as nothing of it is under way the second has its turn, for one
    request. So the second waits for one read and one write of the first, which must give the data
    of a write that it gives the address of; the first for one request of the second.

    Parameters
    ----------
    address_width : int
        See `Lite`.

    Members
    -------
    first, second : In(Lite(address_width))
        ``second`` has one request at a time, a read or a write.
    o : Out(Lite(address_width))
    """

    def __init__(self, address_width: int) -> None:
        bus = Lite(address_width)
        super().__init__({"first": In(bus), "second": In(bus), "o": Out(bus)})

    def elaborate(self, platform):
        m = Module()
        turn = Signal()  # of the second
        closing = Signal()  # the second waits: nothing new of the first
        has = {name: Signal(name=f"has_{name}") for name in _FORWARD}  # taken, not answered
        halves = {"aw": has["w"] & ~has["aw"], "w": has["aw"] & ~has["w"], "ar": 0}
        taken, answers = {}, {}
        for name, fields in _FORWARD.items():
            a, b, o = (Channel(bus, name) for bus in (self.first, self.second, self.o))
            m.submodules[name] = part = Slice(o.layout(*fields), half_rate=True)
            passes = ~turn & (~closing | halves[name]) & ~has[name]  # one of a kind at a time
            m.d.comb += [
                part.i.valid.eq((a.valid & passes) | (b.valid & turn)),
                a.ready.eq(part.i.ready & passes),
                b.ready.eq(part.i.ready & turn),
                *(part.i.p[field].eq(Mux(turn, b[field], a[field])) for field in fields),
                o.valid.eq(part.o.valid),
                part.o.ready.eq(o.ready),
                *o.put(part.o.p, *fields),
            ]
            taken[name] = part.i.valid & part.i.ready
        for name, fields in _BACK.items():
            a, b, o = (Channel(bus, name) for bus in (self.first, self.second, self.o))
            m.submodules[name] = part = Slice(o.layout(*fields), half_rate=True)
            m.d.comb += [
                part.i.valid.eq(o.valid),
                o.ready.eq(part.i.ready),
                *o.take(part.i.p, *fields),
                a.valid.eq(part.o.valid & ~turn),
                b.valid.eq(part.o.valid & turn),
                part.o.ready.eq(Mux(turn, b.ready, a.ready)),
                *a.put(part.o.p, *fields),
                *b.put(part.o.p, *fields),
            ]
            answers[name] = part.o
        under_way = [one.valid & ~one.ready for one in answers.values()]  # behind this cycle
        ends = {name: one.valid & one.ready for name, one in answers.items()}
        for name in _FORWARD:
            after = (has[name] & ~ends[_ANSWER[name]]) | taken[name]
            m.d.sync += has[name].eq(after)
            under_way.append(after)
        second, still = self.second, ~Cat(under_way).any()
        with m.If(turn):
            m.d.sync += turn.eq(~(Cat(ends.values()).any() & still))
        with m.Elif(closing):
            m.d.sync += [turn.eq(still), closing.eq(~still)]
        with m.Else():
            m.d.sync += closing.eq(second.awvalid | second.wvalid | second.arvalid)
        return m
