"""Heads of the packets that a node sends: what each says, and how it leaves.

`maker` is the `gradnic.hdl.offload.packet_maker.PacketMaker`, of which they are a part. Golden
model: `gradnic.models.offload.packet_head`.
"""

from amaranth.hdl import Cat, Mux, Signal

from gradnic.interface.formats import Op
from gradnic.interface.offload import Subtype

from ..reduction.codec import index_octets, octets_of
from ..stream.delays import copied
from ..transport.records import PacketHead


def say(m, maker, packet, heads, leaves, check, leaf):
    """Give `heads` the head of a packet, a cycle after what it says is known.

    leaves, check : of the sums so far. leaf : the packet has indices, as its own node made them.
    """
    codec = maker.round.codec
    head = Signal(PacketHead)
    said = Signal(PacketHead, reset_less=True)
    m.d.sync += said.eq(head)
    m.d.comb += [
        heads.p.head.eq(said),
        *(head[name].eq(packet[name]) for name in ("ph", "neighbor", "elems", "retx")),
        head.slot.eq(packet.flow),
        heads.p.number.eq(packet.number),
    ]
    with m.If(packet.probe):
        m.d.comb += [
            head.op.eq(Op.CONTROL),
            head.p0.eq(Subtype.PROBE),
            head.seq.eq(packet.number),
            head.arg.eq(packet.stamp),
        ]
    with m.Else():
        m.d.comb += [
            head.last.eq(packet.last),
            head.seq.eq(packet.offset),
            head.arg.eq(Cat(check, leaves)),
            head.p0.eq(Mux(leaves > 255, 255, leaves)),
            head.length.eq(packet.elems << 2),
        ]
        with m.If(codec.coded):
            m.d.comb += [
                head.op.eq(Op.INC),
                head.p0.eq(Cat(codec.exponent, codec.paper)),
                head.p1.eq(codec.prescale),
            ]
        with m.Elif(leaf):
            m.d.comb += [
                head.op.eq(Op.THC_IDX),
                head.p0.eq(codec.index_p0),
                head.p1.eq(codec.index_p1),
                head.length.eq(index_octets(codec, packet.elems, maker.bits)),
            ]
        with m.Elif(codec.thc):
            m.d.comb += [
                head.op.eq(Op.THC_SUM),
                head.p1.eq(codec.code << 6),
                head.length.eq(octets_of(codec, packet.elems)),
            ]
        with m.Else():
            m.d.comb += head.op.eq(Mux(codec.norm, Op.NORM, Op.RAW))
            if maker.bf16:
                with m.If(codec.bf16):
                    m.d.comb += [head.op.eq(Op.RAW16), head.length.eq(packet.elems << 1)]


def leave(m, maker, heads, tag, rows):
    """A head leaves with its tag, and the size of what was coded, from a register.

    rows : of packets of terminal rows whose sums have gone: those before this head must have.
    """
    known = Signal()
    sized = Signal(init=1)
    busy = Signal()
    is_data = heads.p.head.op != Op.CONTROL
    behind = (rows - heads.p.rows)[: len(rows)]
    head = Signal(PacketHead, reset_less=True)
    m.d.comb += [
        known.eq(heads.valid & tag.valid & sized & ~busy & ~(is_data & behind[-1])),
        heads.ready.eq(known),
        tag.ready.eq(known),
        maker.heads.valid.eq(busy),
        maker.heads.p.eq(head),
    ]
    m.d.sync += [
        maker.weighed.valid.eq(known & is_data & ~heads.p.head.retx),
        maker.weighed.number.eq(heads.p.number),
        maker.weighed.important.eq(tag.p.important),
    ]
    with m.If(~busy):
        m.d.sync += [
            busy.eq(known),
            head.eq(heads.p.head),
            head.imp.eq(tag.p.important),
            head.lc.eq(tag.p.queue),
            head.tos.eq(tag.p.tos),
            *(head[name].eq(maker.round[name]) for name in ("gen", "tensor")),
        ]
    with m.Elif(maker.heads.ready):
        m.d.sync += busy.eq(0)
    if maker.compressor:
        sizes = maker.compressor.sizes
        is_unit = Signal()
        (coded,) = copied(m, maker.round.codec.coded, 1, name="sized")
        m.d.comb += [
            is_unit.eq(coded & is_data),
            sized.eq(sizes.valid | ~is_unit),
            sizes.ready.eq(known & is_unit),
        ]
        with m.If(~busy & is_unit):
            m.d.sync += head.length.eq(sizes.p.bytes)
