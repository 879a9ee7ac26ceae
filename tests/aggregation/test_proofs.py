"""What no traffic can do to a slot: proven on the circuits of the aggregation unit, for all time.

The proofs stand on small units: the slot rule has 2 slots of two sets and 2 jobs, whose registers
are any constants. By k-induction with yices: what holds, holds after any number of packets.
"""

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, Signal, Value
from amaranth.lib import data
from gradnic.hdl.aggregation import slot_rule, slot_verdict
from gradnic.hdl.aggregation.slot_records import (
    CLOSE_BOUNDED,
    ContributionHead,
    JobRegisters,
    Record,
    Sizes,
    Task,
    chosen,
)
from gradnic.sim.proof import formal

pytestmark = pytest.mark.slow

SIZES = Sizes(n_bytes=4, n_slots=2, n_jobs=2, chunk=32, n_words=8)
K = 10  # a packet is inside the rule for 9 cycles


def stays(m, *values):
    """Assume that inputs keep whatever value they have."""
    for k, value in enumerate(values):
        bits = Value.cast(value)
        before = Signal(len(bits), name=f"before{k}", reset_less=True)
        started = Signal(name=f"started{k}", reset_less=True)
        m.d.sync += [before.eq(bits), started.eq(1)]
        m.d.comb += Assume(~started | (bits == before))


def owned(jobs, index, slot):
    """Whether a slot is within a job's range."""
    job = chosen(jobs, index)
    return (slot >= job.first_slot) & (slot < job.first_slot + job.n_slots)


def is_one_hot(value):
    return (value & (value - 1)) == 0


class SlotHarness(formal.Harness):
    """The rule, watched at one slot and set and for one child, both of the solver's choice."""

    def __init__(self, verdict=slot_verdict):
        super().__init__(slot_rule.SlotRule(SIZES))
        self.component.verdict = verdict.SlotVerdict(SIZES)
        self.jobs = Signal(data.ArrayLayout(JobRegisters, 2), name="any_jobs")
        self.place = Signal(SIZES.place_width, name="any_place")
        self.child = Signal(5, name="any_child")
        self.free += [self.jobs.as_value(), self.place, self.child]

    def describe(self, m):
        dut, place = self.component, self.place
        ram, sweep, at, head = dut.records, dut.sweep, dut.at, dut.head
        stays(m, dut.jobs, place, self.child)
        port = ram.array.read_port(domain="comb")
        m.d.comb += port.addr.eq(place)
        held = data.View(Record, port.data)
        new = data.View(Record, ram.write_data)
        writes = Signal()  # a packet, or a request to close, changes a record
        m.d.comb += writes.eq(ram.write_en & ~sweep.erase)
        here = ram.write_addr == place
        slot = head.slot[: SIZES.place_width - 1]
        own_place = (slot << 1 | head.gen[0])[: SIZES.place_width]
        # SwitchML has no generations: what is said of them is said of other jobs' slots
        m.d.comb += [
            Assume(~(owned(dut.jobs, k, place >> 1) & dut.jobs[k].switchml)) for k in range(2)
        ]

        # what has been seen to happen at the place
        known, closed, counted = Signal(), Signal(), Signal()
        gen = Signal(16, reset_less=True)
        contributes = writes & here & ~dut.closing
        older = (gen - new.gen)[:16]
        is_newer = ~known | ((older != 0) & older[15])
        erases = sweep.erase & (sweep.erase_place == place)
        with m.If(erases):
            m.d.sync += known.eq(0)
        with m.Elif(writes & here):
            m.d.sync += [known.eq(1), gen.eq(new.gen), closed.eq(new.closed)]
            with m.If(~dut.closing):
                m.d.sync += counted.eq((head.src == self.child) | (counted & ~is_newer))
        erased = ~(sweep.everything & (sweep.place <= place))
        queue = dut.queue.i
        adds = queue.valid & queue.p.adds
        m.d.comb += [
            # one: a packet changes only what its job owns, and the record is its slot's
            Assert(
                ~(writes & ~dut.closing) | owned(dut.jobs, head.job, head.slot),
                "a packet changes a slot that its job does not own",
            ),
            Assert(
                ~writes | (ram.write_addr == own_place ^ dut.clears),
                "another record is written than the packet's",
            ),
            # two: nobody is counted twice in a generation
            Assert(
                ~(contributes & ~is_newer & counted & (head.src == self.child)),
                "a child is counted twice in one generation",
            ),
            # three: what is closed stays until a newer generation claims it
            Assert(
                ~(contributes & known & closed) | is_newer, "a closed slot takes a contribution"
            ),
            Assert(~(contributes & ~is_newer) | (new.gen == gen), "an older generation is added"),
            Assert(
                ~(writes & here & dut.closing) | (known & ~closed & (new.gen == gen) & new.closed),
                "a slot is closed that is not open",
            ),
            # sums change with records, and in no other way
            Assert(~adds | (writes & ~dut.closing), "a sum changes without its record"),
            Assert(~adds | (queue.p.place == ram.write_addr), "another sum changes"),
            Assert(~(dut.clears & here), "SwitchML's rule reaches another job's slot"),
            Assert(~(adds & here) | (queue.p.first == is_newer), "a sum is not begun anew"),
            Cover(contributes & known & is_newer & closed, "a closed slot is claimed"),
            # why: the store says what was seen
            *(Assert(copy == dut.queue.valids[0]) for copy in dut.queue.valids[1:]),
            *(Assert(copy == dut.queue.spares[0]) for copy in dut.queue.spares[1:]),
            Assert(dut.queue.valids[0] | dut.queue.spares[0]),
            Assert(is_one_hot(at)),
            Assert(~dut.may | ~at[:7].any()),
            Assert(is_one_hot(sweep.stage)),
            Assert(~sweep.erase | ~at.any()),
            Assert(~sweep.everything | sweep.wiping),
            Assert(~sweep.wiping | (sweep.busy & ~at.any() & ~sweep.stage.any())),
            Assert(~sweep.wiping | ~sweep.close.valid),
            Assert(~sweep.wiping | (sweep.place + sweep.left == sweep.places)),
            Assert(sweep.more == (sweep.left != 0)),
            Assert(sweep.is_last == (sweep.left == 1)),
            Assert(~sweep.close.valid | ~sweep.stage.any()),
            Assert(~erased | (held.valid == known) | (erases & ~known)),
            Assert(~(erased & known) | ((held.gen == gen) & (held.closed == closed))),
            Assert(~(erased & known) | (held.bitmap.bit_select(self.child, 1) == counted)),
            Assert(erased | ~known),
        ]


