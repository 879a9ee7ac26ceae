"""What an engine of a card with jobs is joined to: a context's round, and memory ports for all.

Part of `gradnic.hdl.offload.job_core`.
"""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Mux, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.utils import ceil_log2

from gradnic.interface.job import Collective, JobCodec, Kind, Operation

from ..axi.share import ReadShare, WriteShare
from ..primitive.same import by_name, same
from ..reduction.shared_combine import SharedCombine
from ..transport.records import Round
from .engine_pool import LENT, EnginePool
from .job_context import NORMS
from .job_records import half_of_residual
from .memory_side import RESIDUALS, memory_ports
from .thc_passes import KINDS, ThcPasses


def users_of(m, core, runners, clerk, passes):
    """For each engine its job and controls, and where its ``report`` goes: its
    own context, or with fewer engines than contexts, the one that `EnginePool` gave it to.
    """
    for runner in runners:
        m.d.comb += runner.prepared.eq(clerk.prepared)
    places = passes.jobs if passes else [None] * core.n_active
    checks = passes.checks if passes else [None] * core.n_active
    if not core.pooled:
        return [
            SimpleNamespace(
                controls=runner, report=runner, taken=runner.take, reset=runner.reset,
                job=runner.job, context=runner.context, places=places[k], check=checks[k],
            )
            for k, runner in enumerate(runners)
        ]  # fmt: skip
    pool = EnginePool(core.n_bytes, core.address_width, n=core.n_active, n_engines=core.n_engines)
    m.submodules.pool = core.with_renewal(pool)
    for k, runner in enumerate(runners):
        controls, lease, report = pool.controls[k], pool.leases[k], pool.reports[k]
        m.d.comb += [
            pool.started[k].eq(runner.take),
            pool.needs[k].eq(runner.needs),
            pool.wants[k].eq(runner.wants),
            pool.holds[k].eq(runner.holds),
            pool.turns[k].eq(runner.turns),
            runner.granted.eq(pool.granted[k]),
            runner.stray.eq(pool.strays[k]),
            *_leased(lease.job, runner.job),
            controls.armed.eq(runner.context.armed),
            pool.gens[k].eq(runner.context.gen),
            *same(controls, runner, "stage start clear pause closed"),
            *same(runner, report, report.shape().members),
        ]
        if passes:
            m.d.comb += [
                *same(lease, places[k], "own_norms norms indices sums"),
                pool.checks[k].eq(checks[k]),
            ]
    return [
        SimpleNamespace(
            controls=pool.engine_controls[e], report=pool.engine_reports[e], taken=pool.taken[e],
            reset=pool.resets[e], job=pool.engine_leases[e].job, context=pool.contexts[e],
            places=pool.engine_leases[e], check=pool.check[e],
        )
        for e in range(core.n_engines)
    ]  # fmt: skip


def _leased(copy, job):
    """What an engine looks at of a job."""
    for name, parts in LENT.items():
        for part in parts or ():
            yield copy[name][part].eq(job[name][part])
        if parts is None:
            yield copy[name].eq(job[name])


def share_memory(m, core, users, passes, pick):
    """Memory ports: one of each kind for all engines, by class and age as packets are; and of
    their own for passes.
    """
    ports, quiets, engines = by_name(core), [], range(core.n_engines)
    residuals = {"norm": RESIDUALS[:1], "encode": RESIDUALS[1:]}
    for name in memory_ports(core.n_bytes, core.address_width, roots=True):
        share = ReadShare if name.endswith("read") else WriteShare
        part = share(core.n_bytes, core.address_width, n=core.n_engines)
        m.submodules[f"{name}s"] = core.with_renewal(part)
        core.keepers.keep_memory(m, name, part, ports[name])
        for k, engine in enumerate(core.engines):
            wiring.connect(m, by_name(engine)[name], part.managers[k])
            m.d.comb += [
                part.closed[k].eq(users[k].controls.closed),
                part.yields[k].eq(Cat(pick.before[j][k] for j in engines)),
            ]
        quiets.append(part.quiet)
    for k, user in enumerate(users):
        m.d.comb += user.report.quiet.eq(Cat(quiet[k] for quiet in quiets).all())
    for kind, name in enumerate(KINDS if passes else ()):
        stills = []
        names = [f"{name}_read", f"{name}_write"]
        names += residuals.get(name, []) if core.feedback else []
        for port in names:
            share = ReadShare if port.endswith("read") else WriteShare
            part = share(core.n_bytes, core.address_width, n=1)
            m.submodules[f"{port}s"] = core.with_renewal(part)
            core.keepers.keep_memory(m, port, part, ports[port])
            wiring.connect(m, by_name(passes)[port], part.managers[0])
            m.d.comb += part.closed[0].eq(passes.closed[kind])
            stills.append(part.quiet[0])
        m.d.comb += passes.quiet[kind].eq(Cat(stills).all())


