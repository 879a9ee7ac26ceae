"""Planner of the decompressor: from tag rows to the places of all payloads, and a verdict."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .inceptionn import GROUP, SCALES
from .memory import BlockRAM
from .network import PrefixSum
from .pipeline import Room, current, delayed, delayed_flag

CHUNKS = 16  # beats of floats whose tags fill a row


def StoredUnit(n_lanes, *, n_beats, row_addr, tag_addr):
    """Shape of what the planner must know of a unit.

    beats : of floats; final : that - 1, ``single`` if it is 0. rest, rest_group : floats beyond
    whole beats and beyond whole groups. tag_bytes, bytes : of the coded unit. row, tag_row : first
    addresses in the stores; rows, tag_rows : places taken there. scales : for the lanes.
    wrong : the descriptor is out of range.
    """
    return data.StructLayout(
        {
            "final": max(1, (n_beats - 1).bit_length()),
            "single": 1,
            "beats": n_beats.bit_length(),
            "rest": ceil_log2(n_lanes),
            "rest_group": 3,
            "tag_bytes": 14,
            "bytes": 16,
            "row": row_addr,
            "tag_row": tag_addr,
            "rows": row_addr,
            "tag_rows": tag_addr,
            "scales": SCALES,
            "wrong": 1,
        }
    )


def PlannedUnit(unit, plan_addr):
    """Shape of what the decoder must know of a unit: as in `StoredUnit`; `plan` is the address of
    its first beat's plan, `ok` says that it may be decoded."""
    kept = ("beats", "final", "single", "rows", "tag_rows", "scales")
    fields = {name: unit[name].shape for name in kept}
    return data.StructLayout(fields | {"plan": plan_addr, "ok": 1})


