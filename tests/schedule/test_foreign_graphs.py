"""Graphs of NetworkX and ASTRA-sim become the topologies that they describe."""

import itertools
import json

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models.schedule.foreign_graphs import of_graphml
from gradnic.models.schedule.topology import parse

from gradnic import cli

STAR = {
    "directed": False, "multigraph": False, "graph": {},
    "nodes": [{"id": "sw", "type": "switch"}, {"id": "a"}, {"id": "b"}, {"id": "c"}],
    "links": [{"source": v, "target": "sw", "bandwidth": w, "latency": 7}
              for v, w in (("a", 100), ("b", 100), ("c", 50))],
}  # fmt: skip
GRAPHML = """<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="node" attr.name="switch" attr.type="boolean" />
  <key id="d1" for="edge" attr.name="bandwidth" attr.type="double" />
  <key id="d2" for="edge" attr.name="latency" attr.type="long" />
  <graph edgedefault="undirected">
    <node id="sw"><data key="d0">True</data></node>
    <node id="a" /><node id="b" /><node id="c" />
    <edge source="a" target="sw"><data key="d1">2.0</data><data key="d2">7</data></edge>
    <edge source="b" target="sw"><data key="d1">2.0</data><data key="d2">7</data></edge>
    <edge source="c" target="sw"><data key="d1">1.0</data><data key="d2">7</data></edge>
  </graph>
</graphml>
"""
NS3 = """4 1 3
3
0 3 400Gbps 0.000007ms 0
1 3 400Gbps 0.000007ms 0
2 3 200Gbps 7ns 0
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [("star.json", json.dumps(STAR)), ("star.graphml", GRAPHML), ("star.txt", NS3)],
)
def test_a_star_with_one_slow_host(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    topology = parse(f"file:{tmp_path / name}")
    assert (topology.n_nodes, topology.n_switches) == (3, 1)
    speed = {
        tuple(pair): b for pair, b in zip(topology.links.tolist(), topology.bandwidth, strict=True)
    }
    assert speed == {(0, 3): 2, (3, 0): 2, (1, 3): 2, (3, 1): 2, (2, 3): 1, (3, 2): 1}
    assert topology.latencies(150).tolist() == pytest.approx([7] * 6)


@pytest.mark.parametrize("name", [list, lambda v: ["x", [v[0], [v[1]]]], str])
def test_vertices_may_be_named_by_tuples(name, tmp_path):
    """As NetworkX names those of ``grid_2d_graph``; in JSON they are lists."""
    places = list(itertools.product(range(3), range(3)))
    links = [
        (a, b) for a, b in itertools.combinations(places, 2) if sum(abs(np.subtract(a, b))) == 1
    ]
    graph = {
        "nodes": [{"id": name(v)} for v in places],
        "edges": [{"source": name(a), "target": name(b)} for a, b in links],
    }
    file = tmp_path / "grid.json"
    file.write_text(json.dumps(graph))
    found, wanted = parse(f"file:{file}"), parse("mesh:3x3")
    assert found.n_nodes == 9
    assert sorted(found.links.tolist()) == sorted(wanted.links.tolist())


def test_schedule_tells_the_names_of_numbers(tmp_path):
    file, result = tmp_path / "star.graphml", tmp_path / "result.json"
    file.write_text(GRAPHML)
    words = ["schedule", "--topology", f"file:{file}", "--json", str(result)]
    for more, names in ([], ["a", "b", "c", "sw"]), (["--dead-node", "1"], ["a", "c", "sw"]):
        assert CliRunner().invoke(cli.cli, [*words, *more]).exit_code == 0
        assert json.loads(result.read_text())["names"] == names


def test_dead_parts_have_numbers_or_names(tmp_path):
    """Names may have a dash in them: "tor-0-spine" are those of tor-0 and spine."""
    network, result = tmp_path / "net.txt", tmp_path / "r.json"
    network.write_text("a tor-0\nb tor-0\nc spine\nc tor-0\nspine tor-0\nswitch tor-0 spine\n")
    rest = ["a", "b", "c", "tor-0"]
    for named, numbered, names in (
        (["--dead-node", "spine"], ["--dead-node", "4"], rest),
        (["--dead-link", "tor-0-spine"], ["--dead-link", "3-4"], [*rest, "spine"]),
    ):
        made = []
        for parts in named, numbered:
            schedule = ["--topology", f"file:{network}", "--algorithm", "ring", *parts]
            words = ["schedule", *schedule, "--json", str(result)]
            assert CliRunner().invoke(cli.cli, words).exit_code == 0
            made.append(json.loads(result.read_text()) | {"seconds_to_build": None})
        assert made[0] == made[1]
        assert made[0]["names"] == names


def test_graphml_defaults_count_where_nothing_is_said(tmp_path):
    text = GRAPHML.replace('attr.type="double" />', 'attr.type="double"><default>2</default></key>')
    text = text.replace('attr.type="boolean" />', 'attr.type="boolean"><default>0</default></key>')
    bare = '<data key="d1">2.0</data>'
    assert text.count(bare) == 2
    assert text.count("<default>") == 2
    for name, one in ("said", text), ("default", text.replace(bare, "")):
        (tmp_path / f"{name}.graphml").write_text(one)
    said, silent = (parse(f"file:{tmp_path / name}.graphml") for name in ("said", "default"))
    assert said.bandwidth.tolist() == silent.bandwidth.tolist()
    assert sorted(silent.bandwidth.tolist()) == [1, 1, 2, 2, 2, 2]
    (tmp_path / "all.graphml").write_text(
        GRAPHML.replace('for="edge" attr.name="bandwidth" attr.type="double" />',
                        'attr.name="bandwidth"><default>2</default></key>').replace(bare, "")
    )  # fmt: skip
    assert parse(f"file:{tmp_path / 'all.graphml'}").bandwidth.tolist() == said.bandwidth.tolist()


def test_a_default_does_not_hide_what_is_said_under_the_other_name():
    text = GRAPHML
    for said, other in (
        ('"switch" attr.type="boolean" />', '"switch"><default>0</default></key>'),
        ('"bandwidth" attr.type="double" />', '"bandwidth"><default>2</default></key>'),
        ('<data key="d0">True', '<data key="d8">switch'),
        ('<data key="d1">1.0', '<data key="d9">1.0'),
        ("  <graph ", '<key id="d8" attr.name="type"/><key id="d9" attr.name="capacity"/><graph '),
    ):
        assert text.count(said) == 1
        text = text.replace(said, other)
    assert of_graphml(text) == of_graphml(GRAPHML)


@pytest.mark.parametrize(("all_", "one"), [("undirected", "true"), ("directed", "false")])
def test_an_edge_that_is_directed_unlike_the_others_is_refused(all_, one, tmp_path):
    file = tmp_path / "net.graphml"
    edge = '<edge source="b"'
    file.write_text(GRAPHML.replace("undirected", all_).replace(edge, f'{edge} directed="{one}"'))
    with pytest.raises(ValueError, match=f"net.graphml: edges must be all .* b-sw has .*'{one}'"):
        parse(f"file:{file}")
    same = "false" if one == "true" else "true"
    speed = '<data key="d1">1</data>'
    ends = [f'<edge source="sw" target="{v}">{speed}</edge>' for v in "abc"]
    back = "".join(ends) if one == "false" else ""
    file.write_text(
        GRAPHML.replace("undirected", all_)
        .replace(edge, f'{edge} directed="{same}"')
        .replace("</graph>", f"{back}</graph>")
    )
    assert parse(f"file:{file}").n_links == 6


@pytest.mark.parametrize("kind", ["Ring", "FullyConnected"])
def test_an_astra_dimension_of_one_has_no_links(kind, tmp_path):
    file = tmp_path / "net.yml"
    file.write_text(
        f"topology: [ {kind}, Ring ]\nnpus_count: [ 1, 4 ]\nbandwidth: [ 9, 1 ]\n"
        "latency: [ 1, 1 ]\n"
    )
    topology = parse(f"file:{file}")
    assert (topology.n_nodes, topology.n_links) == (4, 8)


def test_astra_analytical_dimensions(tmp_path):
    file = tmp_path / "net.yml"
    file.write_text(
        "topology: [ Ring, Switch ]  # two\nnpus_count: [ 4, 2 ]\n"
        "bandwidth: [ 200.0, 50.0 ]  # GB/s\nlatency: [ 50.0, 500.0 ]  # ns\n"
    )
    topology = parse(f"file:{file}")
    assert (topology.n_nodes, topology.n_switches) == (8, 4)
    rings = topology.links[topology.bandwidth == 4]
    assert len(rings) == 2 * 8
    assert (rings.max(axis=1) < 8).all()
    assert set(map(tuple, np.diff(rings, axis=1).tolist())) == {(1,), (-1,), (3,), (-3,)}
    assert topology.hosts == [[0, 4], [1, 5], [2, 6], [3, 7]]
    file.write_text(
        "topology: [ FullyConnected ]\nnpus_count: [ 4 ]\nbandwidth: [ 5 ]\nlatency: [ 1 ]"
    )
    full = parse(f"file:{file}")
    assert full.n_links == 12
    file.write_text(
        "topology:\n  - FullyConnected  # inside\n  - Ring\nnpus_count:\n- 4\n- 2\n"
        "bandwidth: [450.0,\n  50.0]\nlatency: [1.0, 2.0]\nnon_recursive_topo: [0, 0]\n"
    )
    blocks = parse(f"file:{file}")
    assert (blocks.n_nodes, blocks.n_links) == (8, 2 * 12 + 8)


def test_bandwidths_of_astra_sim_have_a_unit(tmp_path):
    """GB/s, which are bytes a cycle at 1 GHz, of the slowest link; NetworkX's have none."""
    star, ring = NS3.replace("200Gbps", "{}"), STAR | {"name": "x"}
    for said, rate in ("200Gbps", 25), ("25GBps", 25), ("8e2Mb/s", 0.1), ("1TB/s", 50):
        (tmp_path / "star.txt").write_text(star.format(said))
        assert parse(f"file:{tmp_path}/star.txt").bytes_per_cycle == pytest.approx(rate)
    (tmp_path / "star.txt").write_text(NS3)
    left = parse(f"file:{tmp_path}/star.txt").without(dead_nodes=[2])  # the slow one
    assert left.bytes_per_cycle == left.reversed().bytes_per_cycle == pytest.approx(50)
    (tmp_path / "net.json").write_text(json.dumps(ring))
    assert parse(f"file:{tmp_path}/net.json").bytes_per_cycle is None
    (tmp_path / "net.txt").write_text("0 1 25\n")
    assert parse(f"file:{tmp_path}/net.txt").bytes_per_cycle is None


