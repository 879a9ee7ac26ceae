"""Sends what the scheduler says, until the other side has it: packets, PROBE, what BITMAPs ask for.

Sources: DLCP (arXiv 2008.08445): send all, probe, selective resend, STOP. Ours: runs of at most 64
packets, each with a mask of its own, and packets that are made anew from memory when sent again.
"""

from itertools import pairwise
from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.offload import Subtype

from ..frame.round_robin import first_of, next_of
from ..primitive.block_ram import BlockRAM
from ..primitive.names import signals
from ..primitive.same import same
from ..primitive.target import one_hot
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from . import sender_states as states
from .pace import Echo
from .packet_walk import LATENCY, PacketWalk, Place
from .records import CHUNK_WIDTH, RUN, Control, Packet, Round, Weighed
from .run_splitter import Run, RunSplitter
from .sender_states import State

N_RUNS = 16  # under way at a time
RETRY = 3  # after NOT_READY: an eighth of t_probe
RENEW = 30  # log2 of the cycles after which answers to PROBEs of before are believed no more


class Sender(wiring.Component):
    """Keeps each run until its STOP: sends what its mask says, then a PROBE, again every t_probe.

    A BITMAP that answers a PROBE behind the last packet of a run makes its zeros the new mask; of
    what is sent again, important packets go first. The first PROBE of each 2**30 cycles is as one
    behind the last packet: stamps have 32 bits. At most `N_RUNS` runs are under way; further
    messages wait. Runs take turns, a whole mask each; a mask takes 256 cycles at least. STOP and
    BITMAP of runs that are not known change nothing: the next PROBE asks again, which leaves after
    an eighth of t_probe where the last one was answered with NOT_READY.

    Parameters
    ----------
    message : shape of a message, of `gradnic.hdl.schedule.scheduler.Scheduler`
    n_peers, n_packets : int
        Peer indices of a row; packets of the largest tensor.
    longest : int
        Packets of a run, at most, 1 to 64: a port waits while a run to another one is sent.

    Members
    -------
    round, peers, messages, released : see `RunSplitter`
    packets : Out(stream.Signature(Packet))
    weighed : In(Weighed)
        What became of each packet, before its PROBE is answered.
    controls : In(stream.Signature(Control))
        Each takes up to 5 * `N_RUNS` + 2 cycles, and up to 4 more where a run that is compared
        is just being walked through.
    echoed, echo : Out(1), Out(Echo)
        A pulse for each STOP or BITMAP, and what it tells of the way.
    drained : Out(1)
        No run is under way; falls two cycles after a message was taken.
    sent, retransmitted, probes : Out(1)
        One cycle per packet: of all, sent again; per PROBE.
    """

    def __init__(self, message: ShapeLike, n_peers: int, *, n_packets: int,
                 longest: int = RUN) -> None:  # fmt: skip
        self.message, self.n_peers, self.n_packets = message, n_peers, n_packets
        self.splitter = RunSplitter(message, n_peers, longest=longest)
        super().__init__(
            {
                "round": In(Round),
                "peers": In(self.splitter.peers.shape()),
                "messages": In(stream.Signature(message)),
                "released": Out(stream.Signature(CHUNK_WIDTH)),
                "packets": Out(stream.Signature(Packet)),
                "weighed": In(Weighed),
                "controls": In(stream.Signature(Control)),
                "echoed": Out(1),
                "echo": Out(Echo),
                "drained": Out(1),
                "sent": Out(1),
                "retransmitted": Out(1),
                "probes": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.splitter = splitter = self.splitter
        # the scheduler stands far away: nothing goes there and back in a cycle
        m.submodules.near = near = Slice(self.message, half_rate=True)
        wiring.connect(m, wiring.flipped(self.messages), near.i)
        wiring.connect(m, near.o, splitter.messages)
        wiring.connect(m, splitter.released, wiring.flipped(self.released))
        m.d.comb += [splitter.round.eq(self.round), splitter.peers.eq(self.peers)]
        self.now = Signal(32)
        era = Signal()
        m.d.sync += [self.now.eq(self.now + 1), era.eq(self.now[RENEW])]
        self.states = [Signal(State, name=f"state{k}") for k in range(N_RUNS)]
        self.resent, self.refused, self.aged = signals("resent refused aged", N_RUNS)
        m.d.sync += self.aged.eq(self.aged | (self.now[RENEW] ^ era).replicate(N_RUNS))
        self.in_use = Cat(state != State.FREE for state in self.states)
        self.entry = Signal(range(N_RUNS))  # the first free place
        m.d.sync += self.drained.eq(~(self.in_use.any() | splitter.busy | near.o.valid))
        self._memories(m)
        at = self._walk(m)
        self._enter(m, splitter.runs, self._answer(m, at))
        return m

    def _memories(self, m):
        """Runs, masks, when each run's last PROBE left, and the first that may be answered."""
        m.submodules.run_memory = runs = memory.Memory(shape=Run, depth=N_RUNS, init=[])
        m.submodules.mask_memory = masks = memory.Memory(shape=RUN, depth=N_RUNS, init=[])
        m.submodules.stamp_memory = stamps = memory.Memory(shape=32, depth=N_RUNS, init=[])
        m.submodules.asked_memory = asked = memory.Memory(shape=32, depth=N_RUNS, init=[])
        self.run_write = runs.write_port()
        self.mask_write = masks.write_port()
        self.stamp_write = stamps.write_port()
        self.asked_write = asked.write_port()
        self.run_reads = []
        for _ in range(2):
            run_read = runs.read_port(domain="comb")
            self.run_reads.append(run_read)
        self.stamp_read = stamps.read_port(domain="comb")
        self.asked_read = asked.read_port(domain="comb")
        self.mask_read = masks.read_port(domain="comb")

    def _enter(self, m, runs, busy):
        """A new run takes the first free place, unless an answer may write a mask."""
        free, first = ~self.in_use, self.entry
        place = Signal(range(N_RUNS))  # `first`, a cycle later
        spot = Signal(N_RUNS)  # the same, one-hot
        any_free, enters, take = signals("any_free enters take")
        taken = Signal(2)
        m.d.sync += [
            first.eq(first_of(free)),
            any_free.eq(free.any()),
            place.eq(first),
            spot.eq(Cat(first == k for k in range(N_RUNS))),
            enters.eq(runs.valid & any_free & ~(take | taken.any())),
            taken.eq(Cat(take, taken)),
        ]
        m.d.comb += [
            take.eq(enters & ~busy),
            runs.ready.eq(take),
            self.run_write.en.eq(take),
            self.run_write.addr.eq(place),
            self.run_write.data.eq(runs.p),
        ]
        with m.If(take):
            m.d.comb += [
                self.mask_write.en.eq(1),
                self.mask_write.addr.eq(place),
                self.mask_write.data.eq(~0),  # the walk ends with the run
            ]
            m.d.sync += self.resent.bit_select(place, 1).eq(0)
            for k, state in enumerate(self.states):
                with m.If(spot[k]):
                    m.d.sync += state.eq(State.SENDING)

    def _walk(self, m):
        """Looks at a run in 4 cycles, and sends what is due: the number of the run looked at. If
        there is no other run, it looks where one would enter, and beside that: no look lasts.
        """
        m.submodules.walk = walk = PacketWalk()
        m.submodules.queue = queue = FIFO(Packet, 4, half_rate=True)
        wiring.connect(m, queue.o, wiring.flipped(self.packets))
        at = Signal(range(N_RUNS))
        after = next_of(m, self.in_use, at, Mux(at == self.entry, ~self.entry, self.entry))
        run = Signal(Run, reset_less=True)
        place = Signal(Place, reset_less=True)
        # of a mask that is sent again, this turn takes the important ones, and leaves a rest
        mask, rest = signals("mask rest", RUN, reset_less=True)
        selects, left_some = signals("selects left_some")
        left = Signal(range(RUN), reset_less=True)
        m.submodules.importance = importance = BlockRAM(1, self.n_packets)
        packet = queue.i.p
        state = Signal(State)
        stood = Signal(range(LATENCY + 1))  # cycles that the place has not changed
        age, stamp = signals("age stamp", 32, reset_less=True)
        asks_anew = Signal(reset_less=True)  # packets were sent since the run's last PROBE
        reads, stamps, masks = self.run_reads[0], self.stamp_read, self.mask_read
        m.d.comb += [
            *(port.addr.eq(at) for port in (reads, stamps, masks)),
            walk.geometry.eq(self.round.geometry),
            walk.place.eq(place),
            importance.write_en.eq(self.weighed.valid),
            importance.write_addr.eq(self.weighed.number),
            importance.write_data.eq(self.weighed.important),
            importance.read_addr.eq(place.number),
            *same(packet, run, "ph terminal flow neighbor wait"),
            *same(packet, place, "chunk number offset"),
            packet.elems.eq(walk.elems),
            packet.retx.eq(self.resent.bit_select(at, 1)),
            packet.last.eq(walk.ends_tensor),
            packet.stamp.eq(self.now),
            *(port.addr.eq(at) for port in (self.stamp_write, self.asked_write)),
            *(port.data.eq(self.now) for port in (self.stamp_write, self.asked_write)),
        ]
        here = Signal(N_RUNS, reset_less=True)  # bit `at`, a cycle late: it stays for four
        m.d.sync += here.eq(Cat(at == k for k in range(N_RUNS)))
        for k, one in enumerate(self.states):
            with m.If(here[k]):
                m.d.sync += state.eq(one)

        # a cycle late: packets are more than that apart
        late, room, hurries, renews = signals("late room hurries renews")
        m.d.sync += [
            room.eq(queue.i.ready),
            stamp.eq(stamps.data),
            age.eq(self.now - stamp),
            hurries.eq((self.refused & here).any()),
            renews.eq((self.aged & here).any()),
            late.eq(age >= Mux(hurries, self.round.t_probe >> RETRY, self.round.t_probe)),
        ]
        m.d.sync += [self.sent.eq(0), self.retransmitted.eq(0), self.probes.eq(0)]
        w = SimpleNamespace(
            at=at, after=after, run=run, place=place, mask=mask, rest=rest, selects=selects,
            left_some=left_some, left=left, packet=packet, state=state, stood=stood, late=late,
            room=room, hurries=hurries, renews=renews, asks_anew=asks_anew, here=here, walk=walk,
            queue=queue, importance=importance,
        )  # fmt: skip
        with m.FSM() as fsm:
            self.looking = ~(fsm.ongoing("SEND") | fsm.ongoing("TURN") | fsm.ongoing("PROBE"))
            states.look(m, self, w)
            states.send(m, self, w)
            states.turn(m, w)
            states.probe(m, self, w)
        one_hot(fsm)
        return at

    def _answer(self, m, at):
        """What an answer does to the run that it is about: 1 while a mask may be written."""
        m.submodules.answers = answers = FIFO(Control, 4)
        wiring.connect(m, wiring.flipped(self.controls), answers.i)
        answer = answers.o.p
        which = Signal(range(N_RUNS))
        run = Signal(Run, reset_less=True)
        asked = Signal(32, reset_less=True)
        end, asked_end = signals("end asked_end", 25)
        body, wanted = signals("body wanted", RUN)
        busy, matches, waiting, same = signals("busy matches waiting same")
        meets, starts, kin, right_kind, hit = signals("meets starts kin right_kind hit")
        # where the walker is, a cycle late: it takes three to see what changes where it has come to
        chosen = Signal(N_RUNS, reset_less=True)
        first, is_stop = run.place.number, answer.subtype == Subtype.STOP
        is_refusal = answer.subtype == Subtype.NOT_READY
        whole = is_stop | is_refusal  # about all of the run
        m.d.comb += [self.run_reads[1].addr.eq(which), self.asked_read.addr.eq(which)]
        for k, state in enumerate(self.states):
            with m.If(chosen[k]):
                # a cycle late, which is safe: only an answer ends the waiting
                m.d.sync += waiting.eq(state == State.WAITING)
        m.d.sync += [
            run.eq(self.run_reads[1].data),
            asked.eq(self.asked_read.data),
            end.eq(first + run.n_less_1 + 1),
            asked_end.eq(answer.seq + answer.elems),
            right_kind.eq(whole | ((answer.subtype == Subtype.BITMAP) & ~(answer.arg - asked)[31])),
            starts.eq(answer.seq == Cat(first[:3] & whole.replicate(3), first[3:])),
            kin.eq((run.ph == answer.ph) & (run.neighbor == answer.neighbor)),
            same.eq(kin & starts & right_kind),
            meets.eq(end == asked_end),
            matches.eq(waiting & same & meets),
            hit.eq(at == which),
            chosen.eq(Cat(which == k for k in range(N_RUNS))),
            body.eq(~answer.body >> first[:3]),
            wanted.eq(body & Cat(run.n_less_1 >= k for k in range(RUN))),
            self.echoed.eq(0),
            self.echo.ce_share.eq(answer.share),
            self.echo.round_trip.eq(self.now - answer.arg),
        ]
        with m.FSM() as fsm:
            with m.State("REST"):
                m.d.sync += which.eq(0)
                with m.If(answers.o.valid):
                    m.d.sync += self.echoed.eq(is_stop | (answer.subtype == Subtype.BITMAP))
                    m.next = "READ"
            for state, after in pairwise(("READ", "ADD", "COMPARE", "MATCH", "ACT")):
                with m.State(state):
                    m.next = after
            with m.State("ACT"):
                # the walker may be about to send this run's PROBE: it moves on in some cycles
                with m.If(~(self.looking & hit)):
                    m.d.sync += which.eq(which + 1)
                    m.next = "READ"
                    with m.If(matches & ~hit):
                        m.d.comb += busy.eq(~whole)
                        for k, one in enumerate(self.states):
                            with m.If(chosen[k] & ~is_refusal):
                                m.d.sync += one.eq(Mux(is_stop, State.FREE, State.SENDING))
                        with m.If(~whole):
                            m.d.sync += self.resent.bit_select(which, 1).eq(1)
                        with m.If(is_refusal):
                            m.d.sync += self.refused.bit_select(which, 1).eq(1)
                    with m.If(matches | (which == N_RUNS - 1)):
                        m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += answers.o.ready.eq(1)
                m.next = "REST"
        one_hot(fsm)
        acts = fsm.ongoing("ACT")
        with m.If(acts):
            m.d.comb += [
                self.mask_write.en.eq(busy),
                self.mask_write.addr.eq(which),
                self.mask_write.data.eq(wanted),
            ]
        return acts
