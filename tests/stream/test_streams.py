"""Stream parts in the batch engine: whole outputs, rates, latencies, under a grid of stalls."""

from functools import cache

import numpy as np
import pytest
from amaranth.lib import data
from gradnic.hdl.frame.packet_fifo import PacketFIFO
from gradnic.hdl.stream.beats import Beat, FrameBeat
from gradnic.hdl.stream.block_fifo import BlockFIFO
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.stream.slice import Fork, Slice
from gradnic.hdl.stream.width import WidthConverter
from gradnic.sim.engine import batch, encoding, runner, stimulus
from gradnic.sim.engine.design_ports import ports_of

WIDE = FrameBeat(32)
DROPPING = data.StructLayout({"data": 24, "last": 1, "drop": 1})
GRID = [(i_duty, o_duty) for i_duty in (1, 0.5, 0.1) for o_duty in (1, 0.5, 0.1)]

QUEUES = {  # name: (make, latency, beats that it holds)
    "slice": (lambda: Slice(WIDE), 1, 2),
    "fifo2": (lambda: FIFO(WIDE, 2), 2, 3),
    "fifo5": (lambda: FIFO(WIDE, 5), 2, 6),
    "fifo16": (lambda: FIFO(WIDE, 16), 2, 17),
    "bypass": (lambda: FIFO(WIDE, 4, bypass=True), 1, 5),
    "unregistered": (lambda: FIFO(WIDE, 4, registered=False), 1, 4),
    "block": (lambda: BlockFIFO(WIDE, 64), 7, 72),
}
HALF_RATE = {  # name: (make, latency)
    "slice": (lambda: Slice(WIDE, half_rate=True), 1),
    "fifo": (lambda: FIFO(WIDE, 4, half_rate=True), 2),
}


@cache
def _model(name):
    return batch.build(QUEUES[name][0]())


