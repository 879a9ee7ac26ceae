"""Planner of the decompressor: from tag rows to the places of all payloads, and a verdict."""

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.block_ram import BlockRAM
from ..primitive.names import signals
from ..primitive.parity import astray
from ..stream.admission import LAG, Room, admit, current
from ..stream.credit_queue import CreditQueue
from ..stream.delays import copied, delayed, delayed_flag
from ..stream.outlet import Outlet
from ..stream.pair_queue import PairQueue
from .byte_network import PrefixSum
from .lanes import GROUP, SCALES

CHUNKS = 16  # beats of floats whose tags fill a row
N_AHEAD = 8  # units with room for their plans that have not begun; 7 sustain one per cycle


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


def PlannedUnit(unit):
    """Shape of what the decoder must know of a unit at once: as in `StoredUnit`; `ok` says that it
    may be decoded.
    """
    return data.StructLayout({"final": unit["final"].shape, "single": 1, "ok": 1})


class Planner(wiring.Component):
    """Turns the tag rows of a unit into one plan per beat of floats, 1 beat per cycle.

    A plan says the tags, the column where each lane's payload starts, and the addresses of the row
    in which the beat's first byte is and of the one behind it, ``odd`` and ``even``, each in its
    bank: if the two differ, the first row is an odd one. It waits in a store of its own. The unit's
    verdict comes with its last plan: the sum of tags and payloads is the unit's size, and no
    padding lane has a tag.

    Members
    -------
    units : In(stream.Signature(StoredUnit))
        With the unit's first row or before it. Always taken: at most ``n_units`` units are in here
        and behind.
    more : In(LAG - 1)
        `more_than` of the unit's beats, with ``units``.
    tag_rows : In(stream.Signature(1))
        One token per row in the tag store; 1: the unit has no further one.
    tag_addr, tag_data : Out, In(32 * n_lanes)
        Read port of the tag store; data 4 cycles after the address.
    planned : Out(stream.Signature(PlannedUnit))
        Never waits: as many units as the FIFO behind it can take are let in before.
    plan_addr, plan : In, Out(StructLayout)
        Read port of the store of plans; 2 cycles.
    done : In(1)
        The oldest unit's plans, ``done_beats`` of them, are not needed any more.

    ``strays`` : flag, an address of units changed by itself.
    """

    def __init__(self, n_lanes: int, unit: ShapeLike, *, n_beats: int, n_units: int) -> None:
        self.n_lanes = n_lanes
        self.n_units = n_units
        self.unit = unit
        self.n_beats = n_beats
        self.depth = 2 ** ceil_log2(3 * n_beats + 8)
        self.column = ceil_log2(4 * n_lanes)
        self.planned_unit = PlannedUnit(unit)
        self.strays = Signal()
        self.layout = data.StructLayout(
            {
                "tags": 2 * n_lanes,
                "starts": n_lanes * self.column,
                "odd": unit["row"].shape - 1,
                "even": unit["row"].shape - 1,
            }
        )
        super().__init__(
            {
                "units": In(stream.Signature(unit, always_ready=True)),
                "more": In(LAG - 1),
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
        beat = self._issue(m)
        tags, stray = self._tags(m, beat, self._word(m, beat))
        self._plan(m, beat, tags, stray)
        return m

    def _word(self, m, beat):
        """A beat's tags: two cycles for the address, four from the store, two through a 16:1
        multiplexer.
        """
        n = self.n_lanes
        addr = Signal.like(self.tag_addr, reset_less=True)
        m.d.sync += addr.eq(beat["unit"].tag_row + (beat["index"] >> 4))
        m.d.comb += self.tag_addr.eq(addr)
        n_tags = max(n, GROUP)  # at 4 lanes a beat sees its whole tag word
        words = [self.tag_data.word_select(k, 2 * n_tags) for k in range(16 * n // n_tags)]
        place = Cat(beat["index"], Const(0, 4))[:4]  # of the shortest units, too
        chunk = delayed(m, place, 4, name="chunk")[(n_tags // n).bit_length() - 1 :]
        fours = []
        for k in range(0, len(words), 4):
            kept = {"keep_register": 1}
            low = Signal(2, name=f"chunk_low{k}", reset_less=True, attrs=kept)
            m.d.sync += low.eq(chunk)
            four = Signal(2 * n_tags, name=f"word{k}", reset_less=True)
            with m.Switch(low):
                for j in range(4):
                    with m.Case(j):
                        m.d.sync += four.eq(words[k + j])
            fours.append(four)
        word = Signal(2 * n_tags, reset_less=True)
        with m.Switch(delayed(m, chunk[2:], 2, name="chunk_high")):
            for j, four in enumerate(fours):
                with m.Case(j):
                    m.d.sync += word.eq(four)
        return word

    def _tags(self, m, beat, word):
        """Tags of lanes that count, and whether lanes that pad the last group have any; both count
        if the beat is the last alone.
        """
        n = self.n_lanes
        n_tags = max(n, GROUP)
        late = delayed(m, beat["unit"], 5, name="unit")
        final = delayed(m, beat["final"], 6, name="final")
        inside = Signal(n, reset_less=True)
        outside = Signal(n_tags, reset_less=True)
        live = Signal(n, reset_less=True)
        pad = Signal(n_tags, reset_less=True)
        m.d.sync += [
            inside.eq(Cat((late.rest == 0) | (lane < late.rest) for lane in range(n))),
            outside.eq(
                Cat(
                    (late.rest_group != 0)
                    & (k % GROUP >= late.rest_group)
                    & ((late.rest >> 3) == k // GROUP if n > GROUP else 1)
                    for k in range(n_tags)
                )
            ),
            live.eq(inside | (~final).replicate(n)),
            pad.eq(outside & final.replicate(n_tags)),
        ]
        mine = word
        if n < GROUP:
            odd = delayed(m, beat["index"][0], 7, name="odd")
            mine = Mux(odd, word[2 * n :], word[: 2 * n])
        valid = delayed_flag(m, beat["valid"], 7, name="valid")
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
        return tags, stray

    def _plan(self, m, beat, tags, stray):
        """Places: the running sum of bytes gives the column and the row; behind the last beat it
        must be what the unit said.
        """
        n = self.n_lanes
        m.submodules.prefix = prefix = PrefixSum(n)
        m.d.comb += prefix.tags.eq(tags)
        summed = 8 + prefix.latency  # cycles after the beat's register

        def ride(name, cycles):
            flag = name in ("valid", "first", "last")
            wait = delayed_flag if flag else delayed
            return wait(m, beat[name], cycles, name=f"{name}_ride")

        size = Signal(16, reset_less=True)
        so_far = Signal(16)
        first, first_too = copied(m, ride("first", summed - 1), 2, name="first")
        early = ride("unit", summed - 1)
        tag_bytes, tag_bytes_too = copied(m, early.tag_bytes, 2, name="tag_bytes")
        m.d.comb += so_far.eq(Mux(first, tag_bytes, size))
        m.d.sync += size.eq(Mux(first_too, tag_bytes_too, size) + prefix.total)
        offsets = delayed(m, prefix.offsets, 1, name="offsets")
        bases = []
        for group in range(n // 4):
            kept = {"keep_register": 1}
            base = Signal(self.column, name=f"base{group}", reset_less=True, attrs=kept)
            m.d.sync += base.eq(so_far)
            bases.append(base)
        row = Signal(self.unit["row"].shape, reset_less=True)
        m.d.sync += row.eq(so_far >> self.column)
        unit = ride("unit", summed + 1)
        starts = Signal(self.layout["starts"].shape, reset_less=True)
        at = Signal.like(row, reset_less=True)
        plan = Signal(self.layout, reset_less=True)
        m.d.sync += [
            starts.eq(
                Cat(
                    (bases[lane // 4] + offsets.word_select(lane, self.column))[: self.column]
                    for lane in range(n)
                )
            ),
            at.eq(row + unit.row),
            plan.tags.eq(delayed(m, tags, prefix.latency + 2, name="tags")),
            plan.starts.eq(starts),
            plan.odd.eq(at >> 1),
            plan.even.eq((at + 1) >> 1),
        ]
        m.submodules.plans = plans = BlockRAM(self.layout.size, self.depth)
        m.d.comb += [
            plans.write_en.eq(delayed_flag(m, beat["valid"], summed + 3, name="plan_en")),
            plans.write_addr.eq(ride("address", summed + 3)),
            plans.write_data.eq(plan),
            plans.read_addr.eq(self.plan_addr),
            self.plan.eq(plans.read_data),
        ]
        planned = self.planned.p
        unit = ride("unit", summed + 3)
        equal = Signal(8, reset_less=True)
        ok = Signal(reset_less=True)
        stated = ride("unit", summed + 1).bytes
        m.d.sync += [
            equal.eq(Cat(size[k : k + 2] == stated[k : k + 2] for k in range(0, 16, 2))),
            ok.eq(
                equal.all()
                & ~delayed(m, stray, prefix.latency + 1, name="stray")
                & ~ride("failed", summed + 2)
            ),
        ]
        m.d.comb += [
            self.planned.valid.eq(ride("last", summed + 3)),
            planned.ok.eq(ok),
            planned.final.eq(unit.final),
            planned.single.eq(unit.single),
        ]

    def _issue(self, m):
        """One beat's tags per cycle; returns {name: signal} of the beat in the first register."""
        room = Room(self.depth, largest=self.n_beats, lag=LAG)
        # Of a unit that waits, the loop below needs little; the rest follows one cycle later.
        needed = {name: self.unit[name].shape for name in ("final", "single")}
        needs = data.StructLayout(needed | {"beats": self.unit["beats"].shape, "more": LAG - 1})
        m.submodules.queued = waiting = PairQueue(needs, self.n_units)
        m.submodules.table = table = CreditQueue(self.unit, self.n_units, never_full=True)
        m.submodules.ahead = ahead = Outlet(data.StructLayout(needed), N_AHEAD)
        goes = admit(m, waiting.o, {"beats": room}, free=ahead.free)
        go, end, ends = signals("go end ends")
        source = ahead.o
        valid, _ = current(m, "unit", source, ends=ends)
        index, rest = signals("index rest", needed["final"])  # rest: beats behind this one
        fresh, final = signals("fresh final")
        stop, spends = signals("stop spends")  # the unit ends with this beat, or its row does
        m.d.comb += [
            waiting.i.valid.eq(self.units.valid),
            *(waiting.i.p[name].eq(self.units.p[name]) for name in (*needed, "beats")),
            waiting.i.p.more.eq(self.more),
            ahead.start.eq(goes),
            ahead.come.eq(goes),
            *(ahead.beat[name].eq(delayed(m, waiting.o.p[name], 1, name=name)) for name in needed),
            table.i.valid.eq(self.units.valid),
            table.i.p.eq(self.units.p),
            table.take.eq(end),
            go.eq(valid & self.tag_rows.valid),
            end.eq(go & stop),
            ends.eq(~valid | (self.tag_rows.valid & stop)),
            self.tag_rows.ready.eq(go & spends),
            room.give.eq(Mux(self.done, self.done_beats, 0)),
        ]
        renews = ~valid | stop
        row_ends = index[:4] == CHUNKS - 2  # with the next beat; the token is the same
        with m.If(~valid | self.tag_rows.valid):  # they follow a unit that is not there yet
            m.d.sync += [
                fresh.eq(renews),
                index.eq(Mux(renews, 0, index + 1)),
                rest.eq(Mux(renews, source.p.final, rest - 1)),
                final.eq(Mux(renews, source.p.single, rest == 1)),
                stop.eq(Mux(renews, source.p.single, (rest == 1) | (row_ends & self.tag_rows.p))),
                spends.eq(Mux(renews, source.p.single, (rest == 1) | row_ends)),
            ]
        beat = {"valid": go, "first": go & fresh, "last": end}
        late = table.latency
        beat = {name: delayed_flag(m, flag, late, name=name) for name, flag in beat.items()}
        unit = table.word
        plan = Signal(range(self.depth))  # address of the unit's first plan
        with m.If(beat["last"]):
            m.d.sync += plan.eq(plan + unit.beats)
        m.d.comb += self.strays.eq(table.strays | astray(m, (plan,), beat["last"]))
        index, final = (delayed(m, v, late, name=v.name) for v in (index, final))
        return beat | {
            "unit": unit,
            "index": index,
            "address": (plan + index)[: len(plan)],
            "final": final,
            "failed": ~final | unit.wrong,
        }
