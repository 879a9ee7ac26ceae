"""Resets what the contexts of a card share: while all is quiet, and when it is stuck.

Part of `gradnic.hdl.offload.job_core`; what the host sees of it is in
`gradnic.models.offload.job_card`.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..axi.keeper import ReadKeeper, WriteKeeper
from ..frame.keeper import AGE, EntryKeeper, ExitKeeper
from ..primitive.names import signals

CALM = 1024  # cycles in which nothing moves and no job is active
ENTRIES = {"mac_rx": "host_rx", "host_tx": "mac_tx"}  # and where a frame that enters may leave


class Renewal(wiring.Component):
    """Decides when; a reset takes a cycle, or a little more until memory and ports take what is
    being offered.

    A register that changes by itself may leave a queue with a wrong fill. While no job is active
    and nothing has moved at any port for `CALM` cycles, the shared parts are reset, and again after
    as many. If a job cannot end, or a frame gets stuck, for half to three quarters of a watchdog,
    and neither memory nor the other end of a port is what is waited for, they are reset at once:
    all active jobs end as those whose memory failed, frames inside are lost, and what memory and
    ports were promised is kept by keepers.

    Members
    -------
    watchdog : In(32)
        0: only while all is quiet.
    busy, wedged, stalls, waits, still : In(1)
        Something moves, or may; a frame is stuck; a job that ends is; memory is to act; nothing is
        offered that is not taken.
    tick : Out(1)
        Every quarter of a watchdog.
    closed, anew, soon : Out(1)
        Nothing new is offered; the shared parts are reset; they are in the next cycle.
    forced : Out(1)
        With ``anew``: it was not quiet.
    """

    def __init__(self) -> None:
        names = ("busy", "wedged", "stalls", "waits", "still")
        outs = ("tick", "closed", "anew", "soon", "forced")
        super().__init__(
            {"watchdog": In(32)} | dict.fromkeys(names, In(1)) | dict.fromkeys(outs, Out(1))
        )

    def elaborate(self, platform):
        m = Module()
        clock = Signal(32)
        calm = Signal(range(CALM + 1))
        age = Signal(range(AGE + 1))
        closing = Signal()
        late, opens, closes = signals("late opens closes")
        stuck, anew = self.wedged | (~closing & late), self.anew
        m.d.comb += [
            self.tick.eq((clock >= self.watchdog >> 2) & (self.watchdog != 0)),
            self.forced.eq(closing & anew),
            self.soon.eq(~anew & ((closing & self.still & ~late) | (calm == CALM))),
            opens.eq(anew | (closing & late)),
            closes.eq(stuck & ~closing & ~opens),
            late.eq(age == AGE),
        ]
        m.d.sync += [
            clock.eq(clock + 1),
            calm.eq(calm + 1),
            anew.eq(self.soon),
            # closing or anew, as a register: `still` waits for what it lets out
            self.closed.eq(((closing | closes) & ~opens) | (~anew & (calm == CALM))),
        ]
        with m.If(self.tick):
            m.d.sync += clock.eq(0)
        with m.If(self.busy | anew | calm[-1]):
            m.d.sync += calm.eq(0)
        # of a job that cannot end; then of what is offered to those who do not take it
        with m.If(anew | ~(closing | self.stalls)):
            m.d.sync += age.eq(0)
        with m.Elif(self.tick & ~self.waits & ~late):
            m.d.sync += age.eq(age + 1)
        with m.If(opens):
            m.d.sync += [closing.eq(0), age.eq(0)]
        with m.Elif(closes):
            m.d.sync += [closing.eq(1), age.eq(0)]
        return m


class Keepers:
    """All keepers of a card, and `renewal`, which they serve. strays : flags of shared parts, one's
    addresses changed by themselves: jobs that are active fail at once, and it is reset.
    """

    def __init__(self, renewal: Any) -> None:
        self.renewal, self.memories, self.frames, self.strays = renewal, [], [], []
        self.resets = []

    def reset(self):
        """`anew` for one part that is shared: a register of its own, as there are many loads."""
        copy = Signal(name=f"anew{len(self.resets)}", attrs={"keep_register": 1})
        self.resets.append(copy)
        return copy

    def keep_memory(self, m, name, share, port):
        """Join a memory port of the card to the `share` of those who use it."""
        user = share.port
        kind = ReadKeeper if name.endswith("read") else WriteKeeper
        m.submodules[f"{name}_keeper"] = keeper = kind(user.signature.n_bytes,
                                                       user.signature.address_width)  # fmt: skip
        wiring.connect(m, user, keeper.user)
        wiring.connect(m, keeper.port, wiring.flipped(port))
        if kind is WriteKeeper:
            m.d.comb += share.halts.eq(keeper.owes)
        self.memories.append(keeper)

    def keep_frames(self, m, name, inner, outer, n_bytes, meta_width):
        """Join one stream of one port."""
        enters = name.rstrip("0123456789") in ENTRIES
        kind = EntryKeeper if enters else ExitKeeper
        m.submodules[f"{name}_keeper"] = keeper = kind(n_bytes, meta_width=meta_width)
        ends = (keeper.i, keeper.o) if enters else (keeper.o, keeper.i)
        wiring.connect(m, wiring.flipped(outer), ends[0])
        wiring.connect(m, inner, ends[1])
        self.frames.append((name, keeper))

    def watch(self, m, runners):
        """Tell it of all keepers and contexts, and them of it."""
        renewal, frames = self.renewal, dict(self.frames)
        stalled = {name: one.o.valid & ~one.o.ready for name, one in frames.items()}
        for name, one in frames.items():
            kind = name.rstrip("0123456789")
            port = name.removeprefix(kind)
            if kind in ENTRIES:
                other = ENTRIES[kind] + port
                m.d.comb += [
                    one.excused.eq(stalled[other]),
                    frames[other].excused.eq(one.starves),
                ]
            m.d.comb += one.tick.eq(renewal.tick)
        strays = Signal()  # a cycle late: the flags are long ways; not beyond the reset
        found = Cat(self.strays, *(copy ^ renewal.anew for copy in self.resets)).any()
        m.d.sync += strays.eq(found & ~renewal.anew)
        m.d.sync += [copy.eq(renewal.soon) for copy in self.resets]
        exits = [one for _, one in self.frames if isinstance(one, ExitKeeper)]
        for one in (*frames.values(), *self.memories):
            m.d.comb += one.anew.eq(renewal.anew)
        for one in (*exits, *self.memories):
            m.d.comb += one.closed.eq(renewal.closed)
        m.d.comb += [
            renewal.busy.eq(
                Cat(one.busy for one in frames.values()).any()
                | Cat(one.open for one in self.memories).any()
                | ~Cat(runner.free for runner in runners).all()
            ),
            renewal.wedged.eq(strays | Cat(one.wedged for one in frames.values()).any()),
            renewal.stalls.eq(Cat(runner.stalls for runner in runners).any()),
            renewal.waits.eq(Cat(one.waits for one in self.memories).any()),
            renewal.still.eq(Cat(one.still for one in (*exits, *self.memories)).all()),
            *(runner.renewed.eq(renewal.anew | strays) for runner in runners),
        ]
