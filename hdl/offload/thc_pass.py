"""Passes of a THC job over memory: norms of the gradient, its indices, and floats from sums.

A part of `gradnic.hdl.offload.job_core`; golden model: `gradnic.models.offload.thc_pass`.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..axi.axi4 import ReadPort, WritePort
from ..axi.dma import ReadEngine
from ..primitive.same import same
from ..reduction.reduce import Reduce
from ..thc.decoder import ThcDecoder
from ..thc.norm import ThcNorm
from ..thc.quantize import Cell
from .bf16 import Narrow, Widen
from .thc_keys import KEYS, ThcKeys
from .thc_memory import WIDTHS, BlockReader, BurstWriter, Pad, norms_width

ThcRules = data.StructLayout(
    {"log4": 2, "t_fixed": 10, "unit": 23, "g": 8, "middle": 8, "own_scale": 32, "bits": 4}
)
"""Settings of a card's workers: log4(B) - 3, and of `gradnic.hdl.thc.quantize.Quantize`. With
feedback, what decodes its own indices: g, the level of index 2**(b - 1), C0 of one worker. bits :
b, where it is not 4 always."""

ThcCell = data.StructLayout({"enable": 1, "index": 8, "cell": Cell})
"""One entry of the quantizers' table, to be written while ``enable`` is 1 and no job runs."""


