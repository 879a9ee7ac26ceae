"""One AXI4 memory port for several managers, each of which may be cut off and come back.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.names import signals
from ..primitive.same import same
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from ..stream.tokens import Tokens
from .axi4 import ReadPort, WritePort
from .bursts import N_BURSTS
from .channel import Channel

FIELDS = ("addr", "len", "size", "burst", "cache", "prot")


class _Share(wiring.Component):
    """What both directions have in common: whose address goes next, and what is under way.

    Parameters
    ----------
    n_bytes, address_width : int
        See `ReadPort`.
    n : int
        Managers, 1 to 16.

    Members
    -------
    managers : In(port).array(n)
    port : Out(port)
    closed : In(n)
        While bit k is 1, no address of manager k is taken.
    yields : In(ArrayLayout(n, n))
        Bit j of yields[k]: an address of manager k waits while manager j offers one. Those that
        yield to none of the others take turns.
    quiet : Out(n)
        Bit k: nothing of manager k is under way, two cycles ago; for managers with at most 16
        bursts under way.
    """

    def __init__(self, signature, prefix, n, **more):
        if not 1 <= n <= 16:
            raise ValueError(f"n must be 1 to 16, not {n!r}")
        self.n, self.prefix = n, prefix
        super().__init__(
            {
                "managers": In(signature).array(n),
                "port": Out(signature),
                "closed": In(n),
                "yields": In(data.ArrayLayout(n, n)),
                "quiet": Out(n),
                **more,
            }
        )

    def _addresses(self, m, owners):
        """An address every second cycle; (a strobe, whose is taken).

        owners : FIFO, of whose burst is over when it is taken from there.
        """
        port = Channel(self.port, self.prefix)
        managers = [Channel(one, self.prefix) for one in self.managers]
        shape = port.layout(*FIELDS)
        m.submodules.addresses = out = Slice(shape, half_rate=True)
        last, chosen = signals("last chosen", range(max(2, self.n)))
        offers, first = signals("offers first", self.n)
        taken = Signal()
        m.d.comb += [
            offers.eq(Cat(one.valid for one in managers) & ~self.closed),
            first.eq(Cat(offers[k] & ~(offers & self.yields[k]).any() for k in range(self.n))),
            port.valid.eq(out.o.valid),
            port["id"].eq(0),
            out.o.ready.eq(port.ready),
            *port.put(out.o.p, *FIELDS),
            chosen.eq(last),
            taken.eq(offers.any() & out.i.ready & self.room),
            out.i.valid.eq(offers.any() & self.room),
        ]
        for back in range(self.n, 0, -1):  # the nearest behind the last one wins
            for k in range(self.n):
                with m.If((last == k) & first.bit_select((k + back) % self.n, 1)):
                    m.d.comb += chosen.eq((k + back) % self.n)
        with m.If(taken):
            m.d.sync += last.eq(chosen)
        for k, one in enumerate(managers):
            m.d.comb += one.ready.eq(taken & (chosen == k))
        ports, over = Array(data.View(shape, one.gathered(*FIELDS)) for one in managers), owners.o
        m.d.comb += out.i.p.eq(ports[chosen].as_value())
        for k in range(self.n):
            count = Signal(range(2 * N_BURSTS), name=f"under_way{k}")
            came, went = Signal(name=f"came{k}"), Signal(name=f"went{k}")
            m.d.comb += came.eq(taken & (chosen == k))
            m.d.comb += went.eq(over.valid & over.ready & (over.payload == k))
            m.d.sync += count.eq(count + came - went)
            m.d.sync += self.quiet[k].eq((count == 0) & ~came)
        return taken, chosen

    def _owners(self, m, name):
        several = self.n > 1
        queue = FIFO(range(self.n), min(64, self.n * N_BURSTS)) if several else Tokens(N_BURSTS)
        m.submodules[name] = queue
        return queue


class ReadShare(_Share):
    """Merges read ports: an address every second cycle, data at full rate, in order of addresses.

    Latency 1 cycle for addresses, none for data. Parameters, members: see `_Share`.
    """

    def __init__(self, n_bytes: int, address_width: int = 64, *, n: int) -> None:
        super().__init__(ReadPort(n_bytes, address_width), "ar", n)

    def elaborate(self, platform):
        m = Module()
        owners = self._owners(m, "owners")
        self.room = owners.i.ready
        taken, chosen = self._addresses(m, owners)
        port, owner = self.port, owners.o
        m.d.comb += [
            owners.i.valid.eq(taken),
            owners.i.payload.eq(chosen),
            port.rready.eq(owner.valid & Array(one.rready for one in self.managers)[owner.payload]),
            owner.ready.eq(port.rvalid & port.rready & port.rlast),
        ]
        for k, one in enumerate(self.managers):
            mine = owner.valid & (owner.payload == k)
            m.d.comb += [
                one.rid.eq(0),
                *same(one, port, "rdata rresp rlast"),
                one.rvalid.eq(mine & port.rvalid),
            ]
        return m


class WriteShare(_Share):
    """Merges write ports: an address every second cycle, data at full rate, in order of addresses.

    Latency 1 cycle for addresses and data, none for answers. Whoever gave an address gives its
    data without waiting for another manager. Parameters, members: see `_Share`.

    halts : In(1)
        No beat of a manager is taken; while ``port.wready`` is 0, too, ``port.wdata`` stays as it
        is, whatever ``port.wvalid`` says.
    """

    def __init__(self, n_bytes: int, address_width: int = 64, *, n: int) -> None:
        super().__init__(WritePort(n_bytes, address_width), "aw", n, halts=In(1))

    def elaborate(self, platform):
        m = Module()
        writers, askers = self._owners(m, "writers"), self._owners(m, "askers")
        self.room = writers.i.ready & askers.i.ready
        taken, chosen = self._addresses(m, askers)
        port, writer, asker = self.port, writers.o, askers.o
        beats, sources = Channel(port, "w"), [Channel(one, "w") for one in self.managers]
        names = ("data", "strb", "last")
        source = {name: Array(one[name] for one in sources)[writer.payload] for name in names}
        comes = Array(one.valid for one in sources)[writer.payload]
        # what is offered stays, whoever is cut off
        m.submodules.words = words = Slice(beats.layout(*names), holds=True)
        moves = words.i.ready & ~self.halts
        m.d.comb += [
            writers.i.valid.eq(taken),
            writers.i.payload.eq(chosen),
            askers.i.valid.eq(taken),
            askers.i.payload.eq(chosen),
            *(words.i.p[name].eq(source[name]) for name in names),
            *beats.put(words.o.p, *names),
            words.i.valid.eq(writer.valid & comes & ~self.halts),
            port.wvalid.eq(words.o.valid),
            words.o.ready.eq(port.wready),
            writer.ready.eq(words.i.valid & words.i.ready & source["last"]),
            port.bready.eq(asker.valid & Array(one.bready for one in self.managers)[asker.payload]),
            asker.ready.eq(port.bvalid & port.bready),
        ]
        for k, one in enumerate(self.managers):
            mine = asker.valid & (asker.payload == k)
            m.d.comb += [
                one.wready.eq(writer.valid & (writer.payload == k) & moves),
                one.bid.eq(0),
                one.bresp.eq(port.bresp),
                one.bvalid.eq(mine & port.bvalid),
            ]
        return m
