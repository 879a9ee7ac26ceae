"""Keeps what a memory port has promised while the circuit that uses it is reset.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.names import signals
from ..stream.delays import voted
from .axi4 import ReadPort, WritePort
from .channel import Channel

MOST = 127  # bursts of a port under way: those of four managers, and of users that are gone
_FLAGS = {"anew": In(1), "closed": In(1), "open": Out(1), "still": Out(1), "waits": Out(1)}


class _Keeper(wiring.Component):
    """What both directions have in common. Latency 0, full rate.

    What is owed to memory is held three times and voted, so that one register that changes by
    itself breaks no burst.

    Parameters
    ----------
    n_bytes, address_width : int
        See `ReadPort`.

    Members
    -------
    user, port : In(port), Out(port)
    anew : In(1)
        The user is reset in this cycle. What it has begun ends here: what comes for it goes
        nowhere, and beats that it owes are sent without a byte enabled.
    closed : In(1)
        Nothing new is offered to memory; what is being offered stays.
    open, still, waits : Out(1)
        Bursts are under way; nothing is offered that is not taken, but for what is kept; it is
        memory's turn.
    """

    def __init__(self, signature, more=()):
        super().__init__({"user": In(signature), "port": Out(signature), **_FLAGS, **dict(more)})

    def _joined(self, m, prefix, passes, *, kept=0, address=None):
        """The address channel: (an address begins to be offered, one is taken). kept : `address` is
        offered, whose user is gone.
        """
        user, port = Channel(self.user, prefix), Channel(self.port, prefix)
        held = Signal(name="address_held")
        begins = Signal()
        m.d.comb += [
            *port.put(user, *port.fields),
            begins.eq(user.valid & ~held & ~self.closed & passes),
            port.valid.eq(kept | (user.valid & (held | begins))),
            user.ready.eq(port.ready & (held | begins) & ~kept),
        ]
        if address is not None:
            with m.If(kept):
                m.d.comb += port.put(address, *port.fields)
        m.d.sync += held.eq(port.valid & ~port.ready)
        return begins, port.valid & port.ready

    def _answer(self, m, prefix, stale):
        """The channel of answers; those that nobody waits for go nowhere."""
        user, port = Channel(self.user, prefix), Channel(self.port, prefix)
        m.d.comb += [
            *user.put(port, *port.fields),
            user.valid.eq(port.valid & ~stale),
            port.ready.eq(user.ready | stale),
        ]

    def _under_way(self, m, begins, ends):
        """(Bursts under way; whether the oldest is of a user that is gone)."""
        after, left = signals("after left", range(MOST + 1))
        count = voted(m, after, "under_way")
        stale = Signal()  # left != 0, or just was, where nothing can come: one gate for what comes
        m.d.comb += [after.eq(count + begins - ends), self.open.eq(count != 0)]
        m.d.sync += [
            left.eq(Mux(self.anew, after, left - (ends & (left != 0)))),
            stale.eq(Mux(self.anew, begins | (count != 0), (left > 1) | ((left == 1) & ~ends))),
        ]
        return count, stale


class ReadKeeper(_Keeper):
    """For a `ReadPort`."""

    def __init__(self, n_bytes: int, address_width: int = 64) -> None:
        super().__init__(ReadPort(n_bytes, address_width))

    def elaborate(self, platform):
        m = Module()
        port = self.port
        full, ends = signals("full ends")
        _, taken = self._joined(m, "ar", ~full)
        count, stale = self._under_way(m, taken, ends)
        self._answer(m, "r", stale)
        m.d.comb += [
            full.eq(count == MOST),
            ends.eq(port.rvalid & port.rready & port.rlast & (count != 0)),
            self.still.eq(~port.arvalid | port.arready),
            self.waits.eq((port.arvalid & ~port.arready) | ((count != 0) & ~port.rvalid)),
        ]
        return m


class WriteKeeper(_Keeper):
    """For a `WritePort`. An address waits until at most one before it has data to come. One that
    memory has not taken when the user is reset stays: memory may take its data first.

    owes : Out(1)
        A register. Beats of a user that is gone are being sent: ``user.wdata`` must stay as it is
        in the first of these cycles, as AXI wants of what is offered.
    """

    def __init__(self, n_bytes: int, address_width: int = 64) -> None:
        super().__init__(WritePort(n_bytes, address_width), {"owes": Out(1)})

    def elaborate(self, platform):
        m = Module()
        user, port = self.user, self.port
        shape = data.StructLayout({"now": 1, "next": 1, "left": 8, "left_next": 8, "address": 1})
        after = Signal(shape)  # beats of a burst and of one behind it, less one; the kept address
        due = data.View(shape, voted(m, after.as_value(), "due"))
        full, ends, owed = signals("full ends owed")
        addresses = Channel(user, "aw")
        address = Signal(addresses.layout(*addresses.fields), reset_less=True)
        passes = ~(full | due.next | owed)
        begins, _ = self._joined(m, "aw", passes, kept=due.address, address=address)
        with m.If(~due.address):
            m.d.sync += addresses.take(address, *addresses.fields)
        count, stale = self._under_way(m, begins, ends)
        self._answer(m, "b", stale)
        held = Signal(name="data_held")
        given, over = signals("given over")
        m.d.comb += [
            full.eq(count == MOST),
            self.owes.eq(owed),
            port.wdata.eq(user.wdata),
            port.wstrb.eq(Mux(owed, 0, user.wstrb)),
            port.wlast.eq(due.left == 0),
            port.wvalid.eq(due.now & (owed | (user.wvalid & (held | ~self.closed)))),
            user.wready.eq(port.wready & due.now & ~owed & (held | ~self.closed)),
            given.eq(port.wvalid & port.wready),
            over.eq(given & (due.left == 0)),
            ends.eq(port.bvalid & port.bready & (count != 0)),
            self.still.eq(~port.wvalid | port.wready),
            self.waits.eq(  # who owes data, and offers none, may be what the address waits for
                (port.awvalid & ~port.awready & ~(due.now & ~port.wvalid))
                | (port.wvalid & ~port.wready)
                | ((count != 0) & ~due.now & ~port.bvalid)
            ),
            after.eq(due),
            after.address.eq((due.address | self.anew) & port.awvalid & ~port.awready),
        ]
        with m.If(over):
            m.d.comb += [after.now.eq(due.next), after.next.eq(0), after.left.eq(due.left_next)]
        with m.Elif(given):
            m.d.comb += after.left.eq(due.left - 1)
        with m.If(begins):
            with m.If(due.now & ~over):
                m.d.comb += [after.next.eq(1), after.left_next.eq(user.awlen)]
            with m.Else():
                m.d.comb += [after.now.eq(1), after.left.eq(user.awlen)]
        m.d.sync += [
            held.eq(port.wvalid & ~port.wready),
            owed.eq((owed | self.anew) & after.now),
        ]
        return m
