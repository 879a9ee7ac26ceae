"""INCEPTIONN on flit links: messages leave as coded units, each with a head, and return whole."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.flit import FLIT_FLOATS, UNIT_FLITS

from ..inceptionn.compressor import Compressor
from ..inceptionn.decompressor import Decompressor
from ..primitive.names import signals
from ..primitive.same import same
from ..primitive.target import with_exit
from ..stream.fifo import FIFO
from .landing import Places
from .link import Flit, FlitHead, Payload

Settings = data.StructLayout({"exponent": 7, "paper": 1, "prescale": 8})
"""Of INCEPTIONN, for all messages of a round; prescale is two's complement."""

UNIT_FLOATS = UNIT_FLITS * FLIT_FLOATS
N_UNITS = 16  # inside, whose head waits
N_AHEAD = 2  # whose floats have not come
NO_LIMIT = 0xFFFF  # bytes of a unit


class FlitCoder(wiring.Component):
    """Codes the payload of messages, in units of up to 64 flits of one chunk: 4 floats per cycle.

    Each unit becomes a head, which says its flits and coded bytes, and ceil(bytes / 16) flits; the
    message's last unit has ``ends``, all but its first ``more``. The first flit goes in 9 cycles
    after its message's head, once the unit's descriptor is known; those of `N_AHEAD` units are
    known ahead, so units follow each other without a pause. A unit leaves once it is coded, that is
    after its last float.

    Parameters
    ----------
    n_chunks, n_words : int
        As of `gradnic.hdl.direct.landing.Places`.

    Members
    -------
    codec : In(Settings)
    places : In(Places)
    heads, payload : In(stream.Signature(FlitHead)), In(stream.Signature(Payload))
        Messages as they are: the flits that their chunks have.
    unit_heads, units : Out(stream.Signature(FlitHead)), Out(stream.Signature(Payload))
        Of coded units; ``last`` ends a unit.
    """

    def __init__(self, *, n_chunks: int, n_words: int) -> None:
        super().__init__(
            {
                "codec": In(Settings),
                "places": In(Places(n_chunks, n_words)),
                "heads": In(stream.Signature(FlitHead)),
                "payload": In(stream.Signature(Payload)),
                "unit_heads": Out(stream.Signature(FlitHead)),
                "units": Out(stream.Signature(Payload)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.compressor = unit = Compressor(FLIT_FLOATS, max_floats=UNIT_FLOATS)
        m.submodules.head_queue = heads = FIFO(FlitHead, N_UNITS)
        m.submodules.ahead = ahead = FIFO(range(UNIT_FLITS), N_AHEAD)  # flits less one
        places, codec = self.places, self.codec
        message = Signal(FlitHead, reset_less=True)  # count: chunks from `chunk` on
        chunk = Signal(16, reset_less=True)
        left = Signal(24, reset_less=True)  # flits of it
        size = Signal(range(UNIT_FLITS + 1))
        chunk_ends, message_ends, taken = signals("chunk_ends message_ends taken")
        n_gone = Signal(range(UNIT_FLITS))  # flits of a unit

        def flits_of(chunk):
            return Mux(chunk + 1 == places.live, places.last_flits, places.chunk_flits)

        m.d.comb += [
            chunk_ends.eq(left <= UNIT_FLITS),
            message_ends.eq(chunk_ends & (message.count == 1)),
            size.eq(Mux(chunk_ends, left, UNIT_FLITS)),
            unit.units.p.count.eq(size * FLIT_FLOATS),
            *same(unit.units.p, codec, "exponent paper prescale"),
            unit.units.p.limit.eq(NO_LIMIT),
            heads.i.p.eq(message),
            heads.i.p.flits.eq(size),
            heads.i.p.ends.eq(message_ends),
            ahead.i.p.eq(size - 1),
        ]
        with m.FSM() as fsm:
            with m.State("message"):
                m.d.comb += self.heads.ready.eq(1)
                m.d.sync += [message.eq(self.heads.p), message.more.eq(0)]
                m.d.sync += [chunk.eq(self.heads.p.first), left.eq(flits_of(self.heads.p.first))]
                with m.If(self.heads.valid):
                    m.next = "unit"
            with m.State("unit"):
                with m.If(unit.units.ready & heads.i.ready & ahead.i.ready):
                    m.d.comb += [one.valid.eq(1) for one in (unit.units, heads.i, ahead.i)]
                    m.d.sync += [left.eq(left - size), message.more.eq(1)]
                    with m.If(chunk_ends):
                        m.d.sync += [chunk.eq(chunk + 1), left.eq(flits_of(chunk + 1))]
                        m.d.sync += message.count.eq(message.count - 1)
                    with m.If(message_ends):
                        m.next = "message"
        m.d.comb += [
            unit.floats.p.data.eq(self.payload.p.data),
            unit.floats.p.last.eq(n_gone == ahead.o.p),
            unit.floats.valid.eq(self.payload.valid & ahead.o.valid),
            self.payload.ready.eq(unit.floats.ready & ahead.o.valid),
            taken.eq(self.payload.valid & self.payload.ready),
            ahead.o.ready.eq(taken & unit.floats.p.last),
        ]
        with m.If(taken):
            m.d.sync += n_gone.eq(Mux(unit.floats.p.last, 0, n_gone + 1))
        with_exit(fsm)
        m.d.comb += [
            self.unit_heads.valid.eq(heads.o.valid & unit.sizes.valid),
            self.unit_heads.p.eq(heads.o.p),
            self.unit_heads.p.bytes.eq(unit.sizes.p.bytes),
            heads.o.ready.eq(unit.sizes.valid & self.unit_heads.ready),
            unit.sizes.ready.eq(heads.o.valid & self.unit_heads.ready),
            self.units.valid.eq(unit.coded.valid),
            self.units.p.data.eq(unit.coded.p.data),
            self.units.p.last.eq(unit.coded.p.last),
            unit.coded.ready.eq(self.units.ready),
        ]
        return m


class FlitDecoder(wiring.Component):
    """Messages as they were before `FlitCoder`, from coded units: 4 floats per cycle.

    Heads pass for the first unit of a message only. 2 cycles per unit go without a flit out, and 8
    without one in, where these are more. A unit that is unsound vanishes, so that its message is
    too short for `Landing`.

    Members
    -------
    codec : In(Settings)
    flits : In(stream.Signature(Flit))
    o : Out(stream.Signature(Flit))
    unsound : Out(1)
        Since the reset.
    """

    def __init__(self) -> None:
        flits = stream.Signature(Flit)
        super().__init__(
            {"codec": In(Settings), "flits": In(flits), "o": Out(flits), "unsound": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.decompressor = unit = Decompressor(FLIT_FLOATS, max_floats=UNIT_FLOATS)
        m.submodules.heads = heads = FIFO(FlitHead, N_UNITS)
        flit, codec = self.flits.p, self.codec
        head = FlitHead(flit.data[: FlitHead.size])
        both = heads.i.ready & unit.units.ready
        m.d.comb += [
            heads.i.p.eq(head),
            unit.units.p.count.eq(head.flits * FLIT_FLOATS),
            unit.units.p.bytes.eq(head.bytes),
            *same(unit.units.p, codec, "exponent paper prescale"),
            unit.coded.p.data.eq(flit.data),
            unit.coded.p.last.eq(flit.last),
            heads.i.valid.eq(self.flits.valid & flit.head & both),
            unit.units.valid.eq(self.flits.valid & flit.head & both),
            unit.coded.valid.eq(self.flits.valid & ~flit.head),
            self.flits.ready.eq(Mux(flit.head, both, unit.coded.ready)),
        ]
        with m.FSM() as fsm:
            with m.State("head"):
                m.d.comb += [
                    self.o.p.data.eq(heads.o.p),
                    self.o.p.head.eq(1),
                    self.o.valid.eq(heads.o.valid & ~heads.o.p.more),
                ]
                with m.If(heads.o.valid & (heads.o.p.more | self.o.ready)):
                    m.next = "verdict"
            with m.State("verdict"):
                m.d.comb += unit.verdicts.ready.eq(1)
                with m.If(unit.verdicts.valid & unit.verdicts.p.ok):
                    m.next = "floats"
                with m.Elif(unit.verdicts.valid):
                    m.d.comb += heads.o.ready.eq(1)
                    m.d.sync += self.unsound.eq(1)
                    m.next = "head"
            with m.State("floats"):
                m.d.comb += [
                    self.o.valid.eq(unit.floats.valid),
                    self.o.p.data.eq(unit.floats.p.data),
                    self.o.p.last.eq(unit.floats.p.last & heads.o.p.ends),
                    unit.floats.ready.eq(self.o.ready),
                ]
                with m.If(unit.floats.valid & unit.floats.p.last & self.o.ready):
                    m.d.comb += heads.o.ready.eq(1)
                    m.next = "head"
        with_exit(fsm)
        return m
