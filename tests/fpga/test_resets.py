"""Copies of the reset, dealt out by place."""

import copy
import random
import re

from gradnic.fpga.place import resets

COPIES, TILES, USERS = 5, 40, 300


def cell(kind, x, y, **pins):
    directions = {pin: "output" if pin == "Q" else "input" for pin in pins}
    place = {"NEXTPNR_BEL": f"X{x}/Y{y}/SLICEA.FF0"}
    connections = {pin: [bit] for pin, bit in pins.items()}
    return {
        "type": kind,
        "attributes": place,
        "connections": connections,
        "port_directions": directions,
    }


def netlist(n_copies=COPIES):
    """Registers all over a device, each with a copy of the reset by chance."""
    chance = random.Random(1)
    places = [(chance.randrange(100), chance.randrange(60)) for _ in range(TILES)]
    cells = {f"reset{k}": cell("TRELLIS_FF", 50, 30, DI=1, Q=100 + k) for k in range(n_copies)}
    for k in range(USERS):
        pins = {"DI": 1000 + k, "Q": 2000 + k}
        if n_copies and k % 3:
            pins["LSR"] = 100 + chance.randrange(n_copies)
        cells[f"r{k}"] = cell("TRELLIS_FF", *chance.choice(places), **pins)
    return {"cells": cells}


def users(netlist):
    """Places of the users of each copy."""
    found = {}
    for one in netlist["cells"].values():
        for bit in one["connections"].get("LSR", []):
            place = re.match(r"X(\d+)/Y(\d+)", one["attributes"]["NEXTPNR_BEL"]).groups()
            found.setdefault(bit, []).append(tuple(map(int, place)))
    return found


def test_a_tile_has_one_copy_and_each_copy_as_many_users_close_together():
    before, after = netlist(), netlist()
    resets.gather(after)
    places = users(after)
    assert sum(map(len, places.values())) == sum(map(len, users(before).values()))
    assert len(places) == COPIES
    assert max(map(len, places.values())) < 1.5 * USERS * 2 / 3 / COPIES
    tiles = [set(one) for one in places.values()]
    assert len(set.union(*tiles)) == sum(map(len, tiles))
    for one in places.values():
        width, height = (max(c) - min(c) for c in zip(*one, strict=True))
        assert width * height < 100 * 60 / 2


def test_nothing_else_changes():
    before, after = netlist(), netlist()
    resets.gather(after)
    for one in (before, after):
        for each in one["cells"].values():
            each["connections"].pop("LSR", None)
    assert before == after


def test_without_copies_a_netlist_stays():
    plain = netlist(n_copies=0)
    kept = copy.deepcopy(plain)
    resets.gather(plain)
    assert plain == kept
