"""Bad frames in volume through an RTL in-line card, a good one behind each, against its twin.

Every frame that leaves either side, its bad mark and side band, the order, and all counters are
compared by `gradnic.sim.inline.card.CardBench`: a bad frame that harms its successor, or is counted
wrongly, ends the run.
"""

from collections import Counter

from gradnic.hdl.inline.card import InlineCard

from ..engine import batch, stimulus
from ..frame import frames as makers
from .card import CardBench

MOST_FLOATS = 60  # of a frame; what is malformed lies in heads, tags and ends
STALLS = (1, 1, 0.6, 0.3)  # duties of inputs and outputs, drawn each round


def build(n_lanes=4):
    """Library of the card that is played."""
    return batch.build(InlineCard(n_lanes, meta_width=16))


def bad_frames(frame, rng, *, coded):
    """[(class, frame, mark)]: what may become of one of ours; coded: as it is on the wire."""
    cut = int(rng.integers(42, len(frame)))
    bad = [(name, wrong, False) for name, wrong in makers.faults(frame, rng).items()]
    if coded:
        units = makers.units(frame, rng).items()
        bad += [(f"unit, {name.split()[0]}", wrong, False) for name, wrong in units]
    bad += [
        ("marked bad", frame, True),
        ("truncated", frame[:cut], False),
        ("runt", frame[: int(rng.integers(1, 60))], False),
    ]
    return bad


def large_frames(rng):
    """[(class, frame, mark)] of frames that are too long, or nearly, or none of ours."""
    body = rng.bytes(int(rng.integers(16385, 20000)))
    return [
        ("jumbo", makers.with_bytes(body[: int(rng.integers(1519, 9019))], 12, b"\x12\x34"), False),
        ("marked jumbo", makers.udp_frame(body[: int(rng.integers(8500, 9000))], tos=0x28), False),
        ("oversize", makers.with_bytes(body, 12, b"\x12\x34"), False),
        ("marked oversize", makers.udp_frame(body, tos=0x28), False),
    ]


def side(rng, good, *, coded):
    """Frames for one input: [(class, frame, mark)], behind each bad one a good one, class ""."""
    bad = [each for frame in good for each in bad_frames(frame, rng, coded=coded)]
    bad += [(f"foreign, {name}", f, False) for name, f in makers.foreign_frames(rng).items()]
    if rng.random() < 0.1:
        bad += large_frames(rng)
    order = rng.permutation(len(bad))
    return [
        each for k in order for each in (bad[k], ("", good[int(rng.integers(len(good)))], False))
    ]


def fuzz(n_bad, *, model=None, seed=1, progress=None):
    """Play rounds until `n_bad` bad and foreign frames have been tried; both directions at once.

    model : of `build`, by default with 4 lanes. progress : called with (done, in all).

    Returns a dict: ``bad good cycles classes counters``. AssertionError with the first difference.
    """
    model = model or build()
    classes, counters = Counter(), Counter()
    n_good = cycles = number = 0
    while sum(classes.values()) < n_bad:
        rng = stimulus.rng("fuzz", seed, number)
        own = list(makers.own_frames(rng, int(rng.integers(1, MOST_FLOATS))).values())
        wires = list(makers.coded(dict(enumerate(own))).values())
        own, wires = ([f for f in frames if len(f) > 64] for frames in (own, wires))
        sides = {"tx": side(rng, own, coded=False), "rx": side(rng, wires, coded=True)}
        ports = ("host_tx", "mac_tx", "mac_rx", "host_rx")
        stalls = {port: float(rng.choice(STALLS)) for port in ports}
        stalls["mac_rx"] /= 4  # expansion is 16-fold: slow enough that nothing is lost
        bench = CardBench(model)
        traffic = {name: [(f, mark) for _, f, mark in frames] for name, frames in sides.items()}
        run = bench.play(**traffic, stalls=stalls, seed=number + 1)
        for frames in sides.values():
            classes.update(name for name, _, _ in frames if name)
            n_good += sum(not name for name, _, _ in frames)
        counters.update(bench.golden.counters)
        cycles, number = cycles + run.cycles, number + 1
        if progress:
            progress(min(sum(classes.values()), n_bad), n_bad)
    return {
        "bad": sum(classes.values()),
        "good": n_good,
        "cycles": cycles,
        "classes": dict(sorted(classes.items())),
        "counters": dict(counters),
    }
