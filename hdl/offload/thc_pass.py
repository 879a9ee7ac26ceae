"""Passes of a THC job over memory: norms of the gradient, its indices, and floats from sums.

Part of `gradnic.hdl.offload.job_core`; golden model: `gradnic.models.offload.thc_job`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..axi.axi4 import ReadPort, WritePort
from ..axi.bursts import LENGTH_WIDTH
from ..axi.dma import ReadEngine
from ..thc.decoder import ThcDecoder
from ..thc.encoder import ThcEncoder
from ..thc.norm import ThcNorm
from ..thc.quantize import Cell
from ..transport.records import CheckWrite
from .thc_keys import ThcKeys
from .thc_memory import BLOCKS_WIDTH, BlockReader, BurstWriter, Pad

PACKET = 1024  # elements of a packet of indices or sums
BITS = 4  # of an index

ThcRules = data.StructLayout({"log4": 2, "t_fixed": 10, "unit": 23})
"""Settings of a card's workers: log4(B) - 3, and of `gradnic.hdl.thc.quantize.Quantize`."""

ThcCell = data.StructLayout({"enable": 1, "index": 8, "cell": Cell})
"""One entry of the quantizers' table, to be written while ``enable`` is 1 and no job runs."""


def PassJob(n_bytes, address_width):
    """What passes need to know of a job: places are first beats. n_beats : of gradient and result.
    offset, scale : of `ThcDecoder`.
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
        }
    )


class _Pass(wiring.Component):
    """What passes have in common: they begin with ``start`` after reset, and are reset at the end.

    Parameters
    ----------
    n_bytes, address_width : int
    block : int
        Largest block, 64, 256 or 1024 elements.

    Members
    -------
    rules : In(ThcRules). job : In(PassJob), constant while ``start``
    start : In(1), a level
    done, failed : Out(1)
        A level: all is in memory. A pulse: an access went wrong.
    read, write : Out(ReadPort), Out(WritePort)
    """

    more = {}

    def __init__(self, n_bytes, address_width, *, block=1024):
        self.n_bytes, self.address_width, self.block = n_bytes, address_width, block
        self.lanes = n_bytes // 4
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

    def _writer(self, m, first, n_beats, tail=0):
        m.submodules.writer = writer = BurstWriter(self.n_bytes, self.address_width)
        wiring.connect(m, writer.port, wiring.flipped(self.write))
        m.d.comb += [
            writer.region.first.eq(first),
            writer.region.n_beats.eq(n_beats),
            writer.tail.eq(tail),
            self.done.eq(self.start & writer.done),
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
        wiring.connect(m, engine.beats, pad.i)
        wiring.connect(m, pad.o, norm.floats)
        asked = Signal()
        m.d.comb += [
            engine.regions[0].first.eq(job.source),
            engine.regions[0].n_beats.eq(job.n_beats),
            engine.ranges.valid.eq(self.start & ~asked),
            engine.ranges.p.n_beats.eq(job.n_beats),
            norm.log4.eq(self.rules.log4),
            self.failed.eq(engine.refused | engine.failed | writer.failed),
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

    Members, see `_Pass`, and:

    node : In(8)
        Whose dice are rolled.
    cell : In(ThcCell)
    check : Out(CheckWrite)
        The check of each packet's norms.
    """

    more = {"node": In(8), "cell": In(ThcCell), "check": Out(CheckWrite)}

    def elaborate(self, platform):
        m = Module()
        job, lanes, rules = self.job, self.lanes, self.rules
        m.submodules.encoder = encoder = ThcEncoder(lanes, block=self.block)
        keys, pad = self._keys(m, self.node), self._pad(m)
        reader = self._reader(m, job.source, job.n_beats)
        n_beats = Signal(LENGTH_WIDTH)
        m.d.comb += n_beats.eq(pad.n_padded >> 3)  # 4 bits of 32
        writer = self._writer(m, job.indices, n_beats)
        wiring.connect(m, reader.beats, pad.i)
        wiring.connect(m, pad.o, encoder.floats)
        known = Signal(3)  # the dice have their key
        m.d.sync += known.eq(Cat(keys.known, known))
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
            encoder.blocks.valid.eq(reader.norms.valid & known.all()),
            encoder.blocks.p.word.eq(reader.norms.p.word),
            encoder.blocks.p.number.eq(reader.norms.p.number),
            reader.norms.ready.eq(encoder.blocks.ready & known.all()),
            self.failed.eq(reader.failed | writer.failed),
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
