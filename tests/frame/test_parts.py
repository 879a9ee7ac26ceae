"""Parts of the in-line card: guard, arbiter, realigner, splicer, store, queue, frame check."""

import numpy as np
import pytest
from gradnic.hdl.frame.arbiter import FrameArbiter
from gradnic.hdl.frame.checksum import FrameCheck
from gradnic.hdl.frame.egress import EgressQueues
from gradnic.hdl.frame.head_beat import HeadApart, HeadJoined
from gradnic.hdl.frame.intake import Intake
from gradnic.hdl.frame.length_guard import LengthGuard
from gradnic.hdl.frame.packet_fifo import PacketFIFO
from gradnic.hdl.frame.realign import Realigner
from gradnic.hdl.frame.round_robin import RoundRobin
from gradnic.hdl.frame.splice import Splicer
from gradnic.hdl.frame.store import FrameStore
from gradnic.hdl.stream.beats import Beat
from gradnic.sim.engine import batch, encoding

GRID = [(1, 1), (0.5, 1), (1, 0.3), (0.6, 0.6)]


def frames_of(rng, sizes):
    return [rng.bytes(int(size)) for size in sizes]


@pytest.mark.parametrize(("i", "o"), GRID)
def test_guard_cuts(i, o):
    model = batch.build(LengthGuard(16, meta_width=4, max_bytes=64))
    rng = np.random.default_rng(1)
    sizes = [1, 16, 63, 64, 65, 80, 81, 200, 64, 1, *rng.integers(1, 100, 200)]
    frames, bad = frames_of(rng, sizes), rng.integers(0, 2, len(sizes))
    meta = rng.integers(0, 16, len(sizes))
    beats = model.pack_frames("i", frames, at_last={"bad": bad}, meta=meta)
    run = model.run({"i": beats}, stalls={"i": i, "o": o}, trace=("oversize",))
    over = np.array([size > 64 for size in sizes])
    cut = [frame[:64] for frame in frames]
    wanted = model.pack_frames("o", cut, at_last={"bad": bad | over}, meta=meta)
    run.check(o=wanted)
    assert run.traces["oversize"].sum() == over.sum()
    if i == o == 1:
        assert run.taken["i"][-1] == len(beats) - 1


def test_guard_ends_what_never_ends():
    model = batch.build(LengthGuard(16, meta_width=4, max_bytes=64))
    endless = model.pack_frames("i", [bytes(16 * 1000)])[:-1]
    good = model.pack_frames("i", [b"good" * 10])
    run = model.run({"i": endless}, drain=True)
    run.check(o=model.pack_frames("o", [bytes(64)], at_last={"bad": 1}))
    end = model.pack_frames("i", [b"x"])
    run = model.run({"i": np.concatenate([endless, end, good])})
    run.check(o=model.pack_frames("o", [bytes(64), b"good" * 10], at_last={"bad": [1, 0]}))


