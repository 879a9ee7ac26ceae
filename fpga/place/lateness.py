"""How late a placement's paths are, kept right from move to move.

What a wire on a slow path may gain depends on all other wires of that path: here the arrival times
behind a changed wire are found anew, as far as they change, and what that costs is known before the
move is made. Static timing, one value for each net; see `gradnic.fpga.place.placement` for the
delays.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

UNIT = 0.02  # of the period: the cost of a path is the cube of its lateness in this unit


class Times(NamedTuple):
    """Arrival times of a placement, how to find them anew, and what was changed last.

    Of each net: ``arrival`` (ps), ``level`` (behind all nets that it follows from), ``first_from``;
    of each way into a net: ``from_sink``, ``from_delay``. Of each sink: ``end``, ps at which a path
    ends there, 0 where none does. ``goal``: period aimed at, and `UNIT` of it, ps.
    ``first``, ``next``, ``waits``: nets to look at, by level; ``look``: sinks to look at. The rest:
    what `undo` puts back, and how much there is of it.
    """

    arrival: np.ndarray
    level: np.ndarray
    first_from: np.ndarray
    from_sink: np.ndarray
    from_delay: np.ndarray
    end: np.ndarray
    goal: tuple
    first: np.ndarray
    next: np.ndarray
    waits: np.ndarray
    look: np.ndarray
    net: np.ndarray
    net_was: np.ndarray
    sink: np.ndarray
    sink_was: np.ndarray
    n: np.ndarray


def times(placed, delay, goal):
    """`Times` of a `placement.Placed` with these delays of wires, for a period of `goal` ps."""
    n_nets, n_sinks = len(placed.driver), len(delay)
    sinks = np.repeat(np.arange(n_sinks, dtype=np.int32), np.diff(placed.first_arc))
    order = np.argsort(placed.arc_net, kind="stable")
    first_from = np.zeros(n_nets + 1, np.int32)
    np.cumsum(np.bincount(placed.arc_net, minlength=n_nets), out=first_from[1:])
    level, arrival, end = _settled(placed, delay)
    return Times(
        arrival=arrival,
        level=level,
        first_from=first_from,
        from_sink=sinks[order],
        from_delay=placed.arc_delay[order],
        end=end,
        goal=(goal, UNIT * goal),
        first=np.full(level.max(initial=0) + 1, -1, np.int32),
        next=np.zeros(n_nets, np.int32),
        waits=np.zeros(n_nets, np.bool_),
        look=np.zeros(n_sinks, np.int32),
        net=np.zeros(n_nets, np.int32),
        net_was=np.zeros(n_nets, np.float32),
        sink=np.zeros(2 * n_sinks, np.int32),
        sink_was=np.zeros(2 * n_sinks, np.float32),
        n=np.zeros(2, np.int64),
    )


@njit(cache=True)
def _settled(p, delay):
    """(Level and arrival of each net, end of each sink.)"""
    level, arrival = np.zeros(len(p.driver), np.int32), p.launch.copy()
    end = np.zeros(len(delay), np.float32)
    for n in p.order:
        for s in range(p.first_sink[n], p.first_sink[n + 1]):
            t = arrival[n] + delay[s]
            if p.setup[s] >= 0:
                end[s] = t + p.setup[s]
            for a in range(p.first_arc[s], p.first_arc[s + 1]):
                m = p.arc_net[a]
                arrival[m] = max(arrival[m], t + p.arc_delay[a])
                level[m] = max(level[m], level[n] + 1)
    return level, arrival, end


@njit(cache=True)
def change(p, times, delay, sinks, n_sinks):
    """The first `n_sinks` of `sinks` have other delays: what that costs."""
    arrival, end, look = times.arrival, times.end, times.look
    first, next_, waits = times.first, times.next, times.waits
    goal, unit = times.goal
    n_nets, n_ends, cost = 0, 0, 0.0
    level, last = len(first), -1  # of the nets that wait to be looked at
    look[:n_sinks] = sinks[:n_sinks]
    while n_sinks:
        for k in range(n_sinks):
            s = look[k]
            t = arrival[p.sink_net[s]] + delay[s]
            if p.setup[s] >= 0:
                now, was = t + p.setup[s], end[s]
                if now > goal:
                    cost += ((now - goal) / unit) ** 3
                if was > goal:
                    cost -= ((was - goal) / unit) ** 3
                times.sink[n_ends], times.sink_was[n_ends] = s, was
                n_ends += 1
                end[s] = now
            for a in range(p.first_arc[s], p.first_arc[s + 1]):
                m = p.arc_net[a]
                if not waits[m]:
                    at = times.level[m]
                    level, last = min(level, at), max(last, at)
                    waits[m], next_[m], first[at] = True, first[at], m
        n_sinks = 0
        while n_sinks == 0 and level <= last:  # until there is a net that changes
            m = first[level]
            if m < 0:
                level += 1
                continue
            first[level], waits[m] = next_[m], False
            now = p.launch[m]
            for k in range(times.first_from[m], times.first_from[m + 1]):
                s = times.from_sink[k]
                now = max(now, arrival[p.sink_net[s]] + delay[s] + times.from_delay[k])
            if now != arrival[m]:
                times.net[n_nets], times.net_was[n_nets] = m, arrival[m]
                n_nets += 1
                arrival[m] = now
                for s in range(p.first_sink[m], p.first_sink[m + 1]):
                    look[n_sinks] = s
                    n_sinks += 1
    times.n[0], times.n[1] = n_nets, n_ends
    return cost


@njit(cache=True)
def undo(times):
    """Arrivals and ends are as they were before the last `change`."""
    for k in range(times.n[0]):
        times.arrival[times.net[k]] = times.net_was[k]
    for k in range(times.n[1] - 1, -1, -1):
        times.end[times.sink[k]] = times.sink_was[k]
