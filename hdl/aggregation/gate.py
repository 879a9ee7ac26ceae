"""Lets nothing pass to the slots but whole, sound contributions of those who may speak.

Twin of `gradnic.models.aggregation.gate`; a part of the aggregator.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.aggregator import MAX_FRAME, Refusal
from gradnic.interface.formats import GRADNIC, HEAD_BYTES, UDP
from gradnic.interface.inline import Fate
from gradnic.interface.switchml import SWITCHML

from ..frame.gate import store_and_check
from ..frame.intake import Names
from ..frame.packet_fifo import PacketFIFO
from ..frame.realign import Realigner
from ..frame.store import COUNT_WIDTH
from ..primitive.names import signals
from ..primitive.same import same
from ..stream.beats import Beat, FrameBeat
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from .parser import ChildWrite, ContributionParser, check_shape, index_width, turned_words
from .slot_records import ContributionHead, JobRegisters

N_FRAMES = 32  # of which the end was seen, but no verdict yet
N_HEADS = 16  # that wait for the slots


class Gate(wiring.Component):
    """Stores each frame, judges the whole of it, and hands on its head and payload, or nothing.

    1 beat per cycle. A head is offered about 24 cycles after its frame's last beat, the payload 6
    cycles later. A frame for a slot of another job leaves as it came, marked COLL and with its UDP
    checksum 0. All ports share one store for those, of 16 KiB and in order: where a port does not
    take its frame, those of others wait behind it, and what finds no room is lost and told. Every
    frame is counted as refused or offered as a head.

    Parameters
    ----------
    n_bytes, n_ports, n_jobs : int
        As of `ContributionParser`.

    Members
    -------
    i : In(stream.Signature(FrameBeat(n_bytes, meta_width=...)))
        As of `ContributionParser`.
    names, jobs, write : In
        As of `ContributionParser`.
    heads : Out(stream.Signature(ContributionHead))
    values : Out(stream.Signature(Beat(8 * n_bytes)))
        Payloads, in the order of their heads; none where ``length`` is 0.
    collided : Out(stream.Signature(FrameBeat(n_bytes, meta_width=...)))
        ``meta`` is the port that they came from.
    refused, unsent : Out(7), Out(1)
        Bit k pulses for a frame with `Refusal` k; for a frame that found no room to go on.
    """

    def __init__(self, n_bytes: int, n_ports: int, n_jobs: int) -> None:
        check_shape(n_bytes, n_ports=n_ports, n_jobs=n_jobs)
        self.n_bytes, self.n_ports, self.n_jobs = n_bytes, n_ports, n_jobs
        port_width = index_width(n_ports)
        self.collided_shape = FrameBeat(n_bytes, meta_width=port_width)
        frames = stream.Signature(FrameBeat(n_bytes, meta_width=1 + port_width))
        super().__init__(
            {
                "i": In(frames),
                "names": In(Names(n_jobs)),
                "jobs": In(data.ArrayLayout(JobRegisters, n_jobs)),
                "write": In(ChildWrite(n_ports, n_jobs)),
                "heads": Out(stream.Signature(ContributionHead)),
                "values": Out(stream.Signature(Beat(8 * n_bytes))),
                "collided": Out(stream.Signature(self.collided_shape)),
                "refused": Out(len(Refusal)),
                "unsent": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        parser = ContributionParser(self.n_bytes, self.n_ports, self.n_jobs)
        m.submodules.parser = parser
        wiring.connect(m, wiring.flipped(self.i), parser.i)
        m.d.comb += [
            *same(parser, self, "names jobs write"),
        ]
        store, records, verdicts, _ = store_and_check(
            m,
            parser,
            n_slots=2 ** ceil_log2(2 * MAX_FRAME // self.n_bytes),
            n_frames=N_FRAMES,
        )
        self._deliver(m, store.o, self._decide(m, records, verdicts, store))
        return m

    def _decide(self, m, records, verdicts, store):
        """Turns facts and verdict of a frame into what is read of it; a stream of routes."""
        n = self.n_bytes
        decision = data.StructLayout(
            {
                "head": ContributionHead,
                "refusal": 3,
                "switchml": 1,
                "port": index_width(self.n_ports),
                "n_used": COUNT_WIDTH,
                "n_beats": COUNT_WIDTH,
                "n_less_1": 12,
                "tail": len(verdicts.p.tail),
            }
        )
        m.submodules.decided = decided = Slice(decision)
        facts, new, verdict = records.p.facts, decided.i.p, verdicts.p
        end = facts.check.end
        m.d.comb += [
            decided.i.valid.eq(records.valid & verdicts.valid),
            records.ready.eq(decided.i.ready & verdicts.valid),
            verdicts.ready.eq(decided.i.ready & records.valid),
            new.head.eq(facts.head),
            new.switchml.eq(facts.switchml),
            # BAD, LENGTH and CHECKSUM are the same numbers in both lists
            new.refusal.eq(Mux(verdict.fate != Fate.CODED, verdict.fate, facts.refusal)),
            new.port.eq(facts.port[1:]),
            new.n_beats.eq(records.p.n_beats),
            new.n_used.eq((end + (n - 1)) >> ceil_log2(n)),
            new.n_less_1.eq((facts.head.length - 1) >> ceil_log2(n)),
            new.tail.eq(verdict.tail),
        ]
        route = data.StructLayout(
            {
                "collided": 1,
                "switchml": 1,
                "port": index_width(self.n_ports),
                "tail": len(verdict.tail),
                "n_less_1": 12,
            }
        )
        m.submodules.heads = heads = FIFO(ContributionHead, N_HEADS)
        m.submodules.routes = routes = FIFO(route, N_HEADS)
        wiring.connect(m, heads.o, wiring.flipped(self.heads))
        known = decided.o.p
        passes, collides, leaves = signals("passes collides leaves")
        m.d.comb += [
            passes.eq(known.refusal == Refusal.NONE),
            collides.eq(known.refusal == Refusal.COLLISIONS),
            leaves.eq(decided.o.valid & heads.i.ready & routes.i.ready & store.jobs.ready),
            decided.o.ready.eq(leaves),
            store.jobs.valid.eq(leaves),
            store.jobs.p.n_stored.eq(known.n_beats),
            heads.i.valid.eq(leaves & passes),
            heads.i.p.eq(known.head),
            routes.i.valid.eq(leaves & (store.jobs.p.n_read != 0)),
            routes.i.p.collided.eq(collides),
            *same(routes.i.p, known, "switchml port tail n_less_1"),
        ]
        with m.If(collides):
            m.d.comb += store.jobs.p.n_read.eq(known.n_beats)
        with m.Elif(passes & (known.head.length != 0)):
            m.d.comb += store.jobs.p.n_read.eq(known.n_used)
        m.d.sync += self.refused.eq(Mux(leaves, 1 << known.refusal, 0))
        return routes.o

    def _deliver(self, m, frames, routes):
        """What is read from the store goes to the slots, or on to the network."""
        n = self.n_bytes
        m.submodules.realigner = realigner = Realigner(n, (HEAD_BYTES, SWITCHML.stop))
        m.submodules.collided = collided = PacketFIFO(
            self.collided_shape, MAX_FRAME // n, drop=None, lossy=True
        )
        wiring.connect(m, collided.o, wiring.flipped(self.collided))
        m.d.comb += self.unsent.eq(collided.overflow)
        route = routes.p
        takes = Signal()
        m.d.comb += [
            takes.eq(frames.valid & routes.valid & (route.collided | realigner.i.ready)),
            frames.ready.eq(takes),
            routes.ready.eq(takes & frames.p.last),
            realigner.i.valid.eq(frames.valid & routes.valid & ~route.collided),
            # SwitchML's values are big-endian, and words of the frame
            realigner.i.p.data.eq(Mux(route.switchml, turned_words(frames.p.data), frames.p.data)),
            realigner.i.p.second.eq(route.switchml),
            realigner.i.p.last.eq(frames.p.last),
            realigner.i.p.n_less_1.eq(route.n_less_1),
            self.values.valid.eq(realigner.o.valid),
            realigner.o.ready.eq(self.values.ready),
            self.values.p.data.eq(realigner.o.p.data),
            self.values.p.last.eq(realigner.o.p.last),
        ]
        marked = collided.i.p
        index = Signal(range(HEAD_BYTES // n + 1))
        m.d.comb += [
            collided.i.valid.eq(frames.valid & routes.valid & route.collided),
            marked.data.eq(frames.p.data),
            marked.last.eq(frames.p.last),
            marked.meta.eq(route.port),
            marked.keep.eq(Cat(~frames.p.last | (route.tail >= k) for k in range(n))),
        ]
        with m.If(takes):
            with m.If(frames.p.last):
                m.d.sync += index.eq(0)
            with m.Elif(index != HEAD_BYTES // n):
                m.d.sync += index.eq(index + 1)
        zeros = [8 * byte + bit for byte in range(UDP.checksum.byte, UDP.stop) for bit in range(8)]
        ones = [GRADNIC.coll.slices[0][0]]
        for value, places in ((0, zeros), (1, ones)):
            for place in places:
                with m.If(index == place // (8 * n)):
                    m.d.comb += marked.data[place % (8 * n)].eq(value)
