"""Edges to the outside: AXI4-Stream adapters and the signatures of AXI4-Stream and AXI4-Lite.

Frames cross as in Corundum and verilog-ethernet: ``tkeep`` contiguous from byte 0 and all ones
before the last beat, ``tuser`` = {meta, bad} with bad in bit 0. Bad counts where ``tlast`` is 1.

Source: Arm IHI 0051A (AXI4-Stream), IHI 0022E part B (AXI4-Lite); docs/spec/shells.md.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_least, check_range

from ..stream.beats import FrameBeat
from ..stream.slice import Slice

OKAY = 0
"""``bresp`` and ``rresp`` of every answer."""


class Axis(wiring.Signature):
    """AXI4-Stream of bytes, seen from the sender.

    Parameters
    ----------
    n_bytes : int
        Bytes per beat, at least 1.
    user_width : int
        Bits of ``tuser``; 0 leaves the port out.
    keep : bool
        Whether there is a ``tkeep``.
    last : bool
        Whether there is a ``tlast``.
    """

    def __init__(
        self, n_bytes: int, *, user_width: int = 0, keep: bool = True, last: bool = True
    ) -> None:
        check_least("n_bytes", n_bytes, 1)
        check_least("user_width", user_width, 0)
        self.n_bytes = n_bytes
        self.user_width = user_width
        members = {"tdata": Out(8 * n_bytes)}
        if keep:
            members["tkeep"] = Out(n_bytes)
        if last:
            members["tlast"] = Out(1)
        if user_width:
            members["tuser"] = Out(user_width)
        super().__init__(members | {"tvalid": Out(1), "tready": In(1)})

    def __eq__(self, other):
        return type(self) is type(other) and self.members == other.members


class Lite(wiring.Signature):
    """AXI4-Lite with 32-bit data and byte strobes, seen from the manager.

    address_width : int, bits of a byte address, 2 to 64.
    """

    def __init__(self, address_width: int) -> None:
        check_range("address_width", address_width, 2, 64)
        self.address_width = address_width
        super().__init__(
            {
                "awaddr": Out(address_width),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(address_width),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )

    def __eq__(self, other):
        return type(self) is type(other) and self.address_width == other.address_width


class AxisReceiver(wiring.Component):
    """Takes frames from AXI4-Stream and enforces the rules of `FrameBeat`: 2 cycles, full rate.

    What breaks the rules from outside is made harmless, and the frame is marked bad at its last
    beat, as if the sender had done so:

    - a beat before the last with any ``tkeep`` bit 0 (a beat without bytes among them) leaves with
      all bytes kept;
    - a last beat with holes leaves with every byte up to its highest kept one;
    - a last beat without bytes leaves with byte 0.

    Frames that keep the rules pass bit for bit, the bad mark included; ``tuser[0]`` before the last
    beat counts for nothing and leaves as 0. After a reset in mid-frame the rest of that frame is
    taken for a frame, so sender and receiver are reset together.

    Parameters
    ----------
    n_bytes : int
        Bytes per beat, see `FrameBeat`.
    meta_width : int
        Bits of side band above the bad bit.

    Members
    -------
    axis : In(Axis(n_bytes, user_width=1 + meta_width))
        ``tready`` comes from a register.
    o : Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
        Outputs come from registers.
    """

    def __init__(self, n_bytes: int, *, meta_width: int = 0) -> None:
        frame = FrameBeat(n_bytes, meta_width=meta_width)
        raw = {"data": 8 * n_bytes, "keep": n_bytes, "last": 1, "user": 1 + meta_width}
        self.n_bytes = n_bytes
        self.meta_width = meta_width
        self.entry = Slice(data.StructLayout(raw))
        self.exit = Slice(frame)
        self.broken_before = Signal()  # by an earlier beat of the frame behind `entry`
        super().__init__(
            {
                "axis": In(Axis(n_bytes, user_width=1 + meta_width)),
                "o": Out(stream.Signature(frame)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.entry, m.submodules.exit = entry, exit = self.entry, self.exit
        m.d.comb += [
            entry.i.p.data.eq(self.axis.tdata),
            entry.i.p.keep.eq(self.axis.tkeep),
            entry.i.p.last.eq(self.axis.tlast),
            entry.i.p.user.eq(self.axis.tuser),
            entry.i.valid.eq(self.axis.tvalid),
            self.axis.tready.eq(entry.i.ready),
        ]
        wiring.connect(m, exit.o, wiring.flipped(self.o))

        beat = entry.o.p
        broken = Signal()  # by this beat or an earlier one
        hole = (beat.keep[1:] & ~beat.keep[:-1]).any() if self.n_bytes > 1 else 0
        wrong = Mux(beat.last, hole | ~beat.keep[0], ~beat.keep.all())
        kept = [beat.keep[k:].any() | ~beat.last for k in range(1, self.n_bytes)]
        m.d.comb += [
            broken.eq(self.broken_before | wrong),
            exit.i.p.data.eq(beat.data),
            exit.i.p.keep.eq(Cat(1, *kept)),
            exit.i.p.last.eq(beat.last),
            exit.i.p.bad.eq(beat.last & (beat.user[0] | broken)),
            exit.i.valid.eq(entry.o.valid),
            entry.o.ready.eq(exit.i.ready),
        ]
        if self.meta_width:
            m.d.comb += exit.i.p.meta.eq(beat.user[1:])
        with m.If(entry.o.valid & entry.o.ready):
            m.d.sync += self.broken_before.eq(broken & ~beat.last)
        return m


class AxisSender(wiring.Component):
    """Offers frames on AXI4-Stream: 1 cycle, full rate, every output from a register.

    ``tuser`` = {meta, bad}; bad is 0 before the last beat. Bytes that are not kept are undefined.

    Parameters
    ----------
    n_bytes, meta_width : int
        As of `AxisReceiver`.

    Members
    -------
    i : In(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
        ``ready`` comes from a register.
    axis : Out(Axis(n_bytes, user_width=1 + meta_width))
    """

    def __init__(self, n_bytes: int, *, meta_width: int = 0) -> None:
        frame = FrameBeat(n_bytes, meta_width=meta_width)
        self.meta_width = meta_width
        self.slice = Slice(frame)
        super().__init__(
            {
                "i": In(stream.Signature(frame)),
                "axis": Out(Axis(n_bytes, user_width=1 + meta_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.slice = slice = self.slice
        m.d.comb += [
            slice.i.p.eq(self.i.p),
            slice.i.p.bad.eq(self.i.p.bad & self.i.p.last),
            slice.i.valid.eq(self.i.valid),
            self.i.ready.eq(slice.i.ready),
            self.axis.tdata.eq(slice.o.p.data),
            self.axis.tkeep.eq(slice.o.p.keep),
            self.axis.tlast.eq(slice.o.p.last),
            self.axis.tuser.eq(slice.o.p.bad),
            self.axis.tvalid.eq(slice.o.valid),
            slice.o.ready.eq(self.axis.tready),
        ]
        if self.meta_width:
            m.d.comb += self.axis.tuser[1:].eq(slice.o.p.meta)
        return m
