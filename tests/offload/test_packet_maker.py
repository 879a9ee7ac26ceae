"""The maker's heads, and terminal rows before and behind them."""

import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator
from gradnic.hdl.offload.packet_maker import PacketMaker

N_BYTES, ELEMS = 16, 352
CLEARED = 520  # cycles, after which the tagger is ready


class Bench:
    """One maker that is asked for packets, and whose values are at hand."""

    def __init__(self, terminals, elems):
        self.terminals, self.elems, self.beats = terminals, elems, -(-4 * elems // N_BYTES)
        self.heads, self.kept = [], 0  # how many beats of rows had gone as each head left
        self.maker = PacketMaker(
            N_BYTES, n_ranks=1, max_elems=ELEMS, thc=False, inc=False, roots=True
        )

    def run(self, bench):
        m = Module()
        m.submodules.maker = self.maker
        simulator = Simulator(m)
        simulator.add_clock(1e-8)
        simulator.add_testbench(bench)
        for other in (self._packets, self._values, self._out):
            simulator.add_testbench(other, background=True)
        simulator.run()

    async def _packets(self, ctx):
        maker = self.maker
        await ctx.tick().repeat(CLEARED)
        for number, terminal in enumerate(self.terminals):
            packet = {"terminal": terminal, "elems": self.elems, "number": number}
            ctx.set(maker.packets.p, packet)
            ctx.set(maker.packets.valid, 1)
            await ctx.tick().until(maker.packets.ready)
            ctx.set(maker.packets.valid, 0)
            await ctx.tick()

    async def _values(self, ctx):
        asked = 0
        ctx.set(self.maker.reads.ready, 1)
        while True:
            ctx.set(self.maker.values.valid, asked > 0)
            _, _, asks, took = await ctx.tick().sample(
                self.maker.reads.valid, self.maker.values.ready
            )
            asked += self.beats * asks - (asked > 0 and took)

    async def _out(self, ctx):
        maker = self.maker
        ctx.set(maker.payload.ready, 1)
        ctx.set(maker.own.ready, 1)
        while True:
            _, _, *head, valid, ready = await ctx.tick().sample(
                maker.heads.valid,
                maker.heads.ready,
                maker.terminal_values.valid,
                maker.terminal_values.ready,
            )
            self.heads.extend([self.kept] * all(head))
            self.kept += valid and ready


def test_a_head_waits_until_the_sums_of_terminal_rows_before_it_have_gone():
    """Whoever has a head waits for its payload, and others wait for him: so memory must not."""
    bench = Bench((0, 1, 0), ELEMS)
    beats = bench.beats

    async def play(ctx):
        ctx.set(bench.maker.heads.ready, 1)
        await ctx.tick().repeat(CLEARED + 10 * beats)
        assert bench.heads == [0]  # that of the packet before the row
        ctx.set(bench.maker.terminal_values.ready, 1)
        await ctx.tick().repeat(4 * beats)
        assert bench.kept == beats
        assert len(bench.heads) == 2
        assert bench.heads[1] > beats - 24  # all but what the codec's image holds had gone

    bench.run(play)


@pytest.mark.parametrize("rows", [5, 40])
def test_a_head_may_be_overtaken_by_any_number_of_terminal_rows(rows):
    bench = Bench((0, 0, 0) + (1,) * rows, 16)

    async def play(ctx):
        ctx.set(bench.maker.terminal_values.ready, 1)
        await ctx.tick().repeat(CLEARED + 40 * rows + 200)
        assert bench.kept == rows * bench.beats
        assert bench.heads == []
        ctx.set(bench.maker.heads.ready, 1)
        await ctx.tick().repeat(100)
        assert len(bench.heads) == 3

    bench.run(play)


@pytest.mark.parametrize("terminal", [0, 1])
def test_packets_leave_without_a_cycle_between_them(terminal):
    """Raw ones that are not scored, and sums of terminal rows."""
    bench = Bench((terminal,) * 6, ELEMS)
    maker, went = bench.maker, []
    leaves = maker.terminal_values if terminal else maker.payload

    async def play(ctx):
        ctx.set(maker.heads.ready, 1)
        ctx.set(maker.terminal_values.ready, 1)
        for cycle in range(CLEARED + 8 * bench.beats):
            _, _, beat = await ctx.tick().sample(leaves.valid & leaves.ready)
            went.extend([cycle] * beat)

    bench.run(play)
    assert went == list(range(went[0], went[0] + 6 * bench.beats))
