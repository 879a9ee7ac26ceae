"""The compressor: float32 beats in, coded INCEPTIONN units out, up to 32 floats per cycle.

Twin of `gradnic.models.inceptionn.compressor`.
"""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.block_ram import Bank
from ..primitive.names import signals
from ..primitive.parity import astray
from ..stream.admission import LAG, Room, admitted, more_than
from ..stream.beats import FrameBeat, UnitBeat
from ..stream.credit_queue import CreditQueue
from ..stream.delays import copied, delayed, delayed_flag, registers
from .descriptors import N_PLANS, queue_plan, take_units
from .lanes import (
    BANDS,
    GROUP,
    LaneEncoder,
    band_gap,
    band_zero,
    bands,
    check_lanes,
    check_rounding,
    legal,
)
from .merger import CodedUnit, Merger
from .pack_payload import N_UNITS, SIZE, pack_payload
from .packer import Packer

__all__ = ["SIZE", "UNCODED_UNIT", "Compressor"]

MAX_FLOATS = 2104  # what fits a frame of 9000 bytes at worst
CHUNKS = 16  # beats whose tags fill a row

#: A unit that is to be coded. limit: most bytes it may have when coded.
UNCODED_UNIT = data.StructLayout(
    {"count": 16, "exponent": 7, "paper": 1, "prescale": signed(8), "limit": 16}
)


def check_max_floats(max_floats) -> None:
    """ValueError unless a worst-case unit of so many floats has a 14-bit size."""
    if not 1 <= max_floats <= 3840:
        raise ValueError(f"max_floats must be 1 to 3840, not {max_floats!r}")


