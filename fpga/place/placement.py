"""A placement of nextpnr-ecp5 as arrays, to be changed and given back.

nextpnr writes its placed netlist as JSON (``--no-route --write``), and routes one that it reads
(``--no-pack --no-place``); where a cell stands is an attribute. Delays are those of nextpnr's SDF
for speed grade 8, in ps; other grades differ by a factor, which changes no decision.
"""

import re
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ..flow.floorplan import N_COLUMNS, RAM_ROWS, ram_column
from .fabric import ENABLE, FAST, MUX, RESET, SLOW, least_delays

TILE = 17  # sites of a logic tile: 8 LUT, 8 registers, the write port of LUT RAM
LUT, REGISTER, WRITE_PORT, BLOCK_RAM, OTHER = range(5)  # kinds of cells
KINDS = {
    "TRELLIS_COMB": LUT,
    "TRELLIS_FF": REGISTER,
    "TRELLIS_RAMW": WRITE_PORT,
    "DP16KD": BLOCK_RAM,
}
# how much moves when a cluster does: one site, a LUT with its register, a slice of two of these, a
# tile of four slices, a row of tiles, a block RAM
LONE, PAIR, SLICE, WHOLE_TILE, ROW, RAM, NEVER = range(7)
# what a LUT is used as, and that a register takes its data from the fabric
CARRY, MEMORY, MUX5, MUX6, BLOCKED, FROM_FABRIC = 1, 2, 4, 8, 16, 32

ARCS = {
    **{(pin, out): ps for pin in "ABCD" for out, ps in (("F", 180), ("OFX", 306), ("FCO", 355))},
    ("M", "OFX"): 193,
    ("F1", "OFX"): 126,
    ("FXA", "OFX"): 180,
    ("FXB", "OFX"): 180,
    ("FCI", "F"): 328,
    ("FCI", "FCO"): 56,
}
_WRITE_PORT_ARCS = dict(
    zip(
        ("A0", "B0", "C0", "D0", "A1", "B1", "C1", "D1"),
        ("WADO3", "WADO1", "WADO2", "WADO0", "WDO1", "WDO3", "WDO0", "WDO2"),
        strict=True,
    )
)
DEDICATED = {  # wires within a cluster
    "DI": 118,
    **dict.fromkeys(("FCI", "F1", "FXA", "FXB"), 0),
    **dict.fromkeys(("WD", "WAD0", "WAD1", "WAD2", "WAD3"), 68),
}
_SWAPPED = "ABCD"  # inputs that nextpnr's router, and ours, may swap on a LUT that is only logic
_WAYS = {"A": SLOW, "B": SLOW, "C": FAST, "D": FAST, "CE": ENABLE, "LSR": RESET, "WRE": RESET}
_SETUP = {(REGISTER, "LSR"): 287, (LUT, "WRE"): 266}
_RAM_SETUP = 180
_LAUNCH, _RAM_LAUNCH, _RAM_LAUNCH_UNREGISTERED, _OTHER_LAUNCH = 395, 738, 4300, 700
_CLOCKS = ("CLK", "WCK", "CLKA", "CLKB", "CLK0", "CLK1", "CLK2", "CLK3")
_BEL = re.compile(r"X(\d+)/Y(\d+)/(.*)")
_LOGIC = re.compile(r"SLICE([A-D])\.(K|FF|RAMW)([01]?)")


class Placed(NamedTuple):
    """A placed netlist, in arrays that compiled code takes. "First of" arrays have an end, too.

    Of each cell: ``kind``, ``use`` (flags), ``control`` (what registers of a slice must share),
    ``reset`` (what a tile has two of, or -1), ``cluster``, ``x``, ``y``, ``site``, ``first_pin``.
    Of each pin: ``pin_net``, ``pin_sink`` (-1: it drives the net).
    Of each cluster: ``reach`` (LONE to NEVER), ``first_member``; ``member`` lists their cells.
    Of each net: ``driver``, ``launch`` (ps), ``first_sink``; ``order``: each behind those it needs.
    Of each sink: ``sink_net``, ``sink_cell``, ``fixed`` (ps, or -1: a wire of the fabric),
    ``setup`` (ps, or -1: no register), ``first_arc``, ``way`` (kind of input, `fabric.FAST` and so
    on); of each arc ``arc_net``, ``arc_delay``. ``ranked``: inputs of one LUT after the other, of
    which any two may be FAST. ``wire``: ps, by way, columns and rows.
    Of each site: ``occupant`` (-1: none), ``site_x``, ``site_y``. Tiles come first, row after row;
    then block RAM. ``columns``, ``rows``: coordinates of the tiles.
    """

    kind: np.ndarray
    use: np.ndarray
    control: np.ndarray
    reset: np.ndarray
    cluster: np.ndarray
    x: np.ndarray
    y: np.ndarray
    site: np.ndarray
    first_pin: np.ndarray
    pin_net: np.ndarray
    pin_sink: np.ndarray
    reach: np.ndarray
    first_member: np.ndarray
    member: np.ndarray
    driver: np.ndarray
    launch: np.ndarray
    first_sink: np.ndarray
    order: np.ndarray
    sink_net: np.ndarray
    sink_cell: np.ndarray
    fixed: np.ndarray
    setup: np.ndarray
    first_arc: np.ndarray
    arc_net: np.ndarray
    arc_delay: np.ndarray
    way: np.ndarray
    first_ranked: np.ndarray
    ranked: np.ndarray
    wire: np.ndarray
    occupant: np.ndarray
    site_x: np.ndarray
    site_y: np.ndarray
    columns: np.ndarray
    rows: np.ndarray


