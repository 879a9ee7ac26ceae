"""Topologies: sizes, links, routes, files, dead parts, and one clear line for bad input."""

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from gradnic.models.schedule import topology
from gradnic.models.schedule.builders.rings import cycle
from gradnic.models.schedule.routing import Router
from gradnic.models.schedule.topology import Topology, grid, parse

SIZES = {  # spelling: nodes, switches, directed links, ports
    "torus:8x8": (64, 0, 256, 4),
    "torus:4x4": (16, 0, 64, 4),
    "torus:3x3x3": (27, 0, 162, 6),
    "torus:2x4": (8, 0, 24, 3),
    "mesh:4x4": (16, 0, 48, 4),
    "mesh:1x5": (5, 0, 8, 2),
    "ring:8": (8, 0, 16, 2),
    "ring:2": (2, 0, 2, 1),
    "hypercube:4": (16, 0, 64, 4),
    "fattree:8x2": (64, 16, 256, 1),
    "fattree:2x3": (8, 12, 48, 1),
    "bigraph:4x8": (32, 8, 96, 1),
    "dragonfly:4x2x2": (72, 36, 324, 1),
    "dgx:8x2": (16, 2, 34, 1),
    "full:8": (8, 0, 56, 7),
}


@pytest.mark.parametrize("spelling", SIZES)
def test_families_have_their_sizes_and_links_both_ways(spelling):
    t = parse(spelling)
    assert (t.n_nodes, t.n_switches, t.n_links, t.ports) == SIZES[spelling]
    assert t.reverse is not None
    assert np.array_equal(t.links[t.reverse], t.links[:, ::-1])
    assert t.bandwidth.min() == 1
    for s, hosts in enumerate(t.hosts):
        assert all(t.switch_of(v) == t.n_nodes + s for v in hosts)


def test_ports_of_a_grid_are_north_south_west_east():
    t = parse("torus:4x4")
    assert [to for _, to in t.out[5]] == [1, 9, 4, 6]
    assert [to for _, to in t.out[0]] == [12, 4, 3, 1]
    assert [to for _, to in parse("mesh:4x4").out[0]] == [4, 1]


def test_bigraph_joins_groups_fully_and_not_inside():
    t = parse("bigraph:2x8")
    pairs = {(a - 16, b - 16) for a, b in t.links.tolist() if a >= 16 and b >= 16}
    assert pairs == {(a, b) for a in range(8) for b in range(8) if (a < 4) != (b < 4)}


def test_dragonfly_joins_every_pair_of_groups_once():
    t = parse("dragonfly:4x2x2")
    group = (t.links[t.links.min(axis=1) >= 72] - 72) // 4
    apart = group[group[:, 0] != group[:, 1]]
    assert len(apart) == 9 * 8
    assert len(np.unique(apart, axis=0)) == 9 * 8


