"""Register maps as data, and what is written from them: a Markdown page and a C header.

The circuit of a map is `gradnic.hdl.axi.register_bank.RegisterBank`. Software sees 32-bit words at
byte offsets that are multiples of 4; reserved words and bits read 0 and ignore writes.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

WORD_BITS = 32
WORD_BYTES = 4
ACCESSES = {
    "rw": "read and write; byte strobes are honored",
    "ro": "read only; follows the circuit",
    "w1c": "sticky: set by the circuit, a 1 written clears the bit; an event in that cycle wins",
    "counter": "read only; wraps at 2^width; cleared by reset alone. Of 64 bits, reading the low "
    "word holds the high word for the read that follows",
}


def _check_name(name: str, what: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise ValueError(f"{what} must be lower-case words joined by _, not {name!r}")


def _check_doc(doc: str, what: str) -> None:
    if not doc or "\n" in doc or "*/" in doc:
        raise ValueError(f"doc of {what} must be one line without */, not {doc!r}")


@dataclass(frozen=True)
class BitField:
    """`width` bits of a register from bit `lsb`; `reset` counts for access rw alone.

    takes : the values that the hardware works with, all that fit if None.
    """

    name: str
    lsb: int
    width: int
    doc: str
    reset: int = 0
    signed: bool = False
    takes: range | None = None

    def __post_init__(self) -> None:
        _check_name(self.name, "field name")
        _check_doc(self.doc, self.name)
        if self.width < 1 or self.lsb < 0 or self.lsb + self.width > WORD_BITS:
            raise ValueError(
                f"{self.name} must lie in bits 0 to 31, not {self.lsb} to "
                f"{self.lsb + self.width - 1}"
            )
        lowest = -(1 << self.width - 1) if self.signed else 0
        if not lowest <= self.reset < lowest + (1 << self.width):
            raise ValueError(f"reset of {self.name} must fit {self.width} bits, not {self.reset!r}")

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and the highest value that may be written."""
        if self.takes is not None:
            return self.takes[0], self.takes[-1]
        lowest = -(1 << self.width - 1) if self.signed else 0
        return lowest, lowest + (1 << self.width) - 1

    @property
    def mask(self) -> int:
        """The field's bits within the word."""
        return (1 << self.width) - 1 << self.lsb


@dataclass(frozen=True)
class Register:
    """One word, or a 64-bit counter of two words (low word first).

    Attributes
    ----------
    name : str
    offset : int
        Bytes from the start of the map, a multiple of 4.
    access : str
        ``rw``, ``ro``, ``w1c`` or ``counter``, see `ACCESSES`.
    doc : str
    fields : tuple of BitField
        At least one, except for counters, which have none.
    width : int
        Counters: 32 or 64 bits.
    step_width : int
        Counters: bits of the amount added per cycle, 1 to 32; 1 counts pulses.
    """

    name: str
    offset: int
    access: str
    doc: str
    fields: tuple[BitField, ...] = ()
    width: int = WORD_BITS
    step_width: int = 1

    def __post_init__(self) -> None:
        _check_name(self.name, "register name")
        _check_doc(self.doc, self.name)
        if self.access not in ACCESSES:
            raise ValueError(
                f"access of {self.name} must be one of {', '.join(ACCESSES)}, not {self.access!r}"
            )
        if self.offset < 0 or self.offset % WORD_BYTES:
            raise ValueError(f"offset of {self.name} must be a multiple of 4, not {self.offset!r}")
        if (self.access == "counter") == bool(self.fields):
            raise ValueError(f"{self.name}: counters have no fields, other registers at least one")
        if self.width not in (32, 64) or (self.width == 64 and self.access != "counter"):
            raise ValueError(
                f"width of {self.name} must be 32, or 64 for a counter, not {self.width!r}"
            )
        if not 1 <= self.step_width <= WORD_BITS:
            raise ValueError(f"step_width of {self.name} must be 1 to 32, not {self.step_width!r}")
        taken = 0
        for field in self.fields:
            if taken & field.mask:
                raise ValueError(f"{self.name}.{field.name} overlaps another field")
            taken |= field.mask
        if len({field.name for field in self.fields}) != len(self.fields):
            raise ValueError(f"{self.name} has two fields of one name")

    @property
    def n_words(self) -> int:
        """Words of the map that the register takes."""
        return self.width // WORD_BITS

    @property
    def n_reserved(self) -> int:
        """Bits that are in no field and read 0; 0 for counters, which have none."""
        return 0 if self.access == "counter" else WORD_BITS - sum(f.width for f in self.fields)

    @property
    def reset(self) -> int:
        """Word read after reset, for access rw; the others start from 0 or follow the circuit."""
        return sum(field.reset << field.lsb & field.mask for field in self.fields)


