"""Egress port with strict-priority queues that drop what may be lost and mark what may not.

Twin of `gradnic.models.frame.egress`, where the sources are.
"""

from functools import reduce
from operator import or_

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
    The first beat of a frame is offered 11 cycles after its last beat came in, if the port is free;
    a frame waits for the one that is under way, and for all of the queues before its own. A frame
    counts in the depth until a cycle after its last beat is read.

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
        entry = data.StructLayout({"cells": width, "one": 1, "mark": 1})
        waiting = [FIFO(entry, N_FRAMES, never_full=True) for _ in QUEUE]
        for k, queue in enumerate(waiting):
            m.submodules[f"waiting{k}"] = queue
        used = [Signal(width, name=f"used{k}") for k in QUEUE]
        freed = Signal(width)  # beats that leave a queue in this cycle
        self._write(m, store, waiting, used, freed)
        self._read(m, store, waiting, freed)
        self._count(m)
        return m

    def _classify(self, m):
        """(beat, whether there is one, queue and ECN field of its frame, its beats so far)."""
        m.submodules.input = entry = Slice(self.i.p.shape())
        wiring.connect(m, wiring.flipped(self.i), entry.i)
        coming = entry.o.p
        first = Signal(init=1)
        beat, valid = Signal.like(coming, name="beat"), Signal(name="valid")
        fields = Signal(5)
        n_now = Signal(range(self.max_beats + 2))
        tos = coming.data[8 * IPV4.tos.byte :][:8]
        at = 8 * ETHERNET.ethertype.byte
        ethertype = Cat(coming.data[at + 8 : at + 16], coming.data[at : at + 8])
        m.d.comb += entry.o.ready.eq(1)
        m.d.sync += [valid.eq(entry.o.valid), beat.eq(coming)]
        with m.If(entry.o.valid):
            m.d.sync += [
                first.eq(coming.last),
                n_now.eq(Mux(first, 1, n_now + (n_now <= self.max_beats))),
            ]
            with m.If(first):
                m.d.sync += fields.eq(
                    Mux(ethertype == ETHERTYPE_IPV4, Cat(~tos[5:], tos[:2]), CE << 3)
                )
        return beat, valid, fields, n_now

    def _write(self, m, store, waiting, used, freed):
        """Store the beats behind what is committed; commit or forget them with the last one."""
        width = self.depth_width
        beat, valid, fields, n_now = self._classify(m)
        head = Array(Signal(width - 1, name=f"head{k}") for k in QUEUE)
        frames = [Signal(range(N_FRAMES + 1), name=f"frames{k}") for k in QUEUE]
        beyond, above = signals("beyond above", N_QUEUES)  # the limit, the threshold of each queue
        queue, ecn = fields[:3], fields[3:]
        long, ends = signals("long ends")
        m.d.comb += [
            long.eq(n_now > self.max_beats),
            store.write_en.eq(valid & ~long),
            store.write_addr.eq(Cat((head[queue] + n_now - 1)[: width - 1], queue)),
            store.write_data.eq(Value.cast(beat)),
            ends.eq(valid & beat.last & ~beat.bad),
            self.event.valid.eq(ends),
            self.event.queue.eq(queue),
            self.event.important.eq(ecn != 0),
        ]
        with m.If(long | beyond.bit_select(queue, 1)):
            m.d.comb += self.event.what.eq(LIMIT)
        with m.Elif(above.bit_select(queue, 1) & (ecn != CE)):
            m.d.comb += self.event.what.eq(Mux(ecn == 0, THRESHOLD, MARKED))

        told = Signal(waiting[0].i.p.shape(), reset_less=True)  # to those that wait, a cycle later
        m.d.sync += [
            told.cells.eq(n_now),
            told.one.eq(n_now == 1),
            told.mark.eq(self.event.what == MARKED),
        ]
        # Each queue judges by itself: no choice of a queue stands before its own registers.
        for k in QUEUE:
            mine, gone = Signal(name=f"mine{k}"), Signal(name=f"gone{k}")
            depth = Signal(width + 1, name=f"depth{k}")
            stay = Signal(width, name=f"stay{k}")
            stays = Signal.like(frames[k], name=f"stays{k}")
            m.d.comb += [
                depth.eq(used[k] + n_now),
                beyond[k].eq((depth > self.limit) | (frames[k] == N_FRAMES)),
                above[k].eq(depth > self.thresholds[k]),
                mine.eq(ends & (queue == k) & ~long & ~beyond[k] & ~(above[k] & (ecn == 0))),
                gone.eq(self.dequeued.valid & (self.dequeued.queue == k)),
                stay.eq(used[k] - Mux(gone, freed, 0)),
                stays.eq(frames[k] - gone),
                waiting[k].i.p.eq(told),
            ]
            m.d.sync += [
                waiting[k].i.valid.eq(mine),
                used[k].eq(Mux(mine, stay + n_now, stay)),
                frames[k].eq(Mux(mine, stays + 1, stays)),
            ]
            with m.If(mine):
                m.d.sync += head[k].eq(head[k] + n_now)

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
        first, issue, final, free = signals("first issue final free")  # final: of the last beat
        credits = Signal(N_CREDITS, init=-1)
        refund = Signal()
        m.d.comb += [
            issue.eq(busy & credits[0]),
            free.eq(~busy | (issue & final)),
            store.read_addr.eq(Cat(tail[queue], queue)),
            refund.eq(prefetch.o.valid & prefetch.o.ready),
        ]
        m.d.sync += [
            self.dequeued.valid.eq(issue & final),
            self.dequeued.queue.eq(queue),
            freed.eq(cells),
        ]
        with m.If(issue):
            m.d.sync += [
                left.eq(left - 1),
                final.eq(left == 2),
                first.eq(0),
                tail[queue].eq(tail[queue] + 1),
            ]
            with m.If(final):
                m.d.sync += busy.eq(0)
        lowest = Signal(N_QUEUES)
        taken = Signal(waiting[0].o.p.shape())
        for k in QUEUE:
            m.d.comb += [
                lowest[k].eq(waiting[k].o.valid & ~Cat(w.o.valid for w in waiting[:k]).any()),
                waiting[k].o.ready.eq(free & lowest[k]),
            ]
        m.d.comb += Value.cast(taken).eq(
            reduce(or_, (Mux(lowest[k], Value.cast(waiting[k].o.p), 0) for k in QUEUE))
        )
        with m.If(free & lowest.any()):
            m.d.sync += [
                busy.eq(1),
                first.eq(1),
                queue.eq(reduce(or_, (Mux(lowest[k], k, 0) for k in QUEUE))),
                cells.eq(taken.cells),
                left.eq(taken.cells),
                final.eq(taken.one),
                mark.eq(taken.mark),
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
        event = delayed(m, self.event, 1, name="event")
        place = Cat(event.what, event.queue, event.important)
        clear = setting(m, 7, "clear")  # 64: all are 0
        m.d.sync += clear.eq(clear + ~clear[-1])
        m.d.comb += [
            read.addr.eq(self.count_addr),
            self.count.eq(read.data),
            add.addr.eq(place),
            write.en.eq(event.valid | ~clear[-1]),
            write.addr.eq(Mux(clear[-1], place, clear[:6])),
            write.data.eq(Mux(clear[-1], add.data + 1, 0)),
        ]
