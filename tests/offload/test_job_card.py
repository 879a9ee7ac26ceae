"""Registers of a card with jobs, as its driver writes and reads them, around a core that only
keeps a queue: a job ends at once, and its completion says what came through.
"""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator
from gradnic.hdl.offload.job_card import JobCard
from gradnic.hdl.offload.job_core import JobCore
from gradnic.hdl.offload.job_queue import JobQueue
from gradnic.models.offload.codec import Thc
from gradnic.models.thc import Worker
from gradnic.sim.engine.amaranth_run import lite_read
from gradnic.sim.offload.recorder import Recorder

from gradnic.host import JobDriver
from gradnic.interface.job import (
    COMPLETION,
    QUEUE,
    Collective,
    Completion,
    Job,
    JobCodec,
    JobStatus,
)
from gradnic.interface.job_card import CELLS, JOBS, LEVELS, REGISTERS
from gradnic.interface.offload import Table
from gradnic.interface.schedule_table import Layout

LAYOUT = Layout.for_nodes(8, ports=4)
SIZES = {"n_active": 2, "n_tables": 2, "depth": 64, "n_chunks": 16, "n_packets": 256, "n_ranks": 4}
TOLD = REGISTERS["status"].fields[2].mask
IDLE = REGISTERS["status"].fields[1].mask
TOGGLE = REGISTERS["table_write"].fields[-1].mask
_kept = []  # a core that gives its shape and is never built must not die before the process


class Core(wiring.Component):
    """The ports of `JobCore`; of its parts only the queue, which `go` empties."""

    def __init__(self, **more):
        whole = JobCore(16, 1, LAYOUT, **SIZES, **more)
        _kept.append(whole)
        for name in ("n_bytes", "n_ports", "n_active", "n_engines", "n_tables", "inc", "bf16",
                     "scale", "thc", "address_width", "meta_width", "rx_meta_width",
                     "port_bytes", "roots", "passes", "feedback", "gives_up", "maxima", "bits",
                     "queues", "n_ranks",
                     "n_chunks", "layout", "depth", "max_elems"):  # fmt: skip
            setattr(self, name, getattr(whole, name))
        self.go, self.told = Signal(), Signal(32)  # what the queues' counter shows
        super().__init__(dict(whole.signature.members.items()))

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = JobQueue()
        wiring.connect(m, wiring.flipped(self.post), queue.post)
        wiring.connect(m, wiring.flipped(self.abort), queue.abort)
        job, record = queue.oldest.job, self.completions.p
        m.d.comb += [
            self.completions.valid.eq(queue.present & self.go),
            queue.pop.eq(self.completions.valid & self.completions.ready),
            record.id.eq(job.id),
            record.status.eq(queue.aborted << 1),
            record.detail.eq(job.gen),
            record.leaves_least.eq(job.tensor),
            record.leaves_most.eq(job.p_q16),
            record.given_up.eq(job.source),
            record.cycles.eq(job.result),
            self.finished.eq(~queue.busy),
            *([self.queue_count.eq(self.told)] if self.queues else []),
        ]
        return m


async def play(ctx, bus, recorder):
    """Write on the bus what the driver wrote."""
    for address, word in recorder.log:
        ctx.set(bus.awaddr, address)
        ctx.set(bus.awvalid, 1)
        ctx.set(bus.wdata, word)
        ctx.set(bus.wstrb, 15)
        ctx.set(bus.wvalid, 1)
        ctx.set(bus.bready, 1)
        waits = {"aw", "w"}
        while waits:
            done = {name for name in waits if ctx.get(getattr(bus, name + "ready"))}
            await ctx.tick()
            for name in done:
                ctx.set(getattr(bus, name + "valid"), 0)
            waits -= done
        while not ctx.get(bus.bvalid):
            await ctx.tick()
        await ctx.tick()
    recorder.log.clear()


async def read(ctx, bus, name):
    """A register's word."""
    return await lite_read(ctx, bus, REGISTERS[name].offset)


