"""Mutation campaigns: kills are checkers' kills, survivors are judged, and errors are no kills."""

import json
import re

import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from click.testing import CliRunner
from gradnic.sim.mutation import run as mutate
from gradnic.sim.proof import cone, equivalence

from gradnic.commands.mutate import command


class Adder(wiring.Component):
    """Adds one to a byte and says whether it passed a limit, with a part that nothing can see."""

    def __init__(self):
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(9))})

    def elaborate(self, platform):
        m = Module()
        step = Signal(8)
        unseen = Signal(8)
        m.d.comb += step.eq(self.i.p + 1)
        m.d.sync += unseen.eq(unseen ^ step)
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.p[:8].eq(step)]
            m.d.sync += self.o.p[8].eq((step > 200) | ((step == 7) & (unseen == unseen + 1)))
        m.d.comb += self.i.ready.eq(self.o.ready | ~self.o.valid)
        return m


def compare(model, values):
    step = (values + 1) % 256
    wanted = step | ((step > 200).astype(np.int64) << 8)
    model.run({"i": model.pack("i", values)}, stalls={"o": 0.5}).check(o=model.pack("o", wanted))


def thorough(model):
    compare(model, np.arange(256))
    compare(model, np.random.default_rng(1).permutation(256))


def careless(model):
    compare(model, np.array([1, 2, 3, 1]))


def impossible(model):
    compare(model, np.arange(256))
    raise AssertionError("never right")


def clumsy(model):
    got = model.run({"i": model.pack("i", np.arange(256))}, max_cycles=4000)
    if len(got.outputs["o"]) != 256 or int(got.outputs["o"][0, 0]) != 1:
        raise OSError("disk full")


def play(test, count=40, **options):
    explained = options.pop("explained", {})
    reasons = {name: options.pop(name, {}) for name in ("argued", "exhausted")}
    campaign = mutate.Campaign("adder", Adder, test, explained, **reasons)
    return mutate.run(campaign, count=count, **options)


@pytest.fixture(scope="module")
def report():
    return play(thorough)


def test_all_mutants_that_matter_die(report):
    assert report["count"] == 40
    assert report["killed"] + report["equivalent"] == 40, report
    assert report["killed"] > 20
    assert report["equivalent"] > 5  # of the part that nothing can see
    assert report["score"] == 1
    assert report["open"] == report["errors"] == 0


def test_without_proofs(report):
    quick = play(thorough, prove=False)
    assert quick["killed"] == report["killed"]
    assert quick["killed"] / 40 <= quick["score"] < 1


def test_every_mutant_has_its_line(report):
    text = json.dumps(report)
    assert "test_run.py:" in text
    indices = [m["index"] for m in report["mutants"]]
    assert indices == list(range(1, 41))
    assert report["mutants"][9]["replay"] == "gradnic mutate adder --count 40 --seed 1 --only 10"
    killed = [m for m in report["mutants"] if m["verdict"] == "killed"]
    assert all(m["reason"] for m in killed)
    assert {m["reason"].split(":")[0] for m in killed} >= {"o"}
    assert not any(" -port CLK " in m["command"] for m in report["mutants"])


def test_patterns_that_no_mutant_has():
    mutants = [mutate.Mutant(1, each) for each in mutate.prepare(Adder(), None, 1)[2]]
    turned = next(m.text for m in mutants if " -ctrlbit " in m.text)
    turned = re.sub(r"-ctrlbit \d+", "-ctrlbit 99", turned)  # another seed draws another bit
    has = {re.escape(turned): "", r"-mode const1 .*step == 7": ""}
    argued = has | {r"-mode const1 .*step == 8": "", r"-ctrlbit 99 .*step == 8": ""}
    explained = {turned: "", turned + "!": ""}
    campaign = mutate.Campaign("adder", Adder, thorough, explained, argued=argued)
    assert mutate.unmatched(campaign) == [*list(argued)[len(has) :], turned + "!"]


def test_choices_without_a_line_are_named_by_what_they_feed():
    _, _, commands, netlist = mutate.prepare(Adder(), None, 1)
    texts = [m.text for m in mutate.listed(commands, netlist)]
    nameless = [t for t in texts if not re.search(r" -wire |\.py:", t)]
    assert {t.split(" -given ")[1] for t in nameless} == {
        "i__ready,o__payload -feeds o__payload",
        "i__ready,o__payload,step -feeds o__payload",
        "i__ready,i__valid,o__valid -feeds o__valid",
        *(f"rst -feeds {name}" for name in ("o__payload", "o__valid", "unseen")),
    }


