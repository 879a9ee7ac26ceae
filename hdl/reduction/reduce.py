"""The reduce unit: partial sums plus contributions, a beat of lanes per cycle."""

from enum import IntEnum

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_range

from ..primitive.names import signals
from ..stream.admission import credit
from ..stream.beats import Beat
from ..stream.credit_queue import CreditQueue
from ..stream.delays import copied, delayed, delayed_flag
from ..stream.fifo import FIFO
from ..stream.pair_queue import PairQueue
from .float_add import FloatAdd

MAX_LANES = 64
NEAR = 8  # lanes that share a register of the operation
FAR = 2  # cycles there and back to lanes that are shared
N_OPERANDS = 15  # beats of a queue of operands: a slot of the LUT RAM is free


class Op(IntEnum):
    """What `Combine` does with each 32-bit lane."""

    FLOAT = 0  # FP32 addition
    MAX = 1  # the larger, unsigned: norms of THC, which are not negative
    INT32 = 2  # addition modulo 2^32
    INT16 = 3  # two sums, 65,535 at most, each most significant byte first, as THC_SUM packs them
    INT8 = 4  # four sums, 255 at most
    COPY = 5  # the first operand
    MAXIMUM = 6  # of FP32: NaN 0x7FC00000 where one is NaN, and +0 above -0 (IEEE 754-2019, 9.6)
    INT12 = 7  # as INT16, 4,095 at most


def _swapped(word):
    """The bytes of each half of a lane, the other way round."""
    return Cat(word[8:16], word[:8], word[24:32], word[16:24])


def capped(m, sums, halves, twelve, eights, *, name: str):
    """Two bytes of sums, each with its carry above it, or all ones that a code has where a sum is
    more: of 16 bits if `halves`, of 12 of them if `twelve`, too, and of 8 if `eights`; else modulo.
    All are signals; `name` is that of two more.
    """
    more, full = Signal(name=name), Signal(2, name=f"{name}_full")
    m.d.comb += [
        more.eq(halves & Mux(twelve, sums[13:].any(), sums[17])),
        full.eq(more.replicate(2) | (eights.replicate(2) & Cat(sums[8], sums[17]))),
    ]
    # twelve bits have no more than these
    top = Mux(twelve, 0, sums[13:17] | full[1].replicate(4))
    return Cat(sums[:8] | full[0].replicate(8), sums[9:13] | full[1].replicate(4), top)


def _maximum(signed, a, b):
    """The larger word: of unsigned ones, or of FP32 where `signed`; combinational."""
    keys = (word ^ Cat((signed & word[31]).replicate(31), Const(0, 1)) for word in (a, b))
    first, second = (Cat(key[:31], key[31] ^ signed) for key in keys)
    nan = Cat(word[23:31].all() & word[:23].any() for word in (a, b)).any()
    return Mux(nan & signed, 0x7FC00000, Mux(first < second, b, a))


def _late(m, value, cycles):
    """`value` as it was `cycles` cycles ago, 2 to 16, through a LUT RAM."""
    ram = memory.Memory(
        shape=len(value), depth=cycles - 1, init=[], attrs={"ram_style": "distributed"}
    )
    m.submodules.late = ram
    write = ram.write_port()
    read = ram.read_port(domain="comb")
    at = Signal(range(cycles - 1))
    late = Signal(len(value), reset_less=True)
    m.d.sync += [at.eq(Mux(at == cycles - 2, 0, at + 1)), late.eq(read.data)]
    m.d.comb += [
        write.en.eq(1),
        write.addr.eq(at),
        write.data.eq(value),
        read.addr.eq(at),
    ]
    return late


