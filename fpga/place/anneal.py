"""Anneals a placement of nextpnr's: shorter wires, and the shortest where time is short.

nextpnr's analytic placer leaves a crowded part's last percent of paths with single wires over half
the device. Simulated annealing from where it ends moves every cell some hundred times, by a cost of
wire length and of delay weighted by how critical it is; then the cells of slow paths, and at last
all cells again, by wire length and by how late the paths get with that very move.

Sources: Betz and Rose, VPR (FPL 1997): moves within a range that shrinks with the temperature;
Marquardt, Betz and Rose, T-VPlace (FPGA 2000): delays weighted by criticality, found anew at each
step. Ours: moves toward a cell that a net goes to, the weights, which know a target period, and
`gradnic.fpga.place.lateness`.
"""

import json
import math
from pathlib import Path

import numpy as np
from numba import njit

from gradnic.output import write_whole

from . import resets
from .fabric import FAST, SLOW
from .lateness import change, times, undo
from .placement import (
    BLOCKED,
    CARRY,
    FROM_FABRIC,
    LONE,
    MEMORY,
    MUX5,
    MUX6,
    NEVER,
    PAIR,
    RAM,
    REGISTER,
    ROW,
    SLICE,
    TILE,
    read,
    write,
)

MOVES = 1600  # per cluster, over the steps of the first pass
STEPS = 400  # between two of which delays are weighed anew
HOT, COLD = 1.0, 0.05  # temperatures, in tiles of wire
FAR, NEAR = 20, 3  # tiles that a move reaches, at these temperatures
PER_TILE = 50  # ps
WEIGHT, EXPONENT = 6.0, 8  # a tile on a path as long as the period costs so much more than another
KEPT = 0.6  # of a weight, at the next step
LATE_STEPS = 40  # of slow paths, then as many of all
LATE_MOVES, LAST_MOVES = 0.4, 0.2  # of the moves of the first pass
LATE = 0.1  # of the period: paths that have no more to spare are slow
LATE_HOT, LAST_HOT = 30.0, 0.3  # temperatures, at first
AIM = 0.85  # of the period: paths up to it are not late
MOST_WIRES = 200  # sinks of a net whose length counts: those of more are all over the device
NEAR_SINKS = 64  # sinks of a net that draws its cells together
WIDEST = 40  # tiles of a row that move together


@njit(cache=True)
def _delay(p, s):
    if p.fixed[s] >= 0:
        return p.fixed[s]
    a, b = p.driver[p.sink_net[s]], p.sink_cell[s]
    return p.wire[p.way[s], abs(p.x[a] - p.x[b]), abs(p.y[a] - p.y[b])]


@njit(cache=True)
def _length(p, n):
    """Half the perimeter of what a net spans, in tiles."""
    a = p.driver[n]
    left, right, top, bottom = p.x[a], p.x[a], p.y[a], p.y[a]
    for s in range(p.first_sink[n], p.first_sink[n + 1]):
        b = p.sink_cell[s]
        left, right = min(left, p.x[b]), max(right, p.x[b])
        top, bottom = min(top, p.y[b]), max(bottom, p.y[b])
    return right - left + bottom - top


@njit(cache=True)
def measure(p):
    """(Delay of each sink's wire, ps; length of each net, 0 for those of many sinks.)"""
    delay = np.zeros(len(p.sink_net), np.float32)
    for s in range(len(delay)):
        delay[s] = _delay(p, s)
    length = np.zeros(len(p.driver), np.float32)
    for n in range(len(length)):
        if p.first_sink[n + 1] - p.first_sink[n] <= MOST_WIRES:
            length[n] = _length(p, n)
    return delay, length


@njit(cache=True)
def rank(p, slack):
    """Of each LUT's inputs, the two with the least slack get the fast ones."""
    for k in range(len(p.first_ranked) - 1):
        inputs = p.ranked[p.first_ranked[k] : p.first_ranked[k + 1]]
        for n, i in enumerate(np.argsort(slack[inputs])):
            p.way[inputs[i]] = FAST if n < 2 else SLOW


