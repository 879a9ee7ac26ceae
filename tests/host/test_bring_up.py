"""Cards with jobs brought up from tables: registers; sums are in offload/test_card_cluster."""

import pytest
from gradnic.models.offload.cluster import addresses
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.host.bring_up import bring_up
from gradnic.host.jobs import JobDriver
from gradnic.interface.job_card import HOSTED, JOBS, REGISTERS
from gradnic.interface.offload import Table
from gradnic.interface.schedule_table import Layout

THC = {"levels": range(16), "block": 1024, "clip": 551, "index_p": (0, 0)}


class Words(dict):
    """Registers of a card, and the entries that were written to its tables."""

    def __init__(self):
        shown = sum(one.mask for one in REGISTERS["status"].fields if one.name in ("idle", "thc"))
        super().__init__({REGISTERS["longest"].offset: 22, REGISTERS["status"].offset: shown})
        self.entries = {}

    def write(self, at, word):
        if at == REGISTERS["table_write"].offset:
            fields = REGISTERS["table_write"].fields
            table = {f.name: word >> f.lsb & (1 << f.width) - 1 for f in fields}
            assert (word ^ self.get(at, 0)) & fields[-1].mask
            entry = self[REGISTERS["table_data_0"].offset]
            self.entries[table["table"], table["address"]] = entry
        self[at] = word


def ready(node, *, spelling="ring:3", algorithm="ring", words=None, n_copies=1, **changes):
    """(words, driver) of a card; of a ring of three by default."""
    topology = parse(spelling)
    table = compile_table(build(topology, algorithm))
    words = Words() if words is None else words
    sizes = {"n_ports": 3, "n_ranks": 4, "n_bytes": 64, "n_rows": 512, "n_chunks": 64}
    sizes |= {"n_active": 2, "n_engines": 2, "n_tables": 4}
    driver = JobDriver(lambda at: words.get(at, 0), words.write, n_peers=16, **sizes)
    settings = {"tenant": 7, "memory": (4096, 8192), "landing": (0, 1 << 16), "n_elems": 1024}
    book = addresses(table, topology)[node]
    layout = Layout.for_nodes(topology.n_nodes, ports=4, chunks=1)
    bring_up(driver, node, (table,) * n_copies, book, layout, **(settings | changes))
    return words, driver


def test_registers_are_set():
    _, driver = ready(1, packet=320, watchdog=9)
    assert driver.get("mac_high") == {"value": 0x0200, "node": 1, "tenant": 7}
    assert driver.get("packet")["units"] == 20
    assert (driver.read("t_probe"), driver.read("watchdog")) == (4000, 9)
    assert (driver.read("source0_low"), driver.read("source0_beats")) == (4096, 128)
    assert (driver.read("landing1_low"), driver.read("landing")) == (1 << 16, 4 * 1024 // 16)
    assert (driver.nodes_of(0), driver.nodes_of(1)) == (3, None)
    driver.unload_table(0)
    assert driver.nodes_of(0) is None


def test_nothing_is_left_of_a_card_before():
    words, _ = ready(2, spelling="full:4", algorithm="dbtree", n_copies=3)
    before = {at for at, entry in words.entries.items() if entry & 1}
    assert {(Table.NEIGHBORS, 2), (JOBS, 2)} <= before
    words[HOSTED["host"].offset] = 1  # a host by frames was there
    ready(2, spelling="full:4", words=words)
    valid = {at: entry >> 1 & 0xFF for at, entry in words.entries.items() if entry & 1}
    neighbors = [node for (table, _), node in valid.items() if table == Table.NEIGHBORS]
    assert sorted(neighbors) == [1, 3]
    assert {number for table, number in words.entries if table == Table.NEIGHBORS} == {*range(16)}
    assert [number for table, number in valid if table == JOBS] == [0]
    assert words[HOSTED["host"].offset] == 0


@pytest.mark.parametrize(
    ("places", "peers", "said"),
    [(3, 0, "places must be 0 to 2, not 3"), (2, 17, "peers must be 0 to 16, not 17")],
)
def test_a_table_stays_within_its_part_of_memory(places, peers, said):
    _, driver = ready(0)
    with pytest.raises(ValueError, match=said):
        driver.load_table(
            1, bytes(4), 4, [({}, None)] * places, [0] * peers, n_chunks=2, leaves=1
        )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"packet": 100}, "packet must be a multiple of 16, not 100"),
        ({"packet": 368}, "packet must be 1 to 352, not 368"),
        ({"packet": 0}, "packet must be 1 to 352, not 0"),
        ({"memory": (32, 64)}, "address must be a multiple of 64, not 0x20"),
        ({"landing": (8, 1 << 16)}, "address must be a multiple of 64, not 0x8"),
        ({"landing": (0,)}, "landing must have an address for each of 2 engines, not 1"),
        ({"landing": (0, 1 << 16, 1 << 17)}, "landing must have an address .* not 3"),
        (
            {"landing": (16320, 0)},
            "landing must have 16384 bytes from each address on, not 0x0 and 0x3fc0",
        ),
        ({"n_elems": 1 << 28}, "n_elems must be 1 to 268435455, not 268435456"),
        ({"thc": THC}, "scratch must have an address for each of 2 contexts, not 0"),
        (
            {"thc": THC, "scratch": (0, 1024)},
            "scratch must have 1664 bytes from each address on, not 0x0 and 0x400",
        ),
        ({"n_copies": 5}, "number must be 0 to 3, not 4"),
        ({"tenant": 256}, "tenant must be 0 to 255, not 256"),
    ],
)
def test_what_does_not_fit_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        ready(0, **changes)