async def record(ctx, bus):
    words = [await read(ctx, bus, f"completion_{k}") for k in range(COMPLETION.n_bytes // 4)]
    return Completion.parse(b"".join(word.to_bytes(4, "big") for word in words))


def fields(name, word):
    return {f.name: word >> f.lsb & (1 << f.width) - 1 for f in REGISTERS[name].fields}


def job(k, rng):
    draw = [int(x) for x in rng.integers(0, 1 << 16, 4)]
    wide = [int(x) for x in rng.integers(0, 1 << 62, 2)]
    return Job(1000 + k, draw[0], draw[1], draw[2], *wide, p_q16=draw[3], layer=k % 8, table=k % 16)


class Card(JobCard):
    """The registers around that core."""

    def _core(self, n_bytes, n_ports, layout, **more):
        return Core(**more)


def simulate(bench, **more):
    card, recorder = Card(16, 1, LAYOUT, **more), Recorder()
    core = card.core
    m = Module()
    m.submodules.card = card
    simulator = Simulator(m)
    simulator.add_clock(1e-8)

    async def wrapped(ctx):
        driver = JobDriver(
            recorder.read, recorder.write, n_bytes=16, n_ports=1, n_ranks=4, n_rows=64, n_chunks=16,
            n_peers=2**LAYOUT.peer, n_active=2, n_engines=2, n_tables=4,
            sleep=lambda s: None,
        )  # fmt: skip
        await bench(ctx, card, core, driver, recorder)

    simulator.add_testbench(wrapped)
    simulator.run()
    return recorder


def test_jobs_go_in_and_completions_come_out():
    rng = np.random.default_rng(1)
    jobs = [job(k, rng) for k in range(QUEUE + 2)]

    async def bench(ctx, card, core, driver, recorder):
        bus = card.bus
        for one in jobs:
            recorder.words[REGISTERS["events"].offset] = 0
            driver.post(one)
            await play(ctx, bus, recorder)
        status = fields("status", await read(ctx, bus, "status"))
        assert (status["idle"], status["completion"], status["n_active"], status["n_tables"]) == (
            0, 0, 2, 2
        )  # fmt: skip
        assert fields("events", await read(ctx, bus, "events"))["overrun"] == 1
        driver.abort(jobs[3].id)
        await play(ctx, bus, recorder)
        while fields("status", await read(ctx, bus, "status"))["aborting"]:
            await ctx.tick()
        ctx.set(core.go, 1)
        for k, one in enumerate(jobs[:QUEUE]):
            assert fields("status", await read(ctx, bus, "status"))["completion"] == 1
            told = await record(ctx, bus)
            want = (one.id, 2 * (k == 3), one.gen, one.tensor, one.p_q16, one.source, one.result)
            assert (told.id, told.status, told.detail, told.leaves_least, told.leaves_most,
                    told.given_up, told.cycles) == want  # fmt: skip
            recorder.words[REGISTERS["status"].offset] = TOLD
            driver.write("events", 31)
            driver.completion()
            await play(ctx, bus, recorder)
            # of the one behind it, and not of the one that was taken
            events = fields("events", await read(ctx, bus, "events"))
            assert events["ended"] == (k < QUEUE - 1)
        status = fields("status", await read(ctx, bus, "status"))
        assert (status["idle"], status["completion"]) == (1, 0)

    simulate(bench)


def test_settings_and_tables_reach_the_core():
    async def bench(ctx, card, core, driver, recorder):
        bus = card.bus
        driver.identify(mac=0x0200DEADBEEF, ip=0x0A000001, node=3, tenant=7, tos=6)
        driver.allow_memory(1, 0x12340, 0x4000)
        await ctx.tick().repeat(2)
        assert ctx.get(core.unplaced) == 1  # nobody has said where
        driver.write("landing0_low", 0x10000)
        driver.write("landing0_high", 0)
        await play(ctx, bus, recorder)
        await ctx.tick().repeat(3)
        assert ctx.get(core.unplaced) == 1  # of the second context
        driver.set_landing([0x10000, 0x20000], 1000)
        driver.set("packet", units=6)
        driver.set("watchdog", value=5000)
        await play(ctx, bus, recorder)
        await ctx.tick().repeat(3)
        assert ctx.get(core.own.mac) == 0x0200DEADBEEF
        assert (ctx.get(core.own.ip), ctx.get(core.own.node)) == (0x0A000001, 3)
        assert (ctx.get(core.round.job), ctx.get(core.round.tos)) == (7, 6)
        assert (ctx.get(core.sources[1].first), ctx.get(core.sources[1].n_beats)) == (
            0x1234, 0x400
        )  # fmt: skip
        assert [ctx.get(core.landings[k]) for k in range(2)] == [0x1000, 0x2000]
        assert ctx.get(core.unplaced) == 0
        assert ctx.get(core.landing) == 63 * 4 * 4
        assert (ctx.get(core.round.geometry.packet), ctx.get(core.watchdog)) == (6, 5000)
        image = bytes(range(3 * LAYOUT.row_bytes))
        driver.load_table(
            1, image, LAYOUT.row_bytes, [({0: (2, 1, 5)}, None), ({}, 1)], [2, 1], n_chunks=2,
            leaves=3, collective=Collective.ALL_GATHER,
        )  # fmt: skip
        log = list(recorder.log)
        recorder.log.clear()
        seen = {Table.ROWS: [], Table.PLACES: [], JOBS: []}
        for entry in log:  # what the core is told of each write
            recorder.log.append(entry)
            await play_watching(ctx, bus, recorder, core, seen)
        rows = [at for at, _ in seen[Table.ROWS]]
        assert rows == [64, 65, 66]
        mask = (1 << LAYOUT.width) - 1
        size = LAYOUT.row_bytes
        assert [word for _, word in seen[Table.ROWS]] == [
            int.from_bytes(image[k * size : (k + 1) * size], "little") & mask for k in range(3)
        ]
        assert [at for at, _ in seen[Table.PLACES]] == [16, 17]
        ((index, table),) = seen[JOBS]
        assert index == 1
        assert (table.valid, table.rows, table.peers, table.chunks, table.leaves) == (1, 3, 2, 2, 3)
        assert (table.repeats, table.iterations, table.stride) == (1, 1, 0)
        assert table.collective == Collective.ALL_GATHER
        assert [ctx.get(core.peers[1][k]) for k in range(2)] == [2, 1]

    simulate(bench)


def test_tables_have_numbers_of_their_own():
    numbers = [*Table, JOBS, CELLS, LEVELS]
    assert len({*map(int, numbers)}) == len(numbers)
    assert max(numbers) < 16


def test_queues_and_the_rule_of_closing_reach_the_core():
    async def bench(ctx, card, core, driver, recorder):
        seen, asked = {Table.QUEUES: []}, {"count": 37, "port": 1}
        status = await read(ctx, card.bus, "status")
        assert fields("status", status)["queues"] == 1
        recorder.words[REGISTERS["status"].offset] = status
        driver.set("closing", at_share=1)
        driver.set("queue_shown", **asked)
        await play(ctx, card.bus, recorder)
        for address, beats in ((0, 7), (7, 300), (8, 65535)):
            driver.write_table(Table.QUEUES, address, beats)
        await play_watching(ctx, card.bus, recorder, core, seen)
        assert seen[Table.QUEUES] == [(0, 7), (7, 300), (8, 65535)]
        assert ctx.get(core.round.at_share) == 1
        assert {name: ctx.get(core.queue_shown[name]) for name in asked} == asked
        ctx.set(core.told, 0x12345678)
        assert await read(ctx, card.bus, "queue_count") == 0x12345678

    simulate(bench, queues=8)


@pytest.mark.parametrize(("bits", "b"), [(4, 4), (8, 3)])
def test_settings_of_thc_reach_the_core_as_workers_have_them(bits, b):
    worker = Worker(3, 0, B=256, b=b)
    index_p = Thc(worker).index_p

    async def bench(ctx, card, core, driver, recorder):
        bus = card.bus
        with pytest.raises(ValueError, match="thc must be built into a card"):
            driver.set_thc(worker.table.tolist(), block=256, clip=worker.t_fixed, index_p=index_p)
        names = ("thc", "any_bits")[: bits // 4]
        has = [one.mask for one in REGISTERS["status"].fields if one.name in names]
        recorder.words[REGISTERS["status"].offset] = sum(has)
        assert fields("status", await read(ctx, bus, "status"))["thc"] == 1
        recorder.log.clear()
        for bad, text in (
            ({"levels": range(15)}, f"levels must be {'16' if bits == 4 else '4 to 256'}"),
            ({"block": 4096}, "block must be 64, 256 or 1024, not 4096"),
            ({"clip": 1024}, f"clip must be {worker.table[-1] + 1} to 1023, not 1024"),
            ({"clip": int(worker.table[-1])}, f" to 1023, not {worker.table[-1]}"),
            ({"index_p": (0, 256)}, r"index_p\[1\] must be 0 to 255, not 256"),
        ):
            told = {"levels": worker.table.tolist(), "block": 256, "clip": 551, "index_p": (0, 0)}
            with pytest.raises(ValueError, match=text):
                driver.set_thc(**(told | bad))
        assert not recorder.log  # nothing is written before all is checked
        assert ctx.get(core.scratch_unplaced) == 1
        driver.set_thc(worker.table.tolist(), block=256, clip=worker.t_fixed, index_p=index_p)
        driver.set_scratch([0x4000, 0x8000], 5000)
        job = Job(1, 1, 2, 4096, 0, 0, codec=JobCodec.THC, p_q16=1)
        driver._thc = *driver._thc[:2], 31, driver._thc[3]
        with pytest.raises(ValueError, match="g must be even where packets may miss, not 31"):
            driver.post(job)
        driver._thc = *driver._thc[:2], 30, driver._thc[3]
        row = bytes(LAYOUT.row_bytes)
        for number, leaves in enumerate((3, 9, 137, 2185)):  # sums of 8, 12, 16 bits, and more
            driver.load_table(number, row, len(row), [], [], n_chunks=1, leaves=leaves)
        log = list(recorder.log)
        seen = {name: [] for name in (Table.ROWS, Table.PLACES, JOBS, CELLS, LEVELS)}
        recorder.log.clear()
        ctx.set(bus.bready, 1)
        ctx.set(bus.wstrb, 15)
        for entry in log:
            recorder.log.append(entry)
            await play_watching(ctx, bus, recorder, core, seen)
        rules, codec = ctx.get(core.thc_rules), ctx.get(core.round.codec)
        assert (rules.log4, rules.t_fixed, rules.unit) == (1, worker.t_fixed, worker.unit)
        own_scale = np.float32(worker.t_fixed / 256 / (worker.g * worker.B)).view(np.uint32)
        assert (rules.g, rules.middle) == (worker.g, worker.table[1 << b - 1])
        assert rules.own_scale == own_scale
        assert (codec.g, codec.index_p0, codec.index_p1) == (worker.g, *index_p)
        told = seen[LEVELS]
        if bits == 8:
            assert rules.bits == b
        else:
            assert not told
            told = [(k, codec.levels[k]) for k in range(16)]
        assert told == list(enumerate(worker.table.tolist()))
        found = [(c.index, c.cell.lower, c.cell.above, c.cell.gap) for c in seen[CELLS]]
        want = [
            (unit, lower, unit - level // 256, gap)
            for unit, (lower, level, gap) in enumerate(worker._cells.tolist())
        ]
        assert found == want
        assert [ctx.get(core.scratches[k]) for k in range(2)] == [0x400, 0x800]
        assert ctx.get(core.scratch_unplaced) == 0
        assert (
            ctx.get(core.scratch) * 16 == driver.scratch_bytes(5000) == 2 * 128 + 5 * 128 * (b + 8)
        )
        assert driver.scratch_bytes(5000, 137) == 2 * 128 + 5 * 128 * (b + 16)
        assert not any(table.valid for _, table in seen[JOBS][:4])  # other settings decode them
        units = [worker.t_fixed / 256 / (n * worker.g * worker.B) for n in (3, 9, 137)]
        scales = np.float32(units).view(np.uint32).tolist()
        assert [(table.offset, table.scale, table.code) for _, table in seen[JOBS][4:]] == [
            *zip((90, 270, 4110), scales, range(3), strict=True), (0, 0, 0)
        ]  # fmt: skip

    simulate(bench, thc=True, block=256, feedback=True, bits=bits)


async def play_watching(ctx, bus, recorder, core, seen):
    for address, word in recorder.log:
        ctx.set(bus.awaddr, address)
        ctx.set(bus.wdata, word)
        for name in ("awvalid", "wvalid"):
            ctx.set(getattr(bus, name), 1)
        for _ in range(8):
            done = [name for name in ("aw", "w") if ctx.get(getattr(bus, name + "ready"))]
            await ctx.tick()
            for name in done:
                ctx.set(getattr(bus, name + "valid"), 0)
            if ctx.get(core.table_en):
                seen[Table.ROWS].append((ctx.get(core.table_addr), ctx.get(core.table_data)))
            if ctx.get(core.place_en):
                seen[Table.PLACES].append((ctx.get(core.place_addr), ctx.get(core.place_data)))
            if ctx.get(core.job_table.enable):
                seen[JOBS].append((ctx.get(core.job_table.index), ctx.get(core.job_table.table)))
            if core.queues and ctx.get(core.queue_write.enable):
                told = ctx.get(core.queue_write)
                seen[Table.QUEUES].append((told.address, told.beats))
            if core.thc and ctx.get(core.thc_cell.enable):
                seen[CELLS].append(ctx.get(core.thc_cell))
            if core.bits > 4 and ctx.get(core.level_write.enable):
                told = ctx.get(core.level_write)
                seen[LEVELS].append((told.index, told.level))
    recorder.log.clear()


def test_the_card_tells_its_sizes():
    async def bench(ctx, card, core, driver, recorder):
        for name in ("build", "longest", "capacity", "status"):
            recorder.words[REGISTERS[name].offset] = await read(ctx, card.bus, name)

    seen = simulate(bench, n_nodes=9, n_engines=1)
    asking = JobDriver(seen.read, seen.write)
    assert (asking.n_bytes, asking.n_ports, asking.n_ranks) == (16, 1, SIZES["n_ranks"])
    assert (asking.n_rows, asking.n_chunks) == (SIZES["depth"], SIZES["n_chunks"])
    assert asking.n_peers == 2**LAYOUT.peer
    assert (asking.n_active, asking.n_engines, asking.n_tables) == (2, 1, 2)
    asking.set_landing([64], 1000)
    with pytest.raises(ValueError, match="landing must have an address for each of 1 engines"):
        asking.set_landing([64, 1 << 20], 1000)
    asking.check_packet(352)
    with pytest.raises(ValueError, match="packet must be 1 to 352, not 368"):
        asking.check_packet(368)
    assert asking.layout == Layout.for_nodes(9, ports=4, chunks=-(-SIZES["n_chunks"] // 9))
    silent = JobDriver(Recorder().read, Recorder().write)
    with pytest.raises(ValueError, match="build must tell what the card was built with"):
        silent.load_table(0, bytes(4), 4, [], [], n_chunks=1, leaves=1)


def test_the_driver_reads_a_completion_and_refuses_what_does_not_fit():
    recorder = Recorder()
    driver = JobDriver(recorder.read, recorder.write, n_bytes=16, n_rows=4, n_chunks=4, n_tables=1)
    assert driver.completion() is None
    told = Completion(7, JobStatus.SHORT, 0, 12, 2, 3, 99)
    octets = told.pack()
    for k in range(7):
        offset = REGISTERS[f"completion_{k}"].offset
        recorder.words[offset] = int.from_bytes(octets[4 * k : 4 * k + 4], "big")
    recorder.words[REGISTERS["status"].offset] = TOLD
    assert driver.completion() == told
    recorder.words[REGISTERS["status"].offset] = 0
    for before in (0b101, 0b010):  # as a host before has left the bits that act by changing
        recorder.words[REGISTERS["job"].offset] = before
        other = JobDriver(recorder.read, recorder.write)
        other.abort(9)
        assert recorder.words[REGISTERS["job"].offset] == before ^ 0b100 | 9 << 3
        recorder.words[REGISTERS["job"].offset] = before
        with pytest.raises(TimeoutError, match=r"jobs must end within 0 s of an abort.*idle': 0"):
            other.end_jobs(0)
        assert recorder.words[REGISTERS["job"].offset] == before  # and whatever their ids
        other.wait = lambda *_, **__: recorder.words.update({REGISTERS["status"].offset: IDLE})
        other.end_jobs()
        assert recorder.words[REGISTERS["job"].offset] == before ^ 0b100 | 1 << 19
        recorder.words[REGISTERS["status"].offset] = 0
        recorder.words[REGISTERS["job"].offset] = before
        recorder.words[REGISTERS["table_write"].offset] = before << 20 & TOGGLE
        other.write_table(Table.LAYERS, 1, 2)
        word = recorder.words[REGISTERS["table_write"].offset]
        assert word & TOGGLE != before << 20 & TOGGLE
    with pytest.raises(ValueError, match="rows must be 1 to 4, not 5"):
        driver.load_table(0, bytes(20), 4, [], [], n_chunks=1, leaves=1)
    with pytest.raises(ValueError, match="address must be a multiple of 16, not 0x8"):
        driver.allow_memory(0, 8, 64)
    with pytest.raises(ValueError, match="source must be 0 or 1, not 2"):
        driver.tag(source=2)
    with pytest.raises(ValueError, match="no register 'round'"):
        driver.set("round", tensor=1)
