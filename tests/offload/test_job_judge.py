"""Why jobs are refused, against the golden judge, with all options built in and with none."""

from dataclasses import replace

import numpy as np
import pytest
from gradnic.hdl.offload.job_clerk import JobClerk
from gradnic.hdl.offload.job_records import JobTableWrite, Record, Waiting
from gradnic.hdl.transport.records import Over
from gradnic.models.aggregation.jobs import W_CODES
from gradnic.models.offload.job_judge import JobJudge
from gradnic.models.offload.thc_job import areas, coded
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.engine import batch, encoding, stimulus

from gradnic.interface.job import (
    Collective,
    Job,
    JobCodec,
    JobStatus,
    Kind,
    Operation,
    Refusal,
    collective_of,
)

N_BYTES, N_RANKS, N_PACKETS, MAX_ELEMS, N_TABLES = 16, 4, 1024, 352, 4
TABLES = [
    compile_table(build(parse(spelling), name))
    for spelling, name in (("ring:2", "ring"), ("torus:2x2", "multitree"), ("ring:3", "ring"))
]  # and no fourth one
OPTIONS = ("inc", "bf16", "scale", "maxima", "thc", "gives_up", "feedback")
FIRST, SIZE = 1 << 14, 1 << 22
REGIONS = ((FIRST, SIZE), (1 << 30, 1 << 14))  # first byte, bytes
PLENTY = 1 << 28  # bytes of landing areas, and of scratch
WINDOW = 124  # cycles of a job: what is told is known after 100
RIGHT = Job(9, 5, 1, 300, FIRST, FIRST + (1 << 16))
BESIDE = ({"armed": 0, "tensor": 5, "gen": 1}, {"armed": 1, "tensor": 8, "gen": 9})
OVER = {"valid": 1, "tensor": 7, "gen": 3}
END = FIRST + SIZE
CORNERS = [
    ({}, Refusal.NONE, Refusal.NONE),
    *(({"collective": one}, *2 * [Refusal.COLLECTIVE]) for one in (5, 6, 7)),
    *(({"collective": one}, *2 * [Refusal.TABLE]) for one in list(Collective)[1:]),
    ({"op": Operation.MEAN}, Refusal.NONE, Refusal.OPERATION),
    ({"op": Operation.MAX}, Refusal.NONE, Refusal.OPERATION),
    ({"op": Operation.MAX, "codec": JobCodec.INCEPTIONN}, *2 * [Refusal.OPERATION]),
    ({"op": 3}, *2 * [Refusal.OPERATION]),
    ({"kind": Kind.BF16}, Refusal.NONE, Refusal.KIND),
    *(({"kind": one}, *2 * [Refusal.KIND]) for one in (2, 3)),
    *(({"codec": one}, Refusal.NONE, Refusal.CODEC) for one in list(JobCodec)[1:]),
    *(({"codec": one}, *2 * [Refusal.CODEC]) for one in (4, 7)),
    ({"kind": Kind.BF16, "codec": JobCodec.RAW16}, Refusal.NONE, Refusal.KIND),
    ({"kind": Kind.BF16, "codec": JobCodec.INCEPTIONN}, Refusal.CODEC, Refusal.KIND),
    *(({"table": one}, *2 * [Refusal.TABLE]) for one in (3, 4, 15)),
    ({"elems": 0}, *2 * [Refusal.LENGTH]),
    ({"elems": (1 << 28) - 1}, *2 * [Refusal.LENGTH]),
    ({"elems": N_PACKETS * 96}, *2 * [Refusal.NONE]),
    ({"elems": N_PACKETS * 96 + 1}, *2 * [Refusal.LENGTH]),
    ({"source": FIRST + 32}, *2 * [Refusal.ALIGNMENT]),
    ({"result": 4}, *2 * [Refusal.ALIGNMENT]),
    ({"result": END - 1216}, *2 * [Refusal.NONE]),
    ({"result": END - 1152}, *2 * [Refusal.REGION]),
    ({"result": END - 1216, "elems": 304}, *2 * [Refusal.NONE]),
    ({"result": END - 1216, "elems": 305}, *2 * [Refusal.REGION]),
    ({"result": END - 640, "kind": Kind.BF16}, Refusal.NONE, Refusal.KIND),
    ({"result": END - 576, "kind": Kind.BF16}, Refusal.REGION, Refusal.KIND),
    *(({"source": at}, *2 * [Refusal.REGION]) for at in (FIRST - 64, END, 1 << 32, 1 << 63)),
    ({"source": REGIONS[1][0]}, *2 * [Refusal.NONE]),
    ({"p_q16": 1}, Refusal.NONE, Refusal.SHARE),
    *(({"tensor": 7, "gen": gen}, *2 * [Refusal.ROUND]) for gen in (3, 2, 0x8003)),
    ({"tensor": 7, "gen": 4}, *2 * [Refusal.NONE]),
    ({"tensor": 7, "gen": 4, "codec": JobCodec.THC}, Refusal.ROUND, Refusal.CODEC),
    *(({"tensor": 8, "gen": gen}, *2 * [Refusal.ROUND]) for gen in (9, 0x8009)),
    ({"feedback": 1, "residual": FIRST // 64}, *2 * [Refusal.FEEDBACK]),
    ({"collective": 5, "op": 1, "kind": 1, "table": 9, "elems": 0}, *2 * [Refusal.COLLECTIVE]),
    ({"op": 3, "kind": 2, "table": 9, "elems": 0}, *2 * [Refusal.OPERATION]),
    ({"table": 9, "elems": 0, "source": 1}, *2 * [Refusal.TABLE]),
    ({"elems": 0, "source": 1}, *2 * [Refusal.LENGTH]),
]
"""(what differs from `RIGHT`, why a card with all options refuses it, why one with none does)."""


class Case:
    """A descriptor, and what it is held against. packet : elements. landing, scratch : bytes."""

    def __init__(self, job, *, packet=96, landing=PLENTY, scratch=PLENTY, placed=True,
                 scratch_placed=True, beside=BESIDE, over=OVER):  # fmt: skip
        self.job, self.packet, self.landing, self.scratch = job, packet, landing, scratch
        self.placed, self.scratch_placed = placed, scratch_placed
        self.beside, self.over = beside, over

    def refusal(self, built, thc):
        """The golden judge's."""
        options = dict.fromkeys(OPTIONS, built) | {"thc": thc if built else None}
        judge = JobJudge(
            TABLES, REGIONS, packet=self.packet, max_elems=MAX_ELEMS, n_packets=N_PACKETS,
            n_ranks=N_RANKS, landing=self.landing, scratch=self.scratch if built else None,
            placed=self.placed, scratch_placed=self.scratch_placed, **options,
        )  # fmt: skip
        known = [one for one in self.beside if one["armed"]]
        known += [self.over] if self.over["valid"] else []
        return judge.refusal(self.job, [k["gen"] for k in known if k["tensor"] == self.job.tensor])


def drawn(rng, thc):
    """A `Case` of which a few things are near what is refused."""
    packet = int(rng.choice([96] * 8 + [352, 16, 336, 32, 0, 368]))
    elems = [1, 64, 300, 1024, 1025, int(rng.integers(1, 1 << 14)), 96 * N_PACKETS, 1 << 20]
    at = [first + more for first in (FIRST, END, REGIONS[1][0], sum(REGIONS[1]))
          for more in range(-256, 257, 64)]  # fmt: skip
    gens = (rng.integers(1 << 16) + np.array([0, 1, 2, 0x7FFF, 0x8000])) % (1 << 16)
    choices = {
        "elems": elems, "source": [*at, 1 << 32 | FIRST, *5 * [FIRST + 1, FIRST + 32]],
        "result": at, "table": [0, 0, 1, 1, 2, 3, 4], "collective": [0, 0, 0, 1, 5],
        "op": [0, 1, 1, 2, 3], "kind": [0, 1, 1, 1, 2], "codec": [0, 1, 2, 3, 4],
        "p_q16": [1, 1 << 15], "feedback": [1], "half": [1],
        "residual": [one // 64 for one in at], "tensor": [7, 8], "gen": gens,
    }  # fmt: skip
    told = {"residual": FIRST // 64, "codec": int(rng.choice(list(JobCodec)))}
    for name in rng.choice(list(choices), int(rng.integers(0, 5)), replace=False).tolist():
        told[name] = int(rng.choice(list(choices[name])))
    job = replace(RIGHT, **told)
    tight = {}
    if rng.random() < 0.3:
        sums, scratch = -(-job.elems // 16) * 64, PLENTY
        if job.codec == JobCodec.THC and job.table < 3 and job.elems:
            sums, scratch = areas(TABLES[job.table], job.elems, thc)
        tight = {"landing": N_RANKS * sums, "scratch": scratch}
        less = str(rng.choice(["landing", "scratch", "none"]))
        tight |= {less: tight[less] - N_BYTES} if less in tight else {}
    beside = [{"armed": int(rng.integers(2)), "tensor": int(rng.choice([5, 7, 8])), "gen": k}
              for k in rng.choice(gens, 2).tolist()]  # fmt: skip
    over = {"valid": int(rng.integers(2)), "tensor": int(rng.choice([5, 7, 8])),
            "gen": int(gens[1])}  # fmt: skip
    if rng.random() < 0.6:
        beside, over = BESIDE, OVER
    return Case(job, packet=packet, placed=rng.random() < 0.95, beside=beside, over=over,
                scratch_placed=rng.random() < 0.9, **tight)  # fmt: skip


def rows(shape, values):
    """Constants of a shape as beats."""
    numbers = (shape.const(value).as_value().value for value in values)
    size = encoding.n_bytes(shape)
    return np.array([np.frombuffer(n.to_bytes(size, "little"), np.uint8) for n in numbers])


def told(model, cases, thc):
    """What the circuit says of each case: reasons, as of `Refusal`."""
    n_tables, n = len(TABLES), len(cases)
    begin = n_tables + 4
    tables = []
    for k, table in enumerate(TABLES):
        code = W_CODES.index(coded(thc, table.n_nodes).w)
        tables.append({"enable": 1, "index": k, "table": {
            "valid": 1, "rows": 3, "chunks": table.n_chunks * table.repeats, "scale": 1,
            "leaves": table.n_nodes, "code": code, "collective": int(collective_of(table)),
        }})  # fmt: skip
    at = begin + WINDOW * np.arange(n)
    flags = np.zeros((3, begin + WINDOW * n), np.uint8)
    flags[0] = (np.arange(flags.shape[1]) - begin) % WINDOW < WINDOW - 2
    flags[0, :begin] = 0
    flags[1:, at + WINDOW - 3] = 1

    def each(values):
        spread = np.repeat(values, WINDOW, axis=0)
        return np.concatenate([np.repeat(spread[:1], begin, axis=0), spread])

    jobs = [{"job": {name: int(getattr(one.job, name)) for name in Job.__dataclass_fields__}}
            for one in cases]  # fmt: skip
    contexts = each(rows(model.levels["contexts"].shape, [list(one.beside) for one in cases]))
    nearly = np.add.outer(at + WINDOW, [-6, -5, -4, -3, -2]).ravel()
    contexts[nearly] = 0  # so that whatever is not refused may begin
    regions = [{"first": a // N_BYTES, "n_beats": b // N_BYTES} for a, b in REGIONS]
    run = model.run(
        signals={
            "table_write": rows(JobTableWrite, [*tables, {}]),
            "oldest": each(rows(Waiting, jobs)), "contexts": contexts,
            "over": each(rows(Over, [one.over for one in cases])),
            "regions": rows(model.levels["regions"].shape, [regions]),
            "packet": each([one.packet // 16 for one in cases]),
            "landing": each([min(one.landing // N_BYTES, (1 << 24) - 1) for one in cases]),
            "scratch": each([min(one.scratch // N_BYTES, (1 << 24) - 1) for one in cases]),
            "unplaced": each([not one.placed for one in cases]),
            "scratch_unplaced": each([not one.scratch_placed for one in cases]),
            "log4": (thc["B"].bit_length() - 7) // 2, "bits": thc["b"], "odd": thc["g"] % 2,
            "room": 1, "present": flags[0], "free": flags[1], "record_ready": flags[2],
        },
        trace=["record", "record_valid", "starts", "pop"], drain=False,
        max_cycles=begin + WINDOW * n, probe_cycles=0,
    )  # fmt: skip
    np.testing.assert_array_equal(np.flatnonzero(run.traces["pop"]), at + WINDOW - 3)
    known = at + WINDOW - 8
    refused = run.traces["record_valid"][known].astype(bool)
    np.testing.assert_array_equal(run.traces["starts"][at + WINDOW - 3], ~refused)
    record = encoding.unpack(Record, run.traces["record"][known])
    assert (record["status"][refused] == JobStatus.REFUSED).all()
    assert (record["id"][refused] == RIGHT.id).all()
    return np.where(refused, record["detail"], Refusal.NONE)


def clerk(built):
    return batch.build(JobClerk(
        N_BYTES, 32, n_ranks=N_RANKS, n_packets=N_PACKETS, max_elems=MAX_ELEMS, n_tables=N_TABLES,
        n_contexts=len(BESIDE), **dict.fromkeys(OPTIONS, built),
    ))  # fmt: skip


@pytest.mark.parametrize("built", [True, False], ids=["all", "none"])
def test_descriptors_are_refused_for_the_first_reason(built):
    model, thc = clerk(built), {"B": 64, "b": 4, "g": 30}
    cases = [Case(replace(RIGHT, **fields)) for fields, *_ in CORNERS]
    want = [reasons[not built] for _, *reasons in CORNERS]
    assert [case.refusal(built, thc) for case in cases] == want
    for case, found, reason in zip(cases, told(model, cases, thc), want, strict=True):
        assert Refusal(found) == reason, case.job
    found = set()
    settings = [(64, 30), (256, 31), (1024, 254)] if built else [(64, 30)]
    for block, g in settings:
        thc = {"B": block, "b": 4, "g": g}
        rng = stimulus.rng("job_judge", str(built), str(g))
        cases = [drawn(rng, thc) for _ in range(500)]
        for case, reason in zip(cases, told(model, cases, thc), strict=True):
            assert Refusal(reason) == case.refusal(built, thc), vars(case)
            found.add(Refusal(reason))
    assert found == set(Refusal) - ({Refusal.SHARE} if built else set())
