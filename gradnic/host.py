"""Registers of a card by name, from the host: over PCIe, a debug port, or in a simulation.

A `Driver` knows a register map (`gradnic.registers`) and two functions that reach the hardware,
``read(address) -> int`` and ``write(address, value)`` of 32-bit words at byte addresses. It has no
other dependency, so it runs wherever Python does. In C the same map is a header, see
`gradnic.registers.c_header`.
"""

import time

from . import inline
from .registers import WORD_BYTES

WORD = (1 << 32) - 1


class Driver:
    """Reads and writes the registers of one map.

    Parameters
    ----------
    register_map : gradnic.registers.RegisterMap
    read : function (byte address) -> int
    write : function (byte address, int)
    base : int
        Byte address of the map.
    clock, sleep : functions
        Seconds now, and a pause of seconds: `wait` uses them.
    """

    def __init__(
        self, register_map, read, write, *, base=0, clock=time.monotonic, sleep=time.sleep
    ):
        self.map = register_map
        self._read, self._write = read, write
        self.base = base
        self._clock, self._sleep = clock, sleep

    def _register(self, name):
        try:
            return self.map[name]
        except KeyError as error:
            raise ValueError(error.args[0]) from None

    def read(self, name):
        """Word of a register; of a 64-bit counter both words, of one moment."""
        register = self._register(name)
        at = self.base + register.offset
        word = self._read(at) & WORD
        if register.n_words == 2:  # reading the low word held the high one
            word |= (self._read(at + WORD_BYTES) & WORD) << 32
        return word

    def write(self, name, word):
        """Write a whole word. ValueError if the register takes none, or the word does not fit."""
        register = self._register(name)
        if register.access not in ("rw", "w1c"):
            raise ValueError(f"{name} must be writable, not {register.access}")
        if not 0 <= word <= WORD:
            raise ValueError(f"{name} must be 0 to {WORD:#x}, not {word!r}")
        self._write(self.base + register.offset, word)

    def get(self, name):
        """Fields of a register as {name: int}, signed ones with their sign."""
        return self._split(name, self.read(name))

    def _split(self, name, word):
        fields = {}
        for field in self._register(name).fields:
            value = word >> field.lsb & (1 << field.width) - 1
            negative = field.signed and value >> field.width - 1
            fields[field.name] = value - (1 << field.width) if negative else value
        return fields

    def set(self, name, **values):
        """Write some fields, the others kept. ValueError for an unknown field or a misfit."""
        register = self._register(name)
        fields = {field.name: field for field in register.fields}
        unknown = sorted(set(values) - set(fields))
        if unknown:
            raise ValueError(f"{name} has no field {unknown[0]!r}, but {', '.join(fields)}")
        word = 0
        if set(values) != set(fields) and register.access == "rw":
            word = self.read(name)
        for key, value in values.items():
            field = fields[key]
            lowest = -(1 << field.width - 1) if field.signed else 0
            if not lowest <= value < lowest + (1 << field.width):
                highest = lowest + (1 << field.width) - 1
                raise ValueError(f"{name}.{key} must be {lowest} to {highest}, not {value!r}")
            word = word & ~field.mask | int(value) << field.lsb & field.mask
        self.write(name, word)

    def clear(self, name):
        """Fields of a sticky register, cleared where they were 1."""
        word = self.read(name)
        self.write(name, word)
        return self._split(name, word)

    def counters(self):
        """{name: value} of all counters, in the order of the map."""
        return {r.name: self.read(r.name) for r in self.map if r.access == "counter"}

    def wait(self, name, timeout=1.0, *, pause=0.0, **values):
        """Read a register until its fields have these values; returns all of its fields.

        timeout, pause : seconds, in all and between two reads. TimeoutError names what it saw last.
        """
        deadline = self._clock() + timeout
        while True:
            late = self._clock() >= deadline
            seen = self.get(name)
            unknown = sorted(set(values) - set(seen))
            if unknown:
                raise ValueError(f"{name} has no field {unknown[0]!r}, but {', '.join(seen)}")
            if all(seen[key] == value for key, value in values.items()):
                return seen
            if late:
                raise TimeoutError(f"{name} must become {values} in {timeout} s, and is {seen}")
            self._sleep(pause)


class InlineDriver(Driver):
    """The in-line card: its settings and its counters.

    Parameters
    ----------
    read, write, base, clock, sleep :
        See `Driver`.
    """

    def __init__(self, read, write, **options):
        super().__init__(inline.REGISTERS, read, write, **options)

    def configure(self, settings):
        """Write all of an `InlineSettings`; the mode goes on last and off first."""
        words = settings.words()
        self.write("control", 0)
        for name, word in words.items():
            if name != "control":
                self.write(name, word)
        self.write("control", words["control"])

    def settings(self):
        """The `InlineSettings` that the card works by."""
        mark, ports, native = self.get("mark"), self.get("ports"), self.get("native")
        codec = self.get("codec")
        jobs = [self.read(f"jobs_{k}") for k in range(inline.N_JOBS // 32)]
        return inline.InlineSettings(
            paper=bool(self.get("control")["paper"]),
            tos=mark["tos"],
            tos_coded=mark["coded"],
            tos_mask=mark["mask"],
            port_low=ports["low"],
            port_high=ports["high"],
            native_port=native["port"],
            floats_limit=native["limit"],
            exponent=codec["exponent"],
            prescale=codec["prescale"],
            paper_codec=bool(codec["paper"]),
            jobs={j for j in range(inline.N_JOBS) if jobs[j // 32] >> j % 32 & 1},
        )
