"""The framer against the golden frames: whole frames, ports, stalls, rate."""

from types import SimpleNamespace

import numpy as np
import pytest
from gradnic.hdl.transport.framer import N_PATHS, Framer
from gradnic.hdl.transport.records import BODY, Own, Round
from gradnic.hdl.transport.spray import LEAST_MARKED
from gradnic.models.frame.ipv4 import gradnic_frame
from gradnic.models.transport.spray import Spray
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
    return found


def golden(head, payload, path=0):
    neighbor = NEIGHBORS[head["neighbor"]]
    fields = {
        name: value for name, value in head.items() if name not in ("neighbor", "tos", "path")
    }
    fields |= {"set": head["gen"] & 1, "job": ROUND["job"], "src": OWN["node"]}
    ends = [
        SimpleNamespace(mac=x["mac"], ip=x["ip"], udp_port=OWN["udp_port"]) for x in (OWN, neighbor)
    ]
    if head["op"] == Op.CONTROL and head["p0"] & 15 != Subtype.PROBE:
        ends[0].udp_port = head["path"]  # answers take the way back
    else:
        ends[0].udp_port += path
    return gradnic_frame(*ends, head["tos"], fields, payload)


def row(shape, values):
    """A constant as the one row of bytes that a run's signal takes."""
    raw = shape.const(values).as_value()
    return np.frombuffer(raw.value.to_bytes(-(-len(raw) // 8), "little"), np.uint8)[None]


def paths_of(sent):
    """Round robin over data packets and PROBEs that go again; others take that of the latest."""
    spray, latest, probed = Spray(N_PATHS), 0, dict.fromkeys(NEIGHBORS, 0)
    for head, _ in sent:
        if head["op"] != Op.CONTROL:
            latest = spray.next()
            yield latest
            continue
        path = latest
        if head["p0"] & 15 == Subtype.PROBE:
            if head["retx"]:
                path = spray.again(probed[head["neighbor"]])
            probed[head["neighbor"]] = path
        yield path


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
@pytest.mark.parametrize("spray", [0, 1])
def test_frames_equal_golden(n_bytes, i, o, spray):
    rng = np.random.default_rng(n_bytes)
    instance, plain = started(n_bytes)
    plain["round"] = row(Round, ROUND | {"spray": spray})
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
    paths = list(paths_of(sent)) if spray else [0] * len(sent)
    assert run.frames("o") == [
        golden(*packet, path) for packet, path in zip(sent, paths, strict=True)
    ]
    fields = run.unpack("o")
    ports = fields["meta"][fields["last"] == 1]
    np.testing.assert_array_equal(ports, [NEIGHBORS[h["neighbor"]]["port"] for h, _ in sent])
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
    assert paths[: k + 4] == [*range(k), k - 1, k, k, k + 1]
    later = paths[k + 5 :]
    assert set(later) == set(range(N_PATHS)) - {k - 1}
    assert later[:7] == later[7:14]


def test_width_is_checked():
    with pytest.raises(ValueError, match="16, 32, 64 or 128, not 256"):
        Framer(256, 1)
