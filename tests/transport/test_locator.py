"""The locator: chunk, packet and number of whatever comes, in order, at its rate."""

import numpy as np
import pytest
from gradnic.hdl.transport.locator import Locator
from gradnic.hdl.transport.records import Arrival, Geometry
from gradnic.sim.engine import batch

from gradnic.interface.formats import Op
from gradnic.interface.offload import Subtype

DATA, PROBE, STOP, LATE = range(4)  # late: data of no round
GEOMETRIES = [(22, 22 * 46 * 3, 138), (64, 64, 1), (1, 7, 7), (255, 2**23 - 1, 32897)]


def arrivals(rng, n, chunk, per_chunk, packet):
    """(kind, SEQ): places of packets and any others, of the first chunks and beyond."""
    kinds = rng.integers(4, size=n)
    chunks = np.minimum(rng.integers(0, 50, n), (2**24 - 1) // chunk)
    within = rng.integers(0, per_chunk, n)
    seq = chunks * chunk + within * packet
    seq = np.where(kinds == PROBE, chunks * per_chunk + within, seq)
    return kinds, np.where(rng.random(n) < 0.3, rng.integers(0, 2**24, n), seq) % 2**24


def row(shape, **values):
    raw = shape.const(values).as_value()
    return np.frombuffer(raw.value.to_bytes(-(-len(raw) // 8), "little"), np.uint8)


def play(kinds, seq, stalls=None, **cut):
    rows = []
    for kind, number in zip(kinds.tolist(), seq.tolist(), strict=True):
        op = Op.RAW if kind in (DATA, LATE) else Op.CONTROL
        subtype = Subtype.PROBE if kind == PROBE else Subtype.STOP
        head = {"op": op, "p0": subtype, "seq": number}
        rows.append(row(Arrival, head=head, ready=int(kind != LATE)))
    geometry = row(Geometry, **cut)[None]
    model = batch.build(Locator())
    return model.run({"i": np.array(rows)}, signals={"geometry": geometry}, stalls=stalls)


@pytest.mark.parametrize(("packet", "chunk", "per_chunk"), GEOMETRIES)
@pytest.mark.parametrize("stalls", [{}, {"i": 0.4, "o": 0.1}])
def test_places_equal_division(packet, chunk, per_chunk, stalls):
    rng = np.random.default_rng(packet)
    kinds, seq = arrivals(rng, 300, chunk, per_chunk, packet)
    run = play(kinds, seq, stalls, packet=packet, chunk=chunk, per_chunk=per_chunk)
    out = run.unpack("o")
    at, rest = np.divmod(seq, chunk)
    within, over = np.divmod(rest, packet)
    data, probe = kinds == DATA, kinds == PROBE
    number = at % 2**13 * per_chunk + within
    for name, wanted in (("chunk", at), ("within", within), ("whole", over == 0)):
        np.testing.assert_array_equal(out[name][data], wanted[data])
    np.testing.assert_array_equal(out["number"][data], number[data] % 2**16)
    at, within = np.divmod(seq, per_chunk)
    for name, wanted in (("chunk", at), ("within", within), ("number", seq % 2**16)):
        np.testing.assert_array_equal(out[name][probe], wanted[probe])
    assert out["whole"][~data].all()


@pytest.mark.parametrize(("kind", "gap", "delay"), [(DATA, 16, 30), (PROBE, 16, 16), (STOP, 2, 2)])
def test_rate_and_latency(kind, gap, delay):
    n = 20
    run = play(np.full(n, kind), 22 * np.arange(n), packet=22, chunk=440, per_chunk=20)
    assert (np.diff(run.taken["o"]) == gap).all()
    assert run.taken["o"][0] - run.taken["i"][0] == delay
