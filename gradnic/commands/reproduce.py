"""``gradnic reproduce``: what the papers claim beside what gradnic's models say."""

import datetime
from pathlib import Path

import click

from gradnic import cluster
from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json, write_whole
from gradnic.packages import DATA, SIMULATION, require
from gradnic.paths import OutputFile, OutputFolder
from gradnic.progress import status
from gradnic.quantities import option

PAPERS = (
    "inceptionn", "thc", "multitree", "eflops", "dlcp", "composed", "trees", "time-to-accuracy",
    "all",
)  # fmt: skip


@click.command(cls=q.Command, name="reproduce")
@click.argument("paper", type=q.OneOf(*PAPERS))
@click.option("--quick", is_flag=True, help="Fewer seeds, sizes and jobs: minutes on two cores.")
@option("--plot", OutputFolder(), help="Also pictures, as .svg files.", metavar="DIR")
@option(
    "--page",
    OutputFile(".md"),
    help="Also a page of all tables, with the pictures that --plot puts beside or below it.",
    metavar="FILE.md",
)
@option(
    "--network",
    q.OneOf("model", "ns3", "rtl"),
    "model",
    "Of dlcp: our packet model, or ns-3 and how far the model agrees with it; rtl: the model, and "
    "16 offload cards in RTL against ns-3.",
)
@option(
    "--model",
    q.Listed(q.OneOf("mlp", "conv", "transformer")),
    "mlp",
    "Of time-to-accuracy: a perceptron or a conv net on MNIST images, a transformer on text.",
)
@cluster.options
@json_option
def command(paper, quick, plot, page, network, model, json_file, **where):
    """Claims of one paper, or of all, beside ours: published, ours, its range, what differs.

    Cards, codecs and networks are gradnic's own models, with the times of the RTL; what a paper
    does not say is swept, and the range shown. A figure that falls short is printed as it is.
    time-to-accuracy trains a small network with every codec; composed is THC along MultiTree's
    trees under 1 % loss; trees are ForestColl's, slots above the bound by network. The same
    arguments give the same figures, but for the seconds that trees tell without --quick.

    \b
    Example:
      gradnic reproduce eflops --json -
      gradnic reproduce dlcp --quick --network ns3
      gradnic reproduce dlcp --quick --network rtl
      gradnic reproduce all --quick --plot build/pictures --page build/results.md
      gradnic reproduce time-to-accuracy --model conv,transformer
      gradnic reproduce multitree --workers 2
      gradnic reproduce all --scheduler tcp://head:8786 --resume build/papers.jsonl
    """
    extras = {"schedule": ("scipy",)} | ({"report": ("matplotlib",)} if plot else {})
    needed = {} if paper in ("multitree", "eflops", "trees") else DATA
    require("gradnic reproduce", **extras, **needed)
    more = {}
    if network != "model":
        if paper != "dlcp":
            raise click.UsageError(f"--network {network} goes with dlcp, not with {paper}")
        needed = SIMULATION if network == "rtl" else {"sim": ("filelock",), "compiler": True}
        require(f"--network {network}", ns3=("ns3",), **needed)
        more = {"network": network}
    if model != ["mlp"]:
        if paper != "time-to-accuracy":
            raise click.UsageError(
                f"--model {','.join(model)} goes with time-to-accuracy, not with {paper}"
            )
        if set(model) != {"mlp"}:
            require(f"--model {','.join(model)}", train=("torch",))
    from gradnic.sim.reproduce import papers
    from gradnic.sim.reproduce.page import claim_rows, markdown

    names = list(papers.MODULES) if paper == "all" else [paper]
    if any(where.values()) or paper == "time-to-accuracy":  # whose runs are many
        each = [{"model": name} for name in model] if paper == "time-to-accuracy" else [more]
        work = [item for own in each for item in papers.work(names, quick=quick, **own)]
        runs = cluster.spread(papers.part, work, cluster.of_options(**where), name="runs")
        found = papers.joined(work, runs)
    else:
        with status(paper) as say:
            found = papers.run(names, quick=quick, say=say, **more)
    screen = console(json_file)
    columns = ("claim", "published", "ours", "range", "holds")
    for result in found["papers"]:
        screen.print(table(result["paper"], columns, claim_rows(result["claims"])))
    held = sum(claim["holds"] for claim in found["claims"])
    screen.print(f"{held} of {len(found['claims'])} claims hold; --json tells what differs")
    drawn = []
    if plot:
        from gradnic.sim.reproduce.pictures import draw_all

        Path(plot).mkdir(parents=True, exist_ok=True)
        drawn = draw_all(found, plot)
        for path in drawn:
            screen.print(f"wrote {path}")
    if page:
        words = ["gradnic", "reproduce", paper, *(["--quick"] if quick else [])]
        words += ["--network", network] if network != "model" else []
        words += ["--model", ",".join(model)] if model != ["mlp"] else []
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        folder = Path(page).resolve().parent
        shown = {path.stem: path.resolve().relative_to(folder).as_posix() for path in drawn
                 if path.resolve().is_relative_to(folder)}  # fmt: skip
        write_whole(page, markdown(found, " ".join(words), date, shown))
    write_json(json_file, found)
