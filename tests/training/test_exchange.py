"""All-reduces of servers, groups and rings in seconds: closed forms, codecs, limits of engines."""

import json
import re
from pathlib import Path

import pytest
from gradnic.fpga import flow
from gradnic.models import training
from gradnic.models.schedule.builders.rings import ring
from gradnic.models.schedule.builders.servers import grouped_rings, grouped_servers, servers
from gradnic.models.schedule.topology import parse
from gradnic.models.training.constants import CONSTANTS
from gradnic.models.training.exchange import (
    RAW,
    Codec,
    Exchange,
    card_network,
    fp16,
    host_network,
    truncated,
)
from gradnic.sim import reproduce
from gradnic.sim.reproduce.thc import with_aggregator

SIZE = 100 << 20
WIRE = 1344 / (1344 + 88)


def units(schedule, network=None, codec=RAW):
    """Seconds over those of the tensor's bytes on one 10 Gb/s link."""
    network = network or card_network(10)
    return Exchange(schedule, network, codec).seconds(SIZE) / (SIZE * 8 / 10e9)


@pytest.mark.parametrize(
    ("schedule", "closed"),
    [
        (servers(parse("fattree:5x1"), at=[4]), 8),  # four in, four out
        (servers(parse("fattree:4x1")), 1.5),
        (grouped_servers(parse("fattree:8x1"), [[0, 1, 2, 3], [4, 5, 6, 7]]), 8),
        (grouped_rings(parse("fattree:8x1"), [[0, 1, 2, 3], [4, 5, 6, 7]]), 1.75),
        (ring(parse("fattree:8x1")), 1.75),
    ],
)
def test_large_tensors_take_what_bandwidth_says(schedule, closed):
    assert units(schedule) == pytest.approx(closed / WIRE, rel=2e-3)


def test_worker_aggregator_grows_with_nodes_and_a_ring_does_not():
    aggregator = [units(servers(parse(f"fattree:{n + 1}x1"), at=[n])) for n in (4, 8, 16)]
    rings = [units(ring(parse(f"fattree:{n}x1"))) for n in (4, 8, 16)]
    assert aggregator[2] / aggregator[0] == pytest.approx(4, rel=1e-2)
    assert rings[2] / rings[0] == pytest.approx(1.25, rel=1e-2)


def test_codec_shrinks_payload_and_not_heads():
    schedule = ring(parse("fattree:4x1"))
    coded = units(schedule, codec=Codec("x", 0.1, 0.1)) / units(schedule)
    assert coded == pytest.approx((134.4 + 88) / (1344 + 88), rel=1e-2)


def test_codec_of_one_direction_costs_half():
    schedule = servers(parse("fattree:5x1"), at=[4])
    both, up = (units(schedule, codec=Codec("x", 0.25, down)) for down in (0.25, 1.0))
    assert up == pytest.approx((both + units(schedule)) / 2, rel=1e-3)


def test_directions_that_overlap_take_the_longer_one():
    """An aggregator gets gradients while it sends sums: its links carry both, each one way."""
    star = with_aggregator(4)
    piped = servers(star, at=[4], chunks=64)
    both, down, up = (
        units(piped, codec=Codec("x", *ratios)) for ratios in ((0.5, 0.5), (0.1, 0.5), (0.5, 0.1))
    )
    assert both >= (672 + 88) / 1344
    assert down == pytest.approx(both, rel=0.02)  # a chunk of 64 fills the line
    assert up == pytest.approx(both, rel=0.02)


def test_a_node_adds_what_its_host_can_whatever_comes_at_once():
    """A server of each four sums three parts of a quarter of the tensor, chunk beside chunk."""
    star = parse("fattree:4x1")
    for rate in (0.4e9, 2e9):
        seconds = Exchange(servers(star, chunks=16), card_network(100, add=rate)).seconds(SIZE)
        assert 0.75 * SIZE / rate < seconds < 0.9 * SIZE / rate


def test_engine_limits_what_a_fast_link_could_carry():
    schedule = ring(parse("fattree:4x1"))
    fast = card_network(400)
    free = Exchange(schedule, fast, Codec("x", 0.1, 0.1)).seconds(SIZE)
    slow = Exchange(schedule, fast, Codec("x", 0.1, 0.1, engine=1e9)).seconds(SIZE)
    assert slow > 10 * free
    assert slow == pytest.approx(1.5 * SIZE / 1e9, rel=1e-2)  # heads pass beside it


def test_stages_of_a_host_codec():
    exchange = Exchange(ring(parse("fattree:4x1")), host_network(10), fp16())
    encode, network, decode = exchange(SIZE)
    assert encode == SIZE / CONSTANTS["host.bf16.encode"].value
    assert decode == SIZE / CONSTANTS["host.bf16.decode"].value
    assert network == exchange.seconds(SIZE)


@pytest.mark.parametrize("gbps", [10, 100])
@pytest.mark.parametrize("codec", [fp16(), Codec("factors", 1 / 32, 1 / 32, fills=True)])
def test_what_hosts_code_takes_as_long_as_a_tensor_of_so_many_bytes(gbps, codec):
    """Full segments, and sums of what is there: not a short segment for each raw one."""
    schedule, network = ring(parse("fattree:4x1")), host_network(gbps)
    n_bytes = int(SIZE * codec.up)
    plain = Exchange(schedule, network).seconds(n_bytes)
    assert Exchange(schedule, network, codec).seconds(SIZE) == pytest.approx(plain, rel=1e-4)


def test_stretch():
    schedule = ring(parse("fattree:4x1"))
    plain = Exchange(schedule, card_network(10)).seconds(SIZE)
    assert Exchange(schedule, card_network(10), stretch=1.5).seconds(SIZE) == 1.5 * plain
    double = Exchange(schedule, card_network(10), stretch=lambda n, seconds: 2)
    assert double.seconds(SIZE) == 2 * plain


def test_truncation_and_limits():
    assert [truncated(bits).up for bits in (16, 22, 24)] == [0.5, 0.3125, 0.25]
    with pytest.raises(ValueError, match="16, 22 or 24"):
        truncated(20)
    with pytest.raises(ValueError, match="above 0"):
        Codec("x", 0)


def test_every_constant_has_unit_and_source():
    for name, constant in CONSTANTS.items():
        assert constant.unit, name
        assert len(constant.source) > 10, name
        assert constant.value > 0, name


def test_rates_of_rtl_are_those_that_were_placed():
    records = json.loads(Path(flow.__file__).with_name("baseline.json").read_text())
    units = {"gbps": 1e9 / 8, "fmax_mhz": 1e6}
    placed = {name: one for name, one in CONSTANTS.items() if one.placed}
    assert len(placed) >= 7
    for name, constant in placed.items():
        block, field = constant.placed
        record = records[f"{block} LFE5U-85F-8"]
        assert constant.value == pytest.approx(record[field] * units[field], rel=1e-9), name


def test_no_constant_lies_idle():
    """Each is asked for by name somewhere, or as a device's throughput."""
    folders = [Path(training.__file__).parent, Path(reproduce.__file__).parent]
    text = "".join(
        path.read_text()
        for folder in folders
        for path in folder.glob("*.py")
        if path.name != "constants.py"
    )
    named = set(re.findall(r'"([\w.-]+)"', text))
    named |= {f"{name}.resnet50" for name in named}
    assert not sorted(set(CONSTANTS) - named)
