"""The locator: chunk, packet and number of whatever comes, in order, at its rate."""

import numpy as np
import pytest
from gradnic.hdl.transport.locator import Locator
from gradnic.hdl.transport.records import Arrival, Geometry
from gradnic.models.transport.locator import locate_number, locate_offset
from gradnic.models.transport.packet_walk import Cut
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


def rows_of(kinds, seq):
    rows = []
    for kind, number in zip(kinds.tolist(), seq.tolist(), strict=True):
        op = Op.RAW if kind in (DATA, LATE) else Op.CONTROL
        subtype = Subtype.PROBE if kind == PROBE else Subtype.STOP
        head = {"op": op, "p0": subtype, "seq": number}
        rows.append(row(Arrival, head=head, ready=int(kind != LATE)))
    return np.array(rows)


def play(kinds, seq, stalls=None, **cut):
    geometry = row(Geometry, **cut)[None]
    model = batch.build(Locator())
    return model.run({"i": rows_of(kinds, seq)}, signals={"geometry": geometry}, stalls=stalls)


@pytest.mark.parametrize(("packet", "chunk", "per_chunk"), GEOMETRIES)
@pytest.mark.parametrize("stalls", [{}, {"i": 0.4, "o": 0.1}])
def test_places_equal_golden(packet, chunk, per_chunk, stalls):
    rng = np.random.default_rng(packet)
    kinds, seq = arrivals(rng, 300, chunk, per_chunk, packet)
    run = play(kinds, seq, stalls, packet=packet, chunk=chunk, per_chunk=per_chunk)
    out = run.unpack("o")
    divided = np.flatnonzero(kinds < STOP)
    golden = [
        locate_offset(at, chunk=chunk, per_chunk=per_chunk, packet=packet)
        if kind == DATA
        else locate_number(at, per_chunk=per_chunk)
        for kind, at in zip(kinds[divided].tolist(), seq[divided].tolist(), strict=True)
    ]
    for name in ("chunk", "within", "whole"):
        wanted = [getattr(one, name) for one in golden]
        np.testing.assert_array_equal(out[name][divided], wanted)
    # a card has 2**13 chunks and 2**16 packets: of what lies beyond, the number is nothing
    near = (kinds[divided] == PROBE) | (out["chunk"][divided] < 2**13)
    numbers = np.array([one.number for one in golden])
    np.testing.assert_array_equal(out["number"][divided][near], numbers[near] % 2**16)
    assert out["whole"][kinds >= STOP].all()
    np.testing.assert_array_equal(out["arrival"], rows_of(kinds, seq))


@pytest.mark.parametrize(("kind", "gap", "delay"), [(DATA, 16, 30), (PROBE, 16, 16), (STOP, 2, 2)])
def test_rate_and_latency(kind, gap, delay):
    n = 20
    run = play(np.full(n, kind), 22 * np.arange(n), packet=22, chunk=440, per_chunk=20)
    assert (np.diff(run.taken["o"]) == gap).all()
    assert run.taken["o"][0] - run.taken["i"][0] == delay


@pytest.mark.parametrize(("n", "chunk", "packet"), [(5000, 1424, 352), (64, 64, 16), (1, 16, 16)])
def test_each_packet_is_found_where_it_starts(n, chunk, packet):
    cut = Cut(n, chunk, packet)
    starts = {cut.span(number)[0]: number for number in range(cut.n_packets)}
    for offset in range(n):
        found = locate_offset(offset, chunk=chunk, per_chunk=cut.per_chunk, packet=packet)
        start, stop = cut.span(found.number)
        assert start <= offset < stop
        assert found.whole == (offset in starts)
        at = locate_number(found.number, per_chunk=cut.per_chunk)
        assert (at.chunk, at.within) == (found.chunk, found.within)
