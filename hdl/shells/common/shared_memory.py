"""A card whose memory ports share those of the channels that it is given.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.card_memory import MEMORIES

from ...axi.axi4 import ReadPort, WritePort
from ...axi.channel import Channel
from ...axi.share import FIELDS, ReadShare, WriteShare
from ...primitive.names import signals
from ...primitive.same import by_name, same
from ...stream.fifo import FIFO
from .pass_on import pass_on

ONE = "memory"
N_BEATS = 64  # that wait at a shared port: four bursts
BEAT = ("data", "strb", "last")
SHARES = {"read": ReadShare, "write": WriteShare}


def ports_of(card):
    """{name: signature} of the memory ports of a card: x_read and x_write, for some x."""
    members = {name: one.signature for name, one in card.signature.members.items()
               if one.is_signature and one.flow == Out}  # fmt: skip
    return {k: one for k, one in members.items() if isinstance(one, ReadPort | WritePort)}


def memory_of(port):
    """The one of `MEMORIES` that a memory port of a card works on, by its name: landing areas are
    apart; all else, passes of THC with their scratch and residuals, is where gradients are.
    """
    gradient, landing = MEMORIES
    return landing if port.startswith(landing) else gradient


class WholeBursts(wiring.Component):
    """Writes whose addresses go once all beats of their burst are here: full rate.

    So whoever shares a port never waits for what makes a burst's beats. Ports of a card need it:
    packets that arrive are written to landing areas or to results, each behind the one before, so
    of two ports that share one, the first in the share's order could wait for the other.

    Parameters
    ----------
    port : WritePort, with bursts of at most half of `N_BEATS`

    Members
    -------
    i, o : In(port), Out(port)
    """

    def __init__(self, port: WritePort) -> None:
        super().__init__({"i": In(port), "o": Out(port)})

    def elaborate(self, platform):
        m = Module()
        near, far = (Channel(port, "aw") for port in (self.i, self.o))
        source, target = (Channel(port, "w") for port in (self.i, self.o))
        m.submodules.beats = beats = FIFO(source.layout(*BEAT), N_BEATS)
        whole = Signal(range(2 * N_BEATS))  # bursts
        came, goes = signals("came goes")
        m.d.comb += [
            *(far[name].eq(near[name]) for name in ("id", *FIELDS)),
            far.valid.eq(near.valid & (whole != 0)),
            near.ready.eq(far.ready & (whole != 0)),
            *source.take(beats.i.p, *BEAT),
            beats.i.valid.eq(source.valid),
            source.ready.eq(beats.i.ready),
            *target.put(beats.o.p, *BEAT),
            target.valid.eq(beats.o.valid),
            beats.o.ready.eq(target.ready),
            *same(self.i, self.o, "bid bresp bvalid"),
            self.o.bready.eq(self.i.bready),
            came.eq(source.valid & source.ready & source["last"]),
            goes.eq(far.valid & far.ready),
        ]
        m.d.sync += whole.eq(whole + came - goes)
        return m


class SharedMemory(wiring.Component):
    """An offload `card` with a port for reads and one for writes of each of its two memories.

    Ports of the card that work on the same memory take turns by bursts: a beat a cycle in all, each
    way. A memory with one port of the card has that port as it is.

    Parameters
    ----------
    card : wiring.Component
        With memory ports of which each takes what it has asked for, whatever the others do.
    one : bool
        Both memories are one.

    Members
    -------
    The card's own, with x_read and x_write in place of its memory ports, for x "gradient" and
    "landing", or `ONE` alone.
    """

    def __init__(self, card: wiring.Component, *, one: bool = False) -> None:
        self.card = card
        self.names = (ONE,) if one else MEMORIES
        inside = ports_of(card)
        self.sources = {
            f"{name}_{way}": [
                port for port in inside if port.endswith(way) and (one or memory_of(port) == name)
            ]
            for name in self.names
            for way in SHARES
        }
        members = {name: m for name, m in card.signature.members.items() if name not in inside}
        self.parts = {}
        for name, sources in self.sources.items():
            signature = inside[sources[0]]
            if len(sources) > 1:
                share = SHARES[name.rpartition("_")[2]]
                sizes = signature.n_bytes, signature.address_width
                self.parts[name] = share(*sizes, n=len(sources))
            members[name] = Out(signature)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        inside, outside = by_name(card), by_name(self)
        for name, sources in self.sources.items():
            inner, outer = inside[sources[0]], wiring.flipped(outside[name])
            if name in self.parts:
                m.submodules[name] = part = self.parts[name]
                inner = part.port
                for k, source in enumerate(sources):
                    port = inside[source]
                    if source.endswith("write"):
                        whole = WholeBursts(part.managers[k].signature.flip())
                        m.submodules[f"{source}_whole"] = whole
                        wiring.connect(m, port, whole.i)
                        port = whole.o
                    wiring.connect(m, port, part.managers[k])
            wiring.connect(m, inner, outer)
        pass_on(m, card, self, but=ports_of(card))
        return m
