"""Schedule tables on networks of packets: direct links or switches, of `fabric` or of ns-3.

Nodes do what the network model says of cards, row by row; every packet then crosses its links as
the network has it, stored and forwarded by switches that never drop. Of the network model's own
event loop nothing is used.
"""

import numpy as np
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.network_model import FLOAT_BYTES, simulate
from gradnic.models.schedule.topology import parse
from gradnic.models.schedule.traffic import written_out
from gradnic.models.training.exchange import card_network

from gradnic.interface.schedule_table import REDUCE

from .fabric import Fifo, Network, Packet

CASES = {  # name: (topology, algorithm, chunks a root or None, KiB)
    "ring of 4": ("ring:4", "ring", None, 256),
    "torus 4x4, ring": ("torus:4x4", "ring", None, 256),
    "torus 4x4, MultiTree": ("torus:4x4", "multitree", None, 512),
    "torus 4x4, MultiTree, 2 chunks": ("torus:4x4", "multitree", 2, 512),
    "torus 4x4, BFB": ("torus:4x4", "bfb", 4, 512),
    "mesh 4x4, MultiTree": ("mesh:4x4", "multitree", None, 512),
    "hypercube of 16, halving": ("hypercube:4", "halving", None, 512),
    "one switch of 4, ring": ("fattree:4x1", "ring", None, 512),
    "one switch of 16, halving": ("fattree:16x1", "halving", None, 512),
}
GBPS = 100


class Graph(Network):
    """A topology whose links are all of one rate; port i is its link i, and never drops."""

    def __init__(self, topology, *, gbps=GBPS):
        if (topology.bandwidth != 1).any():
            raise ValueError(f"links of {topology.name} must have one rate")
        self.topology = topology
        super().__init__(topology.n_links, 1, 0, Fifo, gbps=gbps)


class _Part(Packet):
    """A packet of a message; the last one says that the message is there."""

    __slots__ = ("message",)

    def __init__(self, path, n_bytes, message):
        super().__init__(None, 0, path, 0, True, 0, n_bytes)
        self.message = message

    def arrived(self):
        if self.message:
            act, what = self.message
            act(what)


class Nodes:
    """The nodes of a table on a `Graph`. network : whose times a node takes; its reads and sums are
    as fast as they come. n_floats : of the tensor, a multiple of 16 for each chunk.
    """

    def __init__(self, table, graph, network, n_floats):
        self.graph, self.network, self.table = graph, network, table
        self.rows = written_out(table)
        n_chunks = table.n_chunks * table.repeats
        self.length = n_floats // n_chunks
        if self.length * n_chunks != n_floats or self.length % 16:
            raise ValueError(f"floats must be a multiple of {16 * n_chunks}, not {n_floats}")
        self.sums = np.zeros((table.n_nodes, n_chunks), np.int64)  # contributions that came
        self.final = np.zeros((table.n_nodes, n_chunks), bool)
        self.waiting = [np.flatnonzero(self.rows["node"] == v).tolist()
                        for v in range(table.n_nodes)]  # fmt: skip
        self.peers = {(p["node"], p["index"]): (int(p["to"]), tuple(table.paths[p["path"]]))
                      for p in table.peers}  # fmt: skip
        self.lines = [[] for _ in range(graph.n_hosts)]  # messages that are ready, by port
        self.free = [True] * graph.n_hosts
        self.end = 0.0

    def run(self):
        """Nanoseconds until every node has every chunk."""
        for v in range(self.table.n_nodes):
            self.graph.at(self.network.start, self._look, v)
        self.graph.run(lambda: int((~self.final).sum()))
        return self.end

    def _look(self, v):
        """Rows of a node that have what they wait for go."""
        left = []
        for i in self.waiting[v]:
            row = self.rows[i]
            chunks = slice(row["first"], row["first"] + row["count"])
            reduces = row["op"] == REDUCE
            due = self.sums[v, chunks] >= row["wait"] if reduces else self.final[v, chunks]
            if not due.all():
                left.append(i)
                continue
            lead = self.network.issue + self.network.add * int(row["wait"]) * reduces
            self.graph.at(self.graph.now + lead, self._issue, i)
        self.waiting[v] = left

    def _issue(self, i):
        row = self.rows[i]
        sends = [int(s) for s in row["sends"] if s >= 0]
        if not sends:
            self._done(i, int(row["node"]))
        for s in sends:
            to, path = self.peers[row["node"], s]
            self.lines[path[0]].append((i, to, path))
            # behind what else is ready now: the table says which goes first
            self.graph.at(self.graph.now, self._send, path[0])

    def _send(self, port):
        """The first of a port's messages that are ready, in the order of the table."""
        if not self.free[port] or not self.lines[port]:
            return
        self.lines[port].sort(key=lambda message: message[0])
        i, to, path = self.lines[port].pop(0)
        self.free[port] = False
        payload, wire = int(self.rows[i]["count"]) * self.length * FLOAT_BYTES, 0
        while payload:
            n = min(payload, self.network.packet)
            payload -= n
            wire += n + self.network.head
            last = None if payload else (self._came, (i, to))
            self.graph.send(_Part(path, n + self.network.head, last))
        self.graph.at(self.graph.now + 8 * wire / GBPS, self._freed, port)

    def _freed(self, port):
        self.free[port] = True
        self.graph.at(self.graph.now, self._send, port)

    def _came(self, message):
        self.graph.at(self.graph.now + self.network.receive, self._done, *message)

    def _done(self, i, v):
        """What row i sent is at node v, or is final where it is summed."""
        row = self.rows[i]
        chunks = slice(row["first"], row["first"] + row["count"])
        if row["op"] == REDUCE and (row["sends"] >= 0).any():
            self.sums[v, chunks] += 1
        else:
            self.final[v, chunks] = True
            self.end = max(self.end, self.graph.now)
        self._look(v)


def of_case(case):
    """(table, topology, network, floats) of one of `CASES`."""
    name, algorithm, chunks, kib = CASES[case]
    topology = parse(name)
    schedule = build(topology, algorithm, **({} if chunks is None else {"chunks": chunks}))
    return compile_table(schedule), topology, card_network(GBPS), kib * 256


def seconds(case, make):
    """Nanoseconds of an all-reduce: [by packets, of the network model]. make : class of graphs."""
    table, topology, network, n_floats = of_case(case)
    model = simulate(table, topology, FLOAT_BYTES * n_floats, network).cycles
    return [Nodes(table, make(topology), network, n_floats).run(), model]


def on_ns3(case):
    """`seconds` on ns-3's links, devices and clock."""
    from .ns3_fabric import Ns3Graph

    return seconds(case, Ns3Graph)
