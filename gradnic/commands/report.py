"""``gradnic report``: the main job and its page."""

from pathlib import Path

import click

from gradnic import quantities as q
from gradnic.interface import params
from gradnic.output import console, json_option, table, write_json, write_whole
from gradnic.packages import DATA, SIMULATION, require
from gradnic.paths import InputFile, OutputFolder, check_files, check_folder
from gradnic.progress import Progress
from gradnic.quantities import option
from gradnic.text_file import from_json, read_text

RESULT = "result.json"
VERILOG = "build/verilog"
CLAIMS = Path(__file__).parents[2] / "docs/reference/results.md"


def synthesized_clock(lanes):
    """The recorded figures that come nearest to a card with `lanes`, or None.

    The card itself where it is recorded, else the slower of its two engines, else the slower
    engine of another number of lanes; ``block`` in the result says which.
    """
    from gradnic.fpga.flow import baseline

    recorded = [entry for entry in baseline.load().values() if entry["device"].endswith("-8")]
    engines = [(f"compressor-{n}", f"decompressor-{n}") for n in (lanes, 16, 8, 4, 32)]
    for blocks in ((f"inline-{lanes}",), *engines):
        found = [entry for entry in recorded if entry["block"] in blocks]
        if len(found) == len(blocks):
            slowest = min(found, key=lambda entry: entry["fmax_mhz"])
            return {key: slowest[key] for key in ("block", "device", "fmax_mhz", "gbps")}
    return None


def write_verilog(lanes, folder):
    """Write the card's Verilog with its port list and registers; returns the paths."""
    from .verilog import generate

    name = f"inline{lanes}"
    files, _ = generate(name, params.preset(name), "generic")
    for file, text in files.items():
        write_whole(Path(folder) / file, text)
    return [str(Path(folder) / file) for file in files]


def run_job(lanes, link_bytes, floats, screen):
    """The main job with its progress on `screen`; returns the dict of `sim.first_light.run`."""
    from gradnic.sim.report import first_light

    with Progress() as progress:
        tasks = []

        def stage(text, steps):
            if tasks:
                progress.update(tasks[-1], total=1, completed=1)
            if not screen.is_terminal:
                screen.print(text)
            tasks.append(progress.add_task(text, total=steps))

        result = first_light.run(
            lanes=lanes,
            link_bytes=link_bytes,
            n_floats=floats,
            on_stage=stage,
            on_step=lambda k: progress.update(tasks[-1], completed=k),
        )
        stage("writing Verilog", None)
        result["verilog"] = write_verilog(lanes, VERILOG)
    result["clock"] = synthesized_clock(lanes)
    return result


@click.command(cls=q.Command, name="report")
@click.option("--run", "do_run", is_flag=True, help="Do the main job first.")
@option("--out folder", OutputFolder(), "build/report", "Folder.")
@option("--lanes", q.LANES, 8, "Floats a cycle: 4, 8, 16 or 32.")
@option(
    "--link-bytes",
    q.Number(0, 1000, "bytes a cycle"),
    8.0,
    "Bytes a clock cycle that a wire takes (8 at 156.25 MHz is 10 Gb/s); 0: no limit.",
)
@option("--elements", q.ELEMENTS, help="Only so many values of each gradient.")
@option(
    "--claims",
    InputFile(),
    metavar="FILE.md",
    help="Page of gradnic reproduce whose claims are shown; default: the recorded one, where the "
    "sources are.",
)
@json_option
def command(do_run, folder, lanes, link_bytes, elements, claims, json_file):
    """Sum real gradients over four RTL cards in a ring, and show what it saved, pictures first.

    With --run: trains a small network, takes the gradients of four workers at iterations 1 and 200,
    sums them over cards of RTL, coded and uncoded, compares every frame and replica with the golden
    cluster, writes the card's Verilog to build/verilog, and FOLDER/result.json. Without: draws the
    page again from that file. Exit status 1 if anything differs.

    \b
    Example:
      gradnic report --run
    """
    path, claims = Path(folder) / RESULT, recorded(claims)
    page = Path(folder) / "index.html"
    check_files([str(page), *([str(path)] if do_run else [])])
    if do_run:
        check_folder(VERILOG, click.get_current_context(silent=True))
        require("gradnic report --run", **SIMULATION, **DATA)
        result = run_job(lanes, link_bytes, elements, console("-"))
        write_json(path, result)
        html, tables, lines = rendered(result, claims)
    else:
        q.only_with(False, "a run, with --run", "lanes", "link_bytes", "elements")
        result, (html, tables, lines) = kept(path, claims)
    write_whole(page, html)
    screen = console(json_file)
    for shown in tables:
        screen.print(shown)
    screen.print(lines[0])
    screen.print(f"page: {page}")
    screen.print(lines[1])
    write_json(json_file, result)
    if not result["ok"]:
        raise SystemExit(1)


def recorded(path):
    """Claims of the page `path` of gradnic reproduce; of ours, where it is not there, None."""
    from gradnic.sim.reproduce.page import read_claims

    if path is None and not CLAIMS.exists():
        return None
    path = path or CLAIMS
    try:
        return read_claims(read_text(Path(path)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


# What a file of another kind makes of the code that draws a result.
BROKEN = (ArithmeticError, LookupError, TypeError, AttributeError, ValueError, RecursionError)


def kept(path, claims=None):
    """The result in the file `path` and what `rendered` makes of it; ValueError if it is none."""
    if not path.exists():
        raise ValueError(f"no run is kept in {path.parent}: add --run")
    try:
        result = from_json(read_text(path))
        return result, rendered(result, claims)
    except BROKEN as error:
        why = f"{type(error).__name__}, {error}"
        raise ValueError(f"{path} is no result of gradnic report --run: {why}") from error


def rendered(result, claims=None):
    """(page, tables, the line on the clock and the verdict) of a result; claims : of `recorded`."""
    from gradnic.sim.report import offload as report_offload
    from gradnic.sim.report import page as report
    from gradnic.sim.report import star as report_star

    columns = ("", *(f"iteration {i}" for i in result["iterations"]))
    title = f"{result['nodes']} RTL cards in a ring, bound 2^{result['exponent'] - 127}, sum loss"
    lines, group = [], None
    for section, name, values in report.rows(result):
        if section != group:
            group = section
            lines.append((section, *([""] * len(values))))
        lines.append((f"  {name}", *values))
    tables = [table(title, columns, lines)]
    if "star" in result:
        star = result["star"]
        title = f"{star['nodes']} RTL workers around an RTL aggregator, THC"
        tables.append(table(title, ("", ""), report_star.rows(star)))
    if "offload" in result:
        runs = result["offload"]
        title = f"{runs[0]['nodes']} RTL offload cards over networks that lose"
        columns = ("", *report_offload.names(runs))
        tables.append(table(title, columns, report_offload.rows(runs)))
    agree = "agree bit for bit" if result["ok"] else "DIFFER"
    verdict = f"RTL and golden cluster {agree}"
    return report.page(result, claims), tables, (report.clock_line(result), verdict)
