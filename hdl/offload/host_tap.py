"""Which frames of the host are for its card: by their destination, and of ARP what it asks for.

Golden model: `gradnic.models.offload.host_tap`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import ETHERNET, IPV4
from gradnic.interface.neighbor import (
    ARP,
    ARP_REQUEST,
    BROADCAST,
    ECHO_REQUEST,
    ETHERTYPE_ARP,
    HEAD_BYTES,
)
from gradnic.interface.params import check_least

from ..frame.head import HeadBits
from ..primitive.names import signals
from ..stream.beats import FrameBeat
from ..stream.fifo import FIFO
from ..stream.slice import Slice


def Taken(meta_width: int):
    """The side band of a frame that has ended in the card."""
    return data.StructLayout({"meta": meta_width})


DEPTH = 8  # beats that wait: more than a head that says what a frame is


class ByDestination(wiring.Component):
    """Frames to one MAC address apart from all others: 1 cycle, full rate, in their order.

    Parameters
    ----------
    n_bytes, meta_width : int
        Shape of the beats, see `FrameBeat`; at least 8 bytes.

    Members
    -------
    mac : In(48)
    i, others, mine : In, Out, Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
        Outputs come from registers.
    """

    def __init__(self, n_bytes: int, *, meta_width: int = 0) -> None:
        check_least("n_bytes", n_bytes, 8)
        self.shape = FrameBeat(n_bytes, meta_width=meta_width)
        frames = stream.Signature(self.shape)
        super().__init__({"mac": In(48), "i": In(frames), "others": Out(frames),
                          "mine": Out(frames)})  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.other_slice = others = Slice(self.shape)
        m.submodules.my_slice = mine = Slice(self.shape)
        wiring.connect(m, others.o, wiring.flipped(self.others))
        wiring.connect(m, mine.o, wiring.flipped(self.mine))
        inside, was_mine, is_mine = signals("inside was_mine is_mine")
        destination = HeadBits(self.i.p.data).field(ETHERNET.destination)
        # the destination is in the first beat, and so are 6 bytes of it
        first = (destination == self.mac) & self.i.p.keep[ETHERNET.destination.stop - 1]
        m.d.comb += [
            is_mine.eq(Mux(inside, was_mine, first)),
            others.i.p.eq(self.i.p),
            mine.i.p.eq(self.i.p),
            others.i.valid.eq(self.i.valid & ~is_mine),
            mine.i.valid.eq(self.i.valid & is_mine),
            self.i.ready.eq(Mux(is_mine, mine.i.ready, others.i.ready)),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [inside.eq(~self.i.p.last), was_mine.eq(is_mine)]
        return m


class HostTap(wiring.Component):
    """Frames to the host address, and requests of ARP and ICMP echo for its IPv4 address, apart
    from all others: full rate, in their order, 2 cycles.

    A frame to the host address waits until its byte `HEAD_BYTES` is there, or its end; so does a
    broadcast ARP frame.

    Parameters
    ----------
    n_bytes, meta_width : int
        Shape of the beats, see `FrameBeat`; 16, 32 or 64 bytes.
    tells : bool
        With `taken`.

    Members
    -------
    mac, ip : In(48), In(32)
        The host address, and the IPv4 address that the card has for its host.
    i, others : In, Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
    port, requests : Out(stream.Signature(FrameBeat(n_bytes)))
        To the host address; requests that are to be answered. Outputs come from registers.
    taken : Out(stream.Signature(Taken(meta_width)))
        A word for each of those; they wait for it to be taken.
    """

    def __init__(self, n_bytes: int, *, meta_width: int = 0, tells: bool = False) -> None:
        if n_bytes not in (16, 32, 64):
            raise ValueError(f"n_bytes must be 16, 32 or 64, not {n_bytes!r}")
        self.n_bytes, self.tells = n_bytes, tells
        self.shape = FrameBeat(n_bytes, meta_width=meta_width)
        frames = stream.Signature(self.shape)
        mine = stream.Signature(FrameBeat(n_bytes))
        super().__init__(
            {
                "mac": In(48),
                "ip": In(32),
                "i": In(frames),
                "others": Out(frames),
                "port": Out(mine),
                "requests": Out(mine),
                **({"taken": Out(stream.Signature(Taken(meta_width)))} if tells else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        way = data.StructLayout({"mine": 1, "request": 1})
        m.submodules.queue = queue = FIFO(self.shape, DEPTH, registered=False)
        m.submodules.ways = ways = FIFO(way, DEPTH, registered=False, never_full=True)
        m.submodules.other_slice = others = Slice(self.shape)
        m.submodules.port_slice = port = Slice(FrameBeat(self.n_bytes))
        m.submodules.request_slice = requests = Slice(FrameBeat(self.n_bytes))
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        for part, o in ((others, self.others), (port, self.port), (requests, self.requests)):
            wiring.connect(m, part.o, wiring.flipped(o))
        self._decide(m, ways.i)
        here = queue.o.valid & ways.o.valid
        way = ways.o.p
        goes = Signal()
        room = Mux(way.request, requests.i.ready, Mux(way.mine, port.i.ready, others.i.ready))
        if self.tells:
            ends = way.mine & queue.o.p.last
            m.d.comb += [
                self.taken.valid.eq(here & ends & room),
                self.taken.p.meta.eq(queue.o.p.meta),
            ]
            has_room = ~ends | self.taken.ready
            here, room = here & has_room, room & has_room
        m.d.comb += [
            others.i.valid.eq(here & ~way.mine),
            others.i.p.eq(queue.o.p),
            port.i.valid.eq(here & way.mine & ~way.request),
            requests.i.valid.eq(here & way.request),
            goes.eq(room),
            queue.o.ready.eq(ways.o.valid & goes),
            ways.o.ready.eq(queue.o.valid & goes & queue.o.p.last),
        ]
        for part in (port, requests):
            m.d.comb += [part.i.p[name].eq(queue.o.p[name]) for name in part.i.p.shape().members]
        return m

    def _decide(self, m, ways):
        """One way for each frame, as soon as its beats so far say it."""
        n, beat = self.n_bytes, self.i.p
        last_beat, last_byte = divmod(HEAD_BYTES - 1, n)
        index = Signal(range(last_beat + 1))
        decided = Signal()
        take = Signal()
        first = index == 0
        wanted = {
            "mine": {ETHERNET.destination: self.mac},
            "is_all": {ETHERNET.destination: BROADCAST, ETHERNET.ethertype: ETHERTYPE_ARP},
            "arp": ARP_REQUEST | {ARP.target_ip: self.ip},
            "echo": ECHO_REQUEST | {IPV4.destination: self.ip},
        }
        found = {name: self._matches(m, name, index, take, wanted[name]) for name in wanted}
        complete = (index == last_beat) & (beat.keep[last_byte] | ~beat.last)
        # the destination is in the first beat, and so are all 6 bytes of it
        whole = Mux(first, beat.keep[ETHERNET.destination.stop - 1], 1)
        mine = found["mine"] & whole
        request = complete & ((found["arp"] & (mine | found["is_all"])) | (found["echo"] & mine))
        asks = mine | (found["is_all"] & whole)
        m.d.comb += [
            take.eq(self.i.valid & self.i.ready),
            ways.valid.eq(take & ~decided & (~asks | beat.last | (index == last_beat))),
            ways.p.mine.eq(mine | request),
            ways.p.request.eq(request),
        ]
        with m.If(take):
            m.d.sync += decided.eq(~beat.last & (decided | ways.valid))
            with m.If(beat.last):
                m.d.sync += index.eq(0)
            with m.Elif(index != last_beat):
                m.d.sync += index.eq(index + 1)

    def _matches(self, m, name, index, take, wanted):
        """Whether all fields that came so far are as `wanted`."""
        so_far, now, n = Signal(name=f"{name}_so_far"), Signal(name=name), self.n_bytes
        by_beat = {}
        for field, value in wanted.items():
            value, low = value if isinstance(value, Value) else Const(value, field.width), 0
            for start, stop in field.slices:
                at, place = divmod(start, 8 * n)
                piece = self.i.p.data[place : place + stop - start]
                by_beat.setdefault(at, []).append(piece == value[low : low + stop - start])
                low += stop - start
        here = Signal(name=f"{name}_here")
        m.d.comb += here.eq(1)
        for at, flags in by_beat.items():
            with m.If(index == at):
                m.d.comb += here.eq(Cat(flags).all())
        m.d.comb += now.eq(here & (so_far | (index == 0)))
        with m.If(take):
            m.d.sync += so_far.eq(now)
        return now
