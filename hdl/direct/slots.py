"""What the slots of the flit engine keep, and whose turn it is.

`Slot` is state of `gradnic.hdl.direct.engine.FlitEngine`, and tested with it.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.utils import ceil_log2

from gradnic.interface.schedule_table import bits

BLOCK_FLOATS = 256  # that are read, or added to, in one go: 64 flits for the ports
ADDING = 17  # cycles from a pass's last read to its last sum


def first_set(marks):
    """One-hot: the first of `marks`, as logic, which is flatter than a subtraction's carry."""
    return Cat(mark & ~marks[:k].any() if k else mark for k, mark in enumerate(marks))


def round_robin(m, requests, go, *, name):
    """One-hot grant among `requests`, the one after the last granted first; moves on with `go`."""
    n = len(requests)
    above = Signal(n, name=f"{name}_above")  # those after the last one granted
    ahead = requests & above
    grant = Signal(n, name=f"{name}_grant")
    m.d.comb += grant.eq(Mux(ahead.any(), first_set(ahead), first_set(requests)))
    with m.If(go & requests.any()):
        m.d.sync += above.eq(Cat(grant[: k + 1].any() for k in range(n - 1)) << 1)
    return grant


class Slot:
    """Registers of one slot: its job, and where in it the engine is."""

    def __init__(self, m: Module, engine: Any, k: int) -> None:
        def signal(name, shape=1, **options):
            return Signal(shape, name=f"{name}{k}", **options)

        address = bits(engine.n_words)
        self.engine = engine
        self.valid, self.runs = signal("valid"), signal("runs")
        self.asks, self.wants = signal("asks"), signal("wants")
        self.gather, self.wait = signal("gather"), signal("wait", engine.layout.wait)
        self.chunk = signal("chunk", bits(engine.n_chunks - 1))
        self.count = signal("count", bits(engine.n_chunks))
        self.own, self.landing = signal("own", address), signal("landing", address)
        self.block = signal("block", address)  # landing address of the block's rank 0
        self.rest, self.done = signal("rest", address), signal("done", address)
        self.rank = signal("rank", engine.layout.wait)  # of the next pass
        self.lowest = signal("lowest", engine.layout.wait)  # rank of a block's first pass
        self.fresh = signal("fresh")  # the next pass is the block's first
        self.tail = signal("tail", ceil_log2(engine.ratio) or 1)
        self.timer, self.due = signal("timer", 5), signal("due", init=1)  # due: timer is 0
        self.reserved = signal("reserved", range(engine.queue + 1))
        self.room, self.behind = signal("room"), signal("behind")
        self.adding = signal(
            "adding", range(engine.block + ADDING + 1)
        )  # cycles until its sums are out
        self.alone = signal("alone")  # none of them, or this job's are sums too
        self.stride = engine.places.chunk_words
        self.takes = signal("takes", range(engine.block + 1))
        terminal = k == engine.n_ports
        if k > engine.n_ports:
            self._count_down(m)
            return
        jobs = engine.jobs[k]
        job = jobs.p
        self._count_down(m)
        # the next chunk of a terminal row waits until the one before is written
        quiet = (self.reserved == 0) if terminal else 1
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
                    self.done.eq(0),
                ]

    def _count_down(self, m):
        with m.If(self.timer != 0):
            m.d.sync += self.timer.eq(self.timer - 1)
        m.d.sync += self.due.eq(self.timer <= 1)
        with m.If(self.adding != 0):
            m.d.sync += self.adding.eq(self.adding - 1)
        m.d.sync += self.alone.eq((self.adding == 0) | (self.wait != 0))

    def outlook(self):
        """Of its next pass, before it is known whose turn it is: its words, and what it is."""
        block = self.engine.block
        return {
            "size": Mux(self.rest > block, block, self.rest[: len(self.takes)]),
            "final": self.rank + 1 >= self.wait,
            "closes": self.rest <= block,
            "adds": self.wait != 0,
            "opens": self.done == 0,
            "last": self.count == 1,
        }

    def advance(self, m, final, size, closes):
        """The engine starts a pass of this slot; `final`: the block's last, of `size` words."""
        m.d.sync += [self.fresh.eq(final), self.due.eq(0)]
        with m.If(self.fresh):
            m.d.comb += self.takes.eq(size)
        with m.If(self.wait != 0):
            m.d.sync += self.adding.eq(self.engine.block + ADDING)
        with m.If(~final):
            m.d.sync += [
                self.rank.eq(self.rank + 1),
                self.landing.eq(self.landing + self.stride),
                self.timer.eq(15),
            ]
        with m.Else():
            m.d.sync += [
                self.rank.eq(self.lowest),
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
                    self.done.eq(0),
                ]

    def track(self, m, gone):
        """Words promised to the slot's queue and not taken from it."""
        m.d.sync += [
            self.reserved.eq(self.reserved + self.takes - gone),
            self.room.eq(self.reserved <= self.engine.queue - self.engine.block),
        ]


def select(grant, values):
    """The value whose bit of the one-hot `grant` is set."""
    result = 0
    for bit, value in zip(grant, values, strict=True):
        result = result | Mux(bit, value, 0)
    return result


def number(grant):
    """Number of the bit that is set."""
    return select(grant, range(len(grant)))
