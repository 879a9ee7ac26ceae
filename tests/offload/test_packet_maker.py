"""The maker's heads behind terminal rows whose values nobody takes yet."""

from amaranth.hdl import Module
from amaranth.sim import Simulator
from gradnic.hdl.offload.packet_maker import PacketMaker

N_BYTES, ELEMS = 16, 352
BEATS = 4 * ELEMS // N_BYTES  # of a packet, more than the maker keeps of a terminal row


def test_a_head_waits_until_the_sums_of_terminal_rows_before_it_have_gone():
    """Whoever has a head waits for its payload, and others wait for him: so memory must not."""
    m = Module()
    m.submodules.maker = maker = PacketMaker(
        N_BYTES, n_ranks=1, max_elems=ELEMS, thc=False, inc=False, roots=True
    )
    heads, kept = [], []

    async def packets(ctx):
        await ctx.tick().repeat(520)  # the tagger clears
        for number, terminal in enumerate((0, 1, 0)):
            ctx.set(maker.packets.p, {"terminal": terminal, "elems": ELEMS, "number": number})
            ctx.set(maker.packets.valid, 1)
            await ctx.tick().until(maker.packets.ready)
            ctx.set(maker.packets.valid, 0)
            await ctx.tick()

    async def values(ctx):
        asked = 0
        ctx.set(maker.reads.ready, 1)
        while True:
            ctx.set(maker.values.valid, asked > 0)
            _, _, asks, took = await ctx.tick().sample(maker.reads.valid, maker.values.ready)
            asked += BEATS * asks - (asked > 0 and took)

    async def out(ctx):
        ctx.set(maker.heads.ready, 1)
        ctx.set(maker.payload.ready, 1)
        ctx.set(maker.own.ready, 1)
        while True:
            _, _, head, *keeps = await ctx.tick().sample(
                maker.heads.valid, maker.kept.valid, maker.kept.ready
            )
            heads.extend([len(kept)] * head)
            kept.extend([None] * all(keeps))

    async def bench(ctx):
        await ctx.tick().repeat(520 + 10 * BEATS)
        assert heads == [0]  # that of the packet before the row
        ctx.set(maker.kept.ready, 1)
        await ctx.tick().repeat(4 * BEATS)
        assert len(kept) == BEATS
        assert len(heads) == 2
        assert heads[1] > BEATS - 24  # all but what the codec's image holds had gone

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    for other in (packets, values, out):
        simulator.add_testbench(other, background=True)
    simulator.run()
