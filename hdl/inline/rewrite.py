"""New heads for frames whose payload changed: lengths, checksum, ToS, and the gradnic fields.

Twin of `gradnic.models.inline.rewrite`; a part of the card.
"""

import itertools

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from gradnic.interface import inline
from gradnic.interface.formats import GRADNIC, HEAD_BYTES, IPV4, UDP, Op

from ..stream.beats import Beat
from ..stream.slice import Slice

VERSION_IHL = 0x45


def _widths(max_floats):
    """Bits of a count of floats, and of the bytes of the longest frame that gets a new head."""
    longest = HEAD_BYTES + 4 * max_floats + 2 * -(-max_floats // 8)
    return bits_for(max_floats), bits_for(longest)


def _settings(count):
    """How a frame is coded, and its new mark; `count` has the bits of the count of floats."""
    return {
        "native": 1,
        "count": count,
        "exponent": 7,
        "paper": 1,
        "prescale": signed(8),
        "tos": 8,
    }


def NewHead(max_floats):
    """What a new head is made of.

    native, count, exponent, paper, prescale, tos, base : as in `gradnic.hdl.frame.classes.Unit`.
    n_payload : bytes behind the head that leaves.
    """
    count, length = _widths(max_floats)
    return data.StructLayout(_settings(count) | {"base": 19, "n_payload": length})


def Patch(max_floats):
    """Values that go into the head; all zero and `rewrite` = 0 for a frame that stays as it is.

    n_frame : bytes of the frame before padding.
    """
    count, length = _widths(max_floats)
    return data.StructLayout(
        {
            "rewrite": 1,
            **_settings(count),
            "total": length,
            "udp": length,
            "checksum": 16,
            "n_frame": length,
        }
    )


def head_bytes(native, *, receive):
    """Bytes of the head that leaves: behind it comes the payload."""
    if native:
        return HEAD_BYTES
    return inline.PAPER_START if receive else inline.PAPER_CODED_START


class HeadMath(wiring.Component):
    """Lengths and IPv4 checksum of a rewritten frame: 4 cycles, 1 frame per cycle.

    Parameters
    ----------
    receive : bool
        Heads of restored frames instead of coded ones.
    rest : shape-like
        What travels beside a head.
    max_floats : int
        Largest packet.

    Members
    -------
    i : In(stream.Signature({"rewrite": 1, "head": NewHead(max_floats), "rest": rest}))
        ``head`` means nothing unless ``rewrite``.
    o : Out(stream.Signature(StructLayout({"patch": Patch(max_floats), "rest": rest})))
    """

    def __init__(
        self, rest: ShapeLike, *, receive: bool, max_floats: int = inline.MAX_FLOATS
    ) -> None:
        self.receive = receive
        self.rest = rest
        self.input = data.StructLayout({"rewrite": 1, "head": NewHead(max_floats), "rest": rest})
        self.output = data.StructLayout({"patch": Patch(max_floats), "rest": rest})
        super().__init__(
            {"i": In(stream.Signature(self.input)), "o": Out(stream.Signature(self.output))}
        )

    def elaborate(self, platform):
        m = Module()
        stages = []
        for k, summed in enumerate((20, 21, 17, 16)):
            shape = data.StructLayout({"sum": summed, "o": self.output})
            m.submodules[f"stage{k}"] = stage = Slice(shape)
            stages.append(stage)
        i, head = self.i, self.i.p.head
        first, second, third, fourth = (stage.i.p for stage in stages)
        long, short = (head_bytes(native, receive=self.receive) for native in (True, False))

        def size(origin):
            return head.n_payload + Mux(head.native, long - origin, short - origin)

        m.d.comb += [
            stages[0].i.valid.eq(i.valid),
            i.ready.eq(stages[0].i.ready),
            first.o.rest.eq(i.p.rest),
            first.o.patch.rewrite.eq(i.p.rewrite),
            *(
                first.o.patch[name].eq(head[name])
                for name in ("native", "count", "exponent", "paper", "prescale", "tos")
            ),
            first.o.patch.total.eq(size(IPV4.start)),
            first.o.patch.udp.eq(size(UDP.start)),
            first.o.patch.n_frame.eq(size(0)),
            first.sum.eq(head.base + Cat(head.tos, Const(VERSION_IHL, 8))),
            second.o.eq(stages[0].o.p.o),
            second.sum.eq(stages[0].o.p.sum + stages[0].o.p.o.patch.total),
            third.o.eq(stages[1].o.p.o),
            third.sum.eq(stages[1].o.p.sum[:16] + stages[1].o.p.sum[16:]),
            fourth.o.eq(stages[2].o.p.o),
            fourth.sum.eq(stages[2].o.p.sum[:16] + stages[2].o.p.sum[16]),
            self.o.p.eq(stages[3].o.p.o),
            self.o.p.patch.checksum.eq(~stages[3].o.p.sum),
            self.o.valid.eq(stages[3].o.valid),
            stages[3].o.ready.eq(self.o.ready),
        ]
        for before, after in itertools.pairwise(stages):
            m.d.comb += [after.i.valid.eq(before.o.valid), before.o.ready.eq(after.i.ready)]
        return m


class HeadPatcher(wiring.Component):
    """Writes the new values over the first beats of a frame: 1 cycle, 1 beat per cycle.

    Parameters
    ----------
    n_bytes : int
        Bytes per beat.
    receive : bool
        Frames are being restored, not coded.
    max_floats : int
        Largest packet.

    Members
    -------
    patches : In(stream.Signature(Patch(max_floats)))
        One for each run of beats that ends with ``last``.
    i, o : In, Out(stream.Signature(Beat(8 * n_bytes)))
    """

    def __init__(self, n_bytes: int, *, receive: bool, max_floats: int = inline.MAX_FLOATS) -> None:
        self.n_bytes = n_bytes
        self.receive = receive
        self.slice = Slice(Beat(8 * n_bytes))
        beats = stream.Signature(Beat(8 * n_bytes))
        super().__init__(
            {
                "patches": In(stream.Signature(Patch(max_floats))),
                "i": In(beats),
                "o": Out(beats),
            }
        )

    def _octets(self, patch):
        """New bytes of the head: {byte of the frame: (value, where native, where paper)}."""
        octets = {IPV4.tos.byte: (patch.tos, True, True)}
        for field, value in (
            (IPV4.total_length, patch.total),
            (IPV4.checksum, patch.checksum),
            (UDP.length, patch.udp),
            (UDP.checksum, Const(0, 16)),
        ):
            octets[field.byte] = (value[8:16], True, True)
            octets[field.byte + 1] = (value[0:8], True, True)
        if not self.receive:
            octets[inline.PAPER_START] = (patch.count[8:16], False, True)
            octets[inline.PAPER_START + 1] = (patch.count[0:8], False, True)
            p0, p1 = Cat(patch.exponent, patch.paper), patch.prescale
        else:
            p0, p1 = Const(1, 8), Const(0, 8)  # one leaf
        octets[GRADNIC.p0.byte] = (p0, True, False)
        octets[GRADNIC.p1.byte] = (p1, True, False)
        return octets

    def elaborate(self, platform):
        m = Module()
        n = self.n_bytes
        m.submodules.slice = slice = self.slice
        wiring.connect(m, slice.o, wiring.flipped(self.o))
        patch = self.patches.p
        n_beats = -(-HEAD_BYTES // n)
        index = Signal(range(n_beats + 1))
        m.d.comb += [
            slice.i.p.eq(self.i.p),
            slice.i.valid.eq(self.i.valid & self.patches.valid),
            self.i.ready.eq(slice.i.ready & self.patches.valid),
            self.patches.ready.eq(self.i.valid & self.i.p.last & slice.i.ready),
        ]
        with m.If(self.i.valid & self.i.ready):
            with m.If(self.i.p.last):
                m.d.sync += index.eq(0)
            with m.Elif(index != n_beats):
                m.d.sync += index.eq(index + 1)
        for byte, (value, where_native, where_paper) in self._octets(patch).items():
            applies = Const(1)
            if not (where_native and where_paper):
                applies = patch.native == where_native
            with m.If(patch.rewrite & applies & (index == byte // n)):
                m.d.comb += slice.i.p.data[8 * (byte % n) : 8 * (byte % n) + 8].eq(value)
        op = Op.RAW if self.receive else Op.INC
        low = 8 * (GRADNIC.op.byte % n)
        with m.If(patch.rewrite & patch.native & (index == GRADNIC.op.byte // n)):
            m.d.comb += slice.i.p.data[low : low + GRADNIC.op.width].eq(int(op))
        return m
