"""Stream rules on every output port of the blocks, at real size and for all time, level by level.

What each test shows is in `gradnic.sim.proof.port_proofs`. A level that a block shares with one
before it is shown once.
"""

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.fpga.flow import blocks
from gradnic.hdl.axi import dma
from gradnic.hdl.axi import register_bank as registers
from gradnic.hdl.axi.axi4 import ReadPort, WritePort
from gradnic.hdl.axi.wide import WideRead, WideWrite
from gradnic.hdl.frame import arbiter, splice
from gradnic.hdl.inceptionn import compressor, merger
from gradnic.hdl.inceptionn.merger import CodedUnit
from gradnic.hdl.offload.host_side import HostSide
from gradnic.hdl.offload.thc_encode_pass import EncodePass
from gradnic.hdl.offload.thc_pass import DecodePass, NormPass
from gradnic.hdl.shells.common import axi4_ram, fan, host_words
from gradnic.hdl.shells.common.axi4_ram import Axi4Ram
from gradnic.hdl.shells.opennic.onchip_card import HostWindow
from gradnic.hdl.stream import admission as pipeline
from gradnic.hdl.stream import fifo, outlet, pair_queue
from gradnic.hdl.stream import slice as streams
from gradnic.hdl.stream.beats import Beat, FrameBeat
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.stream.outlet import Outlet
from gradnic.hdl.top import catalog as tops
from gradnic.hdl.transport import framer
from gradnic.sim.proof import formal, port_proofs

from gradnic.interface import inline, params

N_LANES = 16


def block(name):
    """A block of `gradnic synth` at 16 lanes, or at the one size it has."""
    sizes = blocks.BLOCKS[name].lanes
    return blocks.build(name, N_LANES if N_LANES in sizes else sizes[0])


def ports(component):
    """Names of the output channels."""
    found = port_proofs.channels(component).items()
    return {name for name, (flow, _) in found if flow == wiring.Out}


# The card of jobs is among the Verilog modules; by itself no induction of these lengths holds.
BLOCKS = [name for name in blocks.BLOCKS if name != "jobs-thc" and ports(block(name))]


@pytest.fixture(scope="module")
def done():
    """Levels that have been shown."""
    return {}


# The other offload cards and the other two modules add little to what the blocks show: a minute.
SLOW = {"offload-inc", "offload-raw", params.Offload, params.Aggregator}


def each(kinds):
    return [pytest.param(kind, marks=pytest.mark.slow) if kind in SLOW else kind for kind in kinds]


@pytest.mark.parametrize("name", each(BLOCKS))
def test_ports_of_a_block(name, done):
    """Rules 1 to 4 and 9, for all time."""
    component = block(name)
    proofs = port_proofs.prove(component, done=done)
    # none: it was a part of another block
    assert not proofs or set(proofs[0].channels) == ports(component)
    assert all(proof.n_asserts and proof.n_covers for proof in proofs)


SIZES = {  # of the Verilog modules, those of the blocks where there is one
    params.Inline: {"n_lanes": N_LANES},
    params.Compressor: {"n_lanes": N_LANES},
    params.Decompressor: {"n_lanes": N_LANES},
    params.Aggregator: {"n_bytes": 32, "n_slots": 16, "queues": 8},
    params.Offload: {"n_bytes": 4 * N_LANES},
}


@pytest.mark.parametrize("kind", each(tops.TOPS), ids=lambda kind: kind.__name__)
def test_ports_of_a_verilog_module(kind, done):
    """The same rules on AXI4-Stream, AXI4 and AXI4-Lite."""
    top = tops.build(kind(**SIZES.get(kind, {})))
    assert set(port_proofs.prove(top, done=done)[0].channels) == ports(top)


@pytest.mark.parametrize(
    "part",
    [
        lambda: Axi4Ram(4 * N_LANES, 1024),
        lambda: HostWindow(2, 20),
        lambda: WideRead(ReadPort(16, 20), 64),
        lambda: WideWrite(WritePort(16, 20), 64),
    ],
    ids=["Axi4Ram", "HostWindow", "WideRead", "WideWrite"],
)
def test_ports_of_a_memory(part, done):
    """What `OnChipCard` and `WideMemory` join to the offload card: AXI4 and AXI4-Lite."""
    component = part()
    assert set(port_proofs.prove(component, done=done)[0].channels) == ports(component)


