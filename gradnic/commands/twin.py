"""``gradnic twin``: cards with jobs at UDP sockets or TAP devices, for host programs."""

import contextlib

import click

from gradnic import quantities as q
from gradnic.interface.formats import UDP_PORT
from gradnic.interface.neighbor import CARD_IP
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, require
from gradnic.progress import status
from gradnic.quantities import option
from gradnic.text_file import shown_path

from .cosim_parts import fault_options, network_options

LANES = 4  # floats a cycle of cards in RTL, unless told
NODES = 64
DEVICE = 15  # characters of a device's name
PORTS = 1 << 16


@click.command(cls=q.Command)
@network_options
@option("--memory n_bytes", q.Size(4096, 1 << 24), "1MiB",
        "Of each card, all of it for gradients and results.")  # fmt: skip
@click.option("--rtl", is_flag=True, help="Cards of RTL; default: golden cards.")
@option("--lanes", q.OneOf(4, 8, 16), help=f"Floats a cycle, with --rtl; default: {LANES}.")
@option("--active n_active", q.Whole(1, 4, "jobs"), 2, "Jobs side by side.")
@click.option("--thc", is_flag=True, help="Cards that take jobs of THC, and make no other means.")
@option("--block", q.OneOf(64, 256, 1024), help="THC's B; default: 1024.")
@fault_options
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="Where sockets listen.")  # fmt: skip
@option("--port", q.Whole(0, PORTS - 1), help=f"UDP port of node 0, the others behind it; 0: any "
        f"that are free. Default: {UDP_PORT}.")  # fmt: skip
@click.option("--tap", "devices", multiple=True, metavar="NAME",
              help="TAP devices instead of sockets: one a node; repeat the option.")  # fmt: skip
@json_option
def command(
    topology, algorithm, chunks, n_bytes, rtl, lanes, n_active, thc, block, loss, duplicate, delay,
    reorder, seed, host, port, devices, json_file,
):  # fmt: skip
    """Stand cards with jobs at UDP sockets, for programs of their hosts, without hardware.

    Each node of the topology has a card of its own, golden or of RTL, with addresses, memory and
    tables set up, 0 of all-reduce, 1 of reduce-scatter, 2 of all-gather; the cards speak to each
    other over links with faults. `gradnic.host.FrameHost`
    finds one at its address as it finds a real one: it takes gradients, jobs and registers, and
    gives results. With --tap cards are behind Ethernet devices, where the system finds them by ARP
    at 198.51.100.0, .2 and so on. They are there until Ctrl-C; --json is written once they are.

    \b
    Example:
      gradnic twin --topology ring:2 --algorithm ring
      gradnic twin --topology torus:2x2 --rtl --json build/twin.json
      gradnic twin --topology ring:3 --loss 0.01 --thc --active 4
      gradnic twin --topology ring:2 --tap gradnic0 --tap gradnic1
    """
    require("gradnic twin", schedule=("scipy",))
    from gradnic.models.offload.cluster import LinkFaults
    from gradnic.models.schedule.builders import build
    from gradnic.models.schedule.builders.rows import compile_table
    from gradnic.models.schedule.topology import parse
    from gradnic.sim.offload.twin import TapServer, Twin, TwinServer

    q.only_with(rtl, "cards of RTL, with --rtl", "lanes")
    q.only_with(thc, "cards with --thc", "block")
    q.only_with(not devices, "sockets, not for --tap", "host", "port")
    network = parse(topology)
    port = UDP_PORT if port is None else port
    _check_ends(network.n_nodes, port, devices)
    schedule = build(network, algorithm, **({} if chunks is None else {"chunks": chunks}))
    collectives = _collectives(schedule)
    tables = tuple(map(compile_table, collectives.values()))
    built = {"n_active": n_active, "scale": not thc, "thc": {"B": block or 1024} if thc else None}
    faults = LinkFaults(loss=loss, duplicate=duplicate, delay=delay, reorder=reorder, seed=seed)
    if rtl:
        require("--rtl", **SIMULATION)
        from gradnic.sim.offload.rtl_twin import RtlTwin

        with status("cards of RTL"):
            twin = RtlTwin(
                tables, network, n_bytes, faults=faults, lanes=lanes or LANES, **built,
            )  # fmt: skip
    else:
        twin = Twin(tables, network, n_bytes, faults=faults, **built)
    server = TapServer(twin, devices) if devices else TwinServer(twin, host=host, port=port)
    try:
        facts = {
            "engine": "rtl" if rtl else "golden", "topology": topology, "algorithm": algorithm,
            "tables": list(collectives), "roots": schedule.roots.tolist(),
        }  # fmt: skip
        _tell(server, facts, devices, json_file)
        server.serve()
    finally:
        server.close()
        click.echo(f"{server.n_frames} frames of hosts", err=True)


def _collectives(schedule):
    """{name: schedule} of what the cards have tables for; the halves where nodes have shares."""
    from gradnic.models.schedule.builders.collectives import collective

    found = {"all_reduce": schedule}
    with contextlib.suppress(ValueError):  # nodes complete unlike numbers of chunks
        halves = {name: collective(schedule, name) for name in ("reduce_scatter", "all_gather")}
        found |= halves
    return found


def _check_ends(n_nodes, port, devices):
    """ValueError for cards, sockets or devices that cannot be."""
    if n_nodes > NODES:
        raise ValueError(f"nodes must be at most {NODES}, not {n_nodes}")
    if devices and len(devices) != n_nodes:
        raise ValueError(f"devices must be {n_nodes}, one a node, not {len(devices)}")
    for name in devices:
        if not 1 <= len(name.encode()) <= DEVICE or "/" in name or devices.count(name) > 1:
            raise ValueError(
                f"devices must have names of 1 to {DEVICE} characters of their own, not {name!r}"
            )
    if port and port + n_nodes > PORTS:
        raise ValueError(f"port must be at most {PORTS - n_nodes} for {n_nodes} cards, not {port}")


def _tell(server, facts, devices, json_file):
    """Where the cards are."""
    cards = []
    for node, mac in enumerate(server.twin.macs):
        end = {"device": devices[node]} if devices else dict(
            zip(("address", "port"), server.ends[node], strict=True)
        )  # fmt: skip
        at = ".".join(map(str, (CARD_IP + 2 * node).to_bytes(4, "big")))
        cards.append({"node": node, **end, "host_ip": at, "mac": mac.to_bytes(6, "big").hex(":")})
    engine = facts["engine"].replace("rtl", "RTL")
    title = f"{len(cards)} {engine} cards, {facts['algorithm']} on {shown_path(facts['topology'])}"
    columns = list(cards[0])
    rows = [[card[name] for name in columns] for card in cards]
    console(json_file).print(table(title, [name.replace("_", " ") for name in columns], rows))
    write_json(json_file, facts | {"cards": cards})
