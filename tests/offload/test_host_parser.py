"""Heads of frames to the host address against the golden parser: whole, broken, cut and foreign."""

import numpy as np
import pytest
from gradnic.hdl.frame.classes import FrameClass
from gradnic.hdl.offload.host_parser import Asked, Ends, HostFacts, HostParser
from gradnic.models.offload import host_parser as golden
from gradnic.models.offload.host_port import carried, request
from gradnic.sim.engine import batch, encoding, stimulus
from gradnic.sim.frame import frames as makers
from gradnic.sim.offload.host_bench import CARD, HOST
from gradnic.sim.offload.host_fuzz import Source

from gradnic.interface.formats import HEAD_BYTES, IPV4, UDP, UDP_PORT
from gradnic.interface.host_frame import HEAD, MAX_PAYLOAD, MAX_WORDS, Drop, Kind
from gradnic.interface.inline import Fate
from gradnic.interface.job import DESCRIPTOR

POST = DESCRIPTOR.n_bytes
FORMS = [
    *((Kind.WRITE, n, n, 0 < n <= MAX_PAYLOAD and n % 4 == 0)
      for n in (0, 2, 4, 6, MAX_PAYLOAD, MAX_PAYLOAD + 4)),
    *((Kind.WRITE_REG, n, n, 0 < n <= 4 * MAX_WORDS and n % 4 == 0)
      for n in (0, 2, 4, 4 * MAX_WORDS, 4 * MAX_WORDS + 4)),
    *((Kind.READ_REG, n, 0, 0 < n <= 4 * MAX_WORDS and n % 4 == 0)
      for n in (0, 2, 4, 4 * MAX_WORDS, 4 * MAX_WORDS + 4)),
    *((Kind.POST, n, n, n == POST) for n in (0, POST - 4, POST, POST + 4)),
    *((Kind.READ, n, 0, n > 0) for n in (0, 1, 65535)),
    *((kind, 7, 0, True) for kind in (Kind.HELLO, Kind.ACK)),
    *((kind, 4, 4, False) for kind in (Kind.HELLO, Kind.ACK, Kind.READ, Kind.READ_REG)),
    *((kind, 8, 4, False) for kind in (Kind.WRITE, Kind.WRITE_REG, Kind.POST)),
    (200, 3, 9, True),
]  # fmt: skip
"""(kind, ELEMS, bytes of payload, whether a host frame may be so)."""


def test_forms_are_as_the_format_says():
    for kind, elems, n, formed in FORMS:
        frame = request(CARD, HOST, kind, bytes(n), elems=elems)
        assert golden.is_formed(frame) == formed, (kind, elems, n)
        want = Drop.NONE if formed else Drop.FORMAT
        assert golden.refusal(frame, bad=False) == want
        assert golden.refusal(frame, bad=True) == Drop.BAD
        assert golden.refusal(frame, bad=False, udp_port=UDP_PORT ^ 1) == Drop.FOREIGN


def drawn(rng):
    """Frames of all sorts, in any order."""
    source = Source(rng)
    frames = [source.draw()[0] for _ in range(400)]
    frames += [request(CARD, HOST, kind, bytes(n), elems=elems) for kind, elems, n, _ in FORMS]
    whole = request(CARD, HOST, Kind.WRITE, rng.bytes(64), address=4096, seq=77, session=1 << 31)
    frames += makers.faults(whole, rng).values()
    frames += makers.foreign_frames(rng).values()
    frames += [makers.own_frames(rng, 20)["native"], carried(HOST, CARD, whole[UDP.stop :])]
    frames += [whole[:n] for n in range(1, 70)]
    return [frames[k] for k in rng.permutation(len(frames))]


def part_of(rows, shape, name):
    """A field that is a record, of rows of beats, as a dict of columns."""
    offset, width, _ = encoding.fields_of(shape)[name]
    bits = np.unpackbits(rows, axis=1, bitorder="little")[:, offset : offset + width]
    return np.packbits(bits, axis=1, bitorder="little")


def number(column):
    """Integers of a column, which has bytes where a field is wide."""
    column = np.asarray(column)
    if column.ndim == 1:
        return [int(one) for one in column]
    return [int.from_bytes(row.tobytes(), "little") for row in column]


@pytest.mark.parametrize("n_bytes", [16, 64])
def test_heads_are_read_as_the_model_does(n_bytes):
    """Whoever reads takes a frame's beats behind its facts: facts never wait much longer."""
    model = batch.build(HostParser(n_bytes))
    frames, seen = drawn(stimulus.rng("host_parser", str(n_bytes))), set()
    beats = model.pack_frames("i", frames)
    for stalls in ({}, {"i": 0.7, "beats": 0.6}, {"facts": 0.6, "beats": 0.3}):
        run = model.run({"i": beats}, stalls=stalls, signals={"udp_port": UDP_PORT})
        run.check(beats=beats)
        rows = run.outputs["facts"]
        facts, asked = encoding.unpack(HostFacts, rows), part_of(rows, HostFacts, "asked")
        ends = encoding.unpack(Ends, part_of(asked, Asked, "ends"))
        ends = {name: number(ends[name]) for name in Ends.members}
        asked = encoding.unpack(Asked, asked)
        asked = {name: number(asked[name]) for name in Asked.members if name != "ends"}
        fates = encoding.unpack(FrameClass(), part_of(rows, HostFacts, "check"))["fate"]
        assert len(rows) == len(frames)
        for k, frame in enumerate(frames):
            assert facts["foreign"][k] != golden.is_ours(frame), frame.hex()
            if len(frame) < HEAD_BYTES:
                assert fates[k] == Fate.LENGTH
                continue
            assert {name: asked[name][k] for name in asked} == {
                name: HEAD[name].get(frame) for name in asked
            }
            me, host = golden.ends(frame, CARD.mac)
            want = {"mac": host.mac, "ip": host.ip, "port": host.udp_port, "me": me.ip}
            assert {name: ends[name][k] for name in ends} == want
            cut = len(frame) < max(UDP.start + UDP.length.get(frame),
                                   IPV4.start + IPV4.total_length.get(frame))  # fmt: skip
            if cut or not golden.is_ours(frame):
                continue  # what is behind its head, which the head does not show
            why = golden.refusal(frame, bad=False)
            seen.add(why)
            if why == Drop.CHECKSUM and makers.refreshed(frame) == frame:
                continue  # that of UDP, which takes the whole frame
            if why in (Drop.LENGTH, Drop.CHECKSUM):
                assert fates[k] == Fate[why.name]
                continue
            assert (fates[k], facts["formed"][k]) == (Fate.CODED, why == Drop.NONE)
    assert seen == {Drop.NONE, Drop.FORMAT, Drop.LENGTH, Drop.CHECKSUM}


def test_rate_and_latency():
    """A frame of one beat each two cycles."""
    model = batch.build(HostParser(64))
    frame = request(CARD, HOST, Kind.READ, elems=64)
    run = model.run({"i": model.pack_frames("i", [frame] * 40)}, signals={"udp_port": UDP_PORT})
    assert run.taken["facts"][0] - run.taken["i"][0] == HostParser.depth + 3
    assert (np.diff(run.taken["facts"]) == 2).all()
