"""Memory engines of two jobs behind shared ports, and one memory for all ports, which pauses."""

from collections import deque

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator
from gradnic.hdl.axi.keeper import WriteKeeper
from gradnic.hdl.axi.share import WriteShare
from gradnic.hdl.offload.memory_side import MemorySide

N_BYTES, WIDTH = 4, 32
BEATS, PACKETS = 22, 6  # of a packet; of a job
AREA = 1 << 12  # beats between the regions: results, landings of a job
PORTS = ("gradient_write", "landing_write")
HANG = 1000  # cycles without a beat


class Joined(wiring.Component):
    """Two jobs' `MemorySide` with the ports that write joined as a card with jobs has them."""

    def __init__(self):
        super().__init__({})
        self.sides = [MemorySide(N_BYTES, WIDTH, roots=True) for _ in range(2)]
        self.keepers = [WriteKeeper(N_BYTES, WIDTH) for _ in PORTS]

    def elaborate(self, platform):
        m = Module()
        m.submodules += self.sides
        for name, keeper in zip(PORTS, self.keepers, strict=True):
            m.submodules[name] = share = WriteShare(N_BYTES, WIDTH, n=2)
            m.submodules[f"{name}_keeper"] = keeper
            for side, manager in zip(self.sides, share.managers, strict=True):
                wiring.connect(m, getattr(side, name), manager)
            wiring.connect(m, share.port, keeper.user)
            m.d.comb += [share.yields[1][0].eq(1), share.halts.eq(keeper.owes)]
        return m


class Source:
    """A stream of rows, each offered from its time on. row : fields."""

    def __init__(self, stream, rows):
        self.stream, self.rows = stream, deque(rows)
        self.watched = [stream.ready]

    def drive(self, ctx, now):
        self.offers = bool(self.rows) and self.rows[0][0] <= now
        ctx.set(self.stream.valid, self.offers)
        if self.offers:
            ctx.set(self.stream.p, self.rows[0][1])

    def take(self, ready):
        if self.offers and ready:
            self.rows.popleft()
        return self.offers and ready


class Memory:
    """One memory for all ports: bursts whole, in the order in which it took their addresses, each
    port in its turn; its channels pause with a share of the cycles.
    """

    def __init__(self, ports, share, rng):
        self.ports, self.share, self.rng = ports, share, rng
        self.words, self.order, self.answers = {}, deque(), [0] * len(ports)
        self.turn = 0
        self.watched = [
            signal for port in ports
            for signal in (port.awvalid, port.awaddr, port.awlen, port.wvalid, port.wdata,
                           port.wlast, port.bready)
        ]  # fmt: skip

    def drive(self, ctx, now):
        n = len(self.ports)
        self.turn = (self.turn + 1) % n
        go = self.rng.random((n, 3)) >= self.share
        first = self.order[0][0] if self.order else None
        self.ready = [
            (k == self.turn and bool(go[k, 0]), k == first and bool(go[k, 1]), answers > 0)
            for k, answers in enumerate(self.answers)
        ]
        for port, (address, data, answer) in zip(self.ports, self.ready, strict=True):
            ctx.set(port.awready, address)
            ctx.set(port.wready, data)
            ctx.set(port.bvalid, answer)

    def take(self, *signals):
        moved = False
        for k, (address, data, answer) in enumerate(self.ready):
            awvalid, awaddr, awlen, wvalid, wdata, wlast, bready = signals[7 * k : 7 * k + 7]
            if data and wvalid:
                _, at, left = self.order.popleft()
                self.words[at // N_BYTES] = wdata
                assert wlast == (left == 0)
                if left:
                    self.order.appendleft((k, at + N_BYTES, left - 1))
                self.answers[k] += left == 0
                moved = True
            self.answers[k] -= answer and bready
            if address and awvalid:
                self.order.append((k, awaddr, awlen))
        return moved


def play(kinds, *, share=0.0, seed=0, later=(0, 0), upset=None):
    """Packets of two jobs through the engines: words that memory has, and those that it must.

    kinds : of each job, True for a packet that lands, in order of arrival. later : when ranges of
    landings, of results, are there, counted from the other ones of the job beside it. upset :
    (cycle, bit) of the first job's steering.
    """
    part = Joined()
    sources, wanted = [], {}
    for k, (side, lands) in enumerate(zip(part.sides, kinds, strict=True)):
        rows = {"destinations": [], "landings": [], "results": [], "arriving": []}
        for number, down in enumerate(lands):
            offset = number * BEATS
            name = "landings" if down else "results"
            rows["destinations"].append((0, {"keep": 1, "down": 1 - down}))
            rows[name].append((later[k] if down else later[1 - k],
                               {"offset": offset, "n_beats": BEATS}))  # fmt: skip
            for beat in range(BEATS):
                value = k << 24 | number << 8 | beat
                wanted[AREA * (2 * k + 1 + down) + offset + beat] = value
                rows["arriving"].append((40, {"data": value, "last": beat == BEATS - 1}))
        sources += [Source(getattr(side, name), mine) for name, mine in rows.items()]
    memory = Memory([one.port for one in part.keepers], share, np.random.default_rng(seed))
    users = [*sources, memory]

    async def bench(ctx):
        for k, side in enumerate(part.sides):
            for region, at in ((1, 2 * k + 1), (2, 2 * k + 2)):
                ctx.set(side.regions[region], {"first": AREA * at, "n_beats": AREA})
        now = last = 0
        steering = part.sides[0].steering.as_value()
        while (len(memory.words) < len(wanted) or any(memory.answers)) and now - last < HANG:
            for user in users:
                user.drive(ctx, now)
            if upset and now == upset[0]:
                ctx.set(steering, ctx.get(steering) ^ 1 << upset[1])
            _, _, *signals = await ctx.tick().sample(*(s for u in users for s in u.watched))
            for user in users:
                n = len(user.watched)
                if user.take(*signals[:n]):
                    last = now
                signals = signals[n:]
            now += 1

    sim = Simulator(part)
    sim.add_clock(1e-8)
    sim.add_testbench(bench)
    sim.run()
    return memory.words, wanted


def test_two_jobs_that_each_promised_what_the_other_holds_up_do_not_wait_in_a_circle():
    """One has a result promised behind its landings, which are more than its engine has room for;
    the other the other way round.
    """
    found, wanted = play([(True, True, False), (False, False, True)], later=(20, 0))
    assert found == wanted


@pytest.mark.parametrize(("seed", "share"), [(1, 0.3), (2, 0.7)])
def test_packets_of_two_jobs_on_one_memory_that_pauses_are_where_they_belong(seed, share):
    lands = np.random.default_rng(seed).integers(0, 2, (2, PACKETS)).astype(bool).tolist()
    found, wanted = play(lands, share=share, seed=seed)
    assert found == wanted


@pytest.mark.parametrize("bit", range(4))
@pytest.mark.parametrize("cycle", [20, 70])  # before a packet, and in one
def test_a_flag_that_changes_by_itself_stops_its_job_and_nothing_is_written_wrongly(bit, cycle):
    lands = [(True, False, True, False), (False, True)]
    found, wanted = play(lands, upset=(cycle, bit))
    assert found.items() <= wanted.items()
    of_first = {at for at in wanted if at < 3 * AREA}
    assert of_first - found.keys()
    assert wanted.keys() - of_first <= found.keys()
