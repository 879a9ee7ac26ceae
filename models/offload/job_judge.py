"""Whether a job can be what its descriptor says, and why not.

Golden twin of `gradnic.hdl.offload.job_judge`. A card holds a descriptor against what it was built
with, the tables that are loaded, the memory that it may use, and rounds that were or are. Of all
reasons the first in the order of `Refusal` is told.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gradnic.interface.job import (
    ALIGN,
    Collective,
    Job,
    JobCodec,
    Kind,
    Operation,
    Refusal,
    collective_of,
)
from gradnic.interface.schedule_table import Table

from .job_sums import HALF_UNIT, unit_of
from .parser import ahead
from .thc_job import areas, before, packets

ELEM_BYTES: dict[int, int] = {Kind.FP32: 4, Kind.BF16: 2}
CODECS: dict[int, tuple] = {
    Kind.FP32: tuple(JobCodec),
    Kind.BF16: (JobCodec.RAW32, JobCodec.RAW16, JobCodec.THC),
}
PLAIN = (JobCodec.RAW32, JobCodec.RAW16)


class JobJudge:
    """What descriptors are held against.

    Parameters
    ----------
    tables : sequence of gradnic.interface.schedule_table.Table
        Those that are loaded, from number 0 on.
    regions : iterable of (first byte, bytes)
        What jobs may name.
    packet, max_elems : int, elements of a packet; all jobs are refused if those are more than
        `max_elems`, or none
    n_packets : int, packet numbers that the card can track
    inc, gives_up, bf16, scale, maxima : bool, False: jobs that name INCEPTIONN, that let a share
        miss, that name BF16, that want a mean, or a maximum, are refused
    thc : dict, fields of `models.thc.Worker` beside n and seeds; None: jobs with THC are refused
    feedback : bool, False: jobs with error feedback are refused
    n_ranks : int, landing areas of a context
    landing, scratch : int or None, bytes that each context has: of landing areas, and of scratch
        for THC; jobs that need more are refused. None: as many as they need
    placed, scratch_placed : bool, False: a context has no landing address, or no scratch, as after
        reset: all jobs are refused, or those with THC
    """

    def __init__(
        self,
        tables: Sequence[Table],
        regions: Iterable[tuple[int, int]],
        *,
        packet: int = 352,
        max_elems: int = 352,
        n_packets: int = 16384,
        gives_up: bool = True,
        thc: Mapping | None = None,
        feedback: bool = True,
        inc: bool = True,
        bf16: bool = True,
        scale: bool = True,
        maxima: bool = True,
        n_ranks: int = 4,
        landing: int | None = None,
        scratch: int | None = None,
        placed: bool = True,
        scratch_placed: bool = True,
    ) -> None:
        self.tables, self.regions = tuple(tables), tuple(regions)
        self.collectives = [collective_of(table) for table in self.tables]
        self.packet, self.max_elems, self.n_packets = packet, max_elems, n_packets
        self.thc: Any = thc
        self.gives_up, self.feedback, self.inc = gives_up, feedback, inc
        self.bf16, self.scale = bf16 and packet % HALF_UNIT == 0, scale
        self.maxima, self.n_ranks = maxima, n_ranks
        self.landing, self.scratch = landing, scratch
        self.placed, self.scratch_placed = placed, scratch_placed

    def refusal(self, job: Job, gens: Iterable[int] = ()) -> Refusal:
        """Why this job would not start, or NONE.

        gens : of rounds of its tensor that are active, and of the last one that is over.
        """
        thc = job.codec == JobCodec.THC
        first = before(job.gen) if thc else job.gen
        if job.collective > max(Collective):
            return Refusal.COLLECTIVE
        if not self._takes_operation(job):
            return Refusal.OPERATION
        if job.kind not in ELEM_BYTES or (job.kind == Kind.BF16 and not self.bf16):
            return Refusal.KIND
        if not self._takes_codec(job):
            return Refusal.CODEC
        if self.collectives[job.table : job.table + 1] != [job.collective]:
            return Refusal.TABLE
        if not job.elems or not 0 < self.packet <= self.max_elems:
            return Refusal.LENGTH
        if self._packets(job) > self.n_packets or not self._has_room(job):
            return Refusal.LENGTH
        if job.source % ALIGN or job.result % ALIGN:
            return Refusal.ALIGNMENT
        if not all(self._inside(at, n_bytes) for at, n_bytes in self._places(job)):
            return Refusal.REGION
        if not (self.placed and (self.scratch_placed or not thc)):
            return Refusal.REGION
        if job.p_q16 and not self.gives_up:
            return Refusal.SHARE
        if any(ahead(first, gen) <= 0 for gen in gens):
            return Refusal.ROUND
        if job.feedback and not (thc and self.feedback):
            return Refusal.FEEDBACK
        return Refusal.NONE

    def _takes_operation(self, job: Job) -> bool:
        if job.op == Operation.MEAN:
            return self.scale or (job.codec == JobCodec.THC and self.thc is not None)
        if job.op == Operation.MAX:
            return self.maxima and job.codec in PLAIN
        return job.op == Operation.SUM

    def _takes_codec(self, job: Job) -> bool:
        built_in: dict[int, bool] = {JobCodec.RAW16: self.bf16, JobCodec.INCEPTIONN: self.inc}
        if job.codec not in CODECS[job.kind] or not built_in.get(job.codec, True):
            return False
        return job.codec != JobCodec.THC or self._takes_thc(job)

    def _takes_thc(self, job: Job) -> bool:
        """Whether the card has THC, for such jobs, sums of all nodes' levels fit a width, and half
        of g is a whole number where the root may have to add it for leaves that miss.
        """
        if self.thc is None or job.collective != Collective.ALL_REDUCE:
            return False
        if job.p_q16 and self.gives_up and self.thc.get("g", 30) % 2:
            return False
        if job.table >= len(self.tables):
            return True  # refused for that
        return self.tables[job.table].n_nodes * self.thc.get("g", 30) < 1 << 16

    def _packets(self, job: Job) -> int:
        """Packet numbers that a job needs."""
        table = self.tables[job.table]
        if job.codec == JobCodec.THC:
            return packets(table, job.elems, self.packet, self.thc)
        n_chunks, unit = table.n_chunks * table.repeats, unit_of(job)
        chunk = -(-job.elems // (unit * n_chunks)) * unit
        return n_chunks * -(-chunk // self.packet)

    def _has_room(self, job: Job) -> bool:
        """Whether landing areas and scratch are large enough."""
        area, scratch = -(-job.elems // 16) * 64, 0
        if job.codec == JobCodec.THC:
            area, scratch = areas(self.tables[job.table], job.elems, self.thc)
        return (self.landing is None or self.n_ranks * area <= self.landing) and (
            self.scratch is None or scratch <= self.scratch
        )

    def _places(self, job: Job) -> list[tuple[int, int]]:
        """(first byte, bytes) of all that a job names."""
        n_bytes = job.elems * ELEM_BYTES[job.kind]
        places = [(job.source, n_bytes), (job.result, n_bytes)]
        if job.feedback and self.feedback:
            places += [(job.residual_at(half), 4 * job.elems) for half in range(2)]
        return places

    def _inside(self, at: int, n_bytes: int) -> bool:
        return any(first <= at and at + n_bytes <= first + size for first, size in self.regions)
