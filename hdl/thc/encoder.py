"""THC worker, way up, second pass: floats and agreed norms in, packed indices out."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.block_ram import Bank
from ..primitive.names import signals
from ..primitive.same import same
from ..stream.admission import Room
from ..stream.block_fifo import BlockFIFO
from ..stream.credit_queue import CreditQueue
from ..stream.delays import copied, delayed, delayed_flag, late
from .bit_packer import BitPacker
from .block_beats import before_last_beat, block_beats
from .hadamard import Hadamard, check_shape, rotation
from .quantize import Cell, Quantize
from .scale import F, Factor, Reciprocal, Scale, SerialReciprocal
from .shared_random import BlockHash, Hashes, RandomBytes, SerialBlockHash, Signs, asked

Block = data.StructLayout({"word": 32, "number": 32, "silent": 1})
Seeds = data.StructLayout({"scale": Factor, "hashes": Hashes})
NEAR = 4  # lanes that share a register of what all must know


class ThcEncoder(wiring.Component):
    """Scale, rotate, quantize and pack: `lanes` floats per cycle, blocks back to back.

    Twin of `gradnic.models.thc.Worker.encode`. A block starts once its entry in `blocks` and its
    floats are there. Everything inside runs free; beats are let in only while there is room for
    all that may come out, so that a stalled output stalls the input and loses nothing. Before the
    first block under a new ``random_key``, pulse ``rekey`` and wait for ``busy`` to fall. With two
    lanes a block takes 48 cycles at least, for its seeds.

    Parameters
    ----------
    lanes, block : int
        As of `gradnic.hdl.thc.norm.ThcNorm`.
    levels : bool
        True: the levels of the indices leave, too.
    lends : bool
        True: the transform is outside, and others may have it while nothing is inside.

    Members
    -------
    log4, tensor, bits : In(2), In(1), In(4)
        log4(B) - 3; one factor for the whole tensor instead of norms; bits of an index, 1 to 8.
    t_fixed, unit : In(10), In(23)
        See `Quantize`.
    write_en, write_addr, write_data : In(1), In(8), In(Cell)
        The table, all lanes at once.
    random_key, sign_key, tensor_hash : In(32)
        See `BlockHash`. All of these may change only while nothing is inside.
    rekey, busy : In(1), Out(1)
    blocks : In(stream.Signature(Block))
        The agreed norm (or the factor S), the block's number in the tensor, and whether this
        worker must keep silent (its own norm exceeds the agreed one).
    floats : In(stream.Signature(32 * lanes))
    indices : Out(stream.Signature(8 * lanes))
        `lanes` bytes a beat, most significant bit first; B * bits / (8 * lanes) beats a block.
    middle, levels : In(8), Out(stream.Signature(8 * lanes))
        With `levels`: the level of index 2**(bits - 1); a byte for each float, in their order.
    rotate : In(rotation(...))
        With `lends`.
    """

    def __init__(
        self, lanes: int, *, block: int = 1024, levels: bool = False, lends: bool = False
    ) -> None:
        check_shape(lanes, block)
        self.lanes, self.block, self.with_levels = lanes, block, levels
        self.n_seeds = max(16, 2 * lanes)  # blocks whose seeds are on their way
        self.depth = 2 ** ceil_log2(block // lanes + 160)  # beats inside
        half = (block.bit_length() - 1) // 2
        in_width = half + F + 2
        width = in_width + block.bit_length() - 1
        self.lends = lends
        if not lends:
            self.rotate = Hadamard(lanes, block, in_width=in_width, width=width)
        super().__init__(
            {
                "log4": In(2),
                "tensor": In(1),
                "bits": In(4),
                "t_fixed": In(10),
                "unit": In(23),
                "write_en": In(1),
                "write_addr": In(8),
                "write_data": In(Cell),
                "random_key": In(32),
                "sign_key": In(32),
                "tensor_hash": In(32),
                "rekey": In(1),
                "busy": Out(1),
                "blocks": In(stream.Signature(Block)),
                "floats": In(stream.Signature(32 * lanes)),
                "indices": Out(stream.Signature(8 * lanes)),
                **({"middle": In(8), "levels": Out(stream.Signature(8 * lanes))} if levels else {}),
                **({"rotate": In(rotation(lanes, in_width, width))} if lends else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        seeds = self._serial_seeds(m) if lanes == 2 else self._seeds(m)
        m.submodules.room = room = Room(self.depth, largest=2)
        m.submodules.packed = packed = BlockFIFO(8 * lanes, self.depth + 8)

        # a beat is let in if its block's seeds are there; they are taken with its last
        goes, may_go = signals("goes may_go")
        before_last = before_last_beat(m, lanes, self.block, self.log4)
        _, at_first, at_last = block_beats(m, goes, before_last)
        levels, leaves = self._levels(m, goes) if self.with_levels else (None, 1)
        m.d.comb += [
            may_go.eq(seeds.available & room.open & leaves & ~self.busy),
            goes.eq(self.floats.valid & may_go),
            self.floats.ready.eq(may_go),
            room.take.eq(goes),
            seeds.take.eq(goes & at_last),
        ]
        valid = delayed_flag(m, goes, 2, name="valid")
        first = delayed(m, at_first, 2, name="first")
        now = data.View(Seeds, seeds.word)

        m.submodules.random = random = RandomBytes(lanes)
        m.submodules.signs = signs = Signs(lanes)
        m.d.comb += [
            random.key.eq(self.random_key),
            random.rekey.eq(self.rekey),
            self.busy.eq(random.busy),
            random.valid.eq(valid),
            random.first.eq(first),
            random.h1.eq(now.hashes.h1),
            random.h2.eq(now.hashes.h2),
            signs.valid.eq(valid),
            signs.first.eq(first),
            signs.sign_word.eq(now.hashes.sign_word),
        ]

        log4 = self._rotate(m, now, valid, signs)
        packer = self._quantize(m, now, random, log4, levels)
        m.d.comb += [
            packed.i.valid.eq(packer.done),
            packed.i.payload.eq(packer.octets),
            room.give.eq(packer.merged + (packed.o.valid & packed.o.ready)),
        ]
        wiring.connect(m, packed.o, wiring.flipped(self.indices))
        return m

    def _rotate(self, m, now, valid, signs):
        """Floats, scaled and with their signs, into the transform; copies of `log4` for the lanes
        behind it, one for `NEAR` of them.
        """
        lanes, rotate = self.lanes, self.rotate
        if not self.lends:
            m.submodules.rotate = rotate
        m.d.comb += [
            rotate.log4.eq(self.log4),
            rotate.i.valid.eq(delayed_flag(m, valid, signs.latency + Scale.latency, name="scales")),
        ]
        n_near = -(-lanes // NEAR)
        log4 = copied(m, self.log4, 2 * n_near, name="log4")
        words = late(m, self.floats.payload, 2 + signs.latency, name="words")
        factor = delayed(m, now.scale, signs.latency, name="factor")
        factor = data.View(Factor, factor)
        for lane in range(lanes):
            m.submodules[f"scale{lane}"] = scale = Scale()
            m.d.comb += [
                scale.log4.eq(log4[lane // NEAR]),
                scale.word.eq(words.word_select(lane, 32)),
                scale.factor.eq(factor.factor),
                scale.offset.eq(factor.offset),
                scale.negate.eq(signs.signs[lane]),
                rotate.i.payload[lane].eq(scale.o),
            ]
        return log4[n_near:]

    def _quantize(self, m, now, random, log4, levels):
        """What leaves the transform to indices, and to `levels` unless that is None; returns their
        packer.
        """
        lanes, rotate = self.lanes, self.rotate
        middle = Signal(8, reset_less=True)
        m.d.sync += middle.eq(1 << (self.bits - 1)[:3])
        dice = self._dice(m, random, delayed(m, now.scale.silent, random.latency, name="silent"))
        after = Quantize.latency - Quantize.random_lag
        silent = delayed(m, dice[-1], after - 1, name="hushed")
        m.submodules.packer = packer = BitPacker(lanes)
        m.d.comb += [
            packer.bits.eq(self.bits),
            packer.valid.eq(
                delayed_flag(m, rotate.o.valid, Quantize.latency + 1, name="quantized")
            ),
        ]
        for lane in range(lanes):
            # named by its first bit, so that block RAM of neighbors finds its places together
            m.submodules[f"part{8 * lane}"] = quantize = Quantize(
                len(rotate.o.payload[lane]), levels=self.with_levels
            )
            (hushed,) = copied(m, silent, 1, name=f"hushed{lane}_")
            value = Signal(8, name=f"value{lane}", reset_less=True)
            m.d.comb += [
                quantize.log4.eq(log4[lane // NEAR]),
                *same(quantize, self, "t_fixed unit write_en write_addr write_data"),
                quantize.i.eq(rotate.o.payload[lane]),
                quantize.random.eq(dice.word_select(lane, 8)),
                packer.values[lane].eq(value),
            ]
            m.d.sync += value.eq(Mux(hushed, middle, quantize.o))
            if levels is not None:
                level = Signal(8, name=f"level{lane}", reset_less=True)
                m.d.sync += level.eq(Mux(hushed, self.middle, quantize.level))
                m.d.comb += levels.payload.word_select(lane, 8).eq(level)
        if levels is not None:
            m.d.comb += levels.valid.eq(packer.valid)
        return packer

    def _levels(self, m, goes):
        """(Where levels wait, a flag that there is room for those of one more beat.)."""
        m.submodules.levels_room = room = Room(self.depth)
        m.submodules.levels_queue = queue = BlockFIFO(8 * self.lanes, self.depth + 8)
        m.d.comb += [
            room.take.eq(goes),
            room.give.eq(self.levels.valid & self.levels.ready),
        ]
        wiring.connect(m, queue.o, wiring.flipped(self.levels))
        return queue.i, room.open

    def _dice(self, m, random, silent):
        """The random bytes of each rotated beat, and `silent`, when the quantizers want them.

        They come in the order of beats, and always long before the transform's end.
        """
        early = Quantize.random_lag - Bank.latency
        m.submodules.dice = dice = Bank(8 * self.lanes + 1, self.depth)
        thrown, used = signals("thrown used", range(self.depth))
        with m.If(random.done):
            m.d.sync += thrown.eq(thrown + 1)
        with m.If(delayed_flag(m, self.rotate.o.valid, early, name="throws")):
            m.d.sync += used.eq(used + 1)
        m.d.comb += [
            dice.write_en.eq(random.done),
            dice.write_addr.eq(thrown),
            dice.write_data.eq(Cat(random.octets, silent)),
            dice.read_addr.eq(used),
        ]
        return dice.read_data

    def _seeds(self, m):
        """Queue of what the blocks to come need: their factors and the seeds of their dice."""
        m.submodules.seeds = seeds = CreditQueue(Seeds.size, self.n_seeds)
        m.submodules.seeds_room = room = Room(self.n_seeds)
        m.submodules.hash = hashes = BlockHash()
        m.submodules.reciprocal = reciprocal = Reciprocal()
        takes = Signal()
        m.d.comb += [
            takes.eq(self.blocks.valid & room.open),
            self.blocks.ready.eq(room.open),
            room.take.eq(takes),
            room.give.eq(seeds.take),
            hashes.random_key.eq(self.random_key),
            *asked(hashes, self, takes),
            reciprocal.log4.eq(self.log4),
            reciprocal.tensor.eq(self.tensor),
            reciprocal.word.eq(self.blocks.p.word),
        ]
        later = hashes.latency - reciprocal.latency
        scale = late(m, reciprocal.result, later, name="scale")
        silent = delayed(m, self.blocks.p.silent, hashes.latency, name="silent")
        entry = data.View(Seeds, seeds.i.payload)
        m.d.comb += [
            seeds.i.valid.eq(hashes.done),
            entry.hashes.eq(hashes.hashes),
            entry.scale.eq(scale),
            entry.scale.silent.eq(scale.silent | silent),
        ]
        return seeds

    def _serial_seeds(self, m):
        """The same with small circuits, which have one block at a time for about 50 cycles."""
        m.submodules.seeds = seeds = CreditQueue(Seeds.size, self.n_seeds)
        m.submodules.seeds_room = room = Room(self.n_seeds)
        m.submodules.hash = hashes = SerialBlockHash()
        m.submodules.reciprocal = reciprocal = SerialReciprocal()
        takes, busy = signals("takes busy")
        block = Signal(Block, reset_less=True)
        entry = data.View(Seeds, seeds.i.payload)
        m.d.comb += [
            takes.eq(self.blocks.valid & self.blocks.ready),
            self.blocks.ready.eq(room.open & ~busy),
            room.take.eq(takes),
            room.give.eq(seeds.take),
            hashes.random_key.eq(self.random_key),
            *asked(hashes, self, takes),
            reciprocal.log4.eq(self.log4),
            reciprocal.tensor.eq(self.tensor),
            reciprocal.start.eq(takes),
            reciprocal.word.eq(block.word),
            seeds.i.valid.eq(hashes.done),
            entry.hashes.eq(hashes.hashes),
            entry.scale.eq(reciprocal.result),
            entry.scale.silent.eq(reciprocal.result.silent | block.silent),
        ]
        with m.If(takes):
            m.d.sync += [busy.eq(1), block.eq(self.blocks.p)]
        with m.Elif(hashes.done):
            m.d.sync += busy.eq(0)
        return seeds
