"""Annealed placements: legal, the same circuit, shorter wires; sums kept on the way are right."""

import copy
import json

import numpy as np
import pytest
from gradnic.fpga.flow import blocks, tools
from gradnic.fpga.flow import measure as flow
from gradnic.fpga.place import anneal, fabric, lateness, placement

MOVES = 300  # of a cluster: what a test can wait for


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The scheduler as nextpnr places it: LUT and block RAM, carry chains, wide multiplexers."""
    folder = tmp_path_factory.mktemp("anneal")
    block = blocks.build("scheduler", 1)
    home = flow.synthesize(block, folder=folder, block="scheduler", progress=print)
    nextpnr(home, "netlist.json", "--no-route", "--write", "placed.json", made="placed.json")
    return home


def nextpnr(home, source, *rest, made):
    common = ["--json", source, "--out-of-context", "--timing-allow-fail", "--85k", "--speed", "8"]
    tools.run(["nextpnr-ecp5", "-q", "-l", "log", *common, *rest], home, made=made)


@pytest.fixture
def whole(home):
    return json.loads((home / "placed.json").read_text())


@pytest.fixture
def placed(whole):
    return placement.read(whole["modules"]["top"], "85k")


def tiles(placed):
    return len(placed.columns) * len(placed.rows)


def shapes(placed):
    """Where the cells of each cluster stand from its first one: columns, rows, sites of a tile."""
    found = []
    for start, end in zip(placed.first_member, placed.first_member[1:], strict=False):
        cells = placed.member[start:end]
        x, y = placed.x[cells], placed.y[cells]
        local = placed.site[cells] % placement.TILE
        moves_by_slice = end - start <= 2 or placed.reach[len(found)] == placement.SLICE
        found.append((x - x[0], y - y[0], local - local[0] if moves_by_slice else local))
    return found


def test_rules_allow_what_nextpnr_does(placed):
    assert {int(reach) for reach in placed.reach} >= {
        placement.LONE, placement.PAIR, placement.SLICE, placement.WHOLE_TILE, placement.ROW,
        placement.RAM,
    }  # fmt: skip
    assert all(anneal.is_legal(placed, tile) for tile in range(tiles(placed)))


def test_rules_forbid_registers_of_different_control_in_a_slice(placed):
    even = placed.site % placement.TILE % 2 == 0
    registers = np.nonzero((placed.kind == placement.REGISTER) & even)[0]
    tried = 0
    for cell in registers:
        other = placed.occupant[placed.site[cell] + 1]
        if other >= 0:
            placed.control[other] += 1
            assert not anneal.is_legal(placed, placed.site[cell] // placement.TILE)
            placed.control[other] -= 1
            tried += 1
    assert tried > 100


def test_slacks_are_those_of_paths(placed):
    """By relaxation until nothing moves, forward and backward, arc by arc."""
    delay, _ = anneal.measure(placed)
    slack, longest = anneal.slacks(placed, delay, 3000.0)
    arcs = np.repeat(np.arange(len(placed.sink_net)), np.diff(placed.first_arc))
    source, wire = placed.sink_net[arcs], delay[arcs] + placed.arc_delay
    arrival, behind = placed.launch.copy(), np.full(len(placed.driver), -np.inf, np.float32)
    ends = placed.setup >= 0
    np.maximum.at(behind, placed.sink_net[ends], (delay + placed.setup)[ends])
    for way, to, start in ((arrival, placed.arc_net, source), (behind, source, placed.arc_net)):
        while True:
            old = way.copy()
            np.maximum.at(way, to, way[start] + wire)
            if np.array_equal(way, old):
                break
    assert longest == pytest.approx((arrival + behind).max())
    through = arrival[placed.sink_net] + delay + np.where(ends, placed.setup, -np.inf)
    np.maximum.at(through, arcs, arrival[source] + wire + behind[placed.arc_net])
    reached = np.isfinite(through)
    np.testing.assert_allclose(slack[reached], 3000 - through[reached], atol=0.01)
    assert not np.isfinite(slack[~reached]).any()


def test_lateness_after_changes_is_that_of_all_paths_afresh(placed):
    goal, random = 2500.0, np.random.default_rng(1)
    delay, _ = anneal.measure(placed)
    late = lateness.times(placed, delay, goal)

    def cost(times):
        return (np.maximum(0, (times.end - goal) / (lateness.UNIT * goal)) ** 3).sum()

    for turn in range(60):
        before = late.arrival.copy(), late.end.copy(), cost(late)
        sinks = random.choice(np.nonzero(placed.fixed < 0)[0], 30, replace=False).astype(np.int32)
        old = delay[sinks]
        delay[sinks] = random.uniform(0, 2000, 30)
        more = lateness.change(placed, late, delay, sinks, len(sinks))
        afresh = lateness.times(placed, delay, goal)
        assert np.array_equal(late.arrival, afresh.arrival)
        assert np.array_equal(late.end, afresh.end)
        assert more == pytest.approx(cost(afresh) - before[2], rel=1e-3, abs=1e-3)
        assert late.end.max() == anneal.slacks(placed, delay, goal)[1]
        if turn % 2:
            delay[sinks] = old
            lateness.undo(late)
            assert np.array_equal(late.arrival, before[0])
            assert np.array_equal(late.end, before[1])


def test_wires_get_shorter_and_the_circuit_stays(home, whole, placed):
    netlist = whole["modules"]["top"]
    before, form = copy.deepcopy(netlist), shapes(placed)
    result = anneal.anneal(placed, clock_mhz=300, moves=MOVES)
    assert result["wire"][1] < 0.95 * result["wire"][0]
    assert result["path_ps"][1] < result["path_ps"][0]
    delay, length = anneal.measure(placed)  # afresh: what was kept move by move is the same
    assert result["wire"][1] == length.sum()
    assert result["path_ps"][1] == anneal.slacks(placed, delay, 1e6 / 300)[1]
    assert all(anneal.is_legal(placed, tile) for tile in range(tiles(placed)))
    stands = np.nonzero(placed.site >= 0)[0]
    assert np.array_equal(placed.occupant[placed.site[stands]], stands)
    assert np.count_nonzero(placed.occupant >= 0) == len(stands)
    np.testing.assert_equal(shapes(placed), form)
    placement.write(netlist, placed)
    for name, cell in netlist["cells"].items():
        old = before["cells"][name]
        attributes = old["attributes"] | {"NEXTPNR_BEL": cell["attributes"]["NEXTPNR_BEL"]}
        assert cell == old | {"attributes": attributes}
    bels = [cell["attributes"]["NEXTPNR_BEL"] for cell in netlist["cells"].values()]
    assert len(set(bels)) == len(bels)
    (home / "better.json").write_text(json.dumps(whole))
    again = ("--no-pack", "--no-place")  # nextpnr looks at every place, and finds every wire
    nextpnr(home, "better.json", *again, "--report", "report.json", made="report.json")


def test_the_two_inputs_of_a_lut_with_the_least_slack_are_fast(placed):
    slack = np.random.default_rng(1).uniform(-1000, 1000, len(placed.sink_net)).astype(np.float32)
    placed.way[placed.ranked] = fabric.SLOW
    anneal.rank(placed, slack)
    assert len(placed.first_ranked) > 100
    for start, end in zip(placed.first_ranked, placed.first_ranked[1:], strict=False):
        inputs = placed.ranked[start:end]
        assert 3 <= len(set(inputs)) == len(inputs) <= 4
        fast = inputs[placed.way[inputs] == fabric.FAST]
        assert len(fast) == 2
        assert slack[fast].max() <= np.sort(slack[inputs])[1]
    others = np.setdiff1d(np.arange(len(slack)), placed.ranked)
    assert {fabric.FAST, fabric.SLOW, fabric.MUX, fabric.ENABLE} <= set(placed.way[others])


def test_same_seed_same_places(whole):
    netlist = whole["modules"]["top"]
    one, same, other = (placement.read(netlist, "85k") for _ in range(3))
    for placed, seed in ((one, 1), (same, 1), (other, 2)):
        anneal.anneal(placed, clock_mhz=300, seed=seed, moves=20)
    assert np.array_equal(one.site, same.site)
    assert not np.array_equal(one.site, other.site)


def test_flow_goes_by_its_four_steps_and_goes_on_where_it_was_stopped(home):
    said = []
    block = blocks.build("scheduler", 1)
    options = {"block": "scheduler", "seeds": 1, "folder": home.parent}

    def stop(text):
        said.append(text)
        if "route" in text:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        flow.measure(block, annealed=True, progress=stop, **options)
    what = ("place", "anneal", "route", "time")
    steps = [f"scheduler: {one}, seed 1 (0 of 1 done)" for one in what]
    assert said == steps[:3]
    said.clear()
    result = flow.measure(block, annealed=True, progress=said.append, **options)
    assert said == steps[2:]
    plain = flow.measure(block, **options)
    assert result.keys() == plain.keys()
    assert (result["ff"], result["bram"]) == (plain["ff"], plain["bram"])
    assert not [*home.glob("*ed"), *home.glob("*.part")]