def read(netlist, device):
    """`Placed` of the top module of a netlist that nextpnr has placed on `device` ("85k").

    Clocks and constants are left out: nothing is gained by moving what they reach.
    """
    cells = list(netlist["cells"].values())
    names = {name: k for k, name in enumerate(netlist["cells"])}
    kind = np.array([KINDS.get(cell["type"], OTHER) for cell in cells], np.int8)
    bels = [_BEL.fullmatch(cell["attributes"]["NEXTPNR_BEL"]).groups() for cell in cells]
    x, y = (np.array([int(bel[k]) for bel in bels], np.int32) for k in range(2))
    ties = _Ties(len(cells))
    wires = [{pin: bits[0] for pin, bits in cell["connections"].items() if bits} for cell in cells]
    nets = _nets(netlist, cells, wires, kind, ties)
    use, control, reset = _rules(names, wires, cells, kind, ties)
    sites = _sites(kind, x, y, [bel[2] for bel in bels], device)
    return Placed(
        kind=kind,
        use=use,
        control=control,
        reset=reset,
        x=x,
        y=y,
        **nets,
        **sites,
        **_clusters(kind, use, y, sites["site"], ties),
        wire=least_delays(device),
    )


def write(netlist, placed):
    """Give each cell of the top module of a netlist the place that it has in `placed`.

    Outputs of the module go: nextpnr 0.11 writes constant ones with wild numbers of nets, and ends
    when it reads them.
    """
    ports = netlist["ports"]
    netlist["ports"] = {name: one for name, one in ports.items() if one["direction"] == "input"}
    for k, cell in enumerate(netlist["cells"].values()):
        where = f"X{placed.x[k]}/Y{placed.y[k]}"
        local = placed.site[k] % TILE
        if placed.kind[k] == BLOCK_RAM:
            bel = f"EBR{(placed.site[k] - len(placed.columns) * len(placed.rows) * TILE) % 4}"
        elif placed.kind[k] == WRITE_PORT:
            bel = "SLICEC.RAMW"
        elif placed.kind[k] in (LUT, REGISTER):
            bel = f"SLICE{'ABCD'[local % 8 // 2]}.{('K', 'FF')[local // 8]}{local % 2}"
        else:
            continue
        cell["attributes"]["NEXTPNR_BEL"] = f"{where}/{bel}"


class _Ties:
    """Which cells must keep their places beside each other."""

    def __init__(self, n):
        self.parent = list(range(n))

    def find(self, a):
        while self.parent[a] != a:
            self.parent[a] = self.parent[self.parent[a]]
            a = self.parent[a]
        return a

    def tie(self, a, b):
        self.parent[self.find(a)] = self.find(b)


def firsts(lists):
    """(Where each list begins in all of them, end included; all of them.)"""
    first = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([len(one) for one in lists], out=first[1:])
    return first, [value for one in lists for value in one]


class Ends(NamedTuple):
    """Of each net, by its number in the netlist: ``drivers``, (cell, pin); ``sinks``, a list of
    these, without clocks. ``timed``, ``constant``: the nets that come from registers and logic, and
    those that have one value; nets without a driver are in neither.
    """

    drivers: dict
    sinks: dict
    timed: list
    constant: list


def ends(netlist):
    """`Ends` of the nets of a netlist's top module."""
    cells = list(netlist["cells"].values())
    drivers, sinks = {}, defaultdict(list)
    for k, cell in enumerate(cells):
        for pin, bits in cell["connections"].items():
            if bits and cell["port_directions"][pin] == "output":
                drivers[bits[0]] = (k, pin)
            elif bits and pin not in _CLOCKS:
                sinks[bits[0]].append((k, pin))

    def is_constant(cell):
        inputs = (pin for pin, bits in cell["connections"].items() if bits)
        return KINDS.get(cell["type"]) == LUT and not any(
            cell["port_directions"][pin] == "input" for pin in inputs
        )

    driven = [bit for bit in sinks if bit in drivers]
    constant = {bit for bit in driven if is_constant(cells[drivers[bit][0]])}
    timed = [bit for bit in driven if bit not in constant]
    return Ends(drivers, sinks, timed, [bit for bit in driven if bit in constant])


