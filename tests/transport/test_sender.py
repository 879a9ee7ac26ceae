"""The sender's circuit beside the golden sender: what goes again, and in which order."""

import numpy as np
import pytest
from amaranth.sim import Simulator
from gradnic.hdl.schedule.row_reader import Message
from gradnic.hdl.transport.records import RUN
from gradnic.hdl.transport.sender import Sender
from gradnic.models.transport.sender import PROBE, Sending

from gradnic.interface.offload import Subtype
from gradnic.interface.schedule_table import Layout

N_PACKETS = 128
UNITS = 22  # of 16 elements in a packet


class Bench:
    """One chunk of `n` packets to neighbor 5; BITMAPs as the receiver writes them."""

    def __init__(self, n):
        self.n = n
        self.dut = Sender(Message(Layout.for_nodes(4), 2), 16, n_packets=N_PACKETS)
        self.seen = []

    def play(self, script):
        """Run the testbench ``script(bench, ctx)`` and return what it returns."""
        result = []

        async def testbench(ctx):
            self.ctx = ctx
            geometry = self.dut.round.geometry
            for name, value in (("packet", UNITS), ("chunk", UNITS * self.n),
                                ("per_chunk", self.n), ("last_chunk", 0),
                                ("last_per_chunk", self.n), ("tail", 16 * UNITS),
                                ("last_tail", 16 * UNITS)):  # fmt: skip
                ctx.set(geometry[name], value)
            ctx.set(self.dut.round.t_probe, 50_000)
            ctx.set(self.dut.peers[3], 5)
            ctx.set(self.dut.released.ready, 1)
            message = self.dut.messages
            ctx.set(message.p.sends[0].valid, 1)
            ctx.set(message.p.sends[0].peer, 3)
            ctx.set(message.valid, 1)
            await ctx.tick().until(message.ready)
            ctx.set(message.valid, 0)
            result.append(await script(self))

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.run()
        return result[0]

    async def turn(self, *, refused=False):
        """Packets up to the next PROBE: (numbers, retx flags, the PROBE's stamp).

        The PROBE says that it goes again if there were none, and the one before was not refused.
        """
        packets, numbers, again = self.dut.packets, [], []
        self.ctx.set(packets.ready, 1)
        while True:
            *_, packet = await self.ctx.tick().sample(packets.p).until(packets.valid)
            if packet.probe:
                assert (packet.number, packet.elems) == (0, self.n)
                assert packet.retx == (not numbers and not refused)
                return numbers, again, packet.stamp
            numbers.append(packet.number)
            again.append(packet.retx)

    async def weigh(self, important):
        weighed = self.dut.weighed
        for number, value in enumerate(important):
            self.ctx.set(weighed.valid, 1)
            self.ctx.set(weighed.number, number)
            self.ctx.set(weighed.important, int(value))
            await self.ctx.tick()
        self.ctx.set(weighed.valid, 0)

    async def answer(self, subtype, stamp, missing=()):
        control = self.dut.controls
        fields = {"subtype": subtype, "neighbor": 5, "seq": 0, "elems": self.n, "arg": stamp,
                  "body": sum(1 << k for k in range(self.n) if k not in missing)}  # fmt: skip
        for name, value in fields.items():
            self.ctx.set(control.p[name], value)
        self.ctx.set(control.valid, 1)
        await self.ctx.tick().until(control.ready)
        self.ctx.set(control.valid, 0)


@pytest.mark.parametrize("n", [1, 5, 63, RUN])
def test_important_packets_go_again_first(n):
    rng = np.random.default_rng(n)
    important = rng.random(n) < 0.5
    losses = [rng.permutation(n)[: max(1, round(n * share))] for share in (1.0, 0.6, 0.3)]
    golden = Sending([(int(one), 0) for one in important])

    def expected(now):
        numbers, again = [], []
        while (item := golden.next(now))[0] != PROBE:
            numbers.append(item[1])
            again.append(item[2])
        return numbers, again

    async def script(bench):
        *sent, stamp = await bench.turn()
        assert sent == list(expected(0))
        await bench.weigh(important)
        for now, missing in enumerate(losses, 1):
            await bench.answer(Subtype.BITMAP, stamp, set(missing.tolist()))
            *sent, stamp = await bench.turn()
            assert golden.bitmap(now - 1, missing.tolist())
            assert sent == list(expected(now))
        await bench.answer(Subtype.STOP, stamp)
        await bench.ctx.tick().repeat(200)
        return bench.ctx.get(bench.dut.drained)

    assert Bench(n).play(script) == 1


