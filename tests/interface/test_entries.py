"""Entries of tables, as pages tell them: what drivers write, bit by bit, is what they say."""

from dataclasses import replace

import pytest
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.host.jobs import JobDriver
from gradnic.host.offload_driver import OffloadDriver
from gradnic.interface import aggregator, entries, inline, job_card, offload, params
from gradnic.interface.params import Jobs, Offload
from gradnic.interface.schedule_table import ROW_COLUMNS, Layout

MAPS = (aggregator.REGISTERS, inline.REGISTERS, offload.REGISTERS, job_card.REGISTERS,
        job_card.HOSTED)  # fmt: skip
THC = Jobs(n_bytes=16, thc=1, bits=8, n_ports=4, queues=8)


def written(kind, card, use):
    """[(table, address, {field: value})] of all entries that `use` has a driver write."""
    words, found = {}, []
    known = {one.number: one for one in entries.entries(card)}
    told = kind(lambda at: words.get(at, 0), words.__setitem__)
    told._told = {"ports": card.n_ports, "ranks": card.n_ranks, "bytes": card.n_bytes,
                  "rows": card.n_rows, "chunks": card.n_chunks, "peers": entries.N_PEERS,
                  "n_tables": 4}  # fmt: skip
    status = told.map["status"]
    words[status.offset] = sum(
        (1 << f.width) - 1 << f.lsb
        for f in status.fields
        if f.name in ("thc", "any_bits", "queues")
    )

    def keep(table, address, entry):
        fields = known[table].places
        assert entry >> sum(width for _, width in fields.values()) == 0
        values = {f: entry >> low & (1 << width) - 1 for f, (low, width) in fields.items()}
        found.append((table, address, values))

    told._write_entry, told._toggle = keep, 0
    use(told)
    return found


def test_a_table_and_its_neighbors_are_written_as_the_page_says():
    table = compile_table(build(parse("torus:2x2"), "multitree"))
    rows, layout = table.of(1), Layout.for_card(THC.n_nodes, THC.n_chunks)

    def use(driver):
        driver.add_neighbor(3, node=9, port=2, mac=0x0203_0405_0607, ip=0x0A00_0001)
        driver.load_table(
            2, layout.pack(rows), layout.row_bytes,
            [({0: (3, 2, 77), 2: (1, 4, 78)}, None), ({}, 5)], [3, 4], n_chunks=4, leaves=5,
            repeats=2, stages=3, stride=2, lockstep=1, collective=3,
        )  # fmt: skip

    found = written(JobDriver, THC, use)
    neighbor = {"valid": 1, "node": 9, "port": 2, "mac": 0x0203_0405_0607, "ip": 0x0A00_0001}
    assert found[0] == (offload.Table.NEIGHBORS, 3, neighbor)
    for k, row in enumerate(rows):
        number, at, told = found[1 + k]
        assert (number, at) == (offload.Table.ROWS, 2 * THC.n_rows + k)
        sends = [told[f"peer{j}"] if told[f"sends{j}"] else -1 for j in range(4)]
        assert [told[name] for name in ROW_COLUMNS[1:-1]] == [int(v) for v in list(row)[1:-1]]
        assert sends == row["sends"].tolist()
    one, two, *peers, last = found[1 + len(rows) :]
    assert one[:2] == (offload.Table.PLACES, 2 * THC.n_chunks)
    up = {"up0": 1, "neighbor0": 3, "leaves0": 2, "flow0": 77, "up2": 1, "neighbor2": 1,
          "leaves2": 4, "flow2": 78}  # fmt: skip
    assert {name: value for name, value in one[2].items() if value} == up
    assert {name: value for name, value in two[2].items() if value} == {"down": 1, "from": 5}
    assert peers == [(offload.Table.PEERS, 2 * entries.N_PEERS + k, {"neighbor": 3 + k})
                     for k in range(2)]  # fmt: skip
    assert last == (
        job_card.JOBS, 2,
        {"valid": 1, "rows": len(rows), "peers": 2, "lockstep": 1, "chunks": 4, "stride": 2,
         "repeats": 2, "iterations": 4, "leaves": 5, "collective": 3, "offset": 0, "scale": 0,
         "code": 0},
    )  # fmt: skip


def test_levels_cells_and_tags_are_written_as_the_page_says():
    def use(driver):
        driver.set_thc([0, 1, 5, 9], block=64, clip=700, index_p=(0, 0))
        driver.tag(threshold=200)

    found = written(JobDriver, THC, use)
    by_table = {}
    for number, at, told in found:
        by_table.setdefault(number, {})[at] = tuple(told.values())
    assert by_table[job_card.LEVELS] == {0: (0,), 1: (1,), 2: (5,), 3: (9,)}
    assert by_table[job_card.CELLS][7] == (2, 2, 4)
    assert by_table[job_card.CELLS][9] == (3, 0, 0)
    assert by_table[offload.Table.DSCPS][2 * 7 + 1] == (0,)
    assert by_table[offload.Table.LAYERS][7] == (7,)
    assert by_table[offload.Table.THRESHOLD] == {0: (200,)}
    assert all(value[0] == 0 for value in by_table[job_card.JOBS].values())  # unloaded


def test_a_card_of_rounds_has_allowances_and_checks():
    card = Offload(n_ports=1)
    found = written(
        OffloadDriver, card, lambda driver: (driver.allow(3, 1 << 39), driver.set_checks([5]))
    )
    assert found == [(offload.Table.ALLOWANCES, 3, {"bytes": 1 << 39}),
                     (offload.Table.CHECKS, 0, {"check": 5})]  # fmt: skip
    names = {one.name for one in entries.entries(card)}
    assert not names & {"table", "cell", "level", "queue"}
    assert "check" not in {one.name for one in entries.entries(replace(card, thc=0))}


@pytest.mark.parametrize("preset", sorted(params.PRESETS))
def test_entries_fit_their_words_and_the_page_names_each_field_once(preset):
    card = params.PRESETS[preset]
    page = entries.markdown(card)
    assert bool(page) == isinstance(card, Offload)
    if not page:
        return
    for one in entries.entries(card):
        assert sum(width for _, width, _ in one.fields) <= 32 * offload.TABLE_WORDS
        for name, *_ in one.fields:
            lines = [x for x in page.splitlines() if x.startswith(f"| {one.number} | {one.name} |")]
            assert sum(f"| {name} |" in line for line in lines) == 1


@pytest.mark.parametrize("register_map", MAPS, ids=lambda one: one.name)
def test_every_event_may_interrupt(register_map):
    names = {register.name for register in register_map}
    if "interrupts" in names:
        events = sum(field.width for field in register_map["events"].fields)
        assert register_map["interrupts"].fields[0].width == events
