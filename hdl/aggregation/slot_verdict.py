"""What a contribution may do to its slot, decided before anything changes.

Twin of `gradnic.models.aggregation.slot_verdict`; a part of the slot rule.
"""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import Op

from ..primitive.names import signals
from ..stream.delays import copied, delayed
from .slot_records import (
    CLOSE_BOUNDED,
    CLOSE_N_MIN,
    EVENTS,
    ContributionHead,
    JobRegisters,
    Record,
    Sizes,
)

SLICE = 64  # bits of a record that one copy of a flag steers
COMPARED = 8  # bits that one flag compares

Verdict = data.StructLayout(
    {
        "adds": 1,
        "first": 1,  # the slot holds nothing of this generation
        "again": 1,  # the stored sum is the answer
        "single": 1,  # the answer is for the sender alone
        "ends": 1,  # the slot's time is over
        "fills": 1,  # closes the slot, if it adds
        "clears": 1,  # SwitchML: the sender's bit in the other set is cleared
        **{name: 1 for name in EVENTS if name != "partial"},
    }
)


class SlotVerdict(wiring.Component):
    """Compares a head with its job's registers and its slot's record, in stages; nothing stalls.

    The generation is compared first: an older one changes nothing, a newer one claims the set, an
    equal one must agree with what the claim said. SwitchML has no generation: a set is begun anew
    when no bit is set in it, and a count of who is awaited says when it is complete.

    Parameters
    ----------
    sizes : Sizes

    Members
    -------
    head, closing : In(ContributionHead), In(1)
        From stage 0 on, for 8 stages. ``closing``: there is no packet, but a slot whose time is
        over; of the head only slot and generation count.
    job : In(JobRegisters)
        Of the head from stage 1 on; of the record from stage 4 on where ``closing``.
    record, now : In(Record), In(32)
        From stage 3 on.
    verdict : Out(Verdict)
        In stages 6 and 7.
    bounded : Out(1)
        From stage 4 on: its bytes count, and may close the tensor's slots.
    after : Out(Record)
        The record as this leaves it, in stage 7, but for ``closed``.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        super().__init__(
            {
                "head": In(ContributionHead),
                "closing": In(1),
                "job": In(JobRegisters),
                "record": In(Record),
                "now": In(32),
                "verdict": Out(Verdict),
                "bounded": Out(1),
                "after": Out(Record),
            }
        )

    def elaborate(self, platform):
        m = Module()
        refused = self._refusals(m)
        beside = self._compare(m)
        self._judge(m, beside, refused)
        return m

    def _compare(self, m):
        """Stage 3: record and head side by side."""
        head, job, record = self.head, self.job, self.record
        age = Signal(signed(16), reset_less=True)
        bit = Signal(32, reset_less=True)
        seen, empty, spent, last_one = (
            Signal(name=name, reset_less=True) for name in ("seen", "empty", "spent", "last_one")
        )
        is_thc = Signal(reset_less=True)  # the head stays, so a cycle later will do
        m.d.sync += is_thc.eq((head.op == Op.THC_IDX) | (head.op == Op.THC_SUM))
        more, less = signals("more less", 6, reset_less=True)
        claims = ("op", "lc", "tensor", "tree", "seq", "elems")
        pairs = [(head.arg, record.tag, is_thc)]
        pairs.append((Cat(head[name] for name in claims), Cat(record[name] for name in claims), 1))
        differs = Cat(
            (new[start:][:COMPARED] != old[start:][:COMPARED]) & counts
            for new, old, counts in pairs
            for start in range(0, len(new), COMPARED)
        )
        differs = delayed(m, differs, 1, name="differs")
        m.d.sync += [
            bit.eq(1 << head.src),
            age.eq(head.gen - record.gen),
            seen.eq((record.bitmap & bit).any()),
            empty.eq(record.bitmap == 0),
            spent.eq(record.count == 0),
            last_one.eq(Mux(record.count == 0, job.n_children == 1, record.count == 1)),
            more.eq(record.count + 1),
            less.eq(Mux(record.count == 0, job.n_children, record.count) - 1),
        ]
        return SimpleNamespace(
            age=age, bit=bit, seen=seen, empty=empty, spent=spent, last_one=last_one, more=more,
            less=less, differs=differs,
        )  # fmt: skip

    def _judge(self, m, beside, refused):
        """Stage 4, what kind of packet it is, and stage 5, the verdict."""
        head, job, record, closing = self.head, self.job, self.record, self.closing
        age, seen, more = beside.age, beside.seen, beside.more
        good, claims, same, stale, agrees, closed, was_seen, was_open = (
            Signal(name=name, reset_less=True)
            for name in (
                "good", "claims", "same", "stale", "agrees", "closed", "was_seen", "was_open")
        )  # fmt: skip
        partly = Signal(reset_less=True)  # may be closed in part
        level = Signal(reset_less=True)  # of the record's generation
        first_fills, next_fills = signals("first_fills next_fills", reset_less=True)
        ours = job.switchml
        by_count = (job.close == CLOSE_N_MIN) & partly
        m.d.sync += [
            partly.eq((head.op != Op.NORM) & ~ours),
            self.bounded.eq(partly & (job.close == CLOSE_BOUNDED)),
            good.eq(~refused.as_value().any() & ~closing),
            claims.eq(Mux(ours, beside.empty, ~record.valid | (age > 0))),
            level.eq(age == 0),
            same.eq(ours | (record.valid & (age == 0))),
            stale.eq(~ours & record.valid & (age < 0)),
            agrees.eq(ours | ~beside.differs.any()),
            closed.eq(Mux(ours, beside.spent & seen, record.closed)),
            was_seen.eq(seen),
            was_open.eq(record.valid & ~record.closed),
            first_fills.eq(
                Mux(ours, beside.last_one, (job.n_children == 1) | (by_count & (job.n_min <= 1)))
            ),
            next_fills.eq(
                Mux(
                    ours,
                    beside.last_one,
                    (more == job.n_children) | (by_count & (more >= job.n_min)),
                )
            ),
        ]

        # stage 5
        verdict = self.verdict
        joins = same & agrees & ~closed & ~was_seen
        adds, fits = signals("adds fits")
        m.d.comb += [adds.eq(good & (claims | joins)), fits.eq(good & same & agrees & ~claims)]
        m.d.sync += [
            verdict.adds.eq(adds),
            verdict.first.eq(claims),
            verdict.again.eq(fits & closed),
            verdict.single.eq((fits & closed) | (good & stale)),
            verdict.ends.eq(closing & was_open & level),
            verdict.fills.eq(Mux(claims, first_fills, next_fills)),
            verdict.clears.eq(good & ours),
            verdict.accepted.eq(adds),
            verdict.claims.eq(good & claims),
            verdict.abandoned.eq(good & claims & was_open),
            verdict.duplicates.eq(fits & ~closed & was_seen),
            verdict.stale.eq(good & stale),
            verdict.late.eq(fits & closed & ~was_seen),
            verdict.retransmitted.eq(fits & closed & was_seen),
            verdict.collisions.eq(refused.collisions & ~closing),
            verdict.config.eq((refused.config & ~closing) | (good & same & ~agrees)),
            verdict.length.eq(refused.length & ~closing),
        ]
        self._after(m, adds, claims, beside.bit, Mux(ours, beside.less, Mux(claims, 1, more)))

    def _refusals(self, m):
        """Stages 1 to 3: whether the head disagrees with its job's registers, in stage 4."""
        head, job, sizes = self.head, self.job, self.sizes
        offset = Signal(signed(15), reset_less=True)
        length = Signal(16, reset_less=True)
        is_words = (head.op == Op.NORM) | (head.op == Op.INT32)
        is_index, is_sum = head.op == Op.THC_IDX, head.op == Op.THC_SUM
        code, sum_bytes = (8, 12, 16).index(sizes.width), sizes.chunk * sizes.width // 8
        words_fit, thc_fits, wanted, in_store = (
            Signal(name=name, reset_less=True)
            for name in ("words_fit", "thc_fits", "wanted", "in_store")
        )
        is_chunk, differs = signals("is_chunk differs", reset_less=True)
        m.d.sync += [
            offset.eq(head.slot - job.first_slot),
            in_store.eq(head.slot < sizes.n_slots),
            is_chunk.eq(head.elems == sizes.chunk),
            words_fit.eq((head.elems != 0) & (head.elems <= sizes.n_words)),
            thc_fits.eq(
                Mux(
                    is_index,
                    (head.p0 == Cat(job.block, job.p, job.bits))
                    & (head.p1 == job.g)
                    & (job.bits < sizes.b_max),
                    head.p1[6:] == code,
                )
            ),
            wanted.eq(
                Mux(job.int32, head.op == Op.INT32, is_index | is_sum | (head.op == Op.NORM))
                & (~job.switchml | (head.elems == Mux(job.large, 256, 64)))
            ),
            length.eq(
                Mux(is_words, head.elems << 2,
                    Mux(is_index, (job.bits + 1) * (sizes.chunk // 8), sum_bytes))
            ),
        ]  # fmt: skip
        outside, wrong = signals("outside wrong", reset_less=True)
        m.d.sync += [
            outside.eq((offset < 0) | (offset >= job.n_slots) | ~in_store),
            wrong.eq(~wanted | ~Mux(is_words, words_fit, is_chunk & thc_fits)),
            differs.eq(head.length != length),
        ]
        refused = Signal(data.StructLayout({"collisions": 1, "config": 1, "length": 1}))
        m.d.sync += [
            refused.collisions.eq(outside),
            refused.config.eq(~outside & wrong),
            refused.length.eq(~outside & ~wrong & differs),
        ]
        return refused

    def _after(self, m, adds, claims, bit, count):
        """Stages 3 to 6: the record as it will be. `adds`, `claims` and `count`: of stage 5."""
        head, record, after = self.head, self.record, self.after
        # stages 3 and 4: sums and maxima, whatever becomes of them
        brings = Mux((head.op == Op.NORM) | (head.op == Op.THC_SUM), head.p0, 1)
        total = Signal(9, reset_less=True)
        leaves = Signal(8, reset_less=True)
        m.d.sync += [total.eq(record.leaves + brings), leaves.eq(Mux(total[8], 255, total[:8]))]
        top = {}
        for kept, new in (("e0", head.p0), ("e1", head.p1)):
            above, alike, below = (
                Signal(name=f"{kept}_{name}", reset_less=True)
                for name in ("above", "alike", "below")
            )
            top[kept] = Signal(8, name=f"{kept}_top", reset_less=True)
            old = record[kept]
            m.d.sync += [
                above.eq(new[4:].as_signed() > old[4:].as_signed()),
                alike.eq(new[4:] == old[4:]),
                below.eq(new[:4] > old[:4]),
                top[kept].eq(Mux(above | (alike & below), new, old)),
            ]
        # stage 5: the record if the packet is added
        added = Signal(Record, reset_less=True)
        for name in ("job", "gen", "op", "lc", "tensor", "tree", "seq", "elems"):
            m.d.comb += added[name].eq(head[name])
        held = {
            "bitmap": (32, Mux(claims, 0, record.bitmap) | bit),
            "count": (6, count),
            "leaves": (8, Mux(claims, brings, leaves)),
            "last": (1, head.last | (record.last & ~claims)),
            "ecn": (1, head.ecn | (record.ecn & ~claims)),
            "opened": (32, Mux(claims, self.now, record.opened)),
            "e0": (8, Mux(claims, head.p0, top["e0"])),
            "e1": (8, Mux(claims, head.p1, top["e1"])),
        }
        for name, (width, value) in held.items():
            register = Signal(width, name=f"added_{name}", reset_less=True)
            m.d.sync += register.eq(value)
            m.d.comb += added[name].eq(register)
        m.d.comb += [
            added.valid.eq(~self.job.switchml),
            added.tag.eq(head.arg),
            added.closed.eq(0),
        ]
        # stage 6
        old, new, out = (r.as_value() for r in (record, added, after))
        starts = range(0, len(out), SLICE)
        for start, adds_copy in zip(starts, copied(m, adds, len(starts), name="adds"), strict=True):
            part = slice(start, start + SLICE)
            m.d.sync += out[part].eq(Mux(adds_copy, new[part], old[part]))
