"""Mutation campaign of what cuts a job's tensor: all that the clerk hands on, and when, by sums."""

import numpy as np
from amaranth.hdl import Const, Shape
from gradnic.hdl.offload.job_clerk import N_REGIONS, JobClerk
from gradnic.hdl.offload.job_records import Descriptor, JobTableWrite, Prepared, Record, Waiting
from gradnic.models.offload.job_cutter import cuts, prepared

from gradnic.interface.job import ALIGN, TABLES, THC_PACKET, Job, JobCodec, Kind, Refusal

from ..engine import encoding

N_BYTES, WIDTH, N_NUMBERS, N_RANKS = 16, 32, 1 << 14, 1
UNIT, N_JOBS, ROOM = 16, 60, 1 << 24
WINDOW = 112  # cycles of a job: the longest takes 96
LATE = 2  # in that many of three jobs a context is free at last, in the others always
PREPARED = Prepared(N_BYTES, WIDTH)
CODES = {8: 0, 12: 1, 16: 2}
ELSEWHERE = r"^(?!.*/job_cutter\.py)"
_RECORDINGS = []


def component():
    """The clerk, all built in; mutants are of what cuts."""
    return JobClerk(
        N_BYTES, WIDTH, n_ranks=N_RANKS, n_packets=N_NUMBERS, max_elems=4080, n_tables=TABLES,
        n_contexts=1, inc=True, bf16=True, scale=True, thc=True, gives_up=True, feedback=True,
    )  # fmt: skip


def _steps(a):
    """Cycles of a division of so much."""
    return 6 if a < 1 << 10 else 10 if a < 1 << 18 else 14


