"""Graphs in other people's files: NetworkX (node-link JSON, GraphML) and ASTRA-sim (two formats).

All become rows of (a, b, bandwidth, latency), nodes first. NetworkX's bandwidths count relative to
each other; ASTRA-sim's have a unit: bytes a cycle at 1 GHz, which are GB/s, and latencies are
cycles of that clock, nanoseconds. A GB is 10^9 bytes, as files say; the analytical ASTRA-sim takes
2^30.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree

import yaml

from gradnic.text_file import number as number_of
from gradnic.text_file import whole

NAMES = {  # of attributes, in small letters without blanks, - and _; the first that is there counts
    "flag": ("switch", "isswitch"),
    "kind": ("type", "kind", "role", "nodetype", "devicetype", "device"),
    "bandwidth": ("bandwidth", "capacity", "bw", "linkbandwidth", "linkcapacity", "linkbw", "gbps",
                  "mbps", "linkspeedraw", "rate", "linkrate", "datarate", "speed"),
    "latency": ("latency", "delay", "linklatency", "linkdelay"),
}  # fmt: skip
_LIKE_A_RATE = re.compile("weight|speed|rate|band|bw|bps|capacit|throughput")
_LIKE_A_LATENCY = re.compile("latenc|delay")
_COUNT = {name for names in NAMES.values() for name in names}
_SWITCHES = {
    "sw",
    "tor",
    "leaf",
    "spine",
    "core",
    "aggregation",
    "hub",
}  # and what has switch or router
_NODES = {  # among the words of a kind
    "node", "host", "server", "computer", "compute", "machine", "worker", "client", "endpoint",
    "accelerator", "gpu", "npu", "tpu", "cpu", "fpga", "nic", "card", "rank", "cuda",
}  # fmt: skip
MAX_LINKS = 1 << 22  # of any graph: about 1 GB while it is made
_YED_LABEL = "{http://www.yworks.com/xml/graphml}NodeLabel"
_RATE = {  # of ns-3, b for bits and B for bytes, in bytes a nanosecond
    f"{letter}{unit}": size * scale
    for size, letters in ((1e-9, ("",)), (1e-6, "kK"), (1e-3, "mM"), (1, "gG"), (1e3, "tT"))
    for letter in letters
    for unit, scale in (("bps", 1 / 8), ("b/s", 1 / 8), ("Bps", 1), ("B/s", 1))
}
_TIME = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}

Found = tuple[int, int, list[tuple], bool, bool, tuple]  # of a graph: see `of_node_link`


def of_node_link(graph: dict) -> Found:
    """(n_nodes, n_switches, rows, directed, whether bandwidths have a unit, vertices as the file
    calls them) of NetworkX's node-link data, a dict.

    A vertex with a true ``switch``, or whose ``type`` or ``role`` says switch, router or the like,
    is one; links may have ``bandwidth`` and ``latency``. `NAMES` has what else these are called;
    other attributes do not count. Nodes are numbered as they are listed. ValueError names what is
    wrong: parallel links of a multigraph, links that differ in ``weight`` or something else that
    may be a rate alone, bandwidths of some links only, and kinds of vertices that may be either.
    """
    for key in "multigraph", "directed":
        if type(graph.get(key, False)) is not bool:
            raise ValueError(f"{key!r} must be true or false, not {graph[key]!r}")
    links = graph.get("links", graph.get("edges"))
    if graph.get("edges", links) != links:
        raise ValueError("node-link data has 'links' or 'edges', not both: leave one out")
    if type(links) is not list:
        raise ValueError("node-link data has 'links' or 'edges'")
    try:
        vertices = [(v := _name(node["id"]), _plain(node, f"vertex {v!r}"))
                    for node in graph["nodes"]]  # fmt: skip
        pairs = [(a := _name(link["source"]), b := _name(link["target"]),
                  _plain(link, f"link {a}-{b}")) for link in links]  # fmt: skip
        return _numbered(_marked(vertices), pairs, graph.get("directed", False))
    except (KeyError, TypeError, RecursionError):
        raise ValueError(
            "node-link data: nodes have 'id', links 'source' and 'target': texts, numbers, or "
            "lists of them"
        ) from None


def _name(said):
    """A vertex's name as NetworkX reads it: tuples, as its grids have, are lists in JSON."""
    return tuple(map(_name, said)) if isinstance(said, list) else said