def test_an_astra_network_may_have_any_name(tmp_path):
    text = "# made\ntopology: [ Ring ]\nnpus_count : [ 5 ]\nbandwidth: [ 2 ]\nlatency: [ 1 ]\n"
    for name in "net", "net.txt":
        (tmp_path / name).write_text(text)
        assert parse(f"file:{tmp_path}/{name}").n_links == 10


def test_an_astra_network_in_json_is_that_in_yaml(tmp_path):
    lists = {"topology": ["Switch", "Ring"], "npus_count": [8, 4], "bandwidth": [400, 50.0],
             "latency": [936.25, 1e3]}  # fmt: skip
    (tmp_path / "net.json").write_text(json.dumps(lists, indent="\t"))
    (tmp_path / "net.yml").write_text("\n".join(f"{k}: {v}" for k, v in lists.items()))
    found, wanted = (parse(f"file:{tmp_path}/net.{suffix}") for suffix in ("json", "yml"))
    assert (found.n_nodes, found.n_switches) == (32, 4)
    assert found.links.tolist() == wanted.links.tolist()
    assert found.bandwidth.tolist() == wanted.bandwidth.tolist()
    assert found.latencies(1).tolist() == wanted.latencies(1).tolist()


@pytest.mark.parametrize(
    ("head", "switches"),
    [
        ("10 4 1 5 12 H100", "4 5 6 7 8 9"),
        ("10 4 1 5 12 A100 4", "4\n5 6 7 8 9"),
    ],
)
def test_a_network_of_simai_is_read(head, switches, tmp_path):
    """Of four GPUs on NVLink and rails, as its generator writes them; on one line or two."""
    gpus = "".join(f"{v} 4 2880Gbps 0.000025ms 0\n{v} {5 + v} 400Gbps 0.0005ms 0\n"
                   for v in range(4))  # fmt: skip
    rails = "".join(f"{5 + v} 9 400Gbps 0.0005ms 0\n" for v in range(4))
    (tmp_path / "net").write_text(f"{head}\n{switches}\n{gpus}{rails}")
    topology = parse(f"file:{tmp_path}/net")
    assert (topology.n_nodes, topology.n_switches, topology.n_links) == (4, 6, 24)
    assert topology.bytes_per_cycle == pytest.approx(50)
    link = topology.link_of
    assert topology.bandwidth[[link[0, 4], link[3, 8]]].tolist() == pytest.approx([7.2, 1])
    assert topology.latencies(1)[[link[0, 4], link[8, 9]]].tolist() == pytest.approx([25, 500])