@pytest.mark.parametrize("spelling", [*SIZES, "torus:3x5", "fattree:3x3", "fattree:4x1"])
def test_routes_are_walks_and_shortest_where_promised(spelling):
    t = parse(spelling)
    router = Router(t)
    hops = np.full((t.n_vertices, t.n_vertices), 10**6)
    np.fill_diagonal(hops, 0)
    for _ in range(t.n_vertices):
        before = hops.copy()
        np.minimum.at(hops.T, t.links[:, 1], before.T[t.links[:, 0]] + 1)
        if np.array_equal(before, hops):
            break
    pairs = [(a, b) for a in range(t.n_nodes) for b in range(t.n_nodes) if a != b]
    for a, b in pairs[:: max(1, len(pairs) // 700)]:
        path = router.path(a, b)
        vertices = [a, *t.links[list(path), 1].tolist()]
        assert vertices[-1] == b
        assert t.links[list(path), 0].tolist() == vertices[:-1]
        assert len(path) == hops[a, b]


def test_of_equally_short_routes_the_widest_is_taken(tmp_path):
    """GPUs of a box speak over NVLink, though their own ports are as near; boxes over ports."""
    t = parse("nvlink:2x8x8")
    router = Router(t)
    for a, b in itertools.permutations(range(16), 2):
        speeds = t.bandwidth[list(router.path(a, b))].tolist()
        assert speeds == ([9, 9] if a // 8 == b // 8 else [1, 1]), (a, b)
    (tmp_path / "net").write_text("switch s t\n0 s 4\ns 1 1\n0 t 2\nt 1 2\n")
    t = parse(f"file:{tmp_path}/net")
    assert t.bandwidth[list(Router(t).path(0, 1))].tolist() == [2, 2]


def test_a_shift_of_a_fattree_meets_no_other_flow():
    t = parse("fattree:4x3")
    router = Router(t)
    for shift in (1, 4, 5, 16, 21, 63):
        links = [link for v in range(64) for link in router.path(v, (v + shift) % 64)]
        assert len(set(links)) == len(links)


@pytest.mark.parametrize(
    "spelling",
    ["torus:4x4", "torus:3x4", "torus:4x3", "torus:3x3", "torus:3x5", "torus:5x3", "torus:7x3",
     "mesh:4x4", "mesh:3x4", "mesh:4x5", "mesh:2x2", "hypercube:4", "ring:7"],
)  # fmt: skip
def test_rings_close_over_neighbors(spelling):
    t = parse(spelling)
    order = cycle(t)
    assert sorted(order) == list(range(t.n_nodes))
    assert all((a, b) in t.link_of for a, b in zip(order, order[1:] + order[:1], strict=True))


def test_files_of_both_kinds_give_the_same_graph(tmp_path):
    (tmp_path / "net.txt").write_text(
        "# two hosts each on two switches\nswitch s t\n0 s\n1 s\n2 t 1 40\n3 t\ns t 2 500\n"
    )
    graph = {"nodes": 4, "switches": 2, "links": [
        [0, 4], [1, 4], [2, 5, 1, 40], [3, 5], [4, 5, 2, 500]]}  # fmt: skip
    (tmp_path / "net.json").write_text(json.dumps(graph))
    one, two = (parse(f"file:{tmp_path}/net.{kind}") for kind in ("txt", "json"))
    for name in "links", "bandwidth", "latency":
        assert np.array_equal(getattr(one, name), getattr(two, name), equal_nan=True)
    assert (one.n_nodes, one.n_switches, one.n_links, one.ports) == (4, 2, 10, 1)
    assert one.bandwidth[one.link_of[4, 5]] == 2
    assert one.latency[one.link_of[5, 4]] == 500


@pytest.mark.parametrize(
    "text", ["switch\ncore0 core1\n", "core0 core1\n", "switch s\ntor s\nb s\n"]
)
def test_nodes_may_have_a_switchs_name_where_that_is_clear(tmp_path, text):
    (tmp_path / "net").write_text(text)
    assert parse(f"file:{tmp_path}/net").n_nodes == 2


@pytest.mark.parametrize("unseen", ["\ufeff", "\u200b", "\u2060", "\u00ad", "\u200e"])
@pytest.mark.parametrize("kind", ["txt", "json"])
def test_what_nobody_sees_is_no_part_of_a_name(tmp_path, unseen, kind):
    """Three nodes in a ring, with an invisible character at the start and at every token."""
    text = {"txt": "0 1\n1 2\n2 0\n", "json": '{"nodes":3,"links":[[0,1],[1,2],[2,0]]}'}[kind]
    (tmp_path / "net").write_text(unseen + text.replace("2", f"{unseen}2{unseen}"))
    net = parse(f"file:{tmp_path}/net")
    assert (net.n_nodes, net.n_switches) == (3, 0)
    assert sorted(net.link_of) == sorted(parse("ring:3").link_of)


@pytest.mark.parametrize("space", ["\u00a0", "\u2009", "\u3000", "\u202f", "\t"])
def test_any_space_is_one(tmp_path, space):
    (tmp_path / "net.txt").write_text(f"0{space}1{space}2\n1{space}2\n2{space}0\n")
    (tmp_path / "net.json").write_text(
        f'{{"nodes":{space}3,{space}"links": [[0, 1, 2],{space}[1, 2], [2, 0]]}}'
    )
    for kind in "txt", "json":
        net = parse(f"file:{tmp_path}/net.{kind}")
        assert net.n_nodes == 3
        assert net.bandwidth[net.link_of[1, 0]] == 2


def test_names_of_many_digits(tmp_path):
    """They are names all the same, in order of mention; Python makes no int of 4,301 digits."""
    (tmp_path / "net").write_text(f"{'9' * 5000} 1\n1 2\n")
    assert parse(f"file:{tmp_path}/net").links.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]


def test_utf16_with_its_mark_is_text(tmp_path):
    (tmp_path / "net").write_text("0 1\n1 2\n2 0\n", encoding="utf-16")
    assert parse(f"file:{tmp_path}/net").n_nodes == 3


def test_links_without_a_latency_take_the_default(tmp_path):
    (tmp_path / "net").write_text("0 1\n1 2 1 40\n")
    t = parse(f"file:{tmp_path}/net")
    assert t.latencies(150).tolist() == [150, 150, 40, 40]
    assert parse("ring:3").latencies(7).tolist() == [7] * 6


def test_a_file_that_is_not_text_is_named(tmp_path):
    (tmp_path / "net").write_bytes(bytes(range(256)))
    with pytest.raises(ValueError, match="net is neither JSON nor an edge list"):
        parse(f"file:{tmp_path}/net")


def test_bandwidths_count_in_slowest_links(tmp_path):
    (tmp_path / "a").write_text("0 1 100\n1 2 25\n2 0 50\n")
    t = parse(f"file:{tmp_path}/a")
    assert sorted(t.bandwidth.tolist()) == [1, 1, 2, 2, 4, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1 2\n3 4\n", "disconnected: node 0 cannot reach node 3$"),
        ("0 1 0\n", "bandwidth of link 0-1 must be 1e-15 to 1e.15, not 0"),
        ("0 1 -2\n", "must be 1e-15 to 1e.15, not -2"),
        ("0 1 nan\n", "must be 1e-15 to 1e.15, not nan"),
        ("0 1\n1 0\n", "link 0-1 is listed twice"),
        ("0 0\n0 1\n", "vertex 0 has a link to itself"),
        ("0 1 fast\n", "line 1: 'a b .bandwidth .latency..'"),
        ("0\n", "line 1"),
        ("", "2 nodes or more, not 0"),
        ("switch 7\n0 1\n", "switch 7 has no link"),
        ("a switch0\nb switch0\n", "vertex 'switch0' is called .* add a line 'switch v ...', or"),
        ("a tor0\nb tor0\n", "vertex 'tor0' is called 'tor0', and nothing says"),
        ("switch 1\n0 1\n", "2 nodes or more, not 1"),
        ('{"nodes": 2}', "needs 'nodes' and 'links'$"),
        ('{"nodes": 2,', "is no JSON: Expecting"),
        ('{"nodes": 2, "links": 5}', "'links' must be a list, not 5"),
        ('{"nodes": 2, "links": {"0": 1}}', "'links' must be a list, not {"),
        ('{"nodes": 2, "links": [[0, 1], 7]}', "a link is .*, not 7"),
        ('{"nodes": 2, "links": ["01"]}', 'a link is .*, not "01"'),
        ('{"nodes": 2, "links": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"nodes": 2, "links": [[0]]}', "a link is"),
        ('{"nodes": 2, "links": [["0", 1]]}', r'a link is .*not \["0", 1\]'),
        ('{"nodes": 2, "links": [[0, 0.5]]}', "a link is"),
        ('{"nodes": 2, "links": [[0, 1, "fast"]]}', "a link is"),
        ('{"nodes": "2", "links": [[0, 1]]}', "'nodes' must be a whole number up to 2.20, not '2'"),
        (
            '{"nodes": 2, "switches": -1, "links": [[0, 1]]}',
            "'switches' must be a whole",
        ),
        ('{"nodes": 2, "ports": "x", "links": [[0, 1]]}', "'ports' must be a whole number"),
        ("0 1 1 -5\n", "latency of link 0-1 must be 0 to 1e.09 cycles, not -5"),
        ('{"nodes": 2, "links": [[0, 5]]}', "vertices are 0 to 1, a link names 5"),
        (
            '{"nodes": 2, "links": [[0, 1]], "directed": true}',
            "node 1 cannot reach node 0; 1 of its links go one way only$",
        ),
        ('{"nodes": 2097152, "links": [[0, 1]]}', "'nodes' must be a whole number up to 2.20"),
        ('{"nodes": 2, "links": [[0, 1%s]]}' % ("0" * 400), "a link is"),
        ('{"nodes": 2, "links": [[0, 1, 1%s]]}' % ("0" * 400), "a link is"),
        (
            "0 1 2000000\n1 2\n",
            r"factor of 1048576 .*, not 1 .1-2. and 2e.06 .0-1.; 1 link",
        ),
        ("gpu7 s\nb s\ngpu7 s\nswitch s\n", "link gpu7-s is listed twice; add up"),
        ("gpu7 b -3\nb c 1\n", "bandwidth of link gpu7-b must be 1e-15 to"),
        ("a b 1\nb c 1e9\n", r"of each other, not 1 .a-b. and 1e.09 .b-c.$"),
        ("a b\nc d\n", "is disconnected: node a cannot reach node c$"),
        ("a b 1 -2\n", "latency of link a-b must be 0 to 1e.09 cycles, not -2"),
        ("a a\na b\n", "vertex a has a link to itself"),
        ("5 9\n7 8\n", "is disconnected: node 5 cannot reach node 7$"),
        ("0 1 2000000\n1 2 1\n", r"of each other, not 1 .1-2. and 2e.06 .0-1.$"),
    ],
)
def test_bad_files_end_with_one_line(tmp_path, text, message):
    (tmp_path / "net").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        parse(f"file:{tmp_path}/net")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("torus:1", "2 nodes or more, not 1"),
        ("full:1", "2 nodes or more"),
        ("ring", "whole numbers above 0"),
        ("torus:8xx8", "whole numbers above 0"),
        ("torus:0x4", "whole numbers above 0"),
        ("fattree:8", "takes 2 size"),
        ("bigraph:4x3", "even number of switches"),
        ("moebius:8", "must be one of torus"),
        ("torus:4096x4096", "larger than"),
        ("torus:1024x512x2", "at most 4194304 links, not 5242880"),
        ("full:100000", "full:100000 must have at most 4194304 links, not 9999900000"),
        ("bigraph:1x100000", "at most 4194304 links, not 5000200000"),
        ("dragonfly:1000x1x1", "at most 4194304 links, not 1003002000"),
        ("dgx:1x100000", "at most 4194304 links, not 10000100000"),
        ("fattree:1000x1000", "at most 4194304 links, not more than 10.15"),
        ("file:/dev/zero", "/dev/zero must be text of at most 64 MiB"),
        ("file:/dev/urandom", "at most 64 MiB"),
    ],
)
def test_bad_spellings_name_the_argument(spelling, message, calls):
    """At once: what is too large is told before anything of it is made."""

    def refused():
        with pytest.raises(ValueError, match=message):
            parse(spelling)

    assert calls(refused) < 10_000


