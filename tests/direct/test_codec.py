"""Codecs on flit links: INCEPTIONN units from port to port, THC sums, clusters bit for bit."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.direct.codec import FlitCoder, FlitDecoder, Settings
from gradnic.hdl.direct.landing import Places
from gradnic.hdl.direct.link import Flit, FlitHead, FlitTransmitter, Payload
from gradnic.models import inceptionn
from gradnic.models.direct import link
from gradnic.models.direct.codec import coded, decoded
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.direct import thc as flit_thc
from gradnic.sim.direct.cluster import Cluster, Wires, cosim
from gradnic.sim.engine import batch, stimulus

from gradnic.interface.flit import HEAD

SIZES = {"n_chunks": 16, "n_words": 64}
PLACES = {"chunk_words": 20, "chunk_flits": 70, "last_flits": 3, "live": 5}
STRICT = {"exponent": 117, "mode": "strict", "prescale": 0}
PAPER = {"exponent": 120, "mode": "paper", "prescale": -3}


class Pair(wiring.Component):
    """Coder, transmitter without limits, decoder; `flip` turns a bit of one coded flit."""

    def __init__(self):
        super().__init__(
            {
                "codec": In(Settings),
                "places": In(Places(**SIZES)),
                "flip": In(16),
                "heads": In(stream.Signature(FlitHead)),
                "payload": In(stream.Signature(Payload)),
                "o": Out(stream.Signature(Flit)),
                "unsound": Out(1),
                "n_flits": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.coder = coder = FlitCoder(**SIZES)
        m.submodules.transmitter = transmitter = FlitTransmitter(64)
        m.submodules.decoder = decoder = FlitDecoder()
        for name in ("heads", "payload"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(coder, name))
        wiring.connect(m, coder.unit_heads, transmitter.heads)
        wiring.connect(m, coder.units, transmitter.payload)
        wiring.connect(m, decoder.o, wiring.flipped(self.o))
        flits = transmitter.flits
        m.d.comb += [
            coder.codec.eq(self.codec),
            coder.places.eq(self.places),
            decoder.codec.eq(self.codec),
            decoder.flits.valid.eq(flits.valid),
            decoder.flits.p.eq(flits.p),
            decoder.flits.p.data[0].eq(flits.p.data[0] ^ (self.n_flits + 1 == self.flip)),
            flits.ready.eq(decoder.flits.ready),
            transmitter.credit.eq(flits.valid & flits.ready),
            self.unsound.eq(decoder.unsound),
        ]
        m.d.sync += self.n_flits.eq(self.n_flits + (flits.valid & flits.ready))
        return m


def row(shape, values):
    """A struct as the one row of bytes that a signal takes."""
    bits = shape.const(values).as_value().value
    return np.frombuffer(bits.to_bytes(-(-shape.size // 8), "little"), np.uint8).reshape(1, -1)


def settings(codec):
    values = {"exponent": codec["exponent"], "paper": int(codec["mode"] == "paper")}
    return row(Settings, values | {"prescale": codec["prescale"] & 0xFF})


def messages(rng, codec):
    """(heads, payload words, last flags, flits expected): one to four chunks, the last is short."""
    heads, words, last, flits = [], [], [], []
    for k, (first, count) in enumerate([(0, 1), (4, 1), (1, 4), (3, 1), (0, 2)]):
        head = dict.fromkeys(HEAD, 0) | {"flow": k, "first": first, "count": count, "rank": 2}
        size = sum(3 if c == 4 else 70 for c in range(first, first + count))
        values = (rng.standard_normal(4 * size) * 0.02).astype(np.float32)
        values[rng.random(4 * size) < 0.05] = np.float32(np.nan)
        image = inceptionn.image(values, **codec)
        heads.append(head)
        words.append(values)
        last += [0] * (size - 1) + [1]
        flits.append((link.head(head).tobytes(), 1, 0))
        flits += [(part.tobytes(), 0, int(i == size - 1)) for i, part in
                  enumerate(image.reshape(-1, 4))]  # fmt: skip
    return heads, np.concatenate(words), last, flits


def pair_run(model, codec, heads, words, last, **options):
    data = words.view(np.uint8).reshape(-1, 16)
    signals = {"codec": settings(codec), "places": row(Places(**SIZES), PLACES)}
    signals |= options.pop("signals", {})
    return model.run(
        {
            "heads": model.pack("heads", **{k: [h[k] for h in heads] for k in HEAD}),
            "payload": model.pack("payload", data=data, last=last),
        },
        signals=signals,
        **options,
    )


@pytest.mark.parametrize("codec", [STRICT, PAPER], ids=["strict", "paper"])
@pytest.mark.parametrize("stalls", [{}, {"o": 0.4}, {"payload": 0.5, "heads": 0.2, "o": 0.9}])
def test_messages_come_back_as_the_codec_leaves_them(codec, stalls):
    heads, words, last, flits = messages(stimulus.rng("coded", codec["exponent"]), codec)
    model = batch.build(Pair())
    run = pair_run(model, codec, heads, words, last, stalls=stalls)
    got = run.unpack("o")
    assert got["head"].tolist() == [f[1] for f in flits]
    assert got["last"].tolist() == [f[2] for f in flits]
    plain = np.flatnonzero(got["head"] == 0)
    expected = np.frombuffer(b"".join(f[0] for f in flits), np.uint8).reshape(-1, 16)
    np.testing.assert_array_equal(got["data"][plain], expected[plain])
    first = [link.fields(octets) for octets in got["data"][got["head"] == 1]]
    for name in ("flow", "first", "count", "rank", "more"):
        assert [f[name] for f in first] == [h[name] for h in heads]
    assert run.signals["unsound"] == 0
    assert run.signals["n_flits"] < 0.6 * len(flits)  # heads included
    if not stalls:  # units of 64, 6 and 3 flits: 2 cycles each, and waits for room in the coder
        assert run.taken["payload"][-1] - run.taken["payload"][0] < 1.3 * len(words) / 4


def test_an_unsound_unit_is_told_and_leaves_nothing():
    """The tag of a unit's first float changes: its length no longer fits."""
    heads, words, last, _ = messages(stimulus.rng("unsound"), STRICT)
    model = batch.build(Pair())
    run = pair_run(model, STRICT, heads[:1], words[: 4 * 70], last[:70], signals={"flip": 2})
    assert run.signals["unsound"] == 1
    assert run.unpack("o")["head"].sum() == 1
    assert len(run.outputs["o"]) == 1 + 6  # the head, and the unit of the last 6 flits


