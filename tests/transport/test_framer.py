"""The framer against the golden frames: whole frames, ports, stalls, rate."""

import numpy as np
import pytest
from gradnic.hdl.transport.framer import N_PATHS, Framer
from gradnic.hdl.transport.records import BODY, HEAD_FIELDS, Own, Round
from gradnic.hdl.transport.spray import LEAST_MARKED
from gradnic.models.frame.address import Address
from gradnic.models.transport import framer as framer_model
from gradnic.models.transport.spray import SPRAYS
from gradnic.sim.engine import batch

from gradnic.interface.formats import UDP, Op
from gradnic.interface.offload import Subtype

GRID = [(1, 1), (0.5, 1), (1, 0.3), (0.6, 0.6)]
OWN = {"mac": 0x020000000011, "ip": 0x0A0000FE, "node": 17, "udp_port": 29440}
ROUND = {"armed": 1, "job": 5}
NEIGHBORS = {
    0: {"valid": 1, "node": 3, "port": 1, "mac": 0x0200FFFFFF03, "ip": 0xFFFFFFFF},
    9: {"valid": 1, "node": 0, "port": 2, "mac": 0x020000000000, "ip": 0x0A000001},
}
HEAD = dict.fromkeys((*HEAD_FIELDS, "tos", "path"), 0)


def packets(rng, n_bytes, n):
    """(head fields, payload bytes): every length around a beat, control packets, long ones."""
    lengths = [0, 1, n_bytes - 1, n_bytes, n_bytes + 1, 1408, 4000, *rng.integers(0, 200, n)]
    found = []
    for length in lengths:
        control = length <= BODY and rng.random() < 0.7
        payload = rng.bytes(int(length))
        head = {
            "op": Op.CONTROL if control else int(rng.integers(0, 6)),
            "ph": int(rng.integers(2)),
            "imp": int(rng.integers(2)),
            "last": int(rng.integers(2)),
            "retx": int(rng.integers(2)),
            "lc": int(rng.integers(8)),
            "gen": int(rng.integers(2**16)),
            "slot": int(rng.integers(2**13)),
            "tensor": int(rng.integers(2**16)),
            "seq": int(rng.integers(2**24)),
            "elems": int(rng.integers(2**16)),
            "p0": int(rng.choice([Subtype.PROBE, rng.integers(256)])),
            "p1": int(rng.integers(256)),
            "arg": int(rng.integers(2**32)),
            "tos": int(rng.integers(256)),
            "ecn": int(rng.integers(2)),
            "path": int(rng.integers(2**16)),
            "neighbor": int(rng.choice(list(NEIGHBORS))),
        }
        found.append((head, payload))
    for (head, _), neighbor in zip(found, NEIGHBORS, strict=False):  # none goes again before
        head |= {"op": Op.CONTROL, "p0": Subtype.PROBE, "retx": 0, "neighbor": neighbor}
    return found


def golden(sent, rule=None):
    """(port, frame) of each packet."""
    peers = {k: Address(x["port"], x["mac"], x["ip"]) for k, x in NEIGHBORS.items()}
    own = Address(0, OWN["mac"], OWN["ip"], OWN["udp_port"])
    framer = framer_model.Framer(own, peers, node=OWN["node"], job=ROUND["job"], rule=rule)
    return [framer.frame(head, payload) for head, payload in sent]


def row(shape, values):
    """A constant as the one row of bytes that a run's signal takes."""
    raw = shape.const(values).as_value()
    return np.frombuffer(raw.value.to_bytes(-(-len(raw) // 8), "little"), np.uint8)[None]


def started(n_bytes):
    """An instance with its table of neighbors written, and the constants of its runs."""
    framer = Framer(n_bytes, 4)
    instance = batch.build(framer).instance()
    write = framer.write.shape()
    for index, neighbor in NEIGHBORS.items():
        entry = {"enable": 1, "index": index, "neighbor": neighbor}
        instance.run(signals={"write": row(write, entry)}, drain=False, max_cycles=4)
    constants = {"own": row(Own, OWN), "round": row(Round, ROUND), "write": row(write, {})}
    return instance, constants


@pytest.mark.parametrize("n_bytes", [16, 64])
@pytest.mark.parametrize(("i", "o"), GRID)
@pytest.mark.parametrize("rule", [None, "round_robin", "least_marked"])
def test_frames_equal_golden(n_bytes, i, o, rule):
    rng = np.random.default_rng(n_bytes)
    instance, plain = started(n_bytes)
    if rule:
        plain["round"] = row(Round, ROUND | {"spray": 1, "rule": SPRAYS.index(rule)})
    model = instance.model
    sent = packets(rng, n_bytes, 60)
    fields = {name: [head[name] for head, _ in sent] for name in sent[0][0]}
    body = [p if h["op"] == Op.CONTROL else b"" for h, p in sent]
    rows = np.array([np.frombuffer(b.ljust(BODY, b"\0"), np.uint8) for b in body])
    heads = model.pack("heads", length=[len(p) for _, p in sent], body=rows, **fields)
    loads = [p for h, p in sent if h["op"] != Op.CONTROL and p]
    beats = model.pack_frames("payload", loads)
    run = instance.run(
        {"heads": heads, "payload": beats}, signals=plain, stalls={"payload": i, "o": o}
    )
    ports, frames = zip(*golden(sent, rule), strict=True)
    assert run.frames("o") == list(frames)
    fields = run.unpack("o")
    np.testing.assert_array_equal(fields["meta"][fields["last"] == 1], ports)
    assert run.taken["o"][0] - run.taken["heads"][0] == 7 or o < 1
    if i == o == 1 and n_bytes == 16:  # a head alone takes 4 beats, but 5 cycles
        n = len(run.outputs["o"])
        alone = sum(not p for _, p in sent)
        assert run.taken["o"][-1] - run.taken["o"][0] <= n - 1 + alone


@pytest.mark.parametrize("k", [3, 6])
def test_the_path_of_the_latest_probe_to_a_neighbor_counts_as_marked(k):
    """By the rule of the oldest mark: no packet takes it before a path without a mark."""
    instance, plain = started(16)
    model = instance.model
    plain["round"] = row(Round, ROUND | {"spray": 1, "rule": LEAST_MARKED})
    data, probe = (Op.RAW, 0, 0), (Op.CONTROL, Subtype.PROBE, 0)
    again = (Op.CONTROL, Subtype.PROBE, 1)
    told = [(data, 9)] * k + [(probe, 9), (data, 0), (probe, 0), (again, 9)] + [(data, 0)] * 21
    n = len(told)
    heads = model.pack(
        "heads", op=[what[0] for what, _ in told], p0=[what[1] for what, _ in told],
        retx=[what[2] for what, _ in told], neighbor=[to for _, to in told], length=0,
        body=np.zeros((n, BODY), np.uint8),
    )  # fmt: skip
    run = instance.run({"heads": heads}, signals=plain)
    paths = [UDP.source_port.get(frame) - OWN["udp_port"] for frame in run.frames("o")]
    heads = [(dict(HEAD, op=op, p0=p0, retx=retx, neighbor=to), b"") for (op, p0, retx), to in told]
    assert run.frames("o") == [frame for _, frame in golden(heads, "least_marked")]
    assert paths[: k + 4] == [*range(k), k - 1, k, k, k + 1]
    later = paths[k + 5 :]
    assert set(later) == set(range(N_PATHS)) - {k - 1}
    assert later[:7] == later[7:14]


def test_width_is_checked():
    with pytest.raises(ValueError, match="16, 32, 64 or 128, not 256"):
        Framer(256, 1)
