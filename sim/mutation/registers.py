"""Mutation campaign of the register bank: what its test must notice, in every cycle.

Steps are as wide as the counters, so that all their bits change within hundreds of cycles; in a
card, where a counter counts frames, they would take 2^31 frames. Counters of 64 bits, which no card
has, are left out.
"""

from functools import cache

import numpy as np
from gradnic.hdl.axi.register_bank import SETTLE, RegisterBank

from gradnic.interface.register_map import BitField, Register, RegisterMap

ADDRESS_WIDTH = 9  # more than the map needs: what lies above must not alias
N_CYCLES = 12_000
INPUTS = {"awaddr": ADDRESS_WIDTH, "awvalid": 1, "wdata": 32, "wstrb": 4, "wvalid": 1, "bready": 1}
INPUTS |= {"araddr": ADDRESS_WIDTH, "arvalid": 1, "rready": 1, "awprot": 3, "arprot": 3}
ANSWERS = ("awready", "wready", "bvalid", "bresp", "arready", "rvalid", "rresp", "rdata")
SETTINGS = (
    BitField("enable", 0, 1, "bit", reset=1),
    BitField("exponent", 4, 7, "over two bytes", reset=117),
    BitField("prescale", 12, 8, "over two bytes", reset=-2, signed=True),
    BitField("top", 31, 1, "highest bit", reset=1),
)
STATUS = (BitField("level", 3, 7, "any"), BitField("full", 31, 1, "any"))
CAUSES = (BitField("low", 0, 2, "bits"), BitField("causes", 14, 4, "over two bytes"))
WHOLE = (BitField("value", 0, 32, "any", reset=0x89ABCDEF),)
MAP = RegisterMap(
    "campaign",
    "every access, gaps, and more words than one group of the read tree",
    (
        Register("status", 0x04, "ro", "narrow fields", STATUS),
        Register("control", 0x08, "rw", "fields across bytes", SETTINGS),
        Register("events", 0x14, "w1c", "sticky", CAUSES),
        Register("amounts", 0x18, "counter", "any step", step_width=32),
        Register("bytes", 0x1C, "counter", "half a word", step_width=17),
        *(Register(f"word_{n}", 0x2C + 4 * n, "rw", "a whole word", WHOLE) for n in range(6)),
        Register("tail", 0x80, "rw", "a whole word", WHOLE),
    ),
)
BY_WORD = {register.offset // 4: register for register in MAP}


def component():
    """The circuit under mutation."""
    return RegisterBank(MAP, address_width=ADDRESS_WIDTH)


def _packed(register, word):
    """The fields of a word, one behind the other, as the port has them."""
    packed = at = 0
    for field in register.fields:
        packed |= (word >> field.lsb & (1 << field.width) - 1) << at
        at += field.width
    return packed


def _spread(register, packed):
    """The word that software sees of packed fields."""
    word = 0
    for field in register.fields:
        word |= (packed & (1 << field.width) - 1) << field.lsb
        packed >>= field.width
    return word


class Twin:
    """The bank as its docstring times it: `cycle` takes inputs and returns what is shown then."""

    def __init__(self):
        self.words = {r.offset // 4: r.reset for r in MAP if r.access == "rw"}
        self.sticky, self.sums = (
            dict.fromkeys(_words("w1c"), 0),
            dict.fromkeys(_words("counter"), 0),
        )
        self.steps = dict(self.sums)  # on their way to the sums
        self.address = self.data = self.write = self.read = None
        self.age = 0  # cycles since the read was taken, but those that it waited
        self.wait, self.settling = 0, 0  # cycles: of the read; until the last write has settled
        self.answer, self.rdata = False, None
        self.carried = False  # out, the write whose answer has no room yet

    def cycle(self, given):
        """`given`: {input: value}. Returns {output: value}, None where it means nothing."""
        shown = {
            "awready": self.address is None,
            "wready": self.data is None,
            "bvalid": self.answer,
            "arready": self.read is None,
            "rvalid": self.age == 4,
            "rdata": self.rdata if self.age == 4 else None,
            "bresp": 0,
            "rresp": 0,
        }
        shown |= {BY_WORD[n].name: _packed(BY_WORD[n], word) for n, word in self.words.items()}
        if self.read is not None and self.age == 2:
            self.rdata = self._word(given)
        self._step(given)
        was_whole = self.address is not None and self.data is not None
        self._write(given)
        self.settling = max(self.settling - 1, 0)
        if self.address is not None and self.data is not None and not was_whole:
            self.settling = SETTLE + 3
        if self.age == 4 and given["rready"]:
            self.read, self.age = None, 0
        elif self.wait:
            self.wait -= 1
        elif self.read is not None:
            self.age = min(self.age + 1, 4)
        elif given["arvalid"]:
            self.read, self.age = given["araddr"] // 4, 1
            self.wait = max(self.settling - 2, 0)
        return shown

    def _word(self, given):
        register = BY_WORD.get(self.read)
        if register is None:
            return 0
        if register.access == "ro":
            return _spread(register, given[register.name])
        return {**self.words, **self.sticky, **self.sums}[self.read]

    def _step(self, given):
        for n, step in self.steps.items():
            self.sums[n] = (self.sums[n] + step) % 2**32
            self.steps[n] = given[BY_WORD[n].name]

    def _write(self, given):
        number, data, strobes = self.write or (None, 0, 0)
        mask = sum(0xFF << 8 * k for k in range(4) if strobes >> k & 1)
        for n, word in self.sticky.items():
            cleared = data & mask if n == number else 0
            self.sticky[n] = word & ~cleared | _spread(BY_WORD[n], given[BY_WORD[n].name])
        if number in self.words:
            mask &= sum(field.mask for field in BY_WORD[number].fields)
            self.words[number] = self.words[number] & ~mask | data & mask
        self.write = None
        whole = self.address is not None and self.data is not None
        if whole and not self.carried:
            self.write, self.carried = (self.address, *self.data), True
        if self.answer:
            self.answer = not given["bready"]
        elif whole:
            self.address = self.data = None
            self.answer, self.carried = True, False
            return
        if self.address is None and given["awvalid"]:
            self.address = given["awaddr"] // 4
        if self.data is None and given["wvalid"]:
            self.data = given["wdata"], given["wstrb"]


def _words(access):
    return [n for n, register in BY_WORD.items() if register.access == access]


@cache
def _played():
    """(inputs, outputs) of a run, one value a cycle; None where an output means nothing."""
    rng = np.random.default_rng(1)
    widths = INPUTS | {"status": 8, "events": 6, "amounts": 32, "bytes": 17}
    values = {name: rng.integers(0, 1 << width, N_CYCLES) for name, width in widths.items()}
    used = rng.choice([*BY_WORD], N_CYCLES)
    for name in ("awaddr", "araddr"):  # words of the map, and of them words one bit away
        near = rng.choice([0, 0, 0, *(1 << bit for bit in range(ADDRESS_WIDTH - 2))], N_CYCLES)
        values[name] = (used ^ near) << 2 | values[name] & 3
        used = np.roll(used, 1)
    quarter = np.arange(N_CYCLES) * 4 // N_CYCLES
    for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
        values[name] = (rng.random(N_CYCLES) < np.array([1, 0.5, 0.2, 0.7])[quarter]).astype(int)
    values["events"] *= rng.random(N_CYCLES) < 0.1
    twin = Twin()
    shown = [
        twin.cycle({name: int(column[k]) for name, column in values.items()})
        for k in range(N_CYCLES)
    ]
    outputs = {name: [row[name] for row in shown] for name in shown[0]}
    return values, outputs


def test(model):
    """Every output in every cycle, from reset on; then again, from a reset in the midst of it."""
    values, outputs = _played()
    signals = {(f"bus__{name}" if name in INPUTS else name): v for name, v in values.items()}
    names = {(f"bus__{name}" if name in ANSWERS else name): name for name in outputs}
    instance = model.instance()
    for n_cycles in (997, N_CYCLES):
        run = instance.run(
            signals={name: v[:n_cycles] for name, v in signals.items()},
            trace=[*names],
            drain=False,
            max_cycles=n_cycles,
        )
        for wire, name in names.items():
            known = [k for k in range(n_cycles) if outputs[name][k] is not None]
            wanted = np.array([outputs[name][k] for k in known], np.uint64)
            wrong = np.flatnonzero(run.traces[wire].astype(np.uint64)[known] != wanted)
            assert not len(wrong), f"{name} differs in cycle {known[wrong[0]]}"