def test_a_star_around_e_is_no_dimacs(tmp_path):
    for name, text in ("net", "e a\ne b 2\ne c\n"), ("more", "e 1 2\na 1 4\np 1 4\n"):
        (tmp_path / name).write_text(text)
    assert parse(f"file:{tmp_path}/net").n_links == 6
    assert parse(f"file:{tmp_path}/more").n_nodes == 4


def test_words_behind_an_ns3_network_count_for_nothing(tmp_path):
    """As HPCC's files, of which ASTRA-sim has the format, end with."""
    (tmp_path / "net.txt").write_text(f"{NS3}\n\nFirst line: total node #, switch node #, link #\n")
    assert parse(f"file:{tmp_path}/net.txt").n_links == 6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topology: [Ring\nnpus_count: {", "no YAML, line 2"),
        ("- Ring", "four lists"),
        ("topology: [Ring]\nnpus_count: [[4]]\nbandwidth: [1]\nlatency: [1]", "four lists"),
        ("topology: [Ring]\nnpus_count: [4]\nbandwidth: [1]", "four lists"),
        (
            "topology: [Ring]\nnpus_count: [4]\nbandwidth: [x]\nlatency: [1]",
            "bandwidth: 'x' is no number",
        ),
    ],
)
def test_bad_astra_networks_end_with_one_line(tmp_path, text, words):
    (tmp_path / "net.yaml").write_text(text)
    with pytest.raises(ValueError, match=words):
        parse(f"file:{tmp_path}/net.yaml")


