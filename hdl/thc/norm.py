"""THC worker, way up, first pass: floats in, one exact norm per block out."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.block_ram import BlockRAM
from ..primitive.multiplier import Multiplier
from ..primitive.names import signals
from ..stream.admission import Room
from ..stream.delays import copied, delayed, delayed_flag, late
from ..stream.fifo import FIFO
from .block_beats import before_last_beat, block_beats
from .hadamard import check_shape

N_RESULTS = 64
INFINITE = 0x7F800000


class SquareRoot(wiring.Component):
    """floor(sqrt(x)) of a 48-bit x: one per cycle, `latency` cycles later, one bit a stage.

    Members
    -------
    x, root : In(48), Out(24)
    """

    latency = 24

    x: In(48)
    root: Out(24)

    def elaborate(self, platform):
        m = Module()
        rest, remainder, root = self.x, Const(0, 26), Const(0, 24)
        for bit in range(24):
            brought = Cat(rest[-2:], remainder)[:26]
            trial = Cat(Const(1, 2), root)
            fits = brought >= trial
            names = (("rest", max(2, len(rest) - 2)), ("remainder", 26), ("root", 24))
            following = [Signal(w, name=f"{name}{bit}", reset_less=True) for name, w in names]
            m.d.sync += [
                following[0].eq(rest[:-2]),
                following[1].eq(Mux(fits, brought - trial, brought)),
                following[2].eq(Cat(fits, root)),
            ]
            rest, remainder, root = following
        m.d.comb += self.root.eq(root)
        return m


class SerialRoot(wiring.Component):
    """floor(sqrt(x)) of a 48-bit x: a bit a cycle, one at a time.

    ``done`` comes 25 cycles behind ``start``, and the next ``start`` with it at the earliest.

    Members
    -------
    start, x : In(1), In(48)
    done, root : Out(1), Out(24)
    """

    start: In(1)
    x: In(48)
    done: Out(1)
    root: Out(24)

    def elaborate(self, platform):
        m = Module()
        rest = Signal(48, reset_less=True)
        remainder = Signal(26, reset_less=True)
        left = Signal(range(25))
        brought = Cat(rest[-2:], remainder)[:26]
        trial = Cat(Const(1, 2), self.root)
        fits = brought >= trial
        with m.If(self.start):
            m.d.sync += [rest.eq(self.x), remainder.eq(0), self.root.eq(0), left.eq(24)]
        with m.Elif(left != 0):
            m.d.sync += [
                rest.eq(rest << 2),
                remainder.eq(Mux(fits, brought - trial, brought)),
                self.root.eq(Cat(fits, self.root)),
                left.eq(left - 1),
            ]
        m.d.sync += self.done.eq(left == 1)
        return m


class ThcNorm(wiring.Component):
    """Norm of each block: `lanes` floats per cycle, blocks back to back.

    Twin of `gradnic.models.thc.Worker.norms` in block mode: exact, and independent of the order
    of the elements. A block is stored while its largest exponent is found, then read again:
    17-bit mantissas are aligned to that exponent, squared, summed, and the root taken. The norm
    of a block leaves about B / lanes + 50 cycles after its last beat came in. A stalled output
    stalls the input; nothing is lost.

    Parameters
    ----------
    lanes : int
        Floats per cycle: 2, 4, 8, 16 or 32.
    block : int
        Largest block: 64, 256, 1024 or 4096.

    Members
    -------
    log4 : In(2)
        log4(B) - 3; may change only while nothing is inside.
    floats : In(stream.Signature(32 * lanes))
    norms : Out(stream.Signature(32))
        FP32 bits, one a block.
    """

    def __init__(self, lanes: int, *, block: int = 1024) -> None:
        check_shape(lanes, block)
        self.lanes, self.block = lanes, block
        self.serial = lanes == 2  # blocks come 32 cycles apart at least: a root takes 24
        self.n_results = 16 if self.serial else N_RESULTS
        super().__init__(
            {
                "log4": In(2),
                "floats": In(stream.Signature(32 * lanes)),
                "norms": Out(stream.Signature(32)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes, n_beats = self.lanes, self.block // self.lanes
        before_last = before_last_beat(m, lanes, self.block, self.log4)

        # write: two blocks' room, one being written while the other is read
        m.submodules.blocks = blocks = Room(4, largest=1, smallest=0)
        m.submodules.results_room = results_room = Room(self.n_results)
        m.submodules.store = store = BlockRAM(25 * lanes, 4 * max(2, n_beats))
        m.submodules.tops = tops = FIFO(8, 4)
        may_start, goes = signals("may_start goes")
        turn = Signal(2)
        beat, at_first, at_last = block_beats(m, goes, before_last)
        m.d.comb += [
            may_start.eq(blocks.open & results_room.open),
            self.floats.ready.eq(~at_first | may_start),
            goes.eq(self.floats.valid & self.floats.ready),
            blocks.take.eq(goes & at_first),
            results_room.take.eq(goes & at_first),
        ]
        with m.If(goes & at_last):
            m.d.sync += turn.eq(turn + 1)
        slim = []
        for lane in range(lanes):
            word = self.floats.payload.word_select(lane, 32)
            slim.append(Cat(word[7:23], word[23:31].any(), word[23:31]))
        m.d.sync += [
            store.write_en.eq(goes),
            store.write_addr.eq(Cat(beat, turn)),
            store.write_data.eq(Cat(slim)),
        ]
        largest = self._largest(m, [item[17:] for item in slim])
        lag = ceil_log2(lanes)
        first = delayed_flag(m, goes & at_first, lag, name="first")
        inside = delayed_flag(m, goes, lag, name="inside")
        ends = delayed_flag(m, goes & at_last, lag, name="ends")
        top = Signal(8, reset_less=True)
        running = Signal(8)
        m.d.comb += running.eq(Mux(first | (largest > top), largest, top))
        with m.If(inside):
            m.d.sync += top.eq(running)
        known = Signal()
        m.d.sync += known.eq(ends)
        m.d.comb += [tops.i.valid.eq(known), tops.i.payload.eq(top)]

        # read: the block at the head of `tops`, a beat a cycle
        reading = Signal(2)
        place, read_first, read_last = block_beats(m, tops.o.valid, before_last)
        m.d.comb += [
            store.read_addr.eq(Cat(place, reading)),
            tops.o.ready.eq(read_last),
            blocks.give.eq(tops.o.valid & read_last),
        ]
        with m.If(tops.o.valid & read_last):
            m.d.sync += reading.eq(reading + 1)
        exponent = delayed(m, tops.o.payload, 2, name="exponent")
        squares = [self._square(m, store.read_data, exponent, lane) for lane in range(lanes)]
        lag = 2 + 3 + 3
        while len(squares) > 1:
            width, n = len(squares[0]) + 1, len(squares) // 2
            sums = [Signal(width, name=f"sum{k}_of{n}", reset_less=True) for k in range(n)]
            m.d.sync += [
                s.eq(a + b) for s, a, b in zip(sums, squares[::2], squares[1::2], strict=True)
            ]
            squares, lag = sums, lag + 1
        starts = delayed_flag(m, tops.o.valid & read_first, lag - 1, name="starts")
        adds = delayed_flag(m, tops.o.valid, lag, name="adds")
        stops = delayed_flag(m, tops.o.valid & read_last, lag, name="stops")
        exponent = delayed(m, exponent, lag - 2, name="kept")
        total = Signal(46, reset_less=True)
        parts = [total[:23], total[23:]]
        kept = Cat(
            Mux(flag, 0, part) for flag, part in zip(copied(m, starts, 2), parts, strict=True)
        )
        with m.If(adds):
            m.d.sync += total.eq(kept + squares[0])
        self._root(m, total, delayed_flag(m, stops, 1), delayed(m, exponent, 1), results_room)
        return m

    @staticmethod
    def _largest(m, exponents):
        """The largest of the lanes' exponents, a comparison a cycle."""
        while len(exponents) > 1:
            n = len(exponents) // 2
            winners = [Signal(8, name=f"larger{k}_of{n}", reset_less=True) for k in range(n)]
            for winner, a, b in zip(winners, exponents[::2], exponents[1::2], strict=True):
                m.d.sync += winner.eq(Mux(a > b, a, b))
            exponents = winners
        return exponents[0]

    @staticmethod
    def _square(m, words, top, lane):
        """Square of a lane's mantissa, aligned to the block's largest exponent."""
        item = words.word_select(lane, 25)
        shift = Signal(8, name=f"shift{lane}", reset_less=True)
        mantissa = Signal(17, name=f"mantissa{lane}", reset_less=True)
        coarse = Signal(17, name=f"coarse{lane}", reset_less=True)
        fine = Signal(3, name=f"fine{lane}", reset_less=True)
        aligned = Signal(17, name=f"aligned{lane}", reset_less=True)
        m.d.sync += [
            shift.eq(top - item[17:]),
            mantissa.eq(Mux(item[16], item[:17], 0)),
            coarse.eq(Mux(shift[5:].any(), 0, mantissa >> (shift[3:5] << 3))),
            fine.eq(shift[:3]),
            aligned.eq(coarse >> fine),
        ]
        m.submodules[f"square{lane}"] = square = Multiplier(17, 17)
        m.d.comb += [square.a.eq(aligned), square.b.eq(aligned)]
        return square.p

    def _root(self, m, total, valid, top, room):
        """Normalize the sum to [2**46, 2**48), take the root, and put the float together."""
        value = Cat(Const(0, 2), total)  # k starts at 2, as the sum is below 2**46
        lag, halves = 0, Const(0, 5)
        for step in (16, 8, 4, 2, 1):
            high = value[48 - 2 * step :]
            shifted = Signal(48, name=f"shifted{step}", reset_less=True)
            count = Signal(5, name=f"halves{step}", reset_less=True)
            m.d.sync += [
                shifted.eq(Mux(high == 0, value << 2 * step, value)),
                count.eq(halves + Mux(high == 0, step, 0)),
            ]
            value, halves, lag = shifted, count, lag + 1
        if self.serial:
            m.submodules.square_root = root = SerialRoot()
            begins = delayed_flag(m, valid, lag, name="begins")
            top = delayed(m, top, lag, name="top")
            held = Signal(len(top) + len(halves), reset_less=True)
            with m.If(begins):
                m.d.sync += held.eq(Cat(top, halves))
            top, halves = held[: len(top)], held[len(top) :]
            m.d.comb += root.start.eq(begins)
            rooted = root.done
        else:
            m.submodules.square_root = root = SquareRoot()
            lag += root.latency
            halves = late(m, halves, root.latency, name="halves")
            top = late(m, top, lag, name="top")
            rooted = delayed_flag(m, valid, lag, name="inside_root")
        m.d.comb += root.x.eq(value)
        exponent = Signal(10, reset_less=True)
        low = Signal(23, reset_less=True)
        m.d.sync += [exponent.eq(top + 6 - halves), low.eq(root.root)]  # k / 2 = halves + 1
        top = delayed(m, top, 1, name="top_last")
        m.submodules.results = results = FIFO(32, self.n_results)
        nothing = (top == 0) | exponent[9] | (exponent == 0)
        infinite = (top == 255) | (exponent >= 255)
        norm = Signal(32, reset_less=True)
        m.d.sync += norm.eq(Mux(nothing, 0, Mux(infinite, INFINITE, Cat(low, exponent[:8], 0))))
        m.d.comb += [
            results.i.valid.eq(delayed_flag(m, rooted, 2, name="rooted")),
            results.i.payload.eq(norm),
            room.give.eq(results.o.valid & results.o.ready),
        ]
        wiring.connect(m, results.o, wiring.flipped(self.norms))