class Narrow(wiring.Component):
    """Shows the low half of a sum; nothing that the high half does can be seen."""

    def __init__(self):
        super().__init__({"i": In(8), "o": Out(4)})

    def elaborate(self, platform):
        m = Module()
        total = Signal(8)
        m.d.sync += total.eq(total + self.i)
        m.d.comb += self.o.eq(total[:4])
        return m


def test_what_reaches_no_output():
    _, _, commands, netlist = mutate.prepare(Narrow(), 30, 1)
    for text in commands:
        low = int(text.split("-portbit ")[1].split()[0]) < 4
        assert netlist.matters(text) == (low or " -port SRST " in text), text


class Half(wiring.Component):
    """Shows the low half of the bytes of a memory."""

    def __init__(self):
        super().__init__({"i": In(8), "at": In(2), "write": In(1), "o": Out(4)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Memory(shape=8, depth=4, init=[])
        write, read = words.write_port(), words.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(self.at),
            write.data.eq(self.i),
            write.en.eq(self.write),
            read.addr.eq(self.at),
            self.o.eq(read.data),
        ]
        return m


def test_a_write_enable_reaches_its_own_bit():
    _, _, _, netlist = mutate.prepare(Half(), 1, 1)
    (name,) = (name for name, cell in netlist.cells.items() if cell["type"] == "$mem_v2")
    for bit in range(8):
        command = f"mutate -mode const1 -module top -cell {name} -port WR_EN -portbit {bit}"
        assert netlist.matters(command) == (bit < 4)


def test_a_constant_that_is_one_already_does_not_matter():
    gate = {
        "type": "$and",
        "parameters": {"A_SIGNED": "0", "B_SIGNED": "0"},
        "port_directions": {"A": "input", "B": "input", "Y": "output"},
        "connections": {"A": [2, 3], "B": ["0", "1"], "Y": [4, 5]},
    }
    ports = {"y": {"direction": "output", "bits": [4, 5]}}
    nets = {"y": {"bits": [4, 5], "attributes": {}}}
    netlist = cone.Netlist({"cells": {"g": gate}, "ports": ports, "netnames": nets})
    command = "mutate -mode {} -module top -cell \\g -port {} -portbit {}"
    assert not netlist.matters(command.format("const0", "B", 0))
    assert not netlist.matters(command.format("const1", "B", 1))
    assert netlist.matters(command.format("const1", "B", 0))
    assert netlist.matters(command.format("const0", "A", 0))
    assert netlist.matters(command.format("inv", "B", 1))


def test_what_reaches_no_output_survives():
    """So campaigns do not play it."""

    def bench(model):
        values = np.arange(200) * 7 % 256
        signals = {"i": values.astype(np.uint8)}
        run = model.run(signals=signals, trace=["o"], drain=False, max_cycles=200)
        assert (run.traces["o"] == (np.cumsum(values) - values) % 16).all()

    prepped, ports, commands, netlist = mutate.prepare(Narrow(), 30, 1)
    mutants = [mutate.Mutant(i, command) for i, command in enumerate(commands, 1)]
    campaign = mutate.Campaign("narrow", Narrow, bench, {})
    fates = mutate._play(campaign, prepped, ports, mutants, range(30))
    seen = [netlist.matters(mutant.command) for mutant in fates]
    assert {m.verdict for m, one in zip(fates, seen, strict=True) if not one} == {"open"}
    assert "killed" in {m.verdict for m, one in zip(fates, seen, strict=True) if one}
    report = mutate.run(campaign, count=30, prove=False)
    assert report["equivalent"] == seen.count(False)
    assert report["killed"] == [m.verdict for m in fates].count("killed")


def test_one_mutant_alone(report):
    killed = next(m for m in report["mutants"] if m["verdict"] == "killed")
    alone = play(thorough, only=killed["index"], jobs=1)
    assert alone["mutants"] == [killed]


def test_a_careless_bench_leaves_survivors_open(report):
    result = play(careless)
    fates = zip(report["mutants"], result["mutants"], strict=True)
    unfair = [
        b["text"] for a, b in fates if (a["verdict"], b["verdict"]) == ("killed", "equivalent")
    ]
    assert unfair == []  # a proof that calls a mutant equivalent, which a bench can tell
    assert result["open"] > 0
    assert result["score"] < 1
    survivor = next(m for m in result["mutants"] if m["verdict"] == "open")
    cell = survivor["text"].split("-cell ")[1].split()[0]
    bare = play(careless, prove=False)
    explained = play(careless, explained={f"-cell {cell} ": "too few values"}, prove=False)
    assert explained["explained"] > 0
    assert explained["open"] < bare["open"]
    assert explained["score"] == pytest.approx(bare["score"])  # a reason is no kill


def pattern_of(report, verdict, reason):
    """Matches the text of the first mutant of a verdict, and of no other one."""
    chosen = next(
        m for m in report["mutants"] if (m["verdict"], m["reason"][:4]) == (verdict, reason)
    )
    return "^" + re.escape(chosen["text"]) + "$"


def test_an_argument_takes_the_place_of_a_proof(report):
    argued = {pattern_of(report, "equivalent", "prov"): "nobody sees it"}
    result = play(thorough, argued=argued, prove=False)
    assert result["argued"] == 1
    assert "argued: nobody sees it" in {m["reason"] for m in result["mutants"]}


def test_a_kill_refutes_an_argument(report):
    argued = {pattern_of(report, "killed", "o: b"): "nobody sees it"}
    result = play(thorough, argued=argued, prove=False)
    assert result["errors"] == 1
    assert result["killed"] == report["killed"] - 1
    wrong = next(m for m in result["mutants"] if m["verdict"] == "error")
    assert wrong["reason"] == "killed, though it is said that nobody sees it"


def test_survivors_in_a_part_that_is_played_completely(report):
    result = play(thorough, exhausted={" -cell ": "every byte is played"}, prove=False)
    assert result["killed"] == report["killed"]
    assert result["killed"] + result["equivalent"] == 40
    assert "argued: every byte is played" in {m["reason"] for m in result["mutants"]}
    assert result["open"] == result["errors"] == 0


def test_no_proof_for_what_a_bench_kills():
    campaign = mutate.load("fifo")
    report = mutate.run(campaign, count=30, prove=False)
    _, _, _, netlist = mutate.prepare(campaign.component(), 30, 1)
    killed = [m["command"] for m in report["mutants"] if m["verdict"] == "killed"]
    for text in killed[:10]:
        assert equivalence.proven(netlist, {"o__payload": "o__valid"}, text, timeout=20) == "", text


class Twice(wiring.Component):
    """Remembers a byte in two registers and a memory, and shows whether they differ: never."""

    def __init__(self):
        super().__init__({"i": In(8), "at": In(2), "write": In(1), "o": Out(1), "seen": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Memory(shape=8, depth=4, init=[])
        write, read = words.write_port(), words.read_port(domain="comb")
        one, two, count = Signal(8), Signal(8), Signal(4, name="count")
        m.d.sync += [one.eq(one + self.i), two.eq(self.i + two)]
        with m.If(count < 9):
            m.d.sync += count.eq(count + 1)
        m.d.comb += [
            write.addr.eq(self.at),
            write.data.eq(one),
            write.en.eq(self.write),
            read.addr.eq(self.at),
            self.o.eq((one != two) | (count > 9)),
            self.seen.eq(read.data),
        ]
        return m


@pytest.mark.parametrize(
    ("pattern", "equivalent"),
    [
        ("-port WR_DATA", False),
        ("-port RD_ADDR", False),
        ("-port RD_DATA", False),
        ("-mode inv .* -wire count", False),
        ("-mode const0 .* -wire count -wirebit 3", True),
    ],
)
def test_proofs_of_what_two_registers_and_a_memory_hold(pattern, equivalent):
    _, _, commands, netlist = mutate.prepare(Twice(), 150, 1)
    chosen = [text for text in commands if re.search(pattern, text)][:3]
    assert chosen
    for text in chosen:
        assert bool(equivalence.proven(netlist, {}, text)) == equivalent, text


class Hidden(wiring.Component):
    """A byte's upper bits two cycles later, nothing if the highest of them was 1."""

    def __init__(self):
        super().__init__({"i": In(8), "o": Out(8)})

    def elaborate(self, platform):
        m = Module()
        byte = Signal(8)
        upper = Signal(5)
        hidden = Signal(2)
        m.d.sync += [
            byte.eq(self.i),
            upper.eq(byte >> 3),
            hidden.eq(hidden << 1 | self.i[7]),
            self.o.eq(Mux(hidden[1], 0, upper)),
        ]
        return m


@pytest.mark.parametrize(
    ("bit", "beyond", "equivalent"),
    [(7, 0, False), (7, 1, True), (7, None, True), (6, 1, False), (2, 0, True)],
)
def test_proofs_of_what_vanishes_some_registers_later(bit, beyond, equivalent):
    _, _, commands, netlist = mutate.prepare(Hidden(), 130, 1)
    cell = re.search(r" -cell (\S+) -port Q \S+ \d+ -wire byte ", "".join(commands))[1]
    command = f"mutate -mode const0 -module top -cell {cell} -port Q -portbit {bit}"
    pair = equivalence.Pair(netlist, {}, command, depth=3, beyond=beyond)
    assert equivalence._never_differ(pair, equivalence.INDUCTION, 20) == equivalent


class Remembers(wiring.Component):
    """A memory of which a bit is 0 and one is 1 in every word, and shows what their words say."""

    def __init__(self):
        super().__init__({"i": In(4), "at": In(1), "o": Out(4), "never": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Memory(shape=6, depth=2, init=[0b100000] * 2)
        write, read = words.write_port(), words.read_port(domain="comb")
        held, zero = Signal(6, init=0b100000), Signal()
        m.d.sync += [held.eq(read.data), zero.eq(zero & self.i[0])]
        m.d.comb += [
            write.addr.eq(self.at),
            write.data.eq(Cat(self.i, zero, held[5])),
            write.en.eq(self.i[1]),
            read.addr.eq(self.at),
            self.o.eq(Mux(held[5], held[:4], ~held[:4])),
            self.never.eq(held[4] & (held[:4] == 5)),
        ]
        return m


def test_constants_through_registers_and_memories():
    _, _, _, netlist = mutate.prepare(Remembers(), 1, 1)
    words = next(cell for cell in netlist.cells.values() if cone.is_store(cell))
    pins = words["connections"]
    assert [netlist.constants.get(bit) for bit in pins["RD_DATA"]] == [None] * 4 + ["0", "1"]
    ports = netlist.ports
    assert [netlist.constants.get(bit) for bit in ports["o"]["bits"]] == [None] * 4
    assert netlist.constants[ports["never"]["bits"][0]] == "0"
    held = next(n for n, c in netlist.cells.items() if len(c["connections"].get("Q", "")) == 6)
    for mode, bit, equivalent in (("const1", 5, True), ("const0", 4, True), ("const1", 4, False)):
        command = f"mutate -mode {mode} -module top -cell \\{held} -port Q -portbit {bit}"
        assert bool(equivalence.proven(netlist, {}, command)) == equivalent, command


@pytest.mark.parametrize(
    ("kind", "a", "b", "wanted"),
    [
        ("$and", [2, 3, 4], ["0", "1", 4], ["0", None, None]),
        ("$or", [2, "0", 4], ["1", "0", 4], ["1", "0", None]),
        ("$xor", ["1", "0", 4], ["1", "1", "0"], ["0", "1", None]),
        ("$not", ["1", "0", 4], [], ["0", "1", None]),
        ("$reduce_and", [2, "0"], [], ["0"]),
        ("$reduce_or", [2, "1"], [], ["1"]),
        ("$logic_not", ["0", "0"], [], ["1", "0"]),
        ("$logic_not", [2, "1"], [], ["0"]),
        ("$reduce_bool", [2, "0"], [], [None]),
        ("$add", ["0"], ["0"], [None]),
        ("$and", ["0"], ["1", "1", "0"], ["0", None, "0"]),
    ],
)
def test_constants_of_gates(kind, a, b, wanted):
    y = [*range(10, 10 + len(wanted))]
    gate = {
        "type": kind,
        "parameters": {},
        "port_directions": {"A": "input", "B": "input", "Y": "output"},
        "connections": {"A": a, "B": b, "Y": y} if b else {"A": a, "Y": y},
    }
    nets = {"y": {"bits": y, "attributes": {}}}
    netlist = cone.Netlist({"cells": {"g": gate}, "ports": {}, "netnames": nets})
    assert [netlist.constants.get(bit) for bit in y] == wanted


def test_a_failing_control_stops_everything():
    with pytest.raises(RuntimeError, match="adder: the unmutated circuit fails: never right"):
        play(impossible)


def test_errors_are_no_kills():
    result = play(clumsy, prove=False)
    assert result["errors"] > 0
    assert any(m["reason"] == "OSError: disk full" for m in result["mutants"])


def test_refuses():
    with pytest.raises(ValueError, match=r"count must be within 1..\d+, not 100000"):
        play(thorough, count=100_000)
    with pytest.raises(ValueError, match=r"only must be within 1..40, not 41"):
        play(thorough, only=41)


def test_command(tmp_path):
    done = CliRunner().invoke(command, ["fifo", "--count", "100", "--json", str(tmp_path / "r")])
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "r").read_text())
    assert result["block"] == "fifo"
    assert result["control"] == "passes"
    assert result["killed"] + result["equivalent"] == result["count"] == 100
