"""Neighbors of a card: whose frames are taken."""

from gradnic.hdl.offload.parser import PacketParser
from gradnic.models.frame.address import Address
from gradnic.models.frame.ipv4 import gradnic_frame
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.interface.formats import Op
from gradnic.interface.offload import Drop

HEAD = {"op": Op.RAW, "set": 1, "job": 7, "gen": 1, "elems": 16, "p0": 1, "imp": 1}


def test_of_a_node_under_several_numbers_the_lowest_counts():
    """Others are as if they were not there; a neighbor that is removed leaves no trace."""
    part = PacketParser(64, 1, n_contexts=2)
    own, other = (Address(0, mac=0x020000000000 + k, ip=0x0A000000 + k) for k in range(2))
    frame = gradnic_frame(other, own, 0, HEAD | {"src": 1}, bytes(64))

    async def fate(ctx, entries):
        for index, valid in entries:
            entry = {"valid": valid, "node": 1, "mac": other.mac, "ip": other.ip}
            ctx.set(part.write, {"enable": 1, "index": index, "neighbor": entry})
            await ctx.tick()
        ctx.set(part.write, {})
        ctx.set(part.beats.ready, 1)
        ctx.set(part.i.valid, 1)
        for at in range(0, len(frame), 64):
            ctx.set(part.i.p.data, int.from_bytes(frame[at : at + 64], "little"))
            ctx.set(part.i.p.keep, (1 << 64) - 1)
            ctx.set(part.i.p.last, at + 64 >= len(frame))
            await ctx.tick().until(part.i.ready)
        ctx.set(part.i.valid, 0)
        await ctx.tick().until(part.facts.valid)
        facts = ctx.get(part.facts.p)
        ctx.set(part.facts.ready, 1)
        await ctx.tick()
        ctx.set(part.facts.ready, 0)
        return Drop(facts.drop), facts.head.neighbor

    async def bench(ctx):
        assert await fate(ctx, [(9, 1), (6, 1)]) == (Drop.NONE, 6)
        assert await fate(ctx, [(6, 0)]) == (Drop.NONE, 9)
        assert (await fate(ctx, [(9, 0)]))[0] == Drop.OWNER

    simulate(part, bench)