GRID = [{}, {"i": 0.4}, {"o": 0.4}, {"i": 0.7, "o": 0.6}]


def units_of(codec):
    """(Heads, payload, its last flags, units of each) of messages, coded."""
    heads, words, last, _ = messages(stimulus.rng("units", codec["exponent"]), codec)
    payload, units = words.view(np.uint8).reshape(-1, 16), []
    for head, part in zip(heads, np.split(payload, np.flatnonzero(last)[:-1] + 1), strict=True):
        chunks = range(head["first"], head["first"] + head["count"])
        units += coded(head, part, [3 if chunk == 4 else 70 for chunk in chunks], codec)
    return heads, payload, last, units


def raw(model, port, flits):
    names = {name: flits[name].astype(np.uint8) for name in ("data", "head", "last")}
    return model.pack(port, **names)


@pytest.mark.parametrize("codec", [STRICT, PAPER], ids=["strict", "paper"])
@pytest.mark.parametrize("stalls", GRID, ids=str)
def test_units_leave_as_the_golden_ones(codec, stalls):
    model = batch.build(FlitCoder(**SIZES))
    heads, payload, last, units = units_of(codec)
    ports = {"i": ("heads", "payload"), "o": ("unit_heads", "units")}
    run = model.run(
        {
            "heads": model.pack("heads", **{name: [h[name] for h in heads] for name in HEAD}),
            "payload": model.pack("payload", data=payload, last=last),
        },
        signals={"codec": settings(codec), "places": row(Places(**SIZES), PLACES)},
        stalls={port: duty for side, duty in stalls.items() for port in ports[side]},
    )
    its = [link.fields(unit["data"][0]) for unit in units]
    flits = np.concatenate([unit[1:] for unit in units])
    run.check(
        unit_heads=model.pack("unit_heads", **{name: [h[name] for h in its] for name in HEAD}),
        units=model.pack("units", data=flits["data"], last=flits["last"].astype(int)),
    )
    if not stalls:
        assert (np.diff(run.taken["payload"]) == 1).all()
        assert run.taken["payload"][0] - run.taken["heads"][0] == 9


