"""Where the bytes of each lane go, and what the merger is told of whole units.

Part of `gradnic.hdl.inceptionn.compressor`, whose golden model it follows: `c` is the compressor.
"""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.utils import ceil_log2

from ..primitive.parity import astray
from ..stream.delays import copied, delayed, delayed_flag
from ..stream.pair_queue import PairQueue
from .byte_network import PrefixSum

N_UNITS = 64  # inside an engine, so that one-beat units keep full rate through its latency
SIZE = data.StructLayout({"bytes": 16, "dropped": 1})


def pack_payload(m, c, beat, tags, payload):
    """Add up bytes, give every lane its place, and tell the merger of whole units."""
    n, packer = c.n_lanes, c.packer
    column = ceil_log2(c.n_bytes)
    m.submodules.prefix = prefix = PrefixSum(n)
    m.d.comb += prefix.tags.eq(tags)

    def ride(name, extra=0):
        value = beat[name]
        flag = name in ("valid", "first", "last")
        wait = c.sum_cycle - 1 + extra
        return (delayed_flag if flag else delayed)(m, value, wait, name=f"{name}_sum")

    # The running sum of bytes: its low bits are the next free column, and its carry into the
    # others says that this beat completes a row.
    size = Signal(16, reset_less=True)
    so_far = Signal(16)
    first = ride("first")
    begins, begins_too = copied(m, ride("first", -1), 2, name="begins")
    early = data.View(c.plan, ride("plan", -1))
    tag_bytes, tag_bytes_too = copied(m, early.tag_bytes, 2, name="tag_bytes")
    m.d.comb += so_far.eq(Mux(begins, tag_bytes, size))
    m.d.sync += size.eq(Mux(begins_too, tag_bytes_too, size) + prefix.total)
    base = Signal(column, reset_less=True)
    fills = Signal()
    m.d.sync += base.eq(so_far)
    m.d.comb += fills.eq(size[column] ^ delayed(m, so_far[column], 1, name="parity"))
    last = ride("last", 1)

    # Row addresses, two cycles later
    row = Signal.like(beat["row"], reset_less=True)
    row_now = Signal.like(row)
    row_held = Signal.like(row, reset_less=True)
    begins = delayed_flag(m, first, 2, name="begins_row")
    m.d.comb += row_now.eq(Mux(begins, ride("row", 2), row))
    m.d.sync += [
        row.eq(row_now + delayed_flag(m, fills, 1, name="fills")),
        row_held.eq(row_now),
    ]
    c.row_addr = delayed(m, row_held, packer.latency - 2, name="row_addr")

    offsets = delayed(m, prefix.offsets, 1, name="offsets")
    starts = Signal(len(prefix.offsets), reset_less=True)
    bases = []
    for group in range(n // 4):
        kept = {"keep_register": 1}
        held = Signal(column, name=f"base{group}", reset_less=True, attrs=kept)
        m.d.sync += held.eq(so_far)
        bases.append(held)
    for lane in range(n):
        m.d.sync += starts.word_select(lane, column).eq(
            bases[lane // 4] + offsets.word_select(lane, column)
        )
    m.d.comb += [
        packer.starts.eq(starts),
        packer.tags.eq(delayed(m, tags, prefix.latency + 2, name="tags")),
        packer.payload.eq(payload),
        packer.base.eq(base),
        packer.row.eq(fills),
        packer.last.eq(last),
    ]
    slot = Signal(range(N_UNITS))
    with m.If(packer.tail_en):
        m.d.sync += slot.eq(slot + 1)
    stray = astray(m, (slot,), packer.tail_en, name="slot")
    m.d.comb += c.strays.eq(c.misplaced | c.merger.strays | stray)
    c.tail_addr = slot

    _tell(m, c, ride, size, last, column)


def _tell(m, c, ride, size, last, column):
    """The unit's verdict and what the merger needs, when its tail is being written."""
    packer = c.packer
    plan = data.View(c.plan, ride("plan", 2))
    unit = Signal(c.merger.unit, reset_less=True)
    total = delayed(m, size, 1, name="total")
    above = Signal(2, reset_less=True)  # above: in each half
    equal = Signal(reset_less=True)
    dropped = Signal(reset_less=True)
    final = Signal(16, reset_less=True)
    m.d.sync += [
        final.eq((size - 1) >> column),
        above.eq(Cat(total[:8] > plan.limit[:8], total[8:] > plan.limit[8:])),
        equal.eq(total[8:] == plan.limit[8:]),
        dropped.eq(above[1] | (equal & above[0]) | ride("failed", 3)),
    ]
    full_tags = plan.tag_bytes >> column
    m.d.sync += [
        unit.row.eq(ride("row", 2) - full_tags),
        unit.tag_row.eq(ride("first_tag_row", 2)),
        unit.full_tags.eq(full_tags),
        unit.has_full.eq(full_tags != 0),
        unit.tag_end.eq(plan.tag_bytes),
        unit.final.eq(final),
        unit.single.eq(final == 0),
        unit.end.eq(total),
        unit.rows.eq(plan.rows),
        unit.tag_rows.eq(plan.tag_rows),
    ]
    # Told a cycle before the tail is whole: the merger reads later, and the flag is its own.
    wait = packer.latency - 3
    unit_done = delayed_flag(m, last, packer.latency - 1, name="unit_done")
    m.submodules.measured = measured = PairQueue(SIZE, N_UNITS)
    wiring.connect(m, measured.o, wiring.flipped(c.sizes))
    gone = delayed(m, dropped, wait - 1, name="dropped")
    m.d.comb += [
        c.merger.units.valid.eq(unit_done),
        c.merger.units.p.eq(delayed(m, unit, wait, name="unit")),
        c.merger.units.p.dropped.eq(gone),
        measured.i.valid.eq(unit_done),
        measured.i.p.bytes.eq(delayed(m, total, wait + 1, name="bytes")),
        measured.i.p.dropped.eq(gone),
    ]
