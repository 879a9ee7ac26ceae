"""Routes a placed netlist on the ECP5, so that slow paths get the short wires.

nextpnr's router decides once, from estimates, which connections are urgent; a wire that is ripped
up late then goes around. Here all nets may share wires at first; what they share gets dearer from
round to round, for a net the less, the less time it has to spare by delays as they are routed.

Source: McMurchie and Ebeling, PathFinder (FPGA 1995): negotiated congestion and delay. Ours: slack
by the static timing of `gradnic.fpga.place.anneal`, the constants, and what nextpnr reads.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit

from gradnic.output import write_whole

from . import placement
from .anneal import measure, slacks
from .fabric import Database, pin_wire, pop, push, swaps

ROUNDS = 800
AIM = 0.97  # of the period: paths up to it are not late
BASE = 30.0  # ps that a wire costs for being used
PRESENT, GROWTH, MOST = 0.5, 1.3, 30.0
PART = 0.1  # of the late nets are tried again where none shares a wire
PATIENCE = 25  # rounds, after which that has failed
PAST, PAST_LATER = 0.4, 1.5  # price of a wire per round and net too many
SHARPEST, EXPONENT = 0.99, 4  # weight of delay: at most, and its exponent
KEPT = 0.97  # of that weight stays from round to round, whatever a connection has won
PER_TILE = 42.0  # ps, at least, of a tile on the way
HASTE = 0.6  # so much more counts the way ahead than the way behind, where there is time
MARGIN = 6  # tiles around a connection that it may use
NEAR, EARLY = 12, 700  # tiles around a sink, ps behind the source: a large net's ways start there
LARGE = 300  # wires of a large net


class Nets(NamedTuple):
    """What is to be routed: nets as `placement.Placed` has them, then those of constants."""

    source: np.ndarray
    first_sink: np.ndarray
    sink: np.ndarray


SEEN, BY, CAME, COST = range(4)  # of a wire: the search that saw it last, by which pip, from where
MINE, PIP, PARENT, DELAY = range(4)  # the net that had it last, by which pip, from where, ps
MOST_WIRES = 4_000_000  # that a search looks at
PART_PS = 16  # of a ps that costs are counted in


class State(NamedTuple):
    """Of each wire: how many nets have it (`users`), what it has cost them (`past`), what it costs
    one more (`price`); where the search at hand has been (`search`), and the net at hand (`net`):
    see SEEN and MINE. One row for what is looked at together: time goes with memory.
    """

    users: np.ndarray
    past: np.ndarray
    price: np.ndarray
    search: np.ndarray
    net: np.ndarray
    count: np.ndarray  # of searches, of nets


def _fresh(n_wires):
    """`State` before anything is routed."""
    return State(
        users=np.zeros(n_wires, np.int16),
        past=np.ones(n_wires, np.float32),
        price=np.ones(n_wires, np.float32),
        search=np.zeros((n_wires, 4), np.int32),
        net=np.zeros((n_wires, 4), np.int32),
        count=np.zeros(2, np.int32),
    )


@njit(cache=True)
def _ahead(f, w, x, y):
    left, right, top, bottom = f.span[w]
    dx = left - x if left > x else (x - right if x > right else 0)
    dy = top - y if top > y else (y - bottom if y > bottom else 0)
    return dx + dy


@njit(cache=True)
def _drives(f, w, v):
    for e in range(f.first[w], f.first[w + 1]):  # noqa: SIM110, the compiler has no any()
        if f.to[e] == v:
            return True
    return False


@njit(cache=True)
def _search(f, s, tree, n_tree, sink, weight, margin, keys, values):
    """Find the cheapest way from a net's wires to `sink`; False if there is none."""
    s.count[0] += 1
    turn, net = s.count
    x, y = f.span[sink, 0], f.span[sink, 2]
    a = f.span[tree[0]]
    left, right = min(x, a[0]) - margin, max(x, a[1]) + margin
    top, bottom = min(y, a[2]) - margin, max(y, a[3]) + margin
    per_tile = PART_PS * PER_TILE * (1 + HASTE * (1 - weight))
    n = 0
    for k in range(n_tree):
        w = tree[k]
        far = _ahead(f, w, x, y)
        if n_tree <= LARGE or far <= NEAR or s.net[w, DELAY] <= EARLY or margin > MARGIN:
            cost = int(PART_PS * weight * s.net[w, DELAY])
            s.search[w, SEEN], s.search[w, BY], s.search[w, COST] = turn, -1, cost
            push(keys, values, n, np.float32(cost + per_tile * far), w)
            n += 1
    while n:
        key = keys[0]
        w = pop(keys, values, n)
        n -= 1
        if w == sink:
            return True
        so_far = s.search[w, COST]
        if key > 1.00001 * (so_far + per_tile * _ahead(f, w, x, y)) + 1:
            continue  # found cheaper since
        for e in range(f.first[w], f.first[w + 1]):
            v = f.to[e]
            if v < 0:
                continue
            kind = f.timing[e]
            d = f.delay[kind] + f.per_load[kind]
            cost = so_far + int(PART_PS * (weight * d + (1 - weight) * (d + BASE) * s.price[v]))
            row = s.search[v]
            if (row[SEEN] == turn and row[COST] <= cost) or s.net[v, MINE] == net:
                continue
            if v != sink:
                if f.last[v] and not _drives(f, v, sink):
                    continue
                one = f.span[v]
                if one[0] > right or one[1] < left or one[2] > bottom or one[3] < top:
                    continue
            row[SEEN], row[BY], row[CAME], row[COST] = turn, e, w, cost
            if n == len(keys):
                return False
            push(keys, values, n, np.float32(cost + per_tile * _ahead(f, v, x, y)), v)
            n += 1
    return False


