"""What a run of cards says of its packets, and the network model with it: without RTL."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from gradnic.hdl.transport.records import CHECK_WIDTH
from gradnic.models.offload.cluster import Cluster, LinkFaults
from gradnic.models.offload.codec import Inceptionn
from gradnic.models.schedule import builders
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.card_run import leaves
from gradnic.models.schedule.ethernet_cards import codec_of
from gradnic.models.schedule.network_model import of_offload_card, simulate
from gradnic.models.schedule.topology import parse
from gradnic.models.schedule.traffic import Traffic
from gradnic.sim.offload.run import payloads

from gradnic.interface.formats import GRADNIC, Op


class Heard(Cluster):
    """Golden cards whose frames are kept."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.frames = []

    def _send(self, node, port, frame, faults):
        self.frames.append((frame,))
        super()._send(node, port, frame, faults)


def coded(spelling, algorithm, chunks, gradients):
    """(topology, table, frames) of an all-reduce with INCEPTIONN."""
    topology = parse(spelling)
    table = compile_table(builders.build(topology, algorithm, chunks=chunks))
    cards = Heard(table, topology, gradients.shape[1], Inceptionn(len(gradients)))
    cards.arm(1, gradients)
    cards.run(LinkFaults())
    return topology, table, cards.frames


def noise(n_nodes, n_elems, quiet=False):
    """Gradients; quiet : the code makes nothing of all but the first node's share."""
    found = np.random.default_rng(1).normal(size=(n_nodes, n_elems)).astype(np.float32)
    if quiet:
        found[:, n_elems // n_nodes :] *= np.float32(2**-20)
    return found


@pytest.mark.parametrize(
    ("spelling", "algorithm", "chunks", "n_elems", "port_lanes", "quiet", "cycles", "apart"),
    [
        ("full:4", "multitree", 1, 65536, 16, False, 13556, 0.02),  # by the mean it loses frames
        ("ring:4", "ring", 1, 22528, 4, True, 11580, 0.01),
        ("torus:2x2", "multitree", 2, 16384, 4, True, 4632, 0.01),
    ],
)
def test_packets_of_known_sizes_take_what_rtl_takes(
    spelling, algorithm, chunks, n_elems, port_lanes, quiet, cycles, apart
):
    """RTL of `gradnic cosim card --codec inceptionn --lanes 16` with these gradients, 30 November
    2026. By the mean of all packets the model is 20 % off or more.
    """
    gradients = noise(4, n_elems, quiet)
    topology, table, frames = coded(spelling, algorithm, chunks, gradients)
    ratio, sizes = payloads(frames, 4, n_elems)

    def apart_with(codec):
        card = of_offload_card(16, port_lanes, codec=codec)
        return abs(simulate(table, topology, 4 * n_elems, card).cycles / cycles - 1)

    assert apart_with(replace(codec_of(f"ratio:{ratio}", 4), sizes=sizes)) < apart
    assert apart_with(codec_of(f"ratio:{ratio}", 4)) > 0.1


@pytest.mark.parametrize(
    ("spelling", "algorithm", "chunks"),
    [
        ("ring:4", "ring", 1), ("torus:3x3", "multitree", 2), ("full:8", "halving", 1),
        ("mesh:3x3", "bfb", 4), ("fattree:4x1", "multitree", 1),
    ],
)  # fmt: skip
def test_sums_of_as_many_leaves_leave_as_the_model_says(spelling, algorithm, chunks):
    """Each chunk is one packet; golden cards write the leaves into their heads."""
    n_nodes = parse(spelling).n_nodes
    n_elems = 16 * n_nodes * chunks
    topology, table, frames = coded(spelling, algorithm, chunks, noise(n_nodes, n_elems))
    traffic = Traffic(table, topology, n_elems)
    said, count = leaves(traffic)[traffic.message_row], traffic.count[traffic.message_row]
    heads = [GRADNIC.parse(frame) for (frame,) in frames]
    data = [head for head in heads if head["op"] != Op.CONTROL]
    sent = Counter(0 if head["ph"] else head["arg"] >> CHECK_WIDTH for head in data)
    assert sent == Counter(np.repeat(said, count).tolist())
