"""Queue at the end of a pipeline, without a clock enable in the way of the data.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.names import signals
from .steering import chunks, healed

BANK = 16  # entries that one LUT RAM holds
MOST = 4 * BANK  # entries of the largest queue


class _Piece:
    """State of a piece of the entries: pieces work in step, each with registers of its own."""

    def __init__(self, start, stop, n_slots):
        kept = {"keep_register": 1}
        n_rows = n_slots // 2
        self.here = Signal(name=f"here{start}", attrs=kept)  # one enters the memory
        self.held = Signal(stop - start, name=f"held{start}", reset_less=True)
        self.valid = Signal(name=f"valid{start}", attrs=kept)  # as `o.valid`
        self.head = Signal(range(n_slots), name=f"head{start}", attrs=kept)  # bit 0: bank to write
        self.turn = Signal(name=f"turn{start}", attrs=kept)  # bank to read from
        self.rows = [
            Signal(range(n_rows), name=f"row{start}_{bank}", attrs=kept) for bank in range(2)
        ]
        self.state = Cat(self.here, self.head, self.turn, *self.rows)
        self.near = [
            Signal(stop - start, name=f"near{start}_{bank}", reset_less=True) for bank in range(2)
        ]
        self.arrays = [
            [
                memory.Memory(
                    shape=stop - start, depth=BANK, init=[], attrs={"ram_style": "distributed"}
                )
                for _ in range(n_rows // BANK)
            ]
            for _ in range(2)
        ]


class PairQueue(wiring.Component):
    """Queue in two banks of LUT RAM that take turns: 1 entry per cycle, ``latency`` cycles.

    Plumbing: no golden model of its own.

    The next entry of each bank waits in a register that loads in every cycle, and ``o.p`` is the
    one or the other: ``o.ready`` reaches a few flags only, no clock enable of the data. A wide
    entry is cut into pieces of at most `gradnic.hdl.stream.steering.CHUNK` bits with addresses of
    their own, and a register in front: ``latency`` is 3, else 2. Never full: the user lets in at
    most ``depth`` entries.

    Parameters
    ----------
    shape : shape-like
        An entry.
    depth : int
        Entries, 2 to `MOST`.

    Members
    -------
    i : In(stream.Signature(shape, always_ready=True))
    o : Out(stream.Signature(shape))
        ``o.valid`` is a register.

    ``astray`` : flag, 1 until a reset once a register of a piece is not as that of the others, or
    of ``o.valid``: a part of an entry may have been another one's.
    """

    def __init__(self, shape: ShapeLike, depth: int) -> None:
        if not 2 <= depth <= MOST:
            raise ValueError(f"depth must be 2 to {MOST}, not {depth!r}")
        self.n_slots = max(2 * BANK, 2 ** ceil_log2(depth))
        self.ranges = chunks(Shape.cast(shape).width)
        self.pieces = [_Piece(start, stop, self.n_slots) for start, stop in self.ranges]
        self.latency = 3 if len(self.pieces) > 1 else 2
        self.astray = Signal()
        self.occupied = Signal(depth)  # bit k: more than k entries, one cycle ago
        self.several = Signal()  # more than one can be offered
        kept = {"keep_register": 1}  # the user and the pieces may have registers of the same
        self.here = Signal(attrs=kept)  # one enters the memory
        # what came and went then
        self.pushed, self.popped = signals("pushed popped", attrs=kept)
        self.came = Signal(attrs=kept)  # as `pushed`, for the pieces
        super().__init__(
            {
                "i": In(stream.Signature(shape, always_ready=True)),
                "o": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        now = healed(m, self.occupied, self.pushed, self.popped)
        pop = self.o.ready & self.o.valid
        front = m.d.sync if self.latency == 3 else m.d.comb
        first = self.pieces[0]
        m.d.sync += self.astray.eq(
            Cat(
                self.astray,
                *(p.valid != self.o.valid for p in self.pieces),
                *(p.state != first.state for p in self.pieces[1:]),
            ).any()
        )
        front += self.here.eq(self.i.valid)
        m.d.sync += [
            self.pushed.eq(self.here),
            self.came.eq(self.here),
            self.popped.eq(pop),
            self.occupied.eq(now),
            self.several.eq(now[2:3].any() | (now[1] & ~pop)),
            self.o.valid.eq(self._stays(self.o)),
        ]
        i, o = Value.cast(self.i.p), Value.cast(self.o.p)
        for (start, stop), piece in zip(self.ranges, self.pieces, strict=True):
            pop = self.o.ready & piece.valid
            front += [piece.here.eq(self.i.valid), piece.held.eq(i[start:stop])]
            m.d.sync += [
                piece.valid.eq(self._stays(piece)),
                piece.turn.eq(piece.turn ^ pop),
            ]
            # The slot at the head is not in use, as in a `FIFO`, unless all are.
            writes = piece.here | (len(self.occupied) < self.n_slots)
            with m.If(piece.here):
                m.d.sync += piece.head.eq(piece.head + 1)
            for bank, (arrays, row, near) in enumerate(
                zip(piece.arrays, piece.rows, piece.near, strict=True)
            ):
                with m.If(pop & (piece.turn == bank)):
                    m.d.sync += row.eq(row + 1)
                found = []
                for k, array in enumerate(arrays):
                    m.submodules[f"bits{start}_bank{bank}_{k}"] = array
                    write = array.write_port()
                    read = array.read_port(domain="comb")
                    m.d.comb += [
                        write.en.eq(writes & (piece.head[0] == bank) & (piece.head[5:] == k)),
                        write.addr.eq(piece.head[1:5]),
                        write.data.eq(piece.held),
                        read.addr.eq(row[:4]),
                    ]
                    found.append(read.data)
                m.d.sync += near.eq(Mux(row[4:], found[-1], found[0]))
            m.d.comb += o[start:stop].eq(Mux(piece.turn, piece.near[1], piece.near[0]))
        return m

    def _stays(self, part):
        """The next ``part.valid``: one LUT a piece, so that it stands where the piece does."""
        return self.several | self.came | (part.valid & ~self.o.ready)
