"""``gradnic goodput``: how much of a link RTL offload cards fill."""

import click

from gradnic import quantities as q
from gradnic.models.offload.memory import DRAMS
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.paths import Network
from gradnic.progress import status
from gradnic.quantities import option
from gradnic.text_file import apart


@click.command(cls=q.Command, name="goodput")
@option("--topology", Network(), "ring:2", "As of gradnic schedule.")
@click.option("--algorithm", default="ring", show_default=True, help="As of gradnic schedule.")
@option("--chunks", q.CHUNKS, help="Of each shard, where the algorithm takes them.")
@option("--bytes size", q.Size(4, 1 << 30), "2MiB", "Of the tensor.")
@option("--codec", q.OneOf("none", "inceptionn", "thc"), "none", "Of the payload.")
@option("--lanes", q.OneOf(4, 8, 16), 8)
@option("--loss", q.BELOW_ONE, 0.0, "Share of frames lost on a link.")
@option("--memory", q.OneOf(*DRAMS), help="Of the cards; default: a beat a cycle each way.")
@option(
    "--channels", q.OneOf(1, 2, 4), 2, "Of it, for gradients and results, and again for landings."
)
@option("--line", q.Number(1, 800, "Gb/s"), help="Of a link; default: a beat a cycle.")
@option("--clock", q.Number(1, 2000, "MHz"), 250.0, "Of the cards.")
@option("--foreign", q.Whole(1, 10**9, "frames"), help="So many frames of others beside it.")
@option("--load", q.Number(0, 1, above=True), 0.9, "Share of a link that those take.")
@option("--smallest", q.Whole(60, 9000, "bytes"), 60, "Bytes of such a frame, without FCS.")
@option("--largest", q.Whole(60, 9000, "bytes"), 1514, "Bytes of such a frame.")
@json_option
@needs(**SIMULATION, schedule=("scipy",))
def command(
    topology, algorithm, chunks, size, codec, lanes, loss, memory, channels, line, clock, foreign,
    load, smallest, largest, json_file,
):  # fmt: skip
    """Run an all-reduce on RTL offload cards and print what share of a link it fills.

    A link carries a beat a cycle. For reduce-scatter and all-gather each: the payload, and all of
    the wire with heads, gaps and control, from the first to the last packet, at the worst port. Raw
    floats can reach 94.1 % at 1408 bytes a packet.

    With --memory the cards' memories are DRAM: rates, rows that are opened, turns of the bus,
    refresh. --line and --clock say how many bytes a link carries in a cycle of the cards.

    With --foreign: hosts send each other frames over the same links; each is compared where it
    arrives, and when it left is compared with the same without an all-reduce. Exit status 1 if one
    is changed, lost or out of order.

    \b
    Example:
      gradnic goodput --bytes 1MiB
      gradnic goodput --topology ring:4 --chunks 4 --loss 0.001 --json -
      gradnic goodput --topology ring:4 --chunks 4 --lanes 16 --line 100 --memory ddr4-2400
      gradnic goodput --bytes 64KiB --lanes 4 --foreign 20000 --load 0.9
    """
    from gradnic.models.schedule import builders as schedules
    from gradnic.models.schedule.builders.rows import compile_table
    from gradnic.models.schedule.topology import parse
    from gradnic.sim.offload import goodput as offload_measure
    from gradnic.sim.offload.dram import timing

    q.only_with(foreign, "frames of others, with --foreign", "load", "smallest", "largest")
    q.only_with(not foreign, "a run without --foreign", "loss")
    q.only_with(memory, "DRAM, with --memory", "channels")
    q.only_with(memory or line, "--memory or --line", "clock")
    q.only_with(not foreign, "a run without --foreign", "memory", "line")
    most = 32 * lanes * clock / 1000
    if line and line > most:
        raise ValueError(
            f"line must be at most {apart(most, line)} Gb/s, a beat a cycle, not "
            f"{apart(line, most)}"
        )
    if smallest > largest:
        raise ValueError(f"smallest must be at most largest, {largest} bytes, not {smallest}")
    n_elems = size // 4
    where = parse(topology)
    plan = compile_table(
        schedules.build(where, algorithm, **({} if chunks is None else {"chunks": chunks}))
    )
    width = 4 * lanes

    def make():
        return offload_measure.Measure(plan, where, n_elems, codec, width)

    screen = console(json_file)
    found = {"topology": topology, "algorithm": algorithm, "codec": codec, "lanes": lanes}
    with status("cards of RTL"):
        if foreign:
            found |= offload_measure.crossing(make, foreign, load, smallest, largest)
            found |= {"bytes": size, "load": load, "smallest": smallest, "largest": largest}
            found["ok"] = found["wrong"] == found["missing"] == 0
        else:
            measure = make()
            if line:
                measure.link_bytes = line * 1000 / 8 / clock
                found["line_gbps"] = line
            if memory:
                measure.cluster.dram(*[timing(memory, channels, width, clock)] * 2)
                found |= {"memory": memory, "channels": channels}
            if memory or line:
                found["clock_mhz"] = clock
            result = measure.round(loss)
            found |= measure.phases(result) | {
                "bytes": 4 * measure.n_elems,
                "loss": loss,
                "cycles": result.cycles,
                "frames": len(result.frames),
                "ok": True,
            }
    rows = [(name.replace("_", " "), _shown(value)) for name, value in found.items()]
    screen.print(table("RTL offload cards", ("", ""), rows))
    write_json(json_file, found)
    if not found["ok"]:
        raise SystemExit(1)


def _shown(value):
    """A figure, or shares of a phase."""
    if not isinstance(value, dict):
        return value
    if None in value.values():
        return "too few packets"
    return ", ".join(f"{what} {share:.1%}" for what, share in value.items())