@njit(cache=True)
def _use(s, v, more, present):
    """So many nets more have a wire."""
    s.users[v] += more
    s.price[v] = s.past[v] * (1 + present * s.users[v])


@njit(cache=True)
def _take(f, s, tree, n_tree, path, start, end, present):
    """Make a connection's pips part of the net at hand; the number of its wires then."""
    net = s.count[1]
    for k in range(start, end, 2):
        w, e = path[k], path[k + 1]
        v = f.to[e]
        if s.net[v, MINE] != net:
            d = f.delay[f.timing[e]] + f.per_load[f.timing[e]]
            s.net[v, MINE], s.net[v, PIP], s.net[v, PARENT] = net, e, w
            s.net[v, DELAY] = s.net[w, DELAY] + int(d)
            _use(s, v, 1, present)
            tree[n_tree] = v
            n_tree += 1
    return n_tree


@njit(cache=True)
def _lay(path, at, rows, by, came, sink):
    """Write the way back from `sink`, as (wire, pip) from its beginning on; where it ends."""
    n, w = 0, sink
    while rows[w, by] >= 0:
        n += 1
        w = rows[w, came]
    end, w = at + 2 * n, sink
    for k in range(n):
        path[end - 2 * k - 2], path[end - 2 * k - 1] = rows[w, came], rows[w, by]
        w = rows[w, came]
    return end


