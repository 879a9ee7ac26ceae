"""Receiver of a tensor under one loss bound: which packets came, and when enough of them did.

Twin of `gradnic.models.transport.reception.Reception`, one context per (job, tensor, source,
round): the papers' rule, complete at need_bytes, as well as ranges that close at a PROBE. The
offload card's own receiver, for ranges on trees, is `gradnic.hdl.transport.receiver`.
"""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.block_ram import BlockRAM
from ..primitive.multiplier import Multiplier
from ..stream.beats import Beat
from ..stream.delays import delayed_flag
from .reception_range import look_at_range, probe
from .reception_records import (
    BYTES,
    DONE,
    DUPLICATE,
    LATE,
    LENGTH,
    NUMBER,
    OPEN,
    RANGE,
    SHORT,
    STALE,
    TAKEN,
    WORD,
    Answer,
    Arrival,
    Closing,
    Config,
    Lookup,
    Opening,
    Probing,
    State,
    Verdict,
    context_width,
)


class Receptions(wiring.Component):
    """Tracks the packets of `n_contexts` receptions, one operation at a time.

    A packet takes 13 cycles to its verdict, 14 to the next one, or 5 and 6 if it is refused; a
    lookup or a look 4; a PROBE at most 14 to its answer and one for each word of 32 packets in it,
    13 more where packets are missing (not if eager), and 4 for each word that is given up or
    listed; an opening 9 and one for each word. Operations wait for each other, and for their
    results to be taken; packets and all others take turns, and nothing is lost. While nothing is
    asked, one context after the other is checked for its deadline, 7 cycles each. Packet numbers
    of a PROBE or lookup must be below n_packets.

    Parameters
    ----------
    n_contexts : int
        1 to 256.
    n_packets : int
        Of a context: 32 or more, a power of two; n_contexts * n_packets at most 524288.

    Members
    -------
    opens : In(stream.Signature(Opening(n_contexts)))
    packets, verdicts : In, Out(stream)
        `Arrival` and `Verdict`, in order.
    probes, answers, words : In, Out, Out(stream)
        `Probing` and `Answer`. An answer that is no STOP is followed by the BITMAP of form 0: n
        bits from packet `first`, a multiple of 32, in words of 32.
    closings : Out(stream.Signature(Closing(n_contexts)))
    lookups, present : In, Out(stream)
        Whether a packet came (a packet that was given up did not).
    looks, states : In, Out(stream)
        `State` of a context.
    now : In(32)
    """

    def __init__(self, n_contexts: int, n_packets: int) -> None:
        if not 1 <= n_contexts <= 256:
            raise ValueError(f"n_contexts must be 1 to 256, not {n_contexts!r}")
        if n_packets < WORD or n_packets & (n_packets - 1):
            raise ValueError(f"n_packets must be a power of two from 32 on, not {n_packets!r}")
        if n_contexts * n_packets > 16384 * WORD:
            n_all = n_contexts * n_packets
            raise ValueError(f"packets of all contexts must be at most 524288, not {n_all}")
        self.n_contexts, self.n_packets = n_contexts, n_packets
        self.n_words = n_packets // WORD
        super().__init__(
            {
                "opens": In(stream.Signature(Opening(n_contexts))),
                "packets": In(stream.Signature(Arrival(n_contexts))),
                "verdicts": Out(stream.Signature(Verdict)),
                "probes": In(stream.Signature(Probing(n_contexts))),
                "answers": Out(stream.Signature(Answer)),
                "words": Out(stream.Signature(Beat(WORD))),
                "closings": Out(stream.Signature(Closing(n_contexts))),
                "lookups": In(stream.Signature(Lookup(n_contexts))),
                "present": Out(stream.Signature(1)),
                "looks": In(stream.Signature(context_width(n_contexts))),
                "states": Out(stream.Signature(State)),
                "now": In(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        slots = max(2, self.n_contexts)
        m.submodules.configs = configs = BlockRAM(Config.size, slots)
        m.submodules.states = states = BlockRAM(State.size, slots)
        m.submodules.bits = bits = BlockRAM(2 * WORD, slots * self.n_words)
        m.submodules.product = product = Multiplier(BYTES, 16)
        context = Signal(context_width(self.n_contexts))
        word = Signal(range(max(2, self.n_words)))
        place = Cat(word[: ceil_log2(self.n_words)], context)
        clock = Signal(4)  # cycles in the present state of the machine
        m.d.sync += clock.eq(clock + 1)

        def go(state):
            m.next = state
            m.d.sync += clock.eq(0)

        w = SimpleNamespace(
            configs=configs, states=states, bits=bits, product=product, context=context, word=word,
            clock=clock, go=go,
            config=data.View(Config, configs.read_data), state=data.View(State, states.read_data),
            kept=Signal(State),  # the state that the operation under way leaves behind
            closed=bits.read_data[:WORD], here=bits.read_data[WORD:],
            opened=Signal(slots),  # contexts whose state means something
            enough=Signal(), important=Signal(),
        )  # fmt: skip
        told = w.kept.told & (w.kept.n_important >= w.kept.n_sent)
        m.d.comb += [
            *(port.eq(context) for port in (configs.read_addr, states.read_addr)),
            *(port.eq(context) for port in (configs.write_addr, states.write_addr)),
            *(port.eq(place) for port in (bits.read_addr, bits.write_addr)),
            states.write_data.eq(w.kept),
            w.important.eq(~w.config.strict | told),
        ]
        m.d.sync += w.enough.eq(w.config.eager & (w.kept.n_bytes >= w.config.need) & w.important)
        for o in self._outputs:
            with m.If(o.ready):
                m.d.sync += o.valid.eq(0)
        with m.FSM():
            self._idle(m, w)
            self._short_ones(m, w)
            self._open(m, w)
            self._packet(m, w)
            probe(m, self, w)
            look_at_range(m, self, w)
        return m

    @property
    def _outputs(self):
        return self.verdicts, self.answers, self.words, self.closings, self.present, self.states

    def _close(self, m, w, status):
        """The context closes: what is kept of it, and the notice."""
        m.d.sync += [
            w.kept.status.eq(status),
            w.kept.lost.eq(w.config.total - w.kept.n_bytes),
            self.closings.valid.eq(1),
            self.closings.p.context.eq(w.context),
            self.closings.p.short.eq(status == SHORT),
        ]

    def _idle(self, m, w):
        """Packets and all others take turns; the addresses are ready in the next cycle."""
        w.packet = Signal(self.packets.p.shape())
        w.probe = Signal(self.probes.p.shape())
        w.opening = Signal(self.opens.p.shape())
        w.lookup = Signal(range(WORD))
        others_turn, scan = Signal(), Signal.like(w.context)
        sources = (
            (self.opens, w.opening, "OPEN"),
            (self.lookups, None, "LOOKUP"),
            (self.probes, w.probe, "PROBE"),
            (self.looks, None, "LOOK"),
        )
        others = Cat(source.valid for source, _, _ in sources).any()
        with m.State("IDLE"):
            with m.If(~Cat(o.valid for o in self._outputs).any()):
                with m.If(self.packets.valid & ~(others_turn & others)):
                    m.d.comb += self.packets.ready.eq(1)
                    m.d.sync += [
                        w.packet.eq(self.packets.p),
                        w.context.eq(self.packets.p.context),
                        w.word.eq(self.packets.p.number[5:]),
                        others_turn.eq(1),
                    ]
                    w.go("PACKET")
                with m.Elif(others):
                    m.d.sync += others_turn.eq(0)
                    earlier = Const(0)
                    for source, held, state in sources:
                        p = source.payload
                        with m.If(source.valid & ~earlier):
                            m.d.comb += source.ready.eq(1)
                            m.d.sync += w.context.eq(p if source is self.looks else p.context)
                            if held is not None:
                                m.d.sync += held.eq(p)
                            if source is self.lookups:
                                m.d.sync += [w.word.eq(p.number[5:]), w.lookup.eq(p.number[:5])]
                            w.go(state)
                        earlier = earlier | source.valid
                with m.Else():
                    at_end = scan == self.n_contexts - 1
                    m.d.sync += [scan.eq(Mux(at_end, 0, scan + 1)), w.context.eq(scan)]
                    w.go("SCAN")

    def _short_ones(self, m, w):
        """Lookups, looks, and the deadline of one context."""
        passed = Signal(32)
        m.d.sync += passed.eq(self.now - w.state.since)
        with m.State("LOOKUP"), m.If(w.clock == 2):
            here = w.here.bit_select(w.lookup, 1)
            m.d.sync += [self.present.valid.eq(1), self.present.payload.eq(here)]
            w.go("IDLE")
        with m.State("LOOK"), m.If(w.clock == 2):
            m.d.sync += [self.states.valid.eq(1), self.states.payload.eq(w.state)]
            w.go("IDLE")
        with m.State("SCAN"):
            deadline = w.config.deadline
            due = w.state.started & deadline.any() & (passed >= deadline)
            m.d.sync += w.kept.eq(w.state)
            with m.If(w.clock == 4):
                w.go("IDLE")
                with m.If(w.opened.bit_select(w.context, 1) & (w.state.status == OPEN) & due):
                    self._close(m, w, SHORT)
                    w.go("STORE")
        with m.State("STORE"):
            m.d.comb += w.states.write_en.eq(1)
            w.go("IDLE")

    def _open(self, m, w):
        """need = total - (total * p_q16 >> 16); then the bitmaps are cleared."""
        opening, made = w.opening, data.View(Config, w.configs.write_data)
        m.d.comb += made.need.eq(opening.total - w.product.p[16:])
        m.d.comb += [made[name].eq(opening[name]) for name in Config.members if name != "need"]
        with m.State("OPEN"):
            m.d.comb += [w.product.a.eq(opening.total), w.product.b.eq(opening.p_q16)]
            m.d.sync += [
                w.kept.eq(0),
                w.kept.n_open.eq(opening.n_expected),
                w.kept.status.eq(Mux(opening.n_expected == 0, DONE, OPEN)),
                w.opened.bit_select(w.context, 1).eq(1),
            ]
            with m.If(w.clock == 0):
                m.d.sync += w.word.eq(0)
            with m.If(w.clock == 6):
                m.d.comb += [w.bits.write_en.eq(1), w.configs.write_en.eq(1)]
                m.d.sync += [w.clock.eq(6), w.word.eq(w.word + 1)]
                with m.If(w.word == self.n_words - 1):
                    w.go("STORE")

    def _packet(self, m, w):
        """Judge in cycle 2, weigh until cycle 8, test completion in cycle 10."""
        packet, config, kept = w.packet, w.config, w.kept
        at = packet.number[:5]
        reason, size, complete = Signal(3), Signal(16), Signal()
        came = Signal(WORD)
        expected = self._size(config, packet.number, packet.tail)
        with m.State("PACKET"):
            m.d.comb += [
                w.product.a.eq(size),
                w.product.b.eq(packet.weight),
                came.eq(1 << at),
                w.bits.write_data.eq(w.bits.read_data | Cat(came, came)),
            ]
            with m.If(w.clock == 2):
                m.d.sync += [kept.eq(w.state), size.eq(expected), reason.eq(TAKEN)]
                for applies, why in (
                    (w.closed.bit_select(at, 1) | (w.state.status != OPEN), LATE),
                    (w.here.bit_select(at, 1), DUPLICATE),
                    ((packet.n_bytes != expected) | (packet.n_bytes == 0), LENGTH),
                    (packet.number >= config.n_packets, RANGE),
                    (packet.round != config.round, STALE),
                    (~w.opened.bit_select(w.context, 1), STALE),
                ):
                    with m.If(applies):
                        m.d.sync += reason.eq(why)
            with m.If(w.clock == 8):
                m.d.comb += w.bits.write_en.eq(1)
                m.d.sync += [
                    kept.n_bytes.eq(kept.n_bytes + w.product.p),
                    kept.n_open.eq(kept.n_open - 1),
                    kept.n_important.eq(kept.n_important + packet.important),
                    kept.started.eq(1),
                    kept.since.eq(Mux(kept.started, kept.since, self.now)),
                ]
            with m.If(w.clock == 10):
                ends = w.enough | (kept.n_open == 0)
                m.d.sync += complete.eq(ends)
                with m.If(ends):
                    self._close(m, w, DONE)
            refused = (w.clock == 3) & (reason != TAKEN)
            with m.If(refused | (w.clock == 11)):
                m.d.comb += w.states.write_en.eq(~refused)
                m.d.sync += [
                    self.verdicts.valid.eq(1),
                    self.verdicts.p.reason.eq(reason),
                    self.verdicts.p.complete.eq(complete & ~refused),
                ]
                w.go("IDLE")

    @staticmethod
    def _size(config, number, tail):
        """Bytes of a packet."""
        within = Mux(tail, config.tail_bytes, config.packet_bytes)
        return Mux(number == config.n_packets - 1, config.final_bytes, within)

    def _count(self, m, w, open_):
        """Packets of the range that are not in, a word per cycle; whether the last one is."""
        last_word = w.end[5:]
        reads, running = Signal(), Signal()
        looked = delayed_flag(m, reads, 2, name="looked")
        looked_last = delayed_flag(m, reads & (w.word == last_word), 2, name="looked_last")
        counted = delayed_flag(m, looked, 2, name="counted")
        done = delayed_flag(m, looked_last, 3, name="done")
        picked, ones = Signal(WORD, reset_less=True), Signal(range(WORD + 1), reset_less=True)
        missing, last_is_open = Signal(NUMBER), Signal()
        m.d.sync += [picked.eq(open_), ones.eq(sum(picked[k] for k in range(WORD)))]
        with m.State("COUNT"):
            m.d.comb += reads.eq((w.clock == 0) | running)
            m.d.sync += running.eq(reads & (w.word != last_word))
            with m.If(w.clock == 0):
                m.d.sync += missing.eq(0)
            with m.If(w.clock == 15):
                m.d.sync += w.clock.eq(1)
            with m.If(reads):
                m.d.sync += w.word.eq(w.word + 1)
            with m.If(looked_last):
                m.d.sync += last_is_open.eq(open_.bit_select(w.end[:5], 1))
            with m.If(counted):
                m.d.sync += missing.eq(missing + ones)
            with m.If(done):
                w.go("WEIGH")
        return missing, last_is_open
