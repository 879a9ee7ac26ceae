"""How much of a link offload cards fill, and what they do to other traffic on it, in RTL."""

import numpy as np
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.codec import Inceptionn, Raw, Thc
from gradnic.models.thc.worker import Worker

from gradnic.errors import Unfinished
from gradnic.interface.formats import GRADNIC, HEAD_BYTES, Op

from .cluster import OffloadCluster
from .foreign import Foreign
from .run import granularity

WIRE_MORE = 24  # bytes of a frame's FCS, preamble and gap
SEED = 1


def codec_of(name, n_nodes):
    """The golden codec called `name`."""
    if name == "thc":
        return Thc(Worker(n_nodes, SEED, g=granularity(n_nodes)))
    return Inceptionn(n_nodes) if name == "inceptionn" else Raw(n_nodes)


class Measure:
    """Cards of one table on one topology, and what their ports carry.

    table, topology, n_elems, codec, n_bytes : as of `OffloadCluster`; codec : its name.
    """

    def __init__(self, table, topology, n_elems, codec, n_bytes, delay=200):
        self.codec = codec_of(codec, table.n_nodes)
        self.n_elems = -(-n_elems // self.codec.unit) * self.codec.unit
        self.n_bytes, self.link_bytes, self.delay = n_bytes, n_bytes, delay
        self.cluster = OffloadCluster(
            table, topology, self.n_elems, self.codec, n_bytes=n_bytes, t_probe=4 * delay + 4000
        )
        if isinstance(self.codec, Thc):
            for node in range(table.n_nodes):
                norms = np.zeros(self.n_elems, np.uint32)
                self.cluster.agree(node, norms, self.codec.worker.B)
        self.rng = np.random.default_rng(SEED)
        self.gen = 0

    def round(self, loss=0.0):
        """One all-reduce of random values: its result; `Unfinished` if the cards never end."""
        shape = self.cluster.table.n_nodes, self.n_elems
        if isinstance(self.codec, Thc):
            values = self.rng.integers(0, 16, shape)
        else:
            values = self.rng.standard_normal(shape).astype(np.float32)
        self.gen += 1
        faults = LinkFaults(loss=loss, delay=self.delay, seed=self.gen)
        return self.cluster.run(values, faults, gen=self.gen, link_bytes=self.link_bytes)

    def phases(self, result):
        """{"reduce", "gather": {payload, wire}}: least share of a link over its ports.

        From the first to the last packet of the phase that a port sends, where those are 8 or more;
        None if there is no such port. wire counts heads, gaps and CONTROL packets.
        """
        sent, frames = result.sent, result.frames
        heads = [GRADNIC.parse(frame) for frame in frames]
        data = np.array([head["op"] != Op.CONTROL for head in heads])
        down = np.array([head["ph"] for head in heads], bool)
        found = {}
        for name, phase in (("reduce", data & ~down), ("gather", data & down)):
            shares = []
            for port in np.unique(sent[["node", "port"]][phase]):
                here = (sent["node"] == port["node"]) & (sent["port"] == port["port"])
                at = sent["at"][here & phase]
                if len(at) < 8:
                    continue
                during = here & (sent["at"] > at[0]) & (sent["at"] <= at[-1])
                room = float(at[-1] - at[0]) * self.link_bytes
                useful = (sent["length"][during & phase] - HEAD_BYTES).sum() / room
                shares.append((useful, (sent["length"][during] + WIRE_MORE).sum() / room))
            least = np.min(shares, axis=0).tolist() if shares else (None, None)
            found[name] = dict(zip(("payload", "wire"), least, strict=True))
        return found


def crossing(make, n_frames, load, least, most):
    """Foreign frames while all-reduces run, and without them.

    make : function that returns a fresh `Measure`. n_frames : at least so many. load : of each
    link, 0 to 1. Returns {frames, wrong, missing, rounds, reduce_cycles, added_wait}: added_wait
    is the most cycles by which a frame left later than it does without an all-reduce.
    """
    busy = make()
    busy.cluster.call("keep", 0, 0)
    others = Foreign(busy.cluster, load, least, most)
    cycles, rounds = 0, 0
    while not rounds or others.told()[0]["made"] < n_frames:
        try:
            cycles, rounds = cycles + busy.round().cycles, rounds + 1
        except Unfinished as error:
            raise Unfinished(f"{error}; frames of others take {load:.4g} of each link") from None
    others.drain()
    counts, with_ = others.told()
    alone = make()
    alone.cluster.call("keep", 0, 0)
    alone.round()  # the same links; nothing is foreign yet
    start = alone.cluster.call("now")
    others = Foreign(alone.cluster, load, least, most)
    alone.cluster.call("idle", cycles)
    others.drain()
    _, without = others.told()
    waits = []
    for port, late in with_.items():
        early = without[port] - start
        n = min(len(late), len(early))
        waits.append(int((late[:n] - early[:n]).max(initial=0)))
    return {
        "frames": counts["made"],
        "wrong": counts["wrong"],
        "missing": counts["made"] - counts["good"] - counts["wrong"],
        "rounds": rounds,
        "reduce_cycles": cycles,
        "added_wait": max(waits),
    }