def _nets(netlist, cells, wires, kind, ties):
    """Nets, their sinks, and what delays there are from a sink to nets behind it."""
    drivers, sinks, bits, _ = ends(netlist)
    for bit in sinks.keys() & drivers:
        for k, pin in sinks[bit]:
            if kind[k] <= REGISTER and pin in DEDICATED:
                ties.tie(k, drivers[bit][0])
    number = {bit: n for n, bit in enumerate(bits)}
    first_sink, flat = firsts([sinks[bit] for bit in bits])
    sink_net = np.repeat(np.arange(len(bits), dtype=np.int32), np.diff(first_sink))
    arcs, fixed, setup = [], [], []
    pins = [[] for _ in cells]
    for n, bit in enumerate(bits):
        pins[drivers[bit][0]].append((n, -1))
    way, ranked = np.zeros(len(flat), np.int8), defaultdict(list)
    for s, (k, pin) in enumerate(flat):
        pins[k].append((sink_net[s], s))
        way[s] = _WAYS.get(pin[0] if kind[k] == WRITE_PORT else pin, MUX)
        if kind[k] == LUT and pin in _SWAPPED and not _is_bound(cells[k]):
            way[s] = FAST
            ranked[k].append(s)
        fixed.append(DEDICATED[pin] if kind[k] <= REGISTER and pin in DEDICATED else -1)
        found = []
        if kind[k] == LUT:
            outs = ((out, ARCS.get((pin, out))) for out in ("F", "OFX", "FCO"))
            found = [(number[wires[k][out]], ps) for out, ps in outs
                     if ps is not None and wires[k].get(out) in number]  # fmt: skip
        elif kind[k] == WRITE_PORT:
            found = [(number[bit], 0) for bit in [wires[k].get(_WRITE_PORT_ARCS[pin])]
                     if bit in number]  # fmt: skip
        arcs.append(found)
        is_end = kind[k] != WRITE_PORT and (kind[k] != LUT or pin == "WRE" or pin.startswith("W"))
        default = _RAM_SETUP if kind[k] in (BLOCK_RAM, OTHER) else 0
        setup.append(_SETUP.get((kind[k], pin), default) if is_end else -1)
    first_arc, arcs = firsts(arcs)
    first_pin, pins = firsts(pins)
    first_ranked, ranked = firsts([one for one in ranked.values() if len(one) > 2])
    arc_net = np.array([net for net, _ in arcs], np.int32)
    return {
        "driver": np.array([drivers[bit][0] for bit in bits], np.int32),
        "launch": np.array([_launch(cells, kind, *drivers[bit]) for bit in bits], np.float32),
        "first_sink": first_sink,
        "sink_net": sink_net,
        "sink_cell": np.array([k for k, _ in flat], np.int32),
        "fixed": np.array(fixed, np.float32),
        "setup": np.array(setup, np.float32),
        "first_arc": first_arc,
        "arc_net": arc_net,
        "arc_delay": np.array([ps for _, ps in arcs], np.float32),
        "way": way,
        "first_ranked": first_ranked,
        "ranked": np.array(ranked, np.int32),
        "first_pin": first_pin,
        "pin_net": np.array([net for net, _ in pins], np.int32),
        "pin_sink": np.array([sink for _, sink in pins], np.int32),
        "order": _order(first_sink, first_arc, arc_net),
    }


def _is_bound(cell):
    """Whether the inputs of a LUT may not all be swapped."""
    return cell["parameters"].get("MODE") in ("CCU2", "DPRAM", "RAMW_BLOCK")


def _launch(cells, kind, k, pin):
    """Delay from the clock to output `pin` of cell `k`, ps; 0 for logic."""
    if kind[k] == REGISTER:
        return _LAUNCH
    if kind[k] == BLOCK_RAM:
        registered = cells[k]["parameters"].get(f"REGMODE_{pin[2]}") == "OUTREG"
        return _RAM_LAUNCH if registered else _RAM_LAUNCH_UNREGISTERED
    return _OTHER_LAUNCH if kind[k] == OTHER else 0


def _order(first_sink, first_arc, arc_net):
    """Nets in an order in which each comes behind those that it follows from."""
    waits = np.bincount(arc_net, minlength=len(first_sink) - 1)
    ready = list(np.nonzero(waits == 0)[0])
    order = []
    while ready:
        n = ready.pop()
        order.append(n)
        for m in arc_net[first_arc[first_sink[n]] : first_arc[first_sink[n + 1]]]:
            waits[m] -= 1
            if waits[m] == 0:
                ready.append(m)
    if len(order) < len(waits):
        raise ValueError(f"{len(waits) - len(order)} nets are part of a loop")
    return np.array(order, np.int32)