def PassJob(n_bytes, address_width, widths=WIDTHS):
    """What passes need to know of a job: places are first beats. n_beats : of floats. tail :
    elements, modulo those of a beat of BF16. bf16 : type of gradient and result. offset, scale,
    code : of `ThcDecoder`. With feedback: is it asked for, residuals of before and after.
    """
    beat = address_width - ceil_log2(n_bytes)
    return data.StructLayout(
        {
            "source": beat,
            "result": beat,
            "own_norms": beat,
            "norms": beat,
            "indices": beat,
            "sums": beat,
            "n_beats": widths[0],
            "tail": ceil_log2(n_bytes // 2),
            "bf16": 1,
            "n_blocks": widths[1],
            "seed": 32,
            "gen": 16,
            "tensor": 16,
            "offset": 16,
            "scale": 32,
            "code": 2,
            "feedback": 1,
            "residual": beat,
            "kept": beat,
        }
    )


PLACES = "source", "result", "own_norms", "norms", "indices", "sums", "residual", "kept"


def in_half_beats(narrow, wide):
    """Statements that tell `narrow`, a view of a `PassJob`, what `wide` says, another one in beats
    of twice the bytes.
    """
    rest = wide.tail[: len(narrow.tail)]  # elements, modulo those of a narrow beat of BF16
    half = 1 << len(narrow.tail) - 1  # elements of a narrow beat of floats
    odd = (rest != 0) & (rest <= half)  # the last beat is half empty
    return [
        *(narrow[name].eq(wide[name] << 1) for name in PLACES),
        narrow.n_beats.eq(Cat(odd, wide.n_beats - odd)),
        *(narrow[name].eq(wide[name]) for name, _ in narrow.shape()
          if name not in (*PLACES, "n_beats")),
    ]  # fmt: skip


class Pass(wiring.Component):
    """What passes have in common: they begin with ``start`` after reset, and are reset at the end.

    Parameters
    ----------
    n_bytes, address_width : int
    block : int
        Largest block, 64, 256 or 1024 elements.
    feedback : bool
        True: jobs may add a residual to the gradient, from a memory port of its own.
    bf16 : bool
        True: gradient and result may be BF16.
    widths : (int, int)
        Bits of numbers of beats and of blocks.

    Members
    -------
    rules : In(ThcRules). job : In(PassJob), constant while ``start``
    start : In(1), a level
    done, failed : Out(1)
        A level: all is in memory. A pulse: an access went wrong.
    read, write : Out(ReadPort), Out(WritePort)
    residual_read : Out(ReadPort)
        With feedback.
    """

    more, lends = {}, False

    def __init__(
        self,
        n_bytes: int,
        address_width: int,
        *,
        block: int = 1024,
        feedback: bool = False,
        bf16: bool = False,
        widths: tuple[int, ...] = WIDTHS,
    ) -> None:
        self.n_bytes, self.address_width, self.block = n_bytes, address_width, block
        self.widths = widths
        self.lanes, self.feedback, self.bf16 = n_bytes // 4, feedback, bf16
        residual = {"residual_read": Out(ReadPort(n_bytes, address_width))} if feedback else {}
        super().__init__(
            {
                "rules": In(ThcRules),
                "job": In(PassJob(n_bytes, address_width, widths)),
                "start": In(1),
                "done": Out(1),
                "failed": Out(1),
                "read": Out(ReadPort(n_bytes, address_width)),
                "write": Out(WritePort(n_bytes, address_width)),
            }
            | residual
            | self.more
        )

    def lent(self, worker):
        """Members of what is outside, with `lends`: the worker's transform, and `ThcKeys`."""
        self.lends = True
        keys = wiring.Signature(KEYS)
        return {"rotate": worker.signature.members["rotate"], "keys": In(keys)}

    def _beats_of_norms(self):
        return (self.job.n_blocks + (self.lanes - 1)) >> ceil_log2(self.lanes)

    def _beats_in_memory(self):
        """Beats of gradient or result."""
        n_beats = self.job.n_beats
        return Mux(self.job.bf16, (n_beats + 1) >> 1, n_beats) if self.bf16 else n_beats

    def _widened(self, m, beats):
        """Stream of floats; with BF16 there may be one beat more than the job has, for `Pad`."""
        if not self.bf16:
            return beats
        m.submodules.widen = widen = Widen(self.n_bytes)
        wiring.connect(m, beats, widen.i)
        m.d.comb += [widen.on.eq(self.job.bf16), widen.odd.valid.eq(1)]
        return widen.o

    def _padded(self, m):
        """Beats of floats of all blocks."""
        n_padded = Signal(self.widths[0] + 1)
        with m.Switch(self.rules.log4):
            for k in range(3):
                with m.Case(k):
                    m.d.comb += n_padded.eq(self.job.n_blocks << 6 + 2 * k - ceil_log2(self.lanes))
        return n_padded

    def _whole(self, m, gradient):
        """(Stream of what is rotated, a flag that its memory failed): gradients, or their sums with
        residuals.
        """
        if not self.feedback:
            return gradient, 0
        m.submodules.residuals = engine = ReadEngine(self.n_bytes, self.address_width)
        m.submodules.plus = plus = Reduce(self.lanes, integers=False, passes=True)
        wiring.connect(m, engine.port, wiring.flipped(self.residual_read))
        wiring.connect(m, engine.beats, plus.contributions)
        asked = Signal()
        m.d.comb += [
            engine.regions[0].first.eq(self.job.residual),
            engine.regions[0].n_beats.eq(self.job.n_beats),
            engine.ranges.valid.eq(self.start & self.job.feedback & ~asked),
            engine.ranges.p.n_beats.eq(self.job.n_beats),
            plus.partials.valid.eq(gradient.valid),
            plus.partials.p.data.eq(gradient.p.data),
            plus.partials.p.last.eq(gradient.p.last),
            plus.partials.p.alone.eq(~self.job.feedback),
            gradient.ready.eq(plus.partials.ready),
        ]
        with m.If(engine.ranges.valid & engine.ranges.ready):
            m.d.sync += asked.eq(1)
        return plus.sums, engine.refused | engine.failed

    def _writer(self, m, first, n_beats, width, tail=0):
        m.submodules.writer = writer = BurstWriter(self.n_bytes, self.address_width, width=width)
        wiring.connect(m, writer.port, wiring.flipped(self.write))
        m.d.comb += [
            writer.region.first.eq(first),
            writer.region.n_beats.eq(n_beats),
            writer.tail.eq(tail),
            self.done.eq(self.start & writer.done),  # or what is more
        ]
        return writer

    def _reader(self, m, first, n_beats, *, sums=False):
        """Values with the agreed norms."""
        m.submodules.reader = reader = BlockReader(
            self.n_bytes, self.address_width, widths=self.widths, sums=sums
        )
        wiring.connect(m, reader.port, wiring.flipped(self.read))
        m.d.comb += [
            reader.log4.eq(self.rules.log4),
            reader.n_blocks.eq(self.job.n_blocks),
            reader.n_beats.eq(n_beats),
            reader.regions[0].first.eq(self.job.norms),
            reader.regions[0].n_beats.eq(self._beats_of_norms()),
            reader.regions[1].first.eq(first),
            reader.regions[1].n_beats.eq(n_beats),
        ]
        return reader

    def _pad(self, m):
        m.submodules.pad = pad = Pad(self.lanes, width=self.widths[0])
        m.d.comb += [
            pad.n_beats.eq(self.job.n_beats),
            pad.tail.eq(self.job.tail[:-1]),
        ]
        return pad

    def _keys(self, m, *, dice):
        if self.lends:
            return self.keys
        m.submodules.keys = keys = ThcKeys(dice=dice)
        m.d.comb += [
            keys.start.eq(self.start),
            *same(keys, self.job, "seed gen tensor"),
        ]
        return keys


class NormPass(Pass):
    """Gradient to the norms of its blocks: a beat of it per cycle. Members: see `Pass`."""

    def elaborate(self, platform):
        m = Module()
        job, lanes = self.job, self.lanes
        m.submodules.engine = engine = ReadEngine(self.n_bytes, self.address_width)
        m.submodules.norm = norm = ThcNorm(lanes, block=self.block)
        wiring.connect(m, engine.port, wiring.flipped(self.read))
        pad, n_norms = self._pad(m), self._beats_of_norms()
        width = norms_width(self.n_bytes, self.widths[1])
        writer = self._writer(m, job.own_norms, n_norms, width)
        floats, lacks = self._whole(m, self._widened(m, engine.beats))
        wiring.connect(m, floats, pad.i)
        wiring.connect(m, pad.o, norm.floats)
        asked = Signal()
        m.d.comb += [
            engine.regions[0].first.eq(job.source),
            engine.regions[0].n_beats.eq(self._beats_in_memory()),
            engine.ranges.valid.eq(self.start & ~asked),
            engine.ranges.p.n_beats.eq(self._beats_in_memory()),
            norm.log4.eq(self.rules.log4),
            self.failed.eq(engine.refused | engine.failed | writer.failed | lacks),
        ]
        with m.If(engine.ranges.valid & engine.ranges.ready):
            m.d.sync += asked.eq(1)
        # norms are gathered to a beat
        words = Signal(8 * self.n_bytes, reset_less=True)
        place = Signal(ceil_log2(lanes))
        number = Signal(self.widths[1])
        full = Signal()
        m.d.comb += [
            norm.norms.ready.eq(~full),
            writer.i.payload.eq(words),
            writer.i.valid.eq(full),
        ]
        with m.If(norm.norms.valid & ~full):
            m.d.sync += [
                words.word_select(place, 32).eq(norm.norms.payload),
                place.eq(place + 1),
                number.eq(number + 1),
                full.eq(place.all() | (number + 1 == job.n_blocks)),
            ]
        with m.If(full & writer.i.ready):
            m.d.sync += full.eq(0)
        return m


class DecodePass(Pass):
    """Sums and agreed norms to floats: a beat of floats per cycle. Parameters and members: `Pass`,
    and lends : bool, as of `EncodePass`.
    """

    def __init__(
        self,
        n_bytes: int,
        address_width: int,
        *,
        block: int = 1024,
        lends: bool = False,
        **sizes: Any,
    ) -> None:
        self.decoder = ThcDecoder(n_bytes // 4, block=block, lends=lends)
        if lends:
            self.more = self.lent(self.decoder)
        super().__init__(n_bytes, address_width, block=block, **sizes)

    def elaborate(self, platform):
        m = Module()
        job, lanes = self.job, self.lanes
        m.submodules.decoder = decoder = self.decoder
        if decoder.lends:
            wiring.connect(m, decoder.rotate, wiring.flipped(self.rotate))
        keys = self._keys(m, dice=False)
        n_beats = Signal(self.widths[0])
        m.d.comb += n_beats.eq(self._padded(m) * (job.code + 2) >> 3)
        reader = self._reader(m, job.sums, n_beats, sums=True)
        m.d.comb += reader.code.eq(job.code)
        tail = job.tail[:-1] << 2
        tail = Mux(job.bf16, job.tail << 1, tail) if self.bf16 else tail
        writer = self._writer(m, job.result, self._beats_in_memory(), self.widths[0], tail)
        self._narrowed(m, decoder.floats, writer.i)
        half = Signal()  # of a beat of memory: two of the decoder
        m.d.comb += [
            reader.start.eq(self.start),
            decoder.log4.eq(self.rules.log4),
            decoder.code.eq(job.code),
            decoder.offset.eq(job.offset),
            decoder.unit.eq(job.scale),
            decoder.sign_key.eq(keys.sign_key),
            decoder.tensor_hash.eq(keys.tensor_hash),
            decoder.blocks.valid.eq(reader.norms.valid & keys.known),
            decoder.blocks.p.word.eq(reader.norms.p.word),
            decoder.blocks.p.number.eq(reader.norms.p.number),
            reader.norms.ready.eq(decoder.blocks.ready & keys.known),
            decoder.sums.valid.eq(reader.beats.valid),
            decoder.sums.payload.eq(reader.beats.p.data.word_select(half, 16 * lanes)),
            reader.beats.ready.eq(decoder.sums.ready & half),
            self.failed.eq(reader.failed | writer.failed | keys.stray),
        ]
        with m.If(decoder.sums.valid & decoder.sums.ready):
            m.d.sync += half.eq(~half)
        return m

    def _narrowed(self, m, floats, o):
        """Floats, or as BF16, to what is written: padding makes their beats even."""
        if not self.bf16:
            wiring.connect(m, floats, o)
            return
        m.submodules.narrow = narrow = Narrow(self.n_bytes)
        m.d.comb += [
            narrow.on.eq(self.job.bf16),
            narrow.i.valid.eq(floats.valid),
            narrow.i.p.data.eq(floats.payload),
            floats.ready.eq(narrow.i.ready),
            o.valid.eq(narrow.o.valid),
            o.payload.eq(narrow.o.p.data),
            narrow.o.ready.eq(o.ready),
        ]
