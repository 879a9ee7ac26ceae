"""Graphs in files: JSON or an edge list, read to rows of (a, b, bandwidth, latency)."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradnic.text_file import ABILITIES, apart, from_json, read_text
from gradnic.text_file import number as number_of

from . import foreign_graphs

LATENCY = 1e9  # cycles, at most
KEYS = ("nodes", "switches", "links", "ports", "directed", *ABILITIES)  # of a graph in JSON
_NO_LINKS = {  # JSON of ASTRA-sim that is no network of four lists
    "logical-dims": "ASTRA-sim's logical topology has no links: give the network's own file",
    "topologies-per-dim": "ASTRA-sim's older form, of units-count and links-count, is not read; "
    "its newer form has four lists: topology, npus_count, bandwidth, latency",
}
_NS3_LINK = re.compile(r"^[ \t]*\d+[ \t]+\d+[ \t]+[\d.]+[A-Za-z/]+(\s|$)", re.MULTILINE)
_NAME = re.compile(r"\w(.*[\w)\]])?")  # of a vertex: other formats have commas, arrows ...
_HTSIM = {  # its files of a network and of traffic, by the key behind their number of nodes
    "tiers": "htsim's topology has tiers, no links: give `a b bandwidth latency` lines, or "
    "fattree:ARITYxLEVELS for a full one whose links are alike",
    "connections": "htsim's connection matrix is traffic, no network",
}


@dataclass(frozen=True)
class Graph:
    """What a file says. rows : (a, b, bandwidth, latency), each link once, sorted; 1 and NaN where
    the file leaves it out, and `left_out` counts the bandwidths that it does. ports : int or None.
    sums, multicasts : switches that can, ascending. in_bytes : bandwidths are bytes a cycle at
    1 GHz, not relative to each other. names : of vertices, where they are not their numbers.
    """

    n_nodes: int
    n_switches: int
    rows: list
    left_out: int
    ports: int | None = None
    sums: tuple = ()
    multicasts: tuple = ()
    in_bytes: bool = False
    names: tuple = ()


def check_abilities(name: str, words: Sequence[str]) -> None:
    """ValueError for a word that is no ability of a switch."""
    bad = [word for word in words if word not in ABILITIES]
    if bad:
        raise ValueError(f"{name}: a switch can sum or multicast, not {bad[0]!r}")


def read(path: str) -> Graph:
    """The `Graph` in a file.

    JSON: {"nodes": 4, "switches": 1, "links": [[a, b, bandwidth, latency], ...], "ports": 1,
    "directed": false, "sum": [4], "multicast": [4]}; bandwidth (default 1) and latency (cycles) may
    be left out, and the switches that add or copy what passes. Other keys are a ValueError.
    Edge list: one ``a b [bandwidth [latency]]`` a line, both directions, # for comments, and
    ``switch v ... [+sum] [+multicast]`` lines that mark switches, and what they can; without one,
    no vertex may be called switch, leaf or the like unless all are. Vertices are numbers, or names
    that begin with a letter, digit or _ and end with one, or with a closing bracket; nodes are
    numbered in order of their number or first mention, switches after them. Characters that nobody
    sees, such as a byte order mark, count for nothing. ValueError names the bad line.
    And what other programs write: NetworkX's node-link JSON and GraphML, ASTRA-sim's analytical
    (.yml or JSON) and ns-3 networks, see `foreign_graphs`.
    """
    name = f"file:{path}"
    try:
        text = read_text(path)
    except ValueError as error:
        raise ValueError(f"{name} is neither JSON nor an edge list: {error}") from None
    foreign = _foreign(path, text)
    if foreign:
        try:
            n_nodes, n_switches, rows, directed, in_bytes, order = foreign(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return _graph(
            name, n_nodes, n_switches, rows, None, directed, in_bytes=in_bytes, order=order
        )
    if text.lstrip().startswith("{"):
        return _of_json(name, text)
    if _dimacs(text):
        raise ValueError(
            f"{name}: DIMACS is not read: leave out the lines c and p, and the e or a before `a b`"
        )
    rows, switches, able = [], None, {word: [] for word in ABILITIES}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0] == "switch":
            named = [w for w in words[1:] if not w.startswith("+")]
            abilities = [w[1:] for w in words[1:] if w.startswith("+")]
            check_abilities(f"{name}, line {number}", abilities)
            switches = (switches or []) + named
            for word in abilities:
                able[word] += named
            continue
        try:
            rows.append((words[0], words[1], *map(number_of, words[2:4])))
            if len(words) > 4 or not all(map(_NAME.fullmatch, words[:2])):
                raise ValueError
        except (IndexError, ValueError):
            raise ValueError(
                f"{name}, line {number}: 'a b [bandwidth [latency]]', not {line!r}"
            ) from None
    seen = list(dict.fromkeys(v for row in rows for v in row[:2]))
    if switches is None:
        try:
            foreign_graphs.check_names(
                ((v, [v]) for v in seen), "add a line 'switch v ...', or 'switch' alone for none"
            )
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    first, others = seen[:2], {v for row in rows[1:] for v in row[:2]}
    n_rows = len(rows) - 1
    if n_rows > 1 and others.isdisjoint(first) and not all(map(str.isdecimal, first)):
        raise ValueError(
            f"{name}: link {'-'.join(first)} is the first and meets no other: if that line is a "
            "heading, begin it with #"
        )
    if n_rows > 2 and first == [str(len(others)), str(n_rows)] and first[0] not in others:
        raise ValueError(
            f"{name}: the first link, {'-'.join(first)}, is as many vertices and links as come "
            "behind it: begin that line with # if it counts them, else put it behind another"
        )
    marked = set(switches or ())
    if unknown := sorted(marked.difference(seen)):
        raise ValueError(f"{name}: switch {unknown[0]} has no link")
    nodes = [v for v in seen if v not in marked]
    if all(v.isdecimal() and len(v) < 19 for v in nodes):
        nodes.sort(key=int)
    number = {v: i for i, v in enumerate(nodes + [v for v in seen if v in marked])}
    rows = [(number[a], number[b], *rest) for a, b, *rest in rows]
    able = [sorted({number[v] for v in able[word]}) for word in ABILITIES]
    return _graph(
        name, len(nodes), len(seen) - len(nodes), rows, None, False, able, order=tuple(number)
    )


def _foreign(path: str, text: str) -> Callable[[str], foreign_graphs.Found] | None:
    """The reader of another program's format, by the file's suffix or first words; None: ours."""
    suffix = Path(path).suffix.lower()
    if suffix in (".gml", ".gexf", ".adjlist"):
        raise ValueError(
            f"file:{path}: {suffix} is not read; networkx.write_graphml writes what is"
        )
    if suffix == ".graphml" or text.lstrip().startswith("<"):
        return foreign_graphs.of_graphml
    if suffix in (".yml", ".yaml") or re.search(r"^npus_count[ \t]*:", text, re.MULTILINE):
        return foreign_graphs.of_astra_analytical
    htsim = re.match(r"(?i)(?:\s|#.*\n)*nodes\s+\d+\s+(tiers|connections)\s", text)
    if htsim or suffix == ".topo":
        raise ValueError(f"file:{path}: {_HTSIM[htsim[1].lower() if htsim else 'tiers']}")
    if text.lstrip().startswith("{"):
        try:
            graph = from_json(text)
        except (ValueError, RecursionError):
            return None
        if type(graph) is not dict:
            return None
        for key, words in _NO_LINKS.items():
            if key in graph:
                raise ValueError(f"file:{path}: {words}")
        if {"topology", "npus_count"} <= graph.keys():
            return lambda _: foreign_graphs.of_astra_analytical(json.dumps(graph))
        if type(graph.get("nodes")) is list:
            return lambda _: foreign_graphs.of_node_link(graph)
        return None
    head = text.lstrip().split("\n", 1)[0].split()
    if len(head) >= 3 and all(w.isdecimal() for w in head[:3]) and _NS3_LINK.search(text):
        return foreign_graphs.of_astra_ns3
    return None


def _dimacs(text: str) -> bool:
    """Whether lines are DIMACS's: a problem behind comments, or nothing but edges `e 1 2`."""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["p"]:
            return len(words) == 4 and words[2].isdecimal() and words[3].isdecimal()
        if words and words[0] != "c":
            break
    edges = (line for line in text.splitlines() if line.strip())
    return bool(text.strip()) and all(re.fullmatch(r"\s*e\s+\d+\s+\d+\s*", line) for line in edges)


