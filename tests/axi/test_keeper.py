"""A memory port whose user is reset in the middle of anything: bursts stay whole."""

import numpy as np
from amaranth.hdl import Module, ResetInserter
from amaranth.lib import wiring
from gradnic.hdl.axi.keeper import ReadKeeper, WriteKeeper
from gradnic.hdl.axi.share import WriteShare
from gradnic.sim.engine.amaranth_run import simulate

N_BYTES, WIDTH, N_CYCLES = 16, 32, 1200


class Resets:
    """When the user is reset: `anew` comes once nothing is offered any more."""

    def __init__(self, rng):
        self.rng, self.closed, self.n = rng, False, 0

    def cycle(self, ctx, part):
        """Whether the user is reset in this cycle."""
        if not self.closed and self.rng.random() < 0.02:
            self.closed = True
            ctx.set(part.closed, 1)
            return False
        anew = self.closed and bool(ctx.get(part.still))
        ctx.set(part.anew, int(anew))
        self.n += anew
        return anew

    def after(self, ctx, part, anew):
        if anew:
            ctx.set(part.anew, 0)
            ctx.set(part.closed, 0)
            self.closed = False


def offered(ctx, port, prefix, fields):
    """What is offered on a channel, or None."""
    if not ctx.get(getattr(port, prefix + "valid")):
        return None
    return tuple(ctx.get(getattr(port, prefix + name)) for name in fields)


def test_reads_of_a_user_that_is_gone_come_to_nobody():
    rng = np.random.default_rng(1)
    part, resets = ReadKeeper(N_BYTES, WIDTH), Resets(rng)
    user, port = part.user, part.port
    wanted, at_memory, held, n_asked, n_got = [], [], None, 0, 0

    async def bench(ctx):
        nonlocal held, n_asked, n_got, wanted
        asks = False
        for _ in range(N_CYCLES):
            asks = asks or (len(wanted) < 40 and rng.random() < 0.5)
            length = 1 + n_asked % 5
            ctx.set(user.arvalid, int(asks))
            ctx.set(user.araddr, 64 * n_asked)
            ctx.set(user.arlen, length - 1)
            ctx.set(user.rready, int(rng.random() < 0.8))
            ctx.set(port.arready, int(rng.random() < 0.7))
            gives = bool(at_memory) and rng.random() < 0.8
            ctx.set(port.rvalid, int(gives))
            if gives:
                ctx.set(port.rdata, at_memory[0][0])
                ctx.set(port.rlast, at_memory[0][1] == 1)
            anew = resets.cycle(ctx, part)
            now = offered(ctx, port, "ar", ("addr", "len"))
            assert held is None or now == held, "an offer changed"
            assert ctx.get(part.open) == bool(at_memory)
            taken = now and ctx.get(port.arready)
            assert ctx.get(part.waits) == bool((now and not taken) or (at_memory and not gives))
            held = now if now and not taken else None
            if taken:
                assert ctx.get(user.arready)
                at_memory.append((now[0] << 8, now[1] + 1))
                wanted += [(now[0] << 8) + k for k in range(now[1] + 1)]
                asks, n_asked = False, n_asked + 1
            if ctx.get(user.rvalid) and ctx.get(user.rready):
                assert ctx.get(user.rdata) == wanted.pop(0)
                n_got += 1
            if gives and ctx.get(port.rready):
                first, left = at_memory.pop(0)
                if left > 1:
                    at_memory.insert(0, (first + 1, left - 1))
            if anew:
                wanted, asks, n_asked = [], False, n_asked + 1
            await ctx.tick()
            resets.after(ctx, part, anew)

    simulate(part, bench)
    assert resets.n > 8
    assert n_got > 200


