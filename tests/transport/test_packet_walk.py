"""Steps from packet to packet of a tensor: the cut by itself, and the circuit's."""

import pytest
from gradnic.hdl.transport.packet_walk import LATENCY, PacketWalk
from gradnic.hdl.transport.records import UNIT
from gradnic.models.transport.packet_walk import Cut
from gradnic.sim.engine.amaranth_run import simulate

CUTS = [
    (5000, 1264, 352), (4096, 1024, 64), (1, 16, 16), (64, 16, 16), (65, 32, 16), (1408, 352, 352),
    (1409, 368, 352), (3000, 752, 1408), (5632, 2816, 352), (3000, 3008, 1408),
]  # fmt: skip
"""Elements of a tensor, of a chunk and of a packet."""


@pytest.mark.parametrize(("n_elems", "chunk", "packet"), CUTS)
def test_packets_cover_the_tensor_and_no_two_chunks(n_elems, chunk, packet):
    cut = Cut(n_elems, chunk, packet)
    places = [cut.place(number) for number in range(cut.n_packets)]
    elems = [k for one in places for k in range(one.start, one.start + one.elems)]
    assert elems == list(range(n_elems))
    for one in places:
        assert 0 < one.elems <= packet
        assert one.chunk == one.start // chunk == (one.start + one.elems - 1) // chunk
        assert one.ends_chunk == ((one.start + one.elems) % chunk == 0 or one.ends_tensor)
        assert one.elems == packet or one.ends_chunk
    assert [one.ends_tensor for one in places] == [False] * (len(places) - 1) + [True]
    assert cut.packets(0, -(-n_elems // chunk) + 3) == range(cut.n_packets)


@pytest.mark.parametrize(("n_elems", "chunk", "packet"), CUTS)
def test_every_packet_of_a_tensor(n_elems, chunk, packet):
    cut = Cut(n_elems, chunk, packet)
    last = (n_elems - 1) // chunk
    n_last = len(cut.packets(last, last + 1))
    geometry = {
        "packet": packet // UNIT,
        "chunk": chunk // UNIT,
        "per_chunk": cut.per_chunk,
        "last_per_chunk": n_last,
        "last_chunk": last,
        "tail": chunk - (cut.per_chunk - 1) * packet,
        "last_tail": n_elems - last * chunk - (n_last - 1) * packet,
    }
    part = PacketWalk()

    async def bench(ctx):
        ctx.set(part.geometry, geometry)
        ctx.set(part.place, {"chunk": 0, "within": 0, "number": 0, "offset": 0, "start": 0})
        for golden in map(cut.place, range(cut.n_packets)):
            await ctx.tick().repeat(LATENCY)
            place = ctx.get(part.place)
            assert (place.number, place.chunk, place.within) == (
                golden.number, golden.chunk, golden.within,
            )  # fmt: skip
            assert (UNIT * place.offset, UNIT * place.start) == (golden.start, golden.chunk_start)
            assert ctx.get(part.elems) == golden.elems
            assert ctx.get(part.ends_chunk) == golden.ends_chunk
            assert ctx.get(part.ends_tensor) == golden.ends_tensor
            ctx.set(part.place, ctx.get(part.following))

    simulate(part, bench)


def test_a_cut_says_what_is_wrong():
    with pytest.raises(ValueError, match="packet must be at least 1, not 0"):
        Cut(5, 1, 0)
