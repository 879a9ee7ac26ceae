"""What software tells the egress queues of a card's or an aggregator's ports, and asks of them.

Twin of `gradnic.models.frame.queue_rules`; before the queues of `gradnic.hdl.frame.egress`.
"""

from amaranth.hdl import Array, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.setting import setting
from .egress import MAX_BEATS, N_QUEUES, EgressQueues

QUEUE_FRAMES = 8  # of the longest, in each queue at least
MOST_BEATS = MAX_BEATS // QUEUE_FRAMES  # of the longest frame

QueueRules = data.StructLayout({"limit": 16, "thresholds": data.ArrayLayout(16, N_QUEUES)})
"""Beats; 0: as many as a queue holds, and no threshold."""


def queue_beats(own_beats: int) -> int:
    """Beats that each of the queues holds."""
    return 1 << ceil_log2(QUEUE_FRAMES * own_beats)


def most_beats(own_beats: int) -> int:
    """Highest limit of a queue: a frame more has room, while it is judged."""
    return queue_beats(own_beats) - own_beats


def port_members() -> dict:
    """What the exit of a port with queues has: rules, and one of the counters of `EgressQueues`."""
    return {"rules": In(QueueRules), "shown": In(6), "count": Out(32)}


def queue_members(n_ports: int) -> dict:
    """What all that has such ports has: one threshold, 8 the limit, in beats; one counter of a
    port, a cycle late.
    """
    port_width = max(3, ceil_log2(n_ports))
    return {
        "queue_write": In(data.StructLayout({"enable": 1, "address": 4, "beats": 16})),
        "queue_shown": In(data.StructLayout({"count": 6, "port": port_width})),
        "queue_count": Out(32),
    }


def ruled_queues(m, n_bytes: int, own_beats: int, port) -> EgressQueues:
    """Queues for frames of up to `own_beats` beats, under the rules of a ``port``: see
    `port_members`. A limit that is 0 or too high is the highest, a threshold likewise the limit.
    """
    queues = EgressQueues(n_bytes, queue_beats=queue_beats(own_beats), max_beats=own_beats)
    most, rules = most_beats(own_beats), port.rules
    limit = Signal(16, init=most)
    m.d.comb += [queues.count_addr.eq(port.shown), port.count.eq(queues.count)]
    m.d.sync += [
        limit.eq(Mux((rules.limit == 0) | (rules.limit > most), most, rules.limit)),
        queues.limit.eq(limit),
        *(
            queues.thresholds[k].eq(Mux((at == 0) | (at > limit), limit, at))
            for k, at in enumerate(rules.thresholds)
        ),
    ]
    return queues


def rule_queues(m, whole, ports) -> None:
    """Thresholds of all ``ports``, and the counter that is shown, by `queue_members` of `whole`."""
    write, rules = whole.queue_write, setting(m, QueueRules, "rules")
    with m.If(write.enable):
        with m.If(write.address[3]):
            m.d.sync += rules.limit.eq(write.beats)
        with m.Else():
            m.d.sync += rules.thresholds[write.address[:3]].eq(write.beats)
    for port in ports:
        m.d.comb += [port.rules.eq(rules), port.shown.eq(whole.queue_shown.count)]
    counts = Array(port.count for port in ports)
    m.d.sync += whole.queue_count.eq(counts[whole.queue_shown.port])