def placed(name: str, offset: int, doc: str, *fields: tuple, access: str = "rw") -> Register:
    """A register of fields as `BitField` takes them: (name, lsb, width, doc, …)."""
    return Register(name, offset, access, doc, tuple(BitField(*field) for field in fields))


def packed(name: str, offset: int, doc: str, *fields: tuple, access: str = "rw") -> Register:
    """A register whose fields follow each other from bit 0: as in `placed`, without lsb."""
    low, bits = 0, []
    for field, width, *rest in fields:
        bits.append((field, low, width, *rest))
        low += width
    return placed(name, offset, doc, *bits, access=access)


def counters(offset: int, rows: Iterable[tuple], step_width: int = 1) -> list[Register]:
    """Counters, a word each: (name, doc), or (name, doc, step_width) where it is another."""
    return [
        Register(name, offset + WORD_BYTES * k, "counter", doc, step_width=(*own, step_width)[0])
        for k, (name, doc, *own) in enumerate(rows)
    ]


@dataclass(frozen=True)
class Window:
    """`n_bytes` of memory from `offset` on, behind the registers; the bank has no part in it."""

    name: str
    offset: int
    n_bytes: int
    doc: str

    def __post_init__(self) -> None:
        _check_name(self.name, "window name")
        _check_doc(self.doc, self.name)
        for what, value in (("offset", self.offset), ("n_bytes", self.n_bytes)):
            if value < WORD_BYTES or value % WORD_BYTES:
                raise ValueError(f"{what} of {self.name} must be a multiple of 4, not {value!r}")


@dataclass(frozen=True)
class RegisterMap:
    """A named set of registers, sorted by offset, none overlapping, and windows behind them."""

    name: str
    doc: str
    registers: tuple[Register, ...]
    windows: tuple[Window, ...] = ()

    def __post_init__(self) -> None:
        _check_name(self.name, "map name")
        _check_doc(self.doc, self.name)
        if not self.registers:
            raise ValueError(f"{self.name} has no registers")
        if len({register.name for register in self.registers}) != len(self.registers):
            raise ValueError(f"{self.name} has two registers of one name")
        stop = 0
        for register in self.registers:
            if register.name == "bus":
                raise ValueError("a register must not be named 'bus': that is the bank's port")
            if register.offset < stop:
                raise ValueError(
                    f"{register.name} at {register.offset:#x} overlaps the register before it, "
                    f"or the map is not sorted"
                )
            stop = register.offset + WORD_BYTES * register.n_words
        for window in self.windows:
            if window.name in {register.name for register in self.registers}:
                raise ValueError(f"{self.name} has a register and a window {window.name!r}")
            if window.offset < stop:
                raise ValueError(
                    f"{window.name} at {window.offset:#x} overlaps what is before it, "
                    f"or the map is not sorted"
                )
            stop = window.offset + window.n_bytes

    @cached_property
    def n_bytes(self) -> int:
        """Bytes from offset 0 to the end of the last register."""
        return self.registers[-1].offset + WORD_BYTES * self.registers[-1].n_words

    @cached_property
    def address_width(self) -> int:
        """Fewest address bits that reach every register."""
        return max(2, (self.n_bytes - 1).bit_length())

    def __getitem__(self, name: str) -> Register:
        for register in self.registers:
            if register.name == name:
                return register
        raise KeyError(f"{self.name} has no register {name!r}")

    def window(self, name: str) -> Window:
        """The window of a name; KeyError if there is none."""
        for window in self.windows:
            if window.name == name:
                return window
        raise KeyError(f"{self.name} has no window {name!r}")

    def __iter__(self) -> Iterator[Register]:
        return iter(self.registers)


