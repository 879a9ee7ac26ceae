"""Proofs of the AXI edges, unbounded: adapters at real width, register bank answer by answer."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import Assert, Cat, Const, Cover, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.axi import axis as axi
from gradnic.hdl.axi import register_bank as registers
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.sim.proof import formal

from gradnic.interface.register_map import BitField, Register, RegisterMap

WIDE, NARROW = (64, 16), (4, 1)  # bytes, bits of meta


class ReceiverEdge(wiring.Component):
    """`AxisReceiver` whose outside is a stream of whatever a sender may put on the wires."""

    def __init__(self, n_bytes, meta_width, module=axi):
        self.receiver = module.AxisReceiver(n_bytes, meta_width=meta_width)
        wires = {"tdata": 8 * n_bytes, "tkeep": n_bytes, "tlast": 1, "tuser": 1 + meta_width}
        frame = FrameBeat(n_bytes, meta_width=meta_width)
        super().__init__(
            {
                "i": In(stream.Signature(data.StructLayout(wires))),
                "o": Out(stream.Signature(frame)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.receiver = dut = self.receiver
        for name in ("tdata", "tkeep", "tlast", "tuser"):
            m.d.comb += getattr(dut.axis, name).eq(self.i.p[name])
        m.d.comb += [dut.axis.tvalid.eq(self.i.valid), self.i.ready.eq(dut.axis.tready)]
        wiring.connect(m, dut.o, wiring.flipped(self.o))
        return m


class SenderEdge(wiring.Component):
    """`AxisSender` whose outside is a stream with the fields of `FrameBeat`."""

    def __init__(self, n_bytes, meta_width, module=axi):
        self.sender = module.AxisSender(n_bytes, meta_width=meta_width)
        frames = stream.Signature(FrameBeat(n_bytes, meta_width=meta_width))
        super().__init__({"i": In(frames), "o": Out(frames)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.sender = dut = self.sender
        wiring.connect(m, wiring.flipped(self.i), dut.i)
        m.d.comb += [
            self.o.p.data.eq(dut.axis.tdata),
            self.o.p.keep.eq(dut.axis.tkeep),
            self.o.p.last.eq(dut.axis.tlast),
            self.o.p.bad.eq(dut.axis.tuser[0]),
            self.o.p.meta.eq(dut.axis.tuser[1:]),
            self.o.valid.eq(dut.axis.tvalid),
            dut.axis.tready.eq(self.o.ready),
        ]
        return m


class Translation(formal.Conservation):
    """Every beat that goes in comes out once, in order, as what `expected` makes of it."""

    def __init__(self, component, *, capacity, lemmas=None, **options):
        super().__init__(component, capacity=capacity, lemmas=lemmas, **options)
        self.outside = self.i
        self.want = Signal(self.o.p.shape())
        self.i = SimpleNamespace(valid=self.i.valid, ready=self.i.ready, p=self.want)

    def describe(self, m):
        self.expected(m, self.outside.p)
        o = self.o.p
        m.d.comb += Assert(~self.o.valid | o.last | ~o.bad, "o: bad before the last beat")
        m.d.comb += Cover(self.o.valid & o.last & o.bad, "a bad frame ends")
        super().describe(m)


class Reception(Translation):
    """The rules of `AxisReceiver`, in other words than the circuit's."""

    def expected(self, m, wires):
        self.broken = Signal()  # by the beats of this frame that have been taken
        want, broken = self.translate(m, wires, self.broken)
        m.d.comb += self.want.eq(want)
        with m.If(self.outside.valid & self.outside.ready):
            m.d.sync += self.broken.eq(broken)

    def translate(self, m, wires, broken_before):
        """(beat that must leave, whether the frame goes on broken) for a beat on the wires."""
        n = len(wires.tkeep)
        beat, whole = Signal(self.o.p.shape()), Signal()
        everything = Const((1 << n) - 1, n)
        kept = [Const(0, 1)]  # from the top down: kept itself, or below a kept one
        for k in reversed(range(1, n)):
            kept.append(kept[-1] | wires.tkeep[k])
        kept = Cat(1, *reversed(kept[1:]))
        m.d.comb += [
            beat.data.eq(wires.tdata),
            beat.last.eq(wires.tlast),
            beat.keep.eq(Mux(wires.tlast, kept, everything)),
            beat.meta.eq(wires.tuser[1:]),
            whole.eq((wires.tkeep == beat.keep) & ~broken_before),
            beat.bad.eq(wires.tlast & (wires.tuser[0] | ~whole)),
        ]
        return beat, ~whole & ~wires.tlast