def _of_json(name: str, text: str) -> Graph:
    try:
        graph = from_json(text)
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    if not {"nodes", "links"} <= graph.keys():
        raise ValueError(f"{name}: needs 'nodes' and 'links'")
    if unknown := sorted(graph.keys() - KEYS):
        raise ValueError(f"{name}: keys are {', '.join(KEYS)}, not {', '.join(unknown)}")
    n_nodes, rows = graph["nodes"], graph["links"]
    if type(rows) is not list:
        raise ValueError(f"{name}: 'links' must be a list, not {json.dumps(rows)}")
    n_switches, ports = graph.get("switches", 0), graph.get("ports")
    for key, value in ("nodes", n_nodes), ("switches", n_switches), ("ports", ports or 1):
        if type(value) is not int or not 0 <= value <= 1 << 20:
            raise ValueError(f"{name}: {key!r} must be a whole number up to 2^20, not {value!r}")
    for row in rows:
        known = type(row) is list and 2 <= len(row) <= 4
        known = known and all(type(v) is int and abs(v) < 1 << 31 for v in row[:2])
        if not known or not all(type(v) in (int, float) and abs(v) < 1e300 for v in row[2:]):
            raise ValueError(
                f"{name}: a link is [a, b, bandwidth, latency], the last two optional, not "
                f"{json.dumps(row)}"
            )
    able = [graph.get(word, []) for word in ABILITIES]
    for word, switches in zip(ABILITIES, able, strict=True):
        whole = type(switches) is list and all(type(v) is int for v in switches)
        if not whole or not all(n_nodes <= v < n_nodes + n_switches for v in switches):
            raise ValueError(
                f"{name}: {word!r} must be a list of switches, {n_nodes} to "
                f"{n_nodes + n_switches - 1}, not {json.dumps(switches)}"
            )
    directed = graph.get("directed", False)
    if type(directed) is not bool:
        raise ValueError(f"{name}: 'directed' must be true or false, not {json.dumps(directed)}")
    return _graph(name, n_nodes, n_switches, rows, ports, directed, able)


def _graph(
    name: str, n_nodes: int, n_switches: int, rows: Sequence[tuple], ports: int | None,
    directed: bool, able: Sequence = ((), ()), *, in_bytes: bool = False, order: tuple = (),
) -> Graph:  # fmt: skip
    names = () if order == tuple(range(len(order))) else tuple(map(str, order))
    for row in rows:
        if len(row) == 4 and not 0 <= row[3] <= LATENCY:
            a, b = (names[v] if names else v for v in row[:2])
            raise ValueError(
                f"{name}: latency of link {a}-{b} must be 0 to {LATENCY:g} cycles, "
                f"not {apart(row[3], LATENCY)}"
            )
    filled = [tuple(row) + (1.0, math.nan)[len(row) - 2 :] for row in rows]
    if not directed:
        filled = filled + [(b, a, *rest) for a, b, *rest in filled]
    filled.sort(key=lambda row: row[:2])
    left_out = sum(len(row) == 2 for row in rows)
    return Graph(
        n_nodes, n_switches, filled, left_out, ports, tuple(able[0]), tuple(able[1]), in_bytes,
        names,
    )  # fmt: skip