@pytest.mark.parametrize("codec", [STRICT, PAPER], ids=["strict", "paper"])
@pytest.mark.parametrize("stalls", GRID, ids=str)
@pytest.mark.parametrize("broken", [False, True])
def test_units_come_back_as_the_golden_ones(codec, stalls, broken):
    """Of a unit that is unsound nothing comes, whatever is wrong with it."""
    model, units = batch.build(FlitDecoder()), units_of(codec)[-1]
    if broken:
        units[0]["data"][1, 0] ^= 1  # a tag
        units[3] = np.delete(units[3], 1)  # a flit is missing
        its = link.fields(units[6]["data"][0])
        units[6]["data"][0] = link.head(its | {"flits": its["flits"] + 1})
    flits, unsound = decoded(units, codec)
    run = model.run(
        {"flits": raw(model, "flits", np.concatenate(units))},
        signals={"codec": settings(codec)},
        stalls={{"i": "flits", "o": "o"}[side]: duty for side, duty in stalls.items()},
    )
    run.check(o=raw(model, "o", flits))
    assert run.signals["unsound"] == unsound == broken


@pytest.mark.parametrize(("value", "gap"), [(0.0, 2), (0.02, 2), (1.5, 13)])
def test_rate_of_whole_units(value, gap):
    """2 cycles a unit without a flit out; of raw floats 69 flits and 8 cycles for 64."""
    its, n = dict.fromkeys(HEAD, 0) | {"count": 1}, 640
    payload = np.full((n, 4), value, "<f4").view(np.uint8)
    model, units = batch.build(FlitDecoder()), coded(its, payload, [n], STRICT)
    run = model.run(
        {"flits": raw(model, "flits", np.concatenate(units))}, signals={"codec": settings(STRICT)}
    )
    run.check(o=raw(model, "o", decoded(units, STRICT)[0]))
    assert (np.diff(run.taken["o"][1::64]) == 64 + gap).all()


def test_a_cluster_codes_every_hop():
    table, topology = compile_table(build(parse("mesh:2x2"), "multitree")), parse("mesh:2x2")
    rng = stimulus.rng("coded cluster")
    # of one float three chunks are empty
    for n_floats, codec in ((300, STRICT), (2500, PAPER), (1, STRICT), (17, PAPER)):
        values = (rng.standard_normal((4, n_floats)) * 0.02).astype(np.float32)
        values[:, 2::50] = np.array([np.nan, np.inf, -np.inf, 1e30], np.float32)[:, None]
        cluster = Cluster(table, topology, n_floats, wires=Wires(20), n_lanes=8, codec=codec)
        for duty in (1.0, 0.5):
            result = cosim(table, topology, values, cluster=cluster, duty=duty)
            assert result.ok, result.first
        plain = Cluster(table, topology, n_floats, wires=Wires(20), n_lanes=8).golden(values)
        assert (result.result.replicas.view("u4") != plain.view("u4")).any()


def test_thc_sums_are_integers():
    table, topology = compile_table(build(parse("mesh:2x2"), "multitree")), parse("mesh:2x2")
    values = stimulus.rng("thc").standard_normal((4, 3000)).astype(np.float32)
    result, replicas = flit_thc.run(table, topology, values, block=256, wires=Wires(20), n_lanes=8)
    assert result.ok, result.first
    assert (replicas == replicas[0]).all()
    mean = values.mean(axis=0)
    assert ((replicas[0] - mean) ** 2).sum() < 0.03 * (mean**2).sum()


@pytest.mark.parametrize("options", [{"packets": True}, {"op": 1}])
def test_the_codec_takes_floats_in_messages(options):
    table, topology = compile_table(build(parse("ring:2"), "ring")), parse("ring:2")
    with pytest.raises(ValueError, match="the codec takes floats, in messages"):
        Cluster(table, topology, 100, codec=STRICT, **options)
