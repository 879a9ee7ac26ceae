"""The flit layer: links with credits, words and their places, and clusters of cards."""

import dataclasses

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.direct.landing import Landing
from gradnic.hdl.direct.link import Flit, FlitHead, FlitReceiver, FlitTransmitter, Payload
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.direct import cluster as flit_cluster
from gradnic.sim.direct.cluster import Cluster, Wires, cosim
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.engine.cluster_library import GOES_ON
from gradnic.sim.proof import formal

from gradnic.interface.flit import HEAD, Share, contributions

SPEED = Wires(latency=20)


class Link(wiring.Component):
    """A transmitter and a receiver back to back."""

    def __init__(self, credits):
        self.credits = credits
        super().__init__(
            {
                "packets": In(1),
                "heads": In(stream.Signature(FlitHead)),
                "payload": In(stream.Signature(Payload)),
                "o": Out(stream.Signature(Flit)),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.tx = tx = FlitTransmitter(self.credits)
        m.submodules.rx = rx = FlitReceiver(self.credits)
        for name in ("heads", "payload"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(tx, name))
        wiring.connect(m, tx.flits, rx.flits)
        wiring.connect(m, rx.o, wiring.flipped(self.o))
        m.d.comb += [
            tx.packets.eq(self.packets),
            tx.credit.eq(rx.credit),
            self.overflow.eq(rx.overflow),
        ]
        return m


def messages(rng, n):
    """(heads as dicts, payload words, last flags, flits expected for each kind of flow)."""
    heads, words, last, flits = [], [], [], ([], [])
    for k in range(n):
        size = int(rng.choice([1, 2, 15, 16, 17, 32, 33, 50]))
        head = {name: 0 for name in HEAD} | {"flow": k, "count": 1, "gather": k % 2}
        payload = [rng.bytes(16) for _ in range(size)]
        heads.append(head)
        words += payload
        last += [0] * (size - 1) + [1]
        for packets, out in enumerate(flits):
            for at, word in enumerate(payload):
                if at == 0 or (packets and at % 16 == 0):
                    out.append((packed(head | {"more": int(at > 0)}), 1, 0))
                out.append((word, 0, int(at == size - 1)))
    return heads, words, last, flits


def packed(head):
    value, at = 0, 0
    for name, width in HEAD.items():
        value |= int(head[name]) << at
        at += width
    return value.to_bytes(16, "little")


def flit_beats(model, port, flits):
    data = np.frombuffer(b"".join(f[0] for f in flits), np.uint8).reshape(-1, 16)
    return model.pack(port, data=data, head=[f[1] for f in flits], last=[f[2] for f in flits])


@pytest.mark.parametrize("packets", [0, 1])
@pytest.mark.parametrize("stalls", [{}, {"o": 0.4}, {"payload": 0.5, "heads": 0.2, "o": 0.9}])
def test_link_is_lossless_and_in_order(packets, stalls):
    rng = stimulus.rng("link", packets)
    heads, words, last, flits = messages(rng, 40)
    model = batch.build(Link(24))
    data = np.frombuffer(b"".join(words), np.uint8).reshape(-1, 16)
    run = model.run(
        {
            "heads": model.pack("heads", **{k: [h[k] for h in heads] for k in HEAD}),
            "payload": model.pack("payload", data=data, last=last),
        },
        stalls=stalls,
        signals={"packets": packets},
    )
    run.check(o=flit_beats(model, "o", flits[packets]))
    assert run.signals["overflow"] == 0
    if not stalls:  # full rate, heads included
        assert run.taken["o"][-1] - run.taken["o"][0] == len(flits[packets]) - 1


def test_no_flit_leaves_without_credit():
    """With no credit coming back exactly as many flits leave as the neighbor's buffer holds."""
    model = batch.build(FlitTransmitter(10))
    payload = model.pack("payload", data=np.zeros((50, 16), np.uint8), last=[0] * 49 + [1])
    head = model.pack("heads", **{k: [0] for k in HEAD})
    inputs = {"heads": head, "payload": payload}
    run = model.run(inputs, signals={"credit": 0}, drain=False, max_cycles=200)
    assert len(run.outputs["flits"]) == 10
    pattern = np.arange(400) % 3 == 0  # one in three cycles
    run = model.run(inputs, signals={"credit": pattern}, drain=False, max_cycles=60)
    assert len(run.outputs["flits"]) == 10 + 20


def test_stream_rules_of_the_link():
    for component in (FlitTransmitter(4), FlitReceiver(4)):
        assert formal.check_outputs(component, depth=12).method == "bounded"


def landing_run(flits, entries, places, **options):
    model = batch.build(Landing(8, n_chunks=4, n_words=64))
    instance = model.instance()
    for at, (base, ranks) in enumerate(entries):
        entry = {"entry_en": 1, "entry_addr": at, "entry": base | ranks << 7}
        instance.run(signals={**entry, "enable": 0}, reset=at == 0, drain=False, max_cycles=1)
    setup, at = 0, 0
    for name, width in (("chunk_words", 7), ("chunk_flits", 24), ("last_flits", 24), ("live", 3)):
        setup |= places[name] << at
        at += width
    signals = {"entry_en": 0, "enable": 1}
    signals["places"] = np.frombuffer(setup.to_bytes(8, "little"), np.uint8).reshape(1, -1)
    beats = flit_beats(model, "flits", flits)
    return instance.run({"flits": beats}, signals=signals, reset=False, **options)


PLACES = {"chunk_words": 3, "chunk_flits": 6, "last_flits": 4, "live": 3}


def message(rng, *, gather=0, rank=0, first=0, count=1, sizes=(6,), more_at=None):
    head = {name: 0 for name in HEAD}
    head |= {"gather": gather, "rank": rank, "first": first, "count": count}
    payload = [rng.bytes(16) for _ in range(sum(sizes))]
    flits = [(packed(head), 1, 0)]
    for at, word in enumerate(payload):
        if more_at == at:
            flits.append((packed(head | {"more": 1}), 1, 0))
        flits.append((word, 0, int(at == len(payload) - 1)))
    return flits, payload


@pytest.mark.parametrize("stalls", [{}, {"words": 0.3}, {"flits": 0.5, "words": 0.8}])
def test_every_chunk_lands_at_its_place(stalls):
    rng = stimulus.rng("landing")
    entries = [(0, 2), (2, 1), (3, 3), (6, 0)]
    flits, want = [], []
    for gather, rank, first, count in [
        (0, 1, 0, 1), (1, 0, 1, 2), (0, 0, 1, 2), (0, 2, 2, 1), (1, 0, 0, 1),
    ] * 6:  # fmt: skip
        sizes = [4 if chunk == 2 else 6 for chunk in range(first, first + count)]
        some, payload = message(
            rng, gather=gather, rank=rank, first=first, count=count, sizes=sizes, more_at=3
        )
        flits += some
        for chunk, size in zip(range(first, first + count), sizes, strict=True):
            place = chunk if gather else entries[chunk][0] + rank
            mine, payload = payload[:size], payload[size:]
            for k in range(0, size, 2):
                data = b"".join(mine[k : k + 2])
                want.append((data, 3 * place + k // 2, 1 - gather, int(k == size - 2), chunk))
    run = landing_run(flits, entries, PLACES, stalls=stalls)
    got = run.unpack("words")
    names = ("address", "landing", "ends", "chunk")
    for k, (data, *rest) in enumerate(want):
        assert got["data"][k].tobytes() == data
        assert [int(got[name][k]) for name in names] == rest, k
    assert len(got["address"]) == len(want)
    assert run.signals["foreign"] == 0
    if not stalls:
        np.testing.assert_array_equal(np.diff(run.taken["flits"]), 1)


def test_foreign_messages_write_nothing_or_are_told():
    rng = stimulus.rng("foreign")
    entries = [(0, 2), (2, 1), (3, 3), (6, 0)]
    good, _ = message(rng, first=1)
    for bad in (
        {"first": 3},  # an empty chunk
        {"first": 0, "rank": 2},
        {"first": 0, "count": 2},  # too short for its chunks
        {"sizes": (7,)},
        {"sizes": (5,)},
        {"count": 0},
    ):
        flits, _ = message(rng, **bad)
        run = landing_run(flits + good, entries, PLACES)
        assert run.signals["foreign"] == 1, bad
        address = run.unpack("words")["address"]
        assert address[-3:].tolist() == [6, 7, 8], bad  # the next good message lands
        if bad.keys() <= {"first", "rank"}:
            assert len(address) == 3
    run = landing_run(good[1:] + good, entries, PLACES)  # payload without a head
    assert run.signals["foreign"] == 1
    assert len(run.outputs["words"]) == 3


def test_shares():
    share = Share(8, 100, 4, np.array([2, 0, 1, 3]))
    assert (share.chunk_floats, share.chunk_words, share.live) == (32, 4, 4)
    assert share.chunk_flits == (8, 1)
    assert share.n_places == 6
    assert share.base.tolist() == [0, 2, 2, 3]
    values = np.arange(100, dtype=np.float32)
    words = share.to_words(values)
    assert words.shape == (16, 8)
    np.testing.assert_array_equal(share.from_words(words), values)
    assert Share(8, 20, 4, np.zeros(4, int)).live == 2  # two chunks are empty


def gradients(n_nodes, n_floats, name):
    """Everyday floats, with corners: NaN, Inf, zeros of both signs, subnormals, the largest."""
    rng = stimulus.rng(name, n_nodes, n_floats)
    values = rng.standard_normal((n_nodes, n_floats)).astype(np.float32)
    corners = np.array([0, 1 << 31, 1, 0x7FC00123, 0x7F800000, 0xFF800000, 0x7F7FFFFF], np.uint32)
    odd = rng.random(values.shape) < 0.1
    values[odd] = rng.choice(corners, odd.sum()).view(np.float32)
    return values


def table_of(spelling, algorithm, **options):
    topology = parse(spelling)
    return compile_table(build(topology, algorithm, **options)), topology


@pytest.mark.parametrize("packets", [False, True])
@pytest.mark.parametrize(
    ("spelling", "algorithm", "n_floats"),
    [
        ("mesh:2x2", "multitree", 300),
        ("mesh:2x2", "multitree", 20),  # two empty chunks, a short one
        ("ring:4", "ring", 517),
        ("mesh:2x2", "multitree", 5000),  # messages longer than the credits
    ],
)
def test_four_nodes(spelling, algorithm, n_floats, packets):
    table, topology = table_of(spelling, algorithm)
    values = gradients(4, n_floats, "four")
    cluster = Cluster(table, topology, n_floats, wires=SPEED, n_lanes=8, packets=packets)
    for round in range(2):  # twice in a row
        result = cosim(table, topology, values[::-1] if round else values, cluster=cluster)
        assert result.ok, result.first
    heads = int(result.result.links["heads"].sum())
    if packets and n_floats == 5000:  # chunks of 316 and 302 flits, each sent six times
        assert heads == 6 * (3 * 20 + 19)
    elif n_floats == 5000:
        assert heads == 6 * 4


@pytest.mark.parametrize("duty", [0.9, 0.3])
def test_stalls_and_late_starts_change_nothing_but_time(duty):
    table, topology = table_of("mesh:2x2", "multitree")
    values = gradients(4, 300, "stalls")
    cluster = Cluster(table, topology, 300, wires=SPEED, n_lanes=8)
    for seed in range(4):
        starts = stimulus.rng("starts", seed).integers(0, 500, 4)
        result = cosim(
            table, topology, values, cluster=cluster, duty=duty, seed=seed, starts=starts
        )
        assert result.ok, result.first


def test_a_run_hears_signals(interrupted):
    """Ctrl-C does not wait for the end of a run, here of 20 million cycles without a flit."""
    topology = parse("ring:2")
    table = compile_table(build(topology, "ring"))
    cluster = Cluster(table, topology, 300, wires=SPEED, n_lanes=8)
    values = np.ones((2, 300), np.float32)
    interrupted(lambda: cluster.run(values, duty=0, max_cycles=20_000_000))
    assert cluster._library.cluster_go(cluster._self, 1) == GOES_ON


def test_a_child_that_never_sends_is_named():
    """Node 3 never starts: the others wait, lose nothing, and say which row is stuck."""
    table, topology = table_of("mesh:2x2", "multitree")
    cluster = Cluster(table, topology, 300, wires=SPEED, n_lanes=8, watchdog=2000)
    result = cosim(
        table,
        topology,
        gradients(4, 300, "silent"),
        cluster=cluster,
        starts=[0, 0, 0, 1 << 40],
        max_cycles=8000,
    )
    assert not result.ok
    assert result.cycles is None
    assert "stuck" in result.first
    for node in range(3):
        status = result.result.status[node]
        assert status["stuck"]
        assert status["running"]
        assert not status["overflow"]
        row = table.of(node)[status["row"]]
        if row["op"] == 0:
            assert row["wait"] > 0
        assert row["first"] == status["chunk"]


@pytest.mark.parametrize("how", ["abort", "abort between rounds", "fault"])
def test_no_start_behind_a_round_that_was_broken_off(how):
    """Flits of it wait everywhere, and are the next round's to whoever takes them."""
    table, topology = table_of("ring:3", "ring")
    cluster = Cluster(table, topology, 96, wires=SPEED, n_lanes=8, watchdog=3000)
    values = gradients(3, 96, "broken")
    if how == "fault":
        for node in range(3):
            cluster._write(node, "table", [3])  # no operation has this number
        assert cluster.run(values, max_cycles=200).status[0]["fault"]
    else:
        done = cluster.run(values, max_cycles=60 if how == "abort" else 2000).done
        assert (done >= 0).all() == (how != "abort")
        strobe(cluster, "abort")
    assert all(cluster._status(node)["broken"] for node in range(3))
    with pytest.raises(ValueError, match=r"node 0 takes no start: .* must be reset"):
        cluster.run(values)
    strobe(cluster, "start")  # nor does the circuit
    done = np.zeros((1, 1), np.uint8)
    for node in [0, 1, 2] * 100:
        cluster._library.cluster_tick(cluster._self, node)
        number, _ = cluster._ports["done"]
        cluster._library.cluster_get(cluster._self, node, number, done.ctypes.data)
        assert not done[0, 0]
        assert not cluster._status(node)["running"]


def strobe(cluster, name):
    """One cycle of a plain input of all cards, in which links stand still."""
    for node in range(cluster.table.n_nodes):
        cluster._set(node, name, 1)
        cluster._library.cluster_tick(cluster._self, node)
        cluster._set(node, name, 0)


@pytest.mark.parametrize(
    ("spelling", "algorithm"),
    [("bigraph:2x4", "hdrm"), ("bigraph:2x4", "multitree"), ("fattree:2x3", "multitree")],
)
def test_switches(spelling, algorithm):
    table, topology = table_of(spelling, algorithm)
    values = gradients(8, 700, "switches")
    cluster = Cluster(table, topology, 700, wires=SPEED, n_lanes=8)
    for duty in (1.0, 0.6):
        result = cosim(table, topology, values, cluster=cluster, duty=duty)
        assert result.ok, result.first


def test_a_wrong_rank_is_seen():
    """Two contributions in each other's place: other bits, so the comparison can fail."""
    table, topology = table_of("mesh:2x2", "multitree")
    values = np.random.default_rng(1).standard_normal((4, 300)).astype(np.float32)
    rows = table.rows.copy()
    children = np.isin(rows["node"], (1, 2)) & (rows["op"] == 0) & (rows["first"] == 0)
    assert sorted(rows["rank"][children]) == [0, 1]
    rows["rank"][children] = 1 - rows["rank"][children]
    turned = dataclasses.replace(table, rows=rows)
    np.testing.assert_array_equal(contributions(turned), contributions(table))
    got = Cluster(turned, topology, 300, wires=SPEED, n_lanes=8).run(values).replicas
    assert (got == flit_cluster.all_reduce(turned, values)).all()
    assert (got != flit_cluster.all_reduce(table, values)).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_lanes": 12}, "n_lanes must be 8, 16 or 32"),
        ({"wires": {"latency": 0}}, "link latency must be 1 or more, not 0"),
        ({"wires": {"bytes_per_cycle": 20}}, "above 0 and at most 16, not 20"),
        ({"spelling": "mesh:2x3", "algorithm": "ring2d"}, "cards never forward"),
    ],
)
def test_errors(options, message):
    table, topology = table_of(
        options.get("spelling", "mesh:2x2"), options.get("algorithm", "multitree")
    )

    def make():
        wires = Wires(**options.get("wires", {}))
        Cluster(table, topology, 100, wires=wires, n_lanes=options.get("n_lanes", 8))

    with pytest.raises(ValueError, match=message):
        make()
