"""Options of `simulate` and `schedule` that make nodes of gradnic's own cards."""

import math
from dataclasses import replace

import click

from gradnic import quantities as q
from gradnic.interface.flit import FLIT_BYTES
from gradnic.models.schedule.ethernet_cards import codec_of
from gradnic.models.schedule.network_model import Network, lanes_of, of_card, of_offload_card
from gradnic.models.schedule.wire_ratio import wire_ratio
from gradnic.quantities import option
from gradnic.text_file import apart

_OFFLOAD_LANES = 16
_RATES = 0.001, 1_000_000  # bytes a cycle
NAMES = ("card", "lanes", "port_lanes", "link_bytes_per_cycle", "link_latency", "codec")

_OPTIONS = (
    option(
        "--card",
        q.OneOf("direct", "offload"),
        help="Nodes are gradnic's cards, with the times of their RTL: on direct links, raw floats, "
        "or offload cards on Ethernet, a port for each link.",
    ),
    option(
        "--lanes",
        q.LANES,
        help="Floats of a card's word. Default: 16, direct 8 a port, 32 at most.",
    ),
    option(
        "--port-lanes",
        q.OneOf(1, 2, 4, 8, 16, 32),
        help="Of an offload card's ports; default: as --lanes.",
    ),
    option(
        "--link-bytes-per-cycle",
        q.Number(*_RATES),
        help="Default: the slowest link's GB/s where a file has a unit, else 16, of offload cards "
        "what a port has.",
    ),
    option("--link-latency", q.LINK_TIME, Network.link_latency, "Cycles."),
    click.option(
        "--codec",
        default="none",
        show_default=True,
        help="none, inceptionn, thc, or ratio:R, the payload ratio that codec stats prints.",
    ),
)


def card_options(command):
    """Adds `NAMES` to a command."""
    for one in reversed(_OPTIONS):
        command = one(command)
    return command


def check(card, lanes, port_lanes, link_bytes_per_cycle, link_latency, codec, collective):
    """UsageError for what such a card does not have, ValueError for no codec."""
    wire_ratio(codec, 2)
    q.only_with(card != "direct", "offload cards, or runs without --card", "codec")
    q.only_with(card, "a card: --card direct or offload", "lanes")
    q.only_with(card == "offload", "--card offload", "port_lanes")
    if card == "direct" and (link_bytes_per_cycle or 0) > FLIT_BYTES:
        raise click.UsageError(
            f"--link-bytes-per-cycle must be at most {FLIT_BYTES} with --card direct, a flit, "
            f"not {apart(link_bytes_per_cycle, FLIT_BYTES)}"
        )
    if card and collective != "all_reduce":
        raise click.UsageError(f"--card is for --collective all_reduce, not {collective}")
    if card == "direct" and lanes == 4:
        raise click.UsageError("--lanes must be 8, 16 or 32 with --card direct, not 4")
    lanes = lanes or _OFFLOAD_LANES
    check_port_lanes(port_lanes, lanes)
    port_bytes = 4 * (port_lanes or lanes)
    if card == "offload" and (link_bytes_per_cycle or 0) > port_bytes:
        raise click.UsageError(
            f"--link-bytes-per-cycle must be at most {port_bytes}, a port's, "
            f"not {apart(link_bytes_per_cycle, port_bytes)}"
        )


def machine(topology, card, lanes, port_lanes, link_bytes_per_cycle, link_latency, codec,
            flow="message", buffer=None, **others):  # fmt: skip
    """The Network of the options. flow : of links without offload cards; others : of a `Network`
    whose nodes are no cards. buffer : of such, too; None covers a round trip of the longest link.
    A file's unit of bandwidth is the default of the links' rate, at 1 GHz. ValueError for cards
    between switches that sum or multicast, and for a file's links that are none of the option's.
    """
    if card and (topology.sums or topology.multicasts):
        raise ValueError(f"{topology.name}: --card knows no switches that sum or multicast")
    if card == "offload":
        coded = codec_of(codec, topology.n_nodes)
        network = of_offload_card(
            lanes or _OFFLOAD_LANES, port_lanes, delay=link_latency, codec=coded
        )
        most = network.cards.port_bytes
        rate = link_bytes_per_cycle or rate_of_file(topology, most) or most
        return replace(network, link_bytes_per_cycle=rate)
    most = FLIT_BYTES if card else _RATES[1]
    rate = link_bytes_per_cycle or rate_of_file(topology, most) or Network.link_bytes_per_cycle
    link = {"link_bytes_per_cycle": rate, "link_latency": link_latency, "flow": flow}
    if card == "direct":
        ends = topology.links.min(axis=1) < topology.n_nodes
        fastest = rate * topology.bandwidth[ends].max()
        if fastest > FLIT_BYTES:
            raise ValueError(
                f"{topology.name}: a card's fastest link has {apart(fastest, FLIT_BYTES)} bytes "
                f"a cycle, and a port takes {FLIT_BYTES}: give a lower --link-bytes-per-cycle"
            )
        return of_card(lanes or lanes_of(topology), **link)
    longest = topology.latencies(link_latency).max(initial=0)
    covers = math.ceil(2 * longest * link["link_bytes_per_cycle"])
    others["wire_ratio"] = wire_ratio(codec, topology.n_nodes)
    return Network(**link, **others, buffer=buffer or max(Network.buffer, covers))


def check_port_lanes(port_lanes, lanes):
    """UsageError for ports that are wider than the card."""
    if port_lanes and port_lanes > lanes:
        raise click.UsageError(
            f"--port-lanes must be at most {lanes}, the --lanes, not {port_lanes}"
        )


def rate_of_file(topology, port_bytes, name="--link-bytes-per-cycle"):
    """Bytes a cycle of the slowest link, None where the file does not say. ValueError for one that
    a port of `port_bytes`, or the model, does not take; name : of the option that says another.
    """
    rate, (least, _) = topology.bytes_per_cycle, _RATES
    if rate is not None and not least <= rate <= port_bytes:
        shown = apart(rate, port_bytes if rate > port_bytes else least)
        raise ValueError(
            f"{topology.name}: its slowest link has {shown} bytes a cycle at 1 GHz, and a port "
            f"takes {least:g} to {port_bytes:g}: give {name}"
        )
    return rate
