"""Heads of packets against the golden ones: what they say, and whom they wait for."""

from types import SimpleNamespace

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.inceptionn.compressor import SIZE
from gradnic.hdl.offload import packet_head
from gradnic.hdl.offload.packet_sums import ROWS_WIDTH
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.transport.records import (
    CHECK_WIDTH,
    LEAVES_WIDTH,
    NUMBER_WIDTH,
    Packet,
    PacketHead,
    Round,
    Weighed,
)
from gradnic.hdl.transport.tagger import Tag
from gradnic.models.offload import packet_head as golden
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.mutation.packet_steps import KINDS, beats_of

from gradnic.interface.formats import Op

Told = data.StructLayout(
    {"packet": Packet, "leaves": LEAVES_WIDTH, "check": CHECK_WIDTH, "leaf": 1, "rows": ROWS_WIDTH}
)
WAITING = data.StructLayout({"head": PacketHead, "number": NUMBER_WIDTH, "rows": ROWS_WIDTH})
WAIT = 3  # cycles from a packet to its head, where nothing stalls


class Heads(wiring.Component):
    """Both ends of a maker's queue of heads. A packet is told for 2 cycles, as its steps do."""

    bits, bf16, n_bytes = 8, True, 16

    def __init__(self):
        super().__init__(
            {
                "round": In(Round),
                "rows": In(ROWS_WIDTH),
                "told": In(stream.Signature(Told)),
                "tags": In(stream.Signature(Tag)),
                "sizes": In(stream.Signature(SIZE)),
                "heads": Out(stream.Signature(PacketHead)),
                "weighed": Out(Weighed),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self.compressor = SimpleNamespace(sizes=self.sizes)
        m.submodules.queue = queue = FIFO(WAITING, 4)
        told = self.told
        packet_head.say(m, self, told.p.packet, queue.i, told.p.leaves, told.p.check, told.p.leaf)
        m.d.comb += [queue.i.p.rows.eq(told.p.rows), told.ready.eq(0)]
        with m.FSM():
            with m.State("SAID"):
                with m.If(told.valid):
                    m.next = "KNOWN"
            with m.State("KNOWN"):
                m.d.comb += [queue.i.valid.eq(1), told.ready.eq(queue.i.ready)]
                with m.If(queue.i.ready):
                    m.next = "SAID"
        packet_head.leave(m, self, queue.o, self.tags, self.rows)
        return m


def drawn(rng, kind, n):
    """A round's codec, packets with what is known of them, tags and sizes of coded units."""
    codec = dict.fromkeys(("coded", "norm", "thc", "bf16", "largest", "code"), 0)
    codec |= {name: int(rng.integers(1 << 8)) for name in ("prescale", "index_p0", "index_p1")}
    codec |= {"exponent": int(rng.integers(1 << 7)), "paper": int(rng.integers(2))}
    codec |= {"bits": int(rng.integers(2, 9))} | KINDS[kind]
    told = []
    for _ in range(n):
        packet = {name: int(rng.integers(1 << Packet[name].width)) for name in Packet.members}
        packet |= {"probe": int(rng.random() < 0.2), "elems": 16 * int(rng.integers(1, 200))}
        leaves = int(rng.choice([0, 1, 254, 255, 256, (1 << LEAVES_WIDTH) - 1]))
        leaf = int(codec["thc"] and rng.random() < 0.5)
        check = int(rng.integers(1 << CHECK_WIDTH))
        told.append({"packet": packet, "leaves": leaves, "check": check, "leaf": leaf, "rows": 0})
    most = {"queue": 8, "important": 2, "score": 256, "tos": 256}
    tags = [{name: int(rng.integers(end)) for name, end in most.items()} for _ in told]
    n_units = sum(codec["coded"] and not one["packet"]["probe"] for one in told)
    return codec, told, tags, [int(size) for size in rng.integers(1, 1 << 12, n_units)]


def wanted(codec, told, tags, sizes, round_):
    """Heads, and (number, important) of those that are weighed."""
    heads, weighed, sizes = [], [], iter(sizes)
    for one, tag in zip(told, tags, strict=True):
        packet = one["packet"]
        head = golden.said(codec, packet, one["leaves"], one["check"], leaf=one["leaf"])
        size = next(sizes) if head["op"] == Op.INC else 0
        heads.append(golden.left(head, tag, round_, size))
        if not packet["probe"] and not packet["retx"]:
            weighed.append((packet["number"], tag["important"]))
    return heads, weighed


def test_heads_are_the_golden_ones_in_their_order():
    """Of all codecs; sizes and tags, and whoever takes heads, may be late."""
    model, rng = batch.build(Heads()), stimulus.rng("packet_head")
    for kind in KINDS:
        codec, told, tags, sizes = drawn(rng, kind, 90)
        round_ = {"gen": int(rng.integers(1 << 16)), "tensor": int(rng.integers(1 << 16))}
        heads, weighed = wanted(codec, told, tags, sizes, round_)
        inputs = {"told": beats_of(told, Told), "tags": beats_of(tags, Tag)}
        inputs["sizes"] = beats_of([{"bytes": size} for size in sizes], SIZE)
        for stalls in ({}, {"heads": 0.7, "told": 0.2}, {"tags": 0.7, "sizes": 0.8, "heads": 0.2}):
            run = model.run(
                inputs, stalls=stalls, trace=["weighed"],
                signals={"round": beats_of([round_ | {"codec": codec}], Round), "rows": 0},
            )  # fmt: skip
            assert np.array_equal(run.outputs["heads"], beats_of(heads, PacketHead)), kind
            said = (Weighed.from_bits(int(bits)) for bits in run.traces["weighed"])
            found = [(one.number, one.important) for one in said if one.valid]
            assert found == weighed, kind


def test_rate_and_latency():
    """A head each two cycles, as a packet is told in two; the first 3 cycles behind its packet."""
    told, tags = drawn(stimulus.rng("packet_head", "rate"), "raw", 40)[1:3]
    inputs = {"told": beats_of(told, Told), "tags": beats_of(tags, Tag)}
    run = batch.build(Heads()).run(inputs)
    assert (np.diff(run.taken["heads"]) == 2).all()
    assert run.taken["heads"][0] - run.taken["told"][0] == WAIT


def test_a_head_of_data_waits_for_the_rows_before_it():
    """PROBEs pass; what counts is modulo, and a difference of half of it or more is none."""
    span = 1 << ROWS_WIDTH
    told, tags = drawn(stimulus.rng("packet_head", "rows"), "raw", 40)[1:3]
    wait, at = 300, 5  # cycles until rows are there; the first packet of data behind others
    for before, after in ((0, 1), (span - 2, 1), (0, span // 2 - 1)):
        for k, one in enumerate(told):
            one["packet"]["probe"] = int(k % 4 == 3)
            one["rows"] = after if k >= at else before
        inputs = {"told": beats_of(told, Told), "tags": beats_of(tags, Tag)}
        rows = np.r_[np.full(wait, before), after]
        run = batch.build(Heads()).run(inputs, signals={"rows": rows})
        assert len(run.outputs["heads"]) == len(told)
        assert run.taken["heads"][at - 1] < wait <= run.taken["heads"][at]