def _noise(shape, n, seed):
    rng = np.random.default_rng(seed)
    fields = {}
    for name, (_, width, _) in encoding.fields_of(shape).items():
        fields[name] = rng.integers(0, 256, (n, -(-width // 8)), np.uint8)
        fields[name][:, -1] &= (1 << ((width - 1) % 8 + 1)) - 1
    return encoding.pack(shape, **fields)


@pytest.mark.parametrize("name", QUEUES)
@pytest.mark.parametrize(("i_duty", "o_duty"), GRID)
def test_queue_keeps_beats_in_order(name, i_duty, o_duty):
    beats = _noise(WIDE, 1500, 1)
    run = _model(name).run({"i": beats}, stalls={"i": i_duty, "o": o_duty}, seed=2)
    run.check(o=beats)


@pytest.mark.parametrize("name", QUEUES)
def test_queue_latency_rate_and_capacity(name):
    _, latency, capacity = QUEUES[name]
    beats = _noise(WIDE, 500, 3)
    run = _model(name).run({"i": beats})
    start = run.taken["i"][0]
    np.testing.assert_array_equal(run.taken["i"], np.arange(start, start + 500))
    np.testing.assert_array_equal(run.taken["o"], run.taken["i"] + latency)
    # One slow output: the queue fills, then keeps the pace of the output, with no gap after it.
    full = _model(name).run({"i": beats}, stalls={"o": (np.zeros(300), 1)})
    assert (full.taken["i"] < 300).sum() == capacity
    np.testing.assert_array_equal(full.taken["o"], np.arange(300, 800))
    full.check(o=beats)


@pytest.mark.parametrize("name", HALF_RATE)
@pytest.mark.parametrize(("i_duty", "o_duty"), GRID)
def test_half_rate(name, i_duty, o_duty):
    make, latency = HALF_RATE[name]
    beats = _noise(WIDE, 600, 5)
    run = batch.build(make()).run({"i": beats}, stalls={"i": i_duty, "o": o_duty}, seed=6)
    run.check(o=beats)
    if i_duty == o_duty == 1:
        assert run.taken["o"][0] == run.taken["i"][0] + latency
        np.testing.assert_array_equal(np.diff(run.taken["o"]), 2)


@pytest.mark.parametrize("duties", [(1, 1, 1), (1, 0.5, 0.2), (0.3, 1, 1), (0.1, 0.9, 0.5)])
def test_fork_copies_every_beat_once(duties):
    beats = _noise(WIDE, 800, 4)
    stalls = dict(zip(("o__0", "o__1", "o__2"), duties, strict=True))
    run = batch.build(Fork(WIDE, 3)).run({"i": beats}, stalls=stalls | {"i": 0.9}, seed=5)
    run.check(o__0=beats, o__1=beats, o__2=beats)


def test_fork_rate():
    beats = _noise(WIDE, 300, 6)
    run = batch.build(Fork(WIDE, 3)).run({"i": beats})
    for port in ("i", "o__0", "o__1", "o__2"):
        np.testing.assert_array_equal(run.taken[port], np.arange(300))


def _frames(lengths, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, n, np.uint8).tobytes() for n in lengths]


@pytest.mark.parametrize(("i_duty", "o_duty"), GRID[::2])
@pytest.mark.parametrize(("i_bytes", "o_bytes"), [(4, 16), (16, 4), (8, 16), (64, 8), (1, 64)])
def test_width_converter_keeps_frames(i_bytes, o_bytes, i_duty, o_duty):
    shapes = [FrameBeat(n, meta_width=5) for n in (i_bytes, o_bytes)]
    lengths = [*range(1, 2 * max(i_bytes, o_bytes) + 2), 64, 128]
    frames = _frames(lengths, 7)
    bad = np.arange(len(frames)) % 3 == 0
    meta = np.arange(len(frames)) % 32
    i, o = (
        encoding.pack_frames(shape, frames, at_last={"bad": bad}, meta=meta) for shape in shapes
    )
    run = _converter(i_bytes, o_bytes).run({"i": i}, stalls={"i": i_duty, "o": o_duty}, seed=8)
    fields = run.unpack("o")
    fields["bad"] &= fields["last"]  # it counts there only
    np.testing.assert_array_equal(encoding.pack(shapes[1], **fields), o)
    if i_duty == o_duty == 1:  # one narrow beat per cycle from the first on, the wide one beside it
        narrow, at = ("i", 0) if i_bytes < o_bytes else ("o", 1)
        np.testing.assert_array_equal(run.taken[narrow], at + np.arange(max(len(i), len(o))))
        piece = -(-len(frames[0]) // i_bytes) - 1 if narrow == "i" else 0
        assert run.taken["o"][0] == run.taken["i"][piece] + 1


@cache
def _converter(i_bytes, o_bytes):
    shapes = [FrameBeat(n, meta_width=5) for n in (i_bytes, o_bytes)]
    return batch.build(WidthConverter(*shapes))


def test_width_converter_without_keep():
    narrow, wide = Beat(8), Beat(32)
    rng = np.random.default_rng(9)
    words = rng.integers(0, 2**32, 60)
    last = np.arange(60) % 7 == 0
    parts = (words[:, None] >> np.array([0, 8, 16, 24])) & 255
    ends = np.zeros((60, 4), int)
    ends[:, 3] = last
    i = encoding.pack(wide, data=words, last=last)
    o = encoding.pack(narrow, data=parts.ravel(), last=ends.ravel())
    batch.build(WidthConverter(wide, narrow)).run({"i": i}).check(o=o)
    up = batch.build(WidthConverter(narrow, wide))
    up.run({"i": o}).check(o=i)
    short = encoding.pack(
        narrow, data=np.array([1, 2, 3, 4, 5, 6]), last=np.array([0, 0, 0, 0, 1, 1])
    )
    long = encoding.pack(wide, data=np.array([0x04030201, 5, 6]), last=np.array([0, 1, 1]))
    up.run({"i": short}).check(o=long)


@cache
def _packets(depth):
    return batch.build(PacketFIFO(DROPPING, depth))


def _traffic(depth, seed, n=250):
    """Frames around the limit, some to be dropped; drop is noise on beats before the last."""
    rng = np.random.default_rng(seed)
    lengths = rng.choice([1, 1, 2, 3, depth - 1, depth, depth, depth + 1, 3 * depth], n)
    lengths = np.maximum(lengths, 1)
    dropped = rng.random(n) < 0.3
    ends = np.cumsum(lengths)
    total = ends[-1]
    last, drop = np.zeros(total, int), rng.integers(0, 2, total)
    last[ends - 1], drop[ends - 1] = 1, dropped
    beats = encoding.pack(DROPPING, data=rng.integers(0, 2**24, total), last=last, drop=drop)
    kept = np.repeat((lengths <= depth) & ~dropped, lengths)
    return beats, beats[kept], int((lengths > depth).sum())


@pytest.mark.parametrize(("i_duty", "o_duty"), GRID[::2])
@pytest.mark.parametrize("depth", [1, 2, 5, 16, 64])
def test_packet_fifo_forwards_or_drops_whole_frames(depth, i_duty, o_duty):
    beats, kept, n_long = _traffic(depth, depth)
    run = _packets(depth).run(
        {"i": beats}, stalls={"i": i_duty, "o": o_duty}, seed=11, trace=["overflow"]
    )
    run.check(o=kept)
    assert run.traces["overflow"].sum() == n_long


def test_packet_fifo_waits_for_last():
    """A frame of the store's full length leaves in one piece, 7 cycles after its last beat."""
    beats = encoding.pack(
        DROPPING, data=np.arange(128), last=np.arange(128) % 64 == 63, drop=np.zeros(128, int)
    )
    run = _packets(64).run({"i": beats}, stalls={"i": 0.5}, seed=12)
    run.check(o=beats)
    for frame in (0, 64):
        start = run.taken["i"][frame + 63] + 7
        np.testing.assert_array_equal(run.taken["o"][frame : frame + 64], start + np.arange(64))


def test_packet_fifo_rate_with_two_frames_of_room():
    n_frames, length = 40, 24
    n = n_frames * length
    beats = encoding.pack(
        DROPPING,
        data=np.arange(n),
        last=np.arange(n) % length == length - 1,
        drop=np.zeros(n, int),
    )
    run = _packets(64).run({"i": beats})
    run.check(o=beats)
    for port in "io":
        np.testing.assert_array_equal(np.diff(run.taken[port]), 1)


FRAMES = encoding.pack_frames(FrameBeat(4), _frames([1, 4, 5, 16, 31, 8], 13))
FOUR_STATE = {
    "slice": (lambda: Slice(FrameBeat(4)), FRAMES),
    "fifo": (lambda: FIFO(FrameBeat(4), 5), FRAMES),
    "block": (lambda: BlockFIFO(FrameBeat(4), 8), FRAMES),
    "fork": (lambda: Fork(FrameBeat(4), 2), FRAMES),
    "widen": (lambda: WidthConverter(FrameBeat(4), FrameBeat(8)), FRAMES),
    "narrow": (lambda: WidthConverter(FrameBeat(4), FrameBeat(1)), FRAMES),
    "packets": (lambda: PacketFIFO(FrameBeat(4), 6, drop="bad"), FRAMES),
}


@pytest.mark.parametrize("name", FOUR_STATE)
def test_outputs_are_known_after_reset(name):
    """Rule 10: registers start as X, and so do payloads between offers; no X may come out."""
    if reason := runner.missing("icarus"):
        pytest.skip(f"only Icarus knows X: {reason}")
    make, beats = FOUR_STATE[name]
    component = make()
    outputs = [p.name for p in ports_of(component.signature)[0] if not p.is_input]
    duties = dict.fromkeys(outputs, 0.6)
    patterns = stimulus.patterns(stimulus.rng(name), 400, i=0.7, **duties)
    got, _ = runner.play(
        component,
        {"i": beats},
        patterns=patterns,
        n_cycles=400,
        simulator="icarus",
        keep_init=False,
    )
    expected = batch.build(make()).run({"i": beats})
    expected.check(**{port: got[port] for port in outputs})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FIFO(8, 1), "depth must be 2 to 64, not 1"),
        (lambda: FIFO(8, 4.0), "depth must be 2 to 64, not 4.0"),
        (lambda: BlockFIFO(8, 4.0), "depth must be 1 to 16384, not 4.0"),
        (lambda: FIFO(8, 65), "depth must be 2 to 64, not 65"),
        (lambda: BlockFIFO(8, 0), "depth must be 1 to 16384, not 0"),
        (lambda: BlockFIFO(8, 4, commits=True, stops=True), "commits and stops exclude"),
        (lambda: Slice(8, half_rate=True, holds=True), "exclude each other"),
        (lambda: FIFO(8, 4, bypass=True, half_rate=True), "exclude each other"),
        (lambda: Fork(8, 0), "n must be at least 1, not 0"),
        (lambda: Beat(0), "width must be at least 1, not 0"),
        (lambda: FrameBeat(12), "n_bytes must be a power of two from 1 to 128, not 12"),
        (lambda: PacketFIFO(8, 4), "shape must be a StructLayout, not 8"),
        (lambda: PacketFIFO(Beat(8), 4), r"must have a field 'drop', not only \['data', 'last'\]"),
        (lambda: WidthConverter(8, Beat(8)), "i_shape must have the fields data and last, not 8"),
        (
            lambda: WidthConverter(Beat(8), Beat(12)),
            r"2 to 64 times as wide .* not \{'data': 8, 'last': 1\} and \{'data': 12, 'last': 1\}",
        ),
        (lambda: WidthConverter(Beat(8), Beat(8)), "2 to 64 times as wide"),
        (lambda: WidthConverter(Beat(8), FrameBeat(4)), "other fields alike"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
