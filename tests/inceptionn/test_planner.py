"""Plans and verdicts of units whose tags lie in a store: all as the golden planner has them."""

from collections import deque

import numpy as np
import pytest
from gradnic.hdl.inceptionn.planner import CHUNKS, Planner, StoredUnit
from gradnic.models.inceptionn.byte_network import offsets
from gradnic.models.inceptionn.lanes import tag_words
from gradnic.models.inceptionn.planner import places, tag_bytes
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

N_UNITS, ADDRESS = 16, 6
FAULTS = ("size", "padding", "wrong", "early")


def units_of(n_lanes, rng):
    """(Floats, tags, bytes, fault): sound units of corners and any count, then each fault."""
    row, most = CHUNKS * n_lanes, (CHUNKS + 3) * n_lanes
    counts = [1, 7, 8, n_lanes, n_lanes + 1, row, row + 1, most - 1, most]
    counts += rng.integers(1, most + 1, 8).tolist()
    cases = [(count, None) for count in counts]
    cases += [(row + 5, fault) for fault in FAULTS] + [(3, fault) for fault in FAULTS[:3]]
    for count, fault in cases:
        tag = np.zeros(-(-count // 8) * 8, np.uint8)
        tag[:count] = rng.integers(0, 4, count) if rng.random() < 0.7 else int(rng.integers(4))
        size = len(tag) // 4 + int(offsets(tag)[-1])
        if fault == "padding":
            tag[count if rng.random() < 0.5 else -1] = rng.integers(1, 4)
        yield count, tag, size + (fault == "size"), fault
        if fault:
            yield 1, np.array([3, *[0] * 7], np.uint8), 6, None  # which is not affected


def sound(tag, count, size):
    unit = np.concatenate([tag_words(tag).view(np.uint8), np.zeros(size - len(tag) // 4, np.uint8)])
    try:
        return bool(tag_bytes(unit, count))
    except ValueError:
        return False


class Bench:
    """A planner, the store of tags, and a reader of the plans, which gives them back."""

    def __init__(self, n_lanes, duty):
        self.n_lanes, self.duty = n_lanes, duty
        self.rng = stimulus.rng("planner", n_lanes, duty)
        n_beats = CHUNKS + 3
        unit = StoredUnit(n_lanes, n_beats=n_beats, row_addr=ADDRESS, tag_addr=ADDRESS)
        self.part = Planner(n_lanes, unit, n_beats=n_beats, n_units=N_UNITS)
        self.store = self.rng.integers(0, 256, (1 << ADDRESS, 4 * n_lanes), np.uint8)
        self.units, self.beats, self.want = [], [], []
        self.tokens = []  # (unit, whether its last one)
        self.verdicts, self.when, self.plans = [], [], []
        self.given = 0
        for unit in units_of(n_lanes, self.rng):
            self._add(*unit)

    def _add(self, count, tag, size, fault):
        n, n_units = self.n_lanes, len(self.units)
        row, tag_row = (11 * n_units) % (1 << ADDRESS), (2 * n_units) % (1 << ADDRESS)
        n_beats, n_tags, wrong = -(-count // n), len(tag) // 4, fault == "wrong"
        beats = 1 if wrong else n_beats
        self.units.append({
            "final": beats - 1, "single": int(beats == 1), "beats": beats, "rest": count % n,
            "rest_group": count % 8, "tag_bytes": n_tags, "bytes": size, "row": row,
            "tag_row": tag_row, "wrong": int(wrong),
        })  # fmt: skip
        self.store[tag_row : tag_row + 2].reshape(-1)[:n_tags] = tag_words(tag).view(np.uint8)
        n_rows = 1 if fault in ("wrong", "early") else -(-n_tags // (4 * n))
        self.tokens += [(n_units, int(k == n_rows - 1)) for k in range(n_rows)]
        counted = np.zeros(n_beats * n, np.uint8)
        counted[:count] = tag[:count]
        starts, rows = places(counted, n_tags, n)
        at = (row + rows) % (1 << ADDRESS)
        plans = list(
            zip(counted.reshape(-1, n).tolist(), starts.tolist(), at.tolist(), strict=True)
        )
        ok = fault not in ("wrong", "early") and sound(tag, count, size)
        self.want.append((int(ok), plans[: CHUNKS * n_rows] if not wrong else []))
        self.beats.append(min(beats, CHUNKS * n_rows))

    def run(self):
        simulate(self.part, self._read, self._give_units, self._give_rows, self._answer)

    async def _pause(self, ctx):
        while self.rng.random() >= self.duty:
            await ctx.tick()

    async def _give_units(self, ctx):
        """Before their first row; no more than may be inside."""
        more = len(self.part.more)
        for unit in self.units:
            await self._pause(ctx)
            while self.given - len(self.verdicts) >= N_UNITS // 2:
                await ctx.tick()
            ctx.set(self.part.units.p, unit)
            ctx.set(self.part.more, sum((unit["beats"] > k + 1) << k for k in range(more)))
            ctx.set(self.part.units.valid, 1)
            self.given += 1
            await ctx.tick()
            ctx.set(self.part.units.valid, 0)

    async def _give_rows(self, ctx):
        for unit, last in self.tokens:
            await self._pause(ctx)
            while self.given <= unit:
                await ctx.tick()
            ctx.set(self.part.tag_rows.p, last)
            ctx.set(self.part.tag_rows.valid, 1)
            await ctx.tick().until(self.part.tag_rows.ready)
            ctx.set(self.part.tag_rows.valid, 0)

    async def _answer(self, ctx):
        """The store: four cycles."""
        asked = deque([0] * 4)
        while True:
            asked.append(ctx.get(self.part.tag_addr))
            await ctx.tick()
            row = self.store[asked[1]]
            asked.popleft()
            ctx.set(self.part.tag_data, int.from_bytes(row.tobytes(), "little"))

    async def _read(self, ctx):
        """Plans of units behind their verdict, a beat a cycle, two cycles; then they are done."""
        part, address, reads, coming = self.part, 0, deque(), deque([(0, 0)] * 2)
        for cycle in range(4000):
            if ctx.get(part.planned.valid):
                unit, said = self.units[len(self.verdicts)], ctx.get(part.planned.p)
                assert (said.final, said.single) == (unit["final"], unit["single"])
                self.verdicts.append(said.ok)
                self.when.append(cycle)
            ctx.set(part.plan_addr, address % part.depth)
            coming.append(reads.popleft() if reads else (0, 0))
            address += coming[-1][0]
            here, done = coming.popleft()
            if here:
                self.plans.append(ctx.get(part.plan))
            ctx.set(part.done, int(done > 0))
            ctx.set(part.done_beats, done)
            assert ctx.get(part.strays) == 0
            await ctx.tick()
            if self.when and self.when[-1] == cycle:
                beats = self.units[len(self.when) - 1]["beats"]
                reads.extend([*[(1, 0)] * (beats - 1), (1, beats)])
            if (
                len(self.verdicts) == len(self.units)
                and not reads
                and not any(k for k, _ in coming)
            ):
                return
        raise AssertionError(f"{len(self.verdicts)} units of {len(self.units)}")


@pytest.mark.parametrize("n_lanes", [4, 8, 16])
@pytest.mark.parametrize("duty", [1.0, 0.5])
def test_plans_and_verdicts(n_lanes, duty):
    bench = Bench(n_lanes, duty)
    bench.run()
    assert bench.verdicts == [ok for ok, _ in bench.want]
    width, at = bench.part.column, 0
    for unit, (_, plans) in zip(bench.units, bench.want, strict=True):
        for plan, (tags, starts, row) in zip(bench.plans[at:], plans, strict=False):
            assert [plan.tags >> 2 * k & 3 for k in range(n_lanes)] == tags
            assert [plan.starts >> width * k & (1 << width) - 1 for k in range(n_lanes)] == starts
            rows = row >> 1, (row + 1 >> 1) % (1 << ADDRESS - 1)
            assert (plan.odd, plan.even) == rows
        at += unit["beats"]
    assert at == len(bench.plans)
    if duty == 1:
        assert np.diff(bench.when).tolist() == bench.beats[1:]


def test_the_model_finds_the_payloads():
    tags = np.array([3, 2, 1, 0, 3, 3, 0, 0], np.uint8)
    starts, rows = places(tags, 12, 4)
    assert starts.tolist() == [[12, 0, 2, 3], [3, 7, 11, 11]]
    assert rows.tolist() == [0, 1]
    unit = np.concatenate([tag_words(tags).view(np.uint8), np.zeros(15, np.uint8)])
    assert tag_bytes(unit, 8) == 2
    assert tag_bytes(unit, 6) == 2
    with pytest.raises(ValueError, match="padding lanes must have tag 0, not 0x3"):
        tag_bytes(unit, 5)
    with pytest.raises(ValueError, match="unit must have 17 bytes, not 16"):
        tag_bytes(unit[:-1], 8)