class Planner(wiring.Component):
    """Turns the tag rows of a unit into one plan per beat of floats, 1 beat per cycle.

    A plan says the tags, the column where each lane's payload starts, and the row in which the
    beat's first byte is; it waits in a store of its own. The unit's verdict comes with its last
    plan: the sum of tags and payloads is the unit's size, and no padding lane has a tag.

    Members
    -------
    units : In(stream.Signature(StoredUnit))
        With the unit's first row or before it.
    tag_rows : In(stream.Signature(1))
        One token per row in the tag store; 1: the unit has no further one.
    tag_addr, tag_data : Out, In(32 * n_lanes)
        Read port of the tag store; data 2 cycles after the address.
    planned : Out(stream.Signature(PlannedUnit))
        Never waits: as many units as the FIFO behind it can take are let in before.
    plan_addr, plan : In, Out(StructLayout)
        Read port of the store of plans; 2 cycles.
    done : In(1)
        The oldest unit's plans, ``done_beats`` of them, are not needed any more.
    """

    def __init__(self, n_lanes, unit, *, n_beats):
        self.n_lanes = n_lanes
        self.unit = unit
        self.n_beats = n_beats
        self.depth = 2 ** ceil_log2(3 * n_beats + 8)
        self.column = ceil_log2(4 * n_lanes)
        self.planned_unit = PlannedUnit(unit, ceil_log2(self.depth))
        self.layout = data.StructLayout(
            {
                "tags": 2 * n_lanes,
                "starts": n_lanes * self.column,
                "row": unit["row"].shape,
            }
        )
        super().__init__(
            {
                "units": In(stream.Signature(unit)),
                "tag_rows": In(stream.Signature(1)),
                "tag_addr": Out(unit["tag_row"].shape),
                "tag_data": In(32 * n_lanes),
                "planned": Out(stream.Signature(self.planned_unit, always_ready=True)),
                "plan_addr": In(ceil_log2(self.depth)),
                "plan": Out(self.layout),
                "done": In(1),
                "done_beats": In(unit["beats"].shape),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n_lanes
        beat = self._issue(m)

        # Two cycles for the address, two through the store, two through a 16:1 multiplexer.
        unit = data.View(self.unit, beat["unit"])
        addr = (unit.tag_row + (beat["index"] >> 4))[: len(self.tag_addr)]
        m.d.comb += self.tag_addr.eq(delayed(m, addr, 1, name="tag_addr"))
        n_tags = max(n, GROUP)  # at 4 lanes a beat sees its whole tag word
        words = [self.tag_data.word_select(k, 2 * n_tags) for k in range(16 * n // n_tags)]
        chunk = delayed(m, beat["index"][:4], 3, name="chunk")[(n_tags // n).bit_length() - 1 :]
        fours = []
        for k in range(0, len(words), 4):
            four = Signal(2 * n_tags, name=f"word{k}", reset_less=True)
            with m.Switch(chunk[:2]):
                for j in range(4):
                    with m.Case(j):
                        m.d.sync += four.eq(words[k + j])
            fours.append(four)
        word = Signal(2 * n_tags, reset_less=True)
        with m.Switch(delayed(m, chunk[2:], 1, name="chunk_high")):
            for j, four in enumerate(fours):
                with m.Case(j):
                    m.d.sync += word.eq(four)

        # Lanes that count, and lanes that pad the last group
        late = data.View(self.unit, delayed(m, beat["unit"], 4, name="unit"))
        final = delayed(m, beat["final"], 4, name="final")
        live = Signal(n, reset_less=True)
        pad = Signal(n_tags, reset_less=True)
        whole = ~final | (late.rest == 0)
        padded = final & (late.rest_group != 0)
        m.d.sync += [
            live.eq(Cat(whole | (lane < late.rest) for lane in range(n))),
            pad.eq(
                Cat(
                    padded
                    & (k % GROUP >= late.rest_group)
                    & ((late.rest >> 3) == k // GROUP if n > GROUP else 1)
                    for k in range(n_tags)
                )
            ),
        ]
        mine = word
        if n < GROUP:
            odd = delayed(m, beat["index"][0], 5, name="odd")
            mine = Mux(odd, word[2 * n :], word[: 2 * n])
        valid = delayed_flag(m, beat["valid"], 5, name="valid")
        tags = Signal(2 * n, reset_less=True)
        strays = Signal(n_tags // 2, reset_less=True)
        m.d.sync += [
            tags.eq(Cat(Mux(valid & live[k], mine[2 * k : 2 * k + 2], 0) for k in range(n))),
            strays.eq(
                Cat(
                    (pad[k] & word[2 * k : 2 * k + 2].any())
                    | (pad[k + 1] & word[2 * k + 2 : 2 * k + 4].any())
                    for k in range(0, n_tags, 2)
                )
            ),
        ]
        stray = Signal(reset_less=True)
        m.d.sync += stray.eq(strays.any())

        # Places: the running sum of bytes gives the column and the row
        m.submodules.prefix = prefix = PrefixSum(n)
        m.d.comb += prefix.tags.eq(tags)
        summed = 6 + prefix.latency  # cycles after the beat's register

        def ride(name, cycles):
            flag = name in ("valid", "first", "last")
            wait = delayed_flag if flag else delayed
            return wait(m, beat[name], cycles, name=f"{name}_ride")

        at_sum = data.View(self.unit, ride("unit", summed))
        size = Signal(16)
        so_far = Signal(16)
        m.d.comb += so_far.eq(Mux(ride("first", summed), at_sum.tag_bytes, size))
        m.d.sync += size.eq(so_far + prefix.total)
        offsets = delayed(m, prefix.offsets, 1, name="offsets")
        bases = []
        for group in range(n // 4):
            kept = {"keep_register": 1}
            base = Signal(self.column, name=f"base{group}", reset_less=True, attrs=kept)
            m.d.sync += base.eq(so_far)
            bases.append(base)
        row = Signal(self.layout["row"].shape, reset_less=True)
        m.d.sync += row.eq(so_far >> self.column)
        unit = data.View(self.unit, ride("unit", summed + 1))
        plan = Signal(self.layout, reset_less=True)
        m.d.sync += [
            plan.tags.eq(delayed(m, tags, prefix.latency + 1, name="tags")),
            plan.starts.eq(
                Cat(
                    (bases[lane // 4] + offsets.word_select(lane, self.column))[: self.column]
                    for lane in range(n)
                )
            ),
            plan.row.eq(row + unit.row),
        ]
        m.submodules.plans = plans = BlockRAM(self.layout.size, self.depth)
        m.d.comb += [
            plans.write_en.eq(delayed_flag(m, beat["valid"], summed + 2, name="plan_en")),
            plans.write_addr.eq(ride("address", summed + 2)),
            plans.write_data.eq(plan),
            plans.read_addr.eq(self.plan_addr),
            self.plan.eq(plans.read_data),
        ]
        planned = self.planned.p
        unit = data.View(self.unit, ride("unit", summed + 2))
        ok = Signal(reset_less=True)
        m.d.sync += ok.eq(
            (size == data.View(self.unit, ride("unit", summed + 1)).bytes)
            & ~delayed(m, stray, prefix.latency, name="stray")
            & ~ride("failed", summed + 1)
        )
        m.d.comb += [
            self.planned.valid.eq(ride("last", summed + 2)),
            planned.plan.eq(ride("plan", summed + 2)),
            planned.ok.eq(ok),
        ]
        m.d.comb += [
            getattr(planned, name).eq(getattr(unit, name))
            for name in ("beats", "final", "single", "rows", "tag_rows", "scales")
        ]
        return m

    def _issue(self, m):
        """One beat's tags per cycle; returns {name: signal} of the beat in the first register."""
        m.submodules.room = room = Room(self.depth, largest=self.n_beats)
        go, stop, end = Signal(), Signal(), Signal()
        valid, unit, load, unit_next = current(
            m, "unit", self.units, self.unit, end=end, may_load=room.open
        )
        index = Signal(self.unit["final"].shape)
        following = Signal.like(index)  # index + 1
        fresh, final, row_ends = Signal(), Signal(), Signal()
        plan = Signal(range(self.depth))
        m.d.comb += [
            go.eq(valid & self.tag_rows.valid),
            stop.eq(final | (row_ends & self.tag_rows.p)),
            end.eq(go & stop),
            self.tag_rows.ready.eq(go & (stop | row_ends)),
            room.take.eq(Mux(load, unit_next.beats, 0)),
            room.give.eq(Mux(self.done, self.done_beats, 0)),
        ]
        with m.If(go):
            m.d.sync += [
                fresh.eq(0),
                index.eq(following),
                following.eq(following + 1),
                final.eq(following == unit.final),
                row_ends.eq(index[:4] == CHUNKS - 2),
            ]
        with m.If(load):
            m.d.sync += [
                fresh.eq(1),
                index.eq(0),
                following.eq(1),
                final.eq(unit_next.single),
                row_ends.eq(0),
            ]
        with m.If(end):
            m.d.sync += plan.eq(plan + unit.beats)
        beat = {"valid": go, "first": go & fresh, "last": end}
        beat = {name: delayed_flag(m, flag, 1, name=name) for name, flag in beat.items()}
        return beat | {
            name: delayed(m, value, 1, name=name)
            for name, value in {
                "unit": unit,
                "index": index,
                "plan": plan,
                "address": (plan + index)[: len(plan)],
                "final": final,
                "failed": ~final | unit.wrong,
            }.items()
        }
