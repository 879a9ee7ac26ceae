"""What a node knows of its chunks: contributions so far, released, final; one access a cycle.

Twin of `gradnic.models.schedule.chunk_book`; a part of the scheduler.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.schedule_table import Layout, bits

from ..primitive.block_ram import BlockRAM
from ..primitive.names import signals
from ..stream.delays import delayed, delayed_flag

EVENTS = ("added", "finals", "released")  # in the order in which they are served


def State(layout):
    """Shape of what is known of a chunk."""
    return data.StructLayout({"added": layout.wait, "released": 1, "final": 1})


def Look(layout, n_chunks: int, n_slots: int):
    """Shape of a look at a chunk that a row waits for.

    slot : one bit for the slot of a row with one look, 0 if it has several. fresh, end : its
    first, its last look. wide : the row has several. gather : it waits for the chunk to be final.
    free : it waits for nothing. hold : it is held back then. wait : contributions that it waits
    for.
    """
    flags = dict.fromkeys(("fresh", "end", "wide", "gather", "free", "hold"), 1)
    return data.StructLayout(
        {"chunk": bits(n_chunks - 1), "slot": n_slots, **flags, "wait": layout.wait}
    )


def Access(layout, n_chunks: int, n_slots: int):
    """Shape of an access under way: a look, or a contribution added, or a chunk made final."""
    return data.StructLayout(
        {"look": 1, "add": 1, "finish": 1, "at": Look(layout, n_chunks, n_slots)}
    )


class ChunkBook(wiring.Component):
    """State of each chunk, in block RAM: events change it, rows and asks read it, in one order.

    One access a cycle: the first that is offered of `added`, `finals`, `released`, `asks`, `looks`.
    An access taken in cycle t is `coming` in t + 2, `passing` in t + 3, and its `result` is there
    in t + 4. What follows sees what went before, whatever the distance. There are two banks: one in
    use, the other being cleared in cycles without an access, as far as the tensor has chunks.

    Members
    -------
    chunks : In
        Chunks of the tensor; events beyond are `foreign`. In use, or for the next swap.
    running : In(1)
        0: events are `early`, and change nothing.
    swap : In(1)
        A strobe: change banks; only while `clean`.
    clean : Out(1)
        The other bank is clear, as far as ``chunks``.
    added, finals, released, asks : In(stream of chunk numbers)
    answered : Out(1), answer : Out(State), 4 cycles after an ask was taken.
    looks : In(stream.Signature(Look))
    coming, passing : Out(Access), 2 and 3 cycles after an access was taken. Events of `coming` may
        be foreign, those of `passing` count.
    result : Out(State), 1 cycle later: the state after the access.
    grew, finished : Out(1)
        With `result`: a contribution was counted; a chunk became final.
    foreign, extra, early : Out(1)
        For one cycle, 1 to 5 cycles after the event. extra: a contribution came for a chunk that
        was released, or beyond the largest number that can be counted, or a chunk became final
        twice.
    """

    def __init__(self, layout: Layout, n_chunks: int, n_slots: int) -> None:
        self.layout, self.n_chunks, self.n_slots = layout, n_chunks, n_slots
        self.chunk_width = bits(n_chunks - 1)
        chunk = stream.Signature(self.chunk_width)
        super().__init__(
            {
                "chunks": In(bits(n_chunks)),
                "running": In(1),
                "swap": In(1),
                "clean": Out(1),
                **{name: In(chunk) for name in (*EVENTS, "asks")},
                "answered": Out(1),
                "answer": Out(State(layout)),
                "looks": In(stream.Signature(Look(layout, n_chunks, n_slots))),
                "coming": Out(Access(layout, n_chunks, n_slots)),
                "passing": Out(Access(layout, n_chunks, n_slots)),
                "result": Out(State(layout)),
                **{name: Out(1) for name in ("grew", "finished", "foreign", "extra", "early")},
            }
        )

    def elaborate(self, platform):
        m = Module()
        shape = State(self.layout)
        width = self.chunk_width
        m.submodules.states = states = BlockRAM(shape.size, 2 ** (width + 1))
        bank = Signal()
        swept = Signal(width + 1)
        taken, at, sweep = self._take(m, swept)
        m.d.comb += self.clean.eq(swept[-1] | (swept >= self.chunks))
        with m.If(sweep):
            m.d.sync += swept.eq(swept + 1)
        with m.If(self.swap):
            m.d.sync += [bank.eq(~bank), swept.eq(0)]

        # Address, and which of the three accesses before has the same one
        kinds = (*EVENTS, "asks", "looks", "sweep")
        op = {k: delayed_flag(m, taken[k], 1, name=f"{k}_1") for k in kinds}
        look1 = data.View(at.shape(), delayed(m, at, 1, name="at"))
        addr = Signal(width + 1, reset_less=True)
        m.d.sync += addr.eq(Cat(at.chunk, bank ^ sweep))
        m.d.comb += states.read_addr.eq(addr)
        before = [delayed(m, addr, k, name=f"addr_{k}_ago") for k in (1, 2, 3)]
        same = [delayed(m, addr == other, 1, name=f"same{k}") for k, other in enumerate(before)]
        newest = delayed(m, same[0], 1, name="newest")
        newer = delayed(m, same[1] | same[2], 1, name="newer")
        event = op["added"] | op["finals"] | op["released"]
        outside = Signal()
        beyond, nowhere = signals("beyond nowhere", reset_less=True)
        m.d.comb += outside.eq(look1.chunk >= self.chunks)
        m.d.sync += [beyond.eq(event & outside), nowhere.eq(op["asks"] & outside)]

        # The state before and after
        op2 = {k: delayed_flag(m, op[k], 1, name=f"{k}_2") for k in kinds}
        op3 = {
            k: delayed_flag(m, op2[k] & ~beyond if k in EVENTS else op2[k], 1, name=f"{k}_3")
            for k in kinds
        }
        ago, recent = signals("ago recent", shape, reset_less=True)
        # What was cleared is not asked for before its bank is in use, 3 cycles later at least
        cleared = delayed_flag(m, op3["sweep"], 1, name="cleared")
        kept = Signal(shape)
        m.d.comb += kept.eq(Mux(cleared, 0, self.result.as_value()))
        m.d.sync += [ago.eq(kept), recent.eq(Mux(same[1], self.result, ago))]
        older = Mux(newer, recent, states.read_data)
        state = data.View(shape, Mux(newest, self.result, older))
        add, finish, leave = (op3[k] for k in EVENTS)
        grows = add & ~state.added.all()
        m.d.sync += [
            self.result.added.eq(  # one LUT a bit, no carry chain
                Cat(bit ^ (grows & state.added[:k].all()) for k, bit in enumerate(state.added))
            ),
            self.result.released.eq(state.released | leave),
            self.result.final.eq(state.final | finish),
            self.finished.eq(finish & ~state.final),
            self.foreign.eq(delayed_flag(m, beyond, 1, name="beyond")),
        ]
        old, added, finished = (
            delayed(m, value, 1, name=name)
            for name, value in (("old", state), ("add_4", add), ("finish_4", finish))
        )
        old = data.View(shape, old)
        # Not a register of `grows`: that would be three levels of logic behind the memory
        m.d.comb += self.grew.eq(added & ~old.added.all())
        m.d.sync += self.extra.eq(
            (added & (old.added.all() | old.released)) | (finished & old.final)
        )
        m.d.comb += [
            self.coming.look.eq(op2["looks"]),
            self.coming.add.eq(op2["added"]),
            self.coming.finish.eq(op2["finals"]),
            self.coming.at.eq(delayed(m, look1, 1, name="at_coming")),
            self.passing.look.eq(op3["looks"]),
            self.passing.add.eq(add),
            self.passing.finish.eq(finish),
            self.passing.at.eq(delayed(m, self.coming.at, 1, name="at_passing")),
            states.write_en.eq(delayed_flag(m, Cat(op3.values()).any(), 1, name="write")),
            states.write_addr.eq(delayed(m, before[1], 1, name="write_addr")),
            states.write_data.eq(kept),
            self.answered.eq(delayed_flag(m, op3["asks"], 1, name="asked")),
            # of no chunk nothing is known, whatever was not cleared
            self.answer.eq(Mux(delayed(m, nowhere, 2, name="nowhere"), 0, self.result)),
        ]
        return m

    def _take(self, m, swept):
        """Choose an access: ({kind: taken}, its place as a Look, whether it clears a word)."""
        at = Signal(self.looks.p.shape())
        free, taken, early = 1, {}, 0
        ports = {"added": self.added, "finals": self.finals, "released": self.released,
                 "asks": self.asks, "looks": self.looks}  # fmt: skip
        for name, port in ports.items():
            take = Signal(name=f"take_{name}")
            m.d.comb += [port.ready.eq(free), take.eq(port.valid & free)]
            taken[name] = take
            if name in EVENTS:
                taken[name] = take & self.running
                early = early | (take & ~self.running)
            free = free & ~port.valid
        added, finals, released, asks, looks = ports.values()
        chunk = Mux(
            added.valid | finals.valid,
            Mux(added.valid, added.p, finals.p),
            Mux(
                released.valid | asks.valid,
                Mux(released.valid, released.p, asks.p),
                Mux(looks.valid, looks.p.chunk, swept[:-1]),
            ),
        )
        sweep = Signal()
        m.d.comb += [sweep.eq(free & ~self.clean), at.eq(self.looks.p), at.chunk.eq(chunk)]
        m.d.sync += self.early.eq(early)
        return taken | {"sweep": sweep}, at, sweep
