"""Passes of a THC job over memory: norms of the gradient, its indices, and floats from sums.

Part of `gradnic.hdl.offload.job_core`; golden model: `gradnic.models.offload.thc_job`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..axi.axi4 import ReadPort, WritePort
from ..axi.bursts import LENGTH_WIDTH
from ..axi.dma import ReadEngine
from ..reduction.reduce import Reduce
from ..stream.block_fifo import BlockFIFO
from ..stream.fifo import FIFO
from ..thc.decoder import ThcDecoder
from ..thc.encoder import ThcEncoder
from ..thc.norm import ThcNorm
from ..thc.quantize import Cell
from ..transport.records import CheckWrite
from .thc_keys import ThcKeys
from .thc_memory import BLOCKS_WIDTH, BlockReader, BurstWriter, Norm, Pad

PACKET = 1024  # elements of a packet of indices or sums
BITS = 4  # of an index
INSIDE = 256  # beats of floats on their way through encoder and decoder, beside two blocks
N_TOLD = 64  # blocks on that way

ThcRules = data.StructLayout(
    {"log4": 2, "t_fixed": 10, "unit": 23, "g": 8, "middle": 8, "own_scale": 32}
)
"""Settings of a card's workers: log4(B) - 3, and of `gradnic.hdl.thc.quantize.Quantize`. With
feedback, what decodes its own indices: g, the level of index 2**(b - 1), C0 of one worker."""

ThcCell = data.StructLayout({"enable": 1, "index": 8, "cell": Cell})
"""One entry of the quantizers' table, to be written while ``enable`` is 1 and no job runs."""