def test_links_of_a_flow_network_have_capacity(tmp_path):
    graph = {"nodes": [{"id": v} for v in "abc"],
             "links": [{"source": a, "target": b, "capacity": c}
                       for a, b, c in (("a", "b", 1), ("b", "c", 4), ("c", "a", 1))]}  # fmt: skip
    (tmp_path / "net.json").write_text(json.dumps(graph))
    assert sorted(parse(f"file:{tmp_path}/net.json").bandwidth) == [1, 1, 1, 1, 4, 4]
    (tmp_path / "net.gml").write_text("graph [\n]")
    with pytest.raises(ValueError, match=r"net.gml: .gml is not read"):
        parse(f"file:{tmp_path}/net.gml")
    for name in "clos.topo", "clos.txt":
        (tmp_path / name).write_text("# htsim\nNodes 32\nTiers 2\nPodsize 32\n\nTier 0\n")
        with pytest.raises(ValueError, match=rf"{name}: htsim's topology has tiers, no links"):
            parse(f"file:{tmp_path}/{name}")


@pytest.mark.parametrize("name", ["bandwidth", "Bandwidth", "CAPACITY"])
def test_names_of_attributes_in_any_case(name, tmp_path):
    nodes = [{"id": 3, "Type": "Switch"}, *({"id": v} for v in range(3))]
    graph = {"multigraph": True, "nodes": nodes,
             "links": [{"source": v, "target": 3, "key": 0, name: v + 1, "Latency": "7"}
                       for v in range(3)]}  # fmt: skip
    (tmp_path / "star.json").write_text(json.dumps(graph))
    capital = GRAPHML.replace('"bandwidth"', f'"{name}"').replace('"switch"', '"Switch"')
    (tmp_path / "star.graphml").write_text(capital)
    topology, same = (parse(f"file:{tmp_path}/star.{end}") for end in ("json", "graphml"))
    assert topology.n_switches == same.n_switches == 1
    assert sorted(topology.bandwidth) == [1, 1, 2, 2, 3, 3]
    assert sorted(same.bandwidth) == [1, 1, 2, 2, 2, 2]
    assert topology.latencies(150).tolist() == [7] * 6


def ring_of(links, nodes=({}, {}, {})):
    """A ring of three with these attributes."""
    return {
        "nodes": [{"id": v} | more for v, more in enumerate(nodes)],
        "links": [{"source": v, "target": (v + 1) % 3} | more for v, more in enumerate(links)],
    }


