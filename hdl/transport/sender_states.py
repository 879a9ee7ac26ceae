"""States of the sender's walk over its runs, by what it does with one.

Part of `gradnic.hdl.transport.sender`: `s` is the sender, `w` what it works on.
"""

from itertools import pairwise

from amaranth.hdl import Cat
from amaranth.lib import enum

from ..primitive.names import signals
from .packet_walk import LATENCY


class State(enum.Enum, shape=2):
    """Of a run that is kept."""

    FREE = 0
    SENDING = 1  # its mask says what
    WAITING = 2  # for an answer to its PROBE


def become(m, s, w, new):
    """The run that is looked at changes its state."""
    for k, one in enumerate(s.states):
        with m.If(w.here[k]):
            m.d.sync += one.eq(new)


def look(m, s, w):
    """Reads a run in 4 cycles; is anything of it due?"""
    for now, then in pairwise(("LOOK", "READ", "AGE", "DECIDE")):
        with m.State(now):
            m.next = then
    with m.State("DECIDE"):
        run = s.run_reads[0].data
        m.d.sync += [
            w.run.eq(run),
            w.place.eq(run.place),
            w.left.eq(run.n_less_1),
            w.mask.eq(s.mask_read.data),
            w.stood.eq(0),
            w.selects.eq(w.packet.retx),
            w.left_some.eq(0),
            w.asks_anew.eq(w.state == State.SENDING),
        ]
        m.next = "LOOK"
        with m.If(w.state == State.SENDING):
            m.next = "SEND"
        with m.Elif((w.state == State.WAITING) & w.late):
            m.next = "PROBE"
        with m.Else():
            m.d.sync += w.at.eq(w.after)


def send(m, s, w):
    """The packets of the run's mask, one after the other."""
    with m.State("SEND"):
        stands, sends, waits, ends = signals("stands sends waits ends")
        later = w.selects & ~w.importance.read_data
        m.d.comb += w.queue.i.valid.eq(sends & stands & w.room)
        m.d.sync += [  # of the place that stands
            ends.eq(w.left == 0),  # stands as long as the place
            waits.eq(w.mask[0] & later),
            sends.eq(w.mask[0] & ~later),
        ]
        with m.If(~stands):
            m.d.sync += [w.stood.eq(w.stood + 1), stands.eq(w.stood == LATENCY - 1)]
        with m.Elif(w.room | ~sends):
            m.d.sync += [
                w.stood.eq(0),
                stands.eq(0),
                w.mask.eq(w.mask >> 1),
                w.rest.eq(Cat(w.rest[1:], waits)),
                w.left_some.eq(w.left_some | waits),
                w.place.eq(w.walk.following),
                w.left.eq(w.left - 1),
                s.sent.eq(sends & ~w.run.terminal),
                s.retransmitted.eq(sends & w.packet.retx),
            ]
            with m.If(ends):
                m.next = "PROBE"
                with m.If(w.left_some | waits):
                    m.d.sync += w.left.eq(~w.run.n_less_1)
                    m.next = "TURN"
                with m.If(w.run.terminal):
                    become(m, s, w, State.FREE)
                    m.d.sync += w.at.eq(w.after)
                    m.next = "LOOK"


def turn(m, w):
    """What this turn has left: the rest moves down to where its packets stand in the mask."""
    with m.State("TURN"):
        m.d.sync += [w.rest.eq(w.rest >> 1), w.left.eq(w.left - 1)]
        with m.If(w.left == 0):
            m.d.sync += [
                w.mask.eq(w.rest),
                w.place.eq(w.run.place),
                w.left.eq(w.run.n_less_1),
                w.selects.eq(0),
                w.left_some.eq(0),
            ]
            m.next = "SEND"


def probe(m, s, w):
    """The run's PROBE, at once or again."""
    packet, queue = w.packet, w.queue
    with m.State("PROBE"):
        m.d.comb += [
            queue.i.valid.eq(1),
            packet.probe.eq(1),
            packet.retx.eq(~(w.asks_anew | w.hurries)),
            packet.number.eq(w.run.place.number),
            packet.elems.eq(w.run.n_less_1 + 1),
            s.stamp_write.en.eq(queue.i.ready),
            s.asked_write.en.eq(queue.i.ready & (w.asks_anew | w.renews)),
        ]
        with m.If(queue.i.ready):
            become(m, s, w, State.WAITING)
            m.d.sync += [
                w.at.eq(w.after),
                s.probes.eq(1),
                *(one.bit_select(w.at, 1).eq(0) for one in (s.refused, s.aged)),
            ]
            m.next = "LOOK"