@njit(cache=True)
def slacks(p, delay, period):
    """(Slack of each sink's wire for a period, ps; the longest path, ps.)"""
    arrival = p.launch.copy()
    longest = 0.0
    for n in p.order:
        for s in range(p.first_sink[n], p.first_sink[n + 1]):
            t = arrival[n] + delay[s]
            if p.setup[s] >= 0:
                longest = max(longest, t + p.setup[s])
            for a in range(p.first_arc[s], p.first_arc[s + 1]):
                m = p.arc_net[a]
                arrival[m] = max(arrival[m], t + p.arc_delay[a])
    required = np.full(len(p.driver), np.inf, np.float32)
    slack = np.zeros(len(delay), np.float32)
    for n in p.order[::-1]:
        for s in range(p.first_sink[n], p.first_sink[n + 1]):
            t = np.inf
            if p.setup[s] >= 0:
                t = period - p.setup[s]
            for a in range(p.first_arc[s], p.first_arc[s + 1]):
                t = min(t, required[p.arc_net[a]] - p.arc_delay[a])
            slack[s] = t - delay[s] - arrival[n]
            required[n] = min(required[n], t - delay[s])
    return slack, longest


@njit(cache=True)
def is_legal(p, tile):
    """Whether a tile's cells may stand side by side, as nextpnr's ``isBelLocationValid`` has it."""
    at = tile * TILE
    has_port = p.occupant[at + 16] >= 0
    resets = (-1, -1)
    for part in range(4):
        control = -1
        for half in range(2):
            k = at + 2 * part + half
            lut, register = p.occupant[k], p.occupant[k + 8]
            takes_m = False
            if lut >= 0:
                use = p.use[lut]
                takes_m = use & (MUX5 | MUX6) != 0
                if has_port and part == 2 and not use & BLOCKED:
                    return False
                if (use & MUX5 and half != 0) or (use & MUX6 and half != 1):
                    return False
                if use & MEMORY and part > 1:
                    return False
                if half == 1:
                    other = p.occupant[k - 1]
                    if other >= 0 and (p.use[other] ^ use) & CARRY:
                        return False
            if register >= 0:
                if takes_m and p.use[register] & FROM_FABRIC:
                    return False
                if control >= 0 and p.control[register] != control:
                    return False
                control = p.control[register]
            for cell in (lut, register):
                if cell >= 0 and p.reset[cell] >= 0 and p.reset[cell] not in resets:
                    if resets[1] >= 0:
                        return False
                    resets = (p.reset[cell], resets[0])
    return True