def PassJob(n_bytes, address_width):
    """What passes need to know of a job: places are first beats. n_beats : of gradient and result.
    offset, scale : of `ThcDecoder`. With feedback: is it asked for, residuals of before and after.
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
            "n_beats": LENGTH_WIDTH,
            "tail": ceil_log2(n_bytes // 4),
            "n_blocks": BLOCKS_WIDTH,
            "seed": 32,
            "gen": 16,
            "tensor": 16,
            "offset": 16,
            "scale": 32,
            "feedback": 1,
            "residual": beat,
            "kept": beat,
        }
    )


class _Pass(wiring.Component):
    """What passes have in common: they begin with ``start`` after reset, and are reset at the end.

    Parameters
    ----------
    n_bytes, address_width : int
    block : int
        Largest block, 64, 256 or 1024 elements.
    feedback : bool
        True: jobs may add a residual to the gradient, from a memory port of its own.

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

    more = {}

    def __init__(self, n_bytes, address_width, *, block=1024, feedback=False):
        self.n_bytes, self.address_width, self.block = n_bytes, address_width, block
        self.lanes, self.feedback = n_bytes // 4, feedback
        residual = {"residual_read": Out(ReadPort(n_bytes, address_width))} if feedback else {}
        super().__init__(
            {
                "rules": In(ThcRules),
                "job": In(PassJob(n_bytes, address_width)),
                "start": In(1),
                "done": Out(1),
                "failed": Out(1),
                "read": Out(ReadPort(n_bytes, address_width)),
                "write": Out(WritePort(n_bytes, address_width)),
            }
            | residual
            | self.more
        )

    def _beats_of_norms(self):
        return (self.job.n_blocks + (self.lanes - 1)) >> ceil_log2(self.lanes)

    def _padded(self, m):
        """Beats of floats of all blocks."""
        n_padded = Signal(28)
        with m.Switch(self.rules.log4):
            for k in range(4):
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

    def _writer(self, m, first, n_beats, tail=0):
        m.submodules.writer = writer = BurstWriter(self.n_bytes, self.address_width)
        wiring.connect(m, writer.port, wiring.flipped(self.write))
        m.d.comb += [
            writer.region.first.eq(first),
            writer.region.n_beats.eq(n_beats),
            writer.tail.eq(tail),
            self.done.eq(self.start & writer.done),  # or what is more
        ]
        return writer

    def _reader(self, m, first, n_beats, *, quarter=False):
        """Values with the agreed norms."""
        m.submodules.reader = reader = BlockReader(
            self.n_bytes, self.address_width, quarter=quarter
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
        m.submodules.pad = pad = Pad(self.lanes)
        m.d.comb += [
            pad.n_beats.eq(self.job.n_beats),
            pad.n_padded.eq(self._padded(m)),
            pad.tail.eq(self.job.tail),
        ]
        return pad

    def _keys(self, m, node):
        m.submodules.keys = keys = ThcKeys()
        m.d.comb += [
            keys.start.eq(self.start),
            keys.node.eq(node),
            *(getattr(keys, name).eq(self.job[name]) for name in ("seed", "gen", "tensor")),
        ]
        return keys


class NormPass(_Pass):
    """Gradient to the norms of its blocks: a beat of it per cycle. Members: see `_Pass`."""

    def elaborate(self, platform):
        m = Module()
        job, lanes = self.job, self.lanes
        m.submodules.engine = engine = ReadEngine(self.n_bytes, self.address_width)
        m.submodules.norm = norm = ThcNorm(lanes, block=self.block)
        wiring.connect(m, engine.port, wiring.flipped(self.read))
        pad, n_norms = self._pad(m), self._beats_of_norms()
        writer = self._writer(m, job.own_norms, n_norms)
        floats, lacks = self._whole(m, engine.beats)
        wiring.connect(m, floats, pad.i)
        wiring.connect(m, pad.o, norm.floats)
        asked = Signal()
        m.d.comb += [
            engine.regions[0].first.eq(job.source),
            engine.regions[0].n_beats.eq(job.n_beats),
            engine.ranges.valid.eq(self.start & ~asked),
            engine.ranges.p.n_beats.eq(job.n_beats),
            norm.log4.eq(self.rules.log4),
            self.failed.eq(engine.refused | engine.failed | writer.failed | lacks),
        ]
        with m.If(engine.ranges.valid & engine.ranges.ready):
            m.d.sync += asked.eq(1)
        # norms are gathered to a beat
        words, place = Signal(8 * self.n_bytes, reset_less=True), Signal(ceil_log2(lanes))
        number, full = Signal(BLOCKS_WIDTH), Signal()
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


class EncodePass(_Pass):
    """Gradient and agreed norms to indices of 4 bits: a beat of floats per cycle.

    With feedback, what the node's own indices lose becomes the next residual, +0 where that is not
    finite. The one that was added to the gradient stays, so a job that ends early loses nothing.

    Members, see `_Pass`, and:

    node : In(8)
        Whose dice are rolled.
    cell : In(ThcCell)
    check : Out(CheckWrite)
        The check of each packet's norms.
    residual_write : Out(WritePort)
        With feedback.
    """

    more = {"node": In(8), "cell": In(ThcCell), "check": Out(CheckWrite)}

    def __init__(self, n_bytes, address_width, *, block=1024, feedback=False):
        if feedback:
            self.more = self.more | {"residual_write": Out(WritePort(n_bytes, address_width))}
        super().__init__(n_bytes, address_width, block=block, feedback=feedback)

    def elaborate(self, platform):
        m = Module()
        job, lanes, rules = self.job, self.lanes, self.rules
        m.submodules.encoder = encoder = ThcEncoder(lanes, block=self.block, levels=self.feedback)
        keys, pad = self._keys(m, self.node), self._pad(m)
        reader = self._reader(m, job.source, job.n_beats)
        n_beats = Signal(LENGTH_WIDTH)
        m.d.comb += n_beats.eq(pad.n_padded >> 3)  # 4 bits of 32
        writer = self._writer(m, job.indices, n_beats)
        floats, lacks = self._whole(m, reader.beats)
        wiring.connect(m, floats, pad.i)
        known = Signal(3)  # the dice have their key
        m.d.sync += known.eq(Cat(keys.known, known))
        blocks = stream.Signature(Norm).create(path=("blocks",))
        m.d.comb += [
            reader.start.eq(self.start),
            encoder.rekey.eq(keys.known & ~known[0]),
            encoder.log4.eq(rules.log4),
            encoder.bits.eq(BITS),
            encoder.t_fixed.eq(rules.t_fixed),
            encoder.unit.eq(rules.unit),
            encoder.write_en.eq(self.cell.enable),
            encoder.write_addr.eq(self.cell.index),
            encoder.write_data.eq(self.cell.cell),
            *(
                getattr(encoder, name).eq(getattr(keys, name))
                for name in ("random_key", "sign_key", "tensor_hash")
            ),
            blocks.valid.eq(reader.norms.valid & known.all()),
            blocks.p.eq(reader.norms.p),
            reader.norms.ready.eq(blocks.ready & known.all()),
            encoder.blocks.p.word.eq(blocks.p.word),
            encoder.blocks.p.number.eq(blocks.p.number),
            self.failed.eq(reader.failed | writer.failed | lacks),
        ]
        if self.feedback:
            self._feed_back(m, encoder, keys, blocks, pad.o, writer)
        else:
            wiring.connect(m, pad.o, encoder.floats)
            m.d.comb += [
                encoder.blocks.valid.eq(blocks.valid),
                blocks.ready.eq(encoder.blocks.ready),
            ]
        self._checks(m, encoder.blocks)
        # four beats of indices make one of memory
        words, turn, full = Signal(8 * self.n_bytes, reset_less=True), Signal(2), Signal()
        taken = encoder.indices.valid & (~full | writer.i.ready)
        m.d.comb += [
            encoder.indices.ready.eq(~full | writer.i.ready),
            writer.i.payload.eq(words),
            writer.i.valid.eq(full),
        ]
        with m.If(taken):
            m.d.sync += [words.eq(Cat(words, encoder.indices.payload)[8 * lanes :]),
                         turn.eq(turn + 1)]  # fmt: skip
        m.d.sync += full.eq((taken & turn.all()) | (full & ~writer.i.ready))
        return m

    def _feed_back(self, m, encoder, keys, blocks, floats, writer):
        """Blocks and floats go to the encoder, and wait for what their own levels decode to."""
        job, lanes, rules, on = self.job, self.lanes, self.rules, self.job.feedback
        m.submodules.decoder = decoder = ThcDecoder(lanes, block=self.block)
        m.submodules.told = told = FIFO(Norm, N_TOLD)
        m.submodules.kept = kept = BlockFIFO(32 * lanes, 2 * (self.block // lanes) + INSIDE)
        m.submodules.minus = minus = Reduce(lanes, integers=False)
        m.submodules.residual_writer = residual = BurstWriter(self.n_bytes, self.address_width)
        wiring.connect(m, residual.port, wiring.flipped(self.residual_write))
        for source, sinks in (
            (blocks, (encoder.blocks, told.i)),
            (floats, (encoder.floats, kept.i)),
        ):
            first, second = sinks
            m.d.comb += [
                source.ready.eq(first.ready & (second.ready | ~on)),
                first.valid.eq(source.valid & (second.ready | ~on)),
                second.valid.eq(source.valid & first.ready & on),
                second.p.eq(source.p),
            ]
        m.d.comb += encoder.floats.payload.eq(floats.payload)
        # two beats of levels make one of sums: those of one worker
        levels, low = encoder.levels, Signal(8 * lanes, reset_less=True)
        second = Signal()
        m.d.comb += [
            encoder.middle.eq(rules.middle),
            levels.ready.eq(~on | ~second | decoder.sums.ready),
            decoder.blocks.valid.eq(told.o.valid),
            decoder.blocks.p.word.eq(told.o.p.word),
            decoder.blocks.p.number.eq(told.o.p.number),
            told.o.ready.eq(decoder.blocks.ready),
            decoder.log4.eq(rules.log4),
            decoder.code.eq(0),
            decoder.offset.eq(rules.g),
            decoder.unit.eq(rules.own_scale),
            decoder.sign_key.eq(keys.sign_key),
            decoder.tensor_hash.eq(keys.tensor_hash),
            decoder.sums.valid.eq(levels.valid & second),
            decoder.sums.payload.eq(Cat(low, levels.payload)),
        ]
        with m.If(levels.valid & levels.ready & on):
            m.d.sync += [second.eq(~second), low.eq(levels.payload)]
        lost = Cat(
            decoder.floats.payload.word_select(lane, 32) ^ (1 << 31) for lane in range(lanes)
        )
        words = [minus.sums.p.data.word_select(lane, 32) for lane in range(lanes)]
        m.d.comb += [
            minus.partials.valid.eq(kept.o.valid),
            minus.partials.p.data.eq(kept.o.payload),
            kept.o.ready.eq(minus.partials.ready),
            minus.contributions.valid.eq(decoder.floats.valid),
            minus.contributions.p.data.eq(lost),
            decoder.floats.ready.eq(minus.contributions.ready),
            residual.region.first.eq(job.kept),
            residual.region.n_beats.eq(job.n_beats),
            residual.tail.eq(job.tail << 2),
            residual.i.valid.eq(minus.sums.valid),
            residual.i.payload.eq(Cat(Mux(word[23:31].all(), 0, word) for word in words)),
            minus.sums.ready.eq(residual.i.ready),
            self.done.eq(self.start & writer.done & (residual.done | ~on)),
        ]
        with m.If(residual.failed):
            m.d.comb += self.failed.eq(1)

    def _checks(self, m, blocks):
        """Of each packet: the XOR of its blocks' norms."""
        check, number = self.check, Signal(BLOCKS_WIDTH)
        running = Signal(len(check.check), reset_less=True)
        first, last = Signal(), Signal()
        with m.Switch(self.rules.log4):
            for k in range(3):
                low = 4 - 2 * k  # log2 of blocks of a packet
                with m.Case(k):
                    m.d.comb += [
                        first.eq((blocks.p.number & ((1 << low) - 1)) == 0),
                        last.eq((~blocks.p.number & ((1 << low) - 1)) == 0),
                        number.eq(blocks.p.number >> low),
                    ]
        m.d.sync += check.enable.eq(blocks.valid & blocks.ready & last)
        with m.If(blocks.valid & blocks.ready):
            now = Mux(first, 0, running) ^ blocks.p.word[: len(running)]
            m.d.sync += [running.eq(now), check.check.eq(now), check.number.eq(number)]


class DecodePass(_Pass):
    """Sums of 8 bits and agreed norms to floats: a beat of floats per cycle. Members: `_Pass`."""

    def elaborate(self, platform):
        m = Module()
        job, lanes = self.job, self.lanes
        m.submodules.decoder = decoder = ThcDecoder(lanes, block=self.block)
        keys = self._keys(m, 0)
        n_beats = Signal(LENGTH_WIDTH)
        m.d.comb += n_beats.eq(self._padded(m) >> 2)
        reader = self._reader(m, job.sums, n_beats, quarter=True)
        writer = self._writer(m, job.result, job.n_beats, job.tail << 2)
        wiring.connect(m, decoder.floats, writer.i)
        half = Signal()  # of a beat of memory: two of the decoder
        m.d.comb += [
            reader.start.eq(self.start),
            decoder.log4.eq(self.rules.log4),
            decoder.code.eq(0),
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
            self.failed.eq(reader.failed | writer.failed),
        ]
        with m.If(decoder.sums.valid & decoder.sums.ready):
            m.d.sync += half.eq(~half)
        return m