class Combine(wiring.Component):
    """Lane by lane ``o = a (op) b``: latency `latency` cycles, one beat per cycle, no handshake.

    Integer results wait for the float ones in a LUT RAM, so `o` may follow `op` beat by beat.

    Parameters
    ----------
    n_lanes : int
        32-bit lanes, 1 to 64.
    integers : bool
        False: FP32 addition only, `op` is not looked at.
    passes : bool
        Only without `integers`: FP32 addition, and COPY.
    maxima : bool
        MAXIMUM, too; without `integers` it implies `passes`.

    Members
    -------
    op : In(Op)
    a, b, o : In(32 * n_lanes), In(32 * n_lanes), Out(32 * n_lanes)
        Lane k is bits 32 k to 32 k + 31.
    """

    latency = FloatAdd.latency

    def __init__(
        self, n_lanes: int, *, integers: bool = True, passes: bool = False, maxima: bool = False
    ) -> None:
        check_range("n_lanes", n_lanes, 1, MAX_LANES)
        self.n_lanes, self.integers, self.passes = n_lanes, integers, passes
        self.maxima = maxima
        width = 32 * n_lanes
        super().__init__({"op": In(Op), "a": In(width), "b": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        lanes = [slice(32 * k, 32 * k + 32) for k in range(self.n_lanes)]
        sums = []
        for k, lane in enumerate(lanes):
            m.submodules[f"add{k}"] = add = FloatAdd()
            m.d.comb += [add.a.eq(self.a[lane]), add.b.eq(self.b[lane])]
            sums.append(add.o)
        if self.integers or self.maxima:
            kind = Signal(Op, reset_less=True)
            m.d.sync += kind.eq(self.op)
            one = self._integer if self.integers else self._maximum
            whole = [one(m, kind, k, self.a[lane], self.b[lane])
                     for k, lane in enumerate(lanes)]  # fmt: skip
            late = _late(m, Cat(whole), FloatAdd.latency - 3)
        elif self.passes:
            late = _late(m, self.a, FloatAdd.latency)
        else:
            m.d.comb += self.o.eq(Cat(sums))
            return m
        is_float = delayed(m, self.op == Op.FLOAT, FloatAdd.latency, name="is_float")
        for k, lane in enumerate(lanes):
            m.d.comb += self.o[lane].eq(Mux(is_float, sums[k], late[lane]))
        return m

    def _integer(self, m, kind, k, a, b):
        """One lane of the integer operations, three cycles late. `kind` is one cycle late."""
        swap = (self.op == Op.INT16) | (self.op == Op.INT12)
        copies = self.op == Op.COPY
        a1, b1 = (Signal(32, name=f"{n}{k}", reset_less=True) for n in "ab")
        m.d.sync += [
            a1.eq(Mux(swap, _swapped(a), a)),
            b1.eq(Mux(copies, 0, Mux(swap, _swapped(b), b))),
        ]
        # one more bit above each byte: 1 + 0 hands a carry on, 0 + 0 swallows it
        in_halves = (kind == Op.INT16) | (kind == Op.INT12)
        odd = (kind == Op.INT32) | in_halves
        on = (odd, kind == Op.INT32, odd, 0)
        x = Cat(Cat(a1[8 * i : 8 * i + 8], on[i]) for i in range(4))
        y = Cat(Cat(b1[8 * i : 8 * i + 8], Const(0, 1)) for i in range(4))
        z = Signal(36, name=f"z{k}", reset_less=True)
        larger = Signal(32, name=f"larger{k}", reset_less=True)
        m.d.sync += [z.eq(x + y), larger.eq(Mux(a1 < b1, b1, a1))]
        if self.maxima:
            m.d.sync += larger.eq(_maximum(kind == Op.MAXIMUM, a1, b1))
        in_order = Signal(32, name=f"in_order{k}", reset_less=True)
        halves = delayed(m, in_halves, 1, name=f"halves{k}")
        twelve = delayed(m, kind == Op.INT12, 1, name=f"twelve{k}")
        eights = delayed(m, kind == Op.INT8, 1, name=f"eights{k}")
        total = Signal(32, name=f"total{k}")
        m.d.comb += total.eq(
            Cat(
                capped(m, z[j : j + 18], halves, twelve, eights, name=f"more{k}_{j}")
                for j in (0, 18)
            )
        )
        m.d.sync += in_order.eq(Mux(halves, _swapped(total), total))
        is_max = delayed(
            m, (kind == Op.MAX) | (self.maxima & (kind == Op.MAXIMUM)), 2, name=f"is_max{k}"
        )
        return Mux(is_max, delayed(m, larger, 1, name=f"largest{k}"), in_order)

    def _maximum(self, m, kind, k, a, b):
        """One lane of MAXIMUM and COPY, as late as `_integer`."""
        a1, b1, larger = (Signal(32, name=f"{n}{k}", reset_less=True) for n in ("a", "b", "larger"))
        m.d.sync += [
            a1.eq(a),
            b1.eq(b),
            larger.eq(Mux(kind == Op.COPY, a1, _maximum(1, a1, b1))),
        ]
        return delayed(m, larger, 1, name=f"largest{k}")


def near_combines(n_lanes: int, **what) -> list[Combine]:
    """Lanes of a unit in `Combine`s of at most `NEAR`, each for an `op` of its own."""
    return [Combine(min(NEAR, n_lanes - first), **what) for first in range(0, n_lanes, NEAR)]


def operands(combines) -> tuple[Cat, Cat, Cat]:
    """Inputs a, inputs b and outputs of `combines`, each side by side."""
    return Cat(x.a for x in combines), Cat(x.b for x in combines), Cat(x.o for x in combines)


def Adding(n_lanes: int) -> wiring.Signature:
    """What a user of `gradnic.hdl.reduction.shared_combine.SharedCombine` has.

    asks, goes : a beat may go; it does, in this cycle. Its operands and ``op`` follow
    `CreditQueue.latency` cycles later, and their sum is at ``o`` `Combine.latency` + `FAR` cycles
    after these.
    """
    width = 32 * n_lanes
    operands = {"op": Out(Op), "a": Out(width), "b": Out(width)}
    return wiring.Signature({"asks": Out(1), "goes": In(1), "o": In(width)} | operands)


class Reduce(wiring.Component):
    """Partial sums plus contributions as streams: 1 beat per cycle, `latency` cycles.

    That is 19 cycles, and 18 up to 3 lanes; 2 more if `shared`. Sums as
    `gradnic.models.reduction.reduce.combine` has them.

    A beat of each is added, or of the partials one alone where they say so; `last` comes from
    the partials. Each input waits in a queue of its own, so neither waits for the other to be
    ready. Up to `DEPTH` beats more are under way or wait for ``sums.ready``.

    Parameters
    ----------
    n_lanes : int
        32-bit lanes, 1 to 64.
    integers, passes, maxima : bool
        As of `Combine`.
    shared : bool
        The lanes are elsewhere, in a `gradnic.hdl.reduction.shared_combine.SharedCombine`. What
        goes alone passes by them, and takes nobody's turn.

    Members
    -------
    adder : Out(Adding(n_lanes))
        With `shared`.
    partials : In(stream.Signature({data, last, op, alone}))
        alone : nothing is added, whatever ``op`` says; not where there is FP32 addition only,
        unless `shared`.
    contributions : In(stream.Signature(Beat(32 * n_lanes)))
    sums : Out(stream.Signature(Beat(32 * n_lanes)))
    astray : Out(1)
        One of two beats that were added was a last one, and the other was not; or the queue of
        sums says so.
    """

    DEPTH = 31

    def __init__(
        self,
        n_lanes: int,
        *,
        integers: bool = True,
        passes: bool = False,
        maxima: bool = False,
        shared: bool = False,
    ) -> None:
        check_range("n_lanes", n_lanes, 1, MAX_LANES)
        what = {"integers": integers, "passes": passes, "maxima": maxima}
        self.combines = [] if shared else near_combines(n_lanes, **what)
        self.shared, self.width = shared, 32 * n_lanes
        beat = Beat(32 * n_lanes)
        self.queue = PairQueue(beat, self.DEPTH)
        self.late = CreditQueue.latency + Combine.latency + FAR * shared
        self.latency = FIFO.latency + self.late + self.queue.latency
        self.kind = data.StructLayout({"last": 1, "op": Op, "alone": 1})
        partial = data.StructLayout({"data": 32 * n_lanes, **self.kind.members})
        super().__init__(
            {
                "partials": In(stream.Signature(partial)),
                "contributions": In(stream.Signature(beat)),
                "sums": Out(stream.Signature(beat)),
                "astray": Out(1),
                **({"adder": Out(Adding(n_lanes))} if shared else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for k, one in enumerate(self.combines):
            m.submodules[f"combine{k}"] = one
        combines = [self.adder] if self.shared else self.combines
        a, b, o = operands(combines)
        m.submodules.queue = queue = self.queue
        wiring.connect(m, queue.o, wiring.flipped(self.sums))
        m.submodules.partial_queue = own = CreditQueue(self.width, N_OPERANDS)
        m.submodules.contribution_queue = others = CreditQueue(self.width + 1, N_OPERANDS)
        m.submodules.kinds = kinds = FIFO(self.kind, N_OPERANDS + 1, never_full=True)
        partial, added, kind = self.partials, self.contributions, kinds.o
        go, adds, gone = signals("go adds gone")
        asks = Signal()
        goes = Const(1)
        late = self.late
        comes = others.i.valid & others.i.ready
        other = data.View(added.p.shape(), others.word)
        last = delayed(m, kind.p.last, own.latency, name="ends")
        were_added = delayed_flag(m, adds, own.latency, name="added")
        m.d.sync += self.astray.eq((were_added & (other.last != last)) | queue.astray)
        op, total = Mux(kind.p.alone, Op.COPY, kind.p.op), o
        if self.shared:
            op, goes = kind.p.op, self.adder.goes | kind.p.alone
            beside = _late(m, own.word, late - own.latency)
            is_alone = delayed(m, kind.p.alone, late, name="alone")
            total = Mux(is_alone, beside, o)
            m.d.comb += self.adder.asks.eq(asks & ~kind.p.alone)
        ops = copied(m, delayed(m, op, own.latency - 1, name="op"), len(combines), name="op")
        some = credit(m, N_OPERANDS, take=adds, give=comes, none=True, name="contributions")
        may = (kind.p.alone | some) & credit(m, self.DEPTH, take=go, give=gone, name="room")
        m.d.comb += [
            own.i.valid.eq(partial.valid),
            partial.ready.eq(own.i.ready),
            own.i.payload.eq(partial.p.data),
            kinds.i.valid.eq(own.i.valid & own.i.ready),
            *(kinds.i.p[name].eq(partial.p[name]) for name in ("last", "op", "alone")),
            others.i.valid.eq(added.valid),
            added.ready.eq(others.i.ready),
            others.i.payload.eq(added.p.as_value()),
            asks.eq(kind.valid & may),  # its beat came before
            go.eq(asks & goes),
            kind.ready.eq(may & goes),
            adds.eq(go & ~kind.p.alone),
            gone.eq(self.sums.valid & self.sums.ready),
            own.take.eq(go),
            others.take.eq(adds),
            a.eq(own.word),
            b.eq(other.data),
            *(one.op.eq(op) for one, op in zip(combines, ops, strict=True)),
            queue.i.valid.eq(delayed_flag(m, go, late, name="go")),
            queue.i.p.data.eq(total),
            queue.i.p.last.eq(delayed(m, last, late - own.latency, name="last")),
        ]
        return m