@njit(cache=True)
def _round(f, s, nets, order, path, start, end, n_path, weight, redo, present):
    """Route anew each connection that shares a wire or is to be redone. Paths are (wire, pip) after
    each other in `path`, from the source on. Returns (number of connections routed, end of paths),
    or a negative number, of the connection that has no way."""
    keys, values = np.zeros(MOST_WIRES, np.float32), np.zeros(MOST_WIRES, np.int32)
    tree = np.zeros(MOST_WIRES, np.int32)
    gone = np.zeros(len(nets.sink), np.bool_)
    n_routed = 0
    for net in order:
        a, b = nets.first_sink[net], nets.first_sink[net + 1]
        any_gone = False
        for k in range(a, b):
            gone[k] = redo[k]
            for at in range(start[k], end[k], 2):
                if s.users[f.to[path[at + 1]]] > 1:
                    gone[k] = True
                    break
            any_gone = any_gone or gone[k]
        if not any_gone:
            continue
        s.count[1] += 1
        for k in range(a, b):  # give all up, then take again what stays
            for at in range(start[k], end[k], 2):
                v = f.to[path[at + 1]]
                if s.net[v, MINE] != s.count[1]:
                    s.net[v, MINE] = s.count[1]
                    _use(s, v, -1, present)
        s.count[1] += 1
        source = nets.source[net]
        s.net[source, MINE], s.net[source, PIP], s.net[source, DELAY] = s.count[1], -1, 0
        tree[0], n_tree = source, 1
        for k in range(a, b):
            if not gone[k]:
                n_tree = _take(f, s, tree, n_tree, path, start[k], end[k], present)
        for k in a + np.argsort(-weight[a:b]):
            if not gone[k]:
                continue
            sink = nets.sink[k]
            if s.net[sink, MINE] != s.count[1]:
                margin = MARGIN
                while not _search(f, s, tree, n_tree, sink, weight[k], margin, keys, values):
                    margin *= 4
                    if margin > 1000:
                        return -k - 1, n_path
                n_routed += 1
                last = _lay(path, n_path, s.search, BY, CAME, sink)
                n_tree = _take(f, s, tree, n_tree, path, n_path, last, present)
            start[k], end[k] = n_path, _lay(path, n_path, s.net, PIP, PARENT, sink)
            n_path = end[k]
        if n_path > len(path) * 3 // 4:
            n_path = _pack(path, start, end)
    return n_routed, n_path


@njit(cache=True)
def _pack(path, start, end):
    """Put all paths at the beginning; where they end."""
    n = 0
    for k in np.argsort(start):
        length = end[k] - start[k]
        for at in range(length):
            path[n + at] = path[start[k] + at]
        start[k], end[k] = n, n + length
        n += length
    return n


@njit(cache=True)
def _delays(f, s, nets, path, start, end):
    """Delay of each connection, ps, with what each pip's source really drives."""
    delay = np.zeros(len(nets.sink), np.float32)
    loads = s.search[:, CAME]
    for net in range(len(nets.source)):
        s.count[1] += 2
        counted, known = s.count[1], s.count[1] - 1
        s.net[nets.source[net], MINE], loads[nets.source[net]] = known, 0
        for k in range(nets.first_sink[net], nets.first_sink[net + 1]):
            for at in range(start[k], end[k], 2):
                w, v = path[at], f.to[path[at + 1]]
                if s.net[v, MINE] < known:
                    loads[v] = 0
                if s.net[v, MINE] < counted:
                    s.net[v, MINE] = counted
                    loads[w] += 1
        for k in range(nets.first_sink[net], nets.first_sink[net + 1]):
            for at in range(start[k], end[k], 2):
                kind = f.timing[path[at + 1]]
                delay[k] += f.delay[kind] + f.per_load[kind] * loads[path[at]]
    return delay


