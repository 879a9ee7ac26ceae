"""EFLOPS (Dong et al., HPCA 2020): one NIC for a server or one for each accelerator; BiGraph, HDRM.

The paper's set-up is not known to us (accelerators per server, link rates, message sizes), so each
claim is a sweep, and the condition under which the published figure appears.
"""

from dataclasses import replace
from functools import cache

import numpy as np
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.topology import Topology, parse
from gradnic.models.training.constants import value
from gradnic.models.training.devices import device
from gradnic.models.training.exchange import Exchange, card_network
from gradnic.models.training.layers import load
from gradnic.models.training.step import step, steps_per_epoch

from .claims import Picture, Result, Table

GBPS = 100
SERVERS = 4
SIZE = 100 << 20  # of the tensor behind the claim of NIC congestion
_UNKNOWN = "the paper's set-up is not known to us"


def shared(accelerators, nics, dealt):
    """Servers whose accelerators hang in pairs on PCIe switches under one root, with `nics` NICs.

    nics : 1, at the root, or as many as accelerators, each beside its own under their switch. The
    network behind is one switch that never blocks. PCIe 3.0 x16 everywhere.
    dealt : ranks are dealt to the servers in turn; else a server's ranks follow each other.
    """
    n = SERVERS * accelerators
    pcie = value("pcie3x16") * 8 / (GBPS * 1e9)
    links, vertex = [], n
    fabric, vertex = vertex, vertex + 1
    for server in range(SERVERS):
        root, vertex = vertex, vertex + 1
        if nics == 1:
            nic, vertex = vertex, vertex + 1
            links += [(root, nic, pcie), (nic, fabric, 1.0)]
        for first in range(0, accelerators, 2):
            switch, vertex = vertex, vertex + 1
            links.append((switch, root, pcie))
            for i in range(first, min(first + 2, accelerators)):
                node = i * SERVERS + server if dealt else server * accelerators + i
                port, vertex = vertex, vertex + 1  # the accelerator's PCIe link, and its way on
                links += [(node, port, pcie), (port, switch, pcie)]
                if nics != 1:
                    nic, vertex = vertex, vertex + 1
                    links += [(port, nic, pcie), (nic, fabric, 1.0)]
    ends = np.array([link[:2] for link in links])
    both = np.concatenate([ends, ends[:, ::-1]])
    bandwidth = [link[2] for link in links] * 2
    name = f"servers:{SERVERS}x{accelerators}x{nics}"
    return Topology(name, n, vertex - n, both, bandwidth, ports=1)


@cache
def _nic_congestion(accelerators, dealt, algorithm, n_bytes):
    """Seconds with one NIC a server over those with one an accelerator."""
    one, many = (
        Exchange(
            build(shared(accelerators, nics, dealt), algorithm), card_network(GBPS)
        ).seconds(n_bytes)
        for nics in (1, accelerators)
    )  # fmt: skip
    return one / many


@cache
def _exchange(network, algorithm, latency=0.0, add=None):
    """latency : seconds of software before every message, beside the card's own. add : as of
    `card_network`.
    """
    cards = card_network(GBPS, add=add)
    timed = replace(cards, issue=cards.issue + round(latency * 1e9))
    return Exchange(build(parse(network), algorithm), timed)


def run(quick, say):
    """The Result. quick : fewer sizes."""
    result = Result("eflops")
    _nic(result, quick, say)
    _topology(result, quick, say)
    _scaling(result, quick, say)
    return result


def _nic(result, quick, say):
    sizes = (1 << 20, SIZE) if quick else (1 << 18, 1 << 20, 10 << 20, SIZE, 1 << 30)
    counts = (2, 4, 8, 16)
    rows, series = [], {}
    for algorithm in ("halving", "ring"):
        for dealt in (True, False):
            label = f"{algorithm}, ranks {'dealt' if dealt else 'packed'}"
            for count in counts:
                say(f"{count} accelerators a server, {label}")
                found = [_nic_congestion(count, dealt, algorithm, n) for n in sizes]
                rows += [(label, count, n >> 10, g) for n, g in zip(sizes, found, strict=True)]
                series.setdefault(label, []).append((count, found[sizes.index(SIZE)]))
    gains = dict(series["halving, ranks dealt"])
    enough = [count for count in counts if gains[count] >= 11.3]
    where = f"from {enough[0]} accelerators a NIC on" if enough else "at none of them"
    result.claim(
        "one NIC an accelerator over one NIC a server", 11.3, gains[8],
        [row[3] for row in rows], "x",
        f"{_UNKNOWN}; ours: halving-doubling, ranks dealt to {SERVERS} servers of 8 accelerators, "
        f"{GBPS} Gb/s, 100 MiB; range over 2 to 16 accelerators, sizes, ring, and ranks packed; "
        f"11.3 x appears {where}; sharing costs at most as much as accelerators share, and the "
        "collapse of a single-VC PCIe switch is not modelled",
    )  # fmt: skip
    result.tables.append(
        Table("One NIC an accelerator over one a server", ("algorithm", "accelerators",
              "KiB", "x"), rows)
    )  # fmt: skip
    result.pictures.append(
        Picture("eflops_nic", "lines", "NIC congestion removed", "accelerators a server",
                "speed-up", series)
    )  # fmt: skip


