"""The RTL card against the golden one: whole frames, their order, every counter.

What the golden card does is checked against scapy's frames in ``test_inline_model.py``.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from gradnic.hdl.inline.card import InlineCard
from gradnic.models.inline.card import InlineCard as GoldenCard
from gradnic.sim.engine import batch, encoding
from gradnic.sim.frame import frames as makers
from gradnic.sim.inline.card import SIDES, CardBench, bus_script

from gradnic.interface import inline
from gradnic.interface.inline import REGISTERS

LANES = 4
N_HEAD_BEATS = 4
GRID = [(1, 1), (0.6, 1), (1, 0.5), (0.4, 0.7)]


@pytest.fixture(scope="module")
def model():
    return batch.build(InlineCard(LANES, meta_width=16))


def marks(frames, rng=None, share=0.05):
    """With a bad mark on a share of them, or on none."""
    return [(f, rng is not None and bool(rng.random() < share)) for f in frames]


def traffic(rng, rounds):
    """Shuffled frames of every kind for both inputs; about 330 and 440 a round."""
    out, into = [], []
    for _ in range(rounds):
        own = makers.own_frames(rng)
        coded = makers.coded(own)
        for frames, list_ in ((own, out), (coded, into)):
            list_ += makers.foreign_frames(rng).values()
            list_ += frames.values()
            list_ += makers.own_frames(rng).values() if list_ is into else frames.values()
            for frame in frames.values():
                if len(frame) >= 64:
                    list_ += makers.faults(frame, rng).values()
                    list_ += makers.units(frame, rng).values() if list_ is into else ()
        into += coded.values()
    for list_ in (out, into):
        order = rng.permutation(len(list_))
        list_[:] = [list_[k] for k in order]
    return marks(out, rng), marks(into, rng)


def test_every_kind_of_foreign_frame(model):
    frames = makers.foreign_frames(np.random.default_rng(1)).values()
    both = [(frame, bad) for frame in frames for bad in (False, True)]
    CardBench(model).play(tx=both, rx=both)


def test_every_kind_of_ours(model):
    rng = np.random.default_rng(2)
    own = makers.own_frames(rng, 100)
    out = [(frame, bad) for frame in own.values() for bad in (False, True, False)]
    into = [(f, bad) for f in makers.coded(own).values() for bad in (False, True, False)]
    bench = CardBench(model)
    bench.play(tx=out, rx=into)
    assert bench.golden.counters["tx_coded"] == bench.golden.counters["rx_coded"] > 10


@pytest.mark.parametrize(("i", "o"), GRID)
def test_mixed_traffic(model, i, o):
    out, into = traffic(np.random.default_rng(int(100 * i + o)), 2)
    stalls = {"host_tx": i, "mac_tx": o, "mac_rx": i / 5, "host_rx": o}
    bench = CardBench(model)
    bench.play(tx=out, rx=into, stalls=stalls, seed=7)
    counters = bench.golden.counters
    idle = {name for name, count in counters.items() if not count}
    assert idle == {"tx_oversize", "rx_oversize", "rx_overrun"}


def test_every_short_length(model):
    """Runts and heads cut at every byte; 0 bytes is more than a stream can carry."""
    rng = np.random.default_rng(3)
    paper = makers.paper_frame(np.zeros(40))
    native = makers.native_frame(np.zeros(40), check=True)
    coded = makers.coded({"paper": paper, "native": native})
    out = [f[:n] for n in range(1, 201) for f in (paper, native)]
    into = [f[:n] for n in range(1, 201) for f in (*coded.values(), native) if n <= len(f)]
    bench = CardBench(model)
    bench.play(tx=marks(out, rng), rx=marks(into, rng), stalls={"mac_rx": 0.5})
    assert bench.golden.counters["rx_length"] > 150


@pytest.mark.parametrize("kind", ["paper", "native"])
def test_truncated_at_every_offset(model, kind):
    x = makers.gradient(np.random.default_rng(4), 50)
    frame = {"paper": makers.paper_frame, "native": makers.native_frame}[kind](x)
    coded = makers.coded({kind: frame})[kind]
    out = [piece for n in range(1, len(frame)) for piece in (frame[:n], frame)]
    into = [piece for n in range(1, len(coded)) for piece in (coded[:n], coded)]
    bench = CardBench(model)
    bench.play(tx=marks(out), rx=marks(into), stalls={"mac_rx": 0.25})
    assert bench.golden.counters["rx_coded"] == len(coded) - 1


def test_jumbo_oversize_and_endless(model):
    rng = np.random.default_rng(5)
    good = makers.paper_frame(makers.gradient(rng, 2104))
    foreign = makers.with_bytes(rng.bytes(20000), 12, b"\x12\x34")
    marked = makers.udp_frame(rng.bytes(18000), tos=0x28)
    out, into = [], []
    for n in (1514, 1515, 9001, 9018, 16383, 16384, 16385, 20000):
        out += [foreign[:n], good, marked[:n]]
        into += [foreign[:n], makers.coded({0: good})[0], foreign[: n - 1]]
    into += [makers.coded({0: good})[0] + bytes(17000), makers.coded({0: good})[0]]
    bench = CardBench(model)
    bench.play(tx=marks(out), rx=marks(into), stalls={"mac_rx": 0.3})
    assert bench.golden.counters["tx_oversize"] == 4
    # Never ends: the cut frame leaves, nothing else happens; then its end comes, and a good one.
    bench = CardBench(model)
    port = model.streams["host_tx"]
    beats = encoding.pack_frames(port.shape, [foreign * 3])[:-1]
    run = bench.instance.run({"host_tx": beats}, reset=False)
    assert run.frames("mac_tx") == [foreign[:16384]]
    tail = encoding.pack_frames(port.shape, [b"end", good])
    run = bench.instance.run({"host_tx": tail}, reset=False)
    assert run.frames("mac_tx") == [bench.golden.transmit(good)[0]]


def test_malformed_units_in_volume(model):
    rng = np.random.default_rng(6)
    into = []
    for _ in range(60):
        own = makers.own_frames(rng, int(rng.integers(1, 60)))
        for frame in makers.coded(own).values():
            into += [*list(makers.units(frame, rng).values()), frame]
    bench = CardBench(model)
    bench.play(rx=marks(into), stalls={"mac_rx": 0.3})
    assert bench.golden.counters["rx_codec"] > 1000


def test_reset_in_mid_frame(model):
    rng = np.random.default_rng(7)
    out, into = traffic(rng, 1)
    shape = model.streams["host_tx"].shape
    for cycles in [*range(1, 40, 3), *rng.integers(40, 3000, 12)]:
        bench = CardBench(model)
        frames = [f for f, _ in out]
        coded = [f for f, _ in into]
        bench.instance.run(
            {
                "host_tx": encoding.pack_frames(shape, frames),
                "mac_rx": encoding.pack_frames(shape, coded),
            },
            stalls={"mac_tx": 0.7, "host_rx": 0.7},
            reset=False,
            drain=False,
            max_cycles=int(cycles),
        )
        bench.configure(makers.SETTINGS, reset=True)
        bench.play(tx=out[:20], rx=into[:20], stalls={"mac_rx": 0.2})


def test_back_pressure_for_10000_cycles(model):
    """Nothing is lost on the way out; on the way in foreign frames survive and ours are counted."""
    rng = np.random.default_rng(8)
    out, _ = traffic(rng, 1)
    CardBench(model).play(tx=out, stalls={"mac_tx": ([0] * 10000, 1)})

    bench = CardBench(model)
    foreign = marks(list(makers.foreign_frames(rng).values()) * 3)
    coded = [makers.coded(makers.own_frames(rng, 300))["native"] for _ in range(60)]
    frames = [f for pair in zip(marks(coded), foreign * 3, strict=False) for f in pair]
    port = "mac_rx"
    beats = model.pack_frames(port, [f for f, _ in frames], meta=np.arange(len(frames)))
    run = bench.instance.run(
        {port: beats}, reset=False, stalls={"host_rx": ([0] * 10000, 1)}, max_cycles=200_000
    )
    fields = encoding.unpack(model.streams["host_rx"].shape, run.outputs["host_rx"])
    numbers = fields["meta"][fields["last"] == 1]
    arrived = dict(zip(map(int, numbers), run.frames("host_rx"), strict=True))
    lost = 0
    for number, (frame, bad) in enumerate(frames):
        ours = bench.golden.kind_in(frame) is not None
        wanted = bench.golden.receive(frame, bad)
        if ours and number not in arrived:
            lost += 1
        else:
            assert arrived[number] == wanted[0]
    for parity in (0, 1):
        mine = [n for n in map(int, numbers) if n % 2 == parity]
        assert mine == sorted(mine)
    counters = bench.counters()
    assert counters["rx_overrun"] == lost > 0
    assert counters["rx_coded"] == len(coded) - lost
    assert counters["rx_foreign"] == len(frames) - len(coded)
    # Still sound afterwards.
    bench.golden.counters = dict(counters)
    bench.play(rx=marks(coded[:3]), stalls={"mac_rx": 0.2})


def test_flood_of_zeros_never_stops_the_mac(model):
    """Expansion is 16-fold: what cannot be stored is dropped, and foreign frames still arrive."""
    bench = CardBench(model)
    bomb = makers.coded({0: makers.native_frame(np.zeros(2104))})[0]
    rng = np.random.default_rng(9)
    foreign = makers.with_bytes(rng.bytes(600), 12, b"\x12\x34")
    frames = [f for _ in range(40) for f in (bomb, bomb, foreign)]
    beats = model.pack_frames("mac_rx", frames, meta=np.arange(len(frames)))
    run = bench.instance.run({"mac_rx": beats}, reset=False, max_cycles=400_000)
    assert run.taken["mac_rx"][-1] - run.taken["mac_rx"][0] == len(beats) - 1
    counters = bench.counters()
    assert counters["rx_foreign"] == 40
    assert counters["rx_overrun"] > 0
    assert counters["rx_overrun"] + counters["rx_coded"] == 80
    restored = bench.golden.receive(bomb)[0]
    frames = run.frames("host_rx")
    assert frames.count(foreign) == 40
    assert frames.count(restored) == counters["rx_coded"]


def beats_of(frame):
    return -(-len(frame) // (4 * LANES))


def test_rate(model):
    """Foreign frames at full line both ways; ours at max(in, out) beats; no bubbles between."""
    rng = np.random.default_rng(10)
    sizes = [1, 60, 64, 65, 128, 1500, *rng.integers(1, 400, 200)]
    foreign = marks([makers.with_bytes(rng.bytes(int(n) + 14), 12, b"\x12\x34") for n in sizes])
    run = CardBench(model).play(tx=foreign, rx=foreign)
    for i, o in SIDES.values():  # a runt overtakes the head of the frame behind it, once
        assert run.taken[i][-1] - run.taken[i][0] + 1 == len(run.taken[i])
        assert run.taken[o][-1] - run.taken[o][0] + 1 <= len(run.taken[o]) + N_HEAD_BEATS
    for n in (1, 2, 8, 40, 336, 2104):
        for make in (makers.paper_frame, makers.native_frame):
            for scale in (2**-12, 2**-7, 2**-3, 4):
                x = (rng.normal(0, 1, n) * scale).astype("<f4")
                frame = make(x)
                coded = GoldenCard(makers.SETTINGS).transmit(frame)[0]
                restored = GoldenCard(makers.SETTINGS).receive(coded)[0]
                n_frames = max(12, 800 // beats_of(frame))
                options = {"check_counters": False}
                run = CardBench(model).play(tx=marks([frame] * n_frames), **options)
                steady_rate(run, "mac_tx", n_frames, max(beats_of(frame), beats_of(coded)))
                n_frames = min(n_frames, 500 // beats_of(coded))
                if n_frames > 11:
                    run = CardBench(model).play(rx=marks([coded] * n_frames), **options)
                    steady_rate(run, "host_rx", n_frames, max(beats_of(coded), beats_of(restored)))


def steady_rate(run, port, n_frames, n_cycles):
    """The last frames leave `n_cycles` apart, and the whole does not take longer."""
    lasts = run.taken[port][np.flatnonzero(run.unpack(port)["last"])]
    assert len(lasts) == n_frames
    first = n_frames // 2
    assert lasts[-1] - lasts[first] <= n_cycles * (n_frames - 1 - first) + 1


FOREIGN_LATENCY = 22  # cycles from first beat to first beat, for frames of 64 bytes and more
# the same for ours, without the packet time; docs/internals/inline.md
LATENCY = {"tx": 60, "rx": 75}


@pytest.mark.parametrize("n", [8, 336, 2104])
def test_latency(model, n):
    """Foreign frames wait for their head only; ours for a packet time, of the longer side."""
    rng = np.random.default_rng(11)
    foreign = makers.with_bytes(rng.bytes(600), 12, b"\x12\x34")
    run = CardBench(model).play(tx=[(foreign, False)], rx=[(foreign, False)])
    for i, o in SIDES.values():
        assert run.taken[o][0] - run.taken[i][0] <= FOREIGN_LATENCY
    for x in (makers.gradient(rng, n), np.zeros(n), np.ones(n)):
        own = makers.native_frame(x)
        coded = makers.coded({0: own})[0]
        run = CardBench(model).play(tx=[(own, False)], rx=[(coded, False)])
        packet_time = max(beats_of(own), beats_of(coded))
        for side, (i, o) in SIDES.items():
            assert run.taken[o][0] - run.taken[i][0] <= packet_time + LATENCY[side]


def test_settings_change_between_frames(model):
    """A write in mid-traffic: each frame is coded with the old settings or the new, never a mix."""
    rng = np.random.default_rng(12)
    before = makers.SETTINGS
    frames = [makers.native_frame(makers.gradient(rng, 40), seq=k) for k in range(80)]
    for register, after in (
        ("codec", replace(before, exponent=121, prescale=-3, paper_codec=True)),
        ("native", replace(before, native_port=1)),
        ("jobs_0", replace(before, jobs={200})),
    ):
        bench = CardBench(model)
        script = bus_script([(REGISTERS[register].offset, after.words()[register])])
        quiet = {name: np.zeros(301, np.int64) for name in script}
        for name in ("bus__bready", "bus__rready"):
            quiet[name][:] = 1
        levels = {name: np.concatenate([quiet[name], script[name]]) for name in script}
        beats = model.pack_frames("host_tx", frames, meta=np.arange(len(frames)))
        run = bench.instance.run({"host_tx": beats}, reset=False, signals=levels)
        fields = encoding.unpack(model.streams["mac_tx"].shape, run.outputs["mac_tx"])
        numbers = fields["meta"][fields["last"] == 1].astype(int)
        old, new = GoldenCard(before), GoldenCard(after)
        changed = []
        for number, got in zip(numbers, run.frames("mac_tx"), strict=True):
            was, now = (card.transmit(frames[number])[0] for card in (old, new))
            assert was != now
            assert got in (was, now)
            changed.append((int(number), got == now))
        assert len(changed) == len(frames)
        flags = [flag for _, flag in sorted(changed)]
        assert flags == sorted(flags)
        assert 0 < sum(flags) < len(frames)


def test_errors():
    with pytest.raises(ValueError, match="max_floats must be 1 to 2104, not 2105"):
        InlineCard(8, max_floats=2105)
    with pytest.raises(ValueError, match="n_lanes must be"):
        InlineCard(12)
    with pytest.raises(ValueError, match="meta_width must be at least 0, not -1"):
        InlineCard(8, meta_width=-1)
    assert len(inline.COUNTERS) == len(set(inline.COUNTERS))


@pytest.mark.parametrize("lanes", [8, 32])
def test_the_bench_sees_bytes_behind_a_frame_of_ours(lanes):
    """Also where ``keep`` is wider than a number of 64 bits."""
    shape = InlineCard(lanes, meta_width=16).mac_tx.payload.shape()
    frame = bytes(range(1, 151))
    beats = encoding.pack_frames(shape, [frame], at_last={"bad": [0]}, meta=np.array([7]))
    run = SimpleNamespace(outputs={"mac_tx": beats}, frames=lambda port: [frame])
    bench = SimpleNamespace(model=SimpleNamespace(streams={"mac_tx": SimpleNamespace(shape=shape)}))
    CardBench._compare(bench, "tx", run, ([], [(7, frame, False)]))
    beats[-1, 150 % (4 * lanes)] = 1
    with pytest.raises(AssertionError, match="bytes behind its end that are not 0"):
        CardBench._compare(bench, "tx", run, ([], [(7, frame, False)]))