def route(fabric, nets, placed, *, period, seed=1, progress=None):
    """Find a way for every connection; no wire has two nets at the end.

    fabric : `fabric.Fabric`. nets : `Nets`. placed : `placement.Placed`. period : ps, in which
    paths are to end. seed : of all chances taken. progress : called with a line of text each round.

    Returns (paths, as wires and pips in turn; where each connection's begins; where it ends).
    ValueError if a connection has no way, or wires are still shared after `ROUNDS`.
    """
    say = progress or (lambda text: None)
    chance = np.random.default_rng(seed)
    n_sinks, timed = len(nets.sink), len(placed.sink_net)
    state = _fresh(len(fabric.span))
    path = np.zeros(200 * n_sinks + 100_000, np.int32)
    start, end, n_path = np.zeros(n_sinks, np.int64), np.zeros(n_sinks, np.int64), 0
    order = np.argsort(-np.diff(nets.first_sink)).astype(np.int32)
    ends = placed.setup >= 0
    slack, _ = slacks(placed, measure(placed)[0], period)
    redo, present, best, since = np.ones(n_sinks, np.bool_), PRESENT, None, 0
    weight = np.zeros(n_sinks, np.float32)
    for _ in range(ROUNDS):
        now = SHARPEST * np.clip(1 - np.maximum(slack, 0) / period, 0, 1) ** EXPONENT
        weight[:timed] = np.maximum(now, KEPT * weight[:timed])
        state.price[:] = state.past * (1 + present * state.users)
        n_routed, n_path = _round(
            fabric, state, nets, order, path, start, end, n_path, weight, redo, np.float32(present)
        )
        if n_routed < 0:
            raise ValueError(f"connection {-n_routed - 1} has no way")
        delay = _delays(fabric, state, nets, path, start, end)[:timed]
        slack, longest = slacks(placed, delay, period)
        over = np.maximum(state.users - 1, 0)
        n_over, n_late = np.count_nonzero(over), np.count_nonzero(slack < 0)
        say(f"{n_routed} routed, {n_over} wires shared, longest path {longest / 1000:.2f} ns, "
            f"{n_late} connections late")  # fmt: skip
        np.add(state.past, (PAST if best is None else PAST_LATER) * over, out=state.past)
        present, since = min(present * GROWTH, MOST), since + 1
        part = 1 if best is None else 0
        if n_over == 0 or (best is not None and since > PATIENCE):
            cost = (np.maximum(-slack[ends], 0) ** 3).sum()
            if n_over == 0 and (best is None or cost < best[0]):
                n_path = _pack(path, start, end)
                kept = path[:n_path].copy(), start.copy(), end.copy()
                best = cost, kept, slack, state.users.copy()
            else:
                _, (kept, start[:], end[:]), slack, state.users[:] = best
                n_path = len(kept)
                path[:n_path] = kept
            if best[0] == 0:
                break
            state.past[:], since, part = 1, 0, PART
        late = np.zeros(len(nets.source), np.bool_)
        late[placed.sink_net[slack < 0]] = True
        late &= chance.random(len(late)) < part
        redo[:] = False
        redo[:timed] = late[placed.sink_net]
    if best is None:
        raise ValueError(f"{n_over} wires are still shared after {ROUNDS} rounds")
    return best[1]


def read(netlist, database):
    """(`Nets` of a placed netlist's top module, their numbers in the netlist.)"""
    ends = placement.ends(netlist)
    cells = list(netlist["cells"].values())

    def wire(k, pin):
        bel = cells[k]["attributes"]["NEXTPNR_BEL"]
        return database.wire(*pin_wire(cells[k]["type"], bel, pin))

    bits = [*ends.timed, *ends.constant]
    first, flat = placement.firsts([ends.sinks[bit] for bit in bits])
    nets = Nets(
        source=np.array([wire(*ends.drivers[bit]) for bit in bits], np.int32),
        first_sink=first,
        sink=np.array([wire(*sink) for sink in flat], np.int32),
    )
    return nets, bits


def write(netlist, database, fabric, nets, bits, routes):
    """Give the nets of a netlist's top module the `routes` that `route` has found."""
    path, start, end = routes
    names = {
        entry["bits"][0]: name
        for name, entry in netlist["netnames"].items()
        if len(entry["bits"]) == 1 and "ROUTING" in entry["attributes"]
    }
    for net, bit in enumerate(bits):
        told = {nets.source[net]: ""}
        for k in range(nets.first_sink[net], nets.first_sink[net + 1]):
            for wire, pip in path[start[k] : end[k]].reshape(-1, 2):
                if fabric.to[pip] not in told:
                    told[fabric.to[pip]] = database.pip_name(wire, pip - fabric.first[wire])
        routing = ";".join(f"{database.wire_name(wire)};{pip};1" for wire, pip in told.items())
        netlist["netnames"][names[bit]]["attributes"]["ROUTING"] = routing


def main(arguments):
    """Route a netlist that is placed: source, target, device, speed grade, clock in MHz, seed."""
    source, target, device, speed, clock_mhz, seed = arguments
    whole = json.loads(Path(source).read_text())
    netlist = whole["modules"]["top"]
    database = Database(device)
    placed = placement.read(netlist, device)
    nets, bits = read(netlist, database)
    fabric = database.fabric(int(speed), swaps(netlist, database))
    period = AIM * 1e6 / float(clock_mhz)
    routes = route(fabric, nets, placed, period=period, seed=int(seed), progress=print)
    write(netlist, database, fabric, nets, bits, routes)
    write_whole(target, json.dumps(whole))
