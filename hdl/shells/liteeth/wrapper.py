"""LiteEth: a card between MAC core and crossbar, on streams of 8 to 64 bits with ``last_be``.

``last_be`` is one-hot: the last byte of a frame, on its last beat. The MAC has no way to spoil a
frame on its way out, so frames marked bad are dropped there; it stops neither for its sender nor
for its receiver, so frames are stored both ways.

Source: docs/spec/shells.md; liteeth 276c9e3, 2026-07.

Plumbing: no golden model of its own.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface import params
from gradnic.interface.tap import REGISTERS, WINDOW_BITS

from ...axi.axis import Lite
from ...primitive.same import by_name, join
from ...stream.beats import FrameBeat
from ...stream.slice import Slice
from ...stream.width import WidthConverter
from ...top import catalog as tops
from ...top import verilog
from ..common.job_note import opens
from ..common.mac_side import MacEntry, MacExit
from ..common.shared_memory import SharedMemory
from ..common.tap_registers import TapRegisters
from .note import MEMORY, NOTE

MODULE = "gradnic_liteeth"
WIDEST = 64  # times the MAC core's, of a card: `WidthConverter`
WIDTHS = (8, 16, 32, 64)
STREAMS = {"host_tx": True, "mac_tx": False, "mac_rx": True, "host_rx": False}
"""Of a card, and whether frames enter it there."""


class Endpoint(wiring.Signature):
    """A stream of LiteEth's ``eth_phy_description``, seen from its source; `bits` of data."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        members = {"valid": Out(1), "ready": In(1), "first": Out(1), "last": Out(1)}
        super().__init__(
            members | {"data": Out(bits), "last_be": Out(bits // 8), "error": Out(bits // 8)}
        )

    def __eq__(self, other):
        return type(self) is type(other) and self.bits == other.bits


class FromLiteEth(wiring.Component):
    """Frames of a LiteEth stream: 1 cycle, full rate.

    A frame ends with its byte in ``last_be``, or with ``last`` where that names no byte; beats
    between the two are swallowed. ``error`` on any byte of a frame marks it bad.

    Parameters
    ----------
    bits : int, 8, 16, 32 or 64.

    Members
    -------
    i : In(Endpoint(bits))
    o : Out(stream.Signature(FrameBeat(bits // 8)))
        Comes from registers.
    """

    def __init__(self, bits: int) -> None:
        self.slice = Slice(FrameBeat(bits // 8))
        super().__init__({"i": In(Endpoint(bits)), "o": Out(self.slice.o.signature)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.slice = slice = self.slice
        wiring.connect(m, slice.o, wiring.flipped(self.o))
        i, beat = self.i, slice.i.p
        ended = Signal()  # by last_be, before last
        failed = Signal()  # error on an earlier beat
        ends = i.last_be.any()
        marked = Signal()
        kept = [i.last_be[k:].any() | ~ends for k in range(len(i.last_be))]
        m.d.comb += [
            marked.eq(i.error.any() | failed),
            beat.data.eq(i.data),
            beat.keep.eq(Cat(kept)),
            beat.last.eq(i.last | ends),
            beat.bad.eq(marked & beat.last),
            slice.i.valid.eq(i.valid & ~ended),
            i.ready.eq(slice.i.ready | ended),
        ]
        with m.If(i.valid & i.ready):
            m.d.sync += [
                ended.eq(~i.last & (ended | ends)),
                failed.eq(marked & ~i.last & ~ends & ~ended),
            ]
        return m


class ToLiteEth(wiring.Component):
    """A LiteEth stream of frames: 1 cycle, full rate. ``error`` is on all bytes of the last beat.

    Parameters
    ----------
    bits : int, 8, 16, 32 or 64.

    Members
    -------
    i : In(stream.Signature(FrameBeat(bits // 8)))
    o : Out(Endpoint(bits))
        Comes from registers.
    """

    def __init__(self, bits: int) -> None:
        self.slice = Slice(FrameBeat(bits // 8))
        super().__init__({"i": In(self.slice.i.signature.flip()), "o": Out(Endpoint(bits))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.slice = slice = self.slice
        wiring.connect(m, wiring.flipped(self.i), slice.i)
        beat, o = slice.o.p, self.o
        first = Signal(init=1)
        edge = beat.keep & ~Cat(beat.keep[1:], 0)
        m.d.comb += [
            o.valid.eq(slice.o.valid),
            slice.o.ready.eq(o.ready),
            o.first.eq(first),
            o.last.eq(beat.last),
            o.data.eq(beat.data),
            o.last_be.eq(Mux(beat.last, edge, 0)),
            o.error.eq((beat.bad & beat.last).replicate(len(o.error))),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += first.eq(beat.last)
        return m


class Bridge(wiring.Component):
    """`card` between LiteEth's MAC core and what it feeds.

    Parameters
    ----------
    card : wiring.Component
        With frame streams host_tx, mac_tx, mac_rx and host_rx without side band, arrays of one
        where the card has ports, and ``bus``.
    bits : int
        8, 16, 32 or 64, and less than the card's.

    Members
    -------
    host_tx, mac_rx : In(Endpoint(bits))
        ``mac_rx.ready`` is always high.
    mac_tx, host_rx : Out(Endpoint(bits))
        ``mac_tx.valid`` stays high over a frame.
    bus : In(Lite(12))
        Registers of the card, and at 0x800 those of `gradnic.interface.tap`: frames of the MAC for
        which there was no room.
    others
        As the card's: memory ports and the interrupt of an offload card.
    """

    def __init__(self, card: wiring.Component, bits: int) -> None:
        if bits not in WIDTHS:
            raise ValueError(f"bits must be 8, 16, 32 or 64, not {bits!r}")
        self.card = card
        self.bits = bits
        known = card.signature.members
        ports = by_name(card)
        self.streams = {name: ports[name][0] if known[name].dimensions else ports[name]
                        for name in STREAMS}  # fmt: skip
        self.others = {
            name: member for name, member in known.items() if name not in {"bus", *STREAMS}
        }
        self.n_bytes = len(self.streams["mac_tx"].p.keep)
        port = Endpoint(bits)
        members = {name: In(port) if inward else Out(port) for name, inward in STREAMS.items()}
        super().__init__(members | self.others | {"bus": In(Lite(WINDOW_BITS))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        m.submodules.mac_entry = entry = MacEntry(self.n_bytes)
        m.submodules.mac_exit = exit = MacExit(self.n_bytes, drop_bad=True)
        m.submodules.registers = registers = TapRegisters(card.bus.signature.address_width)
        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        wiring.connect(m, registers.card, card.bus)
        self._receive(m, "host_tx", self.host_tx, self.streams["host_tx"])
        self._receive(m, "mac_rx", self.mac_rx, entry.i)
        wiring.connect(m, entry.o, self.streams["mac_rx"])
        wiring.connect(m, self.streams["mac_tx"], exit.i)
        self._send(m, "mac_tx", exit.o, self.mac_tx)
        self._send(m, "host_rx", self.streams["host_rx"], self.host_rx)
        m.d.comb += registers.lost.eq(entry.lost)
        join(m, card, self, self.others)
        return m

    def _receive(self, m, name, port, target):
        m.submodules[f"{name}_edge"] = edge = FromLiteEth(self.bits)
        widen = WidthConverter(FrameBeat(self.bits // 8), FrameBeat(self.n_bytes))
        m.submodules[f"{name}_widen"] = widen
        wiring.connect(m, wiring.flipped(port), edge.i)
        wiring.connect(m, edge.o, widen.i)
        wiring.connect(m, widen.o, target)

    def _send(self, m, name, source, port):
        m.submodules[f"{name}_edge"] = edge = ToLiteEth(self.bits)
        narrow = WidthConverter(FrameBeat(self.n_bytes), FrameBeat(self.bits // 8))
        m.submodules[f"{name}_narrow"] = narrow
        wiring.connect(m, source, narrow.i)
        wiring.connect(m, narrow.o, edge.i)
        wiring.connect(m, edge.o, wiring.flipped(port))


@dataclass(frozen=True)
class LiteEth:
    """Options of the bridge.

    Attributes
    ----------
    bits : int
        Data width of the MAC core, 8, 16, 32 or 64.
    """

    bits: int = 32

    def __post_init__(self):
        if self.bits not in WIDTHS:
            raise ValueError(f"bits must be 8, 16, 32 or 64, not {self.bits!r}")

    def maps(self, parameters):
        """Register maps beside the card's."""
        return (REGISTERS,)

    def bridge(self, parameters):
        """The circuit around the card that `parameters` describe."""
        offload = isinstance(parameters, params.Offload)
        card_bits = 8 * parameters.n_bytes if offload else 32 * parameters.n_lanes
        if card_bits > WIDEST * self.bits:
            raise ValueError(
                f"bits must be at least {card_bits // WIDEST} around a card of {card_bits}, "
                f"not {self.bits}"
            )
        card = tops.core(parameters, meta_width=0)
        if offload:
            card = SharedMemory(card)
        return Bridge(card, self.bits)

    def files(self, parameters, *, platform=None):
        """{file name: text} around the card that `parameters` describe."""
        offload = isinstance(parameters, params.Offload)
        if offload and parameters.n_ports != 1:
            raise ValueError(f"n_ports must be 1 at a MAC core, not {parameters.n_ports}")
        bridge = self.bridge(parameters)
        return {
            **verilog.files(bridge, MODULE, platform=platform),
            f"{MODULE}.md": self.note(bridge, parameters),
        }

    def note(self, bridge, parameters):
        """The page that says what to set where."""
        values = {"bits": self.bits, "module": MODULE}
        memory = ""
        if isinstance(parameters, params.Offload):
            values |= {"memory_bits": 8 * bridge.n_bytes, "address": parameters.address_width}
            memory = MEMORY.format(**values)
        if isinstance(parameters, params.Jobs):
            memory += f"\n{opens(parameters, 'base')}\n"
        return NOTE.format(**values, memory=memory)
