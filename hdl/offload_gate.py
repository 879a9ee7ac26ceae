"""Lets nothing into the offload card but whole, sound packets of its neighbors."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..formats import HEAD_BYTES, Op
from ..inline import Fate
from ..offload import MAX_FRAME, Drop
from .checksum import FrameCheck, Verdict
from .fifo import FIFO
from .frame_store import COUNT_WIDTH, FrameStore
from .offload_parser import Facts, PacketParser
from .offload_types import BODY, Arrival, NeighborWrite, Round
from .streams import Beat, Slice

N_FRAMES = 32  # of which the end was seen, but no verdict yet
N_HEADS = 16  # that wait for the receiver


class PacketGate(wiring.Component):
    """Stores each frame, judges the whole of it, and hands on its head and payload, or nothing.

    1 beat per cycle. A head is offered about 20 cycles after its frame's last beat, data payloads
    from then on; a CONTROL packet has the first `BODY` bytes of its payload in its head.

    Parameters
    ----------
    n_bytes, n_ports : int
        Bytes of a beat, 16, 32 or 64; ports of the card.

    Members
    -------
    i, round, write : see `PacketParser`
    heads : Out(stream.Signature(Arrival))
    values : Out(stream.Signature(Beat(8 * n_bytes)))
        Payloads of data packets, in the order of their heads; none where ``length`` is 0.
    dropped : Out(6)
        Bit k pulses for a frame with `gradnic.offload.Drop` k, up to OWNER.
    """

    def __init__(self, n_bytes, n_ports):
        self.n_bytes = n_bytes
        self.parser = PacketParser(n_bytes, n_ports)
        super().__init__(
            {
                "i": In(stream.Signature(self.parser.shape)),
                "round": In(Round),
                "write": In(NeighborWrite(n_ports)),
                "heads": Out(stream.Signature(Arrival)),
                "values": Out(stream.Signature(Beat(8 * n_bytes))),
                "dropped": Out(Drop.OWNER + 1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n_bytes
        m.submodules.parser = parser = self.parser
        m.submodules.check = check = FrameCheck(n)
        m.submodules.store = store = FrameStore(8 * n, 2 * MAX_FRAME // n)
        record = data.StructLayout({"facts": Facts(), "n_beats": COUNT_WIDTH})
        m.submodules.records = records = FIFO(record, N_FRAMES)
        # Never fills: it holds no more verdicts than there are records and their output.
        m.submodules.verdicts = verdicts = FIFO(Verdict(n), 2 * N_FRAMES)
        wiring.connect(m, wiring.flipped(self.i), parser.i)
        m.d.comb += [parser.round.eq(self.round), parser.write.eq(self.write)]

        beat, facts = parser.beats, parser.facts
        first, goes = Signal(init=1), Signal()
        n_before = Signal(COUNT_WIDTH)
        m.d.comb += [
            goes.eq(beat.valid & facts.valid & store.i.ready & records.i.ready),
            beat.ready.eq(goes),
            facts.ready.eq(goes & beat.p.last),
            store.i.valid.eq(goes),
            store.i.p.eq(beat.p.data),
            records.i.valid.eq(goes & beat.p.last),
            records.i.p.facts.eq(facts.p),
            records.i.p.n_beats.eq(n_before + 1),
            check.push.eq(goes),
            check.first.eq(first),
            check.info.eq(facts.p.check),
            *(getattr(check, name).eq(beat.p[name]) for name in ("last", "bad", "data", "keep")),
            verdicts.i.valid.eq(check.done),
            verdicts.i.p.eq(check.verdict),
        ]
        with m.If(goes):
            m.d.sync += [
                first.eq(beat.p.last),
                n_before.eq(Mux(beat.p.last, 0, n_before + 1)),
            ]
        self._deliver(m, store, self._decide(m, records.o, verdicts.o, store))
        return m

    def _decide(self, m, records, verdicts, store):
        """Turns facts and verdict of a frame into what is read of it; a stream of heads."""
        n = self.n_bytes
        decision = data.StructLayout(
            {
                "facts": Facts(),
                "drop": 4,
                "n_used": COUNT_WIDTH,
                "n_beats": COUNT_WIDTH,
            }
        )
        m.submodules.decided = decided = Slice(decision)
        facts, new, verdict = records.p.facts, decided.i.p, verdicts.p
        m.d.comb += [
            decided.i.valid.eq(records.valid & verdicts.valid),
            records.ready.eq(decided.i.ready & verdicts.valid),
            verdicts.ready.eq(decided.i.ready & records.valid),
            new.facts.eq(facts),
            # BAD, LENGTH and CHECKSUM are the same numbers in both lists
            new.drop.eq(Mux(verdict.fate != Fate.CODED, verdict.fate, facts.drop)),
            new.n_beats.eq(records.p.n_beats),
            new.n_used.eq((facts.check.end + (n - 1)) >> ceil_log2(n)),
        ]
        m.submodules.heads = heads = FIFO(Arrival, N_HEADS)
        known = decided.o.p
        passes, leaves = Signal(), Signal()
        m.d.comb += [
            passes.eq(known.drop == Drop.NONE),
            leaves.eq(decided.o.valid & heads.i.ready & store.jobs.ready),
            decided.o.ready.eq(leaves),
            store.jobs.valid.eq(leaves),
            store.jobs.p.n_stored.eq(known.n_beats),
            store.jobs.p.n_read.eq(Mux(passes & (known.facts.head.length != 0), known.n_used, 0)),
            heads.i.valid.eq(leaves & passes),
            heads.i.p.head.eq(known.facts.head),
            heads.i.p.ready.eq(known.facts.ready),
            heads.i.p.stale.eq(known.facts.stale),
        ]
        m.d.sync += self.dropped.eq(Mux(leaves & ~passes, 1 << known.drop, 0))
        return heads.o

    def _deliver(self, m, store, heads):
        """Payloads follow their heads; the payload of a CONTROL packet goes into its head."""
        n = self.n_bytes
        n_head = HEAD_BYTES // n
        known, frames = heads.p.head, store.o
        index = Signal(range(n_head + 1))
        control, empty, in_body = Signal(), Signal(), Signal()
        sent = Signal()  # the head of this frame has been taken
        m.d.comb += [
            control.eq(known.op == Op.CONTROL),
            empty.eq(known.length == 0),
            in_body.eq(index == n_head),
            self.heads.p.eq(heads.p),
            self.values.p.data.eq(frames.p.data),
            self.values.p.last.eq(frames.p.last),
        ]
        done = Signal()
        read = Signal()  # all that is read of this frame has been
        with m.If(control & ~empty):  # the head leaves with its payload's first beat
            text = Signal(8 * BODY, reset_less=True)
            has_text = Signal()
            m.d.comb += [
                self.heads.valid.eq(heads.valid & has_text & ~sent),
                self.heads.p.head.body.eq(text),
                frames.ready.eq(~read),
            ]
            with m.If(frames.valid & in_body & ~has_text):
                m.d.sync += [text.eq(frames.p.data), has_text.eq(1)]
            with m.If(done):
                m.d.sync += has_text.eq(0)
        with m.Else():
            m.d.comb += [
                self.heads.valid.eq(heads.valid & ~sent),
                self.values.valid.eq(frames.valid & in_body & heads.valid & ~read),
                frames.ready.eq(heads.valid & ~empty & ~read & (~in_body | self.values.ready)),
            ]
        taken, ends = Signal(), Signal()
        m.d.comb += [
            taken.eq(sent | (self.heads.valid & self.heads.ready)),
            ends.eq(frames.valid & frames.ready & frames.p.last),
            done.eq(heads.valid & taken & (empty | read | ends)),
            heads.ready.eq(done),
        ]
        m.d.sync += [sent.eq(taken & ~done & heads.valid), read.eq((read | ends) & ~done)]
        with m.If(frames.valid & frames.ready):
            with m.If(frames.p.last):
                m.d.sync += index.eq(0)
            with m.Elif(~in_body):
                m.d.sync += index.eq(index + 1)