def test_a_long_way_round_is_walked_once():
    """Every hop used to pass over all links: 20 s with 20,000 nodes."""

    class Counted(np.ndarray):
        n = 0

        def __getitem__(self, at):
            Counted.n += np.size(at)
            return super().__getitem__(at)

    ring = parse("ring:2000")
    watched = SimpleNamespace(**{name: getattr(ring, name) for name in ("n_vertices", "n_nodes")})
    watched.links = ring.links.view(Counted)
    topology._check_connected(watched)
    assert ring.n_links < Counted.n < 10 * ring.n_links
    assert parse("ring:20000").n_links == 40000


def test_links_are_counted_before_they_are_made(monkeypatch):
    told = {}
    monkeypatch.setattr(topology, "check_links", lambda name, n: told.setdefault(name, n))
    for spelling in ("torus:2x3x5", "torus:1x3", "mesh:2x4", "mesh:7", "hypercube:4", "full:6",
                     "fattree:3x3", "bigraph:3x6", "dgx:2x5", "dragonfly:4x2x3"):  # fmt: skip
        n_links = parse(spelling).n_links
        assert told[spelling] == n_links


def test_ports_are_one_to_eight():
    assert parse("torus:4x4", ports=1).port_limited
    assert not parse("torus:4x4").port_limited
    assert parse("full:16").ports == 8
    for ports in (0, 9):
        with pytest.raises(ValueError, match=f"ports must be 1 to 8, not {ports}"):
            parse("torus:4x4", ports=ports)