def _inside(slice):
    """(beats in a slice, the first, the second) as the slice holds them."""
    return slice.valids[0] + ~slice.spares[0], slice.o.p, slice.skid


def _bad_where_it_counts(slice):
    """Both beats of a slice of frames have bad only with last."""
    n, first, second = _inside(slice)
    second = data.View(first.shape(), second)
    return [
        Assert(~used | beat.last | ~beat.bad) for used, beat in ((n > 0, first), (n > 1, second))
    ]


def _whole(m, *slices):
    for slice in slices:
        m.d.comb += [
            *(Assert(copy == slice.valids[0]) for copy in slice.valids[1:]),
            *(Assert(copy == slice.spares[0]) for copy in slice.spares[1:]),
            Assert(slice.valids[0] | slice.spares[0]),
        ]


def _receiver_lemmas(m, h):
    dut = h.component.receiver
    shape = h.outside.p.shape()
    _whole(m, dut.entry, dut.exit)
    n_entry, first, second = _inside(dut.entry)
    n_exit, out, skid = _inside(dut.exit)
    first_wires, second_wires = Signal(shape), Signal(shape)
    m.d.comb += [first_wires.eq(Value.cast(first)), second_wires.eq(second)]
    first_want, after_first = h.translate(m, first_wires, dut.broken_before)
    second_want, after_second = h.translate(m, second_wires, after_first)
    at = [h.tracking & (h.ahead == k) for k in range(4)]
    m.d.comb += [
        Assert(h.count == n_entry + n_exit),
        Assert(
            h.broken
            == Mux(n_entry == 2, after_second, Mux(n_entry == 1, after_first, dut.broken_before))
        ),
        *_bad_where_it_counts(dut.exit),
        Assert(~(at[0] & (n_exit > 0)) | (out.as_value() == h.beat)),
        Assert(~(at[1] & (n_exit > 1)) | (skid == h.beat)),
    ]
    for k in range(4):
        m.d.comb += [
            Assert(~(at[k] & (n_exit == k)) | (first_want.as_value() == h.beat)),
            Assert(~(at[k] & (n_exit + 1 == k)) | (second_want.as_value() == h.beat)),
        ]


class Sending(Translation):
    """What `AxisSender` is for: the same beat, with bad where it counts."""

    def expected(self, m, beat):
        m.d.comb += [self.want.eq(beat), self.want.bad.eq(beat.bad & beat.last)]


def _sender_lemmas(m, h):
    dut = h.component.sender.slice
    _whole(m, dut)
    n, first, second = _inside(dut)
    m.d.comb += [
        Assert(h.count == n),
        Assert(~(h.tracking & (h.ahead == 0)) | (first.as_value() == h.beat)),
        Assert(~(h.tracking & (h.ahead == 1)) | (second == h.beat)),
        *_bad_where_it_counts(dut),
    ]


def test_receiver_for_all_time():
    harness = Reception(ReceiverEdge(*WIDE), capacity=4, lemmas=_receiver_lemmas)
    assert formal.prove(harness, k=1, cover_depth=8).n_covers >= 5


def test_sender_for_all_time():
    harness = Sending(SenderEdge(*WIDE), capacity=2, lemmas=_sender_lemmas)
    assert formal.prove(harness, k=1, cover_depth=8).n_covers >= 5


def test_stalls_are_bounded():
    """Apart from the proofs above: these counters need a deeper induction, slow at full width."""
    bounds = {"offer_within": 1, "ready_within": {"i": 2}}
    receiver = ReceiverEdge(*NARROW)
    formal.prove(Reception(receiver, capacity=4, lemmas=_receiver_lemmas, **bounds), k=3)
    bounds = {"offer_within": 0, "ready_within": {"i": 1}}
    formal.prove(Sending(SenderEdge(*NARROW), capacity=2, lemmas=_sender_lemmas, **bounds), k=2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("hole | ~beat.keep[0]", "hole"),
        ("~beat.keep.all())", "~beat.keep[0])"),
        ("broken_before.eq(broken & ~beat.last)", "broken_before.eq(broken)"),
        ("beat.last & (beat.user[0] | broken)", "beat.user[0] | broken"),
        ("beat.keep[k:].any() | ~beat.last", "beat.keep[k] | ~beat.last"),
        ("exit.i.valid.eq(entry.o.valid)", "exit.i.valid.eq(entry.o.valid & ~broken)"),
    ],
)
def test_receiver_with_a_bug_fails(old, new):
    twin = formal.twin(axi, old, new)
    formal.refute(Reception(ReceiverEdge(*NARROW, module=twin), capacity=4), depth=10)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.i.p.bad & self.i.p.last", "self.i.p.bad"),
        ("self.axis.tkeep.eq(slice.o.p.keep)", "self.axis.tkeep.eq(self.i.p.keep)"),
    ],
)
def test_sender_with_a_bug_fails(old, new):
    twin = formal.twin(axi, old, new)
    formal.refute(Sending(SenderEdge(*NARROW, module=twin), capacity=2), depth=10)


