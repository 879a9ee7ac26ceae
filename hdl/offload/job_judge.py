"""Whether a job can be what its descriptor says, and why not.

Golden model: `gradnic.models.offload.job_judge`. What the `JobClerk`, `clerk`, asks.
"""

from amaranth.hdl import Cat, Signal
from amaranth.lib import data
from amaranth.utils import ceil_log2

from gradnic.interface.job import ALIGN, Collective, JobCodec, Kind, Operation, Refusal

from ..primitive.names import signals
from ..transport.records import UNIT, Over
from .job_records import half_of_residual


def refusal(m, clerk, out, loaded, long):
    """(`Refusal` of the job, three cycles after all that it depends on, four after its gen; which
    contexts have its tensor, a cycle after they do).
    """
    job, cut, table = out.job, out.geometry, out.table
    low_bits = ceil_log2(clerk.n_bytes)
    n_numbers, n_landing = signals("n_numbers n_landing", 32, reset_less=True)
    n_floats = (job.elems + (clerk.n_bytes // 4 - 1)) >> low_bits - 2
    places = [(job.source, out.n_beats, 1), (job.result, out.n_beats, 1)]
    if clerk.feedback:
        places += [(half_of_residual(job, half), n_floats, job.feedback) for half in range(2)]
    insides = []
    for k, (address, n_beats, asked) in enumerate(places):
        at = Signal(clerk.address_width)
        end = Signal(clerk.address_width + 2, name=f"end{k}")
        m.d.comb += at.eq(address[low_bits : clerk.address_width])
        m.d.sync += end.eq(at + n_beats)
        within = []
        for k, region in enumerate(clerk.regions):
            region_end = Signal(clerk.address_width + 2, name=f"region_end{k}_{len(insides)}")
            fits = Signal(name=f"fits{k}_{len(insides)}")
            m.d.sync += [
                region_end.eq(region.first + region.n_beats),
                fits.eq((at >= region.first) & (end <= region_end)),
            ]
            within.append(fits)
        low = Signal(name=f"low{len(insides)}")
        m.d.sync += low.eq(address[clerk.address_width :] == 0)
        insides.append((low & Cat(within).any()) | ~asked)
    is_thc = job.codec == JobCodec.THC
    is_half, even = job.kind == Kind.BF16, ~clerk.packet[0] if clerk.bf16 else 0
    is_raw = (job.codec == JobCodec.RAW32) | (job.codec == JobCodec.RAW16)
    known = [job.codec == JobCodec.RAW32]
    known += [(job.codec == JobCodec.INCEPTIONN) & ~is_half] if clerk.inc else []
    known += [(job.codec == JobCodec.RAW16) & even] if clerk.bf16 else []
    first = Signal(16, reset_less=True)
    lacks, small, unplaced = signals("lacks small unplaced")
    m.d.sync += first.eq(job.gen - (is_thc if clerk.thc else 0))  # of its norms
    if clerk.thc:
        there = loaded.bit_select(job.table, 1)
        uneven = Signal(reset_less=True)  # half of g, which stands for a leaf that misses, is none
        m.d.sync += uneven.eq(clerk.odd & (job.p_q16 != 0) if clerk.gives_up else 0)
        known.append(is_thc & (job.collective == Collective.ALL_REDUCE) & ~uneven)
        m.d.sync += unplaced.eq(clerk.unplaced | (is_thc & clerk.scratch_unplaced))
        m.d.comb += [
            lacks.eq(is_thc & there & (table.scale == 0)),
            small.eq(is_thc & (out.at_sums + out.area > clerk.scratch)),
        ]
    else:
        m.d.sync += unplaced.eq(clerk.unplaced)
    # In two steps, as long as what is over takes to be seen here: a job is beside it, or is over.
    beside, same = signals("beside same", clerk.n_contexts)
    leads = Signal(data.ArrayLayout(16, clerk.n_contexts), reset_less=True)
    over = Signal(Over, reset_less=True)
    m.d.sync += [
        over.eq(clerk.over),
        same.eq(Cat(one.armed & (one.tensor == job.tensor) for one in clerk.contexts)),
        *(leads[k].eq(first - one.gen) for k, one in enumerate(clerk.contexts)),
        beside.eq(Cat(same[k] & ~_ahead(leads[k]) for k in range(clerk.n_contexts))),
        n_numbers.eq(table.chunks * cut.per_chunk),
        out.n_numbers.eq(n_numbers),
        n_landing.eq(out.area * clerk.n_ranks),
    ]
    low = ALIGN - 1
    tests = (
        (Refusal.COLLECTIVE, job.collective > max(Collective)),
        (
            Refusal.OPERATION,
            (job.op != Operation.SUM)
            & ~((job.op == Operation.MEAN) & ((is_thc & clerk.thc) | clerk.scale))
            & ~((job.op == Operation.MAX) & clerk.maxima & is_raw),
        ),
        (Refusal.KIND, (job.kind != Kind.FP32) & ~(is_half & even)),
        (Refusal.CODEC, ~Cat(known).any() | lacks),
        (
            Refusal.TABLE,
            (job.table >= clerk.n_tables)
            | ~loaded.bit_select(job.table, 1)
            | (table.collective != job.collective),
        ),
        (
            Refusal.LENGTH,
            (job.elems == 0)
            | ((clerk.packet - 1)[:8] >= clerk.max_elems // UNIT)
            | long
            | (n_numbers > clerk.n_packets)
            | (n_landing > clerk.landing)
            | small,
        ),
        (Refusal.ALIGNMENT, ((job.source | job.result) & low) != 0),
        (Refusal.REGION, ~Cat(insides).all() | unplaced),
        (Refusal.SHARE, (job.p_q16 != 0) & (not clerk.gives_up)),
        (
            Refusal.ROUND,
            beside.any()
            | (over.valid & (over.tensor == job.tensor) & ~_ahead((first - over.gen)[:16])),
        ),
        (Refusal.FEEDBACK, job.feedback & ~is_thc if clerk.feedback else job.feedback),
    )
    found = Signal(len(tests))
    m.d.sync += found.eq(Cat(bad for _, bad in tests))
    return _first(m, found, [name for name, _ in tests]), same


def _first(m, found, names):
    """The name of the lowest bit that is 1, or NONE."""
    reason = Signal(Refusal)
    with m.If(found[0]):
        m.d.comb += reason.eq(names[0])
    for k, name in enumerate(names[1:], 1):
        with m.Elif(found[k]):
            m.d.comb += reason.eq(name)
    return reason


def _ahead(difference):
    """Whether a gen is after another one, modulo 2**16."""
    return (difference != 0) & ~difference[15]
