"""The proof library: what it must refuse, and that no solver outlives its proof."""

import contextlib
import time
from pathlib import Path

import pytest
from amaranth.hdl import Assert, Cover, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.stream import steering
from gradnic.hdl.stream.beats import Beat, FrameBeat
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.stream.slice import Slice
from gradnic.sim.engine import tools
from gradnic.sim.proof import formal, solver


class Careless(wiring.Component):
    """Breaks one rule, by name."""

    def __init__(self, rule):
        self.rule = rule
        super().__init__({"i": In(stream.Signature(FrameBeat(4))), "o": Out(_OUT)})

    def elaborate(self, platform):
        m = Module()
        held = Signal(FrameBeat(4), reset_less=True)
        valid = Signal(reset_less=self.rule == "valid after reset")
        m.d.comb += [self.o.p.eq(held), self.o.valid.eq(valid)]
        m.d.comb += self.i.ready.eq(self.o.ready | ~valid)
        with m.If(self.i.ready):
            m.d.sync += [valid.eq(self.i.valid), held.eq(self.i.p)]
        if self.rule == "valid dropped":
            with m.If(~self.o.ready):
                m.d.sync += valid.eq(0)
        if self.rule == "payload changed":
            m.d.sync += held.last.eq(self.i.p.last)
        if self.rule == "keep":
            m.d.comb += self.o.p.keep.eq(held.keep & ~self.i.p.last)
        if self.rule == "stalled":
            m.d.comb += self.i.ready.eq(self.o.ready & self.o.valid)
        return m


_OUT = stream.Signature(FrameBeat(4))


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("valid after reset", "o: valid after reset"),
        ("valid dropped", "o: valid dropped before ready"),
        ("payload changed", "o: payload changed while stalled"),
        ("keep", "o: "),
        ("stalled", "i: stalled for more than 3 cycles"),
    ],
)
def test_each_rule_is_seen_broken(rule, text):
    failed = formal.refute(formal.Harness(Careless(rule), ready_within={"i": 3}), depth=8)
    assert failed.startswith(text)


def test_rules_hold_where_none_is_broken():
    result = formal.prove(formal.Harness(Careless(None), ready_within={"i": 0}), k=2)
    assert (result.method, result.depth, result.n_asserts, result.n_covers) == (
        "induction",
        2,
        5,
        2,
    )
    formal.check_outputs(FIFO(Beat(8), 4), depth=10)
    with pytest.raises(formal.ProofError, match="the seeded bug is not seen within 8 cycles"):
        formal.refute(formal.Harness(Careless(None)), depth=8)


def test_long_packets_are_seen():
    with pytest.raises(formal.ProofError, match="fails: o: packet of more than 2 beats"):
        formal.check_outputs(Slice(Beat(1)), max_beats={"o": 2}, depth=8)


class Vacuous(formal.Harness):
    """Has a cover that nothing reaches, and a true claim that is not inductive."""

    def describe(self, m):
        count = Signal(4)
        m.d.sync += count.eq(Mux(count == 5, 0, count + 1))
        m.d.comb += [Cover(count == 9, "nine"), Assert(count != 9, "not nine")]


def test_vacuous_and_open_claims_are_seen():
    with pytest.raises(formal.ProofError, match="not inductive: not nine; cover not reached: nine"):
        formal.prove(Vacuous(Slice(1)), k=2)


def test_solvers_end_with_the_proof(monkeypatch):
    models = []

    class Watched(solver.Model):
        def __enter__(self):
            models.append(self)
            return self

    monkeypatch.setattr(solver, "Model", Watched)
    with pytest.raises(tools.ToolError, match="did not end in time"):
        formal.check(formal.Conservation(FIFO(Beat(64), 16), capacity=17), depth=400, timeout=4)
    (model,) = models
    assert len(model.running) == 2  # base case and covers, each with a solver below it
    assert not model.folder.exists()
    deadline = time.monotonic() + 10
    while alive := _alive({process.pid for process, _ in model.running}):
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


def _alive(groups):
    """Processes of these groups, those apart that only wait to be collected; Linux only."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = file.read_text().rpartition(")")[2].split()[:3]
            if int(group) in groups and state != "Z":
                found.append(file.parent.name)
    return found


def test_twin_changes_one_place():
    twin = formal.twin(steering, "CHUNK = 128", "CHUNK = 64")
    assert (steering.CHUNK, twin.CHUNK) == (128, 64)
    with pytest.raises(ValueError, match="must have 'no such text' once, not 0 times"):
        formal.twin(steering, "no such text", "")