def share_lanes(m, core, pick):
    """What sums packets: one for all engines, as landing memory hands it no more than a beat a
    cycle.
    """
    lanes = SharedCombine(core.n_bytes // 4, core.n_engines, integers=core.thc, maxima=core.maxima)
    m.submodules.lanes = core.with_renewal(lanes)
    for k, engine in enumerate(core.engines):
        wiring.connect(m, engine.adder, lanes.users[k])
        m.d.comb += lanes.yields[k].eq(Cat(pick.before[j][k] for j in range(core.n_engines)))


def run_engine(m, core, k, user, steer, pick):
    """Engine `k`, and its round, as its job wants it."""
    engine = core.engines[k]
    m.submodules[f"engine{k}"] = ResetInserter(user.reset | core.renewal.anew)(engine)
    wiring.connect(m, steer.heads[k], engine.arrivals)
    wiring.connect(m, steer.data[k], engine.values)
    source, job = pick.sources[k], user.job
    wiring.connect(m, engine.heads, source.heads)
    wiring.connect(m, engine.payload, source.payload)
    wiring.connect(m, engine.replies, source.replies)
    round_ = Signal(Round)
    of_norms, of_sums = Signal(name=f"of_norms{k}"), Signal(name=f"of_sums{k}")
    halves = Signal(name=f"halves{k}")
    m.d.comb += [
        *same(source, engine, "echoed echo path_mark"),
        pick.layers[k].eq(job.job.layer),
        pick.started[k].eq(user.taken),
        pick.pause[k].eq(user.controls.pause),
        user.report.sending.eq(pick.sending[k]),
        *same(engine, core, "table_en table_addr table_data place_en place_addr place_data"),
        *same(engine, core, "tag_write level_write" if core.bits > 4 else "tag_write"),
        engine.round.eq(round_),
        *_round_of(core, user, round_, of_norms),
        *_schedule_of(core, engine, job, of_norms),
        engine.start.eq(user.controls.start),
        engine.clear.eq(user.controls.clear),
        engine.n_clear.eq(job.n_numbers),
        *_told(engine, user.report),
        *_bound(core, engine, user, of_norms),
        *_memory_of(core, k, job),
    ]
    stages = _code(m, core, k, user, round_, halves)
    if core.thc:
        m.d.comb += engine.check.eq(user.check)
        m.d.sync += [of_norms.eq(stages.norms), of_sums.eq(stages.sums)]
        _use_scratch(m, engine, user, of_norms, of_sums)


def _round_of(core, user, round_, of_norms):
    """What a round is, but for its codec: the card's, and what its job says."""
    job = user.job
    all_matter = Mux(job.job.p_q16 == 0, 0, core.round.tags.back_layer_start)
    return [
        round_.eq(core.round),
        round_.armed.eq(user.context.armed),
        round_.over.eq(0),
        round_.tensor.eq(job.job.tensor),
        round_.gen.eq(user.context.gen),
        round_.geometry.eq(Mux(of_norms, job.norms, job.geometry)),
        round_.layer.eq(job.job.layer),
        round_.tags.back_layer_start.eq(all_matter) if core.gives_up else round_.at_share.eq(0),
    ]


def _schedule_of(core, engine, job, of_norms):
    """Its table, and what of that there is to do."""
    setup, table = engine.setup, job.table
    return [
        engine.table.eq(job.job.table),
        engine.peers.eq(Array(one.as_value() for one in core.peers)[engine.table]),
        *same(setup, table, "rows peers lockstep chunks stride repeats iterations"),
        setup.live.eq(Mux(of_norms, job.norms_live, job.live)),
        setup.sums_stay.eq(
            (table.collective == Collective.REDUCE_SCATTER)
            | (table.collective == Collective.REDUCE)
        ),
    ]


def _told(engine, report):
    """What its context hears of it."""
    return [
        report.clearing.eq(engine.clearing),
        report.finished.eq(engine.finished),
        report.failed.eq(engine.refused.any() | engine.failed.any() | (engine.status.fault != 0)),
        report.progress.eq(engine.progress),
        report.row.eq(engine.status.row),
        report.leaves.eq(engine.leaves),
    ]


def _memory_of(core, k, job):
    """Gradient and result of the job, landing areas of the engine."""
    engine = core.engines[k]
    own, result, landing = engine.regions
    return [
        own.first.eq(job.source),
        own.n_beats.eq(job.n_beats),
        result.first.eq(job.result),
        result.n_beats.eq(job.n_beats),
        engine.area.eq(job.area),
        landing.first.eq(core.landings[k]),
        landing.n_beats.eq(core.landing),
    ]


def _code(m, core, k, user, round_, halves):
    """How a round's packets are coded; whether it is one of norms, or of sums of THC."""
    job, table = user.job.job, user.job.table
    is_thc = job.codec == JobCodec.THC
    norms = is_thc & (user.controls.stage == NORMS)
    sums = is_thc & (user.controls.stage != NORMS)
    codec = Signal.like(round_.codec, name=f"codec{k}")
    m.d.comb += [
        round_.codec.n.eq(table.leaves),
        *([round_.codec.bits.eq(core.thc_rules.bits)] if core.bits > 4 else []),
        *same(round_.codec, codec, "norm thc code coded bf16 mean largest"),
        round_.bf16.eq(halves),
    ]
    m.d.sync += [  # a cycle before the engine starts: much of what it decides begins here
        codec.norm.eq(norms),
        codec.thc.eq(sums),
        codec.code.eq(Mux(sums, table.code, 0)),
        codec.coded.eq(job.codec == JobCodec.INCEPTIONN),
        codec.bf16.eq(job.codec == JobCodec.RAW16),
        codec.mean.eq((job.op == Operation.MEAN) & ~is_thc),
        codec.largest.eq(job.op == Operation.MAX),
        halves.eq((job.kind == Kind.BF16) & ~is_thc),
    ]
    return SimpleNamespace(norms=norms, sums=sums)


def _use_scratch(m, engine, user, of_norms, of_sums):
    """In rounds of THC memory is the context's scratch, for both ends of what is summed."""
    job, places = user.job, user.places
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


def _bound(core, engine, user, of_norms):
    """A job's share: norms are never given up, and without one all packets are important."""
    if not core.gives_up:
        return []
    job = user.job
    return [
        engine.share.eq(Mux(of_norms, 0, job.job.p_q16)),
        engine.last_elems.eq(job.last_elems),
        user.report.spent_valid.eq(engine.spent_valid),
        user.report.spent.eq(engine.spent),
    ]


def run_passes(m, core, runners, clerk):
    """Passes of THC, which runners ask for; what they need to know of the jobs."""
    passes = ThcPasses(
        core.n_bytes, core.address_width, n=core.n_active, block=core.thc_block,
        feedback=core.feedback, bf16=core.bf16, bits=core.bits, pass_bytes=core.pass_bytes,
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
    for k, runner in enumerate(runners):
        job, pass_job, first = runner.job, passes.jobs[k], core.scratches[k]
        halves = [half_of_residual(job.job, half) for half in range(2)]
        m.d.sync += [  # long before they are looked at
            pass_job.residual.eq(Mux(job.job.half, halves[1], halves[0]) >> low),
            pass_job.kept.eq(Mux(job.job.half, halves[0], halves[1]) >> low),
            pass_job.n_beats.eq((job.job.elems + (lanes - 1)) >> low - 2),
            pass_job.own_norms.eq(first),
            *(
                pass_job[name].eq(first + job[f"at_{name}"])
                for name in ("norms", "indices", "sums")
            ),
        ]
        m.d.comb += [
            passes.asks[k].eq(runner.passes),
            passes.stages[k].eq(runner.stage),
            passes.started[k].eq(runner.take),
            runner.passed.eq(passes.done[k]),
            runner.pass_failed.eq(passes.failed[k]),
            runner.in_pass.eq(passes.busy[k]),
            runner.pass_moves.eq(passes.moves[k]),
            pass_job.tail.eq(job.job.elems),
            pass_job.feedback.eq(job.job.feedback),
            pass_job.bf16.eq(job.job.kind == Kind.BF16),
            *(pass_job[name].eq(job[name]) for name in ("source", "result", "n_blocks")),
            *(pass_job[name].eq(job.job[name]) for name in ("seed", "gen", "tensor")),
            *(pass_job[name].eq(job.table[name]) for name in ("offset", "scale", "code")),
        ]
    return passes
