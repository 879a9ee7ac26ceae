"""Gives what stands together on the device the same copy of the reset.

`flow.spread_reset` makes copies before anything has a place, and deals them out by name: users of
one may stand 100 tiles apart, 4 ns of wire. All copies are equal, so once cells have places they
are dealt out again, by tiles: no tile has more resets than before.
"""

import re
from collections import defaultdict

import numpy as np

_COPY = re.compile(r"reset\d+")
_PLACE = re.compile(r"X(\d+)/Y(\d+)/")


def gather(netlist):
    """Deal out the copies of the reset of a placed netlist's top module; changed in place."""
    cells = netlist["cells"]

    def place(name):
        return tuple(map(int, _PLACE.match(cells[name]["attributes"]["NEXTPNR_BEL"]).groups()))

    copies = {
        cell["connections"]["Q"][0]: place(name)
        for name, cell in cells.items()
        if _COPY.fullmatch(name) and cell["connections"]["Q"]
    }
    users = defaultdict(list)
    for name, cell in cells.items():
        for pin, bits in cell["connections"].items():
            if bits and bits[0] in copies and cell["port_directions"][pin] == "input":
                users[place(name)].append(cell["connections"][pin])
    tiles = np.array(list(users)).reshape(-1, 2)
    numbers = np.array([len(pins) for pins in users.values()])
    free = dict(copies)
    for group in _groups(tiles, numbers, np.arange(len(tiles)), len(copies)):
        center = np.average(tiles[group], axis=0, weights=numbers[group])
        copy = min(free, key=lambda bit: abs(free[bit] - center).sum())
        del free[copy]
        for tile in group:
            for bits in users[tuple(map(int, tiles[tile]))]:
                bits[0] = copy


def _groups(tiles, numbers, chosen, n_groups):
    """Split tiles into so many parts of some size each, across where they are longest."""
    if n_groups <= 1 or len(chosen) <= 1:
        return [chosen] if len(chosen) else []
    longest = np.argmax(np.ptp(tiles[chosen], axis=0))
    chosen = chosen[np.argsort(tiles[chosen, longest], kind="stable")]
    share = np.cumsum(numbers[chosen]) / numbers[chosen].sum()
    left = n_groups // 2
    cut = 1 + np.argmin(abs(share[:-1] - left / n_groups))
    return [
        *_groups(tiles, numbers, chosen[:cut], left),
        *_groups(tiles, numbers, chosen[cut:], n_groups - left),
    ]
