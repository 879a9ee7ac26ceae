"""The random source that all THC workers share, as a stream of rounding bytes and of signs.

64 logical lanes whatever the physical width: element i of a block is drawn by lane i % 64. Twin of
`gradnic.models.thc.shared_random`; all arithmetic is modulo 2**32.
"""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.params import check_power

from ..primitive.multiplier import Multiplier
from ..primitive.names import signals
from ..stream.delays import copied, delayed, delayed_flag, late

GOLDEN = 0x9E3779B9
N_LANES = 64
FMIX_LATENCY = 14
SHARE = 4  # lanes that share a copy of a block's seeds

Hashes = data.StructLayout({"h1": 32, "h2": 32, "sign_word": 32})


def _begin(x):
    """The first two thirds of a step of xorshift32: four bits of `x` at most in each."""
    x = x ^ (x << 13)[:32]
    return x ^ (x >> 17)


def _finish(x):
    """The last third."""
    return x ^ (x << 5)[:32]


def step(x):
    """One step of xorshift32, as an expression of a 32-bit value."""
    return _finish(_begin(x))


def _not_zero(m, x, name, steps=()):
    """32-bit `x`, or `GOLDEN` where it is 0, two cycles later: zero is no start for xorshift.

    steps : `_begin` and `_finish`, or neither: `x` takes them on its way. Only 0 steps to 0.
    """
    first, second = steps or 2 * (lambda x: x,)
    held, start = (Signal(32, name=f"{name}_{part}", reset_less=True) for part in ("held", "start"))
    zero = Signal(name=f"{name}_zero", reset_less=True)
    m.d.sync += [held.eq(first(x)), zero.eq(x == 0), start.eq(Mux(zero, GOLDEN, second(held)))]
    return start


class Fmix32(wiring.Component):
    """The finalizer of MurmurHash3: one hash per cycle, `FMIX_LATENCY` cycles later.

    Members
    -------
    x, y : In(32), Out(32)
    """

    x: In(32)
    y: Out(32)

    def elaborate(self, platform):
        m = Module()
        value = self.x
        for turn, (shift, factor) in enumerate(((16, 0x85EBCA6B), (13, 0xC2B2AE35))):
            folded = Signal(32, name=f"folded{turn}", reset_less=True)
            m.d.sync += folded.eq(value ^ (value >> shift))
            m.submodules[f"times{turn}"] = times = Multiplier(32, 32)
            m.d.comb += [times.a.eq(folded), times.b.eq(factor)]
            value = Signal(32, name=f"product{turn}", reset_less=True)
            m.d.sync += value.eq(times.p[:32])
        m.d.comb += self.y.eq(value ^ (value >> 16))
        return m


class BlockHash(wiring.Component):
    """Seeds of a block: one block per cycle, ``latency`` cycles later; nothing can stall it.

    Parameters
    ----------
    signs_only : bool
        Make only ``sign_word``, for a decoder, which rolls no dice.

    Members
    -------
    random_key, sign_key, tensor_hash : In(32)
        Keys of (seed, round, worker) and (seed, sign round, all workers), and the hash of the
        tensor's number, as `gradnic.models.thc.shared_random` computes them; constant while blocks
        are inside.
    valid, block : In(1), In(32)
        Number of a block in its tensor.
    done, hashes : Out(1), Out(Hashes)
        ``sign_word`` is the first word of the block's signs.
    """

    latency = 3 * FMIX_LATENCY + 3

    random_key: In(32)
    sign_key: In(32)
    tensor_hash: In(32)
    valid: In(1)
    block: In(32)
    done: Out(1)
    hashes: Out(Hashes)

    def __init__(self, *, signs_only: bool = False) -> None:
        self.signs_only = signs_only
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = Fmix32()
        m.submodules.sign = sign = Fmix32()
        sign_seed, sign_word = signals("sign_seed sign_word", 32, reset_less=True)
        sign_h1 = delayed(m, sign.y, 1, name="sign_h1")
        m.d.sync += [
            sign_seed.eq(inner.y ^ self.sign_key),
            sign_word.eq(step(_not_zero(m, sign_h1, "sign"))),
        ]
        m.d.comb += [
            inner.x.eq(self.block ^ self.tensor_hash),
            sign.x.eq(sign_seed),
            self.hashes.sign_word.eq(late(m, sign_word, FMIX_LATENCY - 2, name="sign_word")),
            self.done.eq(delayed_flag(m, self.valid, self.latency, name="inside")),
        ]
        if self.signs_only:
            return m
        m.submodules.random = random = Fmix32()
        m.submodules.second = second = Fmix32()
        random_seed, h1 = signals("random_seed h1", 32, reset_less=True)
        hashed = delayed(m, random.y, 1, name="hashed")
        m.d.sync += [random_seed.eq(inner.y ^ self.random_key), h1.eq(hashed + 0x85EBCA77)]
        m.d.comb += [
            random.x.eq(random_seed),
            second.x.eq(h1),
            self.hashes.h1.eq(late(m, hashed, FMIX_LATENCY + 1, name="h1")),
            self.hashes.h2.eq(second.y),
        ]
        return m


