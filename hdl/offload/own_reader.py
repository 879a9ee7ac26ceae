"""What a card reads of its own: what leaves through one memory port, what stays through another.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..axi.axi4 import ReadPort
from ..axi.bursts import Range, Region
from ..axi.dma import ReadEngine
from ..stream.beats import Beat
from ..stream.fifo import FIFO

N_RANGES = 16  # that were asked for and have beats to come
GRADIENT, RESULT, ROOT = range(3)  # regions: the last is the gradient again, for terminal rows


class OwnReader(wiring.Component):
    """Ranges in order, as of one `ReadEngine`; 1 beat per cycle, and as much through each port.

    What leaves is as fast as the lines are, whichever contexts it is of; sums of terminal rows,
    which stay, must not take its turn.

    Parameters
    ----------
    n_bytes, address_width : int
        As of `ReadEngine`.

    Members
    -------
    regions : In(ArrayLayout(Region, 2))
        Gradient and result.
    ranges : In(stream.Signature(Range(3)))
        Of `GRADIENT`, `RESULT` or `ROOT`.
    beats : Out(stream.Signature(Beat(8 * n_bytes)))
    refused, failed : Out(1)
        As of `ReadEngine`; of two in one cycle, one counts.
    port, root_port : Out(ReadPort(n_bytes, address_width))
    """

    def __init__(self, n_bytes: int, address_width: int = 64) -> None:
        self.leaving = ReadEngine(n_bytes, address_width, n_regions=2)
        self.staying = ReadEngine(n_bytes, address_width)
        super().__init__(
            {
                "regions": In(data.ArrayLayout(Region(n_bytes, address_width), 2)),
                "ranges": In(stream.Signature(Range(3))),
                "beats": Out(stream.Signature(Beat(8 * n_bytes))),
                "refused": Out(1),
                "failed": Out(1),
                "port": Out(ReadPort(n_bytes, address_width)),
                "root_port": Out(ReadPort(n_bytes, address_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.leaving, m.submodules.staying = leaving, staying = self.leaving, self.staying
        m.submodules.order = order = FIFO(1, N_RANGES)
        asked, stays = self.ranges.p, order.o.payload
        is_root = Signal()
        m.d.comb += [
            is_root.eq(asked.region == ROOT),
            leaving.regions.eq(self.regions),
            leaving.ranges.p.region.eq(asked.region),
            staying.regions[0].eq(self.regions[GRADIENT]),
            self.ranges.ready.eq(
                order.i.ready & Mux(is_root, staying.ranges.ready, leaving.ranges.ready)
            ),
            order.i.valid.eq(self.ranges.valid & self.ranges.ready & asked.n_beats.any()),
            order.i.payload.eq(is_root),
            self.beats.p.eq(Mux(stays, staying.beats.p, leaving.beats.p)),
            self.beats.valid.eq(
                order.o.valid & Mux(stays, staying.beats.valid, leaving.beats.valid)
            ),
            order.o.ready.eq(self.beats.valid & self.beats.ready & self.beats.p.last),
            self.refused.eq(leaving.refused | staying.refused),
            self.failed.eq(leaving.failed | staying.failed),
        ]
        for engine, port, root in ((leaving, self.port, 0), (staying, self.root_port, 1)):
            wiring.connect(m, engine.port, wiring.flipped(port))
            m.d.comb += [
                engine.ranges.valid.eq(self.ranges.valid & order.i.ready & (is_root == root)),
                engine.ranges.p.offset.eq(asked.offset),
                engine.ranges.p.n_beats.eq(asked.n_beats),
                engine.beats.ready.eq(order.o.valid & (stays == root) & self.beats.ready),
            ]
        return m