@pytest.mark.parametrize("name", ["bw", "link_bw", "LinkSpeedRaw", "rate", "Speed", "gbps"])
def test_other_names_of_a_bandwidth_are_read(name, tmp_path):
    graph = ring_of([{name: v, "delay": 9} for v in (10, 20, 40)])
    (tmp_path / "net.json").write_text(json.dumps(graph))
    (tmp_path / "net.graphml").write_text(GRAPHML.replace('"bandwidth"', f'"{name}"'))
    ring, star = (parse(f"file:{tmp_path}/net.{end}") for end in ("json", "graphml"))
    assert sorted(ring.bandwidth) == [1, 1, 2, 2, 4, 4]
    assert ring.latencies(150).tolist() == [9] * 6
    assert sorted(star.bandwidth) == [1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([{"LinkSpeed": "10"}, {"LinkSpeed": "155"}, {}], "links differ in 'LinkSpeed', which may"),
        ([{"max_bps": 1}, {"max_bps": 2}, {"max_bps": 1}], "links differ in 'max_bps', .* name it"),
        (
            [{"gbps": 1}, {"mbps": 2}, {"gbps": 1}],
            "links have bandwidths under several names: gbps, mbps",
        ),
        ([{"bw": 1}, {"bw": 2}, {}], "link 2-0 has no bandwidth, and others have one"),
        ([{"bw": "10Gbps"}, {}, {}], "bw of link 0-1 is no number: '10Gbps'"),
        (
            [{"bandwidth": 1, "bw": v} for v in (10, 20, 10)],
            "links' bandwidth and bw disagree: leave one out",
        ),
        ([{"latency": 5, "delay": 6}] * 3, "links' latency and delay disagree: leave one out"),
    ],
)
def test_links_that_may_differ_in_rate_are_refused(links, message, tmp_path):
    (tmp_path / "net.json").write_text(json.dumps(ring_of(links)))
    with pytest.raises(ValueError, match=rf"net.json: {message}"):
        parse(f"file:{tmp_path}/net.json")


def test_one_bandwidth_in_two_units_is_one(tmp_path):
    graph = ring_of([{"gbps": v, "mbps": 1000 * v, "delay": 9} for v in (0.1, 0.3, 0.7)])
    (tmp_path / "net.json").write_text(json.dumps(graph))
    assert len(set(parse(f"file:{tmp_path}/net.json").bandwidth)) == 3


@pytest.mark.parametrize(
    ("mark", "other"),
    [
        ({"kind": "switch"}, {"kind": "host"}),
        ({"label": "switch 1", "type": "switch"}, {"label": "router's host", "type": "host"}),
        ({"role": "Switch"}, {}),
        ({"node_type": "NVSwitch"}, {"node_type": "A100"}),
        ({"device": "switch"}, {"device": "cuda:0"}),
        ({"is_switch": True}, {"is_switch": False}),
        ({"isSwitch": 1}, {}),
        ({"type": "router"}, {"type": "server"}),
        ({"type": "ToR switch"}, {"type": "GPU node"}),
        ({"role": "spine"}, {"role": "worker"}),
        ({"type": "node", "role": "leaf"}, {"type": "node", "role": "gpu"}),
        ({"switch": True, "type": "host"}, {"switch": False, "type": "switch"}),
    ],
)
def test_other_marks_of_a_switch_are_read(mark, other, tmp_path):
    nodes = [{"id": v} | (mark if v == "s" else other) for v in ("s", *"abcd")]
    links = [{"source": v, "target": "s"} for v in "abcd"]
    (tmp_path / "net.json").write_text(json.dumps({"nodes": nodes, "links": links}))
    topology = parse(f"file:{tmp_path}/net.json")
    assert (topology.n_nodes, topology.n_switches) == (4, 1)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([{"role": "fabric"}, {"role": "host"}, {"role": "host"}], "vertex 0 has role 'fabric'"),
        ([{"role": "fabric"}, {}, {}], "vertex 0 has role 'fabric', which is no switch or router"),
        (
            [{"type": 1}, {"type": 0}, {"type": 0}],
            "vertex 0 has type '1', .* give vertices 'switch",
        ),
        ([{"label": "Switch0"}, {}, {}], "vertex 0 is called 'Switch0', .* give vertices 'switch'"),
        ([{"name": "router"}, {"name": "a"}, {}], "vertex 0 is called 'router', and nothing says"),
        ([{"name": "leaf0"}, {"name": "host"}, {}], "vertex 0 is called 'leaf0', and nothing says"),
        ([{"label": "sw-1"}, {"label": "h1"}, {}], "vertex 0 is called 'sw-1', and nothing says"),
        ([{"switch": "maybe"}, {}, {}], "vertex 0 has switch 'maybe', which is neither true nor"),
    ],
)
def test_vertices_that_may_be_switches_are_refused(nodes, message, tmp_path):
    (tmp_path / "net.json").write_text(json.dumps(ring_of([{}] * 3, nodes)))
    with pytest.raises(ValueError, match=rf"net.json: {message}"):
        parse(f"file:{tmp_path}/net.json")
    (tmp_path / "net.json").write_text(json.dumps(ring_of([{}] * 3, [{"role": "fabric"}] * 3)))
    assert parse(f"file:{tmp_path}/net.json").n_nodes == 3  # all alike tells none apart


