"""The decompressor: coded INCEPTIONN units in, float32 beats out, up to 32 floats per cycle."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .compressor import MAX_FLOATS, N_SLOTS, check_max_floats, n_units
from .inceptionn import GROUP, SCALES, LaneDecoder, UnitBeat, band_gap, bands, check_lanes
from .memory import BlockRAM
from .network import Spreader, plane_bit
from .pipeline import Room, current, delayed, delayed_flag, step, thermometer
from .planner import Planner, StoredUnit
from .streams import FIFO, Beat, Slice

__all__ = ["CODED_UNIT", "Decompressor", "VERDICT"]

N_CREDITS = 24  # beats between the decision to decode and the output; 22 sustain one per cycle

#: A coded unit that has arrived.
CODED_UNIT = data.StructLayout(
    {"count": 16, "bytes": 16, "exponent": 7, "paper": 1, "prescale": signed(8)}
)
VERDICT = data.StructLayout({"ok": 1})


class Decompressor(wiring.Component):
    """Decodes units to float32, ``n_lanes`` floats per cycle; stores and validates each before.

    Rate: ceil(max(bytes in, bytes out) / beat) cycles per unit in steady state, one-beat units
    included. Latency: ``latency`` cycles from a unit's verdict, when it is stored and validated,
    to its first beat. ``coded.ready`` is low while the unit's descriptor is missing, or before its
    first beat while the store has no room for it, and while 32 rows of tags wait to be read. The
    store takes three of the largest units, and 32 units at most (48 from 16 lanes on).

    A unit vanishes, with ``verdicts.ok`` = 0, if the sum of its tags and payloads is not
    ``bytes``, a padding lane of its last group has a tag, ``count`` is 0 or above ``max_floats``,
    ``exponent`` is not 113 to 126, or its last beat has ``drop`` = 1 or comes too early or too
    late for ``bytes``. The unit after it is not affected.

    Parameters
    ----------
    n_lanes : int
        4, 8, 16 or 32 floats per beat. The coded stream does not depend on it.
    max_floats : int
        Largest count, 1 to 3840.

    Members
    -------
    units : In(stream.Signature(CODED_UNIT))
        One per unit, before or with its first beat.
    coded : In(stream.Signature(UnitBeat(32 * n_lanes)))
        ceil(bytes / (4 * n_lanes)) beats; bytes beyond ``bytes`` are ignored.
    verdicts : Out(stream.Signature(VERDICT))
        One per unit, in order, once the unit is stored and validated. As many wait as the store
        takes units.
    floats : Out(stream.Signature(Beat(32 * n_lanes)))
        The floats of the units that are ok; lanes beyond ``count`` are 0.
    """

    def __init__(self, n_lanes, *, max_floats=MAX_FLOATS):
        check_lanes(n_lanes)
        check_max_floats(max_floats)
        self.n_lanes = n_lanes
        self.max_floats = max_floats
        self.n_bytes = 4 * n_lanes
        n_tag_bytes = 2 * -(-max_floats // GROUP)
        self.most_bytes = 17 * n_tag_bytes
        self.n_rows = -(-self.most_bytes // self.n_bytes)
        self.n_tag_rows = -(-n_tag_bytes // self.n_bytes)
        self.depth = 2 ** ceil_log2(3 * self.n_rows + 8)
        self.tag_depth = 2 ** ceil_log2(max(3 * self.n_tag_rows + 8, N_SLOTS))
        n_beats = -(-max_floats // n_lanes)
        self.unit = StoredUnit(
            n_lanes,
            n_beats=n_beats,
            row_addr=ceil_log2(self.depth),
            tag_addr=ceil_log2(self.tag_depth),
        )
        self.arrival = data.StructLayout(
            {
                "unit": self.unit,
                "final": max(1, (self.n_rows - 1).bit_length()),  # rows - 1
                "single": 1,
                "tag_final": max(1, (self.n_tag_rows - 1).bit_length()),  # rows with tags - 1
                "tag_single": 1,
            }
        )
        self.planner = Planner(n_lanes, self.unit, n_beats=n_beats)
        self.spreader = Spreader(n_lanes)
        # Cycles after the beat's first register: plan at 3, starts, columns, payload, floats
        self.start_cycle = 5 if n_lanes == 4 else 4
        self.column_cycle = self.start_cycle + self.spreader.lead
        self.payload_cycle = self.start_cycle + self.spreader.latency
        self.float_cycle = self.payload_cycle + LaneDecoder.latency
        self.latency = 1 + self.float_cycle + 2
        self.queue = FIFO(Beat(32 * n_lanes), N_CREDITS)
        self.credits = Signal(N_CREDITS, init=-1)  # bit k: more than k credits left
        super().__init__(
            {
                "units": In(stream.Signature(CODED_UNIT)),
                "coded": In(stream.Signature(UnitBeat(32 * n_lanes))),
                "verdicts": Out(stream.Signature(VERDICT)),
                "floats": Out(stream.Signature(Beat(32 * n_lanes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.planner = planner = self.planner
        m.submodules.stored = stored = FIFO(1, n_units(self.n_lanes))
        m.submodules.planned = planned = FIFO(planner.planned_unit, n_units(self.n_lanes))
        m.submodules.judged = judged = FIFO(VERDICT, n_units(self.n_lanes))
        m.submodules.decodable = decodable = Slice(planner.planned_unit)
        m.submodules.verdict = verdict = Slice(VERDICT)
        wiring.connect(m, verdict.o, judged.i)
        wiring.connect(m, judged.o, wiring.flipped(self.verdicts))
        m.d.comb += [planned.i.valid.eq(planner.planned.valid), planned.i.p.eq(planner.planned.p)]
        banks = self._store(m, stored)

        # A unit's verdict needs both the end of its storing and the sum of its tags.
        ahead, plan = step(m, "planned_ahead", planned.o, planner.planned_unit)
        whole_ahead, whole = step(m, "stored_ahead", stored.o, 1)
        both, ok = Signal(), Signal()
        m.d.comb += [
            ahead.eq(planned.o.p),
            whole_ahead.eq(stored.o.p),
            both.eq(plan.valid & whole.valid & verdict.i.ready & decodable.i.ready),
            ok.eq(whole.p & plan.p.ok),
            plan.ready.eq(both),
            whole.ready.eq(both),
            verdict.i.valid.eq(both),
            verdict.i.p.ok.eq(ok),
            decodable.i.valid.eq(both),
            decodable.i.p.eq(plan.p),
            decodable.i.p.ok.eq(ok),
        ]
        self._decode(m, decodable.o, banks)
        return m

    def _arrivals(self, m):
        """What follows from a unit's descriptor alone, in three steps: a stream of ``arrival``."""
        lane, column = ceil_log2(self.n_lanes), ceil_log2(self.n_bytes)
        asked, given = step(m, "asked", self.units, CODED_UNIT)
        m.d.comb += asked.eq(self.units.p)
        unit = given.p
        known = {"unit": CODED_UNIT, "before": 16, "final": 16, "groups": 14, "gap": 4, "wrong": 1}
        first, firsts = step(m, "counted", given, data.StructLayout(known))
        m.d.comb += [
            first.unit.eq(unit),
            first.before.eq(unit.count - 1),
            first.final.eq((unit.bytes - 1) >> column),
            first.groups.eq((unit.count + GROUP - 1) >> 3),
            first.gap.eq(band_gap(unit.exponent)),
            first.wrong.eq((unit.exponent < 113) | (unit.exponent > 126) | (unit.bytes == 0)),
        ]
        done, unit = firsts.p, firsts.p.unit
        known = {"arrival": self.arrival, "top": 8, "prescale": signed(8)}
        second, seconds = step(m, "sized", firsts, data.StructLayout(known))
        settings = bands(unit.exponent, done.gap, unit.paper, unit.prescale)
        tag_final = ((done.groups << 1) - 1) >> column
        arrival = second.arrival
        m.d.comb += [
            second.top.eq(settings["top"]),
            second.prescale.eq(unit.prescale),
            arrival.final.eq(done.final),
            arrival.tag_final.eq(tag_final),
            arrival.unit.final.eq(done.before >> lane),
            arrival.unit.beats.eq((done.before >> lane) + 1),
            arrival.unit.rest.eq(unit.count),
            arrival.unit.rest_group.eq(unit.count),
            arrival.unit.tag_bytes.eq(done.groups << 1),
            arrival.unit.bytes.eq(unit.bytes),
            arrival.unit.rows.eq(done.final + 1),
            arrival.unit.tag_rows.eq(tag_final + 1),
            arrival.unit.wrong.eq(
                done.wrong | (done.before >= self.max_floats) | (unit.bytes > self.most_bytes)
            ),
        ]
        m.submodules.arrivals = arrivals = FIFO(self.arrival, 4)
        done, unit = seconds.p.arrival, arrivals.i.p.unit
        wrong = done.unit.wrong
        m.d.comb += [
            arrivals.i.p.eq(done),
            unit.final.eq(Mux(wrong, 0, done.unit.final)),
            unit.single.eq(wrong | (done.unit.final == 0)),
            unit.beats.eq(Mux(wrong, 1, done.unit.beats)),
            unit.rows.eq(Mux(wrong, 0, done.unit.rows)),
            unit.tag_rows.eq(Mux(wrong, 0, done.unit.tag_rows)),
            unit.scales.half.eq(126 - seconds.p.prescale),
            unit.scales.byte.eq(seconds.p.top - seconds.p.prescale),
            arrivals.i.p.single.eq(done.final == 0),
            arrivals.i.p.tag_single.eq(wrong | (done.tag_final == 0)),
            arrivals.i.valid.eq(seconds.valid),
            seconds.ready.eq(arrivals.i.ready),
        ]
        return arrivals.o

    def _store(self, m, stored):
        """Write rows; feed the planner and `stored` (1: length as announced). Returns the banks."""
        coded, planner = self.coded, self.planner
        m.submodules.row_room = row_room = Room(self.depth, largest=self.n_rows)
        m.submodules.tag_room = tag_room = Room(self.tag_depth, largest=self.n_tag_rows)
        m.submodules.unit_room = unit_room = Room(n_units(self.n_lanes))
        m.submodules.units_in = units_in = FIFO(self.unit, n_units(self.n_lanes))
        m.submodules.tokens = tokens = FIFO(1, n_units(self.n_lanes))
        wiring.connect(m, units_in.o, planner.units)
        wiring.connect(m, tokens.o, planner.tag_rows)

        all_open = Signal()
        m.d.sync += all_open.eq(row_room.open & tag_room.open & unit_room.open)
        accept, end, end_tags = Signal(), Signal(), Signal()
        valid, arrival, load, arrival_next = current(
            m, "arrival", self._arrivals(m), self.arrival, end=end, may_load=all_open
        )
        fresh, over, final, in_tags, tag_final = (Signal() for _ in range(5))
        index = Signal(self.arrival["final"].shape)
        following = Signal.like(index)  # index + 1
        row, tag_row = Signal(self.unit["row"].shape), Signal(self.unit["tag_row"].shape)
        m.d.comb += [
            coded.ready.eq(valid & tokens.i.ready),
            accept.eq(coded.valid & coded.ready),
            end.eq(accept & coded.p.last),
            end_tags.eq(tag_final | coded.p.last),
            row_room.take.eq(Mux(load, arrival_next.unit.rows, 0)),
            tag_room.take.eq(Mux(load, arrival_next.unit.tag_rows, 0)),
            unit_room.take.eq(load),
            units_in.i.valid.eq(accept & fresh),
            units_in.i.p.eq(arrival.unit),
            units_in.i.p.row.eq(row),
            units_in.i.p.tag_row.eq(tag_row),
        ]
        with m.If(accept):
            m.d.sync += [
                fresh.eq(0),
                over.eq(over | final),
                index.eq(following),
                following.eq(following + 1),
                final.eq(following == arrival.final),
                in_tags.eq(in_tags & ~tag_final),
                tag_final.eq(following == arrival.tag_final),
            ]
        with m.If(load):
            m.d.sync += [
                fresh.eq(1),
                over.eq(0),
                index.eq(0),
                following.eq(1),
                final.eq(arrival_next.single),
                in_tags.eq(1),
                tag_final.eq(arrival_next.tag_single),
            ]
        with m.If(end):
            m.d.sync += [
                row.eq(row + arrival.unit.rows),
                tag_row.eq(tag_row + arrival.unit.tag_rows),
            ]

        # The beat in a register, then in the stores; token and length follow the write.
        good = Signal()
        m.d.comb += good.eq(accept & ~over & ~arrival.unit.wrong)
        beat = delayed(m, coded.p.data, 1, name="beat")
        addr = delayed(m, (row + index)[: len(row)], 1, name="row_addr")
        banks = []
        for k in range(2):
            m.submodules[f"bank{k}"] = bank = BlockRAM(32 * self.n_lanes, self.depth // 2)
            m.d.comb += [
                bank.write_en.eq(delayed_flag(m, good & ((row + index)[0] == k), 1, name="row_en")),
                bank.write_addr.eq(addr[1:]),
                bank.write_data.eq(beat),
            ]
            banks.append(bank)
        m.submodules.tag_store = tag_store = BlockRAM(32 * self.n_lanes, self.tag_depth)
        m.d.comb += [
            tag_store.write_en.eq(delayed_flag(m, good & in_tags, 1, name="tag_row_en")),
            tag_store.write_addr.eq(
                delayed(m, (tag_row + index)[: len(tag_row)], 1, name="tag_row_addr")
            ),
            tag_store.write_data.eq(beat),
            tag_store.read_addr.eq(planner.tag_addr),
            planner.tag_data.eq(tag_store.read_data),
            tokens.i.valid.eq(accept & in_tags),
            tokens.i.p.eq(end_tags),
            stored.i.valid.eq(end),
            stored.i.p.eq(~over & final & ~coded.p.drop),
        ]
        self.rooms = row_room, tag_room, unit_room
        return banks

    def _decode(self, m, units, banks):
        """Issue one beat per cycle and take it through plan, banks, network and lanes."""
        n, planner = self.n_lanes, self.planner
        m.submodules.spreader = spreader = self.spreader
        m.submodules.queue = queue = self.queue
        wiring.connect(m, queue.o, wiring.flipped(self.floats))
        issue, done = Signal(), Signal()
        valid, unit, load, unit_next = current(m, "unit", units, planner.planned_unit, end=done)
        live, final = Signal(), Signal()  # the unit is there and ok; this is its last beat
        index = Signal(self.unit["final"].shape)
        following = Signal.like(index)  # index + 1
        row_room, tag_room, unit_room = self.rooms
        m.d.comb += [
            issue.eq(live & self.credits[0]),
            done.eq((issue & final) | (valid & ~live)),
            planner.done.eq(done),
            planner.done_beats.eq(unit.beats),
            row_room.give.eq(Mux(done, unit.rows, 0)),
            tag_room.give.eq(Mux(done, unit.tag_rows, 0)),
            unit_room.give.eq(done),
        ]
        with m.If(done):
            m.d.sync += live.eq(0)
        with m.If(issue):
            m.d.sync += [
                index.eq(following),
                following.eq(following + 1),
                final.eq(following == unit.final),
            ]
        with m.If(load):
            m.d.sync += [
                live.eq(unit_next.ok),
                index.eq(0),
                following.eq(1),
                final.eq(unit_next.single),
            ]
        refund = self.floats.valid & self.floats.ready
        with m.If(issue & ~refund):
            m.d.sync += self.credits.eq(self.credits[1:])
        with m.Elif(refund & ~issue):
            m.d.sync += self.credits.eq(Cat(1, self.credits))

        # Plan: the address is a sum, so it takes two cycles
        plan_addr = Signal.like(planner.plan_addr, reset_less=True)
        m.d.sync += plan_addr.eq(delayed(m, unit.plan, 1) + delayed(m, index, 1, name="index"))
        m.d.comb += planner.plan_addr.eq(plan_addr)
        plan = planner.plan
        column = ceil_log2(self.n_bytes)

        # Window: a column comes from the row of the beat's first byte, or from the next
        early = self.column_cycle - 3  # cycle of the row address
        row = delayed(m, plan.row, early - 4, name="row")
        even, odd = Signal(len(row), reset_less=True), Signal(len(row), reset_less=True)
        m.d.sync += [even.eq((row + 1) >> 1), odd.eq(row >> 1)]
        m.d.comb += [banks[0].read_addr.eq(even), banks[1].read_addr.eq(odd)]
        passed = thermometer(m, plan.starts[:column], n, name="passed")
        from_odd = Signal(self.n_bytes, reset_less=True)
        parity = delayed(m, plan.row[0], 2, name="parity")
        m.d.sync += from_odd.eq(passed ^ parity.replicate(self.n_bytes))
        from_odd = delayed(m, from_odd, early + 2 - 6, name="from_odd")
        columns = Signal(32 * n, reset_less=True)
        for j in range(self.n_bytes):
            pair = (bank.read_data.word_select(j, 8) for bank in banks[::-1])
            m.d.sync += columns.word_select(j, 8).eq(Mux(plane_bit(n, from_odd, j), *pair))

        wait = self.start_cycle - 3
        tags = delayed(m, plan.tags, wait, name="tags")
        m.d.comb += [
            spreader.starts.eq(delayed(m, plan.starts, wait, name="starts")),
            spreader.tags.eq(tags),
            spreader.columns.eq(columns),
        ]

        # Lanes; the unit's settings go to four lanes from one register
        tags = delayed(m, tags, spreader.latency, name="tags_late")
        known = delayed(m, unit.scales, self.payload_cycle, name="scales")
        for lane in range(n):
            if lane % 4 == 0:
                kept = {"keep_register": 1}
                held = Signal(SCALES, name=f"scales_{lane}", reset_less=True, attrs=kept)
                m.d.sync += held.eq(known)
            m.submodules[f"lane{lane}"] = decoder = LaneDecoder()
            m.d.comb += [
                decoder.tag.eq(tags.word_select(lane, 2)),
                decoder.payload.eq(spreader.payload.word_select(lane, 32)),
                decoder.scales.eq(held),
                queue.i.p.data.word_select(lane, 32).eq(decoder.float),
            ]
        m.d.comb += [
            queue.i.valid.eq(delayed_flag(m, issue, self.float_cycle + 1, name="valid")),
            queue.i.p.last.eq(delayed(m, final, self.float_cycle + 1, name="last")),
        ]