@njit(cache=True)
def _offset(reach, i):
    """Site of the ith that move together, from the first of them."""
    if reach == SLICE:
        return i % 2 + 8 * (i // 2)
    return 8 * i if reach == PAIR else i


@njit(cache=True)
def _closed(p, reach, base, n):
    """Whether nothing at these sites is part of what stands elsewhere."""
    for i in range(n):
        cell = p.occupant[base + _offset(reach, i)]
        if cell < 0:
            continue
        c = p.cluster[cell]
        if p.reach[c] > reach:
            return False
        if p.reach[c] == ROW:
            for m in range(p.first_member[c], p.first_member[c + 1]):
                if not base <= p.site[p.member[m]] < base + n:
                    return False
    return True


@njit(cache=True)
def _swap(p, reach, a, b, n, moved):
    """Cells at `n` sites from `a` on, and from `b` on, change places; how many that moved."""
    n_moved = 0
    for i in range(n):
        here, there = a + _offset(reach, i), b + _offset(reach, i)
        one, other = p.occupant[here], p.occupant[there]
        p.occupant[here], p.occupant[there] = other, one
        for cell, site in ((one, there), (other, here)):
            if cell >= 0:
                p.site[cell], p.x[cell], p.y[cell] = site, p.site_x[site], p.site_y[site]
                moved[n_moved] = cell
                n_moved += 1
    return n_moved


@njit(cache=True)
def _goal(p, cell, reach):
    """(Column, row) where a cell might go, as numbers of tiles; outside the device, too."""
    column = np.searchsorted(p.columns, p.x[cell])
    row = np.searchsorted(p.rows, p.y[cell])
    first, n = p.first_pin[cell], p.first_pin[cell + 1] - p.first_pin[cell]
    if n and np.random.random() < 0.5:  # somewhere on the way to a cell that it is wired to
        net = p.pin_net[first + np.random.randint(n)]
        s, end = p.first_sink[net], p.first_sink[net + 1]
        if end - s <= NEAR_SINKS:
            k = np.random.randint(s, end + 1)
            other = p.driver[net] if k == end else p.sink_cell[k]
            share = np.random.random()
            x = p.x[cell] + share * (p.x[other] - p.x[cell])
            y = p.y[cell] + share * (p.y[other] - p.y[cell])
            column = np.searchsorted(p.columns, int(x + 0.5))
            row = np.searchsorted(p.rows, int(y + 0.5))
            reach = 1
    return column + np.random.randint(-reach, reach + 1), row + np.random.randint(-reach, reach + 1)


@njit(cache=True)
def _move(p, c, far, moved):
    """Move cluster `c` somewhere, legally, against what stands there.

    Returns (reach, site, other site, number of sites, number of cells moved), 0 cells if not.
    """
    members = p.first_member[c], p.first_member[c + 1]
    cell = p.member[np.random.randint(members[0], members[1])]
    reach, here = p.reach[c], p.site[cell]
    column, row = _goal(p, cell, far)
    if reach == RAM:
        first = len(p.columns) * len(p.rows) * TILE
        there = first + np.random.randint(len(p.occupant) - first)
        if there == here:
            return reach, here, there, 1, 0
        return reach, here, there, 1, _swap(p, reach, here, there, 1, moved)
    if not (0 <= column < len(p.columns) and 0 <= row < len(p.rows)):
        return reach, here, here, 0, 0
    tile, to = here // TILE, row * len(p.columns) + column
    if reach <= SLICE:
        start = np.random.randint(8)
        for step in range(8):
            half = (start + step) % 8
            wide = reach
            if reach == SLICE:
                if half % 2:
                    continue
                a, b = tile * TILE + here % TILE % 8 // 2 * 2, to * TILE + half
            else:
                a, b = tile * TILE + here % TILE % 8, to * TILE + half
                if reach == LONE:
                    offset = 8 * (p.kind[cell] == REGISTER)
                    if _closed(p, LONE, b + offset, 1):
                        a, b = a + offset, b + offset
                    else:
                        wide = PAIR
            n = (1, 2, 4)[wide]
            if a == b or not (_closed(p, wide, a, n) and _closed(p, wide, b, n)):
                continue
            n_moved = _swap(p, wide, a, b, n, moved)
            if is_legal(p, tile) and is_legal(p, to):
                return wide, a, b, n, n_moved
            _swap(p, wide, a, b, n, moved)
        return reach, here, here, 0, 0
    first, last = tile, tile
    for m in range(members[0], members[1]):
        at = p.site[p.member[m]] // TILE
        first, last = min(first, at), max(last, at)
    n_tiles, shift = last - first + 1, to - tile
    left = first % len(p.columns) + column - tile % len(p.columns)
    if (
        n_tiles > WIDEST
        or left < 0
        or left + n_tiles > len(p.columns)
        or abs(shift) < n_tiles
        or not _closed(p, reach, first * TILE, n_tiles * TILE)
        or not _closed(p, reach, (first + shift) * TILE, n_tiles * TILE)
    ):
        return reach, here, here, 0, 0
    a, b, n = first * TILE, (first + shift) * TILE, n_tiles * TILE
    return reach, a, b, n, _swap(p, reach, a, b, n, moved)


@njit(cache=True)
def _step(p, late, movable, moves, temperature, far, weight, delay, length, seed):
    """So many moves at one temperature. A wire costs `weight` for each ps; without any weights,
    paths cost what `lateness.Times` `late` has it."""
    np.random.seed(seed)
    net_seen = np.zeros(len(length), np.int64)
    sink_seen = np.zeros(len(delay), np.int64)
    nets, lengths = np.zeros(len(length), np.int32), np.zeros(len(length), np.float32)
    sinks, delays = np.zeros(len(delay), np.int32), np.zeros(len(delay), np.float32)
    moved = np.zeros(2 * WIDEST * TILE, np.int32)
    for turn in range(1, moves + 1):
        c = movable[np.random.randint(len(movable))]
        reach, a, b, n, n_moved = _move(p, c, far, moved)
        if n_moved == 0:
            continue
        n_nets, n_sinks = 0, 0
        cost = 0.0
        for k in range(n_moved):
            cell = moved[k]
            for pin in range(p.first_pin[cell], p.first_pin[cell + 1]):
                net, s = p.pin_net[pin], p.pin_sink[pin]
                start, end = p.first_sink[net], p.first_sink[net + 1]
                if net_seen[net] != turn and end - start <= MOST_WIRES:
                    net_seen[net] = turn
                    nets[n_nets], lengths[n_nets] = net, length[net]
                    n_nets += 1
                    length[net] = _length(p, net)
                    cost += length[net] - lengths[n_nets - 1]
                if s >= 0:
                    start, end = s, s + 1
                for s in range(start, end):
                    if sink_seen[s] != turn and p.fixed[s] < 0:
                        sink_seen[s] = turn
                        now = _delay(p, s)
                        if now != delay[s]:
                            sinks[n_sinks], delays[n_sinks] = s, delay[s]
                            n_sinks += 1
                            if len(weight):
                                cost += weight[s] * (now - delay[s])
                            delay[s] = now
        if len(weight) == 0:
            cost += change(p, late, delay, sinks, n_sinks)
        if cost > 0 and np.random.random() >= math.exp(-cost / max(temperature, 1e-9)):
            _swap(p, reach, a, b, n, moved)
            for k in range(n_nets):
                length[nets[k]] = lengths[k]
            for k in range(n_sinks):
                delay[sinks[k]] = delays[k]
            if len(weight) == 0:
                undo(late)


def anneal(placed, *, clock_mhz, seed=1, moves=MOVES, progress=None):
    """Move the cells of `placement.Placed` about; its arrays are changed in place.

    clock_mhz : what the paths are weighed against. seed : of all chances taken. moves : for each
    cluster, on average, in the first pass. progress : called with one line of text now and then.

    Returns dict: ``wire``, half perimeters of all nets but the widest, tiles, and ``path_ps``, the
    longest path by the delays here, each before and after. A million moves take 2 to 10 s.
    """
    movable = np.nonzero(placed.reach != NEVER)[0].astype(np.int32)
    period = 1e6 / clock_mhz
    delay, length = measure(placed)
    rank(placed, slacks(placed, delay, period)[0])
    delay, length = measure(placed)
    late = times(placed, delay, AIM * period)
    before = float(length.sum()), float(late.end.max())
    weight, none = None, np.zeros(0, np.float32)
    for k in range(STEPS):
        share = k / STEPS
        temperature, far = HOT * (COLD / HOT) ** share, round(FAR * (NEAR / FAR) ** share)
        slack, longest = slacks(placed, delay, period)
        rank(placed, slack)
        delay, _ = measure(placed)
        now = WEIGHT / PER_TILE * np.clip(1 - slack / period, 0, 1.5) ** EXPONENT
        weight = (now if weight is None else KEPT * weight + (1 - KEPT) * now).astype(np.float32)
        if progress and k % (STEPS // 10) == 0:
            progress(f"wire {length.sum():.0f}, longest path {longest / 1000:.2f} ns")
        turns = max(1, moves * len(movable) // STEPS)
        _step(placed, late, movable, turns, temperature, far, weight, delay, length, seed + k)
    for k in range(2 * LATE_STEPS):
        share = k % LATE_STEPS / LATE_STEPS
        slack, _ = slacks(placed, delay, period)
        rank(placed, slack)
        delay, _ = measure(placed)
        late = times(placed, delay, AIM * period)
        if k < LATE_STEPS:
            hot, far, part = LATE_HOT, round(FAR * (NEAR / FAR) ** share), LATE_MOVES
            chosen = _clusters(placed, slack < LATE * period)
        else:
            hot, far, part, chosen = LAST_HOT, NEAR, LAST_MOVES, movable
        if progress and k % (LATE_STEPS // 4) == 0:
            progress(_told(length, late, period))
        if len(chosen):
            turns = max(1, int(part * moves * len(movable) / LATE_STEPS))
            temperature = hot * (1 - share) ** 2
            rest = none, delay, length, seed + STEPS + k
            _step(placed, late, chosen, turns, temperature, far, *rest)
    if progress:
        progress(_told(length, late, period))
    after = float(length.sum()), float(late.end.max())
    return {"wire": (before[0], after[0]), "path_ps": (before[1], after[1])}


def _told(length, late, period):
    n_late = np.count_nonzero(late.end > period)
    longest = late.end.max() / 1000
    return f"wire {length.sum():.0f}, longest path {longest:.2f} ns, {n_late} above the period"


def _clusters(placed, sinks):
    """What can be moved at either end of these wires."""
    cells = np.r_[placed.driver[placed.sink_net[sinks]], placed.sink_cell[sinks]]
    found = np.unique(placed.cluster[cells]).astype(np.int32)
    return found[(found >= 0) & (placed.reach[found] != NEVER)]


def main(arguments):
    """Anneal a netlist that nextpnr has placed: source, target, device, clock in MHz, seed."""
    source, target, device, clock_mhz, seed = arguments
    whole = json.loads(Path(source).read_text())
    netlist = whole["modules"]["top"]
    resets.gather(netlist)
    placed = read(netlist, device)
    anneal(placed, clock_mhz=float(clock_mhz), seed=int(seed), progress=print)
    write(netlist, placed)
    write_whole(target, json.dumps(whole))
