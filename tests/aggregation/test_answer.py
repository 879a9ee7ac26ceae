"""Answers and sums to frames: what leaves at each port is what the golden answers are."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.aggregation.answer import LEAD, AnswerFramer, AnswerPort
from gradnic.hdl.aggregation.parser import ChildWrite
from gradnic.hdl.aggregation.slot_records import Answer
from gradnic.hdl.frame.intake import Names
from gradnic.hdl.primitive.same import same
from gradnic.hdl.stream.beats import Beat, FrameBeat
from gradnic.models.aggregation import answer as golden
from gradnic.sim.aggregation import frames as makers
from gradnic.sim.aggregation.tables import programmed
from gradnic.sim.engine import batch

from gradnic.interface.formats import Op

N_PORTS = 3
LONGEST = 8192  # bytes of sums, half of what a port has room for
CONFIG = makers.small_config(N_PORTS)


class Copies(wiring.Component):
    """A framer and the ports behind it; ``told`` and ``begun``: its notices, its frames' beats."""

    def __init__(self, n_bytes):
        self.n_bytes, self.n_jobs = n_bytes, len(CONFIG.jobs)
        frames = stream.Signature(FrameBeat(n_bytes))
        super().__init__(
            {
                "names": In(Names(self.n_jobs)),
                "write": In(ChildWrite(N_PORTS, self.n_jobs)),
                "answers": In(stream.Signature(Answer)),
                "sums": In(stream.Signature(Beat(8 * n_bytes))),
                **{f"o{k}": Out(frames) for k in range(N_PORTS)},
                **{name: Out(1) for name in ("told", "begun", "ends")},
                **{name: Out(N_PORTS) for name in ("copied", "lost")},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.framer = framer = AnswerFramer(self.n_bytes, self.n_jobs)
        wiring.connect(m, wiring.flipped(self.answers), framer.answers)
        wiring.connect(m, wiring.flipped(self.sums), framer.sums)
        m.d.comb += [
            framer.sender.mac.eq(CONFIG.mac),
            framer.sender.ip.eq(CONFIG.ip),
            framer.sender.names.eq(self.names),
            self.told.eq(framer.notice_valid),
            self.begun.eq(framer.valid),
            self.ends.eq(framer.valid & framer.beat.last),
        ]
        for k in range(N_PORTS):
            m.submodules[f"port{k}"] = port = AnswerPort(self.n_bytes, N_PORTS, self.n_jobs, k)
            wiring.connect(m, port.o, wiring.flipped(getattr(self, f"o{k}")))
            m.d.comb += [
                *same(port, framer, "notice_valid notice valid beat"),
                port.write.eq(self.write),
                self.copied[k].eq(port.copied),
                self.lost[k].eq(port.lost),
            ]
        return m


def answers(rng, n):
    """(place of the job, head, payload) of answers of all kinds, to any children, also nobody."""
    lengths = [0, 1, 15, 16, 17, 63, 64, 65, LONGEST]
    for k in range(n):
        place = k % 3 if k < n // 2 else int(rng.integers(3))  # the formats in turn, then mixed
        job = CONFIG.jobs[place]
        native = job.kind != "switchml"
        longest = k // 3 == len(lengths) - 1
        length = lengths[k // 3] if k // 3 < len(lengths) else int(rng.integers(0, 300))
        some = int(rng.choice([2**N_PORTS - 1, int(rng.integers(2**N_PORTS))]))
        head = {
            "children": 2**N_PORTS - 1 if longest else some,
            "op": int(rng.choice([Op.THC_IDX, Op.THC_SUM, Op.NORM, Op.INT32])),
            **{name: _code(rng, width) for name, width in (("gen", 16), ("slot", 13), ("lc", 3))},
            **{name: _code(rng, width) for name, width in (("tensor", 16), ("arg", 32))},
            "tree": _code(rng, 8 if native else 4),
            "seq": _code(rng, 24),
            "elems": _code(rng, 16) if native else job.values,
            **{name: _code(rng, 8) for name in ("p0", "p1")},
            **{name: _code(rng, 1) for name in ("last", "retx", "ovf", "ecn", "part")},
        }
        yield place, head, rng.bytes(length if native else 4 * job.values)


def _code(rng, width):
    """Of `width` bits: all zeros, all ones, or random ones."""
    return int(rng.choice([0, 2**width - 1, int(rng.integers(2**width))]))


def frames_of(given):
    """[frames that leave at port k] of the golden answers, and which answers they are of."""
    out, numbers = ([[] for _ in range(N_PORTS)] for _ in range(2))
    for number, (place, head, payload) in enumerate(given):
        job = CONFIG.jobs[place]
        make = golden.switchml_frames if job.kind == "switchml" else golden.native_frames
        for port, frame in make(CONFIG, job, {**head, **_number(job)}, payload):
            out[port].append(frame)
            numbers[port].append(number)
    return out, numbers


def _number(job):
    return {} if job.kind == "switchml" else {"job": job.job}


def played(model, given, **options):
    """A run with the answers and the sums of `given`."""
    n_bytes = model.streams["sums"].shape["data"].width // 8
    rows = {name: [head[name] for _, head, _ in given] for name in given[0][1]}
    lengths = [len(payload) for *_, payload in given]
    places = [place for place, *_ in given]
    sums = [payload + bytes(-len(payload) % n_bytes) for *_, payload in given if payload]
    last = np.concatenate([np.arange(len(s) // n_bytes) == len(s) // n_bytes - 1 for s in sums])
    data = np.frombuffer(b"".join(sums), np.uint8).reshape(-1, n_bytes)
    inputs = {
        "answers": model.pack("answers", **rows, job=places, length=lengths),
        "sums": model.pack("sums", data=data, last=last),
    }
    trace = ("told", "begun", "ends", "copied", "lost")
    return programmed(model, CONFIG).run(inputs, reset=False, trace=trace, **options)


@pytest.fixture(scope="module", params=[16, 64])
def model(request):
    return batch.build(Copies(request.param), name=f"answer{request.param}")


@pytest.mark.parametrize("duty", [1, 0.5])
def test_copies_equal_the_golden_frames(model, duty):
    """Ports are read as fast as frames come, answers and sums wait for each other or do not."""
    given = list(answers(np.random.default_rng(5), 300))
    wanted, _ = frames_of(given)
    run = played(model, given, stalls={"answers": duty, "sums": duty})
    for k in range(N_PORTS):
        assert run.frames(f"o{k}") == wanted[k]
        assert (run.traces["copied"] >> k & 1).sum() == len(wanted[k]) > 50
    assert not run.traces["lost"].any()
    native = np.array([CONFIG.jobs[place].kind != "switchml" for place, *_ in given])
    told = np.flatnonzero(run.traces["told"])
    assert len(told) == len(given)
    assert run.traces["begun"][told[native if duty < 1 else slice(None)] + LEAD].all()
    if duty == 1:  # back to back: a notice before a native frame's end tells of the next one
        starts = np.flatnonzero(run.traces["ends"])[:-1] + 1
        close = native[1:] & native[:-1]
        np.testing.assert_array_equal((starts - told[1:])[close], LEAD)


def test_copies_without_room_are_lost_whole_and_counted(model):
    """Port 1 is read seldom, the others always: its copies that are not lost keep their order."""
    given = list(answers(np.random.default_rng(6), 700))
    wanted, _ = frames_of(given)
    run = played(model, given, stalls={"o1": 0.1})
    for k in (0, 2):
        assert run.frames(f"o{k}") == wanted[k]
    got, lost = run.frames("o1"), int((run.traces["lost"] >> 1 & 1).sum())
    assert 20 < lost == len(wanted[1]) - len(got)
    rest = iter(wanted[1])
    assert all(any(frame == other for other in rest) for frame in got)
    assert not (run.traces["lost"] & 0b101).any()


def test_a_frame_leaves_7_cycles_after_its_last_beat_came(model):
    some = answers(np.random.default_rng(7), 60)
    given = [one for one in some if one[1]["children"] & 1 and one[2]][:1]
    run = played(model, given)
    ends = np.flatnonzero(run.traces["ends"])
    assert run.taken["o0"][0] - ends[0] == 7
