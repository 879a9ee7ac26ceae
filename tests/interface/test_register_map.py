"""Register maps: what they refuse, and that page, header and numbers say the same."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gradnic.interface.inline import REGISTERS
from gradnic.interface.register_map import (
    BitField,
    Register,
    RegisterMap,
    Window,
    c_header,
    markdown,
)

EXAMPLE = RegisterMap(
    "demo",
    "registers of every kind, with gaps between them",
    (
        Register("identity", 0x00, "ro", "what this is", (BitField("magic", 0, 32, "constant"),)),
        Register(
            "control",
            0x04,
            "rw",
            "switches | and bounds",
            (
                BitField("enable", 0, 1, "codes marked frames", reset=1),
                BitField("exponent", 4, 7, "E of the bound", reset=117),
                BitField("prescale", 12, 8, "PS", reset=-2, signed=True),
            ),
        ),
        Register("scratch", 0x0C, "rw", "any word", (BitField("value", 0, 32, "any"),)),
        Register(
            "events",
            0x10,
            "w1c",
            "what happened",
            (BitField("overrun", 0, 1, "store full"), BitField("causes", 14, 4, "by reason")),
        ),
        Register("frames", 0x14, "counter", "frames"),
        Register("octets", 0x18, "counter", "bytes", width=64, step_width=7),
        Register("tail", 0x40, "rw", "last word", (BitField("value", 0, 32, "any"),)),
    ),
    (Window("words", 0x100, 0x80, "memory"),),
)


def test_places():
    assert EXAMPLE.n_bytes == 0x44
    assert EXAMPLE.address_width == 7
    assert EXAMPLE["control"].reset == 1 | 117 << 4 | 0xFE << 12
    with pytest.raises(KeyError, match="demo has no register 'polish'"):
        EXAMPLE["polish"]
    assert EXAMPLE.window("words").n_bytes == 0x80
    with pytest.raises(KeyError, match="demo has no window 'polish'"):
        EXAMPLE.window("polish")


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (("tail", 0x100, 4, "x"), "demo has a register and a window 'tail'"),
        (("words", 0x40, 4, "x"), "words at 0x40 overlaps what is before it"),
        (("words", 0x102, 4, "x"), "offset of words must be a multiple of 4, not 258"),
        (("words", 0x100, 0, "x"), "n_bytes of words must be a multiple of 4, not 0"),
    ],
)
def test_windows_that_do_not_fit(window, said):
    with pytest.raises(ValueError, match=said):
        RegisterMap("demo", EXAMPLE.doc, EXAMPLE.registers, (Window(*window),))


def test_header_compiles_and_holds_the_map(tmp_path):
    compiler = shutil.which("gcc") or shutil.which("g++")  # g++ is what the suite asks for
    (tmp_path / "demo.h").write_text(c_header(EXAMPLE))
    names = {f"GRADNIC_DEMO_{r.name.upper()}": r.offset for r in EXAMPLE}
    names["GRADNIC_DEMO_BYTES"] = 0x44
    names |= {"GRADNIC_DEMO_WORDS": 0x100, "GRADNIC_DEMO_WORDS_BYTES": 0x80}
    names["GRADNIC_DEMO_OCTETS_HIGH"] = 0x1C
    names["GRADNIC_DEMO_CONTROL_RESET"] = 0x000FE751
    names["GRADNIC_DEMO_CONTROL_PRESCALE_MASK"] = 0x000FF000
    names["GRADNIC_DEMO_CONTROL_PRESCALE_SHIFT"] = 12
    names["GRADNIC_DEMO_EVENTS_CAUSES_MASK"] = 0x0003C000
    prints = "\n".join(f'    printf("%lu\\n", (unsigned long){name});' for name in names)
    source = tmp_path / "demo.c"
    source.write_text(
        f'#include <stdio.h>\n#include "demo.h"\n#include "demo.h"\n\n'
        f"int main(void) {{\n{prints}\n    return 0;\n}}\n"
    )
    for language in (["c", "-std=c89"], ["c", "-std=c17"], ["c++", "-std=c++17"]):
        if language[0] == "c" and not compiler.endswith("gcc"):
            continue  # a C++ compiler alone can judge only the C++ reading
        subprocess.run(
            [
                compiler,
                "-x",
                *language,
                "-Wall",
                "-Wextra",
                "-pedantic",
                "-Werror",
                "-c",
                "-o",
                tmp_path / "demo.o",
                source,
            ],
            check=True,
        )
        subprocess.run([compiler, "-o", tmp_path / "demo", tmp_path / "demo.o"], check=True)
        printed = subprocess.run([tmp_path / "demo"], check=True, capture_output=True, text=True)
        assert list(map(int, printed.stdout.split())) == list(names.values())


def test_page_lists_every_register_and_field():
    page = markdown(EXAMPLE)
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert r"| 0x004 | control | rw | 32 | 0x000FE751 | switches \| and bounds |" in rows
    assert "| 0x018 | octets | counter | 64 | 0 | bytes |" in rows
    assert "| 0x010 | events | w1c | 32 | 0 | what happened |" in rows
    assert "| control | 19:12 | prescale | -2 | PS, two's complement |" in rows
    assert "| events | 0 | overrun |  | store full |" in rows
    assert "| 0x00100 | words | 0x80 | memory |" in rows
    for register in EXAMPLE:
        assert sum(row.startswith(f"| 0x{register.offset:03X} |") for row in rows) == 1
        for field in register.fields:
            assert sum(f"| {register.name} |" in r and f"| {field.name} |" in r for r in rows) == 1


def manual(language):
    """The code block of a language in the manual."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "registers.md").read_text()
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)
    return block