MAP = RegisterMap(
    "proof",
    "one of each, with gaps",
    (
        Register("live", 0x00, "ro", "ro", (BitField("value", 0, 32, "any"),)),
        Register("word", 0x08, "rw", "rw", (BitField("value", 0, 32, "any", reset=0xA5A5A5A5),)),
        Register("events", 0x10, "w1c", "w1c", (BitField("bits", 4, 20, "any"),)),
        Register("octets", 0x14, "counter", "counter", width=64, step_width=8),
    ),
)


class Answers(formal.Harness):
    """One answer for each request, kept until taken, in bounded time; one word written as asked.

    The manager is free to do anything, withdrawing an offer included.
    """

    def describe(self, m):
        dut, bus = self.component, self.component.bus
        takes = {name: Signal(name=f"takes_{name}") for name in ("aw", "w", "ar", "b", "r")}
        for name, taken in takes.items():
            valid, ready = getattr(bus, f"{name}valid"), getattr(bus, f"{name}ready")
            m.d.comb += taken.eq(valid & ready)
        for request, answer in (("aw", "b"), ("w", "b"), ("ar", "r")):
            open_requests = Signal(range(4), name=f"open_{request}")
            m.d.sync += open_requests.eq(open_requests + takes[request] - takes[answer])
            answering = getattr(bus, f"{answer}valid")
            held = ~getattr(bus, f"{request}ready")
            inside = held if request == "ar" else held + answering
            m.d.comb += [
                Assert(open_requests == inside, f"{request}: requests and answers differ"),
                Assert(~answering | (open_requests != 0), f"{answer}: an answer to nothing"),
            ]
        for name, payload in (("b", bus.bresp), ("r", Cat(bus.rresp, bus.rdata))):
            valid, ready = getattr(bus, f"{name}valid"), getattr(bus, f"{name}ready")
            stalled = Signal(name=f"{name}_stalled")
            before = Signal(len(payload), name=f"{name}_before", reset_less=True)
            m.d.sync += [stalled.eq(valid & ~ready), before.eq(payload)]
            m.d.comb += [
                Assert(~self.was_reset | ~valid, f"{name}: valid after reset"),
                Assert(~stalled | valid, f"{name}: valid dropped before ready"),
                Assert(~stalled | (payload == before), f"{name}: changed while stalled"),
                Assert(~valid | (payload[:2] == 0), f"{name}: not OKAY"),
                Cover(stalled & ready, f"{name}: a stalled answer is taken"),
            ]
        self._bounded(m, "write", ~bus.awready & ~bus.wready & ~bus.bvalid, 1)
        self._bounded(m, "read", ~bus.arready & ~bus.rvalid, len(dut.steps))
        m.d.comb += Assert(sum(dut.steps) + bus.rvalid == ~bus.arready, "steps")
        whole = ~bus.awready & ~bus.wready
        came = Signal()  # the second half of a write, in this cycle
        m.d.comb += came.eq((takes["aw"] | ~bus.awready) & (takes["w"] | ~bus.wready) & ~whole)
        self._one_word(m, bus, takes, came, whole)
        self._in_order(m, takes, came)

    def _in_order(self, m, takes, came):
        """A read is answered with what is there once the writes before it have settled."""
        dut = self.component
        late = Signal(range(registers.SETTLE + 4))  # cycles until the last write has settled
        now = Signal.like(late)
        m.d.comb += now.eq(Mux(came, registers.SETTLE + 3, late))
        m.d.sync += late.eq(Mux(now == 0, 0, now - 1))
        waits = Signal.like(late)  # the same of the writes before the read that is under way
        m.d.sync += waits.eq(Mux(takes["ar"], now, waits) - (Mux(takes["ar"], now, waits) != 0))
        m.d.comb += [
            Assert(~dut.steps[-2] | (waits == 0), "a read overtakes a write"),
            Assert(~dut.fire | (late == registers.SETTLE + 2)),
            Assert(dut.fire | dut.fresh.any() | (late <= 2)),
            *(
                Assert(~fresh | dut.fire | (late == registers.SETTLE + 1 - k))
                for k, fresh in enumerate(dut.fresh)
            ),
            Assert(sum(dut.fresh) <= 1),
            *(
                Assert(~step | (waits + k <= registers.SETTLE + 2), "steps come too early")
                for k, step in enumerate(dut.steps[:-1])
            ),
            Cover(takes["ar"] & came, "a read with a write"),
            Cover(takes["ar"] & dut.fire, "a read behind a write"),
        ]

    def _bounded(self, m, name, waiting, n_cycles):
        waited = Signal(range(n_cycles + 2), name=f"{name}_waited")
        m.d.sync += waited.eq(Mux(waiting, waited + (waited <= n_cycles), 0))
        m.d.comb += Assert(waited <= n_cycles, f"{name}: waits for more than {n_cycles} cycles")
        if name == "read":
            m.d.comb += [
                Assert(~waiting | ~step | (waited <= k), "read: steps")
                for k, step in enumerate(self.component.steps)
            ]

    def _one_word(self, m, bus, takes, came, whole):
        """The word at 0x08, as the bus has asked for it; and what a read of it answers."""
        address, written, lanes = Signal(len(bus.awaddr)), Signal(32), Signal(4)
        asked = Signal(len(bus.araddr))
        with m.If(takes["aw"]):
            m.d.sync += address.eq(bus.awaddr)
        with m.If(takes["w"]):
            m.d.sync += [written.eq(bus.wdata), lanes.eq(bus.wstrb)]
        with m.If(takes["ar"]):
            m.d.sync += asked.eq(bus.araddr)
        dut = self.component
        m.d.comb += [
            Assert(bus.awready | (dut.write_address == address[2:])),
            Assert(bus.wready | (Cat(dut.write_data, dut.write_strobes) == Cat(written, lanes))),
            Assert(bus.arready | (dut.read_address == asked[2:])),
        ]
        done, then, data_then, lanes_then = Signal(), Signal(), Signal(32), Signal(4)
        m.d.sync += done.eq(came)
        m.d.comb += [
            Assert(dut.fire == done, "a write is not carried out once, and at once"),
            Assert(~dut.carried | whole, "carried"),
        ]
        m.d.sync += [
            then.eq(done & (address[2:] == 2)),
            data_then.eq(written),
            lanes_then.eq(lanes),
        ]
        word = Signal(32, init=0xA5A5A5A5)
        with m.If(then):
            for k in range(4):
                with m.If(lanes_then[k]):
                    m.d.sync += word[8 * k : 8 * k + 8].eq(data_then[8 * k : 8 * k + 8])
        one, two = Signal(32), Signal(32)
        m.d.sync += [one.eq(word), two.eq(one)]
        fresh = Signal()  # the answer has just come
        m.d.sync += fresh.eq(dut.steps[-1])
        m.d.comb += [
            Assert(dut.word.value == word, "the word is not what was written"),
            Assert(
                ~(fresh & bus.rvalid & (asked[2:] == 2)) | (bus.rdata == two),
                "a read answers something else",
            ),
            Assert(~(bus.rvalid & (asked[2:] == 1)) | (bus.rdata == 0), "a reserved word is not 0"),
            Cover(then & (lanes_then == 5), "two bytes are written"),
            Cover(fresh & (bus.rdata != 0xA5A5A5A5) & (asked[2:] == 2), "a new word is read"),
        ]


