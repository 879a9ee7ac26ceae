"""Queue of wide beats at the end of a pipeline, without a clock enable in the way of the data."""

from amaranth.hdl import Module, Mux, Shape, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .fifo import chunks, moved

BANK = 16  # beats that one LUT RAM holds


class _Piece:
    """State of a piece of the beats: pieces work in step, each with registers of its own."""

    def __init__(self, start, stop):
        kept = {"keep_register": 1}
        self.valid = Signal(name=f"valid{start}", attrs=kept)  # as `o.valid`
        self.head = Signal(5, name=f"head{start}", attrs=kept)  # next slot to write; bit 0: bank
        self.turn = Signal(name=f"turn{start}", attrs=kept)  # bank to read from
        self.rows = [Signal(4, name=f"row{start}_{bank}", attrs=kept) for bank in range(2)]
        self.near = [
            Signal(stop - start, name=f"near{start}_{bank}", reset_less=True) for bank in range(2)
        ]
        self.arrays = [
            memory.Memory(
                shape=stop - start, depth=BANK, init=[], attrs={"ram_style": "distributed"}
            )
            for _ in range(2)
        ]


class PairQueue(wiring.Component):
    """Queue in two banks of LUT RAM that take turns: 1 beat per cycle, 2 cycles of latency.

    The next beat of each bank waits in a register that loads in every cycle, and ``o.p`` is the one
    or the other: ``o.ready`` reaches a few flags only, no clock enable of the data. A wide beat is
    cut into pieces of at most `gradnic.hdl.fifo.CHUNK` bits with addresses of their own. Never
    full: the user lets in at most ``depth`` beats.

    Parameters
    ----------
    shape : shape-like
        A beat.
    depth : int
        Beats, 2 to 16.

    Members
    -------
    i : In(stream.Signature(shape, always_ready=True))
    o : Out(stream.Signature(shape))
        ``o.valid`` is a register.
    """

    def __init__(self, shape, depth):
        if not 2 <= depth <= BANK:
            raise ValueError(f"depth must be 2 to {BANK}, not {depth!r}")
        self.ranges = chunks(Shape.cast(shape).width)
        self.pieces = [_Piece(start, stop) for start, stop in self.ranges]
        self.occupied = Signal(depth)  # bit k: more than k beats, one cycle ago
        kept = {"keep_register": 1}  # the user may have registers of the same
        self.pushed, self.popped = Signal(attrs=kept), Signal(attrs=kept)  # what came and went then
        super().__init__(
            {
                "i": In(stream.Signature(shape, always_ready=True)),
                "o": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        now = moved(self.occupied, self.pushed & ~self.popped, self.popped & ~self.pushed)
        pop = self.o.ready & self.o.valid
        valid = now[1] | (now[0] & ~pop)
        m.d.sync += [
            self.pushed.eq(self.i.valid),
            self.popped.eq(pop),
            self.occupied.eq(now),
            self.o.valid.eq(valid),
        ]
        i, o = Value.cast(self.i.p), Value.cast(self.o.p)
        for (start, stop), piece in zip(self.ranges, self.pieces, strict=True):
            pop = self.o.ready & piece.valid
            m.d.sync += [piece.valid.eq(valid), piece.turn.eq(piece.turn ^ pop)]
            with m.If(self.i.valid):
                m.d.sync += piece.head.eq(piece.head + 1)
            for bank, (array, row, near) in enumerate(
                zip(piece.arrays, piece.rows, piece.near, strict=True)
            ):
                m.submodules[f"bits{start}_bank{bank}"] = array
                write, read = array.write_port(), array.read_port(domain="comb")
                with m.If(pop & (piece.turn == bank)):
                    m.d.sync += row.eq(row + 1)
                m.d.sync += near.eq(read.data)
                m.d.comb += [
                    write.en.eq(piece.head[0] == bank),  # the slot is not in use, as in a `FIFO`
                    write.addr.eq(piece.head[1:]),
                    write.data.eq(i[start:stop]),
                    read.addr.eq(row),
                ]
            m.d.comb += o[start:stop].eq(Mux(piece.turn, piece.near[1], piece.near[0]))
        return m
