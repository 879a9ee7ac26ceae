"""From the stored rows of a unit to its floats.

Part of `gradnic.hdl.inceptionn.decompressor`, whose golden model it follows; `d` is that one.
"""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data, wiring
from amaranth.utils import ceil_log2

from ..primitive.names import signals
from ..primitive.parity import astray
from ..stream.admission import current, thermometer
from ..stream.delays import delayed, delayed_flag
from .byte_network import plane_bit
from .lanes import SCALES, LaneDecoder


def decode_rows(m, d, units, details, banks):
    """Issue one beat per cycle and take it through plan, banks, network and lanes."""
    planner = d.planner
    m.submodules.spreader = d.spreader
    m.submodules.outlet = outlet = d.outlet
    wiring.connect(m, outlet.o, wiring.flipped(d.floats))
    issue, done = signals("issue done")
    ends = Signal()
    valid, load = current(m, "unit", units, ends=ends)
    live, final = signals("live final")  # the unit is there and ok; this is its last beat
    counts = Signal(attrs={"keep_register": 1})  # as `live`, see `Merger`
    index, rest = signals("index rest", d.unit["final"].shape)  # rest: beats behind
    renews = Signal()
    m.d.comb += [
        issue.eq(live & outlet.free[0]),
        ends.eq(~live | (outlet.free[1] & final)),
        done.eq(valid & ends),
        outlet.start.eq(issue),
        details.take.eq(delayed_flag(m, done, 1, name="gone")),
        renews.eq(~counts | final),
    ]
    with m.If(ends):
        m.d.sync += [copy.eq(load & units.p.ok) for copy in (live, counts)]
    with m.If(~counts | outlet.free[0]):  # they follow a unit that is not there yet
        m.d.sync += [
            index.eq(Mux(renews, 0, index + 1)),
            rest.eq(Mux(renews, units.p.final, rest - 1)),
            final.eq(Mux(renews, units.p.single, rest == 1)),
        ]
    # From here on as late after the decision as the details
    unit, late = details.word, details.latency + 1
    through = delayed_flag(m, done, late, name="done")
    m.d.comb += [
        planner.done.eq(through),
        planner.done_beats.eq(unit.beats),
        d.rooms["rows"].give.eq(Mux(through, unit.rows, 0)),
        d.rooms["tag_rows"].give.eq(Mux(through, unit.tag_rows, 0)),
        d.rooms["units"].give.eq(through),
    ]

    # Plan: the address is a sum; a register near the store and one near the users
    base = Signal.like(planner.plan_addr)  # of the unit's plans
    with m.If(through):
        m.d.sync += base.eq(base + unit.beats)
    m.d.comb += d.strays.eq(
        planner.strays
        | details.strays
        | d.misplaced
        | outlet.queue.astray
        | astray(m, (base,), through, name="base")
    )
    plan_addr = Signal.like(planner.plan_addr, reset_less=True)
    m.d.sync += plan_addr.eq(base + delayed(m, index, late, name="index"))
    m.d.comb += planner.plan_addr.eq(plan_addr)
    plan = data.View(planner.layout, delayed(m, planner.plan, 1, name="plan"))
    tags = _columns(m, d, banks, plan)
    _lanes(m, d, tags, unit.scales, late)
    m.d.comb += [
        outlet.come.eq(delayed_flag(m, issue, d.float_cycle, name="come")),
        outlet.beat.last.eq(delayed(m, final, d.float_cycle + 1, name="last")),
    ]


def _columns(m, d, banks, plan):
    """The window of a beat: a column comes from the row of its first byte, or from the next; its
    tags.
    """
    n, spreader, column = d.n_lanes, d.spreader, ceil_log2(d.n_bytes)
    wait = d.start_cycle - d.plan_cycle
    for bank, row in zip(banks, (plan.even, plan.odd), strict=True):
        addr = delayed(m, row, d.column_cycle - 6 - d.plan_cycle, name="row")
        m.d.comb += bank.read_addr.eq(addr)
    passed = thermometer(m, plan.starts[:column], n, name="passed")
    from_odd = Signal(d.n_bytes, reset_less=True)
    parity = delayed(m, plan.odd[0] ^ plan.even[0], 3, name="parity")
    m.d.sync += from_odd.eq(passed ^ parity.replicate(d.n_bytes))
    from_odd = delayed(m, from_odd, d.column_cycle - 5 - d.plan_cycle, name="from_odd")
    near = [delayed(m, bank.read_data, 1, name="columns_near") for bank in banks[::-1]]
    columns = Signal(32 * n, reset_less=True)
    for j in range(d.n_bytes):
        pair = (bank.word_select(j, 8) for bank in near)
        m.d.sync += columns.word_select(j, 8).eq(Mux(plane_bit(n, from_odd, j), *pair))

    tags = delayed(m, plan.tags, wait, name="tags")
    m.d.comb += [
        spreader.starts.eq(delayed(m, plan.starts, wait, name="starts")),
        spreader.tags.eq(tags),
        spreader.columns.eq(columns),
    ]
    return tags


def _lanes(m, d, tags, scales, late):
    """Lanes; the unit's settings, `late` cycles after its beat, go to four from one register."""
    n, spreader, outlet = d.n_lanes, d.spreader, d.outlet
    tags = delayed(m, tags, spreader.latency, name="tags_late")
    known = delayed(m, scales, d.payload_cycle - late, name="scales")
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
            outlet.beat.data.word_select(lane, 32).eq(decoder.float),
        ]
