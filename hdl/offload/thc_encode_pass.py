"""The pass of a THC job that makes indices of its gradient, and keeps what they lose.

Part of `gradnic.hdl.offload.job_core`; golden model: `gradnic.models.offload.thc_pass`.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..axi.axi4 import WritePort
from ..primitive.names import signals
from ..primitive.same import same
from ..reduction.reduce import Reduce
from ..stream.block_fifo import BlockFIFO
from ..stream.fifo import FIFO
from ..thc.decoder import ThcDecoder
from ..thc.encoder import ThcEncoder
from ..transport.records import CheckWrite
from .thc_memory import BurstWriter, Norm
from .thc_pass import Pass, ThcCell

INSIDE = 256  # beats of floats on their way through encoder and decoder, beside two blocks
N_NORMS = 64  # blocks on that way


class EncodePass(Pass):
    """Gradient and agreed norms to indices: a beat of floats per cycle.

    With feedback, what the node's own indices lose becomes the next residual, +0 where that is not
    finite. The one that was added to the gradient stays, so a job that ends early loses nothing.
    Pointers of queues that hold blocks and floats until then stop the pass if they change by
    themselves.

    Parameters as of `Pass`; bits : int, 4, or 8 for indices of 2 to 8 bits; lends : bool, True: the
    transform and the keys are outside, and others may have them; not with feedback.

    Members, see `Pass`, and:

    node : In(8)
        Whose dice are rolled.
    rotate, keys : In
        With `lends`: of `gradnic.hdl.thc.encoder.ThcEncoder`, and what `ThcKeys` says.
    cell : In(ThcCell)
    check : Out(CheckWrite)
        The check of each packet's norms.
    residual_write : Out(WritePort)
        With feedback.
    """

    more = {"node": In(8), "cell": In(ThcCell), "check": Out(CheckWrite)}

    def __init__(
        self,
        n_bytes: int,
        address_width: int,
        *,
        block: int = 1024,
        feedback: bool = False,
        bits: int = 4,
        lends: bool = False,
        **sizes: Any,
    ) -> None:
        self.varies = bits > 4
        self.encoder = ThcEncoder(n_bytes // 4, block=block, levels=feedback, lends=lends)
        if lends:
            self.more = self.more | self.lent(self.encoder)
        if feedback:
            self.more = self.more | {"residual_write": Out(WritePort(n_bytes, address_width))}
        super().__init__(n_bytes, address_width, block=block, feedback=feedback, **sizes)
        if feedback:
            self.norm_queue = FIFO(Norm(self.widths[1]), N_NORMS, stops=True)
            n_kept = 2 * (block // self.lanes) + INSIDE
            self.kept = BlockFIFO(32 * self.lanes, n_kept, stops=True)

    def elaborate(self, platform):
        m = Module()
        job, lanes, rules = self.job, self.lanes, self.rules
        m.submodules.encoder = encoder = self.encoder
        if encoder.lends:
            wiring.connect(m, encoder.rotate, wiring.flipped(self.rotate))
        keys, pad = self._keys(m, dice=True), self._pad(m)
        if not self.lends:
            m.d.comb += keys.node.eq(self.node)
        reader = self._reader(m, job.source, self._beats_in_memory())
        m.d.comb += reader.halves.eq(job.bf16 if self.bf16 else 0)
        n_beats = Signal(self.widths[0] - 1)
        bits = rules.bits if self.varies else Const(4, 4)
        m.d.comb += n_beats.eq(self._padded(m) * bits >> 5)  # of 32
        writer = self._writer(m, job.indices, n_beats, len(n_beats))
        floats, lacks = self._whole(m, self._widened(m, reader.beats))
        wiring.connect(m, floats, pad.i)
        known = Signal(3)  # the dice have their key
        m.d.sync += known.eq(Cat(keys.known, known))
        blocks = stream.Signature(Norm(self.widths[1])).create(path=("blocks",))
        again = self._checks(m, encoder.blocks)
        m.d.comb += [
            reader.start.eq(self.start),
            encoder.rekey.eq(keys.known & ~known[0]),
            encoder.log4.eq(rules.log4),
            encoder.bits.eq(bits),
            encoder.t_fixed.eq(rules.t_fixed),
            encoder.unit.eq(rules.unit),
            encoder.write_en.eq(self.cell.enable),
            encoder.write_addr.eq(self.cell.index),
            encoder.write_data.eq(self.cell.cell),
            *same(encoder, keys, "random_key sign_key tensor_hash"),
            blocks.valid.eq(reader.norms.valid & known.all() & ~again),
            blocks.p.eq(reader.norms.p),
            reader.norms.ready.eq(blocks.ready & known.all() & ~again),
            encoder.blocks.p.word.eq(blocks.p.word),
            encoder.blocks.p.number.eq(blocks.p.number),
            self.failed.eq(reader.failed | writer.failed | lacks | keys.stray),
        ]
        if self.feedback:
            self._feed_back(m, encoder, keys, blocks, pad.o, writer)
        else:
            wiring.connect(m, pad.o, encoder.floats)
            m.d.comb += [
                encoder.blocks.valid.eq(blocks.valid),
                blocks.ready.eq(encoder.blocks.ready),
            ]
        # four beats of indices make one of memory
        words = Signal(8 * self.n_bytes, reset_less=True)
        turn = Signal(2)
        full = Signal()
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
        m.submodules.norm_queue = norms = self.norm_queue
        m.submodules.kept = kept = self.kept
        m.submodules.minus = minus = Reduce(lanes, integers=False)
        m.submodules.residual_writer = residual = BurstWriter(
            self.n_bytes, self.address_width, width=self.widths[0]
        )
        wiring.connect(m, residual.port, wiring.flipped(self.residual_write))
        for source, sinks in (
            (blocks, (encoder.blocks, norms.i)),
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
        levels = encoder.levels
        low = Signal(8 * lanes, reset_less=True)
        second = Signal()
        m.d.comb += [
            encoder.middle.eq(rules.middle),
            levels.ready.eq(~on | ~second | decoder.sums.ready),
            decoder.blocks.valid.eq(norms.o.valid),
            decoder.blocks.p.word.eq(norms.o.p.word),
            decoder.blocks.p.number.eq(norms.o.p.number),
            norms.o.ready.eq(decoder.blocks.ready),
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
            residual.tail.eq(job.tail[:-1] << 2),
            residual.i.valid.eq(minus.sums.valid),
            residual.i.payload.eq(Cat(Mux(word[23:31].all(), 0, word) for word in words)),
            minus.sums.ready.eq(residual.i.ready),
            self.done.eq(self.start & writer.done & (residual.done | ~on)),
        ]
        with m.If(residual.failed):
            m.d.comb += self.failed.eq(1)

    def _checks(self, m, blocks):
        """Of each packet: the XOR of its blocks' norms. Returns a flag that no block may come now:
        one that fills two packets has two of them.
        """
        check = self.check
        number = Signal(self.widths[1])
        running = Signal(len(check.check), reset_less=True)
        first, last, again = signals("first last again")
        taken, wide = blocks.valid & blocks.ready, self.job.code != 0
        with m.Switch(Cat(wide, self.rules.log4)):
            for k in range(6):
                low = 4 - 2 * (k >> 1) - (k & 1)  # log2 of blocks of a packet
                with m.Case(k):
                    inside = (1 << max(0, low)) - 1
                    m.d.comb += [
                        first.eq((blocks.p.number & inside) == 0),
                        last.eq((~blocks.p.number & inside) == 0),
                        number.eq(blocks.p.number >> low if low >= 0 else blocks.p.number << 1),
                    ]
                    if low < 0:
                        m.d.sync += again.eq(taken)
        m.d.sync += check.enable.eq((taken & last) | again)
        with m.If(again):
            m.d.sync += check.number.eq(check.number + 1)
        with m.Elif(taken):
            now = Mux(first, 0, running) ^ blocks.p.word[: len(running)]
            m.d.sync += [running.eq(now), check.check.eq(now), check.number.eq(number)]
        return again
