"""The message scheduler: circuit and golden model leave each row in the same cycle."""

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from gradnic.hdl.scheduler import Scheduler
from gradnic.models import schedules, topology
from gradnic.models import scheduler as golden
from gradnic.models.schedules.rows import compile_table
from gradnic.sim import batch
from gradnic.sim.scheduling import Player, replay
from gradnic.table import GATHER, NOP, REDUCE, ROW, Layout

LAYOUT = replace(Layout.for_nodes(16, chunks=8), peer=5)
DEPTH, N_CHUNKS = 256, 128


@pytest.fixture(scope="module")
def circuit():
    """(batch model, component) for up to 16 nodes and 128 chunks."""
    component = Scheduler(LAYOUT, depth=DEPTH, n_chunks=N_CHUNKS, n_ports=4)
    return batch.build(component), component


def player(rows, setup):
    return Player(LAYOUT, rows, setup, depth=DEPTH, n_chunks=N_CHUNKS)


def table_of(network, algorithm, *, repeats=None, **options):
    schedule = schedules.build(topology.parse(network), algorithm)
    if repeats:
        schedule = replace(schedule, repeats=repeats)
    return compile_table(schedule, **options)


def rows_of(*rows):
    """ROW array: dicts of what is not 0."""
    table = np.zeros(len(rows), ROW)
    table["sends"] = -1
    for i, row in enumerate(rows):
        for name, value in row.items():
            if name == "sends":
                table["sends"][i, : len(value)] = value
            else:
                table[name][i] = value
    return table
