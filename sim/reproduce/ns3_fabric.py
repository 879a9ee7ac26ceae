"""The networks of `fabric` in ns-3: its links, devices and events; our switches' rules in C++.

Hosts are the same objects as in `fabric`, so that golden sender, receiver, spray and pace run on
ns-3 unchanged: ns-3 calls them. ``ns3_fabric.cpp`` is
compiled once against the wheel's headers; Cling would need 9 s in each process. Times in ns.
"""

import ctypes
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np

from gradnic.build_cache import kept
from gradnic.errors import Unfinished

from ..engine import tools
from .fabric import (
    FRAME,
    HOP,
    PAYLOAD,
    PS,
    Fabric,
    Fifo,
    Network,
    Priorities,
    Shortest,
    Trimming,
    tick_of,
)
from .fat_tree import FatTree
from .packet_graph import Graph

SOURCE = Path(__file__).with_suffix(".cpp")
MODULES = ("core", "network", "stats", "traffic-control", "internet", "applications",
           "point-to-point")  # fmt: skip
N_QUEUES = 8
RULES = {Fifo: 0, Shortest: 1, Priorities: 2, Trimming: 3}

_CALLEE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_N, _P, _F = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
_FUNCTIONS = {
    "open": ([], None),
    "new": ([_N, _N, _N, _P, _F, _N, _P, _CALLEE, _CALLEE], None),
    "fall": ([_N], None),
    "send": ([_N, _N, _N, _P, _N, _N, _N, _N], None),
    "at": ([_N, _N], None),
    "dropped": ([], _N),
    "run": ([], None),
    "stop": ([], None),
    "delete": ([], None),
    "rule": ([_P, _N, _P, _P, _P, _P, _P], None),
    "tcp": ([_N, _N, _N, _F, _N, _N, _N, _N, _N, _F, _N, _P, _P], None),
}


@cache
def library():
    """The compiled library. ToolError if the compiler fails."""
    wheel = metadata.distribution("ns3")
    root, version = Path(wheel.locate_file("ns3")), wheel.version
    name = tools.digest(SOURCE.read_text(), version, str(root))

    def make(folder):
        libraries = [f"-l:libns{version[:4]}-{module}.so" for module in MODULES]
        tools.call(
            [tools.compiler(), "-std=c++20", "-O2", "-shared", "-fPIC", f"-I{root}/include",
             str(SOURCE), "-o", "fabric.so", f"-L{root}/lib64", f"-Wl,-rpath,{root}/lib64",
             *libraries], folder=folder, timeout=600, log="g++.log",
        )  # fmt: skip

    folder = kept(tools.build_root() / "ns3" / name, make)
    found = ctypes.CDLL(str(folder / "fabric.so"))
    for function, (arguments, result) in _FUNCTIONS.items():
        called = getattr(found, f"gn_{function}")
        called.argtypes, called.restype = arguments, result
    found.gn_open()
    return found


def _limits(make):
    """Numbers that tell C++ the rule of a port."""
    port = make()
    thresholds = getattr(port, "thresholds", (getattr(port, "threshold", 0),))
    row = [RULES[type(port)], port.limit, *thresholds]
    row += [0] * (2 + N_QUEUES - len(row))
    return np.array([*row, getattr(port, "heads", 0)], np.int64)