class Tenants(Elaboratable):
    """Two copies of the rule: job 0 sends the same to both, job 1 something else to each.

    Heads come at the same moments. No slot is closed by time or by bytes, for that takes time of
    its own: the contributions behind it come later, but none is changed.
    """

    def __init__(self, verdict=slot_verdict):
        self.pair = [slot_rule.SlotRule(SIZES) for _ in range(2)]
        for dut in self.pair:
            dut.verdict = verdict.SlotVerdict(SIZES)
        self.jobs = Signal(data.ArrayLayout(JobRegisters, 2), name="any_jobs")
        self.place = Signal(SIZES.place_width, name="any_place")
        self.heads = [Signal(ContributionHead, name=f"head{k}") for k in range(2)]
        self.valid, self.ready, self.now = Signal(name="valid"), Signal(name="ready"), Signal(32)
        self.free = [self.jobs.as_value(), self.place, *(h.as_value() for h in self.heads)]
        self.free += [self.valid, self.ready, self.now]

    def elaborate(self, platform):
        m = Module()
        place, (one, two) = self.place, self.pair
        first, second = self.jobs[0], self.jobs[1]
        stays(m, self.jobs, place)
        stores = []
        for k, dut in enumerate(self.pair):
            m.submodules[f"dut{k}"] = dut
            port = dut.records.array.read_port(domain="comb")
            stores.append(port.data)
            m.d.comb += [
                port.addr.eq(place),
                dut.jobs.eq(self.jobs),
                dut.now.eq(self.now),
                dut.heads.p.eq(self.heads[k]),
                dut.heads.valid.eq(self.valid),
                dut.tasks.ready.eq(self.ready),
            ]
        m.d.comb += [
            Assume((first.close != CLOSE_BOUNDED) & (second.close != CLOSE_BOUNDED)),
            Assume(
                (first.first_slot + first.n_slots <= second.first_slot)
                | (second.first_slot + second.n_slots <= first.first_slot)
            ),
            Assume(owned(self.jobs, 0, place >> 1)),
            Assume(self.heads[0].job == self.heads[1].job),
            Assume(self.heads[0].job < 2),
            Assume(
                (self.heads[0].job != 0) | (self.heads[0].as_value() == self.heads[1].as_value())
            ),
        ]
        erased = ~(one.sweep.everything & (one.sweep.place <= place))
        erased &= ~(one.sweep.erase & (one.sweep.erase_place == place))
        m.d.comb += [
            Assert(~erased | (stores[0] == stores[1]), "job 0's slot depends on job 1"),
            Assert(one.heads.ready == two.heads.ready, "job 0 waits for job 1"),
            Assert(one.tasks.valid == two.tasks.valid, "an answer comes at another time"),
            Assert(self._alike(one.tasks.p, two.tasks.p, one.tasks.valid), "another answer"),
            Cover(one.tasks.valid & one.tasks.p.emits & (one.tasks.p.place == place)),
            # why: both copies are in step
            Assert(one.at == two.at),
            Assert(one.may == two.may),
            Assert(~one.may | ~one.at[:7].any()),
            Assert(one.left == two.left),
            Assert(one.given == two.given),
            Assert(is_one_hot(one.at)),
            Assert(~one.at.any() | (one.head.job < 2)),
            Assert(~one.at.any() | (one.head.job == two.head.job)),
            Assert(
                ~one.at.any() | (one.head.job != 0) | (one.head.as_value() == two.head.as_value())
            ),
            self._skids(one.queue, two.queue),
        ]
        for name in ("left", "place", "stage", "wiping", "everything", "erase", "erase_place"):
            m.d.comb += Assert(getattr(one.sweep, name) == getattr(two.sweep, name))
        for dut in self.pair:
            sweep, queue = dut.sweep, dut.queue
            m.d.comb += [
                Assert(sweep.busy == sweep.wiping),
                Assert(~sweep.wiping | ~dut.at.any()),
                Assert(~sweep.everything | sweep.wiping),
                Assert(sweep.wiping | (sweep.left == 0)),
                Assert(~sweep.wiping | (sweep.place + sweep.left == sweep.places)),
                Assert(sweep.more == (sweep.left != 0)),
                Assert(sweep.is_last == (sweep.left == 1)),
                Assert(~(sweep.again | sweep.later | sweep.by_time | sweep.by_bytes)),
                Assert(~sweep.stage.any()),
                Assert(~dut.closing & ~sweep.close.valid),
                *(Assert(copy == one.queue.valids[0]) for copy in queue.valids),
                *(Assert(copy == one.queue.spares[0]) for copy in queue.spares),
                Assert(queue.valids[0] | queue.spares[0]),
            ]
        return m

    def _alike(self, one, two, valid):
        """Whether what is to be done is the same, if it is for job 0 and the chosen place."""
        ours = valid & (one.answer.job == 0) & (one.place == self.place)
        deeds = [Cat(t.takes, t.adds, t.emits, t.tells) for t in (one, two)]
        same = (deeds[0] == deeds[1]) & (~deeds[0][1:].any() | (one.as_value() == two.as_value()))
        return (~valid | (one.answer.job == two.answer.job)) & (~ours | same)

    def _skids(self, one, two):
        shape = Task(SIZES.place_width)
        waits = ~one.spares[0]
        return Assert(self._alike(data.View(shape, one.skid), data.View(shape, two.skid), waits))


