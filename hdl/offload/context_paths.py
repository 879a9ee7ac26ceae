"""Ways between the ports of a card and its contexts: packets that came, and packets to be sent.

A part of `gradnic.hdl.offload.job_core`; golden model: `gradnic.models.offload.context_paths`.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import Op

from ..primitive.names import signals
from ..primitive.parity import uneven
from ..stream.beats import Beat, UnitBeat
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from ..transport.pace import Echo
from ..transport.records import EPOCH_WIDTH, Arrival, Context, PacketHead, PathMark
from .ages import ages
from .gate import N_HEADS
from .parser import Place

N_PAYLOADS = 16  # whose heads are on their way


def has_payload(head):
    """Whether beats follow a head."""
    return (head.length != 0) & (head.op != Op.CONTROL)


def _index(n):
    return range(max(2, n))


class ArrivalSteer(wiring.Component):
    """Hands each packet to the context that it is of; 2 cycles a head, a beat a cycle, of which the
    first comes a cycle after its head or later.

    A packet of no active round goes to context 0, which answers it. A packet of a round that is
    over by the time that it leaves the gate vanishes, and so does the rest of one whose context is
    reset in its middle.

    Parameters
    ----------
    n_bytes, n : int
        Bytes of a beat; contexts, 1 to 4.

    Members
    -------
    arrivals, place, values : In(stream.Signature(Arrival)), In(Place), In(...)
        What a gate offers; an unsound unit is one beat of ``drop``.
    contexts : In(ArrayLayout(Context, n))
    discard : In(n)
        Nothing goes to this context: it is being reset, as it is for some cycles from each change
        of its epoch on.
    heads, data : Out(...).array(n)
        To each context.
    """

    def __init__(self, n_bytes: int, n: int) -> None:
        self.n = n
        head, beat = stream.Signature(Arrival), stream.Signature(UnitBeat(8 * n_bytes))
        super().__init__(
            {
                "arrivals": In(head),
                "place": In(Place(n)),
                "values": In(beat),
                "contexts": In(data.ArrayLayout(Context, n)),
                "discard": In(n),
                "heads": Out(head).array(n),
                "data": Out(beat).array(n),
            }
        )

    def elaborate(self, platform):
        m = Module()
        way = data.StructLayout({"index": _index(self.n), "epoch": EPOCH_WIDTH, "vanishes": 1})
        m.submodules.ways = ways = FIFO(way, N_HEADS)
        m.submodules.near = near = Slice(
            data.StructLayout({"arrival": Arrival, "way": way}), half_rate=True
        )
        arrival, place = self.arrivals.p, self.place
        epochs = Array(context.epoch for context in self.contexts)
        index = Signal(_index(self.n))
        now = Signal(EPOCH_WIDTH)
        m.d.comb += [
            index.eq(Mux(arrival.ready, place.context, 0)),
            now.eq(epochs[index]),
            near.i.valid.eq(self.arrivals.valid & ways.i.ready),
            self.arrivals.ready.eq(near.i.ready & ways.i.ready),
            near.i.p.arrival.eq(arrival),
            near.i.p.way.index.eq(index),
            near.i.p.way.epoch.eq(now),
            near.i.p.way.vanishes.eq(arrival.ready & (place.epoch != now)),
            ways.i.valid.eq(self.arrivals.valid & self.arrivals.ready & has_payload(arrival.head)),
            ways.i.p.eq(near.i.p.way),
        ]
        at, valid = near.o.p.way.index, near.o.valid
        lost = Signal()
        opens = Array(sink.ready & ~self.discard[k] for k, sink in enumerate(self.heads))
        m.d.comb += [
            lost.eq(near.o.p.way.vanishes | (epochs[at] != near.o.p.way.epoch)),
            near.o.ready.eq(valid & (lost | opens[at])),
        ]
        for k, sink in enumerate(self.heads):
            m.d.comb += [
                sink.p.eq(near.o.p.arrival),
                sink.valid.eq(valid & ~lost & (at == k) & ~self.discard[k]),
            ]
        self._steer(m, ways.o, epochs)
        return m

    def _steer(self, m, ways, epochs):
        """Where values go is settled in a cycle before the first beat: flags steer, and no queue.
        That a context has another epoch is seen a cycle late, when its values are discarded. A flag
        that changed by itself is seen at once, as all of them together are even, and nothing moves
        until a reset, which `Renewal` makes.
        """
        values, way = self.values, ways.p
        to = Signal(self.n)
        to_none, busy = signals("to_none busy")
        epoch = Signal(EPOCH_WIDTH, reset_less=True)
        next_, lost, gone = signals("next_ lost gone")
        opens = Cat(sink.ready for sink in self.data) & ~self.discard
        stands = uneven(m, [to, to_none, busy])
        m.d.comb += [
            lost.eq(way.vanishes | (epochs[way.index] != way.epoch)),
            gone.eq(Cat(to[k] & (one.epoch != epoch) for k, one in enumerate(self.contexts)).any()),
            values.ready.eq((to_none | (to & opens).any()) & ~stands),
            next_.eq((values.valid & values.ready & values.p.last) | ~(busy | stands)),
            ways.ready.eq(next_),
        ]
        with m.If(next_):
            m.d.sync += [
                to.eq(Mux(ways.valid & ~lost, 1 << way.index, 0)),
                to_none.eq(ways.valid & lost),
                busy.eq(ways.valid),
                epoch.eq(way.epoch),
            ]
        with m.Elif(gone):
            m.d.sync += [to.eq(0), to_none.eq(1)]
        for k, sink in enumerate(self.data):
            goes = to[k] & ~(self.discard[k] | stands)
            m.d.comb += [sink.p.eq(values.p), sink.valid.eq(values.valid & goes)]


class PacketPick(wiring.Component):
    """Lets packets of the contexts leave by class, then age; 2 cycles a head, a beat a cycle.

    Parameters
    ----------
    n_bytes, n : int
        Bytes of a beat; contexts, 1 to 4.

    Members
    -------
    sources : In({heads, payload, replies, echoed, echo, path_mark}).array(n)
        Of a `gradnic.hdl.offload.round_engine.RoundEngine` each.
    heads, payload, replies, echoed, echo, path_mark : Out
        As of one. Of echoes and marks that come in one cycle, one is passed on.
    layers : In(ArrayLayout(3, n))
    started : In(n)
        A strobe: this context is the youngest now.
    pause : In(n)
        No new packet of this context leaves.
    sending : Out(n)
        A payload of this context is leaving.
    before : Out(ArrayLayout(n, n))
        Bit j of before[k]: context k goes before context j.
    """

    def __init__(self, n_bytes: int, n: int) -> None:
        self.n = n
        head, beat = stream.Signature(PacketHead), stream.Signature(Beat(8 * n_bytes))
        feedback = {"echoed": Out(1), "echo": Out(Echo), "path_mark": Out(PathMark)}
        one = {"heads": Out(head), "payload": Out(beat), "replies": Out(head)} | feedback
        super().__init__(
            one
            | {
                "sources": In(wiring.Signature(one)).array(n),
                "layers": In(data.ArrayLayout(3, n)),
                "started": In(n),
                "pause": In(n),
                "sending": Out(n),
                "before": Out(data.ArrayLayout(n, n)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n, sources = self.n, self.sources
        m.submodules.owners = owners = FIFO(_index(n), N_PAYLOADS)
        m.submodules.picked = picked = Slice(PacketHead, half_rate=True)
        m.submodules.answers = answers = Slice(PacketHead, half_rate=True)
        wiring.connect(m, picked.o, wiring.flipped(self.heads))
        wiring.connect(m, answers.o, wiring.flipped(self.replies))
        room, wins, talkers = self._pick(m, picked.i, owners.i)
        self._follow(m, owners.o, room, wins, talkers)
        self._reply(m, answers.i)
        for source in reversed(list(sources)):
            with m.If(source.echoed):
                m.d.comb += [self.echoed.eq(1), self.echo.eq(source.echo)]
            with m.If(source.path_mark.valid):
                m.d.comb += self.path_mark.eq(source.path_mark)
        return m

    def _pick(self, m, picked, owners):
        """Whose head is next, and whose beats follow: (there is room for one, whose it is, the same
        if it has beats).
        """
        n, sources = self.n, self.sources
        older = ages(m, self.started)
        offers, first = signals("offers first", n)  # first: none that offers goes before
        before = [[Signal(name=f"before{i}_{j}") for j in range(n)] for i in range(n)]
        layers = self.layers
        m.d.comb += [self.before[k].eq(Cat(before[k])) for k in range(n)]
        m.d.sync += [
            before[i][j].eq(
                (layers[i] < layers[j]) | ((layers[i] == layers[j]) & older[i][j])
            )
            for i in range(n) for j in range(n) if i != j
        ]  # fmt: skip
        m.d.comb += [
            offers.eq(Cat(source.heads.valid for source in sources) & ~self.pause),
            first.eq(
                Cat(
                    offers[i] & ~Cat(offers[j] & before[j][i] for j in range(n) if j != i).any()
                    for i in range(n)
                )
            ),
        ]
        index, any_first = self._encoded(m, first, "index")
        room = picked.ready & owners.ready
        head = Array(source.heads.p.as_value() for source in sources)[index]
        # whose head leaves; the same, if beats follow it
        wins, talkers = signals("wins talkers", n)
        m.d.comb += [
            wins.eq(Cat(first[k] & ~first[:k].any() for k in range(n))),
            talkers.eq(wins & Cat(has_payload(source.heads.p) for source in sources)),
            picked.valid.eq(any_first & owners.ready),
            picked.p.as_value().eq(head),
            owners.valid.eq(room & talkers.any()),
            owners.payload.eq(index),
        ]
        return room, wins, talkers

    def _follow(self, m, owner, room, wins, talkers):
        """Beats of the packets that were picked, in their order."""
        sources = self.sources
        for k, source in enumerate(sources):
            mine = owner.valid & (owner.payload == k)
            m.d.comb += [
                source.heads.ready.eq(room & wins[k]),
                source.payload.ready.eq(mine & self.payload.ready),
            ]
            leaving, came, went = (
                Signal(range(2 * N_PAYLOADS), name=f"leaving{k}"),
                Signal(name=f"came{k}"),
                Signal(name=f"went{k}"),
            )
            m.d.comb += [
                came.eq(room & talkers[k]),
                went.eq(mine & owner.ready),
                self.sending[k].eq(leaving != 0),
            ]
            with m.If(came & ~went):
                m.d.sync += leaving.eq(leaving + 1)
            with m.Elif(went & ~came):
                m.d.sync += leaving.eq(leaving - 1)
        payloads = Array(source.payload.p.as_value() for source in sources)
        m.d.comb += [
            self.payload.p.as_value().eq(payloads[owner.payload]),
            self.payload.valid.eq(
                owner.valid & Array(source.payload.valid for source in sources)[owner.payload]
            ),
            owner.ready.eq(self.payload.valid & self.payload.ready & self.payload.p.last),
        ]

    def _reply(self, m, answers):
        """Answers, which have no beats: the first that is there."""
        sources = self.sources
        talks = Signal(self.n)
        m.d.comb += talks.eq(Cat(source.replies.valid for source in sources))
        which, any_talks = self._encoded(m, talks, "which")
        m.d.comb += [
            answers.valid.eq(any_talks),
            answers.p.as_value().eq(
                Array(source.replies.p.as_value() for source in sources)[which]
            ),
            *(
                source.replies.ready.eq(answers.ready & (which == k))
                for k, source in enumerate(sources)
            ),
        ]

    def _encoded(self, m, bits, name):
        """(Number of the lowest bit that is 1, whether there is one.)."""
        index = Signal(_index(self.n), name=name)
        for k in reversed(range(self.n)):
            with m.If(bits[k]):
                m.d.comb += index.eq(k)
        return index, bits.any()
