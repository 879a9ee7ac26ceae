"""Mutation campaign of the in-line card at 4 lanes: what its test must notice, and what it cannot.

The engines inside have campaigns of their own; here they are small, and so is every frame. The
longest waits (a full store of coded frames, a frame of 16 KiB) come last.
"""

import numpy as np

from ..hdl.inline import InlineCard
from ..inline import InlineSettings
from ..models import inline as golden
from . import frames as makers
from .card import CardBench

N_LANES = 4
MAX_FLOATS = 40
STALLS = {"host_tx": 0.6, "mac_tx": 0.6, "mac_rx": 0.2, "host_rx": 0.6}


def component():
    """The circuit under mutation."""
    return InlineCard(N_LANES, meta_width=16, max_floats=MAX_FLOATS)


class Remembered(golden.InlineCard):
    """A golden card that works out each frame once, whatever the number of mutants."""

    seen = {}

    def _once(self, side, frame, bad):
        key = (side, self.settings, bytes(frame), bool(bad))
        if key not in self.seen:
            before = dict(self.counters)
            result = getattr(super(), side)(frame, bad)
            steps = {k: n - before[k] for k, n in self.counters.items() if n != before[k]}
            self.seen[key] = result, steps
        else:
            for name, step in self.seen[key][1].items():
                self.counters[name] += step
        return self.seen[key][0]

    def transmit(self, frame, bad=False):
        return self._once("transmit", frame, bad)

    def receive(self, frame, bad=False):
        return self._once("receive", frame, bad)


def traffic(rng, settings, n):
    """Frames of every kind for both inputs, faults included, at most `n` floats each."""
    out, into = [], []
    own = makers.own_frames(rng, n)
    coded = makers.coded(own, settings)
    for frames, list_ in ((own, out), (coded, into)):
        list_ += [*makers.foreign_frames(rng).values(), *frames.values(), *frames.values()]
        for name in ("paper small", "native small", "native"):
            list_ += makers.faults(frames[name], rng).values()
            if list_ is into:
                list_ += makers.units(frames[name], rng).values()
    into += own.values()
    for list_ in (out, into):
        list_[:] = [(list_[k], bool(rng.random() < 0.1)) for k in rng.permutation(len(list_))]
    return out, into


def settings_to_try():
    """The bench's own, then one that moves every field of every register."""
    yield makers.SETTINGS
    yield InlineSettings(
        paper=True,
        tos=0x51,
        tos_coded=0xA2,
        tos_mask=0xFB,
        port_low=8999,
        port_high=8999,
        native_port=9000,
        jobs=range(6, 32),
        exponent=121,
        prescale=-2,
        paper_codec=True,
        floats_limit=9,
    )


def test(model):
    """Frames, order, side band, counters; stalls; settings; overrun; too long frames."""
    rng = np.random.default_rng(5)
    for settings in settings_to_try():
        bench = CardBench(model, settings)
        bench.golden = Remembered(settings, max_floats=MAX_FLOATS)
        out, into = traffic(rng, settings, 30)
        bench.play(tx=out, rx=into, stalls={"mac_rx": 0.3})
        out, into = traffic(rng, settings, 11)
        bench.play(tx=out, rx=into, stalls=STALLS)
    few = [makers.udp_frame(rng.bytes(8), tos=tos, port=port) for tos, port in _edges()]
    bench.play(tx=[(f, False) for f in few], rx=[(f, False) for f in few])
    _overrun(model, rng)
    long = makers.with_bytes(rng.bytes(16500), 12, b"\x12\x34")
    good = makers.native_frame(makers.gradient(rng, 8))
    lengths = (16384, 16385, 16368, 16401)
    frames = [(f, False) for n in lengths for f in (long[:n], good)]
    CardBench(model, max_floats=MAX_FLOATS).play(tx=frames, rx=frames)


def _edges():
    """ToS and ports one bit beside what is set."""
    yield from ((0x51 ^ 1 << bit, 8999) for bit in range(8))
    yield from ((0xA2 ^ 1 << bit, 8999) for bit in range(8))
    yield from ((0x51, 8999 ^ 1 << bit) for bit in range(16))


def _overrun(model, rng):
    """With the host stopped, coded frames are lost whole and counted; the rest arrives in order."""
    bench = CardBench(model, max_floats=MAX_FLOATS)
    bench.golden = Remembered(bench.golden.settings, max_floats=MAX_FLOATS)
    ours = makers.coded({0: makers.native_frame(np.full(40, 3.0))})[0]
    foreign = makers.with_bytes(rng.bytes(64), 12, b"\x12\x34")
    frames = [ours] * 300 + [foreign, ours] * 20
    beats = model.pack_frames("mac_rx", frames, meta=np.arange(len(frames)))
    stalls = {"host_rx": ([0] * 4500, 1)}
    run = bench.instance.run({"mac_rx": beats}, reset=False, stalls=stalls)
    restored = bench.golden.receive(ours)[0]
    got = run.frames("host_rx")
    counters = bench.counters()
    assert set(got) == {restored, foreign}
    assert got.count(foreign) == counters["rx_foreign"] == 20
    assert got.count(restored) == counters["rx_coded"]
    assert counters["rx_coded"] + counters["rx_overrun"] == 320
    assert counters["rx_overrun"] in LOST
    bench.golden.counters = dict(counters)
    bench.play(rx=[(ours, False)] * 3)


LOST = range(200, 251)  # of 320; what is stored depends on the engines too
ELSEWHERE = r"\.codec\."  # the engines
EXPLAINED = {}
