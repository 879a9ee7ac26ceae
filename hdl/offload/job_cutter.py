"""Cuts a job's tensor into chunks and packets, and with THC its norms, too.

Golden model: `gradnic.models.offload.job_cutter`. What the `JobClerk`, `clerk`, does in its steps.
"""

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.utils import ceil_log2

from gradnic.interface.job import JobCodec, Kind

from ..primitive.names import signals
from ..transport.records import Geometry
from .job_queue import Divider

UNITS_WIDTH = 25  # 16 elements each
THC_UNITS = 6  # log2 of those that chunks of THC are multiples of: a packet of sums of 8 bits


class Cutter:
    """What the clerk's steps do to `out`, a `Prepared`: each method is called in its own state.

    long : a chunk has more packets than can be counted. divided : both divisions are done.
    """

    def __init__(self, m: Module, clerk: Any, out: Any) -> None:
        self.clerk, self.out, self.low = clerk, out, ceil_log2(clerk.n_bytes)
        job = out.job
        self.cut = Signal(Geometry, reset_less=True)
        self.halves = Signal()  # two values lie in a word somewhere: chunks are multiples of 32
        if clerk.bf16:
            is_half = (job.kind == Kind.BF16) & (job.codec != JobCodec.THC)
            m.d.comb += self.halves.eq(is_half | (job.codec == JobCodec.RAW16))
        self.units = Signal(UNITS_WIDTH, reset_less=True)  # less one
        self.live = Signal(14, reset_less=True)
        self.coarse = Signal(reset_less=True)
        self.rest_units = Signal(4, reset_less=True)  # elements of the last unit, less one
        self.of_norms = Signal(reset_less=True)
        self.thc = (job.codec == JobCodec.THC) if clerk.thc else Const(0)
        self.n_packets = (job.elems + 1023)[10:]  # of 1,024 elements
        m.submodules.divider = self.divider = Divider(UNITS_WIDTH)
        m.submodules.second = self.second = Divider(UNITS_WIDTH)  # at the same time
        self.a, self.b = signals("a b", UNITS_WIDTH, reset_less=True)
        m.d.comb += [
            self.divider.a.eq(self.a),
            self.divider.b.eq(self.b),
            self.second.a.eq(self.units),
            self.second.b.eq(self.cut.chunk),
        ]
        self.divided = self.divider.done & self.second.done
        self.long = Signal()
        self.step = Signal(range(3))

    def rests(self, m, elems):
        """Before a tensor of `elems`."""
        m.d.sync += [
            self.units.eq((elems + 15)[4:] - 1),
            self.step.eq(0),
            self.long.eq(0),
            self.of_norms.eq(0),
        ]

    def measures(self, m):
        """Beats of the tensor, where it lies, and what is to be divided first."""
        out, job, low, clerk = self.out, self.out.job, self.low, self.clerk
        n_beats = Mux(
            job.kind == Kind.BF16,
            (job.elems + (clerk.n_bytes // 2 - 1)) >> low - 1,
            (job.elems + (clerk.n_bytes // 4 - 1)) >> low - 2,
        )
        m.d.sync += [
            self.a.eq(Mux(self.halves, self.units >> 1, self.units)),
            self.b.eq(out.table.chunks),
            self.cut.packet.eq(clerk.packet),
            self.coarse.eq(0),
            self.rest_units.eq(job.elems - 1),
            out.n_beats.eq(n_beats),
            out.area.eq((self.units + 1) << 6 - low),
            out.source.eq(job.source[low:]),
            out.result.eq(job.result[low:]),
        ]
        if clerk.thc:
            wide, n_packets = out.table.code != 0, self.n_packets
            with m.If(self.thc):
                m.d.sync += [
                    self.a.eq(n_packets - 1),
                    self.units.eq((n_packets << THC_UNITS) - 1),
                    self.rest_units.eq(15),
                    self.coarse.eq(1),
                    self.cut.packet.eq(Mux(wide, 1 << THC_UNITS - 1, 1 << THC_UNITS)),
                    out.area.eq(n_packets * (out.table.code + 2) << 9 - low),
                    out.n_blocks.eq(n_packets << (4 - (clerk.log4 << 1))[:3]),
                ]

    def divides(self, m):
        """Begins a division, or two."""
        m.d.comb += [
            self.divider.start.eq(1),
            self.second.start.eq(self.step == 1),
            self.clerk.start_soon.eq((self.step == 2) & (self.of_norms | ~self.thc)),
        ]

    def takes(self, m):
        """What was divided, and what comes next; the last step's, as a flag."""
        out, cut, second = self.out, self.cut, self.second
        quotient, rest = self.divider.quotient, self.divider.remainder
        m.d.sync += self.step.eq(self.step + 1)
        with m.Switch(self.step):
            with m.Case(0):  # units of a chunk
                more = Mux(self.coarse, (1 << THC_UNITS) - 1, self.halves)
                chunk = Mux(self.coarse, quotient << THC_UNITS, quotient << self.halves) | more
                m.d.sync += [cut.chunk.eq(chunk + 1), self.a.eq(chunk), self.b.eq(cut.packet)]
            with m.Case(1):  # packets of a chunk; the last chunk that is not empty
                last, of_last = second.quotient, second.remainder
                m.d.sync += [
                    cut.per_chunk.eq(quotient + 1),
                    cut.tail.eq((rest + 1) << 4),
                    self.long.eq(self.long | (quotient >= self.clerk.n_packets)),
                    cut.last_chunk.eq(last),
                    self.live.eq(last + 1),
                    self.a.eq(of_last),
                ]
                with m.If(~self.of_norms):
                    m.d.sync += out.last_elems.eq((of_last << 4) + self.rest_units + 1)
            with m.Case(2):
                m.d.sync += [
                    cut.last_per_chunk.eq(quotient + 1),
                    cut.last_tail.eq((rest << 4) + self.rest_units + 1),
                ]
        return self.step == 2

    def keeps(self, m):
        """What was cut; norms are to be cut, too, as a flag."""
        out, clerk = self.out, self.clerk
        with m.If(self.of_norms):
            m.d.sync += [out.norms.eq(self.cut), out.norms_live.eq(self.live)]
        with m.Else():
            m.d.sync += [out.geometry.eq(self.cut), out.live.eq(self.live)]
        if not clerk.thc:
            return Const(0)
        again = self.thc & ~self.of_norms
        with m.If(again):
            n_units = Signal(UNITS_WIDTH)
            m.d.comb += n_units.eq((out.n_blocks + 15) >> 4)
            m.d.sync += [
                self.of_norms.eq(1),
                self.step.eq(0),
                self.coarse.eq(0),
                self.cut.packet.eq(clerk.packet),
                self.units.eq(n_units - 1),
                self.rest_units.eq(out.n_blocks - 1),
                self.a.eq(n_units - 1),
                self.b.eq(out.table.chunks),
                out.at_norms.eq(n_units << 6 - self.low),
            ]
        return again

    def places(self, m):
        """Where indices and sums lie in scratch, behind the norms."""
        if self.clerk.thc:
            out, twice = self.out, self.out.at_norms << 1
            n_beats = self.n_packets * self.clerk.bits << 7 - self.low
            m.d.sync += [out.at_indices.eq(twice), out.at_sums.eq(twice + n_beats)]
