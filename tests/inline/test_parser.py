"""The parser against the golden parser's opinion of each frame, at every width and both ways."""

import numpy as np
import pytest
from gradnic.hdl.frame.classes import FrameClass
from gradnic.hdl.inline.parser import Parser, Settings
from gradnic.models.inline import parser
from gradnic.models.inline.card import InlineCard
from gradnic.sim.engine import batch, encoding
from gradnic.sim.frame import frames as makers

from gradnic.interface.formats import IPV4
from gradnic.interface.inline import Fate

LATENCY = 10  # cycles from the last beat of the head to the class
NEEDS_THE_END = ("udp checksum", "payload bit", "cut", "cut in the head")


def packed_settings(s):
    """`gradnic.interface.inline.InlineSettings` as the parser's input."""
    jobs = np.zeros(32, np.uint8)
    for job in s.jobs:
        jobs[job // 8] |= 1 << job % 8
    return encoding.pack(
        Settings(),
        paper=int(s.paper),
        tos=s.tos,
        coded=s.tos_coded,
        mask=s.tos_mask,
        low=s.port_low,
        high=s.port_high,
        port=s.native_port,
        limit=s.floats_limit,
        exponent=s.exponent,
        paper_codec=int(s.paper_codec),
        prescale=s.prescale,
        jobs=jobs[None, :],
    )


def frames_of_all_kinds(rng, receive):
    """[(frame, whether its head alone decides its fate)]."""
    frames = [(frame, True) for frame in makers.foreign_frames(rng).values()]
    own = makers.own_frames(rng, int(rng.integers(1, 60)))
    own = makers.coded(own) if receive else own
    for frame in own.values():
        frames.append((frame, True))
        if len(frame) >= 64:
            bad = makers.faults(frame, rng)
            frames += [(f, name not in NEEDS_THE_END) for name, f in bad.items()]
    frames += [(own["native"][:n], n < 42) for n in range(1, 70)]
    return [frames[k] for k in rng.permutation(len(frames))]


@pytest.mark.parametrize("n_bytes", [16, 32, 64, 128])
@pytest.mark.parametrize("receive", [False, True])
def test_classes(n_bytes, receive):
    model = batch.build(Parser(n_bytes, receive=receive))
    rng = np.random.default_rng(n_bytes)
    golden = InlineCard(makers.SETTINGS)
    frames = [f for _ in range(4) for f in frames_of_all_kinds(rng, receive)]
    beats = model.pack_frames("i", [frame for frame, _ in frames])
    settings = packed_settings(makers.SETTINGS)
    for stalls in ({}, {"i": 0.7, "beats": 0.6}):
        run = model.run({"i": beats}, stalls=stalls, signals={"settings": settings})
        run.check(beats=beats)
        rows = encoding.unpack(FrameClass(), run.outputs["facts"])
        unit = encoding.unpack(FrameClass().members["unit"], unit_rows(run.outputs["facts"]))
        assert len(rows["ours"]) == len(frames)
        for k, (frame, decided) in enumerate(frames):
            kind = golden.kind_in(frame) if receive else golden.kind_out(frame)
            assert bool(rows["ours"][k]) == (kind is not None)
            if kind is None:
                continue
            assert bool(unit["native"][k]) == (kind == "native")
            assert bool(rows["unchecked"][k]) == (kind == "marked")
            if not decided or 14 + IPV4.total_length.get(frame) > len(frame):
                continue
            if receive:
                fate = parser.fate_in(frame, False, kind)
            else:
                fate = parser.fate_out(golden.settings, frame, False, kind)
            if fate is Fate.CHECKSUM and makers.refreshed(frame) == frame:
                continue  # that of UDP, which takes the whole frame
            got = Fate(int(rows["fate"][k]))
            if receive and got is Fate.CODEC:  # what the model sees when it decodes
                assert golden._restore(frame, kind) is None
                continue
            assert got is fate
            assert bool(rows["coding"][k]) == (fate is Fate.CODED)
            if fate is Fate.CODED:
                of = parser.unit_in if receive else parser.unit_out
                wanted = of(golden.settings, frame, native=kind == "native")
                assert told(unit, k, receive) == told_of(wanted, receive)


def told(unit, k, receive):
    """What the codec hears of frame `k`; a restored unit has no limit."""
    names = ("count", "bytes", "exponent", "paper", "prescale", "tos")
    return tuple(int(unit[name][k]) for name in (*names, *([] if receive else ["limit"])))


def told_of(unit, receive):
    """The same of a golden unit."""
    fields = (unit.count, unit.n_bytes, unit.exponent, int(unit.paper), unit.prescale, unit.tos)
    return fields if receive else (*fields, unit.limit)


def unit_rows(beats):
    """The field ``unit`` of classes as beats of its own."""
    fields = encoding.fields_of(FrameClass())
    offset, width, _ = fields["unit"]
    bits = np.unpackbits(beats, axis=1, bitorder="little")[:, offset : offset + width]
    return np.packbits(bits, axis=1, bitorder="little")


@pytest.mark.parametrize("n_bytes", [16, 32, 64, 128])
def test_rate_and_latency(n_bytes):
    """Frames of one beat and of a head follow each other without a gap."""
    model = batch.build(Parser(n_bytes, receive=False))
    rng = np.random.default_rng(1)
    short = [rng.bytes(int(n)) for n in rng.integers(1, n_bytes + 1, 150)]
    heads = [rng.bytes(64)] * 60
    for frames, n_head in ((short, 1), (heads, -(-64 // n_bytes))):
        beats = model.pack_frames("i", frames)
        signals = {"settings": packed_settings(makers.SETTINGS)}
        run = model.run({"i": beats}, signals=signals)
        assert run.taken["i"][-1] - run.taken["i"][0] == len(beats) - 1
        assert run.taken["facts"][0] - run.taken["i"][n_head - 1] == LATENCY
