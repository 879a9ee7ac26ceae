"""The engine of a card on the flit layer: reads, adds and hands out what the rows send."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.flit import FLIT_FLOATS
from gradnic.table import bits

from .flit_landing import Contributions, Places
from .memory import BlockRAM
from .multiplier import Multiplier
from .pipeline import delayed, delayed_flag
from .reduce import Combine, Op
from .streams import FIFO

BLOCK = 16  # words that are read, or added to, in one go
QUEUE = 2 * BLOCK  # words that wait for a port


def Job(layout, n_chunks):
    """Shape of one message to one port, or of a terminal row."""
    chunk = bits(n_chunks - 1)
    return data.StructLayout(
        {"gather": 1, "wait": layout.wait, "first": chunk, "count": bits(n_chunks)}
    )


def round_robin(m, requests, go, *, name):
    """One-hot grant among `requests`, the one after the last granted first; moves on with `go`."""
    n = len(requests)
    above = Signal(n, name=f"{name}_above")  # those after the last one granted
    ahead = requests & above
    pool = Mux(ahead.any(), ahead, requests)
    grant = Signal(n, name=f"{name}_grant")
    m.d.comb += grant.eq(pool & ~(pool - 1)[:n])
    with m.If(go & requests.any()):
        m.d.sync += above.eq(~(grant | (grant - 1)[:n]))
    return grant


class FlitEngine(wiring.Component):
    """Reads chunks for several ports at once, and adds what has landed, rank by rank.

    Each port, and the terminal rows, have a slot. A slot works on blocks of up to 16 words: own +
    rank 0, then that + rank 1, ...; sums of a block wait in a block RAM between the ranks, so
    nothing goes back to memory, and the last sum goes straight to the port. The slots take turns,
    block by block and rank by rank. One word per cycle over all slots; the ranks of one block
    follow each other after 16 cycles at least. Words without contributions go around the adder.

    A gather row may follow its chunk's terminal row while that still writes: it never overtakes it.

    Parameters
    ----------
    layout : gradnic.table.Layout
    n_ports, n_lanes, n_chunks, n_words : int
        As of `gradnic.hdl.flit_card.FlitCard`.
    integers : bool
        As of `gradnic.hdl.reduce.Combine`.

    Members
    -------
    op : In(Op)
        What contributions are combined with; stable while jobs run.
    places, entry_en, entry_addr, entry : In
        As of `Landing`.
    jobs : array of In(stream.Signature(Job)), n_ports + 1
        The last is the slot of terminal rows.
    own_address, landing_address : Out
    own_data, landing_data : In(32 * n_lanes)
        Words of gradient and landing memory, 2 cycles after the address.
    words : array of Out(stream.Signature({data, n_flits, last})), n_ports
        What goes to the ports; last ends a job.
    results : Out(stream.Signature({data, address, chunk, first, ends}))
        Words of terminal rows, to be written to gradient memory.
    left : Out(stream.Signature(chunk))
        The own partial of this chunk has been read.
    busy : Out(n_ports + 1)
        The slot has a job, or words that were not taken.
    """

    def __init__(self, layout, *, n_ports, n_lanes, n_chunks, n_words, integers):
        self.integers = integers
        self.layout, self.n_ports, self.n_lanes = layout, n_ports, n_lanes
        self.n_chunks, self.n_words = n_chunks, n_words
        self.ratio = n_lanes // FLIT_FLOATS
        chunk, address = bits(n_chunks - 1), bits(n_words - 1)
        job = stream.Signature(Job(layout, n_chunks))
        self.word = data.StructLayout(
            {"data": 32 * n_lanes, "n_flits": range(self.ratio + 1), "last": 1}
        )
        self.result = data.StructLayout(
            {"data": 32 * n_lanes, "address": address, "chunk": chunk, "first": 1, "ends": 1}
        )
        super().__init__(
            {
                "op": In(Op),
                "places": In(Places(n_chunks, n_words)),
                "entry_en": In(1),
                "entry_addr": In(chunk),
                "entry": In(Contributions(n_words)),
                "jobs": In(job).array(n_ports + 1),
                "own_address": Out(address),
                "own_data": In(32 * n_lanes),
                "landing_address": Out(address),
                "landing_data": In(32 * n_lanes),
                "words": Out(stream.Signature(self.word)).array(n_ports),
                "results": Out(stream.Signature(self.result)),
                "left": Out(stream.Signature(chunk)),
                "busy": Out(n_ports + 1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n_slots = self.n_ports + 1
        slots = [_Slot(m, self, k) for k in range(n_slots)]
        self._find(m, slots)
        grant, start = self._pick(m, slots)
        step = self._walk(m, slots, grant, start)
        self._add(m, slots, step)
        self._order(m, slots)
        return m

    def _find(self, m, slots):
        """Addresses of a chunk and its contributions: one slot after the other, 6 cycles."""
        entry = Contributions(self.n_words)
        m.submodules.entries = table = memory.Memory(
            shape=entry, depth=self.n_chunks, init=[], attrs={"ram_style": "distributed"}
        )
        write, read = table.write_port(), table.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.entry_en),
            write.addr.eq(self.entry_addr),
            write.data.eq(self.entry),
        ]
        asks = Cat(s.asks for s in slots)
        grant = round_robin(m, asks, 1, name="find")
        chunk = Signal(bits(self.n_chunks - 1), reset_less=True)
        asked = Signal(len(slots))
        m.d.sync += [
            asked.eq(grant),
            chunk.eq(_select(grant, [s.chunk for s in slots])),
        ]
        for slot, got in zip(slots, grant, strict=True):
            with m.If(got):
                m.d.sync += slot.asks.eq(0)
        base = Signal(bits(self.n_words), reset_less=True)
        m.d.comb += read.addr.eq(chunk)
        m.d.sync += base.eq(read.data.base)
        width = bits(self.n_words)
        m.submodules.own = own = Multiplier(width, width)
        m.submodules.landing = landing = Multiplier(width, width)
        m.d.comb += [
            own.a.eq(delayed(m, chunk, 1, name="own_chunk")),
            own.b.eq(self.places.chunk_words),
            landing.a.eq(base),
            landing.b.eq(self.places.chunk_words),
        ]
        is_last = Signal()
        m.d.sync += is_last.eq(chunk + 1 == self.places.live)
        is_last = delayed(m, is_last, own.latency, name="is_last")
        flits = Mux(is_last, self.places.last_flits, self.places.chunk_flits)
        words = Signal(bits(self.n_words))
        shift = ceil_log2(self.ratio)
        m.d.comb += words.eq((flits + self.ratio - 1) >> shift)
        for k, slot in enumerate(slots):
            found = delayed_flag(m, asked[k], 1 + own.latency, name=f"found{k}")
            with m.If(found):
                m.d.sync += [
                    slot.runs.eq(1),
                    slot.own.eq(own.p),
                    slot.landing.eq(landing.p),
                    slot.block.eq(landing.p),
                    slot.rest.eq(words),
                    slot.done.eq(0),
                    slot.tail.eq((flits - 1)[:shift]),
                    slot.timer.eq(1),
                ]

    def _pick(self, m, slots):
        """The slot whose pass is next, when the one that runs ends."""
        ready = Cat(s.runs & (s.timer == 0) & ((s.rank != 0) | (s.room & s.behind)) for s in slots)
        free = Signal()
        grant = round_robin(m, ready, free, name="pick")
        start = Signal()
        m.d.comb += start.eq(free & ready.any())
        self.free = free
        return grant, start

    def _walk(self, m, slots, grant, start):
        """Runs a pass: one word per cycle. Returns what each word is, as a stage of registers."""
        n_slots = len(slots)
        running = Signal()
        at, n = Signal(range(BLOCK)), Signal(range(BLOCK + 1))
        ends = Signal()
        chosen = {
            name: _select(grant, [getattr(s, name) for s in slots])
            for name in ("own", "landing", "rest", "rank", "wait", "chunk", "done", "tail")
        }
        gather = _select(grant, [s.gather for s in slots])
        one_more = _select(grant, [s.count == 1 for s in slots])
        size, final = Signal(range(BLOCK + 1)), Signal()
        closes = Signal()
        m.d.comb += [
            size.eq(Mux(chosen["rest"] > BLOCK, BLOCK, chosen["rest"])),
            final.eq(chosen["rank"] + 1 >= chosen["wait"]),
            closes.eq(chosen["rest"] <= BLOCK),
            ends.eq(at + 1 == n),
            self.free.eq(~running | ends),
        ]
        tag = data.StructLayout(
            {
                "slot": range(n_slots),
                "own": 1,  # the first pass: own words, not sums
                "adds": 1,
                "final": 1,
                "closes": 1,  # the chunk's last block
                "opens": 1,
                "last": 1,  # of the job
                "tail": ceil_log2(self.ratio) or 1,
                "chunk": bits(self.n_chunks - 1),
            }
        )
        held = Signal(tag, reset_less=True)
        with m.If(running):
            m.d.sync += [
                at.eq(at + 1),
                self.own_address.eq(self.own_address + 1),
                self.landing_address.eq(self.landing_address + 1),
            ]
            with m.If(ends):
                m.d.sync += running.eq(0)
        with m.If(start):
            m.d.sync += [
                running.eq(1),
                at.eq(0),
                n.eq(size),
                self.own_address.eq(chosen["own"]),
                self.landing_address.eq(chosen["landing"]),
                held.slot.eq(_number(grant)),
                held.own.eq(chosen["rank"] == 0),
                held.adds.eq(chosen["wait"] != 0),
                held.final.eq(final),
                held.closes.eq(closes),
                held.opens.eq(chosen["done"] == 0),
                held.last.eq(one_more),
                held.tail.eq(chosen["tail"]),
                held.chunk.eq(chosen["chunk"]),
            ]
        m.submodules.left = left = FIFO(self.left.p.shape(), 16)
        wiring.connect(m, left.o, wiring.flipped(self.left))
        m.d.comb += [
            left.i.p.eq(chosen["chunk"]),
            left.i.valid.eq(start & ~gather & closes & (chosen["rank"] == 0)),
        ]
        for s, got in zip(slots, grant, strict=True):
            with m.If(start & got):
                s.advance(m, final, size, closes)
        return running, at, ends, held

    def _add(self, m, slots, step):
        """Own words or earlier sums, plus contributions; sums to memory, to ports, to results.

        Without contributions words go around the adder, a slot's sums before them being out.
        """
        running, at, ends, held = step
        width = 32 * self.n_lanes
        m.submodules.combine = combine = Combine(self.n_lanes, integers=self.integers)
        m.submodules.sums = sums = BlockRAM(width, len(slots) * BLOCK)
        place = Cat(at, held.slot)
        own = delayed(m, held.own, 2, name="own")
        a, b = Signal(width, reset_less=True), Signal(width, reset_less=True)
        op = Signal(Op, reset_less=True)
        m.d.comb += sums.read_addr.eq(place)
        m.d.sync += [
            a.eq(Mux(own, self.own_data, sums.read_data)),
            b.eq(self.landing_data),
            op.eq(self.op),
        ]
        m.d.comb += [combine.a.eq(a), combine.b.eq(b), combine.op.eq(op)]
        latency = 3 + combine.latency
        shape = held.shape()
        word = Cat(held.as_value(), at, ends, self.own_address)
        straight = delayed(m, word, 3, name="straight")
        late = delayed(m, straight, combine.latency, name="late")
        goes_straight = delayed_flag(m, running & ~held.adds, 3, name="goes_straight")
        valid = delayed_flag(m, running & held.adds, latency, name="valid")
        tag, straight_tag = shape(late[: shape.size]), shape(straight[: shape.size])
        late_at = late[shape.size : shape.size + len(at)]
        m.d.comb += [
            sums.write_en.eq(valid & ~tag.final),
            sums.write_addr.eq(Cat(late_at, tag.slot)),
            sums.write_data.eq(combine.o),
        ]
        for k, s in enumerate(slots):
            terminal = k == self.n_ports
            queue = FIFO(self.result if terminal else self.word, QUEUE)
            m.submodules[f"queue{k}"] = queue
            port = self.results if terminal else self.words[k]
            wiring.connect(m, queue.o, wiring.flipped(port))
            added = Signal(name=f"added{k}")
            m.d.comb += added.eq(valid & tag.final & (tag.slot == k))
            mine = Signal(len(word), name=f"mine{k}")
            m.d.comb += [
                queue.i.valid.eq(added | (goes_straight & (straight_tag.slot == k))),
                queue.i.p.data.eq(Mux(added, combine.o, a)),
                mine.eq(Mux(added, late, straight)),
            ]
            its = shape(mine[: shape.size])
            its_at, its_ends = mine[shape.size :][: len(at)], mine[shape.size + len(at)]
            shuts = its.closes & its_ends  # the chunk's last word
            if terminal:
                m.d.comb += [
                    queue.i.p.address.eq(mine[shape.size + len(at) + 1 :]),
                    queue.i.p.chunk.eq(its.chunk),
                    queue.i.p.first.eq(its.opens & (its_at == 0)),
                    queue.i.p.ends.eq(shuts),
                ]
            else:
                m.d.comb += [
                    queue.i.p.n_flits.eq(Mux(shuts, its.tail + 1, self.ratio)),
                    queue.i.p.last.eq(shuts & its.last),
                ]
            s.track(m, port.valid & port.ready)
            m.d.comb += self.busy[k].eq(s.valid | (s.reserved != 0))

    def _order(self, m, slots):
        """Gather slots stay behind the terminal row that still writes their chunk."""
        terminal = slots[-1]
        chunk = Signal(bits(self.n_chunks - 1), reset_less=True)
        written = Signal(bits(self.n_words))
        writes = Signal()
        with m.If(terminal.asks):
            m.d.sync += [chunk.eq(terminal.chunk), written.eq(0), writes.eq(1)]
        with m.If(self.results.valid & self.results.ready):
            m.d.sync += written.eq(written + 1)
            with m.If(self.results.p.ends):
                m.d.sync += writes.eq(0)
        for s in slots[:-1]:
            reach = s.done + Mux(s.rest > BLOCK, BLOCK, s.rest)
            same = writes & (s.chunk == chunk)
            m.d.sync += s.behind.eq(~s.gather | ~same | (reach < written))
        m.d.comb += terminal.behind.eq(1)


class _Slot:
    """Registers of one slot: its job, and where in it the engine is."""

    def __init__(self, m, engine, k):
        def signal(name, shape=1, **options):
            return Signal(shape, name=f"{name}{k}", **options)

        jobs = engine.jobs[k]
        job, address = jobs.p, bits(engine.n_words)
        self.valid, self.runs = signal("valid"), signal("runs")
        self.asks, self.wants = signal("asks"), signal("wants")
        self.gather, self.wait = signal("gather"), signal("wait", engine.layout.wait)
        self.chunk = signal("chunk", bits(engine.n_chunks - 1))
        self.count = signal("count", bits(engine.n_chunks))
        self.own, self.landing = signal("own", address), signal("landing", address)
        self.block = signal("block", address)  # landing address of the block's rank 0
        self.rest, self.done = signal("rest", address), signal("done", address)
        self.rank = signal("rank", engine.layout.wait)
        self.tail = signal("tail", ceil_log2(engine.ratio) or 1)
        self.timer = signal("timer", 5)
        self.reserved = signal("reserved", range(QUEUE + 1))
        self.room, self.behind = signal("room"), signal("behind")
        self.adding = signal("adding", range(2 * BLOCK + 1))  # cycles until its sums are out
        self.alone = signal("alone")  # none of them, or this job's are sums too
        self.stride = engine.places.chunk_words
        self.takes = signal("takes", range(BLOCK + 1))
        terminal = k == engine.n_ports
        # the next chunk of a terminal row waits until the one before is written
        quiet = (self.reserved == 0) if terminal else 1
        with m.If(self.timer != 0):
            m.d.sync += self.timer.eq(self.timer - 1)
        with m.If(self.adding != 0):
            m.d.sync += self.adding.eq(self.adding - 1)
        m.d.sync += self.alone.eq((self.adding == 0) | (self.wait != 0))
        with m.If(self.wants & quiet):
            m.d.sync += [self.asks.eq(1), self.wants.eq(0)]
        with m.If(~self.valid):
            m.d.comb += jobs.ready.eq(1)
            with m.If(jobs.valid):
                m.d.sync += [
                    self.valid.eq(1),
                    self.wants.eq(terminal),
                    self.asks.eq(not terminal),
                    self.gather.eq(job.gather),
                    self.wait.eq(Mux(job.gather, 0, job.wait)),
                    self.chunk.eq(job.first),
                    self.count.eq(job.count),
                    self.rank.eq(0),
                ]

    def advance(self, m, final, size, closes):
        """The engine starts a pass of this slot; `final`: the block's last, of `size` words."""
        with m.If(self.rank == 0):
            m.d.comb += self.takes.eq(size)
        with m.If(self.wait != 0):
            m.d.sync += self.adding.eq(2 * BLOCK)
        with m.If(~final):
            m.d.sync += [
                self.rank.eq(self.rank + 1),
                self.landing.eq(self.landing + self.stride),
                self.timer.eq(15),
            ]
        with m.Else():
            m.d.sync += [
                self.rank.eq(0),
                self.own.eq(self.own + size),
                self.landing.eq(self.block + size),
                self.block.eq(self.block + size),
                self.rest.eq(self.rest - size),
                self.done.eq(self.done + size),
                self.timer.eq(2),
            ]
            with m.If(closes):
                m.d.sync += [
                    self.runs.eq(0),
                    self.count.eq(self.count - 1),
                    self.chunk.eq(self.chunk + 1),
                    self.valid.eq(self.count != 1),
                    self.wants.eq(self.count != 1),
                ]

    def track(self, m, gone):
        """Words promised to the slot's queue and not taken from it."""
        m.d.sync += [
            self.reserved.eq(self.reserved + self.takes - gone),
            self.room.eq(self.reserved <= QUEUE - BLOCK),
        ]


def _select(grant, values):
    """The value whose bit of the one-hot `grant` is set."""
    result = 0
    for bit, value in zip(grant, values, strict=True):
        result = result | Mux(bit, value, 0)
    return result


def _number(grant):
    """Number of the bit that is set."""
    return _select(grant, range(len(grant)))