class SerialBlockHash(BlockHash):
    """What `BlockHash` gives, of one block at a time, with one `Fmix32`: ``latency`` cycles.

    Parameters and members as of `BlockHash`, but:

    valid, block : In(1), In(32)
        Not before ``done`` of the block before; ``block`` stands in that cycle alone.
    hashes : Out(Hashes)
        Stands from ``done`` to the next ``valid``.
    """

    def __init__(self, *, signs_only: bool = False) -> None:
        self.inner_at = FMIX_LATENCY + 1  # cycles behind ``valid``
        self.sign_at = self.inner_at + self.inner_at
        self.h1_at = self.sign_at + 1
        self.h2_at = self.h1_at + self.inner_at
        self.latency = 1 + (self.sign_at + 3 if signs_only else self.h2_at)
        super().__init__(signs_only=signs_only)

    def elaborate(self, platform):
        m = Module()
        m.submodules.mix = mix = Fmix32()
        x, inner, sign, h1, h2 = signals("x inner sign h1 h2", 32, reset_less=True)
        age = Signal(range(self.latency + 1))  # 0: nothing is inside
        m.d.sync += self.done.eq(age == self.latency - 1)
        with m.If(self.valid):
            m.d.sync += age.eq(1)
        with m.Elif(age != 0):
            m.d.sync += age.eq(Mux(age == self.latency - 1, 0, age + 1))
        m.d.comb += mix.x.eq(x)
        with m.If(self.valid):
            m.d.sync += x.eq(self.block ^ self.tensor_hash)
        with m.Elif(age == self.inner_at):
            m.d.sync += [x.eq(mix.y ^ self.sign_key), inner.eq(mix.y)]
        with m.If(age == self.sign_at):
            m.d.sync += sign.eq(mix.y)
        sign_word = delayed(m, step(_not_zero(m, sign, "seed")), 1, name="sign_word")
        m.d.comb += self.hashes.sign_word.eq(sign_word)
        if self.signs_only:
            return m
        with m.If(age == self.inner_at + 1):
            m.d.sync += x.eq(inner ^ self.random_key)
        with m.If(age == self.h1_at):
            m.d.sync += [h1.eq(mix.y), x.eq(mix.y + 0x85EBCA77)]
        with m.If(age == self.h2_at):
            m.d.sync += h2.eq(mix.y)
        m.d.comb += [self.hashes.h1.eq(h1), self.hashes.h2.eq(h2)]
        return m


def asked(hashes, worker, takes):
    """Statements that give a hash of blocks the keys of signs of `worker`, an encoder or a decoder,
    and the block that it takes in the cycle of `takes`.
    """
    return [
        hashes.sign_key.eq(worker.sign_key),
        hashes.tensor_hash.eq(worker.tensor_hash),
        hashes.valid.eq(takes),
        hashes.block.eq(worker.blocks.p.number),
    ]


