"""The decompressor: coded INCEPTIONN units in, float32 beats out, up to 32 floats per cycle.

Twin of `gradnic.models.inceptionn.decompressor`.
"""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.block_ram import Bank
from ..primitive.names import signals
from ..primitive.parity import astray
from ..stream.admission import LAG, Room, admitted, more_than
from ..stream.beats import Beat, UnitBeat
from ..stream.credit_queue import CreditQueue
from ..stream.delays import delayed_flag, registers
from ..stream.outlet import Outlet
from ..stream.pair_queue import PairQueue
from ..stream.slice import Slice
from .byte_network import Spreader
from .compressor import MAX_FLOATS, N_UNITS, check_max_floats
from .descriptors import N_PLANS, queue_plan, take_units
from .lanes import GROUP, LaneDecoder, band_gap, band_top, check_lanes, legal
from .planner import Planner, StoredUnit
from .unpack import decode_rows

__all__ = ["CODED_UNIT", "VERDICT", "Decompressor"]

N_OUT = 31  # beats from the decision to decode to the output; so many sustain one at 32 lanes
N_TOKENS = 40  # rows of tags that wait to be read before coded.ready falls
N_VERDICTS = 8  # units judged whose verdict has not been taken, or that wait to be decoded

#: A coded unit that has arrived.
CODED_UNIT = data.StructLayout(
    {"count": 16, "bytes": 16, "exponent": 7, "paper": 1, "prescale": signed(8)}
)
VERDICT = data.StructLayout({"ok": 1})


