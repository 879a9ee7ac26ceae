"""Graphs in other people's files: NetworkX (node-link JSON, GraphML) and ASTRA-sim (two formats).

All become rows of (a, b, bandwidth, latency), nodes first; bandwidths count relative to each other,
and latencies are cycles at 1 GHz, nanoseconds, where the file has a unit.
"""

import itertools
import math
import re
from xml.etree import ElementTree

import yaml

from gradnic.text_file import number as number_of
from gradnic.text_file import whole

SYNONYMS = ("switch", "type"), ("bandwidth", "capacity")
MAX_LINKS = 1 << 22  # of any graph: about 1 GB while it is made
_UNITS = {"kbps": 1e-6, "mbps": 1e-3, "gbps": 1, "tbps": 1e3}
_TIMES = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def of_node_link(graph):
    """(n_nodes, n_switches, rows, directed) of NetworkX's node-link data, a dict.

    A vertex with a true ``switch``, or ``type`` "switch", is one; links may have ``bandwidth``, or
    ``capacity`` as NetworkX's flows call it, and ``latency``, in any case; other attributes do not
    count. Nodes are numbered as they are listed. ValueError names what is wrong: parallel links of
    a multigraph, links that differ in ``weight`` alone, and bandwidths of some links only, for one.
    """
    for key in "multigraph", "directed":
        if type(graph.get(key, False)) is not bool:
            raise ValueError(f"{key!r} must be true or false, not {graph[key]!r}")
    links = graph.get("links", graph.get("edges"))
    if type(links) is not list:
        raise ValueError("node-link data has 'links' or 'edges'")
    try:
        vertices = [(_name(node["id"]), _marked(_lower(node))) for node in graph["nodes"]]
        pairs = [(_name(link["source"]), _name(link["target"]), _lower(link)) for link in links]
        return _numbered(vertices, pairs, graph.get("directed", False))
    except (KeyError, TypeError, RecursionError):
        raise ValueError(
            "node-link data: nodes have 'id', links 'source' and 'target': texts, numbers, or "
            "lists of them"
        ) from None


def _name(said):
    """A vertex's name as NetworkX reads it: tuples, as its grids have, are lists in JSON."""
    return tuple(map(_name, said)) if isinstance(said, list) else said


def _lower(values):
    """Attributes under names in small letters; those that have such a name already win."""
    return {name.lower(): value for name, value in values.items()} | values


