"""``gradnic bench``: speed of the golden codecs beside zfp, a BF16 cast and zlib."""

import os

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import DATA, SIMULATION, needs, require
from gradnic.progress import Progress
from gradnic.quantities import option


@click.group(cls=q.Group, name="bench", invoke_without_command=True)
@option("--mib", q.Whole(1, 179, "MiB"), 64, "MiB of real gradients, 1..179.")
@option("--exponent", q.EXPONENT, 117, "113..126; 117 is 2^-10.")
@option("--rounds", q.Whole(1, 10_000), 5, "Rounds; medians are shown.")
@json_option
@click.pass_context
def command(context, mib, exponent, rounds, json_file):
    """Compress and decompress real gradients, one thread, all contestants in turn.

    The gradients are those of `gradnic gradients`, summed over the batch. "numpy twin" and
    "compiled" are this package's INCEPTIONN, and those of THC one worker with the defaults, norms
    and packing included; zfp takes part where zfpy is installed, with the same absolute bound, and
    the BF16 cast where ml_dtypes is. in: compress; out: decompress, MB of float32.

    \b
    Example:
      gradnic bench --mib 64 --rounds 5 --json build/bench.json
      gradnic bench host
      gradnic bench rtl
    """
    if context.invoked_subcommand:
        return
    require(context.command_path, **DATA)
    from gradnic.sim.inceptionn import bench_codec

    with Progress() as progress:
        task = progress.add_task("training", total=200)
        x = bench_codec.real_gradients(
            mib << 20, on_iteration=lambda i, _: progress.update(task, completed=i)
        )
        task = progress.add_task("rounds", total=rounds)
        results = bench_codec.run(
            x,
            exponent=exponent,
            rounds=rounds,
            on_round=lambda k: progress.update(task, completed=k),
        )
    columns = ("codec", "in MB/s", "+-%", "out MB/s", "+-%", "ratio", "NMSE", "worst error")
    rows = [
        (
            r["name"],
            round(r["compress_mb_s"]),
            round(50 * r["compress_spread"]),
            round(r["decompress_mb_s"]),
            round(50 * r["decompress_spread"]),
            f"{r['ratio']:.2f}",
            f"{r['nmse']:.1e}",
            f"{r['max_abs_error']:.1e}",
        )
        for r in results
    ]
    title = f"{mib} MiB of gradients, sum loss, bound 2^{exponent - 127}, one thread"
    console(json_file).print(table(title, columns, rows))
    write_json(
        json_file, {"bytes": x.nbytes, "exponent": exponent, "rounds": rounds, "codecs": results}
    )


@command.command(name="host")
@option("--rounds", q.Whole(1, 1000), 5, "Medians are shown.")
@json_option
@needs(fast=("numba",))
def host(rounds, json_file):
    """Sums, lookups, PowerSGD and a message on this host, beside what `gradnic reproduce` takes.

    Processor time of one thread; PowerSGD's is a worker's, with one matrix of 1024 x 1024 and rank
    4. A message is half a round trip between two processes over loopback TCP, which other work on
    the machine makes longer.

    \b
    Example:
      gradnic bench host --rounds 9 --json -
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read where numpy is imported

    from gradnic.models.training.constants import CONSTANTS
    from gradnic.sim.training import host_rates

    found = host_rates.measure(rounds)
    rows = [
        {"name": name, "value": value, "unit": CONSTANTS[name].unit, "taken": CONSTANTS[name].value}
        for name, value in found.items()
    ]
    shown = [(r["name"], f"{r['value']:.3g}", f"{r['taken']:.3g}", r["unit"]) for r in rows]
    console(json_file).print(table("this host", ("what", "here", "taken", "unit"), shown))
    write_json(json_file, rows)


@command.command(name="rtl")
@option(
    "--block blocks",
    q.OneOf("fifo", "compressor4", "compressor16", "card128", "card512"),
    help="Only these, may repeat; a card takes minutes to compile where it was not yet.",
    multiple=True,
    callback=q.once,
)
@option("--rounds", q.Whole(1, 1000), 5, "Medians are shown.")
@json_option
@needs(**SIMULATION)
def rtl(blocks, rounds, json_file):
    """Cycles a second of the compiled engine, beside those of the same circuits alone.

    Processor time of one thread; a block in its harness and its bare Verilator model, whose clock
    alone moves, take turns. fifo: 4 words. compressor4, compressor16: checked with the model.
    card128, card512: two offload cards that all-reduce over a link, checked; cycles are one card's.

    \b
    Example:
      gradnic bench rtl --block fifo --block compressor4 --json -
    """
    from gradnic.sim.offload import speed

    rows = []
    with Progress() as progress:
        names = blocks or tuple(speed.BLOCKS)
        task = progress.add_task("blocks", total=len(names))
        for name in names:
            rows.append(speed.measure(name, rounds=rounds))
            progress.update(task, advance=1)
    shown = [
        (
            row["block"],
            row["lanes"],
            *(f"{row[key]:,.0f}" for key in ("cycles_per_second", "bare_cycles_per_second")),
            f"{row['cycles_per_second'] / row['bare_cycles_per_second']:.0%}",
        )
        for row in rows
    ]
    columns = ("block", "lanes", "cycles/s", "bare cycles/s", "share")
    console(json_file).print(table("one thread, processor time", columns, shown))
    write_json(json_file, rows)