class Decompressor(wiring.Component):
    """Decodes units to float32, ``n_lanes`` floats per cycle; stores and validates each before.

    Rate: ceil(max(bytes in, bytes out) / beat) cycles per unit in steady state, one-beat units
    included. Latency: ``latency`` cycles from a unit's verdict, when it is stored and validated,
    to its first beat. ``coded.ready`` is a register, low while the unit's descriptor is missing, or
    before its first beat while the store has no room for it, and while 40 rows of tags wait to be
    read. The store takes three of the largest units, and 64 units at most.

    A unit vanishes, with ``verdicts.ok`` = 0, if the sum of its tags and payloads is not
    ``bytes``, a padding lane of its last group has a tag, ``count`` is 0 or above ``max_floats``,
    ``exponent`` is not 113 to 126, or its last beat has ``drop`` = 1 or comes too early or too
    late for ``bytes``. The unit after it is not affected. ``strays`` : flag, an address of units
    changed by itself, and what comes may be wrong until a reset; it may fall again.

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
        One per unit, in order, once the unit is stored and validated. While 6 to 8 wait, no
        unit is decoded.
    floats : Out(stream.Signature(Beat(32 * n_lanes)))
        The floats of the units that are ok; lanes beyond ``count`` are 0.
    """

    def __init__(self, n_lanes: int, *, max_floats: int = MAX_FLOATS) -> None:
        check_lanes(n_lanes)
        check_max_floats(max_floats)
        self.n_lanes = n_lanes
        self.max_floats = max_floats
        self.strays = Signal()
        self.n_bytes = 4 * n_lanes
        n_tag_bytes = 2 * -(-max_floats // GROUP)
        self.most_bytes = 17 * n_tag_bytes
        self.n_rows = -(-self.most_bytes // self.n_bytes)
        self.n_tag_rows = -(-n_tag_bytes // self.n_bytes)
        self.depth = 2 ** ceil_log2(3 * self.n_rows + 8)
        self.tag_depth = 2 ** ceil_log2(max(3 * self.n_tag_rows + 8, N_UNITS))
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
                "tag_final": max(1, (self.n_tag_rows - 1).bit_length()),  # rows with tags - 1
            }
        )
        self.planner = Planner(n_lanes, self.unit, n_beats=n_beats, n_units=N_UNITS)
        self.spreader = Spreader(n_lanes)
        # Cycles after the beat's first register: its plan, starts, columns, payload, floats
        self.plan_cycle = 6
        self.start_cycle = self.plan_cycle + max(1, 6 - self.spreader.lead)
        self.column_cycle = self.start_cycle + self.spreader.lead
        self.payload_cycle = self.start_cycle + self.spreader.latency
        self.float_cycle = self.payload_cycle + LaneDecoder.latency
        self.outlet = Outlet(Beat(32 * n_lanes), N_OUT, n_free=2)
        self.latency = self.float_cycle + self.outlet.latency + 2
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
        m.submodules.stored = stored = PairQueue(1, N_UNITS)
        m.submodules.planned = planned = PairQueue(planner.planned_unit, N_UNITS)
        m.submodules.judged = judged = Outlet(VERDICT, N_VERDICTS)
        m.submodules.decodable = decodable = Outlet(planner.planned_unit, N_VERDICTS)
        rest = {name: self.unit[name].shape for name in ("beats", "rows", "tag_rows", "scales")}
        rest = data.StructLayout(rest)
        m.submodules.details = details = CreditQueue(rest, N_UNITS, never_full=True)
        wiring.connect(m, judged.o, wiring.flipped(self.verdicts))
        m.d.comb += [
            planned.i.valid.eq(planner.planned.valid),
            planned.i.p.eq(planner.planned.p),
        ]
        banks = self._store(m, stored, details)

        # A unit's verdict needs both the end of its storing and the sum of its tags.
        plan, whole = planned.o, stored.o
        both = Signal()
        unit = Signal(planner.planned_unit, reset_less=True)
        m.d.sync += [unit.eq(plan.p), unit.ok.eq(whole.p & plan.p.ok)]
        m.d.comb += [
            both.eq(plan.valid & whole.valid & judged.free & decodable.free),
            plan.ready.eq(both),
            whole.ready.eq(both),
            *(out.start.eq(both) for out in (judged, decodable)),
            *(out.come.eq(both) for out in (judged, decodable)),
            judged.beat.ok.eq(unit.ok),
            decodable.beat.eq(unit),
        ]
        decode_rows(m, self, decodable.o, details, banks)
        return m

    def _arrivals(self, m):
        """What follows from a unit's descriptor alone, in five steps, one unit per cycle.

        Returns (queue of the room that each unit needs, queue of ``arrival``). The steps never
        wait: credits let in what the two hold.
        """
        lane, column = ceil_log2(self.n_lanes), ceil_log2(self.n_bytes)
        m.submodules.arrivals = arrivals = CreditQueue(self.arrival, N_PLANS, never_full=True)
        needs, go, unit = take_units(m, self.units, arrivals, self.unit, "arrival")
        known = {"unit": CODED_UNIT, "before": 16, "final": 16, "groups": 14, "gap": 4}
        known |= {"wrong": 1, "empty": 1}
        first = Signal(data.StructLayout(known), reset_less=True)
        m.d.sync += [
            first.unit.eq(unit),
            first.before.eq(unit.count - 1),
            first.final.eq((unit.bytes - 1) >> column),
            first.groups.eq((unit.count + GROUP - 1) >> 3),
            first.gap.eq(band_gap(unit.exponent)),
            first.wrong.eq(~legal(unit.exponent)),
            first.empty.eq(unit.bytes == 0),
        ]
        unit = first.unit
        known = {"arrival": self.arrival, "top": 8, "prescale": signed(8), "many": 1, "large": 1}
        second = Signal(data.StructLayout(known), reset_less=True)
        tag_final = ((first.groups << 1) - 1) >> column
        arrival = second.arrival
        m.d.sync += [
            second.top.eq(band_top(unit.exponent, first.gap, unit.paper)),
            second.prescale.eq(unit.prescale),
            arrival.final.eq(first.final),
            arrival.tag_final.eq(tag_final),
            arrival.unit.final.eq(first.before >> lane),
            arrival.unit.beats.eq((first.before >> lane) + 1),
            arrival.unit.rest.eq(unit.count),
            arrival.unit.rest_group.eq(unit.count),
            arrival.unit.tag_bytes.eq(first.groups << 1),
            arrival.unit.bytes.eq(unit.bytes),
            arrival.unit.rows.eq(first.final + 1),
            second.many.eq(first.before >= self.max_floats),
            second.large.eq(unit.bytes > self.most_bytes),
            arrival.unit.wrong.eq(first.wrong | first.empty),
        ]
        third = Signal.like(second, reset_less=True)
        m.d.sync += [
            third.eq(second),
            third.arrival.unit.tag_rows.eq(arrival.tag_final + 1),
            third.arrival.unit.wrong.eq(arrival.unit.wrong | second.many | second.large),
        ]
        second, done = third, third.arrival
        wrong = done.unit.wrong
        arrival = Signal(self.arrival, reset_less=True)
        more = Signal(LAG - 1, reset_less=True)
        rows = more_than(done.unit.rows) | more_than(done.unit.tag_rows)
        m.d.sync += [
            more.eq(rows & (~wrong).replicate(LAG - 1)),
            arrival.eq(done),
            arrival.unit.final.eq(Mux(wrong, 0, done.unit.final)),
            arrival.unit.single.eq(wrong | (done.unit.final == 0)),
            arrival.unit.beats.eq(Mux(wrong, 1, done.unit.beats)),
            arrival.unit.rows.eq(Mux(wrong, 0, done.unit.rows)),
            arrival.unit.tag_rows.eq(Mux(wrong, 0, done.unit.tag_rows)),
            arrival.unit.scales.half.eq(126 - second.prescale),
            arrival.unit.scales.byte.eq(second.top - second.prescale),
            arrival.tag_final.eq(Mux(wrong, 0, done.tag_final)),
        ]
        made = delayed_flag(m, go, 4, name="sized")
        queue_plan(m, made, arrivals, arrival, needs, arrival.unit, more, "sized")
        return needs.o, arrivals

    def _store(self, m, stored, details):
        """Write rows; feed the planner, `stored` (1: length as announced) and `details`.

        Only the end of a unit is decided while its beat is at the port, as in the compressor; in
        the third register it is known what a beat is. Returns the banks.
        """
        coded = self.coded
        self.rooms = {
            "rows": Room(self.depth, largest=self.n_rows, lag=LAG),
            "tag_rows": Room(self.tag_depth, largest=self.n_tag_rows, lag=LAG),
            "units": Room(N_UNITS, lag=LAG),
        }
        m.submodules.tokens = tokens = PairQueue(1, N_UNITS)
        m.submodules.token_ahead = token_ahead = Slice(1)
        wiring.connect(m, tokens.o, token_ahead.i)
        wiring.connect(m, token_ahead.o, self.planner.tag_rows)

        space, accept, end = signals("space accept end")
        needs, arrivals = self._arrivals(m)
        fresh = Signal(init=1)  # the next beat is a unit's first
        with m.If(accept):
            m.d.sync += fresh.eq(coded.p.last)
        m.d.sync += space.eq(~tokens.occupied[N_TOKENS])
        m.d.comb += [
            accept.eq(coded.valid & coded.ready),
            end.eq(accept & coded.p.last),
            arrivals.take.eq(end),
            coded.ready.eq(admitted(m, needs, self.rooms, ends=end, gate=space)),
        ]

        flags = {"valid": accept, "first": accept & fresh, "last": end}
        flags, values = registers(m, flags, {"data": coded.p.data, "drop": coded.p.drop}, 1)
        index = Signal(self.arrival["final"].shape)
        with m.If(flags["valid"]):
            m.d.sync += index.eq(Mux(flags["last"], 0, index + 1))
        flags, values = registers(m, flags, values | {"index": index}, 2)
        arrival, index = arrivals.word, values["index"]
        values |= {
            "arrival": arrival,
            "final": index == arrival.final,
            "tag_final": index == arrival.tag_final,
            "more": more_than(arrival.unit.beats),
        }
        flags, values = registers(m, flags, values, 3)
        return self._rows(m, stored, details, tokens, arrivals, flags, values)

    def _rows(self, m, stored, details, tokens, arrivals, flags, values):
        """Where a beat goes, and what planner and verdict hear of it; returns the banks."""
        planner = self.planner
        unit, index = data.View(self.arrival, values["arrival"]).unit, values["index"]
        # the unit has had all its beats, or tags, and goes on
        over, past_tags = signals("over past_tags")
        with m.If(flags["valid"]):
            m.d.sync += [
                over.eq(~flags["last"] & (over | values["final"])),
                past_tags.eq(~flags["last"] & (past_tags | values["tag_final"])),
            ]
        row = Signal(self.unit["row"].shape)
        tag_row = Signal(self.unit["tag_row"].shape)
        first_row = Signal.like(row, attrs={"keep_register": 1})  # as `row`, near the stores
        with m.If(flags["last"]):
            m.d.sync += [row.eq(row + unit.rows), tag_row.eq(tag_row + unit.tag_rows)]
            m.d.sync += first_row.eq(first_row + unit.rows)
        stray = astray(m, (row, first_row, tag_row), flags["last"], name="rows")
        self.misplaced = arrivals.strays | stray
        in_tags = flags["valid"] & ~past_tags  # over or not: the planner waits for all of them
        m.d.comb += [
            planner.units.valid.eq(flags["first"]),
            planner.units.p.eq(unit),
            planner.units.p.row.eq(row),
            planner.more.eq(values["more"]),
            planner.units.p.tag_row.eq(tag_row),
            details.i.valid.eq(flags["first"]),
            *(details.i.p[name].eq(unit[name]) for name in details.i.p.shape().members),
            tokens.i.valid.eq(in_tags),
            tokens.i.p.eq(values["tag_final"] | flags["last"]),
            stored.i.valid.eq(flags["last"]),
            stored.i.p.eq(~over & values["final"] & ~values["drop"]),
        ]

        at = (first_row + index)[: len(row)]
        odd = row[0] ^ index[0]  # not `at[0]`: that stands where the addresses do
        good = flags["valid"] & ~over & ~unit.wrong
        enables = {"bank0": good & ~odd, "bank1": good & odd, "tag_row": good & ~past_tags}
        values = {
            "data": values["data"],
            "row": at,
            "tag_row": (tag_row + index)[: len(tag_row)],
        }
        return self._write(m, enables, values)

    def _write(self, m, enables, values):
        """The beat in one more register, then in the stores, whose parts lie all over the chip."""
        planner = self.planner
        enables, values = registers(m, enables, values, 4)
        banks = [Bank(32 * self.n_lanes, self.depth // 2) for _ in range(2)]
        for k, bank in enumerate(banks):
            m.submodules[f"bank{k}"] = bank
            m.d.comb += [
                bank.write_en.eq(enables[f"bank{k}"]),
                bank.write_addr.eq(values["row"][1:]),
                bank.write_data.eq(values["data"]),
            ]
        m.submodules.tag_store = tag_store = Bank(32 * self.n_lanes, self.tag_depth)
        m.d.comb += [
            tag_store.write_en.eq(enables["tag_row"]),
            tag_store.write_addr.eq(values["tag_row"]),
            tag_store.write_data.eq(values["data"]),
            tag_store.read_addr.eq(planner.tag_addr),
            planner.tag_data.eq(tag_store.read_data),
        ]
        return banks
