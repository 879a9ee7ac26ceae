"""All ports of an offload card on the way in: frames of neighbors, one after the other.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..frame.intake import Names, Speaker
from ..frame.round_robin import RoundRobin
from ..primitive.setting import setting
from ..stream.beats import FrameBeat
from ..transport.records import N_NEIGHBORS, NeighborWrite, Own
from .port_entry import PortEntry


class WayIn(wiring.Component):
    """A `PortEntry` for each port, and turns between them: 1 beat a cycle in all.

    Parameters
    ----------
    n_bytes, n_ports, port_bytes, meta_width : int
        As of `gradnic.hdl.offload.core.OffloadCore`; ``rx_meta_width``.

    Members
    -------
    mac_rx, host_rx : In(frames).array(n_ports), Out(frames).array(n_ports)
    own, job, neighbor : In(Own), In(8), In(NeighborWrite)
        Whose frames are ours.
    o : Out(frames of neighbors, whole; ``meta`` is the port)
    crossed, oversize, overrun : Out(n_ports)
    """

    def __init__(self, n_bytes: int, n_ports: int, port_bytes: int, *, meta_width: int = 0) -> None:
        self.n_bytes, self.n_ports, self.port_bytes = n_bytes, n_ports, port_bytes
        self.meta_width = meta_width
        frames = stream.Signature(FrameBeat(port_bytes, meta_width=meta_width))
        ours = FrameBeat(n_bytes, meta_width=max(1, ceil_log2(n_ports)))
        super().__init__(
            {
                "mac_rx": In(frames).array(n_ports),
                "host_rx": Out(frames).array(n_ports),
                "own": In(Own),
                "job": In(8),
                "neighbor": In(NeighborWrite(n_ports)),
                "o": Out(stream.Signature(ours)),
                "crossed": Out(n_ports),
                "oversize": Out(n_ports),
                "overrun": Out(n_ports),
            }
        )

    def elaborate(self, platform):
        m = Module()
        names = Signal(Names(1))
        entry = self.neighbor
        m.d.comb += [
            names.port.eq(self.own.udp_port),
            names.jobs[0].number.eq(self.job),
            names.jobs[0].enabled.eq(1),
        ]
        senders = setting(m, data.ArrayLayout(Speaker, N_NEIGHBORS), "senders")
        for k in range(N_NEIGHBORS):
            with m.If(entry.enable & (entry.index == k)):
                m.d.sync += [
                    senders[k].ip.eq(entry.neighbor.ip),
                    senders[k].enabled.eq(entry.neighbor.valid),
                ]
        entries = []
        for k in range(self.n_ports):
            entry = PortEntry(self.n_bytes, self.port_bytes, meta_width=self.meta_width)
            m.submodules[f"entry{k}"] = entry
            entries.append(entry)
            wiring.connect(m, wiring.flipped(self.mac_rx[k]), entry.mac)
            wiring.connect(m, entry.host, wiring.flipped(self.host_rx[k]))
            m.d.comb += [
                entry.names.eq(names),
                entry.senders.eq(senders),
                self.crossed[k].eq(entry.crossed),
                self.oversize[k].eq(entry.oversize),
                self.overrun[k].eq(entry.overrun),
            ]
        if self.n_ports > 1:
            m.submodules.merge = merge = RoundRobin(self.n_bytes, self.n_ports)
            for k, entry in enumerate(entries):
                wiring.connect(m, entry.ours, merge.i[k])
            wiring.connect(m, merge.o, wiring.flipped(self.o))
            return m
        ours = entries[0].ours
        m.d.comb += [
            *(self.o.p[name].eq(ours.p[name]) for name in ("data", "keep", "last", "bad")),
            self.o.valid.eq(ours.valid),
            ours.ready.eq(self.o.ready),
        ]
        return m