class Compressor(wiring.Component):
    """Codes units of float32, ``n_lanes`` floats per cycle; stores each until its size is known.

    Rate: ceil(max(bytes in, bytes out) / beat) cycles per unit in steady state, one-beat units
    included. Latency: ``latency`` cycles from a one-beat unit's floats to its coded beat, of which
    the last 16 are the way through the store. ``floats.ready`` is a register, low only before a
    unit's first beat: while its descriptor is missing, or the store has no room for its worst
    case. The store takes three of the largest units, and 64 units at most.

    A unit vanishes, with ``sizes.dropped`` = 1 and no coded beat, if its coded size is above
    ``limit``, its last beat has ``drop`` = 1 or comes too early or too late for ``count``, or
    ``count`` is 0 or above ``max_floats``, or ``exponent`` is not 113 to 126. The unit after it is
    not affected. ``sizes.bytes`` counts only for units that stay or are above the limit.
    ``strays`` : flag, as of `gradnic.hdl.inceptionn.decompressor.Decompressor`.

    Parameters
    ----------
    n_lanes : int
        4, 8, 16 or 32 floats per beat. The coded stream does not depend on it.
    rounding : str
        "trunc" or "nearest". Units in paper mode are truncated always.
    max_floats : int
        Largest count, 1 to 3840.

    Members
    -------
    units : In(stream.Signature(UNCODED_UNIT))
        One per unit, before or with its first beat.
    floats : In(stream.Signature(UnitBeat(32 * n_lanes)))
        ceil(count / n_lanes) beats; floats beyond ``count`` are ignored.
    sizes : Out(stream.Signature(SIZE))
        One per unit, in order, once the unit is completely encoded.
    coded : Out(stream.Signature(FrameBeat(4 * n_lanes)))
        Tag words, then payloads, from byte 0 of a beat on; ``bad`` is 0, bytes not kept are 0.
    """

    def __init__(
        self, n_lanes: int, *, rounding: str = "trunc", max_floats: int = MAX_FLOATS
    ) -> None:
        check_lanes(n_lanes)
        check_rounding(rounding)
        check_max_floats(max_floats)
        self.n_lanes = n_lanes
        self.rounding = rounding
        self.max_floats = max_floats
        self.strays = Signal()
        self.n_bytes = 4 * n_lanes
        self.n_beats = -(-max_floats // n_lanes)  # most beats of floats in a unit
        n_tag_bytes = 2 * -(-max_floats // GROUP)
        self.n_tag_rows = -(-n_tag_bytes // self.n_bytes)
        self.depth = 2 ** ceil_log2(3 * self.n_beats + 8)
        self.tag_depth = 2 ** ceil_log2(max(3 * self.n_tag_rows + 8, N_UNITS))
        most_bytes = 17 * n_tag_bytes
        self.plan = data.StructLayout(
            {
                "bands": BANDS,
                "final": Shape.cast(range(self.n_beats)).width,  # beats - 1
                "inside": n_lanes,  # the lanes of the last beat that count
                "tag_bytes": Shape.cast(range(n_tag_bytes + 1)).width,
                "rows": ceil_log2(self.depth),  # room to take
                "tag_rows": ceil_log2(self.tag_depth),
                "limit": 16,
                "wrong": 1,
            }
        )
        self.packer = Packer(n_lanes)
        self.merger = Merger(
            n_lanes,
            CodedUnit(
                self.n_bytes,
                row_addr=ceil_log2(self.depth),
                tag_addr=ceil_log2(self.tag_depth),
                n_beats=-(-most_bytes // self.n_bytes),
            ),
            N_UNITS,
        )
        self.tag_cycle = LaneEncoder.tag_latency  # tags come so long after the beat's register
        self.sum_cycle = self.tag_cycle + n_lanes.bit_length()  # the unit's bytes so far
        self.row_cycle = self.sum_cycle + self.packer.latency  # rows are whole
        self.latency = 4 + self.row_cycle - 1 + Merger.latency
        super().__init__(
            {
                "units": In(stream.Signature(UNCODED_UNIT)),
                "floats": In(stream.Signature(UnitBeat(32 * n_lanes))),
                "sizes": Out(stream.Signature(SIZE)),
                "coded": Out(stream.Signature(FrameBeat(self.n_bytes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.packer = packer = self.packer
        m.submodules.merger = merger = self.merger
        beat = self._issue(m, *self._plan(m))
        tags, payload = self._lanes(m, beat)
        self._pack_tags(m, beat, tags)
        pack_payload(m, self, beat, tags, payload)
        wiring.connect(m, merger.coded, wiring.flipped(self.coded))
        stores = {
            "rows": (self.depth, packer.row_data, merger.row_addr, merger.row_data),
            "tails": (N_UNITS, packer.tail_data, merger.tail_addr, merger.tail_data),
        }
        for name, (depth, written, addr, read) in stores.items():
            m.submodules[name] = ram = Bank(32 * self.n_lanes, depth)
            en = packer.row_en if name == "rows" else packer.tail_en
            at = self.row_addr if name == "rows" else self.tail_addr
            m.d.comb += [
                ram.write_en.eq(en),
                ram.write_addr.eq(at),
                ram.write_data.eq(written),
                ram.read_addr.eq(addr),
                read.eq(ram.read_data),
            ]
        return m

    def _plan(self, m):
        """What follows from a unit's descriptor alone, in four steps, one unit per cycle.

        Returns (queue of the room that each planned unit needs, queue of the plans). The steps
        never wait: credits let in what the two hold.
        """
        lane, column = ceil_log2(self.n_lanes), ceil_log2(self.n_bytes)
        m.submodules.plans = plans = CreditQueue(self.plan, N_PLANS, never_full=True)
        needs, go, unit = take_units(m, self.units, plans, self.plan, "plan")
        known = {"unit": UNCODED_UNIT, "before": 16, "groups": 14, "gap": 4, "zero": 9}
        known |= {"fits": 1, "legal": 1}
        first = Signal(data.StructLayout(known), reset_less=True)
        m.d.sync += [
            first.unit.eq(unit),
            first.before.eq(unit.count - 1),
            first.groups.eq((unit.count + GROUP - 1) >> 3),
            first.gap.eq(band_gap(unit.exponent)),
            first.zero.eq(band_zero(unit.exponent, unit.prescale)),
            first.fits.eq(unit.count.any() & (unit.count <= self.max_floats)),
            first.legal.eq(legal(unit.exponent)),
        ]
        unit, rest = first.unit, first.unit.count[:lane]
        second = Signal(self.plan, reset_less=True)
        settings = bands(
            unit.exponent,
            first.gap,
            first.zero,
            unit.paper,
            unit.prescale,
            rounding=self.rounding,
        )
        m.d.sync += [
            *(second.bands[name].eq(value) for name, value in settings.items()),
            second.final.eq(first.before >> lane),
            second.inside.eq(Cat((rest == 0) | (k < rest) for k in range(self.n_lanes))),
            second.tag_bytes.eq(first.groups << 1),
            second.rows.eq((first.before >> lane) + 1),
            second.tag_rows.eq(((first.groups << 1) + self.n_bytes - 1) >> column),
            second.limit.eq(unit.limit),
            second.wrong.eq(~(first.fits & first.legal)),
        ]
        plan = Signal(self.plan, reset_less=True)
        more = Signal(LAG - 1, reset_less=True)
        some = ~second.wrong
        m.d.sync += [
            more.eq(more_than(second.rows) & some.replicate(LAG - 1)),  # >= tag_rows
            plan.eq(second),
            plan.rows.eq(Mux(some, second.rows, 0)),
            plan.tag_rows.eq(Mux(some, second.tag_rows, 0)),
        ]
        made = delayed_flag(m, go, 3, name="planned")
        queue_plan(m, made, plans, plan, needs, plan, more, "planned")
        return needs.o, plans

    def _issue(self, m, needs, plans):
        """Take beats; returns {name: signal} of the beat in the fourth register after the port.

        valid, first, last : flags with reset, low where there is no beat.
        data, plan, row, first_tag_row, tag_row, chunk, live, ends_tags, failed : what belongs to
            it; live has one bit per lane.

        Only the end of a unit is decided while its beat is at the port. The plan comes with the
        second register, where the number of the beat is compared.
        """
        floats = self.floats
        rooms = {
            "rows": Room(self.depth, largest=self.n_beats, lag=LAG),
            "tag_rows": Room(self.tag_depth, largest=self.n_tag_rows, lag=LAG),
            "units": Room(N_UNITS, lag=LAG),
            "sizes": Room(N_UNITS, lag=LAG),
        }
        accept, end = signals("accept end")
        fresh = Signal(init=1)  # the next beat is a unit's first
        with m.If(accept):
            m.d.sync += fresh.eq(floats.p.last)
        m.d.comb += [
            floats.ready.eq(admitted(m, needs, rooms, ends=end)),
            accept.eq(floats.valid & floats.ready),
            end.eq(accept & floats.p.last),
            plans.take.eq(end),
            rooms["rows"].give.eq(Mux(self.merger.done, self.merger.rows, 0)),
            rooms["tag_rows"].give.eq(Mux(self.merger.done, self.merger.tag_rows, 0)),
            rooms["units"].give.eq(self.merger.done),
            rooms["sizes"].give.eq(self.sizes.valid & self.sizes.ready),
        ]

        flags = {"valid": accept, "first": accept & fresh, "last": end}
        flags, values = registers(m, flags, {"data": floats.p.data, "drop": floats.p.drop}, 1)
        index = Signal(self.plan["final"].shape)
        with m.If(flags["valid"]):
            m.d.sync += index.eq(Mux(flags["last"], 0, index + 1))
        flags, values = registers(m, flags, values | {"index": index}, 2)
        plan = plans.word
        values |= {
            "plan": plan,
            "final": values["index"] == plan.final,
        }
        (here,) = copied(m, flags["valid"], 1, name="here")  # the other one stands at the lanes
        flags, values = registers(m, flags, values, 3)
        plan = data.View(self.plan, values["plan"])
        final, index = values["final"], values["index"]
        over = Signal()  # the unit has had all its beats and goes on
        with m.If(flags["valid"]):
            m.d.sync += over.eq(~flags["last"] & (over | final))
        row = Signal(self.plan["rows"].shape)
        tag_row = Signal(self.plan["tag_rows"].shape)
        with m.If(flags["last"]):
            m.d.sync += [row.eq(row + plan.rows), tag_row.eq(tag_row + plan.tag_rows)]
        stray = astray(m, (row, tag_row), flags["last"], name="rows")
        self.misplaced = plans.strays | stray
        good = flags["valid"] & ~over & ~plan.wrong
        ends_row = final | (index[:4] == CHUNKS - 1)
        flags |= {"ends_tags": here & ~over & ~plan.wrong & ends_row}
        values = {
            "data": values["data"],
            "plan": plan,
            "row": row,
            "first_tag_row": tag_row,
            "tag_row": (tag_row + (index >> 4))[: len(tag_row)],
            "chunk": index[:4],
            "live": good.replicate(self.n_lanes) & (plan.inside | (~final).replicate(self.n_lanes)),
            "failed": over | ~final | values["drop"] | plan.wrong,
        }
        flags, values = registers(m, flags, values, 4)
        values["plan"] = data.View(self.plan, values["plan"])
        return flags | values | {"bands": plan.bands}  # a cycle early, for registers of their own

    def _lanes(self, m, beat):
        """Tags (cycle `tag_cycle`) and payloads (as the packer wants them) of all lanes."""
        n = self.n_lanes
        # Settings go to many lanes: one register for four of them.
        settings = []
        for group in range(n // 4):
            kept = {"keep_register": 1}
            held = Signal(BANDS, name=f"settings{group}", reset_less=True, attrs=kept)
            m.d.sync += held.eq(beat["bands"])
            settings.append(held)
        tags, payload = [], []
        for lane in range(n):
            m.submodules[f"lane{lane}"] = coder = LaneEncoder(rounding=self.rounding)
            m.d.comb += [
                coder.float.eq(beat["data"].word_select(lane, 32)),
                coder.live.eq(beat["live"][lane]),
                coder.bands.eq(settings[lane // 4]),
            ]
            tags.append(coder.tag)
            payload.append(coder.payload)
        wait = self.sum_cycle + 2 - coder.latency
        return Cat(tags), delayed(m, Cat(payload), wait, name="payload")

    def _pack_tags(self, m, beat, tags):
        """Collect the tags of 16 beats in a row and store it."""
        wait = self.tag_cycle
        tags = delayed(m, tags, 1, name="tags_to_row")
        m.submodules.tag_rows = ram = Bank(32 * self.n_lanes, self.tag_depth)
        row = Signal(32 * self.n_lanes, reset_less=True)
        chunk = delayed(m, beat["chunk"], wait, name="chunk")
        here = Signal(CHUNKS, reset_less=True)
        m.d.sync += here.eq(Cat(chunk == k for k in range(CHUNKS)))
        for k in range(CHUNKS):
            with m.If(here[k]):
                m.d.sync += row.word_select(k, 2 * self.n_lanes).eq(tags)
            if self.n_lanes < GROUP and k % 2:  # the other half of a tag word may never come
                with m.If(here[k - 1]):
                    m.d.sync += row.word_select(k, 2 * self.n_lanes).eq(0)
        m.d.comb += [
            ram.write_en.eq(delayed_flag(m, beat["ends_tags"], wait + 2, name="tag_row_en")),
            ram.write_addr.eq(delayed(m, beat["tag_row"], wait + 2, name="tag_row_addr")),
            ram.write_data.eq(row),
            ram.read_addr.eq(self.merger.tag_addr),
            self.merger.tag_data.eq(ram.read_data),
        ]