def _rules(names, wires, cells, kind, ties):
    """What a slice, or a tile, cannot have side by side: see `Placed`."""
    use, control = np.zeros(len(cells), np.int32), np.full(len(cells), -1, np.int32)
    reset = np.full(len(cells), -1, np.int64)
    known = {}
    for name, k in names.items():
        pins, parameters = wires[k], cells[k]["parameters"]
        if kind[k] == LUT:
            mode = parameters.get("MODE")
            use[k] = (
                CARRY * (mode == "CCU2")
                | MEMORY * (mode == "DPRAM")
                | BLOCKED * (mode == "RAMW_BLOCK")
                | MUX5 * ("F1" in pins)
                | MUX6 * ("FXA" in pins or "FXB" in pins)
            )
            if use[k] & (MEMORY | BLOCKED):
                ties.tie(k, names[f"{name.rpartition('$')[0]}$RAMW_SLICE"])
            if use[k] & MEMORY:
                reset[k] = 2 * pins.get("WRE", -1)  # comes in by the wire of a reset
        elif kind[k] == REGISTER:
            use[k] = FROM_FABRIC * ("M" in pins)
            muxes = (parameters.get(name) for name in ("CEMUX", "LSRMUX", "GSR", "CLKMUX"))
            shared = (pins.get("CE"), pins.get("LSR"), pins.get("CLK"), *muxes)
            control[k] = known.setdefault(shared, len(known))
            if "LSR" in pins:
                reset[k] = 2 * pins["LSR"] + (parameters.get("LSRMUX") == "INV")
    return use, control, reset


def _sites(kind, x, y, bels, device):
    """Sites, and who stands where."""
    logic = kind <= WRITE_PORT
    columns, rows = np.unique(x[logic]), np.unique(y[logic])
    n_logic = len(columns) * len(rows) * TILE
    rams = [(*ram_column(n), row) for pair in RAM_ROWS[device] for row in pair
            for n in range(N_COLUMNS)]  # fmt: skip
    at = {(column, row): n_logic + k for k, (column, _, row) in enumerate(rams)}
    site = np.full(len(kind), -1, np.int32)
    for k in np.nonzero(kind <= BLOCK_RAM)[0]:
        if kind[k] == BLOCK_RAM:
            site[k] = at[x[k], y[k]]
            continue
        part, what, half = _LOGIC.fullmatch(bels[k]).groups()
        local = 16 if what == "RAMW" else 8 * (what == "FF") + 2 * "ABCD".index(part) + int(half)
        tile = np.searchsorted(rows, y[k]) * len(columns) + np.searchsorted(columns, x[k])
        site[k] = tile * TILE + local
    occupant = np.full(n_logic + len(rams), -1, np.int32)
    taken = np.nonzero(site >= 0)[0]
    occupant[site[taken]] = taken
    tiles = np.arange(n_logic) // TILE
    return {
        "site": site,
        "occupant": occupant,
        "site_x": np.r_[columns[tiles % len(columns)], [ram[0] for ram in rams]].astype(np.int32),
        "site_y": np.r_[rows[tiles // len(columns)], [ram[2] for ram in rams]].astype(np.int32),
        "columns": columns,
        "rows": rows,
    }


def _clusters(kind, use, y, site, ties):
    """Cells that move together, and how far around them all must move with them."""
    groups = defaultdict(list)
    for k in np.nonzero(kind <= BLOCK_RAM)[0]:
        groups[ties.find(k)].append(k)
    cluster, reach = np.full(len(kind), -1, np.int32), []
    for n, cells in enumerate(groups.values()):
        cluster[cells] = n
        used = np.bitwise_or.reduce(use[cells])
        tiles = {site[k] // TILE for k in cells}
        halves = {site[k] % TILE % 8 for k in cells}
        if kind[cells[0]] == BLOCK_RAM:
            reach.append(RAM)
        elif len(tiles) > 1:
            reach.append(ROW if len({y[k] for k in cells}) == 1 else NEVER)
        elif used & (MEMORY | MUX6 | BLOCKED) or len({half // 2 for half in halves}) > 1:
            reach.append(WHOLE_TILE)
        elif used & (CARRY | MUX5) or len(halves) > 1:
            reach.append(SLICE)
        else:
            reach.append(PAIR if len(cells) > 1 else LONE)
    first_member, member = firsts(list(groups.values()))
    return {
        "cluster": cluster,
        "reach": np.array(reach, np.int8),
        "first_member": first_member,
        "member": np.array(member, np.int32),
    }
