"""Homomorphic aggregation unit: contributions in, sums out, each counted exactly once.

The slot engine of an aggregator, without frames: parsing, ownership and addresses are the business
of what stands around it. THC (NSDI 2024) for the lookup and the add; SwitchML and ATP for slots.
"""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.same import same
from ..stream.beats import Beat
from .slot_adder import SlotAdder
from .slot_records import EVENTS, Answer, ContributionHead, JobRegisters, Sizes
from .slot_rule import SlotRule

__all__ = ["EVENTS", "AggregationUnit", "Answer", "ContributionHead", "JobRegisters", "Sizes"]


class AggregationUnit(wiring.Component):
    """Adds contributions into slots and answers: `2 * n_bytes` indices of 4 bits per cycle.

    Twin of `gradnic.models.aggregation.unit.SlotEngine`. What comes in is complete and good:
    whoever stands in front has stored the whole frame, and checked format, owner (``src`` is a
    child of the job) and checksum. A head's slot must be its job's; if it is not, the unit changes
    nothing and counts it, but the frame that should go on with COLL is gone: check before.

    Parameters
    ----------
    n_bytes : int
        Bytes of a beat: 4, 8, 16, 32 or 64. A row of the store is `2 * n_bytes` sums.
    n_slots : int
        Slots in all, each with two sets, for all jobs together; a power of two from 2 to 8192 / the
        rows of the largest sum, which are max(2, chunk / (2 * n_bytes), n_words / words of 32 bits
        in a row), rounded up to a power of two.
    n_jobs : int
        1 to 16.
    chunk : int
        C, elements of a THC packet: a multiple of 8 * n_bytes.
    width : int
        w, bits of a sum: 8, 12 or 16.
    b_max : int
        Most bits of an index, 1 to 8. The table of a job has 2**b_max entries.
    n_words : int
        Most elements of a NORM or INT32 packet.

    Members
    -------
    jobs : In(ArrayLayout(JobRegisters, n_jobs))
        May change only for a job without traffic; ``clear`` its slots before its first packet.
    clear, clear_job, busy : In(1), In(4), Out(1)
        Forgets all that a job's slots hold. ``busy`` while that, or the same for all slots after a
        reset, is under way: no head is taken, for 2 * n_slots cycles. While ``busy``, ``clear`` is
        not heard: wait for its end.
    write_en, write_addr, write_data : In(1), In(4 + b_max), In(8)
        Table of levels: address is the job's place times 2**b_max, plus the index. Ignored for a
        job's place of `n_jobs` or more.
    now, tick : In(32), In(1)
        Time, and a pulse that starts a visit to every slot, lowest first, which closes those whose
        deadline has passed. It ends within 16 * n_slots cycles and a few without load. Pulses
        during a visit ask for one more after it.
    heads : In(stream.Signature(ContributionHead))
    values : In(stream.Signature(Beat(8 * n_bytes)))
        Payloads in the order of their heads: ceil(length / n_bytes) beats each, ``last`` on the
        last one, none if ``length`` is 0. What follows the payload in its last beat is ignored.
    answers : Out(stream.Signature(Answer))
    sums : Out(stream.Signature(Beat(8 * n_bytes)))
        Payloads of the answers that have one, in their order; zeros after the end of a payload. A
        payload is not offered before its answer is, but it may have to be taken before a later
        answer comes, and the other way round: nobody may wait for one without taking the other.
    events, event_job : Out(StructLayout of EVENTS), Out(4)
        Pulses, one cycle each: what is counted, and of which job.
    overflow, overflow_job : Out(1), Out(4)
        A slot's sum has overflowed for the first time.
    """

    def __init__(self, n_bytes: int = 64, **sizes: Any) -> None:
        self.sizes = Sizes(n_bytes, **sizes)
        n_jobs, b_max = self.sizes.n_jobs, self.sizes.b_max
        beats = stream.Signature(Beat(8 * n_bytes))
        super().__init__(
            {
                "jobs": In(data.ArrayLayout(JobRegisters, n_jobs)),
                "clear": In(1),
                "clear_job": In(4),
                "busy": Out(1),
                "write_en": In(1),
                "write_addr": In(4 + b_max),
                "write_data": In(8),
                "now": In(32),
                "tick": In(1),
                "heads": In(stream.Signature(ContributionHead)),
                "values": In(beats),
                "answers": Out(stream.Signature(Answer)),
                "sums": Out(beats),
                "events": Out(data.StructLayout(dict.fromkeys(EVENTS, 1))),
                "event_job": Out(4),
                "overflow": Out(1),
                "overflow_job": Out(4),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.rule = rule = SlotRule(self.sizes)
        m.submodules.adder = adder = SlotAdder(self.sizes)
        wiring.connect(m, rule.tasks, adder.tasks)
        wiring.connect(m, wiring.flipped(self.heads), rule.heads)
        wiring.connect(m, wiring.flipped(self.values), adder.values)
        wiring.connect(m, adder.answers, wiring.flipped(self.answers))
        wiring.connect(m, adder.sums, wiring.flipped(self.sums))
        m.d.comb += [
            *same(rule, self, "jobs clear clear_job now tick"),
            adder.write_en.eq(
                self.write_en & (self.write_addr < (self.sizes.n_jobs << self.sizes.b_max))
            ),
            adder.write_addr.eq(self.write_addr),
            adder.write_data.eq(self.write_data),
            *same(self, rule, "busy events event_job"),
            *same(self, adder, "overflow overflow_job"),
        ]
        return m
