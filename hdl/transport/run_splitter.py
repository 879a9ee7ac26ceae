"""Cuts the messages of a schedule into runs of packets, which are sent and repaired as one.

Golden model: `gradnic.models.transport.run_splitter`.
"""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.names import signals
from ..primitive.same import same
from ..primitive.target import one_hot
from .packet_walk import Place
from .records import CHUNK_WIDTH, N_NEIGHBORS, NUMBER_WIDTH, OFFSET_WIDTH, RUN, Round

Run = data.StructLayout(
    {
        "ph": 1,
        "terminal": 1,
        "flow": 13,
        "neighbor": ceil_log2(N_NEIGHBORS),
        "wait": 8,
        "place": Place,
        "n_less_1": ceil_log2(RUN),
    }
)
"""Consecutive packets of one chunk to one neighbor."""

CUT_CYCLES = 3  # behind the first one of a place, until its run is known


class RunSplitter(wiring.Component):
    """Cuts messages into runs: 5 cycles a run, after 2 per message, one more for each chunk of
    a reduce, and one for each bit of its first chunk's number or of the number of its chunks.

    A message to several peers becomes runs to each, one peer after the other; a terminal one
    becomes runs to nobody.

    Parameters
    ----------
    message, n_peers : see `Sender`
    longest : int
        Packets of a run, at most; 1 to `RUN`.

    Members
    -------
    round : In(Round)
    peers : In(ArrayLayout(4, n_peers))
        Neighbor that each peer index of a row means.
    messages : In(stream.Signature(message))
        As of `gradnic.hdl.schedule.scheduler.Scheduler`.
    runs : Out(stream.Signature(Run))
    released : Out(stream.Signature(CHUNK_WIDTH))
        Chunks of reduce messages, once each.
    busy : Out(1)
        A message was taken and not all of its runs.
    """

    def __init__(self, message: ShapeLike, n_peers: int, *, longest: int = RUN) -> None:
        if not 1 <= longest <= RUN:
            raise ValueError(f"longest must be 1 to {RUN}, not {longest!r}")
        self.message, self.longest = message, longest
        neighbor = ceil_log2(N_NEIGHBORS)
        super().__init__(
            {
                "round": In(Round),
                "peers": In(data.ArrayLayout(neighbor, n_peers)),
                "messages": In(stream.Signature(message)),
                "runs": Out(stream.Signature(Run)),
                "released": Out(stream.Signature(CHUNK_WIDTH)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cut = self.round.geometry
        message = Signal(self.message, reset_less=True)
        n_sends = len(message.sends)
        to_do = Signal(n_sends)  # sends without runs yet
        first, place = signals("first place", Place, reset_less=True)
        n_packets = Signal(NUMBER_WIDTH, reset_less=True)
        left = Signal(NUMBER_WIDTH)
        rest = Signal(CHUNK_WIDTH, reset_less=True)  # bits of the chunk number not used yet
        count = Signal(CHUNK_WIDTH, reset_less=True)
        unit = Signal(OFFSET_WIDTH, reset_less=True)  # 2^k chunks, as offset and as packets
        packets = Signal(NUMBER_WIDTH, reset_less=True)
        chunk = Signal(CHUNK_WIDTH, reset_less=True)
        run = Signal(Run, reset_less=True)
        # settled long before a run is offered: peers stand far away
        peer = Signal.like(message.sends[0].peer, reset_less=True)
        asked = Signal.like(peer, reset_less=True)
        neighbor = Signal.like(run.neighbor, reset_less=True)
        stood = Signal(range(CUT_CYCLES))  # cycles that the place has not changed
        m.d.comb += [self.runs.p.eq(run), self.released.p.eq(chunk)]
        n_taken, following = self._cut(m, cut, place)
        final = Signal(CHUNK_WIDTH, reset_less=True)  # the last chunk of the message
        ends_message = Signal()  # it is the tensor's last
        left_chunks = Signal(CHUNK_WIDTH, reset_less=True)
        leaves_last = Signal(reset_less=True)
        m.d.sync += [
            ends_message.eq(final == cut.last_chunk),
            asked.eq(peer),
            neighbor.eq(self.peers[asked]),
            run.neighbor.eq(neighbor),
        ]
        w = SimpleNamespace(
            message=message, to_do=to_do, first=first, place=place, n_packets=n_packets,
            left=left, rest=rest, count=count, unit=unit, packets=packets, chunk=chunk, run=run,
            peer=peer, stood=stood, n_taken=n_taken, following=following, final=final,
            ends_message=ends_message, left_chunks=left_chunks, leaves_last=leaves_last,
        )  # fmt: skip
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            self._locate(m, cut, w)
            self._send(m, w)
        one_hot(fsm)
        return m

    def _locate(self, m, cut, w):
        """The next message: where its chunks begin, and that each of them is released."""
        with m.State("IDLE"):
            m.d.comb += self.messages.ready.eq(1)
            new = self.messages.p
            m.d.sync += [
                w.message.eq(new),
                w.to_do.eq(Cat(send.valid for send in new.sends) | new.terminal),
                w.rest.eq(new.first),
                w.count.eq(new.count + 1),
                w.unit.eq(cut.chunk),
                w.packets.eq(cut.per_chunk),
                w.first.eq(0),
                w.first.chunk.eq(new.first),
                w.n_packets.eq(0),
                w.chunk.eq(new.first),
                w.left_chunks.eq(new.count),
                w.final.eq(new.first + new.count),
                w.leaves_last.eq(new.count == 0),
            ]
            with m.If(self.messages.valid):
                m.next = "LOCATE"
        with m.State("LOCATE"):  # products with the chunk number and the count, bit by bit
            m.d.sync += [
                w.rest.eq(w.rest >> 1),
                w.count.eq(w.count >> 1),
                w.unit.eq(w.unit << 1),
                w.packets.eq(w.packets << 1),
            ]
            with m.If(w.rest[0]):
                m.d.sync += [
                    w.first.start.eq(w.first.start + w.unit),
                    w.first.offset.eq(w.first.offset + w.unit),
                    w.first.number.eq(w.first.number + w.packets),
                ]
            with m.If(w.count[0]):
                m.d.sync += w.n_packets.eq(w.n_packets + w.packets)
            with m.If(~(w.rest[1:] | w.count[1:]).any()):
                m.next = "LEAVE"
        with m.State("LEAVE"):
            m.d.comb += self.released.valid.eq(~w.message.gather)
            with m.If(self.released.ready | w.message.gather):
                m.d.sync += [
                    w.chunk.eq(w.chunk + 1),
                    w.left_chunks.eq(w.left_chunks - 1),
                    w.leaves_last.eq(w.left_chunks == 1),
                ]
                with m.If(w.message.gather | w.leaves_last):
                    with m.If(w.ends_message):
                        m.d.sync += w.n_packets.eq(
                            w.n_packets - (cut.per_chunk - cut.last_per_chunk)[:NUMBER_WIDTH]
                        )
                    m.next = "PEER"

    def _send(self, m, w):
        """Runs of the message, to one peer after the other."""
        with m.State("PEER"):
            m.d.sync += [w.place.eq(w.first), w.left.eq(w.n_packets)]
            m.d.sync += w.peer.eq(w.message.sends[0].peer)
            for k in reversed(range(len(w.message.sends))):
                with m.If(w.to_do[k]):
                    m.d.sync += w.peer.eq(w.message.sends[k].peer)
            m.d.sync += [
                w.to_do.eq(w.to_do & (w.to_do - 1)),
                w.run.ph.eq(w.message.gather),
                *same(w.run, w.message, "terminal flow wait"),
            ]
            m.next = "IDLE"
            with m.If(w.to_do.any()):
                m.next = "START"
        with m.State("START"):
            m.d.sync += [w.run.place.eq(w.place), w.stood.eq(0)]
            m.next = "CUT"
        with m.State("CUT"):
            m.d.sync += w.stood.eq(w.stood + 1)
            with m.If(w.stood == CUT_CYCLES - 1):
                m.d.sync += [
                    w.run.n_less_1.eq(w.n_taken - 1),
                    w.place.eq(w.following),
                    w.left.eq(w.left - w.n_taken),
                ]
                m.next = "OFFER"
        with m.State("OFFER"):
            m.d.comb += self.runs.valid.eq(1)
            with m.If(self.runs.ready):
                m.next = "START"
                with m.If(w.left == 0):
                    m.next = "PEER"

    def _cut(self, m, cut, place):
        """(Packets of the run that begins at `place`, and the place behind them.) Right once that
        has stood for `CUT_CYCLES`.
        """
        n_here, n_rest = signals("n_here n_rest", NUMBER_WIDTH, reset_less=True)
        whole = Signal(reset_less=True)  # more of the chunk is behind the run
        n_taken = Signal(NUMBER_WIDTH, reset_less=True)
        after = Signal(Place)
        m.d.sync += [
            n_here.eq(Mux(place.chunk == cut.last_chunk, cut.last_per_chunk, cut.per_chunk)),
            n_rest.eq(n_here - place.within),
            whole.eq(n_rest > self.longest),
            n_taken.eq(Mux(n_rest > self.longest, self.longest, n_rest)),
        ]
        m.d.comb += [
            after.number.eq(place.number + n_taken),
            after.chunk.eq(Mux(whole, place.chunk, place.chunk + 1)),
        ]
        with m.If(whole):
            m.d.comb += [
                after.within.eq(place.within + self.longest),
                after.offset.eq(place.offset + cut.packet * self.longest),
                after.start.eq(place.start),
            ]
        with m.Else():
            m.d.comb += [
                after.within.eq(0),
                after.offset.eq(place.start + cut.chunk),
                after.start.eq(place.start + cut.chunk),
            ]
        return n_taken, after