class RandomBytes(wiring.Component):
    """Rounding bytes of a block's beats, in step with them.

    A beat's bytes come ``latency`` cycles after it; nothing can stall it. Before the first beat
    under a new key, pulse ``rekey`` and wait for ``busy`` to fall, 64 + FMIX_LATENCY cycles.

    Parameters
    ----------
    lanes : int
        Elements per beat, a power of two from 2 to 32.

    Members
    -------
    key, rekey, busy : In(32), In(1), Out(1)
    valid, first, h1, h2 : In(1), In(1), In(32), In(32)
        A beat, whether it is its block's first, and the block's seeds, constant over the block.
    done, octets : Out(1), Out(8 * lanes)
    """

    latency = 9

    def __init__(self, lanes: int) -> None:
        check_power("lanes", lanes, 2, 32)
        self.lanes = lanes
        self.phases = N_LANES // lanes
        super().__init__(
            {
                "key": In(32),
                "rekey": In(1),
                "busy": Out(1),
                "valid": In(1),
                "first": In(1),
                "h1": In(32),
                "h2": In(32),
                "done": Out(1),
                "octets": Out(8 * lanes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        phase = Signal(ceil_log2(self.phases))
        fresh = Signal()  # the lanes of this phase have not yet drawn in this block
        following = Signal.like(phase)
        fresh_next = Signal()
        wraps = (phase == self.phases - 1) if self.phases > 1 else Const(1)
        with m.If(self.valid):
            m.d.sync += [
                following.eq(Mux(self.first, 1 % self.phases, phase + 1)),
                fresh_next.eq(Mux(self.first, self.phases > 1, fresh & ~wraps)),
            ]
        m.d.comb += [
            phase.eq(Mux(self.first, 0, following)),
            fresh.eq(self.first | fresh_next),
        ]
        keys = self._keys(m, phase)
        inside = delayed_flag(m, self.valid, 7, name="inside")
        place = delayed(m, phase, 6, name="place")
        drawn_first = delayed_flag(m, fresh, 6, name="seeds")
        h1, h2 = delayed(m, self.h1, 1, name="h1"), delayed(m, self.h2, 3, name="h2")
        for lane in range(self.lanes):
            if lane % SHARE == 0:
                (first,), (second,) = (
                    copied(m, word, 1, name=f"{name}_{lane}_")
                    for name, word in (("first", h1), ("second", h2))
                )
            summed, mixes, again, kept = (
                Signal(32, name=f"{name}{lane}", reset_less=True)
                for name in ("summed", "mixes", "again", "kept")
            )
            # a step's halves stand where a LUT has inputs left: at most six reach a bit
            m.d.sync += [
                summed.eq(keys[lane] + first),
                mixes.eq(_begin(summed)),
                again.eq(second + _finish(mixes)),
            ]
            # a phase comes again two cycles later at the earliest: read, and drawn and written
            states = memory.Memory(shape=32, depth=self.phases, init=[])
            m.submodules[f"states{lane}"] = states
            read = states.read_port(domain="comb")
            write = states.write_port()
            (reads,) = copied(m, place, 1, name=f"reads{lane}")
            (writes,) = copied(m, reads, 1, name=f"place{lane}")
            fresh_here, valid = (
                copied(m, flag, 1, name=f"{name}{lane}")[0]
                for name, flag in (("fresh", drawn_first), ("valid", inside))
            )
            drawn = Signal(32, name=f"drawn{lane}")
            seeded = _not_zero(m, again, f"seed{lane}", (_begin, _finish))
            m.d.sync += kept.eq(Mux(fresh_here, _begin(seeded), read.data))
            m.d.comb += [
                read.addr.eq(reads),
                drawn.eq(_finish(kept)),
                write.addr.eq(writes),
                write.data.eq(_begin(drawn)),  # of the next step
                write.en.eq(valid),
            ]
            octet = delayed(m, drawn[24:], 1, name=f"octet{lane}_")
            m.d.comb += self.octets.word_select(lane, 8).eq(octet)
        m.d.comb += self.done.eq(delayed_flag(m, inside, 2, name="done"))
        return m

    def _keys(self, m, phase):
        """Key of each physical lane in this phase, 2 cycles later; written one logical lane a
        cycle on rekey.
        """
        m.submodules.mix = mix = Fmix32()
        asked = Signal(range(N_LANES))
        asks = Signal()
        running = Signal(32, reset_less=True)
        m.d.sync += [
            asks.eq(self.rekey | (asks & (asked != N_LANES - 1))),
            asked.eq(Mux(self.rekey, 0, asked + 1)),
            running.eq(Mux(self.rekey, self.key, running + GOLDEN)),
        ]
        number = delayed(m, asked, FMIX_LATENCY, name="number")
        arrives = delayed_flag(m, asks, FMIX_LATENCY, name="mixes")
        m.d.comb += mix.x.eq(running)
        m.d.sync += self.busy.eq(self.rekey | asks | arrives)
        keys = []
        for lane in range(self.lanes):
            words = memory.Memory(shape=32, depth=self.phases, init=[])
            m.submodules[f"keys{lane}"] = words
            read = words.read_port(domain="comb")
            write = words.write_port()
            (reads,) = copied(m, phase, 1, name=f"key_reads{lane}_")
            m.d.comb += [
                read.addr.eq(reads),
                write.data.eq(mix.y),
                write.addr.eq(number[ceil_log2(self.lanes) :]),
                write.en.eq(arrives & (number[: ceil_log2(self.lanes)] == lane)),
            ]
            keys.append(delayed(m, read.data, 1, name=f"key{lane}_"))
        return keys


class Signs(wiring.Component):
    """The sign diagonal of a block's beats: a 1 negates; ``latency`` cycles after the beat.

    Parameters
    ----------
    lanes : int
        Elements per beat, a power of two from 2 to 32.

    Members
    -------
    valid, first, sign_word : In(1), In(1), In(32)
        ``sign_word``: of `BlockHash`; counts with the first beat.
    signs : Out(lanes)
    """

    latency = 2

    def __init__(self, lanes: int) -> None:
        check_power("lanes", lanes, 2, 32)
        self.lanes = lanes
        super().__init__({"valid": In(1), "first": In(1), "sign_word": In(32), "signs": Out(lanes)})

    def elaborate(self, platform):
        m = Module()
        parts = 32 // self.lanes
        valid = delayed_flag(m, self.valid, 1, name="comes")
        first = self.valid & self.first
        firsts = copied(m, first, 3, name="first")
        given, given_half = (
            delayed(m, word, 1, name=name)
            for word, name in ((self.sign_word, "given"), (_begin(self.sign_word), "given_half"))
        )
        # the word whose bits are in use, those of the next beat lowest; the next word, half stepped
        word, half = signals("word half", 32, reset_less=True)
        part = Signal(ceil_log2(parts))
        spent = Signal()
        following = _finish(half)
        with m.If(valid):
            m.d.sync += [
                word.eq(Mux(firsts[0], given, Mux(spent, following, word >> self.lanes))),
                part.eq(Mux(firsts[2], 1 % parts, part + 1)),
                spent.eq(Mux(firsts[2], parts == 1, part == parts - 1)),
            ]
            with m.If(firsts[1] | spent):
                m.d.sync += half.eq(Mux(firsts[1], given_half, _begin(following)))
        m.d.comb += self.signs.eq(word[: self.lanes])
        return m
