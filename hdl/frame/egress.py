"""Egress port with strict-priority queues that drop what may be lost and mark what may not.

Twin of `gradnic.models.frame.egress`, where the sources are.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.formats import ETHERNET, ETHERTYPE_IPV4, IPV4
from gradnic.interface.params import check_power, check_range

from ..primitive.block_ram import BlockRAM
from ..primitive.names import signals
from ..primitive.setting import setting
from ..stream.beats import FrameBeat
from ..stream.block_fifo import N_CREDITS
from ..stream.delays import delayed
from ..stream.fifo import FIFO
from ..stream.slice import Slice

N_QUEUES = 8
N_FRAMES = 64  # of a queue
MAX_BEATS = 2048  # of a queue
CE = 3
ENQUEUED, MARKED, THRESHOLD, LIMIT = range(4)  # what became of a frame
QUEUE = range(N_QUEUES)

Event = data.StructLayout({"valid": 1, "what": 2, "queue": 3, "important": 1})


class EgressQueues(wiring.Component):
    """Eight queues in one block RAM, queue 0 served first: 1 beat per cycle in and out.

    ``i.ready`` is always high: a frame is judged with its last beat, and either stays whole or
    vanishes, as one that is marked bad does. Its class selector says the queue, 7 the first; what
    is not IPv4 is in queue 0, is important, and neither dropped at a threshold nor marked. Depths
    count beats. With D the queue's depth after adding the frame: D > limit, or a frame of more than
    ``max_beats`` beats, or the 65th frame of a queue: dropped (limit); else D > thresholds[queue]:
    dropped if its ECN field is 0 (threshold), else it leaves with CE and a fresh checksum (marked).
    The first beat of a frame is offered 9 cycles after its last beat came in, if the port is free;
    a frame waits for the one that is under way, and for all of the queues before its own. A frame
    counts in the depth until its last beat is read.

    Parameters
    ----------
    n_bytes : int
        Bytes per beat, a power of two from 16 to 128.
    queue_beats : int
        Store of one queue, a power of two from 16 to 2048.
    max_beats : int
        Of the largest frame; the registers must keep limit + max_beats <= queue_beats.

    Members
    -------
    i : In(stream.Signature(FrameBeat(n_bytes)))
        Frames of at least 34 bytes; important are those whose ECN field is not 0.
    o : Out(stream.Signature(FrameBeat(n_bytes)))
    thresholds, limit : In
        Beats, per queue and for all.
    count_addr, count : In(6), Out(32)
        Frames so far of what + 4 * (queue + 8 * important), modulo 2**32: enqueued without a new
        mark, marked, dropped at the threshold, dropped at the limit. 0 after reset.
    event, dequeued : Out(Event), Out(Event)
        For benches: a frame's fate in the cycle it is decided; a frame left its queue.
    """

    def __init__(self, n_bytes: int, *, queue_beats: int = 256, max_beats: int = 64) -> None:
        check_power("n_bytes", n_bytes, 16, 128)
        check_power("queue_beats", queue_beats, 16, MAX_BEATS)
        check_range("max_beats", max_beats, 1, queue_beats - 1)
        self.n_bytes, self.queue_beats, self.max_beats = n_bytes, queue_beats, max_beats
        self.depth_width = width = ceil_log2(queue_beats) + 1
        self.stored = FrameBeat(n_bytes)
        super().__init__(
            {
                "i": In(stream.Signature(self.stored)),
                "o": Out(stream.Signature(self.stored)),
                "thresholds": In(data.ArrayLayout(width, N_QUEUES)),
                "limit": In(width),
                "count_addr": In(6),
                "count": Out(32),
                "event": Out(Event),
                "dequeued": Out(Event),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = self.depth_width
        m.submodules.store = store = BlockRAM(Value.cast(self.o.p).shape().width,
                                              N_QUEUES * self.queue_beats)  # fmt: skip
        entry = data.StructLayout({"cells": width, "mark": 1})
        waiting = [FIFO(entry, N_FRAMES) for _ in QUEUE]
        for k, queue in enumerate(waiting):
            m.submodules[f"waiting{k}"] = queue
        used = Array(Signal(width, name=f"used{k}") for k in QUEUE)
        freed = Signal(width)  # beats that leave a queue in this cycle
        self._write(m, store, waiting, used, freed)
        self._read(m, store, waiting, freed)
        self._count(m)
        return m

    def _write(self, m, store, waiting, used, freed):
        """Store the beats behind what is committed; commit or forget them with the last one."""
        width = self.depth_width
        m.submodules.input = entry = Slice(self.i.p.shape())
        wiring.connect(m, wiring.flipped(self.i), entry.i)
        beat, valid = entry.o.p, entry.o.valid
        head = Array(Signal(width - 1, name=f"head{k}") for k in QUEUE)
        frames = Array(Signal(range(N_FRAMES + 1), name=f"frames{k}") for k in QUEUE)
        first = Signal(init=1)
        fields, held = signals("fields held", 5)  # queue and ECN field of the frame
        n_before = Signal(range(self.max_beats + 1))
        n_now = Signal(range(self.max_beats + 2))
        queue, ecn = fields[:3], fields[3:]
        important = ecn != 0
        tos = beat.data[8 * IPV4.tos.byte :][:8]
        at = 8 * ETHERNET.ethertype.byte
        ethertype = Cat(beat.data[at + 8 : at + 16], beat.data[at : at + 8])
        depth = Signal(width + 1)
        m.d.comb += [
            entry.o.ready.eq(1),
            n_now.eq(Mux(first, 1, n_before + 1)),
            depth.eq(used[queue] + n_now),
            store.write_en.eq(valid & (n_now <= self.max_beats)),
            store.write_addr.eq(Cat((head[queue] + n_now - 1)[: width - 1], queue)),
            store.write_data.eq(Value.cast(beat)),
            fields.eq(held),
        ]
        with m.If(first):
            m.d.comb += fields.eq(Mux(ethertype == ETHERTYPE_IPV4, Cat(~tos[5:], tos[:2]), CE << 3))
        with m.If(valid):
            m.d.sync += [
                first.eq(beat.last),
                held.eq(fields),
                n_before.eq(Mux(n_now > self.max_beats, self.max_beats, n_now)),
            ]

        ends, commit = signals("ends commit")
        what = self.event.what
        above = depth > Array(self.thresholds)[queue]
        m.d.comb += [
            ends.eq(valid & beat.last & ~beat.bad),
            what.eq(
                Mux(above, Mux(ecn == 0, THRESHOLD, Mux(ecn == CE, ENQUEUED, MARKED)), ENQUEUED)
            ),
            self.event.valid.eq(ends),
            self.event.queue.eq(queue),
            self.event.important.eq(important),
            commit.eq(ends & ~what[1]),
        ]
        with m.If((depth > self.limit) | (n_now > self.max_beats) | (frames[queue] == N_FRAMES)):
            m.d.comb += what.eq(LIMIT)
        for k in QUEUE:
            mine, gone = Signal(name=f"mine{k}"), Signal(name=f"gone{k}")
            m.d.comb += [
                mine.eq(commit & (queue == k)),
                gone.eq(self.dequeued.valid & (self.dequeued.queue == k)),
                waiting[k].i.valid.eq(mine),
                waiting[k].i.p.cells.eq(n_now),
                waiting[k].i.p.mark.eq(what == MARKED),
            ]
            m.d.sync += [
                head[k].eq(head[k] + Mux(mine, n_now, 0)),
                used[k].eq(used[k] + Mux(mine, n_now, 0) - Mux(gone, freed, 0)),
                frames[k].eq(frames[k] + mine - gone),
            ]

    def _read(self, m, store, waiting, freed):
        """Between frames the lowest queue that has one is taken; marks are set on the way out."""
        width = self.depth_width
        word = data.StructLayout({"beat": self.stored, "first": 1, "mark": 1})
        m.submodules.prefetch = prefetch = FIFO(word, N_CREDITS)
        tail = Array(Signal(width - 1, name=f"tail{k}") for k in QUEUE)
        busy = Signal()
        queue = Signal(3)
        cells, left = signals("cells left", width)
        mark = Signal()
        first, issue, final, load = signals("first issue final load")
        credits = Signal(N_CREDITS, init=-1)
        refund = Signal()
        any_ = Cat(w.o.valid for w in waiting).any()
        m.d.comb += [
            issue.eq(busy & credits[0]),
            final.eq(left == 1),
            load.eq(any_ & (~busy | (issue & final))),
            store.read_addr.eq(Cat(tail[queue], queue)),
            self.dequeued.valid.eq(issue & final),
            self.dequeued.queue.eq(queue),
            freed.eq(cells),
            refund.eq(prefetch.o.valid & prefetch.o.ready),
        ]
        with m.If(issue):
            m.d.sync += [left.eq(left - 1), first.eq(0), tail[queue].eq(tail[queue] + 1)]
            with m.If(final):
                m.d.sync += busy.eq(0)
        with m.If(load):
            m.d.sync += [busy.eq(1), first.eq(1)]
            for k in reversed(QUEUE):
                entry = waiting[k].o
                with m.If(entry.valid & ~Cat(w.o.valid for w in waiting[:k]).any()):
                    m.d.comb += entry.ready.eq(1)
                    m.d.sync += [
                        queue.eq(k),
                        cells.eq(entry.p.cells),
                        left.eq(entry.p.cells),
                        mark.eq(entry.p.mark),
                    ]
        with m.If(issue & ~refund):
            m.d.sync += credits.eq(credits[1:])
        with m.Elif(refund & ~issue):
            m.d.sync += credits.eq(Cat(1, credits))

        beside = delayed(m, Cat(issue & first, issue & mark, issue), 2, name="beside")
        m.d.comb += [
            prefetch.i.valid.eq(beside[2]),
            Value.cast(prefetch.i.p.beat).eq(store.read_data),
            prefetch.i.p.first.eq(beside[0]),
            prefetch.i.p.mark.eq(beside[1]),
        ]
        self._patch(m, prefetch.o)

    def _patch(self, m, words):
        """CE and checksum: ECT(0) + 1, ECT(1) + 2, and as much less in the checksum."""
        m.submodules.output = out = Slice(self.stored)
        wiring.connect(m, out.o, wiring.flipped(self.o))
        n = self.n_bytes
        index = Signal(2)
        step_held, step = signals("step_held step", 2)
        at = 8 * IPV4.ecn.byte
        ecn = words.p.beat.data[at : at + 2]
        place, low = divmod(IPV4.checksum.byte, n)
        low *= 8
        octets = words.p.beat.data[low : low + 16]
        old = Cat(octets[8:], octets[:8])
        total = Signal(17)
        folded = Signal(16)
        m.d.comb += [
            out.i.valid.eq(words.valid),
            words.ready.eq(out.i.ready),
            out.i.p.eq(words.p.beat),
            step.eq(Mux(words.p.first, CE - ecn, step_held)),
            total.eq((~old)[:16] + step),
            folded.eq(total[:16] + total[16]),
        ]
        here = words.p.first if place == 0 else ~words.p.first & (index == place)
        with m.If(words.p.mark & words.p.first):
            m.d.comb += out.i.p.data[at : at + 2].eq(CE)
        with m.If(words.p.mark & here):
            m.d.comb += out.i.p.data[low : low + 16].eq(~Cat(folded[8:], folded[:8]))
        with m.If(words.valid & words.ready):
            m.d.sync += [
                step_held.eq(step),
                index.eq(Mux(words.p.first, 1, Mux(index == 3, 3, index + 1))),
            ]

    def _count(self, m):
        """One frame ends per cycle at most: read, add and write in one."""
        m.submodules.counts = counts = memory.Memory(
            shape=32, depth=64, init=[], attrs={"ram_style": "distributed"}
        )
        read = counts.read_port(domain="comb")
        add = counts.read_port(domain="comb")
        write = counts.write_port()
        place = Cat(self.event.what, self.event.queue, self.event.important)
        clear = setting(m, 7, "clear")  # 64: all are 0
        m.d.sync += clear.eq(clear + ~clear[-1])
        m.d.comb += [
            read.addr.eq(self.count_addr),
            self.count.eq(read.data),
            add.addr.eq(place),
            write.en.eq(self.event.valid | ~clear[-1]),
            write.addr.eq(Mux(clear[-1], place, clear[:6])),
            write.data.eq(Mux(clear[-1], add.data + 1, 0)),
        ]
