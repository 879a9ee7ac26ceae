"""Visits every slot: closes those whose time is over, and forgets those of a job that is gone.

Twin of `gradnic.models.aggregation.slot_sweep`; a part of the slot rule.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.aggregator import MAX_JOBS
from gradnic.interface.formats import Op
from gradnic.interface.params import check_range

from ..primitive.names import signals
from ..stream.delays import delayed_flag
from .slot_records import JobRegisters, Record, chosen


def Due(place_width):
    """Shape of a request to close the slot at a place, if it still has the generation."""
    return data.StructLayout({"place": place_width, "gen": 16})


class Sweep(wiring.Component):
    """Goes through the records on request, one every 8 cycles, beside the contributions.

    ``tick`` asks for those past their deadline, and waits for the visit under way: ticks may be
    closer together than a visit takes. ``crossed`` asks for those of a tensor of which enough has
    come, and starts again from the lowest place; contributions wait meanwhile, and so nothing
    crosses until that visit is over. An open slot that is due becomes a request to close it, which
    names the generation seen: who closes must find it unchanged. ``clear`` makes a job's records
    empty, and reset makes all; a visit that they break off begins again.

    Parameters
    ----------
    n_jobs : int
        1 to 16.
    place_width : int
        Bits of (slot, set), 2 to 14.

    Members
    -------
    jobs, now, tick, clear, clear_job : In
        See `gradnic.hdl.aggregation.unit.AggregationUnit`.
    enough, tensors, crossed : In(n_jobs), In(ArrayLayout(16, n_jobs)), In(1)
        Of which jobs' tensors enough has come, and a pulse when that becomes so.
    may_read, resting : In(1), In(1)
        The record store is free in this cycle; nothing is under way that may write to it.
    place, record : Out(place_width), In(Record)
        The record at ``place`` comes 2 cycles later if ``may_read``.
    erase, erase_place : Out(1), Out(place_width)
        The record at ``erase_place`` is made empty.
    busy, blocks : Out(1), Out(1)
        That is under way or asked for; no contribution may start.
    close : Out(stream.Signature({place, gen}))
    """

    def __init__(self, n_jobs: int, place_width: int) -> None:
        check_range("n_jobs", n_jobs, 1, MAX_JOBS)
        check_range("place_width", place_width, 2, 14)
        self.n_jobs = n_jobs
        self.places = 2**place_width
        self.left = Signal(range(self.places + 1), init=self.places)  # to be looked at, or erased
        self.more = Signal(init=1)  # left is not 0
        self.is_last = Signal()  # left is 1
        self.stage = Signal(5)  # of the record that is looked at, one-hot
        self.wiping, self.everything = signals("wiping everything", init=1)
        # what is visited for, and whether from the lowest place: at once, or after this visit
        self.by_time, self.by_bytes = signals("by_time by_bytes")
        self.again, self.later = signals("again later")
        super().__init__(
            {
                "jobs": In(data.ArrayLayout(JobRegisters, n_jobs)),
                "now": In(32),
                "tick": In(1),
                "clear": In(1),
                "clear_job": In(4),
                "enough": In(n_jobs),
                "tensors": In(data.ArrayLayout(16, n_jobs)),
                "crossed": In(1),
                "may_read": In(1),
                "resting": In(1),
                "place": Out(place_width),
                "record": In(Record),
                "erase": Out(1),
                "erase_place": Out(place_width),
                "busy": Out(1, init=1),
                "blocks": Out(1),
                "close": Out(stream.Signature(Due(place_width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        place, close = self.place, self.close
        left, stage, wiping = self.left, self.stage, self.wiping
        again, later, by_time, by_bytes = self.again, self.later, self.by_time, self.by_bytes
        idle, ended, reads, due = signals("idle ended reads due")
        m.d.comb += [
            idle.eq(~stage.any() & ~close.valid & ~ended & ~wiping),
            reads.eq(idle & self.more & self.may_read & ~self.busy & ~again),
            due.eq(self._due(m, stage, by_time, by_bytes)),
            self.blocks.eq(self.busy | by_bytes | self.crossed),
        ]
        m.d.sync += [
            stage.eq(Cat(reads, stage[:-1])),
            ended.eq((stage[-1] & ~due) | (close.valid & close.ready)),
        ]
        with m.If(close.valid & close.ready):
            m.d.sync += close.valid.eq(0)
        with m.If(stage[-1] & due):
            m.d.sync += close.valid.eq(1)
        m.d.comb += close.p.place.eq(place)

        with m.If(ended | wiping):
            m.d.sync += [
                place.eq(place + 1),
                left.eq(left - 1),
                self.is_last.eq(left == 2),
                self.more.eq(~self.is_last),
            ]
        with m.If(ended & self.is_last & ~again):
            m.d.sync += [by_time.eq(0), by_bytes.eq(0)]
        with m.If(idle & ~self.busy & (again | (later & ~self.more))):
            m.d.sync += [again.eq(0), later.eq(0), by_time.eq(by_time | later)]
            self._restart(m)
        with m.If(self.tick):
            m.d.sync += later.eq(1)
        with m.If(self.crossed):
            m.d.sync += [again.eq(1), by_bytes.eq(1)]
        self._wipe(m, idle, again, by_time | by_bytes)
        return m

    def _restart(self, m):
        """From the lowest place on; there are four or more."""
        m.d.sync += [
            self.place.eq(0),
            self.left.eq(self.places),
            self.more.eq(1),
            self.is_last.eq(0),
        ]

    def _due(self, m, stage, by_time, by_bytes):
        """Whether the record that was read is to be closed, in the last stage."""
        record = Signal(Record, reset_less=True)
        with m.If(stage[1]):
            m.d.sync += record.eq(self.record)
        elapsed = Signal(32, reset_less=True)
        job = Signal(JobRegisters, reset_less=True)
        is_open, late = signals("is_open late", reset_less=True)
        tensor = Signal(16, reset_less=True)
        known = Signal(reset_less=True)
        enough = Signal(reset_less=True)
        with m.If(stage[2]):
            m.d.sync += [
                job.eq(chosen(self.jobs, record.job)),
                elapsed.eq(self.now - record.opened),
                is_open.eq(record.valid & ~record.closed & (record.op != Op.NORM)),
                known.eq(chosen(self.enough, record.job)),
                tensor.eq(chosen(self.tensors, record.job)),
            ]
        with m.If(stage[3]):
            m.d.sync += [
                late.eq((job.deadline != 0) & (elapsed >= job.deadline)),
                enough.eq(known & (tensor == record.tensor)),
            ]
        m.d.comb += self.close.p.gen.eq(record.gen)
        return is_open & ((by_time & late) | (by_bytes & enough))

    def _wipe(self, m, idle, again, sweeping):
        """Make records empty, one a cycle, once nothing else is under way."""
        wiping, everything = self.wiping, self.everything
        owner = Signal(4)
        start = Signal(13)
        stop = Signal(14)
        first = Signal(13)
        number = Signal(14)
        settled = delayed_flag(m, self.busy, 1, name="settled")  # and so are start and stop
        job = chosen(self.jobs, owner)
        slot = self.place[1:]
        ours = Signal()  # the record at `place` is the job's
        m.d.sync += [
            first.eq(job.first_slot),
            number.eq(job.n_slots),
            start.eq(first),
            stop.eq(first + number),
        ]
        m.d.comb += ours.eq((slot >= start) & (slot < stop))
        m.d.sync += [self.erase.eq(wiping & (everything | ours)), self.erase_place.eq(self.place)]
        with m.If(wiping & self.is_last):
            m.d.sync += [wiping.eq(0), everything.eq(0), self.busy.eq(0)]
            with m.If(sweeping):  # what was broken off begins again
                m.d.sync += again.eq(1)
        with m.Elif(self.busy & settled & idle & self.resting):
            m.d.sync += wiping.eq(1)
            self._restart(m)
        with m.If(self.clear & ~self.busy):
            m.d.sync += [self.busy.eq(1), owner.eq(self.clear_job)]
