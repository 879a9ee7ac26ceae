"""``gradnic chain``: floats in bulk through the RTL compressor and decompressor."""

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.progress import Progress
from gradnic.quantities import option


@click.command(cls=q.Command, name="chain")
@option("--lanes", q.LANES, 16)
@option(
    "--floats",
    q.Whole(1, 10**12, "floats"),
    100_000_000,
    "At least; a thread plays about 5.6 million at a time.",
)
@click.option("--stalls", type=q.Whole(0, 8), default=0, help="N: one cycle of 2^N, all ports.")
@option("--jobs", q.JOBS, help="Threads; default one a core.")
@option("--seed", q.SEED, 1, "Of floats, counts and settings.")
@json_option
@needs(**SIMULATION)
def command(lanes, floats, stalls, jobs, seed, json_file):
    """Send packets of floats through RTL compressors and decompressors; compare all with a model.

    256 chains are simulated as gates at once, each with packets of its own. Sizes, coded bytes and
    restored floats of every packet must equal the model's. The library takes minutes to build. Ends
    at the first difference, with exit status 1.

    \b
    Example:
      gradnic chain --lanes 4 --floats 1000000
      gradnic chain --json build/chain.json
    """
    from gradnic.sim.inceptionn import chain

    screen = console(json_file)
    settings = {"seed": seed, "stalls": stalls}
    with Progress() as progress:
        task = progress.add_task(f"building the chain, {lanes} lanes", total=None)

        def show(done, total):
            progress.update(task, description="floats", completed=done, total=total)

        try:
            result = chain.run(
                n_lanes=lanes,
                n_floats=floats,
                jobs=jobs,
                progress=show,
                **settings,
            )
        except AssertionError as difference:
            result = {"n_lanes": lanes, "first": str(difference)}
    result |= {"ok": "first" not in result, **settings}
    if not result["ok"]:
        screen.print(f"circuit and model differ: {result['first']}")
        write_json(json_file, result)
        raise SystemExit(1)
    keys = ("n_lanes", "floats", "cycles", "seconds", "floats_per_s", "circuit_floats_per_s")
    columns = ("lanes", "floats", "cycles", "CPU s", "floats/s", "of the circuit")
    row = [result[key] for key in keys]
    screen.print(table("compressor and decompressor, all compared", columns, [row]))
    write_json(json_file, result)