def _plain(values, where):
    """Attributes under names as `NAMES` spells them, and under their own."""
    return _once(((_spelled(name), value) for name, value in values.items()), where) | values


def _spelled(name):
    return re.sub(r"[\s_-]", "", name.lower())


def _once(pairs, where):
    """Attributes by name. ValueError where one of `NAMES` has two values that differ."""
    found = {}
    for name, value in pairs:
        if name in _COUNT and _told(found.setdefault(name, value)) != _told(value):
            raise ValueError(
                f"{where} has two values of {name!r}, {found[name]!r} and {value!r}: leave one out"
            )
        found[name] = value
    return found


def of_graphml(text: str) -> Found:
    """The same of GraphML: attributes of each vertex and edge, or the default of their key. Edges
    are as the graph says, all directed or none.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"no GraphML: {error}") from None
    space = "".join(re.findall(r"^\{.*\}", root.tag))
    if root.tag != f"{space}graphml":
        raise ValueError(f"no GraphML, but <{root.tag.removeprefix(space)}>")
    keys = list(root.iter(f"{space}key"))
    names = {k.get("id"): _spelled(k.get("attr.name", "")) for k in keys}
    if len(names) < len(keys):
        raise ValueError("two <key> have one id")
    defaults = {
        kind: {
            names[k.get("id")]: default.text
            for k in keys
            if k.get("for", "all") in ("all", kind)
            and (default := k.find(f"{space}default")) is not None
        }
        for kind in ("node", "edge")
    }
    graphs = root.findall(f"{space}graph")
    if len(graphs) != 1:
        raise ValueError(f"no GraphML: {'several' if graphs else 'no'} <graph>")
    graph = graphs[0]
    if graph.find(f".//{space}hyperedge") is not None:
        raise ValueError("links have two ends each: <hyperedge> is not read")

    def data(element, where):
        said = [(d.get("key"), d.text) for d in element.findall(f"{space}data")]
        if unknown := [key for key, _ in said if key not in names]:
            raise ValueError(f"{where} has data of key {unknown[0]!r}, which no <key> declares")
        own = _once(((names[key], text) for key, text in said), where)
        if (shown := element.find(f"{space}data//{_YED_LABEL}")) is not None:
            own["label"] = shown.text
        groups = NAMES["flag"] + NAMES["kind"], NAMES["bandwidth"], NAMES["latency"]
        said = {name for group in groups if own.keys() & set(group) for name in group}
        usual = defaults[element.tag.removeprefix(space)]
        return {name: value for name, value in usual.items() if name not in said} | own

    vertices = [(v.get("id"), data(v, f"vertex {v.get('id')!r}"))
                for v in graph.iter(f"{space}node")]  # fmt: skip
    directed, pairs = graph.get("edgedefault") == "directed", []
    for e in graph.iter(f"{space}edge"):
        a, b, own = e.get("source"), e.get("target"), e.get("directed")
        if own is not None and (own in ("true", "1")) != directed:
            raise ValueError(
                f"edges must be all directed or none, as edgedefault says: {a}-{b} has "
                f"directed={own!r}"
            )
        pairs.append((a, b, data(e, f"link {a}-{b}")))
    return _numbered(_marked(vertices), pairs, directed)


def _first(values, names):
    """The first of these attributes that is there, and its value; None where there is none."""
    return next(((n, values[n]) for n in names if values.get(n) is not None), None)


def _marked(vertices):
    """(vertex, whether it is a switch) of vertices and their attributes.

    ValueError where a kind that is neither tells vertices apart and no kind says switch plainly.
    """
    result, unknown = [], []
    for v, values in vertices:
        if flag := _first(values, NAMES["flag"]):
            result.append((v, _flag(v, *flag)))
            continue
        said = {name: str(values[name]) for name in NAMES["kind"] if values.get(name) is not None}
        verdicts = {name: _is_switch(kind) for name, kind in said.items()}
        result.append((v, True in verdicts.values()))
        if not {True, False} & set(verdicts.values()):
            unknown += [(v, *pair) for pair in said.items()]
    if not any(_first(values, NAMES["flag"] + NAMES["kind"]) for _, values in vertices):
        called = [(v, (v, values.get("label"), values.get("name"))) for v, values in vertices]
        check_names(called, "give vertices 'switch', true or false")
    for v, name, kind in unknown:
        others = {str(values.get(name)) for _, values in vertices} - {kind}
        if others and not any(re.search("switch|router", other.lower()) for other in others):
            raise ValueError(
                f"vertex {v!r} has {name} {kind!r}, which is no switch or router and no host or "
                "gpu that we know: give vertices 'switch', true or false"
            )
    return result


def check_names(vertices: Iterable[tuple[Any, Iterable[Any]]], remedy: str) -> None:
    """ValueError if some, not all, of (vertex, what it is called) say switch, leaf or the like."""
    called = [(v, next((n for n in names if _says_switch(str(n))), None)) for v, names in vertices]
    if len(called) > len(named := [one for one in called if one[1] is not None]) > 0:
        raise ValueError(
            f"vertex {named[0][0]!r} is called {named[0][1]!r}, and nothing says which "
            f"vertices are switches: {remedy}"
        )


def _flag(vertex, name, value):
    word = str(value).lower()
    if word not in ("true", "1", "yes", "switch", "false", "0", "no", ""):
        raise ValueError(f"vertex {vertex!r} has {name} {value!r}, which is neither true nor false")
    return word in ("true", "1", "yes", "switch")


def _is_switch(kind):
    """True, False, or None: words of a kind that say neither, or both."""
    switch = _says_switch(kind)
    return None if switch == bool(_words(kind) & _NODES) else switch


def _says_switch(text):
    return bool(_words(text) & _SWITCHES or re.search("switch|router", text.lower()))


def _words(text):
    return set(re.findall("[a-z]+", text.lower()))


def _numbered(vertices, pairs, directed, *, in_bytes=False):
    """Rows of named vertices; nodes get the first numbers, in order. in_bytes : of a cycle."""
    order = [v for v, switch in vertices if not switch] + [v for v, s in vertices if s]
    number = {v: i for i, v in enumerate(order)}
    if len(number) < len(order):
        twice = Counter(order).most_common(1)[0][0]
        raise ValueError(f"vertex {twice!r} is listed twice")
    rows = []
    for a, b, values in pairs:
        for v in a, b:
            if v not in number:
                raise ValueError(f"a link names {v!r}, which is no vertex")
        row = [number[a], number[b]]
        for meaning, otherwise in ("bandwidth", 1.0), ("latency", math.nan):
            name, value = _first(values, NAMES[meaning]) or (meaning, otherwise)
            try:
                row.append(value if value is otherwise else _finite(value))
            except (ValueError, TypeError, OverflowError):
                raise ValueError(f"{name} of link {a}-{b} is no number: {value!r}") from None
        rows.append(tuple(row[: 3 if math.isnan(row[3]) else 4]))
    named = [_first(values, NAMES["bandwidth"]) for *_, values in pairs]
    for meaning in "bandwidth", "latency":
        if several := _disagreeing([values for *_, values in pairs], meaning):
            raise ValueError(f"links' {' and '.join(several)} disagree: leave one out")
    used = {name for name, _ in filter(None, named)}
    silent = [f"{a}-{b}" for (a, b, _), said in zip(pairs, named, strict=True) if not said]
    if 0 < len(silent) < len(pairs):
        raise ValueError(f"link {silent[0]} has no bandwidth, and others have one")
    if len(used) > 1 and used - {"bandwidth", "capacity"}:
        raise ValueError(f"links have bandwidths under several names: {', '.join(sorted(used))}")
    for name in sorted({name for *_, values in pairs for name in values if name and silent}):
        said = {_told(values.get(name)) for *_, values in pairs}
        if len(said) > 1 and _LIKE_A_RATE.search(_spelled(name)):
            raise ValueError(
                f"links differ in {name!r}, which may be a bandwidth or a distance: name it "
                "'bandwidth' or 'latency', or give links a 'bandwidth'"
            )
    for a, b, values in pairs:
        said = sorted(name for name, value in values.items() if name and value is not None)
        names = () if _first(values, NAMES["latency"]) else said
        for name in (n for n in names if _LIKE_A_LATENCY.search(_spelled(n))):
            raise ValueError(
                f"link {a}-{b} has {name!r}: name it 'latency' or 'delay', which count in cycles"
            )
    linked = {v for row in rows for v in row[:2]}
    alone = [v for v, switch in vertices if number[v] not in linked and not switch]
    if alone and len(order) > 1:
        raise ValueError(f"node {alone[0]!r} has no link")
    n_switches = sum(switch for _, switch in vertices)
    return len(order) - n_switches, n_switches, rows, directed, in_bytes, tuple(order)


def _disagreeing(links, meaning):
    """Two names of `meaning` whose numbers differ: latencies, or what bandwidths are relative to
    each other, whatever the units; None where no link has both.
    """
    there = {name for values in links for name, value in values.items() if value is not None}
    for one, other in itertools.combinations([n for n in NAMES[meaning] if n in there], 2):
        both = [(v[one], v[other]) for v in links if None not in (v.get(one), v.get(other))]
        try:
            numbers = [(_finite(a), _finite(b)) for a, b in both]
        except (ValueError, TypeError, OverflowError):  # such as 10Gbps: the other one counts
            continue
        first = numbers[0] if numbers and meaning == "bandwidth" else (1.0, 1.0)
        if not all(math.isclose(a * first[1], b * first[0]) for a, b in numbers):
            return one, other
    return None


def _finite(value):
    if isinstance(value, bool):
        raise TypeError
    found = number_of(value) if isinstance(value, str) else float(value)
    if not math.isfinite(found):
        raise ValueError
    return found


def _told(weight):
    """A weight as text that is alike where it is, as a whole number or not."""
    try:
        return str(_finite(weight))
    except (ValueError, TypeError, OverflowError):
        return str(weight)


class _Words(yaml.BaseLoader):
    """YAML whose numbers stay words, to be read by our own rule, and whose keys are told once."""

    def construct_mapping(self, node, deep=False):
        found = super().construct_mapping(node, deep)
        if len(found) < len(node.value):
            names = [key.value for key, _ in node.value]
            twice = next(name for name in names if names.count(name) > 1)
            raise yaml.YAMLError(f"key {twice!r} comes twice")
        return found


def of_astra_analytical(text: str) -> Found:
    """The same of ASTRA-sim's analytical network: one building block a dimension, the first inside.

    Lists ``topology`` of Ring, FullyConnected and Switch, ``npus_count``, ``bandwidth`` (GB/s) and
    ``latency`` (ns), in YAML or JSON; other keys do not count.
    """
    try:
        found = yaml.load(text, _Words)
    except (yaml.YAMLError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        at = f", line {where.line + 1}" if where else ""
        raise ValueError(f"no YAML{at}: {getattr(error, 'problem', None) or error}") from None
    names = ("topology", "npus_count", "bandwidth", "latency")
    lists: list[Any] = [found.get(name) if isinstance(found, dict) else None for name in names]
    for name, w in zip(names, lists, strict=True):
        if not isinstance(w, list) or not all(type(v) is str for v in w):
            shown = "missing" if w is None else repr(w) if type(w) is str else "no list of words"
            raise ValueError(
                f"an ASTRA-sim network has four lists: {', '.join(names)}; {name} is {shown}"
            )
    kinds, *rest = lists
    shape, speeds, times = (
        [_read(name, read, word) for word in words]
        for name, read, words in zip(names[1:], (whole, number_of, number_of), rest, strict=True)
    )
    if not len(kinds) == len(shape) == len(speeds) == len(times):
        raise ValueError("topology, npus_count, bandwidth and latency differ in length")
    if not kinds:
        raise ValueError("an ASTRA-sim network has at least one dimension, not []")
    if min(shape) < 1 or math.prod(shape) > 1 << 20:
        raise ValueError(f"npus_count must be 1 or more, up to 2^20 in all, not {shape}")
    n, rows, switch, stride = math.prod(shape), [], math.prod(shape), 1
    a_group = {"FullyConnected": lambda count: count * (count - 1), "Ring": lambda count: 2 * count}
    n_links = sum(n // c * a_group.get(kind, lambda count: 2 * count)(c)
                  for kind, c in zip(kinds, shape, strict=True))  # fmt: skip
    if n_links > MAX_LINKS:
        raise ValueError(f"there must be at most {MAX_LINKS} links, not {n_links}")
    for kind, count, speed, time in zip(kinds, shape, speeds, times, strict=True):
        for base in range(n):
            if base // stride % count:
                continue
            group = [base + i * stride for i in range(count)]
            if kind == "Switch":
                rows += [(v, switch, speed, time) for v in group]
                switch += 1
            elif kind == "Ring":
                around = group[1:] + group[:1] if count > 2 else group[1:]  # two have one link
                rows += [(a, b, speed, time) for a, b in zip(group, around, strict=False)]
            elif kind == "FullyConnected":
                rows += [(a, b, speed, time) for a, b in itertools.combinations(group, 2)]
            else:
                raise ValueError(f"topology must be Ring, FullyConnected or Switch, not {kind!r}")
        stride *= count
    return n, switch - n, rows, False, True, ()


def _read(name, read, word):
    try:
        return read(word)
    except ValueError:
        kind = "whole number" if read is whole else "number"
        raise ValueError(f"{name}: {word!r} is no {kind}") from None


def of_astra_ns3(text: str) -> Found:
    """The same of ASTRA-sim's ns-3 network: counts, switches, then ``a b rate delay error`` lines.

    Rates such as 400Gbps or 50GBps, delays such as 0.0005ms; what comes behind the links and begins
    with no number counts for nothing. SimAI's begin with six counts, or seven, and NVLink's
    switches are listed before the others, in a line of their own or not. ValueError names the line.
    """
    lines = [(at, line.split()) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
    at, head = lines[0]
    n, n_switches, n_links = _line(at, head, _counts)
    switches, body = set(), lines[1:]
    for _ in range(1 if len(head) == 3 else 2):
        if len(switches) < n_switches and body:
            at, words = body.pop(0)
            switches |= _line(at, words, lambda said: _switches(said, n))
    body = body[:n_links] + [line for line in body[n_links:] if line[1][0].isdecimal()]
    pairs = [_line(at, words, _link) for at, words in body]
    if len(switches) != n_switches or len(pairs) != n_links:
        raise ValueError(f"{n_switches} switches and {n_links} links are announced, "
                         f"{len(switches)} and {len(pairs)} come")  # fmt: skip
    return _numbered([(v, v in switches) for v in range(n)], pairs, False, in_bytes=True)


def _line(number, words, read):
    """What `read` makes of a line's words; ValueError names the line."""
    try:
        return read(words)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None


