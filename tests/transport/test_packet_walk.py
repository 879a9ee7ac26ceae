"""Steps from packet to packet of a tensor, against the golden plan's packets."""

import pytest
from gradnic.hdl.transport.packet_walk import LATENCY, PacketWalk
from gradnic.hdl.transport.records import UNIT
from gradnic.models.offload.plan import Plan
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.engine.amaranth_run import simulate

TABLE = compile_table(build(parse("ring:4"), "ring"))


@pytest.mark.parametrize(
    ("n_elems", "packet"),
    [(5000, 352), (4096, 64), (1, 16), (64, 16), (65, 16), (1408, 352), (1409, 352), (3000, 1408)],
)
def test_every_packet_of_a_tensor(n_elems, packet):
    plan = Plan(TABLE, n_elems, packet=packet)
    live = -(-n_elems // plan.chunk)
    rest = n_elems - (live - 1) * plan.chunk
    n_last = -(-rest // packet)
    geometry = {
        "packet": packet // UNIT,
        "chunk": plan.chunk // UNIT,
        "per_chunk": plan.per_chunk,
        "last_per_chunk": n_last,
        "last_chunk": live - 1,
        "tail": plan.chunk - (plan.per_chunk - 1) * packet,
        "last_tail": rest - (n_last - 1) * packet,
    }
    part = PacketWalk()

    async def bench(ctx):
        ctx.set(part.geometry, geometry)
        ctx.set(part.place, {"chunk": 0, "within": 0, "number": 0, "offset": 0, "start": 0})
        for number in range(plan.n_packets):
            await ctx.tick().repeat(LATENCY)
            place, (start, stop) = ctx.get(part.place), plan.span(number)
            chunk, within = divmod(number, plan.per_chunk)
            assert (place.number, place.chunk, place.within) == (number, chunk, within)
            assert (UNIT * place.offset, UNIT * place.start) == (start, chunk * plan.chunk)
            assert ctx.get(part.elems) == stop - start
            is_last = number == plan.n_packets - 1
            ends = is_last or plan.span(number + 1)[0] % plan.chunk == 0
            assert ctx.get(part.ends_chunk) == ends
            assert ctx.get(part.ends_tensor) == is_last
            ctx.set(part.place, ctx.get(part.following))

    simulate(part, bench)