class Ns3Network(Network):
    """A `Network` whose links, devices and clock are ns-3's. One at a time in a process."""

    def __init__(self, n_hosts, per_edge, n_links, make, *, gbps=100, dead=()):
        self._library = library()  # before anything is begun
        super().__init__(n_hosts, per_edge, n_links, make, gbps=gbps, dead=dead)
        self._things = {}
        self._error, self._open = None, None
        self._deliver, self._wake = _CALLEE(self._came), _CALLEE(self._due)  # kept alive here
        limits, links = _limits(make), np.array(self._links(), np.int64)
        self._library.gn_new(
            n_hosts, int(links[:, :2].max()) + 1, len(links), links.ctypes.data, gbps,
            round(HOP * PS), limits.ctypes.data, self._deliver, self._wake,
        )  # fmt: skip
        self._fall(set(self.down))

    def _links(self):
        """(vertex, vertex, port there, port back) of each link, those of hosts first."""
        n = self.n_hosts
        rows = [(host, n + host // self.per_edge, host, self._last + host) for host in range(n)]
        for link in range(self.n_links):
            low, high = self.ends(link)
            rows.append((n + low, n + high, *self.ports(link)))
        return rows

    def _keep(self, thing):
        self._count += 1
        self._things[self._count] = thing
        return self._count

    def at(self, time, act, *what):
        self._library.gn_at(max(0, tick_of(time) - self._tick), self._keep((time, act, what)))

    def send(self, packet):
        ports = np.array(packet.path, np.int64)
        self._library.gn_send(
            self._keep(packet), packet.n_bytes, len(ports), ports.ctypes.data, packet.queue,
            packet.important, packet.remaining, packet.first,
        )  # fmt: skip

    def _fall(self, ports):
        self.down |= dict.fromkeys(ports, self._tick)
        for port in sorted(ports):
            self._library.gn_fall(port)

    def _came(self, number, now, marked):
        packet = self._things.pop(number)
        packet.marked, packet.trimmed = bool(marked & 1), bool(marked & 2)
        self._call(now, now / PS, packet.arrived)

    def _due(self, number, now, _):
        time, act, what = self._things.pop(number)
        self._call(now, max(time, now / PS), act, *what)  # nobody wakes early

    def _call(self, tick, now, act, *what):
        """An error must not pass through C++: it is kept, and raised by `run`."""
        self._tick, self.now = tick, now
        try:
            act(*what)
            if self.now > self._limit or not self._open():
                self._library.gn_stop()
        except BaseException as error:
            self._error = error
            self._library.gn_stop()

    def run(self, unfinished, limit=1e9):
        self._open, self._limit = unfinished, limit
        try:
            self._library.gn_run()
            self.dropped = self._library.gn_dropped()
        finally:
            self._library.gn_delete()
        if self._error is not None:
            raise self._error
        if unfinished():
            raise Unfinished(f"{unfinished()} flows do not end by {self.now / 1e6:.1f} ms")


class Ns3Fabric(Fabric, Ns3Network):
    """A `Fabric` on ns-3."""


class Ns3FatTree(FatTree, Ns3Network):
    """A `FatTree` on ns-3."""


class Ns3Graph(Graph, Ns3Network):
    """A `Graph` on ns-3."""

    def _links(self):
        there = {(int(a), int(b)): port for port, (a, b) in enumerate(self.topology.links)}
        return [(a, b, port, there[b, a]) for (a, b), port in there.items() if a < b]


def decisions(make, what, important, remaining):
    """What a port of ns-3 does with packets that come and go: (answers, marks), int64 arrays.

    what : queue of the packet that comes, or -1: one is taken out. Answers: 1 taken, 0 dropped; the
    number of the step at which the one taken out came, -1 if there was none. marks : of those, 1
    marked, and 2 trimmed.
    """
    columns = [np.ascontiguousarray(c, np.int64) for c in (what, important, remaining)]
    answers, marks = np.zeros((2, len(what)), np.int64)
    limits = _limits(make)
    library().gn_rule(limits.ctypes.data, len(what), *(c.ctypes.data for c in columns),
                      answers.ctypes.data, marks.ctypes.data)  # fmt: skip
    return answers, marks


def tcp(n_leaves, per_leaf, n_spines, flows, starts, *, gbps=100, min_rto=0.01):
    """Nanoseconds of flows under ns-3's own TCP with DCTCP and RED queues; connected before.

    flows : (source, to, bytes) each. starts : nanoseconds. Frames are as long on the wire as the
    others'. No ECMP: several spines carry what global routing puts on the first. `Unfinished` if a
    flow does not end in a second.
    """
    queue = Fifo()
    starts = np.round(np.asarray(starts) * PS).reshape(-1, 1)
    rows = np.hstack([np.array(flows, np.int64), starts.astype(np.int64)])
    seconds = np.zeros(len(rows))
    head = FRAME - PAYLOAD - 2 - 20 - 32  # what is left for the gap: PPP, IP, TCP with time stamps
    library().gn_tcp(n_leaves, per_leaf, n_spines, gbps, round(HOP * PS), queue.threshold,
                     queue.limit, PAYLOAD, round(head * 8 / gbps * PS), min_rto, len(rows),
                     rows.ctypes.data, seconds.ctypes.data)  # fmt: skip
    if (seconds < 0).any():
        raise Unfinished(f"{(seconds < 0).sum()} TCP flows do not end in a second")
    return seconds * 1e9
