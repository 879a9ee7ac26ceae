"""What all parsers ask of a head, in a parser without further rules, against the golden answers."""

import numpy as np
import pytest
from amaranth.hdl import Cat, Signal
from amaranth.lib import data
from gradnic.hdl.frame.classes import FrameClass
from gradnic.hdl.frame.head import RAW_HEAD, envelope
from gradnic.hdl.frame.parser import HeadParser, checked, plain_udp, sound_flags
from gradnic.hdl.stream.delays import delayed
from gradnic.models.frame import parser as golden
from gradnic.models.frame.ipv4 import is_plain_udp
from gradnic.sim.engine import batch, encoding
from gradnic.sim.frame import frames as makers

from gradnic.interface.formats import HEAD_BYTES, IPV4, UDP
from gradnic.interface.inline import Fate

FACTS = data.StructLayout({"check": FrameClass(), "plain": 1, "sound": 1})


class Plain(HeadParser):
    """Takes every frame for gradnic's, and says what its head shows."""

    depth = 6
    stops = (UDP.stop, HEAD_BYTES)

    def __init__(self, n_bytes):
        super().__init__(n_bytes, meta_width=3, facts=FACTS, members={}, keeps_meta=True)

    def judge(self, m, head, meta, whole):
        """See `HeadParser`."""
        field = head.field
        sums = envelope(m, head, whole=whole[1] & (field(UDP.length) >= RAW_HEAD))
        plain = Cat(plain_udp(field).values()).all() & whole[0]
        sound = Cat(sound_flags(field).values()).all()
        result = Signal(FACTS)
        m.d.sync += [
            *checked(result.check, sums),
            result.plain.eq(delayed(m, plain, 5, name="plain")),
            result.sound.eq(delayed(m, sound, 5, name="sound")),
        ]
        return result


@pytest.mark.parametrize("n_bytes", [16, 64])
def test_heads_are_read_as_the_golden_model_does(n_bytes):
    rng = np.random.default_rng(n_bytes)
    frames = []
    for _ in range(4):
        frames += makers.foreign_frames(rng).values()
        native = makers.own_frames(rng, int(rng.integers(1, 60)))["native"]
        frames += [native, *makers.faults(native, rng).values()]
        frames += [native[:n] for n in range(1, 70)]
    frames = [frames[k] for k in rng.permutation(len(frames))]
    model = batch.build(Plain(n_bytes))
    beats = model.pack_frames("i", frames)
    for stalls in ({}, {"i": 0.7, "beats": 0.6}):
        run = model.run({"i": beats}, stalls=stalls)
        run.check(beats=beats)
        facts = encoding.unpack(FACTS, run.outputs["facts"])
        offset, width, _ = encoding.fields_of(FACTS)["check"]
        bits = np.unpackbits(run.outputs["facts"], axis=1, bitorder="little")
        checks = np.packbits(bits[:, offset : offset + width], axis=1, bitorder="little")
        checks = encoding.unpack(FrameClass(), checks)
        assert len(checks["fate"]) == len(frames)
        for k, frame in enumerate(frames):
            assert bool(facts["plain"][k]) == is_plain_udp(frame)
            if len(frame) < HEAD_BYTES:
                assert checks["fate"][k] == Fate.LENGTH
                continue
            assert bool(facts["sound"][k]) == golden.is_sound(frame)
            if len(frame) < IPV4.start + IPV4.total_length.get(frame):
                continue  # cut behind its head, which the head does not show
            reason = golden.refusal(frame, False, HEAD_BYTES, native=False)
            if reason == "checksum" and makers.refreshed(frame) == frame:
                continue  # that of UDP, which takes the whole frame
            assert checks["fate"][k] == (Fate[reason.upper()] if reason else Fate.CODED)
            assert checks["end"][k] == UDP.start + UDP.length.get(frame)
            assert bool(checks["unsummed"][k]) == (UDP.checksum.get(frame) == 0)
    quick = model.run({"i": model.pack_frames("i", [bytes(64)] * 40)})
    n_head = -(-64 // n_bytes)
    assert quick.taken["facts"][0] - quick.taken["i"][n_head - 1] == Plain.depth + 3
    assert np.ptp(quick.taken["i"]) == 40 * n_head - 1