@pytest.mark.parametrize(("i", "o"), GRID)
def test_arbiter_keeps_frames_whole(i, o):
    model = batch.build(FrameArbiter(16, meta_width=16))
    rng = np.random.default_rng(2)
    sent = {}
    for port, base in (("foreign", 0), ("own", 1000)):
        frames = frames_of(rng, rng.integers(1, 100, 300))
        sent[port] = frames, base + np.arange(300)
    inputs = {p: model.pack_frames(p, f, meta=number) for p, (f, number) in sent.items()}
    run = model.run(inputs, stalls={"foreign": i, "own": 1, "o": o})
    frames = run.frames("o")
    fields = run.unpack("o")
    numbers = fields["meta"][fields["last"] == 1].astype(int)
    for k, port in enumerate(("foreign", "own")):
        mine = [f for f, number in zip(frames, numbers, strict=True) if number // 1000 == k]
        assert mine == sent[port][0]
    if i == o == 1:  # foreign frames go first and leave no gap
        assert (numbers[:300] < 1000).all()
        n = len(inputs["foreign"])
        assert run.taken["foreign"][-1] - run.taken["foreign"][0] == n - 1 + 0
        assert run.taken["o"][-1] - run.taken["o"][0] == n + len(inputs["own"])


def test_arbiter_foreign_waits_for_one_frame_at_most():
    model = batch.build(FrameArbiter(16, meta_width=16))
    own = model.pack_frames("own", [bytes(160)] * 100, meta=1)
    foreign = model.pack_frames("foreign", [bytes(16)] * 20, meta=0)
    run = model.run(
        {"own": own, "foreign": foreign}, stalls={"foreign": ([0] * 103, [1] + [0] * 36)}
    )
    waits = run.taken["foreign"] - (103 + 37 * np.arange(20))
    assert waits.max() <= 11


@pytest.mark.parametrize("floor", [0, 28, 128, 255])
def test_arbiter_own_frames_get_their_floor(floor):
    model = batch.build(FrameArbiter(16, own_beats=10))
    own = model.pack_frames("own", [bytes(160)] * 600)
    foreign = model.pack_frames("foreign", [bytes(48)] * 1500)
    run = model.run({"own": own, "foreign": foreign}, signals={"floor": floor})
    last = run.taken["foreign"][-1]
    during = (run.taken["own"] < last).sum()
    assert abs(during - len(foreign) * floor / 256) <= 20
    gaps = np.diff(run.taken["foreign"])
    assert set(np.unique(gaps)) <= {1, 11}  # one own frame at a time
    assert last - run.taken["foreign"][0] == len(foreign) - 1 + during


@pytest.mark.parametrize(("n", "paper"), [(16, 42), (16, 44), (32, 42), (64, 44), (128, 42)])
@pytest.mark.parametrize(("i", "o"), GRID)
def test_realigner(n, paper, i, o):
    model = batch.build(Realigner(n, (paper, 64)))
    rng = np.random.default_rng(n)
    frames, wanted, fields = [], [], {"second": [], "n_less_1": []}
    drops = []
    for k in range(250):
        second = int(rng.integers(2))
        start = 64 if second else paper
        size = int(rng.integers(1, 5 * n))
        frame = rng.bytes(start + size)
        end = [0, 0, int(rng.integers(1, 3 * n)), -int(rng.integers(1, start + size))][k % 4]
        frame = frame + rng.bytes(end) if end > 0 else frame[: len(frame) + end]
        drop = int(rng.random() < 0.2)
        frames.append(frame)
        fields["second"].append(second)
        fields["n_less_1"].append(-(-size // n) - 1)
        drops.append(drop)
        n_in = -(-len(frame) // n)
        # beats that hold payload bytes at their aligned place
        whole = -(-(n_in * n - start) // n) if n_in * n > start else 0
        short = whole < -(-size // n)
        body = None if short else frame[start : start + size]
        wanted.append((body, -(-size // n), drop | short))
    beats = model.pack_frames("i", frames, at_last={"drop": drops}, **fields)
    run = model.run({"i": beats}, stalls={"i": i, "o": o})
    got = run.unpack("o")
    ends = np.flatnonzero(got["last"])
    assert len(ends) == len(frames)
    start = 0
    for end, (body, n_out, drop) in zip(ends, wanted, strict=True):
        flat = got["data"][start : end + 1].reshape(-1).tobytes()
        assert bool(got["drop"][end]) == bool(drop)
        if body is not None:
            assert end + 1 - start == n_out
            assert flat[: len(body)] == body
        start = end + 1
    if i == o == 1:
        assert run.taken["i"][-1] - run.taken["i"][0] <= len(beats) + 1


@pytest.mark.parametrize(("n", "paper"), [(16, 42), (16, 44), (32, 42), (64, 44), (128, 42)])
@pytest.mark.parametrize(("i", "o"), GRID)
def test_splicer(n, paper, i, o):
    model = batch.build(Splicer(n, (paper, 64), meta_width=8))
    rng = np.random.default_rng(n)
    jobs = {"whole": [], "second": [], "n_less_1": [], "bad": [], "meta": []}
    heads, bodies, wanted = [], [], []
    for k in range(300):
        whole, second = int(rng.random() < 0.3), int(rng.integers(2))
        start = 64 if second else paper
        if whole:
            frame = rng.bytes(int(rng.integers(1, 6 * n)))
            heads.append(frame)
        else:
            size = int(rng.integers(1, 20 if k % 2 else 5 * n))
            frame = rng.bytes(start + size)
            heads.append(frame[:start].ljust(-(-start // n) * n, b"\xee"))
            bodies.append(frame[start:])
        for name, value in (
            ("whole", whole),
            ("second", second),
            ("n_less_1", len(frame) - 1),
            ("bad", int(rng.integers(2))),
            ("meta", k % 256),
        ):
            jobs[name].append(value)
        wanted.append(frame if whole else frame.ljust(60, b"\0"))
    inputs = {
        "jobs": model.pack("jobs", **{name: np.array(v) for name, v in jobs.items()}),
        "heads": model.pack_frames("heads", heads),
        "bodies": model.pack_frames("bodies", bodies),
    }
    run = model.run(inputs, stalls={"jobs": 1, "heads": i, "bodies": i, "o": o})
    bad, meta = np.array(jobs["bad"]), np.array(jobs["meta"])
    run.check(o=model.pack_frames("o", wanted, at_last={"bad": bad}, meta=meta))
    if i == o == 1:
        assert run.taken["o"][-1] - run.taken["o"][0] == len(run.taken["o"]) - 1


@pytest.mark.parametrize(("i", "o"), GRID)
def test_frame_store_reads_beginnings(i, o):
    model = batch.build(FrameStore(32, 32))
    rng = np.random.default_rng(3)
    stored, jobs, wanted, lasts = [], [], [], []
    for _ in range(400):
        n = int(rng.integers(1, 11))
        frame = rng.integers(0, 2**32, n)
        n_read = int(rng.choice([0, 1, n, rng.integers(0, n + 1)]))
        stored.append(frame)
        jobs.append((n_read, n))
        wanted.append(frame[:n_read])
        lasts += [0] * (n_read - 1) + [1] * (n_read > 0)
    frames = np.concatenate(stored)
    instance = model.instance()
    # A job may come only when its frame is stored: play frame by frame, the ring full and empty.
    got, at = [], 0
    packed = model.pack("jobs", n_read=[j[0] for j in jobs], n_stored=[j[1] for j in jobs])
    for k, (_, n) in enumerate(jobs):
        run = instance.run(
            {"i": model.pack("i", frames[at : at + n])},
            reset=k == 0,
            stalls={"i": i, "o": o},
            idle_cycles=12,
        )
        at += n
        got.append(run.outputs["o"])
        if k % 3 == 0:
            run = instance.run(
                {"jobs": packed[max(0, k - 2) : k + 1]},
                reset=False,
                stalls={"o": o},
                idle_cycles=24,
            )
            got.append(run.outputs["o"])
    got = np.concatenate(got)
    done = sum(len(w) for w in wanted[: 3 * ((len(jobs) - 1) // 3) + 1])
    expected = model_beats(model, np.concatenate(wanted), lasts)
    np.testing.assert_array_equal(got, expected[: len(got)])
    assert len(got) == done


def model_beats(model, values, lasts):
    return encoding.pack(model.streams["o"].shape, data=values, last=np.array(lasts))


@pytest.mark.parametrize("duty", [1, 0.6])
@pytest.mark.parametrize("out", [1, 0.5, 0.1])
def test_a_queue_that_cuts_loses_whole_frames_or_ends_them(duty, out):
    model = batch.build(PacketFIFO(Beat(32), 16, drop=None, lossy=True, cut_through=True))
    sizes = np.random.default_rng(4).choice([1, 1, 2, 3, 8, 30], 600)
    last = np.zeros(sizes.sum(), int)
    last[np.cumsum(sizes) - 1] = 1
    numbers = np.arange(1, len(last) + 1)
    beats = model.pack("i", data=numbers, last=last)
    idle = 8  # the store takes a few cycles after reset
    run = model.run(
        {"i": beats},
        stalls={"i": ([0] * idle, duty), "o": out},
        trace=("stores", "overflow"),
        drain=False,
        max_cycles=40 * len(beats),
    )
    stored = np.split(run.traces["stores"][run.taken["i"]].astype(int), np.cumsum(sizes)[:-1])
    wanted, n_gone, n_cut = [], 0, 0
    for frame, kept in zip(np.split(numbers, np.cumsum(sizes)[:-1]), stored, strict=True):
        assert (np.diff(kept) <= 0).all(), "a beat is stored behind a lost one"
        wanted += [(number, number == frame[-1]) for number in frame[: kept.sum()]]
        n_gone += not kept[0]
        if kept[0] and not kept[-1]:
            n_cut += 1
            wanted.append((None, True))
    got = run.unpack("o")
    assert [bool(end) for end in got["last"]] == [end for _, end in wanted]
    assert all(n in (number, None) for number, (n, _) in zip(got["data"], wanted, strict=True))
    assert run.traces["overflow"].sum() == n_gone + n_cut
    if out == 0.1:
        assert n_gone > 50
        assert n_cut > 10
    if out == 1 and duty == 1:
        assert n_gone + n_cut == 0
        assert (run.taken["o"] - run.taken["i"] == 7).all()


@pytest.mark.parametrize("n", [4, 8, 16, 32, 64, 128])
def test_frame_check(n):
    check = FrameCheck(n)
    model = batch.build(check)
    rng = np.random.default_rng(n)
    info_shape = check.info.shape() if callable(getattr(check.info, "shape", None)) else None
    rows = {name: [] for name in ("push", "first", "last", "bad", "data", "keep", "info", "cut")}
    wanted = []
    for k in range(400):
        size = int(rng.integers(42, 300)) if k % 40 else 16384 - k // 40  # and the longest
        frame = bytearray(rng.bytes(size))
        end = size - int(rng.choice([0, 0, 1, 2, 7])) + int(rng.random() < 0.1)
        pseudo = int(rng.integers(0, 1 << 18))
        words = bytes(frame[34 : min(end, size)])
        words += bytes(len(words) % 2)
        total = pseudo + int(np.frombuffer(words, ">u2").sum(dtype=np.int64))
        wrong = rng.random() < 0.3
        if not wrong:  # make the sum come out: add what is missing to the pseudo header
            while total >> 16:
                total = (total & 0xFFFF) + (total >> 16)
            pseudo += 0xFFFF - total
        total = pseudo + int(np.frombuffer(words, ">u2").sum(dtype=np.int64))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        fate = int(rng.choice([0, 0, 2, 4, 5]))
        unchecked, unsummed = int(rng.random() < 0.1), int(rng.random() < 0.2)
        bad, cut = int(rng.random() < 0.1), int(rng.random() < 0.1)
        if unchecked:
            fate = expected = 5
        elif bad:
            expected = 1
        elif end > size or fate == 2:
            expected = 2
        elif total != 0xFFFF and not unsummed:
            expected = 3
        else:
            expected = fate
        wanted.append((9 if cut else expected, bad, (size - 1) % n))
        kind = encoding.pack(
            info_shape,
            fate=fate,
            unchecked=unchecked,
            unsummed=unsummed,
            end=end,
            pseudo=pseudo,
            ours=1,
        )
        n_beats = -(-size // n)
        for b in range(n_beats):
            piece = bytes(frame[b * n : (b + 1) * n])
            last = b == n_beats - 1
            ones = (1 << len(piece)) - 1
            rows["push"].append(1)
            rows["first"].append(int(b == 0))
            rows["last"].append(int(last))
            rows["bad"].append(int(last and bad))
            rows["cut"].append(int(last and cut))
            rows["data"].append(np.frombuffer(piece.ljust(n, b"\xff"), np.uint8))
            rows["keep"].append(np.frombuffer(ones.to_bytes(max(1, n // 8), "little"), np.uint8))
            rows["info"].append(kind[0] if b == 0 else np.zeros(kind.shape[1], np.uint8))
        if k % 3 == 0:
            for name, column in rows.items():
                column.append(np.zeros_like(column[-1]) if name in ("data", "keep", "info") else 0)
    levels = {name: np.array(column) for name, column in rows.items()}
    n_cycles = len(levels["push"])
    levels["push"] = np.append(levels["push"], 0)
    run = model.run(
        {}, signals=levels, trace=("done", "verdict"), drain=False, max_cycles=n_cycles + 20
    )
    done = run.traces["done"].astype(bool)
    shape = check.verdict.shape()
    fields = encoding.unpack(shape, _rows(run.traces["verdict"][done], -(-shape.size // 8)))
    got = list(zip(*(fields[name].astype(int) for name in ("fate", "bad", "tail")), strict=True))
    assert got == wanted
    ends = np.flatnonzero(levels["push"][:n_cycles] & levels["last"])
    np.testing.assert_array_equal(np.flatnonzero(done) - ends, check.latency)


def _rows(values, n_bytes):
    return np.ascontiguousarray(values.astype("<u8")).view(np.uint8).reshape(-1, 8)[:, :n_bytes]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FrameArbiter(16, meta_width=-1), "meta_width must be at least 0, not -1"),
        (lambda: FrameArbiter(16, meta_width=None), "meta_width must be at least 0, not None"),
        (lambda: FrameArbiter(16, own_beats=0), "own_beats must be at least 1, not 0"),
        (lambda: FrameCheck(12), "n_bytes must be a power of two from 4 to 128, not 12"),
        (lambda: FrameCheck(2), "n_bytes must be a power of two from 4 to 128, not 2"),
        (
            lambda: PacketFIFO(Beat(8), 16, drop=None, cut_through=True),
            "cut_through goes with lossy and drop None, not False, None",
        ),
        (lambda: HeadApart(1), "n_bytes must be a power of two from 2 to 128, not 1"),
        (lambda: HeadJoined(16, meta_width=-2), "meta_width must be at least 0, not -2"),
        (lambda: Intake(8, 4), "n_bytes must be a power of two from 16 to 128, not 8"),
        (lambda: Intake(16, 0), "n_jobs must be at least 1, not 0"),
        (lambda: Intake(16, 4, n_senders=0), "n_senders must be at least 1, not 0"),
        (lambda: LengthGuard(12, max_bytes=24), "n_bytes must be a power of two from 1 to 128"),
        (lambda: LengthGuard(16, max_bytes=0), "max_bytes must be at least 16, not 0"),
        (lambda: LengthGuard(16, max_bytes=40), "max_bytes must be a multiple of n_bytes = 16, no"),
        (lambda: Realigner(16, (42,)), r"offsets must be two numbers, not \(42,\)"),
        (lambda: Realigner(16, (42, -1)), r"offsets\[1\] must be at least 0, not -1"),
        (lambda: Realigner(2, (42, 64)), "n_bytes must be a power of two from 4 to 128, not 2"),
        (lambda: Splicer(16, (1.5, 64)), r"offsets\[0\] must be at least 0, not 1.5"),
        (lambda: Splicer(0, (42, 64)), "n_bytes must be a power of two from 4 to 128, not 0"),
        (lambda: RoundRobin(16, 1), "n must be at least 2, not 1"),
        (lambda: FrameStore(0, 8), "width must be at least 1, not 0"),
        (lambda: FrameStore(8, 12), "n_slots must be a power of two from 8 to 16384, not 12"),
        (lambda: EgressQueues(16, queue_beats=8), "queue_beats must be a power of two from 16 to"),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