def test_parallel_links_of_a_multigraph_are_refused(tmp_path):
    link = {"source": 0, "target": 1}
    for links, message in ([link], None), ([link, link], "link 0-1 is listed twice; add up"):
        graph = {"multigraph": True, "nodes": [{"id": 0}, {"id": 1}], "links": links}
        (tmp_path / "net.json").write_text(json.dumps(graph))
        if message:
            with pytest.raises(ValueError, match=message):
                parse(f"file:{tmp_path}/net.json")
        else:
            assert parse(f"file:{tmp_path}/net.json").n_links == 2


def test_links_that_differ_in_weight_alone_are_refused(tmp_path):
    """NetworkX and Gephi write one, which is as often a distance."""
    links = [{"source": v, "target": (v + 1) % 3, "weight": v} for v in range(3)]
    graph = {"nodes": [{"id": v} for v in range(3)], "links": links}
    file = tmp_path / "net.json"
    file.write_text(json.dumps(graph))
    with pytest.raises(ValueError, match=r"net.json: links differ in 'weight', .* name it"):
        parse(f"file:{file}")
    gephi = GRAPHML.replace("bandwidth", "weight")
    (tmp_path / "net.graphml").write_text(gephi)
    with pytest.raises(ValueError, match="links differ in 'weight'"):
        parse(f"file:{tmp_path}/net.graphml")
    for link in links:
        link["bandwidth"] = 1  # said: weights do not count
    file.write_text(json.dumps(graph))
    assert set(parse(f"file:{file}").bandwidth) == {1}
    alike = zip(links, (1, 1.0, "1"), strict=True)
    graph["links"] = [{**link, "bandwidth": None, "weight": weight} for link, weight in alike]
    file.write_text(json.dumps(graph))
    assert set(parse(f"file:{file}").bandwidth) == {1}


def test_directed_graphs_and_one_way_links(tmp_path):
    graph = {"directed": True, "nodes": [{"id": v} for v in "abc"],
             "edges": [{"source": a, "target": b} for a, b in ("ab", "bc", "ca")]}  # fmt: skip
    (tmp_path / "ring.json").write_text(json.dumps(graph))
    assert parse(f"file:{tmp_path}/ring.json").links.tolist() == [[0, 1], [1, 2], [2, 0]]


TWICE = "two values of 'bandwidth', '1.0' and '4': leave one out"


@pytest.mark.parametrize(
    ("said", "also", "message"),
    [
        ('<data key="d1">1.0</data>', '<data key="d1">4</data>', f"link c-sw has {TWICE}"),
        ('<data key="d1">1.0</data>', '<data key="d3">4</data>', f"link c-sw has {TWICE}"),
        ('<data key="d0">True</data>', '<data key="d0">0</data>', "vertex 'sw' has two .*'switch'"),
        ('<node id="a" />', '<node id="b" />', "listed twice"),
        ('"latency" attr.type="long" />', '<key id="d1" attr.name="x"/>', "two <key> have one id"),
        (
            '<data key="d1">1.0</data>',
            '<data key="d9">4</data>',
            "c-sw has data of key 'd9', which",
        ),
        ('<data key="d1">1.0</data>', '<data key="d1">1</data>', None),
    ],
)
def test_what_graphml_says_twice(said, also, message):
    """Two values of one attribute, by one key or two, are refused unless they are the same."""
    assert GRAPHML.count(said) == 1
    text = GRAPHML.replace(said, said + also)
    text = text.replace("  <graph ", '<key id="d3" for="edge" attr.name="Band_Width"/><graph ')
    if message:
        with pytest.raises(ValueError, match=message):
            of_graphml(text)
    else:
        assert of_graphml(text) == of_graphml(GRAPHML)


