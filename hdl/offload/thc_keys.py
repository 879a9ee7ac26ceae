"""Seeds of a job's dice and signs, as a THC worker derives them.

Golden model: `gradnic.models.offload.thc_keys`. A pass of a THC job has one of its own or is lent
the keys.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..primitive.names import signals
from ..primitive.parity import strayed
from ..thc.shared_random import FMIX_LATENCY, GOLDEN, Fmix32

START = 0x67726E63
OF_SIGNS = 0xFFFFFFFF  # in place of a worker
OF_TENSOR = 0x7F4A7C15


KEYS = {"known": Out(1), "stray": Out(1)} | dict.fromkeys(
    ("random_key", "sign_key", "tensor_hash"), Out(32)
)


class ThcKeys(wiring.Component):
    """Keys of (seed, gen, node) and (seed, gen, all nodes), and the hash of the tensor: 80 cycles.

    Parameters
    ----------
    dice : bool
        False leaves out the first key: no dice are rolled.

    Members
    -------
    seed, gen, node, tensor : In
        ``node`` with `dice`. Must not change from ``start`` on. start : In(1), a level: 1 until
        the keys are used.
    known : Out(1)
        The keys are there; falls with ``start``.
    random_key, sign_key, tensor_hash : Out(32)
        The first with `dice`. See `gradnic.hdl.thc.shared_random.BlockHash`.
    stray : Out(1)
        A bit of them has changed by itself while they are known.
    """

    def __init__(self, *, dice: bool) -> None:
        self.dice = dice
        keys = {name: member for name, member in KEYS.items() if dice or name != "random_key"}
        node = {"node": In(8)} if dice else {}
        super().__init__(
            {"seed": In(32), "gen": In(16), **node, "tensor": In(16), "start": In(1), **keys}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.mix = mix = Fmix32()
        x, shared = signals("x shared", 32, reset_less=True)
        count = Signal(range(FMIX_LATENCY + 2))
        step = Signal(range(6))
        stands = Signal()
        m.d.sync += stands.eq(self.known)
        keys = Cat(self.sign_key, self.tensor_hash, self.random_key if self.dice else ())
        m.d.comb += [
            mix.x.eq(x),
            self.known.eq(step == 5),
            self.stray.eq(strayed(m, keys, stands, name="keys")),
        ]
        with m.If(~self.start):
            m.d.sync += [step.eq(0), count.eq(0)]
        with m.Elif(count != FMIX_LATENCY + 1):
            m.d.sync += count.eq(count + 1)
            with m.If(step == 0):
                m.d.sync += x.eq((START ^ self.seed) + GOLDEN)
        with m.Elif(~self.known):
            m.d.sync += [count.eq(0), step.eq(step + 1)]
            with m.Switch(step):
                with m.Case(0):
                    m.d.sync += x.eq((mix.y ^ self.gen) + GOLDEN)
                with m.Case(1):
                    m.d.sync += shared.eq(mix.y)
                    if self.dice:
                        m.d.sync += x.eq((mix.y ^ self.node) + GOLDEN)
                with m.Case(2):
                    m.d.sync += x.eq((shared ^ OF_SIGNS) + GOLDEN)
                    if self.dice:
                        m.d.sync += self.random_key.eq(mix.y)
                with m.Case(3):
                    m.d.sync += [self.sign_key.eq(mix.y), x.eq(self.tensor + OF_TENSOR)]
                with m.Case(4):
                    m.d.sync += self.tensor_hash.eq(mix.y)
        return m