def test_program_of_the_manual(tmp_path):
    (tmp_path / "card_registers.h").write_text(c_header(REGISTERS))
    (tmp_path / "main.c").write_text(manual("c"))
    flags = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
    compiler = ["gcc"] if shutil.which("gcc") else ["g++", "-x", "c++"]
    subprocess.run([*compiler, *flags, "-o", "main", "main.c"], check=True, cwd=tmp_path)
    run = subprocess.run([tmp_path / "main"], check=True, capture_output=True, text=True)
    assert run.stdout == "00000077 0\n"


def test_map_of_the_manual():
    run = subprocess.run(
        [sys.executable, "-c", manual("python")], check=True, capture_output=True, text=True
    )
    assert "| events | 3 | overrun |  | store was full |" in run.stdout
    assert "#define GRADNIC_PORT_OCTETS_HIGH 0xCu" in run.stdout


def word(**changes):
    arguments = {"name": "word", "offset": 0, "access": "rw", "doc": "a word"}
    return Register(**arguments | {"fields": (BitField("value", 0, 32, "any"),)} | changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: word(offset=6), "offset of word must be a multiple of 4, not 6"),
        (lambda: word(access="wo"), "access of word must be one of rw, ro, w1c, counter, not 'wo'"),
        (lambda: word(name="Word"), "register name must be lower-case words joined by _, not 'Wo"),
        (lambda: word(doc="two\nlines"), "doc of word must be one line without"),
        (lambda: word(fields=()), "word: counters have no fields, other registers at least one"),
        (lambda: word(access="counter"), "counters have no fields"),
        (lambda: word(width=64), "width of word must be 32, or 64 for a counter, not 64"),
        (lambda: word(step_width=0), "step_width of word must be 1 to 32, not 0"),
        (lambda: word(fields=(BitField("a", 0, 4, "a"), BitField("b", 3, 2, "b"))), "word.b over"),
        (lambda: word(fields=(BitField("a", 0, 4, "a"), BitField("a", 8, 2, "b"))), "of one name"),
        (lambda: BitField("a", 30, 3, "a"), "a must lie in bits 0 to 31, not 30 to 32"),
        (lambda: BitField("a", 0, 3, "a", reset=8), "reset of a must fit 3 bits, not 8"),
        (lambda: BitField("a", 0, 3, "a", reset=4, signed=True), "must fit 3 bits, not 4"),
        (lambda: RegisterMap("m", "m", ()), "m has no registers"),
        (lambda: RegisterMap("m", "m", (word(), word(offset=4))), "two registers of one name"),
        (lambda: RegisterMap("m", "m", (word(), word(name="b"))), "b at 0x0 overlaps"),
        (lambda: RegisterMap("m", "m", (word(name="bus"),)), "must not be named 'bus'"),
    ],
)
def test_refusals_name_the_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()