@pytest.mark.parametrize(
    ("kind", "more"),
    [(NormPass, {"feedback": True}), (EncodePass, {"feedback": True}), (DecodePass, {})],
    ids=["norm", "encode", "decode"],
)
def test_ports_of_a_pass(kind, more, done):
    """Memory ports of THC jobs' passes, on FP32 and BF16, residuals included."""
    component = kind(16, 64, block=64, bf16=True, **more)
    assert set(port_proofs.prove(component, done=done)[0].channels) == ports(component)


def test_ports_of_host_frames(done):
    """What a card with host frames has before its core: frames, registers, memory."""
    component = HostSide(16, 1, 32, 10, {}, meta_width=2)
    assert set(port_proofs.prove(component, done=done)[0].channels) == ports(component)


class User(wiring.Component):
    """An `Outlet` behind a pipeline of three cycles."""

    def __init__(self, outlet, *, wait=1, start=None):
        self.outlet, self.wait, self.start = outlet, wait, start
        beats = stream.Signature(Beat(64))
        super().__init__({"i": In(beats), "o": Out(beats)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.outlet = part = self.outlet
        wiring.connect(m, part.o, wiring.flipped(self.o))
        goes = self.i.valid & (part.free if self.start is None else self.start)
        late = pipeline.delayed_flag(m, goes, 2)
        m.d.comb += [
            self.i.ready.eq(part.free),
            part.start.eq(goes),
            part.come.eq(late if self.wait else late & self.i.valid),
            part.beat.eq(pipeline.delayed(m, self.i.p, 3)),
        ]
        return m


def _merger(module):
    unit = CodedUnit(16, row_addr=9, tag_addr=6, n_beats=32)
    return module.Merger(4, unit, 64)


FRAME = FrameBeat(16)
BUGS = [  # (module, how to make the part, old text, new text, what is said of it)
    (
        streams,
        lambda hdl: hdl.Slice(FRAME),
        "valid.eq(self.i.valid | ~empty | (held_one & ~self.o.ready))",
        "valid.eq(self.i.valid | ~empty)",
        "valid dropped before ready",
    ),
    (
        streams,
        lambda hdl: hdl.Slice(FRAME),
        'copies(self.o.p, "valid")',
        'copies(self.o.p, "valid", init=1)',
        "valid after reset",
    ),
    (
        fifo,
        lambda hdl: hdl.FIFO(FRAME, 16),
        "with m.If(self._moves(valid)):",
        "with m.If(1):",
        "payload changed while stalled",
    ),
    (
        pair_queue,
        lambda hdl: hdl.PairQueue(FRAME, 16),
        "with m.If(pop & (piece.turn == bank)):",
        "with m.If(self.o.ready & (piece.turn == bank)):",
        "PairQueue: ",
    ),
    (
        outlet,
        lambda hdl: User(hdl.Outlet(Beat(64), 16)),
        "give=taken",
        "give=self.come",
        "Outlet: ",
    ),
    (
        compressor,
        lambda hdl: hdl.Compressor(4),
        '"sizes": Room(N_UNITS, lag=LAG)',
        '"sizes": Room(N_UNITS + 8, lag=LAG)',
        "Compressor: not inductive",
    ),
    (
        merger,
        _merger,
        "outlet.start.eq(issue)",
        "outlet.start.eq(live)",
        "a beat starts without room|come is not start a constant number",
    ),
    (merger, _merger, "live_byte.eq(~partial | in_end)", "live_byte.eq(~in_end)", "keep has holes"),
    (merger, _merger, "delayed(m, read_final, 7", "delayed(m, read_final, 6", "keep has holes"),
    (
        arbiter,
        lambda hdl: hdl.FrameArbiter(16),
        "Mux(own, self.own.valid, self.foreign.valid)",
        "self.own.valid | self.foreign.valid",
        "Slice.i: keep has holes",
    ),
    (
        splice,
        lambda hdl: hdl.Splicer(16, (44, 64)),
        "Const(-1, tail_width)",
        "Const(-2, tail_width)",
        "Slice.i: kept, last",
    ),
    (
        framer,
        lambda hdl: hdl.Framer(16, 2),
        "(~o.p.last | ~body).replicate(n)",
        "(~o.p.last & ~body).replicate(n)",
        "keep has holes",
    ),
    (
        dma,
        lambda hdl: hdl.ReadEngine(16),
        "port.arvalid.eq(requests.o.valid)",
        "port.arvalid.eq(requests.o.valid & room)",
        "port__ar: valid dropped",
    ),
    (
        dma,
        lambda hdl: hdl.WriteEngine(16),
        "port.wlast.eq(final)",
        "port.wlast.eq(final & port.bvalid)",
        "port__w: payload changed",
    ),
    (
        registers,
        lambda hdl: hdl.RegisterBank(inline.REGISTERS),
        "with m.If(bus.rvalid & bus.rready):",
        "with m.If(bus.rvalid):",
        "bus__r: valid dropped",
    ),
    (
        axi4_ram,
        lambda hdl: hdl.Axi4Ram(16, 4),
        "go.eq(bursts.valid & outlet.free & ~host.reads)",
        "go.eq(bursts.valid & ~host.reads)",
        "Axi4Ram: .*a beat starts without room",
    ),
    (
        axi4_ram,
        lambda hdl: hdl.Axi4Ram(16, 4),
        "port.bvalid.eq(answers.o.valid)",
        "port.bvalid.eq(answers.o.valid & ~host.writes)",
        "write__b: valid dropped",
    ),
    (
        host_words,
        lambda hdl: hdl.HostWords(16, 12, 4),
        "with m.If(bus.rvalid & bus.rready):",
        "with m.If(bus.rvalid):",
        "HostWords: .*bus__r: valid dropped",
    ),
    (
        fan,
        lambda hdl: hdl.LiteFan([(0, 8), (0x1000, 8)]),
        "with m.If(done & given.ready):",
        "with m.If(done):",
        "i__r: valid dropped",
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug[0].__name__.split('.')[-1]}: {bug[3]}")
def test_a_seeded_bug_is_seen(bug):
    module, make, old, new, said = bug
    twin = formal.twin(module, old, new)
    with pytest.raises(formal.ProofError, match=said):
        port_proofs.prove(make(twin))


def test_what_parts_ask_of_their_users_is_shown():
    """The users of the twins above are right, and what they could do wrong is seen."""
    levels = port_proofs.prove(User(Outlet(Beat(64), 16)))
    assert [level.name for level in levels] == ["User", "Outlet", "PairQueue"]
    with pytest.raises(formal.ProofError, match=r"User: .*a beat starts without room"):
        port_proofs.prove(User(Outlet(Beat(64), 16), start=1))
    with pytest.raises(formal.ProofError, match="come is not start a constant number"):
        port_proofs.prove(User(Outlet(Beat(64), 16), wait=0))


class Silent(wiring.Component):
    """Never offers anything, whatever its queue does."""

    o: Out(stream.Signature(Beat(8)))

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = FIFO(Beat(8), 4)
        return m


def test_a_vacuous_proof_is_none():
    with pytest.raises(formal.ProofError, match="cover not reached: o: a beat is taken at once"):
        port_proofs.prove(Silent())


def test_channels_are_found_by_their_names():
    found = port_proofs.channels(block("offload"))
    outputs = {name for name, (flow, _) in found.items() if flow == wiring.Out}
    engines = {"gradient_read__ar", "landing_read__ar"}
    engines |= {f"{port}_write__{wire}" for port in ("gradient", "landing") for wire in ("aw", "w")}
    assert outputs == engines | {"mac_tx__0", "host_rx__0", "bus__b", "bus__r"}
    assert {name for name, _ in found["gradient_write__w"][1].p.shape()} == {"data", "strb", "last"}
