"""Table that reads 0 where nothing was written: equal to a list, and kept by a reset."""

import pytest
from amaranth.hdl import Fragment, ResetInserter, Signal
from amaranth.sim import Simulator
from gradnic.hdl.primitive.zeroed_table import ZeroedTable


class _NoisyTable(ZeroedTable):
    """As at the power-up of a part whose memories do not begin with zeros."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        m.submodules.words.data.init = [0x5A + k for k in range(self.depth)]
        return m


@pytest.mark.parametrize("depth", [2, 5, 16])
def test_reads_what_was_written(depth):
    table, reset = _NoisyTable(8, depth), Signal()
    order = [k * 3 % depth for k in range(depth)] if depth % 3 else list(range(depth))

    async def bench(ctx):
        model = [0] * depth

        async def compare():
            for k in range(depth):
                ctx.set(table.read_addr, k)
                await ctx.delay(1e-9)
                assert ctx.get(table.read_data) == model[k]

        await compare()
        for k in order:
            ctx.set(table.write_addr, k)
            ctx.set(table.write_data, 200 - k)
            ctx.set(table.write_en, 1)
            await ctx.tick()
            ctx.set(table.write_en, 0)
            model[k] = 200 - k
            await compare()
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        await compare()

    simulator = Simulator(Fragment.get(ResetInserter(reset)(table), None))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_depth():
    with pytest.raises(ValueError, match="depth must be 2 to 256, not 257"):
        ZeroedTable(8, 257)