def _topology(result, quick, say):
    sizes = [1 << bits for bits in ((15, 18, 21, 24) if quick else range(15, 27))]
    rows, series, gains, placed = [], {}, {}, {}
    for latency in (0.0, value("host.message")):
        for other, network in (
            ("ring", "fattree:8x2"), ("halving", "fattree:8x2"), ("halving", "bigraph:4x16"),
        ):  # fmt: skip
            say(f"HDRM against {other} on {network}")
            label = f"{other} on {network}, {latency * 1e6:.1f} us a message"
            for n in sizes:
                theirs = _exchange(network, other, latency).seconds(n)
                ours = _exchange("bigraph:4x16", "hdrm", latency).seconds(n)
                gains[label, n] = theirs / ours
                slow = [
                    _exchange(*pair, latency, value("card.rate")).seconds(n)
                    for pair in ((network, other), ("bigraph:4x16", "hdrm"))
                ]
                placed[label, n] = slow[0] / slow[1]
                line = (f"{other}, {network}", latency * 1e6, n >> 10, theirs * 1e6, ours * 1e6)
                rows.append((*line, theirs / ours))
                series.setdefault(label, []).append((n >> 10, theirs / ours))
    best = max(gains, key=gains.get)
    over = [f"{n >> 10} KiB against {label}" for (label, n), gain in gains.items() if gain >= 6.08]
    result.claim(
        "BiGraph with HDRM over other topology and algorithm, at most", 6.08, gains[best],
        [*gains.values(), *placed.values()], "x",
        f"{_UNKNOWN}; 64 nodes, {GBPS} Gb/s, cards as wide as their line (512 bits from 196 MHz "
        "on, which no open tool places), against ring and halving by node number on a full "
        "fat-tree, and halving without rank mapping on the BiGraph; range over 32 KiB up, "
        f"latency of software, and with cards of 256 bits as placed on an ECP5, which add "
        f"{8e-9 * value('card.rate'):.1f} Gb/s and come to {placed[best]:.2f} x there; "
        f"6.08 x appears at {', '.join(over) or 'none of them'}",
    )  # fmt: skip
    result.tables.append(
        Table("HDRM on BiGraph 4x16 against others", ("other", "us a message", "KiB",
              "other us", "HDRM us", "x"), rows)
    )  # fmt: skip
    result.pictures.append(
        Picture("eflops_hdrm", "lines", "BiGraph with HDRM over others", "KiB", "speed-up",
                series, "x")
    )  # fmt: skip


def _scaling(result, quick, say):
    model, batch = load("resnet50"), 256
    rows, series = [], {}
    networks = ["bigraph:2x4", "bigraph:4x8", "bigraph:4x16"]
    if not quick:
        networks += ["bigraph:8x16", "bigraph:8x32"]
    for name in ("v100-fp32", "v100-amp"):
        for network in networks:
            say(f"ResNet-50, {name}, {network}")
            exchange = _exchange(network, "hdrm", value("host.message"))
            done = step(model, device(name), batch, exchange)
            n = parse(network).n_nodes
            share = done.compute / done.total
            steps = steps_per_epoch(int(value("imagenet.images")), n, batch)
            rows.append((name, n, batch / done.total, n * batch / done.total, 100 * share,
                         steps, steps * done.total))  # fmt: skip
            series.setdefault(name, []).append((n, n * share))
    series["linear"] = [(n, n) for n, _ in series["v100-fp32"]]
    slow = _exchange(networks[-1], "hdrm", value("host.message"), value("card.rate"))
    done = step(model, device("v100-amp"), batch, slow)
    placed = 100 * done.compute / done.total
    shares = [row[4] for row in rows]
    result.claim(
        "ResNet-50 near-linear: share of linear speed-up", 95, shares[-1], [*shares, placed], "%",
        f"the paper says near-linear, taken here as 95 %; {rows[-1][1]} nodes, V100 in mixed "
        "precision at NVIDIA's published rate, 256 images a node, a NIC of 100 Gb/s each, DDP "
        f"buckets under the backward pass; range with FP32, 8 nodes on, and cards that add "
        f"{8e-9 * value('card.rate'):.1f} Gb/s, as 256 bits placed on an ECP5: {placed:.1f} %",
    )  # fmt: skip
    result.tables.append(
        Table("ResNet-50 on BiGraphs with HDRM", ("device", "nodes", "images/s a node",
              "images/s", "% of linear", "steps an epoch", "s an epoch"), rows)
    )  # fmt: skip
    result.pictures.append(
        Picture("eflops_resnet50", "lines", "ResNet-50, speed-up over one node", "nodes", "x",
                series, "xy")
    )  # fmt: skip
