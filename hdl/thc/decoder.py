"""THC worker, way down: packed table sums and agreed norms in, floats out."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.names import signals
from ..stream.admission import Room
from ..stream.block_fifo import BlockFIFO
from ..stream.credit_queue import CreditQueue
from ..stream.delays import copied, delayed, delayed_flag, late
from ..stream.steering import CHUNK, chunks, moved
from .bit_packer import BitUnpacker
from .block_beats import before_last_beat, block_beats
from .float_times import Float, IntToFloat, Times, unpacked
from .hadamard import Hadamard, check_shape
from .shared_random import BlockHash, SerialBlockHash, Signs, asked

Sums = data.StructLayout({"word": 32, "number": 32})
Seeds = data.StructLayout({"sign_word": 32, "scale": Float, "nothing": 1, "infinite": 1})
QUIET_NAN = 0x7FC00000


class ThcDecoder(wiring.Component):
    """Center, rotate back and scale: `lanes` floats per cycle, blocks back to back.

    Twin of `gradnic.models.thc.Worker.decode`. Blocks whose norm is 0 come out as zeros, those
    whose norm is not finite as quiet NaN. Everything inside runs free, behind a count of the room
    that is left: a stalled output stalls the input, and nothing is lost. With two lanes a block
    takes 35 cycles at least, for its seeds.

    Parameters
    ----------
    lanes, block : int
        As of `gradnic.hdl.thc.norm.ThcNorm`.
    lends : bool
        As of `gradnic.hdl.thc.encoder.ThcEncoder`.

    Members
    -------
    log4, code, offset, unit : In(2), In(2), In(16), In(32)
        log4(B) - 3; 0, 1, 2 for sums of 8, 12, 16 bits; n * g; C0 as FP32 bits, a normal number.
    sign_key, tensor_hash : In(32)
        See `BlockHash`. All of these may change only while nothing is inside.
    blocks : In(stream.Signature(Sums))
        The agreed norm and the block's number in the tensor.
    sums : In(stream.Signature(16 * lanes))
        2 * `lanes` bytes a beat, most significant bit first. B * w / (16 * lanes) beats a block;
        several blocks together must be a whole number of beats.
    floats : Out(stream.Signature(32 * lanes))
    rotate : In(rotation(...))
        With `lends`.
    """

    def __init__(self, lanes: int, *, block: int = 1024, lends: bool = False) -> None:
        check_shape(lanes, block)
        self.lanes, self.block = lanes, block
        self.n_seeds = max(16, 2 * lanes)  # blocks whose seeds are on their way
        self.depth = 2 ** ceil_log2(block // lanes + 96)  # beats inside
        self.transform = Hadamard(lanes, block, in_width=18, width=17 + block.bit_length())
        self.lends = lends
        if not lends:
            self.rotate = self.transform
        # all in step: one control for all of them would be too far away
        self.results = [BlockFIFO(stop - start, self.depth) for start, stop in chunks(32 * lanes)]
        super().__init__(
            {
                "log4": In(2),
                "code": In(2),
                "offset": In(16),
                "unit": In(32),
                "sign_key": In(32),
                "tensor_hash": In(32),
                "blocks": In(stream.Signature(Sums)),
                "sums": In(stream.Signature(16 * lanes)),
                "floats": Out(stream.Signature(32 * lanes)),
                **({"rotate": In(self.transform.signature)} if lends else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        seeds, known = self._serial_seeds(m) if lanes == 2 else self._seeds(m)
        m.submodules.room = room = Room(self.depth)

        m.submodules.inlet = inlet = CreditQueue(16 * lanes)
        wiring.connect(m, wiring.flipped(self.sums), inlet.i)
        # a beat may start in a block whose seeds are there
        m.submodules.unpacker = unpacker = BitUnpacker(lanes)
        ahead = Signal(self.n_seeds)  # bit k: more than k blocks are known and not begun
        produced, begun = signals("produced begun")
        before_last = before_last_beat(m, lanes, self.block, self.log4)
        _, at_first, _ = block_beats(m, produced, before_last)
        m.d.sync += [
            begun.eq(produced & at_first),  # a block has two beats or more: in time for the next
            ahead.eq(moved(m, ahead, known, begun)),
        ]
        m.d.comb += [
            unpacker.code.eq(self.code),
            unpacker.available.eq(inlet.available),
            unpacker.word.eq(inlet.word),
            unpacker.open.eq(room.open & (ahead[0] | ~at_first)),
            inlet.take.eq(unpacker.take),
            produced.eq(unpacker.produces),
            room.take.eq(produced),
            room.give.eq(self.floats.valid & self.floats.ready),
        ]

        self._rotate(m, unpacker)
        self._scale(m, seeds, before_last)
        m.d.comb += [
            self.floats.valid.eq(self.results[0].o.valid),
            self.floats.payload.eq(Cat(queue.o.payload for queue in self.results)),
        ]
        return m

    def _rotate(self, m, unpacker):
        """Sums, less what they have for each node, into the transform."""
        lanes, rotate = self.lanes, self.rotate
        if not self.lends:
            m.submodules.rotate = rotate
        centered = Signal()
        m.d.sync += centered.eq(unpacker.done)
        m.d.comb += [rotate.log4.eq(self.log4), rotate.i.valid.eq(centered)]
        for lane in range(lanes):
            value = Signal(signed(18), name=f"centered{lane}", reset_less=True)
            m.d.sync += value.eq((unpacker.values[lane] << 1) - self.offset)
            m.d.comb += rotate.i.payload[lane].eq(value)

    def _scale(self, m, seeds, before_last):
        """What leaves the transform, with its signs and the block's scale, to floats."""
        lanes, rotate = self.lanes, self.rotate
        # the block's seeds are used two cycles after its rotated values come out
        _, turns_first, turns_last = block_beats(m, rotate.o.valid, before_last)
        now = data.View(Seeds, seeds.word)
        m.d.comb += seeds.take.eq(rotate.o.valid & turns_last)
        m.submodules.signs = signs = Signs(lanes)
        m.d.comb += [
            signs.valid.eq(delayed_flag(m, rotate.o.valid, 2, name="turned")),
            signs.first.eq(delayed(m, turns_first, 2, name="first")),
            signs.sign_word.eq(now.sign_word),
        ]
        converts = [IntToFloat(len(rotate.o.payload[0])) for _ in range(lanes)]
        lag = 1 + converts[0].latency
        scale = late(m, now.scale, lag - 2, name="now_scale")
        lag += Times.latency
        nothing = delayed(m, now.nothing, lag - 3, name="nothing")
        infinite = delayed(m, now.infinite, lag - 3, name="infinite")
        turns = delayed(m, signs.signs, lag - 2 - signs.latency, name="turns")
        rotated = delayed_flag(m, rotate.o.valid, lag, name="rotated")
        for k, valid in enumerate(copied(m, rotated, len(self.results), name="rotated")):
            m.submodules[f"results{k * CHUNK}"] = self.results[k]
            m.d.comb += [
                self.results[k].i.valid.eq(valid),
                self.results[k].o.ready.eq(self.floats.ready),
            ]
        for lane, convert in enumerate(converts):
            m.submodules[f"convert{lane}"] = convert
            m.submodules[f"times{lane}"] = times = Times()
            word = Signal(32, name=f"word{lane}", reset_less=True)
            turned = Cat(times.o[:31], times.o[31] ^ turns[lane])
            queue, first = divmod(32 * lane, CHUNK)
            m.d.comb += [
                convert.i.eq(delayed(m, rotate.o.payload[lane], 1, name=f"turned{lane}_")),
                times.a.eq(convert.o),
                times.b.eq(scale),
                self.results[queue].i.payload[first : first + 32].eq(word),
            ]
            (special,) = copied(m, Cat(nothing, infinite), 1, name=f"special{lane}")
            m.d.sync += word.eq(Mux(special[0], 0, Mux(special[1], QUIET_NAN, turned)))

    def _seeds(self, m):
        """Queue of what the blocks to come need, and a pulse for each that is known."""
        m.submodules.seeds = seeds = CreditQueue(Seeds.size, self.n_seeds)
        m.submodules.seeds_room = room = Room(self.n_seeds)
        m.submodules.hash = hashes = BlockHash(signs_only=True)
        m.submodules.scale = times = Times()
        takes = Signal()
        word = self.blocks.p.word
        m.d.comb += [
            takes.eq(self.blocks.valid & room.open),
            self.blocks.ready.eq(room.open),
            room.take.eq(takes),
            room.give.eq(seeds.take),
            *asked(hashes, self, takes),
            *(times.a[name].eq(value) for name, value in unpacked(word).items()),
            *(times.b[name].eq(value) for name, value in unpacked(self.unit).items()),
        ]
        later = hashes.latency - times.latency
        scale = late(m, times.o, later, name="scale_word")
        entry = data.View(Seeds, seeds.i.payload)
        m.d.comb += [
            seeds.i.valid.eq(hashes.done),
            entry.sign_word.eq(hashes.hashes.sign_word),
            *(entry.scale[name].eq(value) for name, value in unpacked(scale).items()),
            entry.nothing.eq(delayed(m, word == 0, hashes.latency, name="is_zero")),
            entry.infinite.eq(
                delayed(m, word >= Const(0x7F800000, 32), hashes.latency, name="is_infinite")
            ),
        ]
        return seeds, hashes.done

    def _serial_seeds(self, m):
        """The same with a small circuit, which has one block at a time for about 35 cycles."""
        m.submodules.seeds = seeds = CreditQueue(Seeds.size, self.n_seeds)
        m.submodules.seeds_room = room = Room(self.n_seeds)
        m.submodules.hash = hashes = SerialBlockHash(signs_only=True)
        m.submodules.scale = times = Times()
        takes, busy = signals("takes busy")
        word = Signal(32, reset_less=True)
        entry = data.View(Seeds, seeds.i.payload)
        m.d.comb += [
            takes.eq(self.blocks.valid & self.blocks.ready),
            self.blocks.ready.eq(room.open & ~busy),
            room.take.eq(takes),
            room.give.eq(seeds.take),
            *asked(hashes, self, takes),
            *(times.a[name].eq(value) for name, value in unpacked(word).items()),
            *(times.b[name].eq(value) for name, value in unpacked(self.unit).items()),
            seeds.i.valid.eq(hashes.done),
            entry.sign_word.eq(hashes.hashes.sign_word),
            *(entry.scale[name].eq(value) for name, value in unpacked(times.o).items()),
            entry.nothing.eq(word == 0),
            entry.infinite.eq(word >= Const(0x7F800000, 32)),
        ]
        with m.If(takes):
            m.d.sync += [busy.eq(1), word.eq(self.blocks.p.word)]
        with m.Elif(hashes.done):
            m.d.sync += busy.eq(0)
        return seeds, hashes.done
