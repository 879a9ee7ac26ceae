"""What a context of a card with jobs is joined to: its engine's round, and memory ports for all.

Part of `gradnic.hdl.offload.job_core`.
"""

from amaranth.hdl import Array, Cat, Mux, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.utils import ceil_log2

from gradnic.interface.job import Collective, JobCodec, Kind, Operation

from ..axi.share import ReadShare, WriteShare
from ..reduction.shared_combine import SharedCombine
from ..transport.records import Round
from .job_context import NORMS
from .job_records import half_of_residual
from .memory_side import RESIDUALS, memory_ports
from .thc_passes import KINDS, ThcPasses

_OF_A_JOB = "norm", "thc", "code", "coded", "bf16", "mean", "largest"


def share_memory(m, core, runners, passes, pick):
    """Memory ports: one of each kind for all contexts, by class and age as packets are; and of
    their own for passes.
    """
    quiets, contexts = [], range(core.n_active)
    residuals = {"norm": RESIDUALS[:1], "encode": RESIDUALS[1:]}
    for name in memory_ports(core.n_bytes, core.address_width, roots=True):
        share = ReadShare if name.endswith("read") else WriteShare
        part = share(core.n_bytes, core.address_width, n=core.n_active)
        m.submodules[f"{name}s"] = core.with_renewal(part)
        core.keepers.keep_memory(m, name, part.port, getattr(core, name))
        for k, engine in enumerate(core.engines):
            wiring.connect(m, getattr(engine, name), part.managers[k])
            m.d.comb += [
                part.closed[k].eq(runners[k].closed),
                part.yields[k].eq(Cat(pick.before[j][k] for j in contexts)),
            ]
        quiets.append(part.quiet)
    for k, runner in enumerate(runners):
        m.d.comb += runner.quiet.eq(Cat(quiet[k] for quiet in quiets).all())
    for kind, name in enumerate(KINDS if passes else ()):
        stills = []
        names = [f"{name}_read", f"{name}_write"]
        names += residuals.get(name, []) if core.feedback else []
        for port in names:
            share = ReadShare if port.endswith("read") else WriteShare
            part = share(core.n_bytes, core.address_width, n=1)
            m.submodules[f"{port}s"] = core.with_renewal(part)
            core.keepers.keep_memory(m, port, part.port, getattr(core, port))
            wiring.connect(m, getattr(passes, port), part.managers[0])
            m.d.comb += part.closed[0].eq(passes.closed[kind])
            stills.append(part.quiet[0])
        m.d.comb += passes.quiet[kind].eq(Cat(stills).all())


