"""What one round needs of an offload card: scheduler, transport, codec, memory engines; no ports.

Part of `gradnic.hdl.offload.job_core`; golden model: `gradnic.models.offload.card`.
"""

from types import SimpleNamespace

from amaranth.hdl import Const
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.offload import Drop, Subtype

from ..reduction.reduce import Adding
from ..stream.beats import Beat, UnitBeat
from ..transport.allowance_walk import LAST_WIDTH, SHARE_WIDTH
from ..transport.ledger import CLEAR_WIDTH
from ..transport.pace import Echo
from ..transport.records import BYTES_WIDTH, Arrival, PacketHead, PathMark
from .core import OffloadCore
from .job_records import LeavesSeen

_OUTSIDE = (
    "host_tx", "mac_tx", "mac_rx", "host_rx", "own", "pace", "floor", "neighbor", "crossed",
    "oversize", "overrun",
)  # fmt: skip


class RoundEngine(OffloadCore):
    """`OffloadCore` between its gate and its framer.

    Parameters and members as of `OffloadCore`, without those of ports, and:

    arrivals, values : In(stream.Signature(Arrival)), In(stream.Signature(UnitBeat))
        What a gate offers, coded payloads as floats. ``round.over`` is not looked at.
    heads, payload, replies : Out
        What a framer takes, once coded payloads are coded.
    echoed, echo, path_mark : Out(1), Out(Echo), Out(PathMark)
    n_clear : In(15)
        See `Receiver`.
    root_read, root_write : Out(ReadPort), Out(WritePort)
        Of terminal rows.
    table : In(range(n_tables))
    leaves : Out(LeavesSeen)
    adder : Out(Adding(n_bytes // 4))
        Where packets are summed.
    progress : Out(1)
        Something moved: a packet was taken, a row left, a run ended.
    share, last_elems, spent_valid, spent : In, In, Out, Out
        As of `Receiver`; with ``gives_up``, in place of ``allowance``.
    """

    roots = counts_share = shared = True

    def _members(self):
        members = {k: v for k, v in super()._members().items() if k not in _OUTSIDE}
        beat = stream.Signature(Beat(8 * self.n_bytes))
        if self.gives_up:
            del members["allowance"]
            members |= {
                "share": In(SHARE_WIDTH),
                "last_elems": In(LAST_WIDTH),
                "spent_valid": Out(1),
                "spent": Out(BYTES_WIDTH),
            }
        return members | {
            "arrivals": In(stream.Signature(Arrival)),
            "values": In(stream.Signature(UnitBeat(8 * self.n_bytes))),
            "heads": Out(stream.Signature(PacketHead)),
            "payload": Out(beat),
            "replies": Out(stream.Signature(PacketHead)),
            "echoed": Out(1),
            "echo": Out(Echo),
            "path_mark": Out(PathMark),
            "n_clear": In(CLEAR_WIDTH),
            "table": In(range(self.n_tables)),
            "leaves": Out(LeavesSeen),
            "adder": Out(Adding(self.n_bytes // 4)),
            "progress": Out(1),
        }

    def _front(self, m):
        return SimpleNamespace(
            heads=wiring.flipped(self.arrivals),
            values=wiring.flipped(self.values),
            dropped=Const(0, len(self.dropped)),  # the gate counts its own
        )

    def _n_clear(self):
        return self.n_clear

    def _transmit(self, m, maker, receiver, sender):
        wiring.connect(m, maker.heads, wiring.flipped(self.heads))
        wiring.connect(m, maker.payload, wiring.flipped(self.payload))
        wiring.connect(m, receiver.replies, wiring.flipped(self.replies))
        ledger, scheduler = receiver.ledger, self.scheduler
        issues, controls = scheduler.issues, receiver.controls
        stop = controls.valid & controls.ready & (controls.p.subtype == Subtype.STOP)
        m.d.comb += [
            self.echoed.eq(sender.echoed),
            self.echo.eq(sender.echo),
            self.path_mark.eq(receiver.path_mark),
            self.leaves.valid.eq(ledger.closes & ledger.down & ~ledger.given_up),
            self.leaves.leaves.eq(ledger.leaves),
        ]
        if self.gives_up:
            m.d.comb += [self.spent_valid.eq(receiver.spent_valid), self.spent.eq(receiver.spent)]
        if self.n_tables > 1:
            m.d.comb += [scheduler.table.eq(self.table), receiver.table.eq(self.table)]
        m.d.sync += self.progress.eq(
            receiver.dropped[Drop.NONE] | (issues.valid & issues.ready) | stop
        )