def test_slots_are_safe():
    result = formal.prove(SlotHarness(), k=K, cover_depth=24, timeout=900)
    assert result.method == "induction"


JOINS = "joins = same & agrees & ~closed & ~was_seen"
BUGS = {
    "owner": (("refused.collisions.eq(outside)", "refused.collisions.eq(0)"), "slot", 17),
    "twice": ((JOINS, "joins = same & agrees & ~closed"), "twice", 22),
    "closed": ((JOINS, "joins = same & agrees & ~was_seen"), "closed", 22),
    "stale": (("(age > 0)", "(age != 0)"), "", 22),
    "switchml": (("clears.eq(good & ours)", "clears.eq(ours)"), "slot", 17),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_broken_rule_is_refuted(bug):
    change, word, depth = BUGS[bug]
    harness = SlotHarness(formal.twin(slot_verdict, *change))
    assert word in formal.refute(harness, depth=depth, timeout=900)


def test_a_job_does_not_see_another():
    result = formal.prove(Tenants(), k=K, cover_depth=18, timeout=900)
    assert result.method == "induction"


def test_a_leak_between_jobs_is_refuted():
    leak = formal.twin(slot_verdict, "refused.collisions.eq(outside)", "refused.collisions.eq(0)")
    assert "job" in formal.refute(Tenants(leak), depth=17, timeout=900)
