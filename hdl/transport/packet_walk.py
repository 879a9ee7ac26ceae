"""Steps from packet to packet of a tensor: chunk, place in it, and elements of each.

Golden model: `gradnic.models.transport.packet_walk`.
"""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.names import signals
from .records import CHUNK_WIDTH, ELEMS_WIDTH, NUMBER_WIDTH, OFFSET_WIDTH, UNIT, Geometry

LATENCY = 3
Place = data.StructLayout(
    {
        "chunk": CHUNK_WIDTH,
        "within": NUMBER_WIDTH,
        "number": NUMBER_WIDTH,
        "offset": OFFSET_WIDTH,
        "start": OFFSET_WIDTH,
    }
)
"""A packet: its chunk and number within it, number in the tensor, first element / 16, and that of
its chunk."""


class PacketWalk(wiring.Component):
    """What comes after a packet; the last packet of a chunk may be shorter.

    Right once ``place`` has stood for `LATENCY` cycles, as it must until then.

    Members
    -------
    geometry : In(Geometry)
    place : In(Place)
    following : Out(Place)
        The next packet of the tensor.
    elems : Out(12)
        Of this packet.
    ends_chunk, ends_tensor : Out(1)
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "geometry": In(Geometry),
                "place": In(Place),
                "following": Out(Place),
                "elems": Out(ELEMS_WIDTH),
                "ends_chunk": Out(1),
                "ends_tensor": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cut, place, after = self.geometry, self.place, self.following
        # constants of a round
        final, last_final = signals("final last_final", NUMBER_WIDTH)
        m.d.sync += [final.eq(cut.per_chunk - 1), last_final.eq(cut.last_per_chunk - 1)]
        is_last, ends = signals("is_last ends")
        m.d.comb += [ends.eq(place.within == Mux(is_last, last_final, final))]
        m.d.sync += [
            is_last.eq(place.chunk == cut.last_chunk),
            self.ends_chunk.eq(ends),
            self.ends_tensor.eq(ends & is_last),
            self.elems.eq(
                Mux(self.ends_chunk, Mux(is_last, cut.last_tail, cut.tail), cut.packet * UNIT)
            ),
        ]
        m.d.comb += after.number.eq(place.number + 1)
        with m.If(self.ends_chunk):
            m.d.comb += [
                after.chunk.eq(place.chunk + 1),
                after.within.eq(0),
                after.offset.eq(place.start + cut.chunk),
                after.start.eq(place.start + cut.chunk),
            ]
        with m.Else():
            m.d.comb += [
                after.chunk.eq(place.chunk),
                after.within.eq(place.within + 1),
                after.offset.eq(place.offset + cut.packet),
                after.start.eq(place.start),
            ]
        return m
