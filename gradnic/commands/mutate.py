"""``gradnic mutate``: does a block's bench notice one wrong gate?"""

import sys

import click

from gradnic import cluster
from gradnic import quantities as q
from gradnic.output import console, json_option, list_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.progress import Progress
from gradnic.quantities import option

# each is a module gradnic.sim.mutation.<block>
BLOCKS = (
    "fifo",
    "ring",
    "registers",
    "compressor",
    "decompressor",
    "inline",
    "scheduler",
    "aggregate",
    "hadamard",
)
BLOCKS += ("thc_encoder", "thc_decoder", "level_table")
BLOCKS += ("job_queue", "job_context", "job_cutter", "packet_steps", "engine_pool")
BLOCKS += ("packet_pick", "allowance_walk")
BLOCKS += ("thc_keys", "norm_pass", "encode_pass", "decode_pass")

PART = 128  # mutants of a run on a cluster: less than a library holds, since it is built for each


@click.command(cls=q.Command, name="mutate")
@click.argument("block", required=False, type=q.OneOf(*BLOCKS))
@option("--count", q.Whole(1, 1_000_000), 100, "Mutants.")
@option("--seed", q.SEED, 1, "Which sample of mutants.")
@option("--jobs", q.JOBS, help="Processes; default one a core.")
@option("--only", q.Whole(1, 1_000_000), help="Play one mutant, by its index from 1.")
@option(
    "--least", q.SHARE, 0.98, "Share of mutants not equivalent that must be killed or explained."
)
@click.option(
    "--prove/--no-prove",
    default=True,
    show_default=True,
    help="Put survivors to a proof; about a minute each for a large block.",
)
@cluster.options
@list_option
@json_option
@needs(**SIMULATION)
def command(block, count, seed, jobs, only, least, prove, listing, json_file, **where):
    """Change one gate of BLOCK at a time and run its bench on each such mutant.

    The unmutated circuit must pass. A mutant is killed if the bench fails on it; survivors that
    Yosys proves equivalent to the circuit do not count. The exit status is 1 if too few die, if
    a survivor has no explanation, or if the campaign itself had an error.

    \b
    Example:
      gradnic mutate fifo --count 300 --json build/mutants/fifo.json
      gradnic mutate fifo --count 300 --only 17
      gradnic mutate inline --count 4000 --workers 2 --resume build/inline.jsonl
    """
    if listing:
        console(json_file).print(table("Blocks", ("block",), [(name,) for name in BLOCKS]))
        write_json(json_file, list(BLOCKS))
        return
    if block is None:
        raise click.UsageError("name a block; gradnic mutate --list shows them")
    from gradnic.sim.mutation import run as mutate

    if any(where.values()):
        if only or jobs:
            raise click.UsageError("--only and --jobs are for this machine alone")
        n = -(-count // PART)
        work = [{"block": block, "count": count, "seed": seed, "part": [k, n], "prove": prove}
                for k in range(n)]  # fmt: skip
        report = mutate.merged(
            cluster.spread(mutate.run_part, work, cluster.of_options(**where), name="parts")
        )
    else:
        report = _alone(mutate, block, count=count, seed=seed, jobs=jobs, only=only, prove=prove)
    write_json(json_file, report)
    out = console(json_file)
    keys = ("count", "killed", "equivalent", "argued", "explained", "open", "errors", "seconds")
    out.print(table(f"mutants of {block}, seed {seed}", keys, [[report[k] for k in keys]]))
    wanted = ("killed",) if only else ()
    rows = [
        (m["index"], m["verdict"], m["text"], m["reason"])
        for m in report["mutants"]
        if m["verdict"] not in ("killed", "equivalent") or m["verdict"] in wanted
    ]
    if rows:
        out.print(table("survivors" if not only else "fate", ("#", "verdict", "what", "why"), rows))
        out.print(
            f"one again: {report['mutants'][0]['replay'].rsplit(' ', 1)[0]} #", soft_wrap=True
        )
    score = report["score"]
    if score is not None:
        out.print(f"{100 * score:.1f} % of the mutants that are not equivalent were killed")
    if report["errors"] or report["open"] or (score is not None and score < least and not only):
        sys.exit(1)


def _alone(mutate, block, **options):
    """The report of a campaign on this machine, with progress."""
    with Progress() as progress:
        tasks = {}

        def show(stage, done, total):
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=total)
            progress.update(tasks[stage], completed=done)

        return mutate.run(mutate.load(block), progress=show, **options)
