"""Rows as the reader offers them are those that the golden reader finds in the table."""

from dataclasses import replace

import numpy as np
import pytest
from amaranth.hdl import Const, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.schedule.row_reader import FAULTS, RowReader, Setup, table_members
from gradnic.models.schedule import builders, topology
from gradnic.models.schedule import row_reader as golden
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.schedule.scheduler import fields_of, load

from gradnic.interface.schedule_table import GATHER, MAX_SENDS, NOP, REDUCE, ROW, Layout

LAYOUT = replace(Layout.for_nodes(16, chunks=8), peer=5)
DEPTH, N_CHUNKS = 64, 128
BEGIN = 6  # cycle
LATENCY = 11  # from `begin` to the first row: 10 from its address
REPORTS = {"ended": 1, "failing": 1, "fault": 3, "fault_row": 6, "fault_chunk": 7}
TABLES = [("torus:4x4", "multitree"), ("mesh:4x4", "overlapped")]
IDLE = 600  # cycles in which all rows vanish


class Reader(wiring.Component):
    """The reader, and somebody for whom each row that is taken is no longer under way."""

    def __init__(self):
        self.reader = RowReader(LAYOUT, DEPTH, N_CHUNKS)
        super().__init__(
            {
                **table_members(LAYOUT, DEPTH, 1),
                "setup": In(Setup(LAYOUT, DEPTH, N_CHUNKS)),
                "begin": In(1),
                "rows": Out(stream.Signature(self.reader.shape)),
                "reports": Out(data.StructLayout(REPORTS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = self.reader
        wiring.connect(m, reader.rows, wiring.flipped(self.rows))
        m.d.sync += reader.entered.eq(self.rows.valid & self.rows.ready)
        names = ("table_en", "table_addr", "table_data", "setup", "begin")
        m.d.comb += [getattr(reader, name).eq(getattr(self, name)) for name in names]
        m.d.comb += [
            self.reports[name].eq(getattr(reader, name)) for name in self.reports.shape().members
        ]
        return m


@pytest.fixture(scope="module")
def model():
    return batch.build(Reader())


def setup_of(rng):
    """A round of one pass, or of several over chunks that move on."""
    repeats, stages = int(rng.choice([1, 2, 5])), int(rng.choice([1, 2, 4]))
    chunks = int(rng.choice([1, N_CHUNKS, rng.integers(1, N_CHUNKS + 1)]))
    stride = chunks // repeats if repeats > 1 else 0
    return golden.Setup(
        rows=int(rng.choice([1, DEPTH, rng.integers(1, DEPTH + 1)])),
        chunks=chunks,
        live=int(rng.choice([chunks, 0, rng.integers(chunks + 1)])),
        peers=int(rng.integers(1, 17)),
        stride=stride,
        repeats=repeats,
        iterations=repeats + stages - 1,
        lockstep=int(rng.integers(2)),
    )


def table(rng, setup, *, wrong):
    """Rows for a setup; a share of `wrong` is of any bits."""
    rows = np.zeros(setup.rows, ROW)
    stages = setup.iterations - setup.repeats + 1
    for row in rows:
        row["sends"] = -1
        if rng.random() < wrong / 4:
            for name in ROW.names[1:-1]:
                row[name] = rng.integers(2 ** getattr(LAYOUT, name))
            row["sends"][: rng.integers(MAX_SENDS + 1)] = rng.integers(32)
            continue
        op = row["op"] = rng.choice([REDUCE, GATHER, NOP], p=[0.5, 0.35, 0.15])
        row["repeat"] = rng.integers(stages + 1)
        last = setup.chunks - 1 - (setup.stride * (setup.repeats - 1) if row["repeat"] else 0)
        row["first"] = first = rng.integers(last + 1)
        row["count"] = min(int(rng.choice([0, 1, 5, 2**LAYOUT.count - 1])), last - first)
        n = {REDUCE: rng.integers(2), GATHER: rng.integers(1, 5), NOP: 0}[int(op)]
        row["sends"][:n] = rng.integers(setup.peers, size=n)
        row["bar"], row["wait"] = rng.random() < 0.1, rng.choice([0, 1, rng.integers(16)])
        row["step"], row["rank"] = rng.choice([0, 1, 2]), rng.integers(16)
        row["flow"] = rng.integers(2**LAYOUT.flow)
        if rng.random() < wrong:
            fault = int(rng.integers(3))
            if fault == 0 and n:
                row["sends"][n - 1] = setup.peers  # one that the node has not
            elif fault == 1:
                row["first"] = min(setup.chunks, N_CHUNKS - 1)  # or it ends behind the tensor
                row["count"] = 2**LAYOUT.count - 1
            else:
                row["op"] = 3
    return rows


def known(fields, *, nop):
    """Of a row's fields those that mean something: nothing is sent by a NOP."""
    names = ("nop", "steps", "hold", "row", "free", "single")
    return {n: int(fields[n]) for n in (*names, *(() if nop else ("double",)))}


def expected(rows, setup):
    """(rows that are offered, the fault that ends them or None)."""
    offered = []
    for item in golden.work(rows, setup):
        if isinstance(item, golden.Fault):
            return offered, item
        if item is not None:
            offered.append(item)
    return offered, None


def play(model, rows, setup, duty=1.0):
    instance = model.instance()
    load(instance, LAYOUT, rows)
    shape = Setup(LAYOUT, DEPTH, N_CHUNKS)
    value = Const.cast(shape.const(vars(setup))).value
    raw = np.frombuffer(value.to_bytes(-(-shape.size // 8), "little"), np.uint8)
    begin = [0] * BEGIN + [1, 0]
    return instance.run(
        {},
        signals={"setup": raw[None], "table_en": 0, "begin": begin},
        stalls={"rows": duty},
        trace=["reports"],
        idle_cycles=IDLE,
    )


def check(run, rows, setup):
    """AssertionError where the circuit differs; the fault."""
    shape = RowReader(LAYOUT, DEPTH, N_CHUNKS).shape
    offered, fault = expected(rows, setup)
    got, message = run.unpack("rows"), shape["message"].shape
    assert len(got["row"]) == len(offered)
    for k, work in enumerate(offered):
        free = work.nop or (not work.message.gather and not work.message.wait)
        count = work.message.count
        wanted = {"nop": work.nop, "steps": work.steps, "hold": work.hold, "row": work.row}
        wanted |= {"free": free, "single": free or count == 0, "double": count == 1}
        nop = work.nop
        assert known({n: v[k] for n, v in got.items()}, nop=nop) == known(wanted, nop=nop)
        if nop:
            continue
        wanted = message.const(fields_of(work.message, LAYOUT))
        assert int(got["message"][k]) == Const.cast(wanted).value
    reports = run.traces["reports"]
    assert reports[-1] & 1  # ended
    failing = np.flatnonzero(reports >> 1 & 1)
    if fault is None:
        assert not len(failing)
        return None
    (at,) = failing
    told = int(reports[at]) >> 2
    assert (told & 7, told >> 3 & 63, told >> 9) == (fault.code, fault.row, fault.chunk % 128)
    return FAULTS[fault.code]


@pytest.mark.parametrize("duty", [1.0, 0.3])
def test_rows_and_faults_equal_the_golden_ones(model, duty):
    rng = stimulus.rng("row reader", duty)
    faults = set()
    for turn in range(40):
        setup = setup_of(rng)
        rows = table(rng, setup, wrong=0.05 * (turn % 2))
        faults.add(check(play(model, rows, setup, duty), rows, setup))
    assert faults == {None, "operation", "chunk", "peer"}


@pytest.mark.parametrize(
    ("network", "algorithm"), [("torus:4x4", "multitree"), ("mesh:4x4", "overlapped")]
)
def test_tables_of_algorithms(model, network, algorithm):
    schedule = builders.build(topology.parse(network), algorithm)
    if algorithm == "overlapped":
        schedule = replace(schedule, repeats=5)
    whole = compile_table(schedule)
    for node in (0, 5):
        setup = golden.setup_of(whole, node)
        assert check(play(model, whole.of(node), setup), whole.of(node), setup) is None


def test_a_row_a_cycle(model):
    rng = stimulus.rng("row rate")
    setup = golden.Setup(rows=DEPTH, chunks=8, live=8, peers=2, lockstep=1)
    rows = table(rng, setup, wrong=0)
    rows["repeat"] = 0
    run = play(model, rows, setup)
    check(run, rows, setup)
    np.testing.assert_array_equal(run.taken["rows"], BEGIN + LATENCY + np.arange(DEPTH))
