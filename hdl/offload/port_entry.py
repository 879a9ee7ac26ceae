"""Way into an offload card at one port: frames of neighbors apart from the host's.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import HEAD_BYTES

from ..frame.head_beat import HeadApart
from ..frame.intake import Intake, Names, Speaker
from ..primitive.same import same
from ..stream.beats import FrameBeat
from ..stream.width import WidthConverter
from ..transport.records import N_NEIGHBORS


def widened(m, part, comes, goes):
    """Both directions of a part's port, ``port_bytes`` a beat, as its datapath has them: converters
    are added to `m` unless they are as wide.
    """
    comes, goes = wiring.flipped(comes), wiring.flipped(goes)
    widths = part.port_bytes, part.n_bytes
    if widths[0] == widths[1]:
        return comes, goes
    narrow, wide = (FrameBeat(n, meta_width=part.meta_width) for n in widths)
    m.submodules.widen = widen = WidthConverter(narrow, wide)
    m.submodules.narrow = to_narrow = WidthConverter(wide, narrow)
    wiring.connect(m, comes, widen.i)
    wiring.connect(m, to_narrow.o, goes)
    return widen.o, to_narrow.i


class PortEntry(wiring.Component):
    """An `Intake` behind a width converter where the port is narrower than the datapath.

    Parameters
    ----------
    n_bytes, port_bytes : int
        Bytes of a beat inside, and at the port.
    meta_width : int
        Side band, which frames of others keep.

    Members
    -------
    mac, host : In, Out(stream.Signature(FrameBeat(port_bytes, meta_width=meta_width)))
    names, senders, crossed, oversize, overrun
        As of `Intake`, of one job.
    ours : Out(stream.Signature(FrameBeat(n_bytes)))
        Payload begins with a beat.
    """

    def __init__(self, n_bytes: int, port_bytes: int, *, meta_width: int = 0) -> None:
        self.n_bytes, self.port_bytes, self.meta_width = n_bytes, port_bytes, meta_width
        frames = stream.Signature(FrameBeat(port_bytes, meta_width=meta_width))
        super().__init__(
            {
                "mac": In(frames),
                "host": Out(frames),
                "names": In(Names(1)),
                "senders": In(data.ArrayLayout(Speaker, N_NEIGHBORS)),
                "ours": Out(stream.Signature(FrameBeat(n_bytes))),
                "crossed": Out(1),
                "oversize": Out(1),
                "overrun": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.intake = intake = Intake(
            self.n_bytes, 1, n_senders=N_NEIGHBORS, meta_width=self.meta_width
        )
        mac, host = widened(m, self, self.mac, self.host)
        wiring.connect(m, mac, intake.i)
        wiring.connect(m, intake.foreign, host)
        ours = intake.ours
        if self.n_bytes > HEAD_BYTES:
            m.submodules.apart = apart = HeadApart(self.n_bytes)
            wiring.connect(m, ours, apart.i)
            ours = apart.o
        wiring.connect(m, ours, wiring.flipped(self.ours))
        m.d.comb += [
            intake.names.eq(self.names),
            intake.senders[0].eq(self.senders),
            *same(self, intake, "crossed oversize overrun"),
        ]
        return m