def test_bitmaps_of_any_probe_behind_the_last_packet_are_believed():
    """A round trip may be longer than the time between two PROBEs; what is on its way stays so."""

    async def script(bench):
        bench.ctx.set(bench.dut.round.t_probe, 300)
        (*_, first), (*none, second) = await bench.turn(), await bench.turn()
        assert none == [[], []]
        await bench.answer(Subtype.BITMAP, first, {3})
        *sent, third = await bench.turn()
        assert sent == [[3], [1]]
        await bench.answer(Subtype.BITMAP, second, {2})
        *none, fourth = await bench.turn()
        assert none == [[], []]
        await bench.answer(Subtype.BITMAP, third, {1})
        *sent, _ = await bench.turn()
        assert sent == [[1], [1]]
        await bench.answer(Subtype.BITMAP, fourth, {0})
        *none, _ = await bench.turn()
        assert none == [[], []]

    Bench(5).play(script)


@pytest.mark.parametrize("n_steps", [1, 2, 3, 4, 5, 7, 8, 9])
def test_bitmaps_are_believed_however_late_the_first_one_comes(n_steps):
    """The other host posts seconds later, or a link is back: steps of 2**29 cycles with a PROBE in
    each, then the answers to the last two, as the golden sender believes them.
    """
    golden, believed = Sending([(0, 0)] * 5, t_probe=3000), []

    async def script(bench):
        ctx, now, n_wraps = bench.ctx, bench.dut.now, 0
        ctx.set(bench.dut.round.t_probe, 3000)
        *_, stamp = await bench.turn()
        stamps, times = [stamp], [stamp]
        while golden.next(stamp)[0] != PROBE:
            pass
        for _ in range(n_steps):
            ctx.set(now, (ctx.get(now) + (1 << 29)) % (1 << 32))
            *none, stamp = await bench.turn()
            assert none == [[], []]
            n_wraps += stamp < stamps[-1]
            stamps.append(stamp)
            times.append(stamp + (n_wraps << 32))
            assert golden.next(times[-1]) == (PROBE, times[-1], 1)
        for k in (-2, -1):
            believed.append(golden.bitmap(times[k], [3]))
            await bench.answer(Subtype.BITMAP, stamps[k], {3})
            *sent, stamp = await bench.turn()
            assert sent == ([[3], [1]] if believed[-1] else [[], []])
            if believed[-1]:
                return

    Bench(5).play(script)
    assert believed == ([False, True] if n_steps % 2 == 0 else [True])


def test_a_probe_that_was_refused_is_soon_sent_again():
    """NOT_READY: the next PROBE after an eighth of the time, once; as the golden sender's."""
    golden = Sending([(0, 0)] * 5, t_probe=2400)

    def probes(*, since):
        return min(now for now in range(since + 1, since + 2401) if golden.due(now))

    async def script(bench):
        bench.ctx.set(bench.dut.round.t_probe, 2400)
        *_, first = await bench.turn()
        while golden.next(first)[0] != PROBE:
            pass
        await bench.answer(Subtype.NOT_READY, first)
        golden.refused()
        *none, second = await bench.turn(refused=True)
        assert none == [[], []]
        assert 0 <= second - probes(since=first) < 80
        golden.next(second)
        *none, third = await bench.turn()
        assert 0 <= third - probes(since=second) < 80
        assert none == [[], []]

    Bench(5).play(script)


@pytest.mark.parametrize("n_before", [0, 1, 6])
def test_a_run_is_sent_soon_however_many_places_are_free(n_before):
    """A look at each run that waits for its answer, and not at the other places."""

    async def script(bench):
        ctx, message = bench.ctx, bench.dut.messages
        await bench.turn()
        for _ in range(n_before):
            ctx.set(message.valid, 1)
            await ctx.tick().until(message.ready)
            ctx.set(message.valid, 0)
            await bench.turn()
        took = []
        for pause in range(40, 57):
            await ctx.tick().repeat(pause)
            ctx.set(message.valid, 1)
            await ctx.tick().until(message.ready)
            ctx.set(message.valid, 0)
            took.append(0)
            while not ctx.get(bench.dut.packets.valid):
                took[-1] += 1
                await ctx.tick()
            *_, stamp = await bench.turn()
            await bench.answer(Subtype.STOP, stamp)
        return max(took)

    # 8 to split, 4 to enter, 4 for each look and one beside it, 9 to the queue's end
    assert Bench(5).play(script) <= 8 + 4 + 4 * (n_before + 3) + 9


def test_drained_falls_two_cycles_behind_a_message():
    async def script(bench):
        await bench.ctx.tick()
        drained = [bench.ctx.get(bench.dut.drained)]
        for _ in range(300):
            await bench.ctx.tick()
            drained.append(bench.ctx.get(bench.dut.drained))
        return drained

    assert not any(Bench(5).play(script))