def test_dead_parts_leave_a_smaller_connected_machine():
    t = parse("torus:4x4")
    rest = t.without(dead_links=[(0, 1), (4, 0)])
    assert (rest.n_nodes, rest.n_links) == (16, 60)
    assert rest.shape == ()
    rest = t.without(dead_nodes=[5, 6])
    assert (rest.n_nodes, rest.n_links) == (14, 64 - 14)
    with pytest.raises(ValueError, match="has no link 0-5"):
        t.without(dead_links=[(0, 5)])
    with pytest.raises(ValueError, match="has no vertex 16"):
        t.without(dead_nodes=[16])
    with pytest.raises(ValueError, match="disconnected"):
        parse("mesh:1x5").without(dead_links=[(2, 3)])


def test_what_is_cut_off_is_told_by_the_numbers_of_before():
    with pytest.raises(ValueError, match=r"is disconnected: node 1 cannot reach node 2$"):
        parse("mesh:2x3").without([(1, 2), (1, 4)], [0])


def test_one_way_links_have_no_reverse():
    t = Topology("loop", 3, 0, np.array([(0, 1), (1, 2), (2, 0)]))
    assert t.reverse is None
    assert np.array_equal(t.reversed().links, t.links[:, ::-1])
    assert grid((2, 3), wrap=True).n_links == 18


@pytest.mark.parametrize(
    ("at_nodes", "trunk", "unit", "port", "rate", "speeds"),
    [
        (1, 4, None, 16, 16, (1, 4)),
        (2, 1, None, 16, 16, (2, 1)),  # the trunk is half as fast as a port
        (1, 2, 12.5, 64, 12.5, (1, 2)),
        (1, 2, 12.5, 8, 8, (1, 3.125)),  # ports hold links at nodes back, not the trunk
        (4, 1, 3, 64, 12, (4, 1)),
    ],
)
def test_links_behind_ports(at_nodes, trunk, unit, port, rate, speeds, tmp_path):
    lines = f"0 s {at_nodes}\n1 t {at_nodes}\ns t {trunk}\nswitch s t\n"
    (tmp_path / "net").write_text(lines)
    topology = replace(parse(f"file:{tmp_path}/net"), bytes_per_cycle=unit)
    found = topology.behind(port)
    assert topology.rate_behind(port) == found.rate_behind(port) == rate
    wanted = np.where(found.at_nodes, *speeds)
    np.testing.assert_allclose(found.bandwidth, wanted)
    np.testing.assert_allclose(found.bandwidth * found.bytes_per_cycle, wanted * rate / speeds[0])
