"""Broken frames amid a round of offload cards: several ports, every codec, p = 0 and more.

What the cards sent in a round comes once more in the next, broken, beside what they send then.
"""

import numpy as np
import pytest
from gradnic.models.offload.cluster import LinkFaults, all_reduce
from gradnic.models.offload.codec import Inceptionn, Norms, Raw, Thc
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.models.thc.worker import Worker
from gradnic.sim.offload.cluster import OffloadCluster

from gradnic.interface.formats import ETHERNET, GRADNIC, IPV4, UDP, Op

N_BROKEN = 1500
BLOCK = 64
FAULTS = LinkFaults(loss=0.05, duplicate=0.02, reorder=200, seed=5)
REASONS = ("length", "checksum", "format", "owner", "config", "not_ready")
CLAIMS = ("ver", "job", "src", "gen", "tensor")  # of others: no packet may carry these here
OF_DATA = ("op", "seq", "elems", "tree", "slot", "leaves", "check", "settings")


def broken(rng, frame):
    """A frame that is cut, lies about its length, is hit in its heads, or claims to be another.

    UDP checksums are 0, so a changed byte behind the UDP head is for the Ethernet FCS to find.
    """
    frame = bytearray(frame)
    is_data = GRADNIC.op.get(frame) != Op.CONTROL
    kind = int(rng.integers(4 + is_data))
    if kind == 0:
        return bytes(frame[: rng.integers(14, len(frame))])
    if kind == 1:
        at = IPV4.total_length if rng.random() < 0.5 else UDP.length
        at.put(frame, at.get(frame) ^ 1 << int(rng.integers(11)))
    elif kind == 2:
        at = int(rng.integers(ETHERNET.source.byte, UDP.start))
        frame[at] ^= int(rng.integers(1, 256))
    elif kind == 3:
        field = GRADNIC[rng.choice(CLAIMS)]
        field.put(frame, field.get(frame) ^ 1 << int(rng.integers(field.width)))
    else:
        misplace(rng, frame, rng.choice(OF_DATA))
    return bytes(frame)


def misplace(rng, frame, what):
    """Data of another kind, place, length or weight than any packet of the round."""
    op, arg = GRADNIC.op.get(frame), GRADNIC.arg.get(frame)
    if what == "op":
        others = [k for k in range(16) if k not in (op, Op.CONTROL)]
        GRADNIC.op.put(frame, int(rng.choice(others)))
    elif what == "leaves":  # none, or on the way up too many
        many = 0 if GRADNIC.ph.get(frame) else int(rng.choice([0, 200]))
        GRADNIC.arg.put(frame, arg & 0xFFFFF | many << 20)
    elif what == "check":
        GRADNIC.arg.put(frame, arg ^ 1 << int(rng.integers(20)))
    elif what == "slot" and GRADNIC.ph.get(frame):  # a flow is of packets on their way up
        GRADNIC.tree.put(frame, 1)
    elif what == "settings":
        parts = {Op.INC: ("p0", "p1"), Op.THC_IDX: ("p0", "p1"), Op.THC_SUM: ("p1",)}
        field = GRADNIC[rng.choice(parts.get(op, ("tree",)))]
        field.put(frame, field.get(frame) ^ 1 << int(rng.integers(field.width)))
    else:
        field = GRADNIC[what]
        # no packet begins at an odd unit, or has one element more or less
        bit = 0 if what in ("seq", "elems") else int(rng.integers(field.width))
        field.put(frame, field.get(frame) ^ 1 << bit)


def thc(n_nodes):
    return Thc(Worker(n_nodes, 1, g=30, B=BLOCK), C=512)


CODECS = {"none": Raw, "inceptionn": Inceptionn, "norms": lambda n: Norms(), "thc": thc}


def values_of(codec, n_nodes, n_elems, seed):
    """(values as they enter the cards, as they enter the sum)."""
    rng = np.random.default_rng(seed)
    if isinstance(codec, Thc):
        indices = rng.integers(0, 16, (n_nodes, n_elems))
        return indices, codec.worker.table[indices].astype(np.int64)
    x = rng.standard_normal((n_nodes, n_elems)).astype(np.float32)
    x = np.abs(x).view(np.uint32) if isinstance(codec, Norms) else x
    return x, x


@pytest.mark.parametrize("p", [0.0, 0.1])
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize(
    ("n_bytes", "packet"), [(16, 112), pytest.param(128, 96, marks=pytest.mark.slow)]
)
def test_broken_frames_change_nothing(name, p, n_bytes, packet):
    topology = parse("mesh:2x2")
    table = compile_table(build(topology, "multitree"))
    n_nodes, codec = topology.n_nodes, CODECS[name](topology.n_nodes)
    n_elems = 40 * codec.unit if name == "thc" else 4000
    cluster = OffloadCluster(table, topology, n_elems, codec, n_bytes=n_bytes, packet=packet, p=p)
    rng = np.random.default_rng(6)
    if name == "thc":
        norms = rng.integers(0, 2**31, n_elems // BLOCK, dtype=np.uint32)
        for node in range(n_nodes):
            cluster.agree(node, norms, BLOCK)
    first = cluster.run(values_of(codec, n_nodes, n_elems, 1)[0], LinkFaults(loss=0.02))
    before = [cluster.counts(node) for node in range(n_nodes)]
    for _ in range(N_BROKEN):
        frame = bytearray(first.frames[rng.integers(len(first.frames))])
        GRADNIC.gen.put(frame, 2)  # the round that comes
        GRADNIC.set.put(frame, 0)
        node, source = frame[ETHERNET.source.byte - 1], GRADNIC.src.get(frame)
        port = cluster.books[node][source].port
        cluster.inject(node, port, int(rng.integers(2 * first.cycles)), broken(rng, frame))
    values, own = values_of(codec, n_nodes, n_elems, 2)
    result = cluster.run(values, FAULTS, gen=2, max_cycles=200_000)
    assert result.cycles is not None

    def sent(x):
        return Inceptionn.finish(codec, x, n_nodes) if name == "inceptionn" else x

    golden, leaves = all_reduce(cluster.plan, codec, own, sent, result.given_up)
    raw = np.dtype(f"u{result.replicas.dtype.itemsize}")
    golden = golden.astype(result.replicas.dtype).view(raw)
    np.testing.assert_array_equal(result.replicas.view(raw), np.tile(golden, (n_nodes, 1)))
    missing = 1 - (leaves * cluster.plan.elems).sum() / (n_nodes * cluster.plan.elems.sum())
    assert missing <= p
    assert (missing > 0) == any(map(len, result.given_up.values()))
    counts = [cluster.counts(node) for node in range(n_nodes)]
    for reason in REASONS:
        assert sum(now[reason] - was[reason] for now, was in zip(counts, before, strict=True)) > 5
    assert not any(count["outside"] for count in counts)