def _bits(field: BitField) -> str:
    top = field.lsb + field.width - 1
    return f"{top}:{field.lsb}" if field.width > 1 else str(top)


def _reset(register: Register) -> str:
    return {"rw": f"0x{register.reset:08X}", "ro": "live"}.get(register.access, "0")


def markdown(register_map: RegisterMap) -> str:
    """The map as a Markdown page: one table of registers, one of fields."""

    def cell(text: str) -> str:
        return text.replace("|", r"\|")

    lines = [
        f"# Registers of {register_map.name}",
        "",
        cell(register_map.doc),
        "",
        f"32-bit words, little-endian, {register_map.n_bytes} bytes. Reserved words and bits read "
        "0 and ignore writes; every access is answered with OKAY. The two lowest address bits are "
        "ignored.",
        "",
        "| offset | register | access | bits | reset | meaning |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for r in register_map:
        row = (f"0x{r.offset:03X}", r.name, r.access, r.width, _reset(r), cell(r.doc))
        lines.append("| " + " | ".join(map(str, row)) + " |")
    lines += ["", "| access | means |", "| --- | --- |"]
    used = {r.access for r in register_map}
    lines += [f"| {name} | {text} |" for name, text in ACCESSES.items() if name in used]
    fields = [(r, f) for r in register_map for f in r.fields]
    if fields:
        lines += [
            "",
            "## Fields",
            "",
            "| register | bits | field | reset | meaning |",
            "| --- | --- | --- | --- | --- |",
        ]
        for r, f in fields:
            reset = f.reset if r.access == "rw" else ""
            sign = ", two's complement" if f.signed else ""
            lines.append(f"| {r.name} | {_bits(f)} | {f.name} | {reset} | {cell(f.doc)}{sign} |")
    if register_map.windows:
        lines += ["", "## Windows", "", "| offset | window | bytes | meaning |"]
        lines += ["| --- | --- | --- | --- |"]
        lines += [
            f"| 0x{w.offset:05X} | {w.name} | 0x{w.n_bytes:X} | {cell(w.doc)} |"
            for w in register_map.windows
        ]
    return "\n".join(lines) + "\n"


def c_header(register_map: RegisterMap, *, prefix: str = "GRADNIC") -> str:
    """The map as a C header (C89 and later, C++): offsets in bytes, masks and shifts.

    ``<PREFIX>_<MAP>_<REGISTER>`` is the offset, with ``_<FIELD>_MASK`` and ``_<FIELD>_SHIFT``
    for fields, ``_RESET`` for writable registers and ``_HIGH`` for the upper half of a counter;
    ``_BYTES`` is the size of a window, and of all registers.
    """
    stem = f"{prefix}_{register_map.name}".upper()
    lines = [
        f"/* Registers of {register_map.name}: {register_map.doc}",
        " * Offsets in bytes; 32-bit words. Written by gradnic. */",
        f"#ifndef {stem}_H",
        f"#define {stem}_H",
        "",
        f"#define {stem}_BYTES 0x{register_map.n_bytes:X}u",
    ]
    for r in register_map:
        name = f"{stem}_{r.name}".upper()
        lines += ["", f"/* {r.access}: {r.doc} */", f"#define {name} 0x{r.offset:X}u"]
        if r.n_words == 2:
            lines.append(f"#define {name}_HIGH 0x{r.offset + WORD_BYTES:X}u")
        if r.access == "rw":
            lines.append(f"#define {name}_RESET 0x{r.reset:08X}u")
        for f in r.fields:
            field = f"{name}_{f.name}".upper()
            lines += [
                f"#define {field}_MASK 0x{f.mask:08X}u /* {f.doc} */",
                f"#define {field}_SHIFT {f.lsb}",
            ]
    for w in register_map.windows:
        name = f"{stem}_{w.name}".upper()
        lines += ["", f"/* window: {w.doc} */", f"#define {name} 0x{w.offset:X}u"]
        lines.append(f"#define {name}_BYTES 0x{w.n_bytes:X}u")
    return "\n".join([*lines, "", f"#endif /* {stem}_H */", ""])
