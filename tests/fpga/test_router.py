"""Our routes: nextpnr takes them as they are, and finds the delays that the router found."""

import json
import re

import numpy as np
import pytest
from gradnic.fpga.flow import blocks, tools
from gradnic.fpga.flow import measure as flow
from gradnic.fpga.place import fabric, placement, router

DEVICE, SPEED, MHZ = "85k", 8, 260


def nextpnr(home, source, *rest, made):
    common = ["--out-of-context", "--timing-allow-fail", f"--{DEVICE}", "--speed", str(SPEED)]
    command = ["nextpnr-ecp5", "-q", "-l", "log", "--json", source, "--freq", str(MHZ), *common]
    tools.run([*command, *rest], home, made=made)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The scheduler as nextpnr places it: LUT and block RAM, carry chains, wide multiplexers."""
    folder = tmp_path_factory.mktemp("router")
    block = blocks.build("scheduler", 1)
    home = flow.synthesize(block, folder=folder, block="scheduler", progress=print)
    nextpnr(home, "netlist.json", "--no-route", "--write", "placed.json", made="placed.json")
    return home


@pytest.fixture(scope="module")
def routed(home):
    """(Netlist with routes, `Nets`, `Fabric`, routes, what the router said.)"""
    netlist = json.loads((home / "placed.json").read_text())
    top = netlist["modules"]["top"]
    database, placed, said = fabric.Database(DEVICE), placement.read(top, DEVICE), []
    nets, bits = router.read(top, database)
    graph = database.fabric(SPEED, fabric.swaps(top, database))
    routes = router.route(graph, nets, placed, period=1e6 / MHZ, progress=said.append)
    router.write(top, database, graph, nets, bits, routes)
    return netlist, nets, graph, routes, said


def test_each_connection_has_a_way_and_each_wire_one_net(routed):
    _, nets, graph, (path, start, end), _ = routed
    owner = np.full(len(graph.span), -1)
    driven_by = np.full(len(graph.span), -1)
    for net, source in enumerate(nets.source):
        for k in range(nets.first_sink[net], nets.first_sink[net + 1]):
            here = source
            for wire, pip in path[start[k] : end[k]].reshape(-1, 2):
                assert wire == here
                assert graph.first[wire] <= pip < graph.first[wire + 1]
                here = graph.to[pip]
                assert owner[here] in (-1, net)
                assert driven_by[here] in (-1, pip)
                owner[here], driven_by[here] = net, pip
            assert here == nets.sink[k]


def test_nextpnr_routes_nothing_more_and_times_it_as_we_do(home, routed):
    netlist, *_, said = routed
    (home / "routed.json").write_text(json.dumps(netlist))
    nextpnr(home, "routed.json", "--no-pack", "--no-place", "--report", "report.json",
            made="report.json")  # fmt: skip
    assert "Routing 0 arcs." in (home / "log").read_text()
    (clock,) = json.loads((home / "report.json").read_text())["fmax"].values()
    legal = [line for line in said if " 0 wires shared" in line]
    paths = [float(re.search(r"path ([\d.]+) ns", line)[1]) for line in legal]
    assert 1000 / clock["achieved"] == pytest.approx(min(paths), abs=0.006)


def test_a_wire_of_the_table_is_as_fast_as_the_fabric_has_it():
    """Two of the distances, by all ways between two tiles, for each kind of input."""
    database = fabric.Database(DEVICE)
    pairs = np.full(4 * database.width * database.height, fabric.PAIRS, np.uint8)
    graph, table = database.fabric(SPEED, pairs), fabric.least_delays(DEVICE)
    x, y = database.width // 2, database.height // 2
    sources = [database.wire(x, y, f"{name}_SLICE") for name in fabric.SOURCES]
    cost = np.mean([fabric._spread(graph, source, fabric.FARTHEST) for source in sources], axis=0)
    for dx, dy in ((1, 1), (4, 3)):
        tiles = [(x + a * dx, y + b * dy) for a in (1, -1) for b in (1, -1)]
        fast = [
            cost[database.wire(*tile, f"{pin}{k}_SLICE")]
            for tile in tiles for pin in "CD" for k in range(8)
        ]  # fmt: skip
        assert table[fabric.FAST, dx, dy] == pytest.approx(np.mean(fast), rel=0.02)
    far = np.array([cost[database.wire(x + 30, y + 35, f"LSR{k}_SLICE")] for k in range(4)])
    assert table[fabric.RESET, 30, 35] == pytest.approx(far.mean(), rel=0.02)
    corner = fabric._spread(graph, database.wire(10, 9, "Q1_SLICE"), fabric.FARTHEST)
    beyond = np.array([corner[database.wire(85, 56, f"LSR{k}_SLICE")] for k in range(4)])
    assert table[fabric.RESET, 75, 47] == pytest.approx(beyond.mean(), rel=0.03)
    assert (table[fabric.SLOW] > table[fabric.FAST]).all()
    assert np.isfinite(table).all()


def test_what_no_wire_leads_to_is_told(routed, home):
    _, nets, graph, *_ = routed
    placed = placement.read(
        json.loads((home / "placed.json").read_text())["modules"]["top"], DEVICE
    )
    cut = graph._replace(to=np.where(graph.to == nets.sink[7], -1, graph.to))
    with pytest.raises(ValueError, match="connection 7 has no way"):
        router.route(cut, nets, placed, period=1e6 / MHZ)


def test_an_urgent_connection_of_a_large_net_is_not_behind_the_others():
    database = fabric.Database(DEVICE)
    graph = database.fabric(SPEED, np.zeros(4 * database.width * database.height, np.uint8))
    x, y = database.width // 2, database.height // 2
    around = [(x + dx, y + dy) for dx in range(-20, 21) for dy in range(1, 10)]
    sinks = [database.wire(*tile, f"C{k}_SLICE") for tile in around for k in range(8)]
    source = database.wire(x, y, "Q1_SLICE")
    n = len(sinks)
    nets = router.Nets(np.array([source], np.int32), np.array([0, n], np.int64),
                       np.array(sinks, np.int32))  # fmt: skip
    state, order = router._fresh(len(graph.span)), np.zeros(1, np.int32)
    path, start, end = np.zeros(400 * n, np.int32), np.zeros(n, np.int64), np.zeros(n, np.int64)
    weight, redo, at = np.zeros(n, np.float32), np.ones(n, np.bool_), 0

    def delays():
        nonlocal at
        rest = path, start, end, at, weight, redo, np.float32(router.PRESENT)
        n_routed, at = router._round(graph, state, nets, order, *rest)
        assert n_routed > 0
        return router._delays(graph, state, nets, path, start, end)

    behind = delays()
    one = np.argmax(behind)
    least = fabric._spread(graph, source, fabric.FARTHEST)[sinks[one]]
    assert behind[one] > 3 * least
    weight[one], redo[:] = router.SHARPEST, np.arange(n) == one
    assert delays()[one] < 1.2 * least