def test_what_a_nested_graph_says_is_not_its_vertex():
    """yEd's groups are vertices with a graph inside; a port of a vertex has data, too."""
    inner = '<graph edgedefault="undirected"><node id="x"><data key="d0">1</data></node></graph>'
    bare = '<node id="a" />'
    links = '<edge source="x" target="sw"><data key="d1">1</data><data key="d2">7</data></edge>'
    text = GRAPHML.replace(bare, f'<node id="a">{inner}<port name="p"><data key="d0">1</data>'
                           f"</port></node>{links}")  # fmt: skip
    n_nodes, n_switches, *_ = of_graphml(text)
    assert (n_nodes, n_switches) == (3, 2)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.json", '{"nodes": [{"id": 0}], "links": [{"source": 0, "target": 1}]}', "names 1"),
        (
            "x.json",
            '{"nodes": [{"id": 0}, {"id": 1}], "links": '
            '[{"source": 0, "target": 1, "bandwidth": 10, "Bandwidth": 20}]}',
            "x.json: link 0-1 has two values of 'bandwidth', 10 and 20: leave one out",
        ),
        (
            "x.json",
            '{"nodes": [{"id": 0, "is_switch": true, "isSwitch": false}], "links": []}',
            "vertex 0 has two values of 'isswitch', True and False",
        ),
        ("x.json", '{"nodes": [{"id": 0}, {"id": 0}], "links": []}', "vertex 0 is listed twice"),
        ("x.json", '{"nodes": [{"name": 0}], "links": []}', "nodes have 'id'"),
        ("x.json", '{"nodes": [], "multigraph": 1, "links": []}', "'multigraph' must be true or"),
        ("x.graphml", "<graphml><graph>", "no GraphML"),
        ("x.graphml", "<graphml></graphml>", "no <graph>"),
        ("x.graphml", "<graphml><graph/><graph/></graphml>", "several <graph>"),
        ("x.graphml", "<graphml><graph><hyperedge/></graph></graphml>", "<hyperedge> is not read"),
        (
            "x.graphml",
            '<graphml xmlns:y="http://www.yworks.com/xml/graphml"><key id="d"/><graph>'
            '<node id="n0"><data key="d"><y:NodeLabel>Switch</y:NodeLabel></data></node>'
            '<node id="n1"/></graph>'
            "</graphml>",
            "vertex 'n0' is called 'Switch'",
        ),
        (
            "x.json",
            '{"nodes": [{"id": "a"}, {"id": "b"}, {"id": [1, 2]}], "links": '
            '[{"source": "a", "target": "b"}]}',
            r"x.json: node \(1, 2\) has no link",
        ),
        ("x.txt", "3 0 1\n0 1 1Gbps 1ns 0", "node 2 has no link"),
        ("x.gexf", '<?xml version="1.0"?><gexf><graph/></gexf>', ".gexf is not read; networkx"),
        ("x.xml", '<?xml version="1.0"?><gexf><graph/></gexf>', "no GraphML, but <gexf>"),
        ("x.json", '{"nodes": 2, "links": [[0, 1]], "port": 1}', "keys are nodes, .*, not port"),
        ("x.yml", "topology: [ Ring ]", "four lists: topology, npus_count"),
        ("x.yml", "topology: [X]\nnpus_count: [4]\nbandwidth: [1]\nlatency: [1]", "not 'X'"),
        ("x.txt", "2 0 2\n0 1 1Gbps 1ns 0", "2 links are announced"),
        ("x.txt", "2 0 0\n0 1 1Gbps 1ns 0", "0 links are announced, 0 and 1 come"),
        ("x.yml", "topology: [Ring]\nnpus_count: [4]\nnpus_count: [8]", "key 'npus_count' comes"),
        ("x.txt", "0: 1 2\n1: 0 2\n2: 0 1\n", "line 1: 'a b .*, not '0: 1 2'"),
        ("x.txt", "num-npus: 64\npackage-rows: 8\n", "line 1: 'a b .*, not 'num-npus: 64'"),
        ("x.yml", "topology: Switch\nnpus_count: [4]\nbandwidth: [1]\nlatency: [1]",
         "latency; topology is 'Switch'"),
        ("x.yml", "topology: [Ring]\nnpus_count: [4]\nbandwidth: [1]", "latency is missing"),
        ("x.txt", "Nodes 4\nConnections 1\n0->1 id 1 start 0 size 2000000\n",
         "x.txt: htsim's connection matrix is traffic, no network"),
        ("x.json", '{"logical-dims": ["8"]}', "x.json: ASTRA-sim's logical topology has no links"),
        ("x.json", '{"topologies-per-dim": ["Ring"], "units-count": [4]}', "its newer form has"),
        (
            "x.json",
            '{"topology": ["Ring"], "npus_count": [true], "bandwidth": [1], "latency": [1]}',
            "npus_count: 'true' is no whole number",
        ),
        ("x.txt", "2 0 1\n0 1 1Gbps soon 0", "line 2: 'soon' must be a number and ns, us"),
        ("x.txt", "2 0 1\n\n0 1 1Gbps 1sec 0", "line 3: '1sec' must be a number and ns, us"),
        ("x.txt", "2 0 1\n0 1 1Gbps", "line 2: a link is 'a b 400Gbps 0.0005ms', not '0 1 1Gbps'"),
        ("x.txt", "2 0 1\n0 1 40GBit 1ns 0", "line 2: '40GBit' must be a number and bps, Bps"),
        ("x.txt", "2 0 1\n0 1 40GBPS 1ns 0", "line 2: '40GBPS' must be a number and bps, Bps"),
        ("x.txt", "3 1 2\ns\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0", "line 2: 's' is no whole number"),
        ("x.txt", "2 8 0 0 1\n\n0 1 400Gbps 1ns 0", "line 1: an ns-3 .* name, not '2 8 0 0 1'"),
        ("x.txt", "3 2 1 1 1 H100\n2\n0 1 1Gbps 1ns 0", "line 3: '1Gbps' is no whole number"),
        ("x.txt", "3 2 2 -1 1 H100\n2\n0 1 1Gbps 1ns 0", "0 switches or more, not -1"),
        ("x.json", '{"nodes": 2, "links": [], "links": [[0, 1]]}', "key 'links' comes twice"),
        ("x.json", '{"nodes": [{"id": 0, "id": 1}], "links": []}', "key 'id' comes twice"),
        ("x.xml", '<algo name="ring" ngpus="4"/>', "no GraphML, but <algo>"),
        ("x.txt", "0, 1\n1, 2\n0, 2\n", "line 1: 'a b .*, not '0, 1'"),
        ("x.txt", "0 1\n0 -> 1\n", "line 2: 'a b .*, not '0 -> 1'"),
        ("x.txt", "(0) (1)\n", "line 1: 'a b .*, not '.0. .1.'"),
        ("x.json", "[0, 1]", r"line 1: 'a b .*, not '\[0, 1\]'"),
        (
            "x.json",
            '{"nodes": [{"id": 0}, {"id": 1}], "links": '
            '[{"source": 0, "target": 1, "latency_ns": 500, "weight": 1}]}',
            "link 0-1 has 'latency_ns': name it 'latency' or 'delay', which count in cycles",
        ),
        ("x.txt", "4 3\n0 1\n1 2\n2 3\n", "first link, 4-3, is as many vertices and links as"),
        ("x.col", "c from a book\np edge 3 2\ne 1 2\ne 2 3", "x.col: DIMACS is not read"),
        ("x.txt", "e 1 2\n\ne 2 3\n", "x.txt: DIMACS is not read"),
        ("x.txt", "p sp 3 2\nc\na 1 2 4\na 2 3 5\n", "x.txt: DIMACS is not read"),
    ],
)  # fmt: skip
def test_mistakes_are_named(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        parse(f"file:{tmp_path / name}")


def test_blank_lines_are_looked_at_once(tmp_path):
    """A file that begins with many is no htsim's, and that is told in no time."""
    (tmp_path / "x.txt").write_text("\n" * 100_000 + "0 1\n1 2\n")
    assert parse(f"file:{tmp_path / 'x.txt'}").n_nodes == 3