def test_writes_of_a_user_that_is_gone_end_without_a_byte():
    rng = np.random.default_rng(1)
    part, resets = WriteKeeper(N_BYTES, WIDTH), Resets(rng)
    user, port = part.user, part.port
    beats, answers, at_memory, log, kept = [], [], [], [], []
    held = {"aw": None, "w": None}

    async def bench(ctx):
        nonlocal beats
        life, asks, sent, done, expected, early = 0, False, 0, 0, 0, 0
        for cycle in range(3 * N_CYCLES):
            asks = asks or (len(beats) < 12 and rng.random() < 0.5)
            length = 1 + (sent + life) % 5
            ctx.set(user.awvalid, int(asks))
            ctx.set(user.awaddr, life << 16 | sent << 6)
            ctx.set(user.awlen, length - 1)
            gives = bool(beats) and (held["w"] is not None or rng.random() < 0.7)
            ctx.set(user.wvalid, int(gives))
            if not ctx.get(part.owes):
                ctx.set(user.wdata, beats[0] if gives else int(rng.integers(1 << 30)))
            ctx.set(user.wstrb, 0xFFFF)
            ctx.set(user.bready, int(rng.random() < 0.8))
            for name, share in ("awready", 0.4), ("wready", 0.7):
                ctx.set(getattr(port, name), int(rng.random() < share))
            answer = bool(answers) and cycle >= answers[0]
            ctx.set(port.bvalid, int(answer))
            anew = resets.cycle(ctx, part)
            now = {"aw": offered(ctx, port, "aw", ("addr", "len")),
                   "w": offered(ctx, port, "w", ("data", "strb", "last"))}  # fmt: skip
            for name, value in now.items():
                assert held[name] is None or held[name] == value, "an offer changed"
                taken = bool(value) and ctx.get(getattr(port, name + "ready"))
                held[name] = value if value and not taken else None
            if now["aw"] and held["aw"] is None:
                at_memory.append([now["aw"][0], now["aw"][1] + 1 - early])
                if early and not at_memory[-1][1]:
                    answers.append(cycle + 1 + int(rng.integers(30)))
                early = 0
                kept.append(now["aw"][0] >> 16 != life)
            if asks and ctx.get(user.awready):
                assert now["aw"][0] == life << 16 | sent << 6
                beats += [(life << 16 | sent << 6) + k for k in range(length)]
                asks, sent, expected = False, sent + 1, expected + 1
            if now["w"] and held["w"] is None:
                data, strobe, last = now["w"]
                burst = next((b for b in at_memory if b[1]), None)
                if burst is None:  # of an address that was not taken when its user was reset
                    assert not strobe
                    assert held["aw"]
                    early += 1
                    assert last == (early == held["aw"][1] + 1)
                else:
                    burst[1] -= 1
                    assert last == (burst[1] == 0)
                    if strobe:
                        assert data == beats.pop(0)
                        assert burst[0] >> 16 == life
                log.append(strobe)
                if last and burst:
                    answers.append(cycle + 1 + int(rng.integers(30)))
            if ctx.get(user.bvalid) and ctx.get(user.bready):
                done += 1
            if answer and ctx.get(port.bready):
                answers.pop(0)
            if anew:
                assert done <= expected
                life, beats, asks, sent, done, expected = life + 1, [], False, 0, 0, 0
            await ctx.tick()
            resets.after(ctx, part, anew)
        ctx.set(user.awvalid, 0)
        ctx.set(user.wvalid, 0)
        assert done <= expected

    simulate(part, bench)
    assert resets.n > 8
    assert len(log) > 300
    assert 0 in log
    assert any(kept)
    assert sum(strobe != 0 for strobe in log) > 200


class Kept(wiring.Component):
    """Two managers behind a share that is reset, and what keeps its port."""

    def __init__(self):
        self.share, self.keeper = WriteShare(N_BYTES, WIDTH, n=2), WriteKeeper(N_BYTES, WIDTH)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.share = ResetInserter(self.keeper.anew)(self.share)
        m.submodules.keeper = self.keeper
        wiring.connect(m, self.share.port, self.keeper.user)
        m.d.comb += self.share.halts.eq(self.keeper.owes)
        return m


def test_what_is_owed_stays_as_offered_while_new_managers_have_beats():
    """Data of beats that nobody waits for stay until memory has taken them; managers' own come
    after them, in order, and none is lost.
    """
    rng, part = np.random.default_rng(2), Kept()
    keeper, port, managers = part.keeper, part.keeper.port, part.share.managers
    resets, seen = Resets(rng), {"owed": 0, "moved": 0, "own": 0}

    async def bench(ctx):
        asked, given, got = [0, 0], [0, 0], [[], []]
        held, life, at_memory = None, 0, 0
        for _ in range(3 * N_CYCLES):
            for k, one in enumerate(managers):
                ctx.set(one.awvalid, int(4 * asked[k] - given[k] < 8))
                ctx.set(one.awlen, 3)
                ctx.set(one.wvalid, int(given[k] < 4 * asked[k] and rng.random() < 0.8))
                ctx.set(one.wdata, life << 24 | k << 20 | given[k])
                ctx.set(one.wstrb, 0xFFFF)
                ctx.set(one.wlast, given[k] % 4 == 3)
                ctx.set(one.bready, 1)
            ctx.set(port.awready, int(rng.random() < 0.6))
            ctx.set(port.wready, int(rng.random() < 0.4))
            ctx.set(port.bvalid, int(at_memory > 0 and rng.random() < 0.5))
            anew = resets.cycle(ctx, keeper)
            now = offered(ctx, port, "w", ("data", "strb", "last"))
            assert held is None or now == held, "an offer changed"
            taken = now is not None and ctx.get(port.wready)
            held = now if now is not None and not taken else None
            if now is not None and not now[1]:
                assert ctx.get(keeper.owes)
                seen["owed"] += 1
                seen["moved"] += any(ctx.get(one.wvalid) for one in managers)
                assert not any(ctx.get(one.wready) for one in managers)
            elif taken:
                assert now[0] >> 24 == life
                got[now[0] >> 20 & 1].append(now[0] & 0xFFFFF)
                seen["own"] += 1
            at_memory += taken and now[2]
            at_memory -= ctx.get(port.bvalid) and ctx.get(port.bready)
            for k, one in enumerate(managers):
                asked[k] += ctx.get(one.awvalid) and ctx.get(one.awready)
                given[k] += ctx.get(one.wvalid) and ctx.get(one.wready)
                assert got[k] == list(range(len(got[k])))
            if anew:
                asked, given, got, life = [0, 0], [0, 0], [[], []], life + 1
            await ctx.tick()
            resets.after(ctx, keeper, anew)

    simulate(part, bench)
    assert resets.n > 8
    assert min(seen.values()) > 20, seen


