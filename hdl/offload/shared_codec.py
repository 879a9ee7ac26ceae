"""INCEPTIONN for all contexts of a card: one decompressor before them, one compressor behind them.

Golden model: `gradnic.models.offload.shared_codec`. Memory takes and gives a beat a cycle for all
contexts, so one of each is as fast as one for each context.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import Op

from ..inceptionn.compressor import Compressor
from ..inceptionn.decompressor import Decompressor
from ..primitive.names import signals
from ..stream.beats import Beat, UnitBeat
from ..stream.block_fifo import BlockFIFO
from ..stream.fifo import FIFO
from ..transport.records import Arrival, PacketHead
from .context_paths import has_payload

N_PACKETS = 32  # inside
N_PASSED = 256  # beats that need no codec, behind others that do
NO_LIMIT = 0xFFFF  # of a unit's bytes


class SharedDecompressor(wiring.Component):
    """Coded payloads become floats on their way to the contexts, as their heads say.

    Heads pass in no time. Payloads come in their order, and leave in it: a beat a cycle, 9 cycles
    late, or 13 and the time of `Decompressor` if coded. Those that are not of a round under way
    stay as they are. An unsound unit becomes one beat of ``drop``. ``strays`` : flag, a cycle late,
    an address of the stores inside changed by itself, and what comes may be wrong until a reset.

    Parameters
    ----------
    n_bytes, max_elems : int
        Bytes of a beat, 16, 32 or 64; elements of a packet, at most.

    Members
    -------
    heads, passes : In, Out(stream.Signature(Arrival))
    payload : In(stream.Signature(Beat(8 * n_bytes)))
    o : Out(stream.Signature(UnitBeat(8 * n_bytes)))
    """

    def __init__(self, n_bytes: int, *, max_elems: int) -> None:
        self.n_bytes = n_bytes
        self.codec = Decompressor(n_bytes // 4, max_floats=max_elems)
        self.strays = Signal()
        arrivals = stream.Signature(Arrival)
        super().__init__(
            {
                "heads": In(arrivals),
                "passes": Out(arrivals),
                "payload": In(stream.Signature(Beat(8 * n_bytes))),
                "o": Out(stream.Signature(UnitBeat(8 * n_bytes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.codec = unit = self.codec
        head, o = self.heads.p.head, self.o
        coded = self.heads.p.ready & (head.op == Op.INC)
        kinds, passed = _enter(m, self, unit.coded, self.passes, head, coded)
        m.d.comb += [self.passes.p.eq(self.heads.p), unit.units.p.bytes.eq(head.length)]

        ends = Signal()
        unsound = Signal(reset_less=True)
        plain, sound, next_ = _turns(m, "out", kinds, ends, unit.verdicts.valid)
        with m.If(next_):
            m.d.sync += unsound.eq(~unit.verdicts.p.ok)
        m.d.comb += [
            unit.verdicts.ready.eq(kinds.valid & kinds.ready & kinds.payload),
            o.valid.eq(Mux(plain, passed.valid, sound & (unsound | unit.floats.valid))),
            o.p.data.eq(Mux(plain, passed.p.data, unit.floats.p.data)),
            o.p.last.eq(Mux(plain, passed.p.last, unsound | unit.floats.p.last)),
            o.p.drop.eq(~plain & unsound),
            passed.ready.eq(plain & o.ready),
            unit.floats.ready.eq(sound & ~unsound & o.ready),
            ends.eq(o.valid & o.ready & o.p.last),
        ]
        return m


class SharedCompressor(wiring.Component):
    """Floats of coded packets become units on their way to the framer, as their heads say.

    Packets leave in order, a beat a cycle, those that are not coded 8 cycles late. The head of a
    coded one leaves once its size is known, with it as ``length``. ``strays`` : as of
    `SharedDecompressor`.

    Parameters
    ----------
    n_bytes, max_elems : int
        As of `SharedDecompressor`.

    Members
    -------
    heads, payload : In(stream.Signature(PacketHead)), In(stream.Signature(Beat(8 * n_bytes)))
    o_heads, o : Out(stream.Signature(PacketHead)), Out(stream.Signature(Beat(8 * n_bytes)))
    """

    def __init__(self, n_bytes: int, *, max_elems: int) -> None:
        self.n_bytes = n_bytes
        self.codec = Compressor(n_bytes // 4, max_floats=max_elems)
        self.strays = Signal()
        heads, beats = stream.Signature(PacketHead), stream.Signature(Beat(8 * n_bytes))
        super().__init__(
            {"heads": In(heads), "payload": In(beats), "o_heads": Out(heads), "o": Out(beats)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.codec = unit = self.codec
        m.submodules.head_queue = heads = FIFO(PacketHead, N_PACKETS, half_rate=True)
        head, o, sizes = heads.o.p, self.o, unit.sizes
        coded = self.heads.p.op == Op.INC
        kinds, passed = _enter(m, self, unit.floats, heads.i, self.heads.p, coded)
        is_unit, sized = signals("is_unit sized")
        m.d.comb += [
            heads.i.p.eq(self.heads.p),
            unit.units.p.limit.eq(NO_LIMIT),
            is_unit.eq((head.op == Op.INC) & has_payload(head)),
            sized.eq(~is_unit | sizes.valid),
            self.o_heads.p.eq(head),
            self.o_heads.valid.eq(heads.o.valid & sized),
            heads.o.ready.eq(self.o_heads.ready & sized),
            sizes.ready.eq(heads.o.valid & is_unit & self.o_heads.ready),
        ]
        with m.If(is_unit):
            m.d.comb += self.o_heads.p.length.eq(sizes.p.bytes)

        ends = Signal()
        plain, packed, _ = _turns(m, "out", kinds, ends)
        m.d.comb += [
            o.valid.eq(Mux(plain, passed.valid, packed & unit.coded.valid)),
            *(
                o.p[name].eq(Mux(plain, passed.p[name], unit.coded.p[name]))
                for name in ("data", "last")
            ),
            passed.ready.eq(plain & o.ready),
            unit.coded.ready.eq(packed & o.ready),
            ends.eq(o.valid & o.ready & o.p.last),
        ]
        return m


def _enter(m, part, floats, passes, head, coded):
    """Heads pass to `passes`, and payloads go into the codec, or beside it into a queue; returns
    (stream of what the packets inside are, 1: coded; the queue's output).

    floats : stream that coded payloads go to. head, coded : the head at hand, and its packet is.
    """
    m.submodules.enters = enters = FIFO(1, N_PACKETS)
    m.submodules.leaves = leaves = FIFO(1, N_PACKETS)
    m.submodules.passed = passed = BlockFIFO(Beat(8 * part.n_bytes), N_PASSED, stops=True)
    m.d.sync += part.strays.eq(part.codec.strays | passed.stopped)  # long ways meet behind it
    units, source = part.codec.units, part.payload
    rooms, goes, ends = signals("rooms goes ends")
    m.d.comb += [
        rooms.eq(enters.i.ready & leaves.i.ready & units.ready),
        passes.valid.eq(part.heads.valid & rooms),
        part.heads.ready.eq(passes.ready & rooms),
        goes.eq(part.heads.valid & part.heads.ready & has_payload(head)),
        *(queue.i.valid.eq(goes) for queue in (enters, leaves)),
        *(queue.i.payload.eq(coded) for queue in (enters, leaves)),
        units.valid.eq(goes & coded),
        units.p.count.eq(head.elems),
        units.p.exponent.eq(head.p0[:7]),
        units.p.paper.eq(head.p0[7]),
        units.p.prescale.eq(head.p1.as_signed()),
    ]
    plain, to_codec, _ = _turns(m, "in", enters.o, ends)
    m.d.comb += [
        ends.eq(source.valid & source.ready & source.p.last),
        source.ready.eq(Mux(plain, passed.i.ready, to_codec & floats.ready)),
        passed.i.valid.eq(source.valid & plain),
        passed.i.p.eq(source.p),
        floats.valid.eq(source.valid & to_codec),
        floats.p.data.eq(source.p.data),
        floats.p.last.eq(source.p.last),
    ]
    return leaves.o, passed.o


def _turns(m, name, kinds, ends, known=1):
    """Flags (plain, coded, next): where the packet at hand goes, settled before its first beat, and
    that the next one's turn may begin in the next cycle.

    kinds : stream of 1 for coded ones. ends : its last beat passes. known : a coded one may begin.
    """
    plain, coded, next_ = (Signal(name=f"{name}_{part}") for part in ("plain", "coded", "next"))
    m.d.comb += [
        next_.eq(ends | ~(plain | coded)),
        kinds.ready.eq(next_ & (known | ~kinds.payload)),
    ]
    with m.If(next_):
        m.d.sync += [
            plain.eq(kinds.valid & ~kinds.payload),
            coded.eq(kinds.valid & kinds.payload & known),
        ]
    return plain, coded, next_