def test_bank_for_all_time():
    formal.prove(Answers(registers.RegisterBank(MAP)), k=6, cover_depth=20)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bus.awready.eq(~has_address)", "bus.awready.eq(1)"),
        ("fire.eq(whole & ~carried)", "fire.eq(whole)"),
        ("with m.If(whole & ~bus.bvalid):", "with m.If(whole):"),
        ("Mux(becomes_whole, 1,", "Mux(becomes_whole, 2,"),
        ("Mux(self.fire, 2,", "Mux(self.fire, 4,"),
        ("self.fresh << 2", "self.fresh << 3"),
        ("m.d.sync += bus.bvalid.eq(0)", "m.d.sync += bus.bvalid.eq(bus.awvalid)"),
        ("busy.eq(0), bus.rvalid.eq(0)", "busy.eq(0), bus.rvalid.eq(busy & bus.arvalid)"),
        ("with m.If(select & strobes[lane])", "with m.If(select)"),
        ("select.eq(fire & (address == index))", "select.eq(fire & (address[:1] == index % 2))"),
        ("decode & (address == index)", "decode & (address[1:] == index >> 1)"),
    ],
)
def test_bank_with_a_bug_fails(old, new):
    twin = formal.twin(registers, old, new)
    formal.refute(Answers(twin.RegisterBank(MAP)), depth=14)