def _counts(words):
    """Vertices, switches and links, of SimAI's line, too: vertices, GPUs a server, NVLink's
    switches, the other switches, links, the GPUs' name.
    """
    simai = len(words) in (6, 7) and not words[5].isdecimal()
    if len(words) != 3 and not simai:
        raise ValueError(
            "an ns-3 network begins with the numbers of vertices, switches and links, or with "
            "those of vertices, GPUs a server, NVLink's switches, switches and links and the GPUs' "
            f"name, not {_shown(words)}"
        )
    n, *switches, n_links = map(whole, (words[0], *words[2:5]) if simai else words)
    if min(switches) < 0:
        raise ValueError(f"there must be 0 switches or more, not {min(switches)}")
    n_switches = sum(switches)
    if not 0 <= n_switches <= n <= 1 << 20:
        raise ValueError(f"there are {n} vertices, up to 2^20, and {n_switches} of them switches")
    if n_links < 0:
        raise ValueError(f"there must be 0 links or more, not {n_links}")
    return n, n_switches, n_links


def _switches(words, n):
    switches = {whole(w) for w in words}
    if outside := sorted(v for v in switches if not 0 <= v < n):
        raise ValueError(f"vertices are 0 to {n - 1}, switch {outside[0]} is none")
    return switches


def _link(words):
    if len(words) < 4:
        raise ValueError(f"a link is 'a b 400Gbps 0.0005ms', not {_shown(words)}")
    a, b, rate, delay, *_ = words
    speed = _measure(rate, _RATE, "bps, Bps, b/s or B/s behind k, M, G, T or nothing, as 400Gbps")
    return whole(a), whole(b), {"bandwidth": speed, "latency": _measure(delay, _TIME, "ns, us, "
                                "ms or s, as 0.0005ms")}  # fmt: skip


def _shown(words):
    """A line as it is told, its beginning only."""
    text = " ".join(words)
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


def _measure(text, units, known):
    """A number with a unit: bytes a cycle, or cycles, at 1 GHz."""
    found = re.fullmatch(r"([0-9.]+(?:e[+-]?[0-9]+)?)([A-Za-z/]+)", text)
    if not found or found[2] not in units:
        raise ValueError(f"{text!r} must be a number and {known}")
    return number_of(found[1]) * units[found[2]]
