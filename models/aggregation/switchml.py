"""SwitchML-UDP, the switch's side: the second profile of the aggregator, frame for frame.

Frames have no generation. A slot is a pair of sets; a set has one bit for each worker and a count,
and each arrival clears its worker's bit in the other set. That is exact on paths that keep their
order, and only there: `gradnic.models.aggregation.slot_search` finds the run in which it fails.

Source: docs/spec/wire.md; p4app-switchML (bitmaps, counts, UDP receiver and sender).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from gradnic.interface.params import check_range
from gradnic.interface.switchml import SWITCHML, VALUES

from ..frame.intake import is_heard, switchml_job
from . import gate, parser, slot_verdict
from .answer import switchml_frames
from .jobs import check_place, speakers
from .slot_lanes import add_words
from .slot_verdict import Verdict, switchml_awaited, switchml_verdict


@dataclass(frozen=True)
class SwitchmlJob:
    """One job's registers.

    Attributes
    ----------
    job : int
        0 to 255, as in the header.
    children : tuple of aggregate.Address
        The workers, by bit number: 1 to 32. Who speaks is told by port, MAC and IPv4 address.
    first_slot, n_slots : int
        The slots that the job owns, of 16384.
    values : int
        int32 of a packet: 64 or 256.
    """

    job: int
    children: tuple
    first_slot: int = 0
    n_slots: int = 64
    values: int = 256
    kind: ClassVar = "switchml"  # beside the native kinds of `jobs.Job`

    def __post_init__(self) -> None:
        check_place(self, 16384)
        if self.values not in VALUES:
            raise ValueError(f"values must be 64 or 256, not {self.values!r}")

    def owns(self, slot: int) -> bool:
        """Whether `slot` is one of this job's."""
        return self.first_slot <= slot < self.first_slot + self.n_slots


@dataclass
class Set:
    """One set of a slot: who has been counted, how many are awaited, and the sum."""

    bitmap: int = 0
    count: int = 0
    sums: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    exponents: tuple = (0, 0)
    overflowed: bool = False


class SwitchmlSwitch:
    """Golden twin of the profile's circuit: frames in, frames out, counters by reason.

    Parameters
    ----------
    mac, ip : int
        Of the switch.
    n_ports : int
        As of `aggregate.Config`: port n_ports + i is the other side of port i.
    jobs : iterable of SwitchmlJob

    Attributes
    ----------
    counters : collections.Counter
        ``accepted``, ``claims`` (sums begun), ``duplicates``, ``retransmitted``, ``overflow`` (sums
        that wrapped), and drops: ``bad``, ``length``, ``checksum``, ``format``, ``owner``,
        ``collisions`` (slot of another job), ``config``.
    """

    def __init__(
        self,
        mac: int,
        ip: int,
        n_ports: int,
        jobs: Sequence[SwitchmlJob],
        counters: Counter | None = None,
    ) -> None:
        self.mac, self.ip, self.n_ports = mac, ip, n_ports
        self.jobs = {job.job: job for job in jobs}
        self.sets = {}
        self.counters = Counter() if counters is None else counters

    def receive(
        self, frame: bytes, port: int, now: int = 0, *, bad: bool = False
    ) -> list[tuple[int, bytes]]:
        """Take one frame; return what leaves because of it, as (port, frame).

        A frame that is not ours crosses to the other side. `now` is not used: no timer closes.
        """
        job = self.job_of(frame, port)
        if job is None:
            return [((port + self.n_ports) % (2 * self.n_ports), frame)]
        reason = self._refusal(frame, job, port, bad)
        if reason:
            self.counters[reason] += 1
            return []
        worker = parser.speaker(frame, job, port)
        if worker is None:
            raise LookupError("a frame that was let in has no sender")
        return self._contribute(frame, SWITCHML.parse(frame), job, worker)

    def tick(self, now: int) -> list:
        """Nothing is closed by time."""
        return []

    def job_of(self, frame: bytes, port: int) -> SwitchmlJob | None:
        """The job whose frame this is, or None for foreign traffic; type and sender must fit.

        ValueError for a port that is none of the 2 * n_ports.
        """
        check_range("port", port, 0, 2 * self.n_ports - 1)
        number = switchml_job(frame)
        job = None if number is None else self.jobs.get(number)
        return job if job and is_heard(frame, speakers(job, port % self.n_ports)) else None

    def _refusal(self, frame: bytes, job: SwitchmlJob, port: int, bad: bool) -> str | None:
        """Why a frame of ours is dropped before any slot is read, or None."""
        refused = gate.refusal(frame, job, port, bad=bad)
        if refused:
            return refused.name.lower()
        head = parser.contribution_head(frame, native=False)
        return slot_verdict.refusal(head, head["length"], job)

    def _contribute(
        self, frame: bytes, header: dict[str, int], job: SwitchmlJob, worker: int
    ) -> list[tuple[int, bytes]]:
        """The rule: sets and clears bits first, whatever becomes of the packet."""
        key = header["slot"], header["set"]
        own = self.sets.setdefault(key, Set())
        other = self.sets.setdefault((header["slot"], 1 - header["set"]), Set())
        found = switchml_verdict(own.bitmap, own.count, worker)
        own.bitmap |= 1 << worker
        other.bitmap &= ~(1 << worker)
        if found is Verdict.DUPLICATES:
            self.counters[found] += 1
            return []
        if found is Verdict.RETRANSMITTED:
            self.counters[found] += 1
            return self._answer(frame, job, own, 1 << worker)
        values = np.frombuffer(frame, ">i4", job.values, SWITCHML.stop).astype(np.int64)
        exponents, over = (header["e0"], header["e1"]), False
        if found is Verdict.CLAIMS:
            own.overflowed = False
            self.counters[found] += 1
        else:
            values, over = add_words(own.sums, values)
            exponents = tuple(map(max, own.exponents, exponents))
        if over and not own.overflowed:
            self.counters["overflow"] += 1
        own.overflowed |= over
        own.sums, own.exponents = values.astype(np.int32), exponents
        own.count = switchml_awaited(own.count, len(job.children))
        self.counters["accepted"] += 1
        if own.count:
            return []
        return self._answer(frame, job, own, (1 << len(job.children)) - 1)

    def _answer(
        self, frame: bytes, job: SwitchmlJob, own: Set, children: int
    ) -> list[tuple[int, bytes]]:
        """The result for each of `children`, one bit each: echoes the packet that asked."""
        e0, e1 = own.exponents
        head = parser.contribution_head(frame, native=False)
        head |= {"children": children, "p0": e0 & 0xFF, "p1": e1 & 0xFF}
        return switchml_frames(self, job, head, own.sums.astype("<i4").tobytes())