def test_an_address_that_waits_for_its_data_stays_when_its_user_is_gone():
    """Memory takes data first: what the user owes comes without a byte, then its address goes."""
    part = WriteKeeper(N_BYTES, WIDTH)
    user, port = part.user, part.port

    async def bench(ctx):
        def is_offered(address, length):
            return offered(ctx, port, "aw", ("addr", "len")) == (address, length - 1)

        ctx.set(user.bready, 1)
        ctx.set(user.awvalid, 1)
        ctx.set(user.awaddr, 0x1000)
        ctx.set(user.awlen, 3)
        await ctx.tick().repeat(4)
        assert is_offered(0x1000, 4)
        assert not ctx.get(part.waits), "the user owes data and has none: memory may wait for it"
        ctx.set(user.wvalid, 1)
        assert ctx.get(part.waits & ~part.still)
        ctx.set(user.wvalid, 0)
        ctx.set(part.closed, 1)
        await ctx.tick()
        assert ctx.get(part.still)
        ctx.set(part.anew, 1)
        await ctx.tick()
        ctx.set(part.anew, 0)
        ctx.set(part.closed, 0)
        ctx.set(user.awaddr, 0x2000)
        ctx.set(user.awlen, 0)
        ctx.set(user.wvalid, 1)
        ctx.set(user.wstrb, 0xFFFF)
        ctx.set(user.wdata, 7)
        ctx.set(port.wready, 1)
        for k in range(4):
            assert is_offered(0x1000, 4)
            assert ctx.get(part.owes)
            assert offered(ctx, port, "w", ("strb", "last")) == (0, k == 3)
            assert not ctx.get(user.awready | user.wready)
            await ctx.tick()
        assert is_offered(0x1000, 4)
        assert not ctx.get(port.wvalid)
        ctx.set(port.awready, 1)
        assert not ctx.get(user.awready)
        await ctx.tick()
        assert is_offered(0x2000, 1)
        assert ctx.get(user.awready)
        await ctx.tick()
        ctx.set(user.awvalid, 0)
        assert offered(ctx, port, "w", ("data", "strb", "last")) == (7, 0xFFFF, 1)
        await ctx.tick()
        ctx.set(user.wvalid, 0)
        for heard in range(2):
            ctx.set(port.bvalid, 1)
            assert ctx.get(part.open & port.bready)
            assert ctx.get(user.bvalid) == heard
            await ctx.tick()
        ctx.set(port.bvalid, 0)
        assert not ctx.get(part.open | port.awvalid | port.wvalid)

    simulate(part, bench)


def test_an_answer_in_the_cycle_after_the_reset_comes_to_nobody():
    """Of a burst that was asked for before it, and of one that was taken with it."""
    part = ReadKeeper(N_BYTES, WIDTH)

    async def bench(ctx):
        ctx.set(part.user.rready, 1)
        ctx.set(part.port.arready, 1)
        ctx.set(part.port.rlast, 1)
        for before in 1, 0:
            ctx.set(part.user.arvalid, 1)
            for _ in range(before):
                await ctx.tick()
                ctx.set(part.user.arvalid, 0)
            ctx.set(part.anew, 1)
            await ctx.tick()
            ctx.set(part.user.arvalid, 0)
            ctx.set(part.anew, 0)
            ctx.set(part.port.rvalid, 1)
            assert not ctx.get(part.user.rvalid)
            assert ctx.get(part.port.rready)
            await ctx.tick()
            ctx.set(part.port.rvalid, 0)
            assert not ctx.get(part.open)

    simulate(part, bench)
