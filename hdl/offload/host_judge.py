"""Whether a host frame is of the session, the one expected, and within what it may reach.

Golden model: `gradnic.models.offload.host_judge`.
"""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.host_frame import ALIGN, SEQ_BITS, Kind, Status

from ..axi.bursts import LENGTH_WIDTH, Region
from ..primitive.names import signals
from .host_parser import Asked

N_REGIONS = 2


class HostJudge(wiring.Component):
    """Says what a request is, 3 cycles after it and what it is held against.

    Parameters
    ----------
    n_bytes, address_width, register_width : see `gradnic.hdl.offload.host_port.HostPort`

    Members
    -------
    asked, is_open, session, expected, regions : In
        The frame; the session, and the SEQ that it expects; where READ and WRITE may go.
    stranger : Out(1)
        Of no session, or another one.
    apart, late : Out(1)
        SEQ is not the one expected; it is a copy.
    status : Out(8)
        `Status` of a request of the session: UNKNOWN, UNALIGNED, OUTSIDE or DONE.
    right : Out(1)
        Of the session, the one expected, and nothing wrong with it.
    region, offset, n_beats : Out(1), Out(24), Out(17)
        Of memory, where it is inside.
    """

    def __init__(self, n_bytes: int, address_width: int, register_width: int) -> None:
        self.n_bytes, self.address_width = n_bytes, address_width
        self.register_width = register_width
        super().__init__(
            {
                "asked": In(Asked),
                "is_open": In(1),
                "session": In(32),
                "expected": In(SEQ_BITS),
                "regions": In(data.ArrayLayout(Region(n_bytes, address_width), N_REGIONS)),
                "stranger": Out(1),
                "apart": Out(1),
                "late": Out(1),
                "status": Out(8),
                "right": Out(1),
                "region": Out(1),
                "offset": Out(LENGTH_WIDTH),
                "n_beats": Out(17),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n, low, asked = self.n_bytes, ceil_log2(self.n_bytes), self.asked
        of_registers = (asked.kind == Kind.READ_REG) | (asked.kind == Kind.WRITE_REG)
        of_memory = (asked.kind == Kind.READ) | (asked.kind == Kind.WRITE)
        is_post = asked.kind == Kind.POST
        unaligned, unknown, in_registers = signals("unaligned unknown in_registers")
        strange = Signal()
        ahead = Signal(SEQ_BITS)
        status = Signal.like(self.status)
        m.d.sync += [
            strange.eq(~self.is_open | (self.session != asked.session)),
            ahead.eq(asked.seq - self.expected),
            self.n_beats.eq((asked.elems + (n - 1)) >> low),
            unknown.eq(~(of_registers | of_memory | is_post)),
            unaligned.eq(
                (of_registers & asked.address[:2].any())
                | (of_memory & asked.address[: ceil_log2(ALIGN)].any())
            ),
            in_registers.eq(asked.address + asked.elems <= 1 << self.register_width),
        ]
        places = [self._place(m, k) for k in range(N_REGIONS)]
        fits = places[0][0] | places[1][0]
        inside = Mux(of_registers, in_registers, Mux(of_memory, fits, 1))
        aligned = Mux(inside, Status.DONE, Status.OUTSIDE)
        known = Mux(unaligned, Status.UNALIGNED, aligned)
        m.d.comb += status.eq(Mux(unknown, Status.UNKNOWN, known))
        m.d.sync += [
            self.stranger.eq(strange),
            self.apart.eq(ahead != 0),
            self.late.eq(ahead[-1]),
            self.status.eq(status),
            self.right.eq(~strange & (ahead == 0) & (status == Status.DONE)),
            self.region.eq(~places[0][0]),
            self.offset.eq(Mux(places[0][0], places[0][1], places[1][1])),
        ]
        return m

    def _place(self, m, k):
        """(whether the request is within region `k`, its offset there)."""
        region, width, low = self.regions[k], self.address_width, ceil_log2(self.n_bytes)
        beat = self.asked.address[low:]
        above = self.asked.address[width:] if width < len(self.asked.address) else Const(0)
        far, high = Signal(len(beat), name=f"far{k}"), Signal(name=f"high{k}")
        size, fits = Signal(LENGTH_WIDTH + 1, name=f"size{k}"), Signal(name=f"fits{k}")
        m.d.sync += [
            far.eq(beat - region.first),
            high.eq(above.any() | (beat < region.first)),
            size.eq(region.n_beats),
            fits.eq(
                ~high & ~far[LENGTH_WIDTH:].any() & (far[:LENGTH_WIDTH] + self.n_beats <= size)
            ),
        ]
        return fits, far[:LENGTH_WIDTH]
