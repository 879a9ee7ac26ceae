"""Self-test in fabric: golden vectors through compressor and decompressor, verdict on a UART.

Each round plays all vectors once. Coded units are compared with the golden ones and go straight
on into the decompressor, whose floats are compared with the golden image. Three rounds of four
hold streams back at random; the first of four does not, so that its cycles show the rate.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.inceptionn.compressor import Compressor
from gradnic.hdl.inceptionn.decompressor import Decompressor

from .playback import Checker, Player
from .printer import Decimal, Printer
from .uart import UartTx

SETTLE_CYCLES = 255  # after the last expected beat: time for one too many to show up
CYCLES_PER_BEAT = 64  # a round that takes longer hangs; stalls cost less than a factor of 8
CHECKS = ("sizes", "coded", "verdicts", "floats")
PASS, FAIL, HANG = range(3)


class SelfTest(wiring.Component):
    """Plays `vectors`, checks, and reports: a line of text a round, and one at the end.

    The report is ASCII, 8N1::

        gradnic self-test: 8 lanes, 58 units, 3302 floats
        round 0001: cycles 00001234, wrong: sizes 0000 coded 0000 verdicts 0000 floats 0000: PASS
        self-test: PASS

    ``wrong`` counts beats and stops at 9999. HANG: beats were still missing after 64 cycles for
    each expected one; it ends the test. FAIL at the end: at least one round did not pass.

    Parameters
    ----------
    vectors : `gradnic.fpga.board.vectors.Vectors`.
    rounds : int, 1 to 9999.
    divisor : int, clock cycles per bit of the UART, at least 2.

    Members
    -------
    tx : Out(1).
    leds : Out(8). 0 blinks, 1 testing, 2 ended and passed, 3 a round did not pass; 4 to 7: rounds
        done, modulo 16.
    """

    def __init__(self, vectors, *, rounds=16, divisor):
        if not 1 <= rounds <= 9999:
            raise ValueError(f"rounds must be 1 to 9999, not {rounds!r}")
        self.vectors, self.rounds, self.divisor = vectors, rounds, divisor
        super().__init__({"tx": Out(1, init=1), "leds": Out(8)})

    def elaborate(self, platform):
        m = Module()
        v = self.vectors
        m.submodules.datapath = path = Datapath(v)
        m.submodules.uart = uart = UartTx(self.divisor)
        counters = {"round": Decimal(4), "cycles": Decimal(8)}
        counters |= {name: Decimal(4) for name in CHECKS}
        m.submodules.printer = printer = Printer(
            [
                f"gradnic self-test: {v.n_lanes} lanes, {len(v.units)} units, {v.n_floats} floats",
                "round {round}: cycles {cycles}, wrong: sizes {sizes} coded {coded} "
                "verdicts {verdicts} floats {floats}: {verdict}",
                "self-test: {verdict}",
            ],
            {name: counter.n_digits for name, counter in counters.items()},
        )
        hello, one_round, end = range(3)
        for name, counter in counters.items():
            m.submodules[f"n_{name}"] = counter
            m.d.comb += getattr(printer, name).eq(counter.value)
        m.d.comb += [counters[name].count.eq(path.wrong[k]) for k, name in enumerate(CHECKS)]
        wiring.connect(m, printer.o, uart.i)
        m.d.comb += self.tx.eq(uart.tx)

        limit = CYCLES_PER_BEAT * v.n_beats + 4096
        left = Signal(range(limit + 1))
        settle = Signal(range(SETTLE_CYCLES + 1))
        done = Signal(range(max(self.rounds, 15) + 1))
        round_failed, hung, failed, testing, passed = (Signal() for _ in range(5))
        blink = Signal(25)
        m.d.sync += blink.eq(blink + 1)
        m.d.comb += self.leds.eq(Cat(blink[-1], testing, passed, failed, done[:4]))
        m.d.comb += [path.storm_in.eq(done[0]), path.storm_out.eq(done[1])]
        m.d.comb += printer.verdict.eq(Mux(hung, HANG, Mux(round_failed, FAIL, PASS)))
        with m.If(path.wrong.any()):
            m.d.sync += round_failed.eq(1)
        with m.FSM():
            with m.State("HELLO"):
                m.d.comb += [printer.line.eq(hello), printer.start.eq(1)]
                m.d.sync += testing.eq(1)
                m.next = "HELLO-SENT"
            with m.State("HELLO-SENT"):
                with m.If(printer.idle):
                    m.next = "START"
            with m.State("START"):
                m.d.comb += [path.start.eq(1), counters["round"].count.eq(1)]
                m.d.comb += [counters[name].clear.eq(1) for name in ("cycles", *CHECKS)]
                m.d.sync += [round_failed.eq(0), left.eq(limit), settle.eq(SETTLE_CYCLES)]
                m.next = "PLAY"
            with m.State("PLAY"):
                m.d.comb += counters["cycles"].count.eq(1)
                m.d.sync += left.eq(left - 1)
                with m.If(path.over):
                    m.next = "SETTLE"
                with m.Elif(left == 0):
                    m.d.sync += hung.eq(1)
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                m.d.sync += settle.eq(settle - 1)
                with m.If(settle == 0):
                    m.d.sync += [failed.eq(failed | round_failed | hung), done.eq(done + 1)]
                    m.next = "ROUND"
            with m.State("ROUND"):
                m.d.comb += [printer.line.eq(one_round), printer.start.eq(1)]
                m.next = "ROUND-SENT"
            with m.State("ROUND-SENT"):
                with m.If(printer.idle):
                    m.next = "START"
                    with m.If((done == self.rounds) | hung):
                        m.next = "END"
            with m.State("END"):
                m.d.comb += [printer.line.eq(end), printer.start.eq(1)]
                m.d.sync += [round_failed.eq(failed), hung.eq(0)]
                m.d.sync += [testing.eq(0), passed.eq(~failed)]
                m.next = "HALT"
            with m.State("HALT"):
                pass
        return m


class Datapath(wiring.Component):
    """Vectors, engines and checkers, joined; without a UART.

    vectors : `gradnic.fpga.board.vectors.Vectors`.

    Members
    -------
    start : In(1), one cycle, plays the vectors once; only when the engines are empty.
    storm_in, storm_out : In(1), hold inputs or outputs back at random.
    over : Out(1), every expected beat has come. wrong : Out(4), pulses per wrong beat, `CHECKS`.
    """

    def __init__(self, vectors):
        self.vectors = vectors
        super().__init__(
            {
                "start": In(1),
                "storm_in": In(1),
                "storm_out": In(1),
                "over": Out(1),
                "wrong": Out(len(CHECKS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        v = self.vectors
        m.submodules.compressor = compressor = Compressor(v.n_lanes)
        m.submodules.decompressor = decompressor = Decompressor(v.n_lanes)
        m.submodules.units = units = Player(compressor.units.p.shape(), v.units)
        m.submodules.floats = floats = Player(compressor.floats.p.shape(), v.floats)
        wiring.connect(m, units.o, compressor.units)
        wiring.connect(m, floats.o, compressor.floats)
        sources = {
            "sizes": (
                compressor.sizes,
                _layout(count=16, bytes=16, dropped=1, exponent=7, paper=1, prescale=signed(8)),
                v.sizes,
                _sizes_differ,
            ),
            "coded": (
                compressor.coded,
                _layout(data=32 * v.n_lanes, keep=4 * v.n_lanes, last=1, drop=1),
                v.coded,
                _coded_differ,
            ),
            "verdicts": (decompressor.verdicts, _layout(ok=1), v.verdicts, _verdicts_differ),
            "floats": (
                decompressor.floats,
                _layout(data=32 * v.n_lanes, last=1),
                v.images,
                _floats_differ,
            ),
        }
        checkers, over = {}, []
        for k, (name, (source, golden, rows, differ)) in enumerate(sources.items()):
            expected = Player(golden, rows)
            checker = checkers[name] = Checker(source.p.shape(), golden, differ)
            m.submodules[f"expected_{name}"] = expected
            m.submodules[f"check_{name}"] = checker
            wiring.connect(m, source, checker.i)
            wiring.connect(m, expected.o, checker.expected)
            m.d.comb += [checker.over.eq(expected.played), expected.start.eq(self.start)]
            m.d.sync += self.wrong[k].eq(checker.wrong)
            over.append(expected.played)
        m.d.comb += [units.start.eq(self.start), floats.start.eq(self.start)]
        m.d.sync += self.over.eq(Cat(over).all() & ~self.start)

        sizes, coded = checkers["sizes"].o, checkers["coded"].o
        m.d.comb += [
            decompressor.units.valid.eq(sizes.valid & ~sizes.p.beat.dropped),
            sizes.ready.eq(decompressor.units.ready | sizes.p.beat.dropped),
            decompressor.units.p.bytes.eq(sizes.p.beat.bytes),
            decompressor.coded.valid.eq(coded.valid),
            coded.ready.eq(decompressor.coded.ready),
            decompressor.coded.p.data.eq(coded.p.beat.data),
            decompressor.coded.p.last.eq(coded.p.beat.last),
            decompressor.coded.p.drop.eq(coded.p.golden.drop),
        ]
        for field in ("count", "exponent", "paper", "prescale"):
            m.d.comb += decompressor.units.p[field].eq(sizes.p.golden[field])
        for name in ("verdicts", "floats"):
            m.d.comb += checkers[name].o.ready.eq(1)

        noise = Signal(32, init=1)  # x^32 + x^22 + x^2 + x + 1
        m.d.sync += noise.eq(Cat(noise[31] ^ noise[21] ^ noise[1] ^ noise[0], noise))
        stalled = [(floats, self.storm_in), (units, self.storm_in)]
        stalled += [(checker, self.storm_out) for checker in checkers.values()]
        for k, (part, storm) in enumerate(stalled):
            m.d.sync += part.stall.eq(storm & noise[5 * k] & (noise[5 * k + 2] | noise[31]))
        return m


def _layout(**fields):
    return data.StructLayout(fields)


def _sizes_differ(beat, golden):
    kept = ~golden.dropped
    return [beat.dropped ^ golden.dropped, (beat.bytes ^ golden.bytes) & kept.replicate(16)]


def _coded_differ(beat, golden):
    care = Cat(bit.replicate(8) for bit in golden.keep)
    same = (beat.data ^ golden.data) & care
    return [same, beat.keep ^ golden.keep, beat.last ^ golden.last]


def _verdicts_differ(beat, golden):
    return [beat.ok ^ golden.ok]


def _floats_differ(beat, golden):
    return [beat.data ^ golden.data, beat.last ^ golden.last]