def share_lanes(m, core, pick):
    """What sums packets: one for all contexts, as landing memory hands it no more than a beat a
    cycle.
    """
    lanes = SharedCombine(core.n_bytes // 4, core.n_active, integers=core.thc, maxima=core.maxima)
    m.submodules.lanes = core.with_renewal(lanes)
    contexts = range(core.n_active)
    for k, engine in enumerate(core.engines):
        wiring.connect(m, engine.adder, lanes.users[k])
        m.d.comb += lanes.yields[k].eq(Cat(pick.before[j][k] for j in contexts))


def run_context(m, core, k, runner, steer, pick, clerk, places):
    """Context `k`: its engine, and what the job says of its round."""
    engine = core.engines[k]
    m.submodules[f"engine{k}"] = ResetInserter(runner.reset | core.renewal.anew)(engine)
    wiring.connect(m, steer.heads[k], engine.arrivals)
    wiring.connect(m, steer.data[k], engine.values)
    source, job = pick.sources[k], runner.job
    for name in ("heads", "payload", "replies"):
        wiring.connect(m, getattr(engine, name), getattr(source, name))
    round_ = Signal(Round)
    setup = engine.setup
    table = job.table
    of_norms, of_sums = Signal(name=f"of_norms{k}"), Signal(name=f"of_sums{k}")
    halves = Signal(name=f"halves{k}")
    is_thc = job.job.codec == JobCodec.THC
    m.d.comb += [
        source.echoed.eq(engine.echoed),
        source.echo.eq(engine.echo),
        source.path_mark.eq(engine.path_mark),
        pick.layers[k].eq(job.job.layer),
        pick.started[k].eq(runner.take),
        pick.mute[k].eq(runner.mute),
        runner.speaking.eq(pick.speaking[k]),
        runner.prepared.eq(clerk.prepared),
        *(getattr(engine, name).eq(getattr(core, name))
          for name in ("table_en", "table_addr", "table_data", "place_en", "place_addr",
                       "place_data", "tag_write",
                       *(["level_write"] if core.bits > 4 else []))),
        engine.round.eq(round_),
        round_.eq(core.round),
        round_.armed.eq(runner.context.armed),
        round_.over.eq(0),
        round_.tensor.eq(job.job.tensor),
        round_.gen.eq(runner.context.gen),
        round_.geometry.eq(Mux(of_norms, job.norms, job.geometry)),
        round_.layer.eq(job.job.layer),
        *([round_.tags.back_layer_start.eq(
            Mux(job.job.p_q16 == 0, 0, core.round.tags.back_layer_start)
        )] if core.gives_up else [round_.at_share.eq(0)]),
        engine.table.eq(job.job.table),
        engine.peers.eq(Array(one.as_value() for one in core.peers)[engine.table]),
        *(setup[name].eq(table[name])
          for name in ("rows", "peers", "lockstep", "chunks", "stride", "repeats",
                       "iterations")),
        setup.live.eq(Mux(of_norms, job.norms_live, job.live)),
        setup.sums_stay.eq(
            (table.collective == Collective.REDUCE_SCATTER)
            | (table.collective == Collective.REDUCE)
        ),
        engine.start.eq(runner.start),
        engine.clear.eq(runner.clear),
        engine.n_clear.eq(job.n_numbers),
        runner.clearing.eq(engine.clearing),
        runner.finished.eq(engine.finished),
        runner.failed.eq(
            engine.refused.any() | engine.failed.any() | (engine.status.fault != 0)
        ),
        runner.progress.eq(engine.progress),
        runner.row.eq(engine.status.row),
        runner.leaves.eq(engine.leaves),
        *_bound(core, engine, runner, of_norms),
        engine.regions[0].first.eq(job.source),
        engine.regions[0].n_beats.eq(job.n_beats),
        engine.regions[1].first.eq(job.result),
        engine.regions[1].n_beats.eq(job.n_beats),
        engine.area.eq(job.area),
        engine.regions[2].first.eq(core.landings[k]),
        engine.regions[2].n_beats.eq(core.landing),
    ]  # fmt: skip
    norms, sums = is_thc & (runner.stage == NORMS), is_thc & (runner.stage != NORMS)
    codec = Signal.like(round_.codec, name=f"codec{k}")
    m.d.comb += [
        round_.codec.n.eq(table.leaves),
        *([round_.codec.bits.eq(core.thc_rules.bits)] if core.bits > 4 else []),
        *(round_.codec[name].eq(codec[name]) for name in _OF_A_JOB),
        round_.bf16.eq(halves),
    ]
    m.d.sync += [  # a cycle before the engine starts: much of what it decides begins here
        codec.norm.eq(norms),
        codec.thc.eq(sums),
        codec.code.eq(Mux(sums, table.code, 0)),
        codec.coded.eq(job.job.codec == JobCodec.INCEPTIONN),
        codec.bf16.eq(job.job.codec == JobCodec.RAW16),
        codec.mean.eq((job.job.op == Operation.MEAN) & ~is_thc),
        codec.largest.eq(job.job.op == Operation.MAX),
        halves.eq((job.job.kind == Kind.BF16) & ~is_thc),
    ]
    if not core.thc:
        return
    m.d.sync += [of_norms.eq(norms), of_sums.eq(sums)]
    own, result = engine.regions[0], engine.regions[1]
    with m.If(of_norms):
        m.d.comb += [
            own.first.eq(places.own_norms),
            own.n_beats.eq(job.at_norms),
            result.first.eq(places.norms),
            result.n_beats.eq(job.at_norms),
            engine.area.eq(job.at_norms),
        ]
    with m.Elif(of_sums):
        m.d.comb += [
            own.first.eq(places.indices),
            own.n_beats.eq(job.at_sums - job.at_indices),
            result.first.eq(places.sums),
            result.n_beats.eq(job.area),
        ]


def _bound(core, engine, runner, of_norms):
    """What a job's share says: norms are never given up, and without one all is important."""
    if not core.gives_up:
        return []
    job = runner.job
    return [
        engine.share.eq(Mux(of_norms, 0, job.job.p_q16)),
        engine.last_elems.eq(job.last_elems),
        runner.spends.eq(engine.spends),
        runner.spent.eq(engine.spent),
    ]


def run_passes(m, core, runners, clerk):
    """Passes of THC, which runners ask for; what they need to know of the jobs."""
    passes = ThcPasses(
        core.n_bytes, core.address_width, n=core.n_active, block=core.thc_block,
        feedback=core.feedback, bf16=core.bf16, bits=core.bits,
    )  # fmt: skip
    m.submodules.passes = core.with_renewal(passes)
    m.d.comb += [
        clerk.scratch.eq(core.scratch),
        clerk.scratch_unplaced.eq(core.scratch_unplaced),
        clerk.log4.eq(core.thc_rules.log4),
        clerk.bits.eq(core.thc_rules.bits if core.bits > 4 else 4),
        clerk.odd.eq(core.thc_rules.g[0]),
        passes.rules.eq(core.thc_rules),
        passes.cell.eq(core.thc_cell),
        passes.node.eq(core.own.node),
    ]
    low, lanes = ceil_log2(core.n_bytes), core.n_bytes // 4
    for k, (engine, runner) in enumerate(zip(core.engines, runners, strict=True)):
        job, told, first = runner.job, passes.jobs[k], core.scratches[k]
        halves = [half_of_residual(job.job, half) for half in range(2)]
        m.d.sync += [  # long before they are looked at
            told.residual.eq(Mux(job.job.half, halves[1], halves[0]) >> low),
            told.kept.eq(Mux(job.job.half, halves[0], halves[1]) >> low),
            told.n_beats.eq((job.job.elems + (lanes - 1)) >> low - 2),
            told.own_norms.eq(first),
            *(told[name].eq(first + job[f"at_{name}"]) for name in ("norms", "indices", "sums")),
        ]
        m.d.comb += [
            passes.asks[k].eq(runner.passes),
            passes.stages[k].eq(runner.stage),
            passes.started[k].eq(runner.take),
            runner.passed.eq(passes.done[k]),
            runner.pass_failed.eq(passes.failed[k]),
            runner.in_pass.eq(passes.busy[k]),
            runner.pass_moves.eq(passes.moves[k]),
            engine.check.eq(passes.checks[k]),
            told.tail.eq(job.job.elems),
            told.feedback.eq(job.job.feedback),
            told.bf16.eq(job.job.kind == Kind.BF16),
            *(told[name].eq(job[name]) for name in ("source", "result", "n_blocks")),
            *(told[name].eq(job.job[name]) for name in ("seed", "gen", "tensor")),
            *(told[name].eq(job.table[name]) for name in ("offset", "scale", "code")),
        ]
    return passes
