"""Broken frames and an offload card: what is broken, what must become of it, and that it does."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models.offload.card import Card, Settings, Tensor
from gradnic.sim.engine import batch
from gradnic.sim.offload import breaker as offload_breaker
from gradnic.sim.offload import judge as offload_judge
from gradnic.sim.offload.breaker import Kind, Setting, breaks
from gradnic.sim.offload.fuzz_round import N_BROKEN, Round
from gradnic.sim.offload.stand import Stand

from gradnic.commands.fuzz import command
from gradnic.interface.formats import GRADNIC, UDP, Op
from gradnic.interface.offload import Drop, Subtype

GATE = {Drop.BAD, Drop.LENGTH, Drop.CHECKSUM, Drop.FORMAT, Drop.OWNER}


class OneByOne:
    """As `gradnic.sim.engine.bulk.Bulk`, one copy after the other: slow, but built sooner."""

    def __init__(self, component):
        self.model = batch.build(component)

    def run(self, inputs, most, *, max_cycles, idle_cycles, stalls, seed):
        copies = len(inputs["mac_rx"][1])
        sizes = {name: -(-port.size // 4) * 4 for name, port in self.model.streams.items()}
        outputs = {
            name: (np.zeros((n, copies, sizes[name]), np.uint8), np.zeros(copies, np.int64))
            for name, n in most.items()
        }
        for copy in range(copies):
            beats = {
                name: rows[: counts[copy], copy, : self.model.streams[name].size]
                for name, (rows, counts) in inputs.items()
            }
            run = self.model.run(beats, max_cycles=max_cycles, idle_cycles=idle_cycles)
            for name, (rows, counts) in outputs.items():
                got = run.outputs[name][: len(rows)]
                rows[: len(got), copy, : got.shape[1]] = got
                counts[copy] = len(run.outputs[name])
        return outputs, run.cycles


@pytest.fixture(scope="module")
def stands():
    return OneByOne(Stand())


def replace(one, copy, k, frame, **fields):
    """Broken frame k of a copy becomes `frame`, a row, with other fields of the gradnic head."""
    row = frame.copy()
    for name, value in fields.items():
        GRADNIC[name].put(row[None], np.array([value]))
    one.frames[copy, k] = row
    return row


@pytest.mark.parametrize(
    ("coded", "pauses"), [(False, 0), (True, 0), (True, 0x60), (False, 0x61), (True, 0x62)]
)
def test_every_frame_has_its_fate(stands, coded, pauses):
    one = Round((3, int(coded), pauses), copies=2, long=True, coded=coded)
    fates, wrong, _ = one.play(stands, pauses=pauses)
    assert wrong == {}
    assert fates.shape == (1, N_BROKEN)


def test_what_a_narrow_field_forgets(stands):
    """A payload of 8192 bytes and more; a PROBE whose chunk is 8192 and more."""
    one = Round(5, copies=4, long=True)
    frames, lengths, _ = one.setting.data
    for copy in (1, 2):  # of a packet that is not here yet
        one.frames[copy, -1] = frames[one.late[0][copy, 0]]
        one.lengths[copy, -1] = lengths[one.late[0][copy, 0]] + 8192 // copy
        one.marked[copy, -1] = False
        offload_breaker.put_lengths(
            one.frames[copy], np.array([N_BROKEN - 1]), one.lengths[copy, -1:] - 34
        )
    asks = one.setting.asks[0]
    probe = asks[GRADNIC.p0.get(asks) == Subtype.PROBE][0]
    replace(one, 3, 7, probe, seq=8192 * offload_breaker.PER_CHUNK)
    one.lengths[3, 7], one.marked[3, 7] = 64, False
    fates, wrong, _ = one.play(stands)
    assert wrong == {}
    assert fates[0, -1] == fates[1, -1] == fates[2, 7] == Drop.CONFIG


def test_a_wrong_fate_is_seen(stands, monkeypatch):
    """A judge who lets one frame of a stranger pass, and one who expects a write too few."""
    one = Round(6, copies=2)
    right = offload_judge.judge

    def wrong(*arguments):
        fates = right(*arguments)
        owner = np.argwhere(fates.fate == Drop.OWNER)[0]
        fates.fate[tuple(owner)] = Drop.FORMAT
        return fates

    monkeypatch.setattr(offload_judge, "judge", wrong)
    assert one.play(stands)[1] == {1: ["words"]}

    def less(*arguments):
        fates = right(*arguments)
        accepted = np.argwhere(fates.fate == offload_judge.ACCEPTED)[-1]
        fates.fate[tuple(accepted)] = Drop.DUPLICATE
        del fates.taken[-1]
        return fates

    monkeypatch.setattr(offload_judge, "judge", less)
    assert {"words", "results", "leaves"} <= set(one.play(stands)[1][1])


def test_gate_judges_as_the_golden_card():
    """Ours or foreign, and the first five reasons, of 4000 broken frames."""
    rng = np.random.default_rng(2)
    setting = Setting(rng)
    frames, lengths, kinds = breaks(rng, setting, 4000)
    marked = kinds == Kind.MARKED
    fate = offload_judge.judge(frames[None], lengths[None], marked[None], setting).fate[0]
    for address in (setting.own, *setting.others):
        address.port = 0
    peers = {address.node: address for address in (setting.own, *setting.others)}
    settings = Settings(setting.job, setting.own.node, (Tensor(setting.tensor, None, None),), peers,
                        udp_port=setting.own.udp_port)  # fmt: skip
    card = Card(settings)
    for row, length, mark, found in zip(frames, lengths, marked, fate, strict=True):
        frame = row[:length].tobytes()
        assert card._is_ours(frame) == (found != offload_judge.FOREIGN)
        if found == offload_judge.FOREIGN:
            continue
        reason, _ = card._refusal(frame, 0, bool(mark))
        in_gate = Drop[reason.upper()] if reason else None
        passes = in_gate not in GATE
        assert passes or found == in_gate
        assert not passes or found not in GATE - {Drop.LENGTH}  # LENGTH is the receiver's too


def test_kinds_break_what_they_say():
    rng = np.random.default_rng(1)
    setting = Setting(rng, coded=True)
    frames, lengths, kinds = breaks(rng, setting, 20_000, long=50)
    assert (np.bincount(kinds)[:-1] > 2000).all()
    assert (kinds == Kind.LONG).sum() == 50
    assert (frames[np.arange(frames.shape[1]) >= lengths[:, None]] == 0).all()
    fate = offload_judge.judge(frames[None], lengths[None], (kinds == Kind.MARKED)[None], setting)
    assert set(np.unique(fate.fate)) == set(range(13))  # every reason, and the others
    agree = UDP.length.get(frames) == lengths - UDP.start
    assert agree[kinds == Kind.LENGTHS].mean() > 0.4
    sent = GRADNIC.op.get(frames[kinds == Kind.MARKED])
    assert set(sent) == {Op.INC, Op.CONTROL}


def test_lanes_are_of_the_other_card():
    found = CliRunner().invoke(command, ["--card", "offload", "--lanes", "8"])
    assert found.exit_code == 2
    assert "those of jobs and rounds; the offload card is played with 4" in found.output


@pytest.mark.slow  # the library of gates takes minutes to build
def test_command():
    arguments = ["--card", "offload", "--frames", "100000", "--json", "-"]
    found = CliRunner().invoke(command, arguments)
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    assert result["ok"]
    assert result["frames"] == sum(result["kinds"].values()) == sum(result["reasons"].values())
    assert result["frames"] >= 100_000


@pytest.mark.slow  # as above
def test_the_first_difference_names_a_frame(monkeypatch):
    right = offload_judge.judge

    def wrong(*arguments):
        fates = right(*arguments)
        fates.fate[fates.fate == Drop.OWNER] = Drop.FORMAT
        return fates

    monkeypatch.setattr(offload_judge, "judge", wrong)
    found = CliRunner().invoke(command, ["--card", "offload", "--frames", "1"])
    assert found.exit_code == 1
    told = " ".join(found.output.split())  # the screen wraps lines
    assert "seed 1, round 0, copy 1: words; of its broken frames number" in told
