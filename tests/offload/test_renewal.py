"""What contexts share is reset while all is quiet, or when the card is stuck, and cards go on."""

import re
from functools import partial
from types import SimpleNamespace

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from gradnic.hdl.frame.keeper import AGE
from gradnic.hdl.offload.job_records import Descriptor
from gradnic.hdl.offload.renewal import CALM, Keepers, Renewal
from gradnic.sim.engine import amaranth_run
from gradnic.sim.offload.job_upsets import GOOD, Ring, carries
from gradnic.sim.offload.upsets import what_helps

from gradnic.interface.job import JobStatus


def simulate(bench):
    part = Renewal()
    amaranth_run.simulate(part, partial(bench, part=part))


async def until(ctx, flag, most):
    """Cycles until a flag is 1, or `most`."""
    for cycle in range(most):
        if ctx.get(flag):
            return cycle
        await ctx.tick()
    return most


def test_it_is_anew_after_a_calm_and_again_and_never_in_a_busy_card():
    async def bench(ctx, part):
        ctx.set(part.busy, 1)
        assert await until(ctx, part.anew, 2 * CALM) == 2 * CALM
        ctx.set(part.busy, 0)
        for _ in range(2):
            assert CALM <= await until(ctx, part.anew, 2 * CALM) <= CALM + 3
            assert ctx.get(part.closed & ~part.forced)
            await ctx.tick()
            assert not ctx.get(part.anew | part.closed)
        await ctx.tick().repeat(CALM - 20)
        ctx.set(part.busy, 1)  # a beat
        await ctx.tick()
        ctx.set(part.busy, 0)
        assert await until(ctx, part.anew, 2 * CALM) >= CALM

    simulate(bench)


class Shared(wiring.Component):
    """A part that contexts share, whose flag of an upset stays until the part is reset."""

    def __init__(self):
        self.renewal = Renewal()
        self.upset, self.stray = Signal(), Signal()
        self.runner = SimpleNamespace(free=Signal(), stalls=Signal(), renewed=Signal())
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.renewal = self.renewal
        keepers = Keepers(self.renewal)
        keepers.strays.append(self.stray)
        m.d.sync += self.stray.eq(~self.renewal.anew & (self.stray | self.upset))
        keepers.watch(m, [self.runner])
        return m


