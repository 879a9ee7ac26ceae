"""How tensors of jobs are cut: the model against the plan, the circuit against the model."""

import pytest
from gradnic.models.offload.job_cutter import cuts, prepared
from gradnic.models.offload.job_sums import unit_of
from gradnic.models.offload.plan import Plan
from gradnic.models.offload.thc_job import areas
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.mutation import job_cutter as campaign

from gradnic.interface.job import THC_PACKET, Job, JobCodec, Kind

TABLES = [
    compile_table(build(parse(spelling), name))
    for spelling, name in (("ring:3", "ring"), ("torus:2x2", "multitree"), ("ring:2", "ring"))
]


def equals(cut, plan):
    """Whether a cut is that of a plan, number by number."""
    last = (plan.n_elems - 1) // plan.chunk
    rest = plan.n_elems - last * plan.chunk
    fields = cut.fields()
    assert (16 * fields["packet"], 16 * fields["chunk"]) == (plan.packet, plan.chunk)
    assert (fields["per_chunk"], fields["last_chunk"]) == (plan.per_chunk, last)
    assert last * plan.per_chunk + fields["last_per_chunk"] == plan.n_packets
    assert fields["tail"] == plan.chunk - (plan.per_chunk - 1) * plan.packet
    assert fields["last_tail"] == plan.elems[-1]
    assert cut.last_elems == rest


@pytest.mark.parametrize("codec", JobCodec)
@pytest.mark.parametrize("packet", [32, 96, 352])
def test_cuts_are_those_of_the_plan(codec, packet):
    rng = stimulus.rng("job_cutter", codec.name, str(packet))
    sizes = [1, 15, 16, 17, 31, 32, 33, 1023, 1024, 1025, 12 * packet, 12 * packet + 1, 9999]
    for k, n in enumerate([*sizes, *rng.integers(1, 60 * packet, 12).tolist()]):
        table, kind = TABLES[k % 3], Kind(k % 2 and codec != JobCodec.INCEPTIONN)
        job = Job(k, k, 2, n, 0, 0, codec=codec, kind=kind)
        block, width = (64, 256, 1024)[k % 3], (8, 12, 16)[k // 3 % 3]
        made = cuts(job, table.n_chunks * table.repeats, packet // 16, width=width, block=block)
        if codec != JobCodec.THC:
            equals(made[0], Plan(table, n, unit=unit_of(job), packet=packet))
            continue
        padded, of_sums = -(-n // THC_PACKET) * THC_PACKET, 1024 if width == 8 else 512
        equals(made[0], Plan(table, padded, unit=THC_PACKET, packet=of_sums))
        equals(made[1], Plan(table, padded // block, packet=packet))
        options = {"B": block, "b": 4, "g": 30, "w": width}
        told = prepared(job, table.n_chunks * table.repeats, packet // 16, n_bytes=16,
                        width=width, block=block, bits=4)  # fmt: skip
        area, scratch = areas(table, n, options)
        assert (16 * told["area"], 16 * (told["at_sums"] + told["area"])) == (area, scratch)


def test_the_clerk_hands_on_what_the_model_cuts_in_its_cycles():
    """All fields of what starts, for what others are refused, and when: as the campaign plays."""
    campaign.test(batch.build(campaign.component()))
