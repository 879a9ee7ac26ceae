"""Worker-aggregator, parameter servers and rings in groups: proven, and summed bit for bit."""

import numpy as np
import pytest
from gradnic.models.schedule.all_reduce import all_reduce
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.builders.servers import grouped_rings, grouped_servers, servers
from gradnic.models.schedule.checker import check
from gradnic.models.schedule.topology import parse

PAIRS = [[0, 1], [2, 3], [4, 5]]
CASES = {
    "aggregator": lambda: servers(parse("fattree:5x1"), at=[4]),
    "aggregator in chunks": lambda: servers(parse("fattree:5x1"), at=[0], chunks=4),
    "two servers": lambda: servers(parse("fattree:6x1"), at=[1, 4], chunks=2),
    "all serve": lambda: servers(parse("fattree:4x2")),
    "groups": lambda: grouped_servers(parse("fattree:6x1"), PAIRS),
    "uneven groups": lambda: grouped_servers(parse("fattree:6x1"), [[5], [0, 1, 2], [3, 4]]),
    "rings": lambda: grouped_rings(parse("fattree:6x1"), PAIRS),
    "rings of four": lambda: grouped_rings(parse("fattree:4x2"), np.arange(16).reshape(4, 4)),
}


@pytest.mark.parametrize("case", CASES)
def test_sums_are_right_on_every_node(case):
    schedule = CASES[case]()
    table = compile_table(schedule)
    check(table, schedule.topology)
    rng = np.random.default_rng(1)
    values = rng.integers(-1000, 1000, (table.n_nodes, 333))
    np.testing.assert_array_equal(
        all_reduce(table, values), np.broadcast_to(values.sum(axis=0), values.shape)
    )


def test_rings_in_groups_are_as_short_as_one_ring_of_bytes():
    """2 (N - 1) / N of the tensor leaves every node, in 2 (size - 1) + 2 (groups - 1) steps."""
    schedule = grouped_rings(parse("fattree:4x2"), np.arange(16).reshape(4, 4))
    assert schedule.steps == 12
    sent = np.bincount(schedule.transfers["src"], schedule.transfers["count"], 16)
    np.testing.assert_array_equal(sent, 30)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda t: servers(t, at=[]), "servers"),
        (lambda t: servers(t, at=[6]), "servers"),
        (lambda t: servers(t, at=[1, 1]), "servers"),
        (lambda t: servers(t, chunks=0), "chunks"),
        (lambda t: grouped_servers(t, [[0, 1], [2, 3]]), "exactly once"),
        (lambda t: grouped_rings(t, [[0, 1, 2], [3, 4], [5]]), "one size"),
        (lambda t: grouped_rings(t, [[0, 1, 2, 3, 4, 5]]), "one size"),
    ],
)
def test_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make(parse("fattree:6x1"))