def of_graphml(text):
    """The same of GraphML: attributes ``switch`` or ``type``, ``bandwidth`` and ``latency``, of
    each vertex and edge, or the default of their key. Edges are as the graph says, all directed or
    none.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"no GraphML: {error}") from None
    space = re.match(r"\{.*\}|", root.tag)[0]
    if root.tag != f"{space}graphml":
        raise ValueError(f"no GraphML, but <{root.tag.removeprefix(space)}>")
    keys = list(root.iter(f"{space}key"))
    names = {k.get("id"): k.get("attr.name", "").lower() for k in keys}
    defaults = {
        kind: {
            names[k.get("id")]: default.text
            for k in keys
            if k.get("for", "all") in ("all", kind)
            and (default := k.find(f"{space}default")) is not None
        }
        for kind in ("node", "edge")
    }
    graph = root.find(f"{space}graph")
    if graph is None:
        raise ValueError("no GraphML: no <graph>")

    def data(element):
        own = {names.get(d.get("key")): d.text for d in element.iter(f"{space}data")}
        said = {name for pair in SYNONYMS if own.keys() & set(pair) for name in pair}
        usual = defaults[element.tag.removeprefix(space)]
        return {name: value for name, value in usual.items() if name not in said} | own

    vertices = [(v.get("id"), _marked(data(v))) for v in graph.iter(f"{space}node")]
    directed, pairs = graph.get("edgedefault") == "directed", []
    for e in graph.iter(f"{space}edge"):
        a, b, own = e.get("source"), e.get("target"), e.get("directed")
        if own is not None and (own in ("true", "1")) != directed:
            raise ValueError(
                f"edges must be all directed or none, as edgedefault says: {a}-{b} has "
                f"directed={own!r}"
            )
        pairs.append((a, b, data(e)))
    return _numbered(vertices, pairs, directed)


def _marked(values):
    flag = values.get("switch", values.get("type", False))
    return flag is True or str(flag).lower() in ("true", "1", "switch")


def _numbered(vertices, pairs, directed):
    """Rows of named vertices; nodes get the first numbers, in order."""
    order = [v for v, switch in vertices if not switch] + [v for v, s in vertices if s]
    number = {v: i for i, v in enumerate(order)}
    if len(number) < len(order):
        raise ValueError("a vertex is listed twice")
    rows = []
    for a, b, values in pairs:
        for v in a, b:
            if v not in number:
                raise ValueError(f"a link names {v!r}, which is no vertex")
        row = [number[a], number[b]]
        speed = "bandwidth" if values.get("bandwidth") is not None else "capacity"
        for name, otherwise in (speed, 1.0), ("latency", math.nan):
            value = values.get(name)
            try:
                row.append(otherwise if value is None else _finite(value))
            except (ValueError, TypeError, OverflowError):
                raise ValueError(f"{name} of link {a}-{b} is no number: {value!r}") from None
        rows.append(tuple(row[: 3 if math.isnan(row[3]) else 4]))
    silent = [f"{a}-{b}" for a, b, values in pairs
              if all(values.get(name) is None for name in SYNONYMS[1])]  # fmt: skip
    if 0 < len(silent) < len(pairs):
        raise ValueError(f"link {silent[0]} has no bandwidth, and others have one")
    if silent and len({_told(values.get("weight")) for *_, values in pairs}) > 1:
        raise ValueError(
            "links differ in 'weight', which may be a bandwidth or a distance: name it 'bandwidth' "
            "or 'latency'"
        )
    linked = {v for row in rows for v in row[:2]}
    alone = [v for v, switch in vertices if number[v] not in linked and not switch]
    if alone and len(order) > 1:
        raise ValueError(f"node {alone[0]!r} has no link")
    n_switches = sum(switch for _, switch in vertices)
    return len(order) - n_switches, n_switches, rows, directed


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


def of_astra_analytical(text):
    """The same of ASTRA-sim's analytical network: one building block a dimension, the first inside.

    Lists ``topology`` of Ring, FullyConnected and Switch, ``npus_count``, ``bandwidth`` (GB/s) and
    ``latency`` (ns), in YAML or JSON; other keys do not count.
    """
    try:
        found = yaml.load(text, yaml.BaseLoader)  # words: numbers are read by our own rule
    except (yaml.YAMLError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        at = f", line {where.line + 1}" if where else ""
        raise ValueError(f"no YAML{at}: {getattr(error, 'problem', error)}") from None
    names = ("topology", "npus_count", "bandwidth", "latency")
    lists = [found.get(name) if isinstance(found, dict) else None for name in names]
    for name, w in zip(names, lists, strict=True):
        if not isinstance(w, list) or not all(type(v) is str for v in w):
            told = "missing" if w is None else repr(w) if type(w) is str else "no list of words"
            raise ValueError(
                f"an ASTRA-sim network has four lists: {', '.join(names)}; {name} is {told}"
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
    return n, switch - n, rows, False


def _read(name, read, word):
    try:
        return read(word)
    except ValueError:
        kind = "whole number" if read is whole else "number"
        raise ValueError(f"{name}: {word!r} is no {kind}") from None


def of_astra_ns3(text):
    """The same of ASTRA-sim's ns-3 network: counts, switches, then ``a b rate delay error`` lines.

    Rates such as 400Gbps, delays such as 0.0005ms. Words behind the links count for nothing.
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    try:
        n, n_switches, n_links = map(whole, lines[0])
        if not 0 <= n_switches <= n <= 1 << 20:
            raise ValueError(
                f"there are {n} vertices, up to 2^20, and {n_switches} of them switches"
            )
        switches = {whole(w) for w in lines[1]} if n_switches else set()
        if outside := sorted(v for v in switches if not 0 <= v < n):
            raise ValueError(f"vertices are 0 to {n - 1}, switch {outside[0]} is none")
        body = lines[2 if n_switches else 1 :]
        body = body[:n_links] + [line for line in body[n_links:] if line[0].isdecimal()]
        pairs = []
        for a, b, rate, delay, *_ in body:
            pairs.append((whole(a), whole(b), {"bandwidth": _measure(rate, _UNITS),
                                           "latency": _measure(delay, _TIMES)}))  # fmt: skip
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(f"no ns-3 network of ASTRA-sim: {error}") from None
    if len(switches) != n_switches or len(pairs) != n_links:
        raise ValueError(f"{n_switches} switches and {n_links} links are announced, "
                         f"{len(switches)} and {len(pairs)} come")  # fmt: skip
    return _numbered([(v, v in switches) for v in range(n)], pairs, False)


def _measure(text, units):
    found = re.fullmatch(r"([0-9.e+-]+?)([A-Za-z]+)", text)
    if not found:
        raise ValueError(f"{text!r} is no number and unit")
    value, unit = found.groups()
    return number_of(value) * units[unit.lower()]
