"""A card between a MAC and its own FIFOs, where each direction has a clock of the MAC's.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, ClockDomain, DomainRenamer, Module, ResetSignal, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from gradnic.interface.tap import WINDOW_BITS

from ...axi.axis import Axis, AxisReceiver, AxisSender, Lite
from ...primitive.same import same
from ...stream.beats import FrameBeat
from ...stream.width import WidthConverter
from .crossing import Crossing
from .fan import LiteFan
from .mac_side import MacEntry, MacExit
from .tap_registers import PulseCrossing, TapRegisters

FIELDS = ("tdata", "tkeep", "tlast", "tuser", "tvalid")


class DirectTap(wiring.Component):
    """`card` at the MAC: takes whatever the MAC delivers, and feeds it frames without a gap.

    ::

        mac_rx ─▶ widen ─▶ store ─┐          ┌─▶ narrow ─▶ host_rx       rx clock
                                  └─▶ card ──┘                           clk
        host_tx ─▶ widen ─────────┐          ┌─▶ store ─▶ narrow ─▶ mac_tx   tx clock
                                  └─▶ card ──┘                           clk

    ``mac_rx`` is always taken; a frame that finds its store full is lost as a whole and counted in
    a register. Frames to the MAC are stored first, so that ``tvalid`` stays high from the first to
    the last beat of a frame. Any of the three resets resets all: after one the registers of the
    card hold their reset values. While one of the MAC's lasts, as without a link, registers read 0
    and writes are lost: the bus is answered, whatever the MAC does; ``host_tx`` waits.

    Parameters
    ----------
    card : wiring.Component
        With frame streams host_tx, mac_tx, mac_rx and host_rx, and registers ``bus``.
    n_bytes : int
        Bytes of a beat at the MAC; the card's are as many or 2, 4, … 64 times as many.

    Members
    -------
    clk, rst, tx_clk, tx_rst, rx_clk, rx_rst : In(1)
        Of card and registers, of host_tx and mac_tx, of mac_rx and host_rx.
    host_tx, mac_rx : In(Axis(n_bytes, user_width=1 + side band of the card's stream))
    mac_tx, host_rx : Out(…)
    bus : In(Lite(12)), in clk
        Registers of the card, and at 0x800 those of `gradnic.interface.tap`.
    """

    def __init__(self, card: wiring.Component, n_bytes: int) -> None:
        self.card = card
        self.n_bytes = n_bytes
        self.wide_bytes = len(card.mac_rx.p.keep)
        streams = {"host_tx": card.host_tx, "mac_tx": card.mac_tx, "mac_rx": card.mac_rx,
                   "host_rx": card.host_rx}  # fmt: skip
        self.shapes = {name: frames.p.shape() for name, frames in streams.items()}
        self.meta = {
            name: len(frames.p.meta) if "meta" in self.shapes[name].members else 0
            for name, frames in streams.items()
        }
        clocks = ("clk", "rst", "tx_clk", "tx_rst", "rx_clk", "rx_rst")
        members = {name: In(1) for name in clocks}
        for name, meta_width in self.meta.items():
            axis = Axis(n_bytes, user_width=1 + meta_width)
            members[name] = In(axis) if name in ("host_tx", "mac_rx") else Out(axis)
        members["bus"] = In(Lite(WINDOW_BITS))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        any_reset = self.rst | self.tx_rst | self.rx_rst
        clocks = {"asked": self.clk, "mac_tx": self.tx_clk, "mac_rx": self.rx_clk}
        for name, clock in clocks.items():
            m.domains += (domain := ClockDomain(name))
            m.d.comb += domain.clk.eq(clock)
            m.submodules[f"{name}_reset"] = ResetSynchronizer(any_reset, domain=name)
        away = self._core(m)

        m.submodules.card = card = self.card
        m.submodules.registers = registers = TapRegisters(card.bus.signature.address_width)
        m.submodules.lost = lost = PulseCrossing(i_domain="mac_rx", o_domain="sync")
        fan = LiteFan([(0, WINDOW_BITS)], address_width=WINDOW_BITS, leaves=True)
        m.submodules.answers = answers = DomainRenamer("core")(fan)
        wiring.connect(m, wiring.flipped(self.bus), answers.i)
        wiring.connect(m, answers.o0, registers.bus)
        m.d.comb += answers.away.eq(away)
        wiring.connect(m, registers.card, card.bus)
        m.d.comb += registers.lost.eq(lost.o)

        host_tx = self._receive(m, "host_tx", self.host_tx, "mac_tx")
        self._cross(m, "host_tx", host_tx, card.host_tx, "mac_tx", "sync")
        entry = MacEntry(self.wide_bytes, meta_width=self.meta["mac_rx"])
        m.submodules.mac_entry = DomainRenamer("mac_rx")(entry)
        wiring.connect(m, self._receive(m, "mac_rx", self.mac_rx, "mac_rx"), entry.i)
        m.d.comb += lost.i.eq(entry.lost)
        self._cross(m, "mac_rx", entry.o, card.mac_rx, "mac_rx", "sync")

        exit = MacExit(self.wide_bytes, meta_width=self.meta["mac_tx"])
        m.submodules.mac_exit = DomainRenamer("mac_tx")(exit)
        self._cross(m, "mac_tx", card.mac_tx, exit.i, "sync", "mac_tx")
        self._send(m, "mac_tx", exit.o, self.mac_tx, "mac_tx")
        host_rx = stream.Signature(self.shapes["host_rx"]).create(path=("host_rx",))
        self._cross(m, "host_rx", card.host_rx, host_rx, "sync", "mac_rx")
        self._send(m, "host_rx", host_rx, self.host_rx, "mac_rx")
        return m

    def _core(self, m):
        """The clock of the card, ``sync``, and of the bus, ``core``, which has but its own reset.

        Returns whether the bus must leave the card alone: from 2 cycles after its reset begins,
        which lasts at least 4, to 2 after it.
        """
        m.domains += (core := ClockDomain("core"))
        m.domains += (sync := ClockDomain("sync"))
        m.d.comb += [core.clk.eq(self.clk), core.rst.eq(self.rst), sync.clk.eq(self.clk)]
        was = Signal(4, init=-1, reset_less=True)  # a cycle ago, two, three, four
        m.d.core += was.eq(Cat(ResetSignal("asked"), was))
        m.d.comb += sync.rst.eq(ResetSignal("asked") | was[:2].any())
        return was[1:].any()

    def _narrow(self, name):
        return FrameBeat(self.n_bytes, meta_width=self.meta[name])

    def _receive(self, m, name, port, domain):
        """The stream of the card's width behind an input `port`, in the MAC's clock."""
        entry = AxisReceiver(self.n_bytes, meta_width=self.meta[name])
        m.submodules[f"{name}_entry"] = DomainRenamer(domain)(entry)
        inner = entry.axis
        taken = inner.tready
        if name == "host_tx":  # waits: a frame that is lost in a reset has no completion
            taken &= ~ResetSignal(domain)
        m.d.comb += [
            port.tready.eq(taken),
            *same(inner, port, FIELDS),
        ]
        if self._narrow(name) == self.shapes[name]:
            return entry.o
        widen = WidthConverter(self._narrow(name), self.shapes[name])
        m.submodules[f"{name}_widen"] = DomainRenamer(domain)(widen)
        wiring.connect(m, entry.o, widen.i)
        return widen.o

    def _cross(self, m, name, source, target, i_domain, o_domain):
        crossing = Crossing(self.shapes[name], i_domain=i_domain, o_domain=o_domain)
        m.submodules[f"{name}_crossing"] = crossing
        for one, other in ((source, crossing.i), (crossing.o, target)):
            m.d.comb += [other.valid.eq(one.valid), one.ready.eq(other.ready)]
            m.d.comb += [other.p[field].eq(one.p[field]) for field in self.shapes[name].members]

    def _send(self, m, name, source, port, domain):
        """From a stream of the card's width to an output `port`, in the MAC's clock."""
        exit = AxisSender(self.n_bytes, meta_width=self.meta[name])
        m.submodules[f"{name}_exit"] = DomainRenamer(domain)(exit)
        wiring.connect(m, exit.axis, wiring.flipped(port))
        target = exit.i
        if self._narrow(name) != self.shapes[name]:
            narrow = WidthConverter(self.shapes[name], self._narrow(name))
            m.submodules[f"{name}_narrow"] = DomainRenamer(domain)(narrow)
            wiring.connect(m, narrow.o, exit.i)
            target = narrow.i
        m.d.comb += [target.valid.eq(source.valid), source.ready.eq(target.ready)]
        m.d.comb += [target.p[field].eq(source.p[field]) for field in self.shapes[name].members]