def test_an_upset_of_a_shared_part_fails_jobs_and_resets_it_once():
    part = Shared()

    async def bench(ctx):
        ctx.set(part.renewal.watchdog, 1 << 20)
        ctx.set(part.upset, 1)
        await ctx.tick()
        ctx.set(part.upset, 0)
        assert await until(ctx, part.runner.renewed, 9) == 1  # from a register
        resets = 0
        for _ in range(CALM // 2):
            resets += ctx.get(part.renewal.anew & part.renewal.forced)
            await ctx.tick()
        assert resets == 1
        assert not ctx.get(part.runner.renewed)

    amaranth_run.simulate(part, bench)


@pytest.mark.parametrize("why", ["wedged", "stalls"])
def test_a_stuck_card_closes_waits_for_what_is_offered_and_is_anew(why):
    async def bench(ctx, part):
        ctx.set(part.busy, 1)
        ctx.set(getattr(part, why), 1)
        if why == "stalls":
            await ctx.tick().repeat(500)  # the watchdog is off
            assert not ctx.get(part.closed)
            ctx.set(part.watchdog, 40)
            ctx.set(part.waits, 1)  # for memory, which is not ours
            await ctx.tick().repeat(500)
            assert not ctx.get(part.closed)
            ctx.set(part.waits, 0)
        ctx.set(part.watchdog, 40)
        assert await until(ctx, part.closed, 100) <= 11 * (AGE + 1)
        await ctx.tick().repeat(8)
        assert ctx.get(part.closed & ~part.anew)
        ctx.set(part.still, 1)
        assert await until(ctx, part.anew, 10) == 1
        assert ctx.get(part.forced & part.closed)
        ctx.set(getattr(part, why), 0)
        await ctx.tick()
        assert not ctx.get(part.anew | part.closed | part.forced)

    simulate(bench)


def test_offers_that_nobody_takes_open_it_again():
    async def bench(ctx, part):
        ctx.set(part.busy, 1)
        ctx.set(part.watchdog, 40)
        ctx.set(part.wedged, 1)
        assert await until(ctx, part.closed, 10) < 10
        ctx.set(part.wedged, 0)
        await ctx.tick().repeat(11 * (AGE + 1))
        assert not ctx.get(part.closed | part.anew)

    simulate(bench)


SHARED = (  # fills of queues that all contexts share: of heads, of owners of payloads, of bursts
    r"core\.gate\.lengths\.occupied", r"core\.steer\.ways\.occupied",
    r"core\.pick\.owners\.occupied", r"core\.landing_writes\.writers\.occupied",
    r"core\.gradient_reads\.owners\.occupied",
)  # fmt: skip


@pytest.fixture(scope="module")
def ring():
    return Ring(seed=3)


@pytest.fixture(scope="module")
def names(ring):
    """Of the register that each bit is of."""
    n_bits = ring.cluster.call("state_bits")
    return [ring.cluster.call("state_name", bit).decode() for bit in range(n_bits)]


@pytest.mark.parametrize("pauses", [None, 51])  # 51: addresses wait for all of their data
def test_a_wrong_fill_of_a_shared_queue_ends_jobs_and_heals(ring, names, pauses):
    ring = ring if pauses is None else Ring(seed=3, pauses=pauses)
    usual, exact, _ = ring.round()
    assert exact
    hit = set()
    for k, pattern in enumerate(SHARED):
        bit = next(bit for bit, name in enumerate(names) if re.fullmatch(pattern, name))
        cycles, exact, statuses = ring.round((k % 3, bit, usual // 4 + 300 * k))
        hit |= set(statuses.values())
        assert cycles is not None or ring.abort(), names[bit]
        assert what_helps(ring) in ("", "next"), names[bit]
    assert hit & {JobStatus.MEMORY, JobStatus.STUCK}


@pytest.mark.parametrize("at", [1500, 2400])
def test_a_frame_whose_beat_is_half_another_one_fails_jobs(ring, names, at):
    """It has been checked before; the store stops behind that beat, and is reset."""
    assert ring.round()[1]
    bit = names.index("core.gate.store.beats.prefetch.valid128")
    _, exact, statuses = ring.round((1, bit, at))
    assert exact or JobStatus.MEMORY in statuses.values()
    assert what_helps(ring) == ""


def test_no_state_of_a_context_needs_a_reset(ring, names):
    """Every bit of it, all over a round: states that are none, too, and of jobs of another kind."""
    bits = [b for b, name in enumerate(names) if re.search(r"context\d+\.fsm_state\d*$", name)]
    assert len(bits) >= 8
    usual, exact, _ = ring.round()
    assert exact
    for k, bit in enumerate(bits):
        for part in range(1, 6):
            cycles, *_ = ring.round((k % 3, bit, usual * part // 7 + 13 * k))
            assert cycles is not None or ring.abort(), (names[bit], part)
            assert what_helps(ring) in ("", "next"), (names[bit], part)


WATCHED = [
    *(
        f"engine0.{name}"
        for name in ("decoder.near", "decoder.passed", "located", "maker.head_queue")
    ),
    *(f"engine0.maker.{name}.queue" for name in ("image", "scaler")),
    "gate.heads",
    r"gate.known(\$\d+)?",
]


@pytest.mark.parametrize("name", WATCHED)
def test_parts_of_a_watched_queue_that_differ_fail_jobs(ring, names, name):
    usual, exact, _ = ring.round()
    assert exact
    bit = next(
        bit for bit, one in enumerate(names) if re.fullmatch(rf"core\.{name}\.valid128", one)
    )
    _, _, statuses = ring.round((1, bit, usual // 4))
    assert JobStatus.MEMORY in [status for (node, _), status in statuses.items() if node == 1]
    assert what_helps(ring) == ""


@pytest.mark.parametrize("k", range(2))
def test_a_changed_bit_of_what_a_context_knows_of_its_job_fails_it(ring, names, k):
    usual, exact, _ = ring.round()
    assert exact
    bit = names.index(f"core.context{k}.job") + Descriptor.size + 5  # of when it was posted
    cycles, _, statuses = ring.round((k, bit, usual // 4))
    told = [status for (node, _), status in statuses.items() if node == k]
    assert cycles is not None
    assert told.count(JobStatus.MEMORY) == 1
    assert what_helps(ring) == ""


@pytest.mark.parametrize("what", ["given_up", "least", "most"])
def test_a_changed_bit_of_what_a_context_counts_of_its_job_fails_it(ring, names, what):
    usual, exact, _ = ring.round()
    assert exact
    bit = names.index(f"core.context1.{what}") + 2
    cycles, _, statuses = ring.round((1, bit, usual // 4))
    told = [status for (node, _), status in statuses.items() if node == 1]
    assert cycles is not None
    assert told.count(JobStatus.MEMORY) == 1
    assert what_helps(ring) == ""


def test_a_job_whose_id_changes_fails_under_the_id_that_the_host_gave_it(ring, names):
    usual, exact, _ = ring.round()
    assert exact
    bit = names.index("core.context1.job") + Descriptor["id"].offset
    cycles, _, statuses = ring.round((2, bit, usual // 4))
    told = [status for (node, _), status in statuses.items() if node == 2]
    assert cycles is not None
    assert None not in told
    assert told.count(JobStatus.MEMORY) == 1
    assert what_helps(ring) == ""


TOLD = (  # what queues know of their beats: (card, register, bit, cycles)
    (0, r"core\.engine0\.memory\.own_reader\.staying\.store\.issued", 1, (120, 121, 300)),
    (1, r"core\.engine0\.maker\.raw\$\d+\.issued", 0, (815, 816, 1200)),
    (2, r"core\.engine0\.memory\.root_writer\.words\.head", 4, (884, 1000)),
    (2, r"core\.engine1\.memory\.result_writer\.words\.read__addr", 4, (2695, 2400)),
    (1, r"core\.engine1\.waiting\.prefetch\.head", 2, (3451, 3300)),
    (2, r"core\.steer\.to", 0, (653, 1200, 1900)),  # flags that steer
    (2, r"core\.steer\.to", 1, (653, 1200, 1900)),
)  # fmt: skip


@pytest.mark.parametrize(("node", "pattern", "bit", "cycles"), TOLD)
def test_beats_that_a_queue_loses_or_doubles_are_told_of(ring, names, node, pattern, bit, cycles):
    bit += next(bit for bit, name in enumerate(names) if re.fullmatch(pattern, name))
    hit = set()
    for cycle in cycles:
        _, exact, statuses = ring.round((node, bit, cycle))
        told = {status for status in statuses.values() if status not in GOOD}
        assert exact or told, cycle
        hit |= told
        assert what_helps(ring) == ""
    assert hit


ADDRESSES = (  # of stores of the codec, which all contexts share
    r"core\.decompressor\.codec\.planner\.plan\$\d+", r"core\.decompressor\.codec\.base",
    r"core\.decompressor\.codec\.details\.read__addr", r"core\.compressor\.passed\.head",
    r"core\.decompressor\.passed\.read_addr\$\d+", r"core\.compressor\.codec\.slot",
)  # fmt: skip


@pytest.mark.parametrize("pattern", ADDRESSES)
def test_a_changed_address_in_the_shared_codec_fails_what_is_active_and_is_reset(
    ring, names, pattern
):
    usual, exact, _ = ring.round()
    assert exact
    bit = next(bit for bit, name in enumerate(names) if re.fullmatch(pattern, name))
    cycles, _, statuses = ring.round((1, bit + 2, usual // 4))
    told = {status for (node, _), status in statuses.items() if node == 1}
    assert cycles is not None
    assert JobStatus.MEMORY in told
    assert what_helps(ring) == ""


def test_a_changed_bit_of_a_job_that_waits_for_a_context_heals(ring, names):
    bit = names.index("core.clerk.out") + Descriptor["gen"].offset
    _, exact, statuses = ring.round((1, bit, 500))  # two are active by then
    assert exact
    assert set(statuses.values()) <= {JobStatus.DONE, JobStatus.SHORT}


VALUES = (
    ("lanes.combine0.add3.exponent4", 8), ("lanes.combine0.larger0", 32), ("lanes.a0", 128),
    ("compressor.codec.packer.row1$30", 8), ("compressor.passed.write_data", 129),
    ("engine0.memory.landing_reader.store.ring.held", 129), ("engine0.maker.scaler.times0.up", 1),
    ("engine0.decoder.near.held0$17", 128), ("passes$2472.encode.decoder.convert2.shifted1", 32),
    ("compressor.codec.merger.outlet.queue.write__data", 128),
    ("passes$2472.encode.decoder.turns9", 4), ("passes.encode.encoder.scale1.rounded", 34),
    ("passes.encode.decoder.rotate.across1.arrived0", 72), ("decoder.rotate.sum1_3", 24),
    ("passes.encode.encoder.words_delay.delayed1", 128),
    ("encode.encoder.rotate.across4.new3_0", 16), ("codec.merger.outlet.queue.held0", 64),
)  # fmt: skip
OTHERS = (
    ("compressor.codec.packer.row1", 1), ("compressor.passed.head", 9), ("ring.held64", 64),
    ("engine0.decoder.passed.held0$17", 128), ("clerk.out", 972), ("engine0.waiting.tail", 9),
    ("engine0.maker.scaler.queue.occupied", 20), ("lanes.combine0.kind", 3),
    ("engine0.decoder.near.held128", 2), ("passes.encode.encoder.scale1.log4_copy1", 2),
    ("passes.decode_job", 390), ("decode.rotate.across1.flags0", 3), ("rotate.across8.place", 8),
    ("rotate.valid1_0", 1),
)  # fmt: skip


def test_registers_that_carry_values_are_told_from_those_that_control():
    assert all(carries(f"core.{name}", width) for name, width in VALUES)
    assert not any(carries(f"core.{name}", width) for name, width in OTHERS)