class Recording:
    """One job after the other, as inputs and what they come to."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.log4, self.bits = seed % 3, (4, 2, 8, 3, 7)[seed % 5]
        self.packet = (22, 1, 255, 16, 254, 6, 2)[seed % 7]
        self.chunks = rng.choice([1, 2, 3, 4, 5, 8, 24, 63, 100, 1000, 8191, 8192], TABLES)
        self.chunks[0] = 1
        self.codes = [(8, 12, 16)[k % 3] for k in range(TABLES)]
        self.firsts = rng.integers(0, 1 << WIDTH - 4, N_REGIONS) & -(ALIGN // N_BYTES)
        self.jobs = [self._job(k) for k in range(N_JOBS)]

    def _job(self, k):
        rng = self.rng
        codec = JobCodec((k + k // 5) % 4)
        bf16 = codec != JobCodec.INCEPTIONN and k % 3 == 1
        most = N_NUMBERS * UNIT * self.packet
        near = int(rng.choice([16, 32, 64, 1024, 16 * self.packet, most])) * int(rng.integers(1, 4))
        free = int(2 ** rng.uniform(0, 26))
        elems = (near + int(rng.integers(-1, 2)), free)[k % 2] if k % 7 else (1 << 26 + k % 3) - 1
        at = [int(rng.choice(self.firsts)) * N_BYTES for _ in range(2)]
        at = [a + ALIGN * int(rng.integers(0, 64)) & (1 << WIDTH) - 1 for a in at]
        table = int(rng.integers(TABLES))
        if codec == JobCodec.THC and k % 8 < 4:  # a bit that alone makes a packet more
            elems = THC_PACKET * int(rng.integers(40)) + (1 << int(rng.integers(10)))
        if k % 7 == 3:  # packets of one chunk whose number has a bit that is not counted
            elems = UNIT * self.packet * ((1 << int(rng.integers(14, 23))) + int(rng.integers(64)))
            elems, table = min(elems, (1 << 26) - 1), 0
        return Job(k, k, 2, max(1, elems), *at, table=table, codec=codec, kind=Kind(bf16))

    def wanted(self, job):
        """(fields of `Prepared` or None where it is refused, cuts one behind the other)."""
        chunks, block = int(self.chunks[job.table]), 64 << 2 * self.log4
        how = {"width": self.codes[job.table], "block": block}
        want = prepared(job, chunks, self.packet, n_bytes=N_BYTES, bits=self.bits, **how)
        return want, cuts(job, chunks, self.packet, **how)

    def refuses(self, job, want, made):
        """Why the job is refused, or NONE."""
        if self.packet % 2 and job.kind == Kind.BF16:
            return Refusal.KIND
        if self.packet % 2 and job.codec == JobCodec.RAW16:
            return Refusal.CODEC
        long = any(cut.per_chunk > N_NUMBERS for cut in made)
        long |= made[0].chunks * made[0].per_chunk > N_NUMBERS
        wide = want["area"] * N_RANKS >= ROOM
        wide |= job.codec == JobCodec.THC and want["at_sums"] + want["area"] >= ROOM
        if long or wide:
            return Refusal.LENGTH
        for at in (job.source, job.result):
            if all(
                not first <= at // N_BYTES <= at // N_BYTES + want["n_beats"] <= first + ROOM
                for first in self.firsts
            ):
                return Refusal.REGION
        return Refusal.NONE


def recordings():
    """What the test plays, made once."""
    if not _RECORDINGS:
        _RECORDINGS.extend(Recording(seed) for seed in range(12))
    return _RECORDINGS


def _rows(values, shape):
    size = -(-Shape.cast(shape).width // 8)
    numbers = (Const.cast(shape.const(value)).value for value in values)
    return np.array([np.frombuffer(n.to_bytes(size, "little"), np.uint8) for n in numbers])


def test(model):
    """What starts and what is refused, in its cycle, with all its fields."""
    for recording in recordings():
        _play(model, recording)


def _play(model, recording):
    begin = TABLES + 4
    n_cycles = begin + N_JOBS * WINDOW
    flags = {name: np.zeros(n_cycles, np.uint8) for name in ("present", "free", "record_ready")}
    starts, refused, start_soon = {}, {}, set()
    for k, job in enumerate(recording.jobs):
        at = begin + k * WINDOW
        want, made = recording.wanted(job)
        reason = recording.refuses(job, want, made)
        cycle = at + 2
        for cut in made:
            for step, n in enumerate(cut.divided):
                if step == 2 and cut is made[-1]:
                    start_soon.add(cycle)
                cycle += 1 + _steps(n)
            cycle += 1
        cycle += 4
        late = at + WINDOW - 4 if k % 3 < LATE else cycle
        ends = late + (reason != Refusal.NONE and late == cycle)
        flags["present"][at : ends + 1] = 1
        flags["free"][late] = flags["record_ready"][ends] = 1
        (refused if reason else starts)[ends] = reason if reason else (job, want)
    tables = [
        {"enable": 1, "index": k, "table": {"valid": 1, "scale": 1, "chunks": int(chunks),
                                            "leaves": 3, "code": CODES[width]}}
        for k, (chunks, width) in enumerate(zip(recording.chunks, recording.codes, strict=True))
    ]  # fmt: skip
    jobs = [{"job": {name: int(getattr(job, name)) for name in Descriptor.members}}
            for job in recording.jobs]  # fmt: skip
    oldest = np.repeat(_rows(jobs, Waiting), WINDOW, axis=0)
    oldest = np.concatenate([np.zeros((begin, oldest.shape[1]), np.uint8), oldest])
    regions = [{"first": int(first), "n_beats": ROOM} for first in recording.firsts]
    run = model.instance().run(
        signals={
            "table_write": _rows([*tables, {}], JobTableWrite), "oldest": oldest,
            "regions": _rows([regions], model.levels["regions"].shape), "landing": ROOM - 1,
            "scratch": ROOM - 1, "packet": recording.packet, "log4": recording.log4,
            "bits": recording.bits, "room": 1, **flags,
        },
        trace=["prepared", "starts", "record_valid", "start_soon", "record"], drain=False,
        max_cycles=n_cycles, probe_cycles=0,
    )  # fmt: skip
    assert np.flatnonzero(run.traces["starts"]).tolist() == sorted(starts), "starts"
    near = np.flatnonzero(run.traces["start_soon"])
    assert near.tolist() == sorted(start_soon), "start_soon"
    ends = sorted(refused)
    assert run.traces["record_valid"][ends].all(), "record_valid"
    record = encoding.unpack(Record, _octets(run.traces["record"]))
    assert record["detail"][ends].tolist() == [refused[end] for end in ends], "detail"
    for cycle, (job, want) in starts.items():
        number = int.from_bytes(run.traces["prepared"][cycle].tobytes(), "little")
        got = {name: _field(number, name) for name in want}
        assert got == want, f"{job}: {got} is not {want}"


def _octets(trace):
    return trace if trace.ndim == 2 else trace[:, None].view(np.uint8)


def _field(number, name):
    """A field, or one of one, of `Prepared` as a number."""
    shape = PREPARED
    for part in name.split("."):
        number, shape = number >> shape[part].offset, shape[part].shape
    return number & (1 << Shape.cast(shape).width) - 1


TWICE = "flips back: it is kept for an even number of cycles, as divisions take 6, 10 or 14"
WAITS = r"cut\.(tail|per_chunk|last_chunk)"
WAIT_TOO = r"([0-9]|[1-5]\d|60|7[7-9]|8[0-8])"  # bits of `cut` that do not change meanwhile
MANY = "a job of so many packets is refused"
ARGUED = {
    rf"-mode inv .*-wire ({WAITS}|live) ": TWICE,
    rf"-mode cnot[01] .*-ctrlbit {WAIT_TOO} -wire {WAITS} ": TWICE,
    r"-mode cnot[01] .*-wire live ": TWICE,
    r"-mode (inv|cnot[01]) .*-port D .*self\.live = ": TWICE,
    r"-port B -portbit ([1-9]|1[0-3]) .*self\.long\.eq": "up to 65,535 packets of a chunk are "
    "counted, and those of all chunks are compared, too",
    r"const0 .*-portbit 15 .*per_chunk\.eq\(quotient": MANY,
    r"cnot1 .*-ctrlbit (1[5-9]|2\d) .*n_units\.eq": MANY,
    r"cnot1 .*-ctrlbit (1[6-9]|2\d) .*self\.a\.eq\(n_packets - 1\)": MANY,
    r"cnot1 .*-ctrlbit 2[2-4] -wire divider\.a ": MANY,
    r"(const0 .*-port A -portbit 2 |cnot1 .*-port A .*-ctrlbit 2 )"
    r".*(is_half = |self\.halves\.eq)": "codecs above 3 are refused",
}
EXPLAINED = {}
