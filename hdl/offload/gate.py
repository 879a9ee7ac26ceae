"""Lets nothing into the offload card but whole, sound packets of its neighbors.

Part of `gradnic.hdl.offload.card`, whose golden model it follows.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.formats import HEAD_BYTES, Op
from gradnic.interface.inline import Fate
from gradnic.interface.offload import MAX_FRAME, Drop

from ..frame.gate import store_and_check
from ..frame.store import COUNT_WIDTH, ReadJob
from ..primitive.names import signals
from ..primitive.same import same
from ..stream.beats import Beat
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from ..transport.records import BODY, Arrival, NeighborWrite, Round
from .parser import Facts, PacketParser, Place, least_beats

N_BEATS = 32  # of frames of which the end was seen, but no verdict yet
N_HEADS = 16  # that wait for the receiver


def GateHead(n_contexts: int = 0):
    """A head, whether it waits for its body, and which context it is of."""
    place = {"place": Place(n_contexts)} if n_contexts else {}
    return data.StructLayout({"arrival": Arrival, "has_text": 1} | place)


class PacketGate(wiring.Component):
    """Stores each frame, judges the whole of it, and hands on its head and payload, or nothing.

    Plumbing: no golden model of its own.

    1 beat per cycle, a frame 2 cycles at least. A head is offered about 20 cycles after its
    frame's last beat, data payloads from then on; a CONTROL packet has the first `BODY` bytes of
    its payload in its head.

    Parameters
    ----------
    n_bytes, n_ports, n_contexts : int
        As of `PacketParser`.

    Members
    -------
    i, round, write, contexts, asked, over : see `PacketParser`
    place : Out(Place(n_contexts))
        Of the head that is offered; only with contexts.
    heads : Out(stream.Signature(Arrival))
    values : Out(stream.Signature(Beat(8 * n_bytes)))
        Payloads of data packets, in the order of their heads; none where ``length`` is 0.
    dropped : Out(6)
        Bit k pulses for a frame with `gradnic.interface.offload.Drop` k, up to OWNER.

    ``strays`` : flag, a register of the stores inside changed by itself, and what comes may be
    wrong until a reset.
    """

    def __init__(self, n_bytes: int, n_ports: int, *, n_contexts: int = 0) -> None:
        self.n_bytes, self.n_contexts = n_bytes, n_contexts
        self.strays = Signal()
        self.parser = parser = PacketParser(n_bytes, n_ports, n_contexts=n_contexts)
        several = {"place": Out(Place(n_contexts))} if n_contexts else {}
        for name in ("contexts", "asked", "over") if n_contexts else ():
            several[name] = parser.signature.members[name]
        super().__init__(
            {
                "i": In(stream.Signature(self.parser.shape)),
                "round": In(Round),
                "write": In(NeighborWrite(n_ports)),
                "heads": Out(stream.Signature(Arrival)),
                "values": Out(stream.Signature(Beat(8 * n_bytes))),
                "dropped": Out(Drop.OWNER + 1),
                **several,
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.parser = parser = self.parser
        wiring.connect(m, wiring.flipped(self.i), parser.i)
        m.d.comb += [parser.round.eq(self.round), parser.write.eq(self.write)]
        if self.n_contexts:
            m.d.comb += [
                parser.contexts.eq(self.contexts),
                self.asked.eq(parser.asked),
                parser.over.eq(self.over),
            ]
        store, records, verdicts, strays = store_and_check(
            m,
            parser,
            n_slots=2 * MAX_FRAME // self.n_bytes,
            n_frames=N_BEATS // least_beats(self.n_bytes),
            stops=True,
        )
        heads, kinds = self._decide(m, records, verdicts, store)
        m.d.comb += self.strays.eq(strays | heads.astray)
        self._deliver(m, store, heads.o, kinds)
        return m

    def _decide(self, m, records, verdicts, store):
        """Turns facts and verdict of a frame into what is read of it; queue of heads, and stream
        of what the frames are whose payloads are read.
        """
        n = self.n_bytes
        m.submodules.heads = heads = FIFO(
            GateHead(self.n_contexts), N_HEADS, half_rate=True, watched=True
        )
        m.submodules.kinds = kinds = FIFO(1, N_HEADS)
        m.submodules.jobs = jobs = Slice(ReadJob(), half_rate=True)
        wiring.connect(m, jobs.o, store.jobs)
        known = Signal(Facts(self.n_contexts), reset_less=True)
        verdict = verdicts.p
        facts = records.p.facts
        if self.n_contexts:
            m.d.comb += [heads.i.p.place.eq(known.place), self.place.eq(heads.o.p.place)]
        n_beats, n_read = (Signal(COUNT_WIDTH, name=n, reset_less=True) for n in ("beats", "reads"))
        drop = Signal(4, reset_less=True)
        busy = Signal()
        passes, has_values = signals("passes has_values", reset_less=True)
        sound = (verdict.fate == Fate.CODED) & (facts.drop == Drop.NONE)
        filled = facts.head.length != 0
        take, leaves = signals("take leaves")
        with m.If(~busy):
            m.d.sync += [
                known.eq(facts),
                # BAD, LENGTH and CHECKSUM are the same numbers in both lists
                drop.eq(Mux(verdict.fate != Fate.CODED, verdict.fate, facts.drop)),
                passes.eq(sound),
                has_values.eq(sound & filled),
                n_beats.eq(records.p.n_beats),
                n_read.eq((facts.check.end + (n - 1)) >> ceil_log2(n)),
                busy.eq(take),
            ]
        with m.Elif(leaves):
            m.d.sync += busy.eq(0)
        m.d.comb += [
            take.eq(~busy & records.valid & verdicts.valid),
            records.ready.eq(~busy & verdicts.valid),
            verdicts.ready.eq(~busy & records.valid),
            leaves.eq(busy & heads.i.ready & kinds.i.ready & jobs.i.ready),
            jobs.i.valid.eq(busy & heads.i.ready & kinds.i.ready),
            jobs.i.p.n_stored.eq(n_beats),
            jobs.i.p.n_read.eq(Mux(has_values, n_read, 0)),
            kinds.i.valid.eq(leaves & has_values),
            kinds.i.payload.eq(known.head.op == Op.CONTROL),
            heads.i.valid.eq(leaves & passes),
            heads.i.p.has_text.eq(has_values & (known.head.op == Op.CONTROL)),
            *same(heads.i.p.arrival, known, "head ready stale tree"),
        ]
        m.d.sync += self.dropped.eq(Mux(leaves & ~passes, 1 << drop, 0))
        return heads, kinds.o

    def _deliver(self, m, store, heads, kinds):
        """Payloads go beside their heads; the payload of a CONTROL packet goes into its head."""
        n = self.n_bytes
        n_head = -(-HEAD_BYTES // n)
        frames = store.o
        m.submodules.texts = texts = FIFO(8 * BODY, N_HEADS, half_rate=True)
        index = Signal(range(n_head))
        in_body, is_first = signals("in_body is_first")  # a payload; its first beat
        is_text, step = signals("is_text step")
        m.d.comb += [
            is_text.eq(kinds.payload),
            self.heads.p.eq(heads.p.arrival),
            self.heads.p.head.body.eq(texts.o.payload),
            self.heads.valid.eq(heads.valid & (texts.o.valid | ~heads.p.has_text)),
            heads.ready.eq(self.heads.ready & (texts.o.valid | ~heads.p.has_text)),
            texts.o.ready.eq(self.heads.ready & heads.valid & heads.p.has_text),
            self.values.p.data.eq(frames.p.data),
            self.values.p.last.eq(frames.p.last),
            self.values.valid.eq(frames.valid & kinds.valid & in_body & ~is_text),
            texts.i.payload.eq(frames.p.data),
            texts.i.valid.eq(frames.valid & kinds.valid & is_first & is_text),
            # `texts` has room: it is as deep as `heads`, where the head of each text waits
            frames.ready.eq(kinds.valid & (~in_body | is_text | self.values.ready)),
            step.eq(frames.valid & frames.ready),
            kinds.ready.eq(step & frames.p.last),
        ]
        with m.If(step):
            m.d.sync += [index.eq(index + 1), is_first.eq(0)]
            with m.If(~in_body & (index == n_head - 1)):
                m.d.sync += [in_body.eq(1), is_first.eq(1)]
            with m.If(frames.p.last):
                m.d.sync += [index.eq(0), in_body.eq(0), is_first.eq(0)]
