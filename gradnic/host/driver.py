"""Registers of a card by name, from the host: over PCIe, a debug port, or in a simulation.

A `Driver` knows a register map (`gradnic.interface.register_map`) and two functions that reach the
hardware, ``read(address) -> int`` and ``write(address, value)`` of 32-bit words at byte addresses.
It has no other dependency, so it runs wherever Python does. In C the same map is a header, see
`gradnic.interface.register_map.c_header`.
"""

import time
from collections.abc import Callable
from functools import cached_property
from numbers import Integral
from typing import Any

from gradnic.interface import inline
from gradnic.interface.params import check_range
from gradnic.interface.register_map import WORD_BYTES, Register, RegisterMap

WORD = (1 << 32) - 1


def octets_of(data: Any) -> memoryview:
    """The bytes of any C-contiguous buffer as they lie in memory: of bytes, an array, a memoryview.

    ValueError for anything else.
    """
    try:
        view = memoryview(data)
    except TypeError:
        view = None
    if view is None or not view.c_contiguous:
        what = type(data).__name__ if view is None else "one with gaps or in another order"
        raise ValueError(f"data must be bytes or a C-contiguous buffer, not {what}")
    return view.cast("B") if view.nbytes else memoryview(b"")


class CardGone(ConnectionError):
    """Reads give all ones: the link is down, the card lost its power or is being reprogrammed.

    What a bus answers where nothing does. Reserved bits of a register read 0, so all ones is no
    register's word; where a word has none (counters), a register that has some is asked, too.
    """


class Driver:
    """Reads and writes the registers of one map.

    Every call that reads raises `CardGone` where no card answers.

    Parameters
    ----------
    register_map : gradnic.interface.register_map.RegisterMap
    read : function (byte address) -> int
    write : function (byte address, int)
    base : int
        Byte address of the map.
    clock, sleep : functions
        Seconds now, and a pause of seconds: `wait` uses them.
    """

    def __init__(
        self,
        register_map: RegisterMap,
        read: Callable,
        write: Callable,
        *,
        base: int = 0,
        clock: Callable = time.monotonic,
        sleep: Callable = time.sleep,
    ) -> None:
        self.map = register_map
        self._read, self._write = read, write
        self.base = base
        self._clock, self._sleep = clock, sleep

    def _register(self, name: str) -> Register:
        try:
            return self.map[name]
        except KeyError as error:
            raise ValueError(error.args[0]) from None

    def read(self, name: str) -> int:
        """Word of a register; of a 64-bit counter both words, of one moment."""
        register = self._register(name)
        at = self.base + register.offset
        word = self._word(at)
        if word == WORD:
            self._doubt(register)
        if register.n_words == 2:  # reading the low word held the high one
            word |= self._word(at + WORD_BYTES) << 32
        return word

    def _word(self, at: int) -> int:
        """The word at an address as an int, whatever integer `read` gives: NumPy's lose bits."""
        return int(self._read(at)) & WORD

    @cached_property
    def _witness(self) -> tuple[int, str]:
        """Offset and name of a word that cannot be all ones: reserved bits and words read 0."""
        for register in self.map:
            if register.n_reserved:
                return register.offset, register.name
        return self.map.n_bytes, "the word behind the last one"

    def check(self) -> None:
        """Raise `CardGone` unless a card answers."""
        offset, name = self._witness
        if self._word(self.base + offset) == WORD:
            raise CardGone(
                f"the card is gone: {name} of {self.map.name} at {self.base:#x} reads {WORD:#010x}"
            )

    def _doubt(self, register: Register) -> None:
        """A word that reads all ones: is it one?"""
        if register.n_reserved:
            raise CardGone(
                f"the card is gone: {register.name} of {self.map.name} at {self.base:#x} reads "
                f"{WORD:#010x}"
            )
        self.check()

    def write(self, name: str, word: int) -> None:
        """Write a whole word. ValueError if the register takes none, or the word does not fit."""
        register = self._register(name)
        if register.access not in ("rw", "w1c"):
            raise ValueError(f"{name} must be writable, not {register.access}")
        if not isinstance(word, Integral) or not 0 <= word <= WORD:
            raise ValueError(f"{name} must be 0 to {WORD:#x}, not {word!r}")
        self._write(self.base + register.offset, int(word))

    def get(self, name: str) -> dict[str, int]:
        """Fields of a register as {name: int}, signed ones with their sign."""
        return self._split(name, self.read(name))

    def _split(self, name: str, word: int) -> dict[str, int]:
        fields = {}
        for field in self._register(name).fields:
            value = word >> field.lsb & (1 << field.width) - 1
            negative = field.signed and value >> field.width - 1
            fields[field.name] = value - (1 << field.width) if negative else value
        return fields

    def set(self, name: str, **values: int) -> None:
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
            check_range(f"{name}.{key}", value, *field.limits)
            word = word & ~field.mask | int(value) << field.lsb & field.mask
        self.write(name, word)

    def clear(self, name: str) -> dict[str, int]:
        """Fields of a sticky register, cleared where they were 1."""
        word = self.read(name)
        self.write(name, word)
        return self._split(name, word)

    def counters(self) -> dict[str, int]:
        """{name: value} of all counters, in the order of the map."""
        return {r.name: self.read(r.name) for r in self.map if r.access == "counter"}

    def wait(
        self, name: str, timeout: float = 1.0, *, pause: float = 0.0, **values: int
    ) -> dict[str, int]:
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

    def __init__(self, read: Callable, write: Callable, **options: Any) -> None:
        super().__init__(inline.REGISTERS, read, write, **options)

    def configure(self, settings: inline.InlineSettings) -> None:
        """Write all of an `InlineSettings`; the mode goes on last and off first.

        `CardGone` if no card has taken them.
        """
        words = settings.words()
        self.write("control", 0)
        for name, word in words.items():
            if name != "control":
                self.write(name, word)
        self.write("control", words["control"])
        self.check()

    def settings(self) -> inline.InlineSettings:
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
            jobs=frozenset(j for j in range(inline.N_JOBS) if jobs[j // 32] >> j % 32 & 1),
        )
