"""What a preset takes on parts of AMD and Intel, by Yosys: cost, levels of logic, fan-out.

It is the file that `gradnic verilog --family` writes that is synthesized, out of context. Neither
vendor's tool is here: Yosys counts cells and levels as it maps them, and says nothing of clocks.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from importlib import resources
from pathlib import Path

from gradnic.hdl.primitive.target import Target
from gradnic.hdl.top import catalog, verilog

from gradnic.interface import params
from gradnic.output import write_whole

from . import tools

FAMILIES = ("xilinx", "intel")
FILE = Path(str(resources.files(__package__) / "vendors.json"))
KEYS = ("preset", "family", "lut", "ff", "bram36", "uram", "dsp", "levels", "max_fanout")
KEYS += ("memories_in_ff",)
MARGIN, SLACK = 0.03, 8  # of LUT and FF, as in `baseline`
SYNTH = {  # up to where Yosys makes flip-flops of what memory is left, and from there
    "xilinx": "synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top {top}",
    "intel": "synth_intel_alm -family cyclonev -noiopad -noclkbuf -top {top}",
}
SCRIPT = """
read_verilog {top}.v
setattr -set fsm_encoding "one-hot" a:fsm_encoding=one_hot
{synth} -run begin:map_ffram
tee -q -o memories.txt select -list t:$mem*
{synth} -run map_ffram:
write_json partial.json
"""
COST = {  # cell: (figure, how much of it)
    **{f"LUT{k}": ("lut", 1) for k in range(1, 7)},
    **{"SRL16E": ("lut", 1), "SRLC32E": ("lut", 1), "RAM32M": ("lut", 4), "RAM64M": ("lut", 4)},
    **{"RAM32M16": ("lut", 8), "RAM64M8": ("lut", 8), "RAM64X8SW": ("lut", 8)},
    **{"RAM32X1D": ("lut", 2), "RAM64X1D": ("lut", 2), "RAM128X1D": ("lut", 4)},
    **{"RAM64X1S": ("lut", 1), "RAM32X1S": ("lut", 1), "RAM256X1D": ("lut", 8)},
    **dict.fromkeys(("FDRE", "FDSE", "FDCE", "FDPE"), ("ff", 1)),
    **{"RAMB36E2": ("bram36", 1), "RAMB18E2": ("bram36", 0.5), "URAM288": ("uram", 1)},
    **{"DSP48E2": ("dsp", 1)},
    **{f"MISTRAL_ALUT{k}": ("lut", 1) for k in range(2, 7)},
    **{"MISTRAL_ALUT_ARITH": ("lut", 1), "MISTRAL_MLAB": ("lut", 1), "MISTRAL_FF": ("ff", 1)},
    **{"MISTRAL_M10K": ("bram36", 10 / 36), "MISTRAL_MUL27X27": ("dsp", 1)},
    **{"MISTRAL_MUL18X18": ("dsp", 0.5), "MISTRAL_MUL9X9": ("dsp", 1 / 3)},
}
_FREE = re.compile(r"INV|MUXF\d|MISTRAL_NOT|IBUF|OBUF")  # a slice has them beside its LUT
_LOGIC = re.compile(r"LUT\d|CARRY\d|MISTRAL_ALUT")
_MEMORY = re.compile(r"RAM\d+[MX]|MISTRAL_MLAB")
_READ = re.compile(r"ADDR[A-G]\d?|DPRA\d?|A\d?|B1ADDR.*")
_CLOCKS = ("C", "CLK", "WCLK", "CLKARDCLK", "CLKBWRCLK", "CLK1", "CLK0", "CLKIN")


def synthesize(preset, family, *, folder="build/synth", progress=None):
    """Figures of `KEYS` of a preset for "xilinx" (UltraScale+) or "intel" (Cyclone V).

    ``lut``: LUTs, those of LUT RAM and shift registers included. ``bram36``: 36 kbit, an M10K of
    Intel's being 10 of them. ``levels``: LUTs, reads of LUT RAM and carry chains in a row from
    register to register. ``max_fanout``: pins on one net, clock and the reset port left out.
    ``memories_in_ff``: memories that found no place but flip-flops.
    """
    if family not in FAMILIES:
        raise ValueError(f"family must be {' or '.join(FAMILIES)}, not {family!r}")
    say = progress or (lambda text: None)
    say(f"{preset}: Verilog for {family}")
    text = verilog.convert(catalog.build(params.preset(preset)), preset, platform=Target(family))
    return of_text(text, preset, family, folder=folder, progress=say)


def of_text(text, top, family, *, folder="build/synth", progress=print):
    """`synthesize` for Verilog that is there; `top` is its module."""
    script = SCRIPT.format(top=top, synth=SYNTH[family].format(top=top))
    key = hashlib.sha256(f"{tools.release('yosys')}\n{script}\n{text}".encode()).hexdigest()[:16]
    home = Path(folder) / f"{top}-{family}-{key}"
    if not (home / "result.json").exists():
        home.mkdir(parents=True, exist_ok=True)
        (home / f"{top}.v").write_text(text)
        (home / "synth.ys").write_text(script)
        progress(f"{top}: Yosys for {family}")
        tools.run(["yosys", "-q", "-l", "yosys.log", "-s", "synth.ys"], home, made="partial.json")
        netlist = json.loads((home / "partial.json").read_text())["modules"][top]
        memories = (home / "memories.txt").read_text().split()
        result = {"preset": top, "family": family} | figures(netlist, len(memories))
        write_whole(home / "result.json", json.dumps(result))
        (home / "partial.json").unlink()
    return json.loads((home / "result.json").read_text())


def figures(netlist, memories_in_ff):
    """The figures of a mapped netlist (Yosys JSON, one module)."""
    total = Counter()
    for cell in netlist["cells"].values():
        kind, n = COST.get(cell["type"], (None, 0))
        total[kind] += n
    cost = {key: round(total[key], 1) for key in ("lut", "ff", "bram36", "uram", "dsp")}
    return cost | {
        "levels": levels(netlist),
        "max_fanout": max_fanout(netlist),
        "memories_in_ff": memories_in_ff,
    }


def max_fanout(netlist):
    """The most input pins on one net that is neither clock nor the port ``rst``."""
    pins = Counter()
    for cell in netlist["cells"].values():
        for pin, bits in cell["connections"].items():
            if cell["port_directions"].get(pin) == "input" and pin not in _CLOCKS:
                pins.update(bit for bit in bits if isinstance(bit, int))
    for bit in netlist["ports"].get("rst", {"bits": ()})["bits"]:
        del pins[bit]
    return max(pins.values(), default=0)


def levels(netlist):
    """The most LUTs, LUT RAM reads and carry chains in a row between registers and ports."""
    users, waits, cells = defaultdict(list), {}, netlist["cells"]
    drivers = {}
    for name, cell in cells.items():
        if _weight(cell["type"]) is not None:
            for pin, bits in cell["connections"].items():
                if cell["port_directions"].get(pin) == "output":
                    drivers |= {bit: name for bit in bits if isinstance(bit, int)}
    for name, cell in cells.items():
        if (weight := _weight(cell["type"])) is None:
            continue
        memory, before = _MEMORY.match(cell["type"]), set()
        for pin, bits in cell["connections"].items():
            if cell["port_directions"].get(pin) != "input" or (memory and not _READ.fullmatch(pin)):
                continue
            step = 0 if pin == "CI" else weight
            before |= {(drivers[bit], step) for bit in bits if bit in drivers}
        waits[name] = len(before)
        for driver, step in before:
            users[driver].append((name, step))
    depth = {name: _weight(cells[name]["type"]) for name in waits}
    ready = [name for name, n in waits.items() if n == 0]
    while ready:
        name = ready.pop()
        for user, step in users[name]:
            depth[user] = max(depth[user], depth[name] + step)
            waits[user] -= 1
            if waits[user] == 0:
                ready.append(user)
    if any(waits.values()):
        raise ValueError(f"{sum(n > 0 for n in waits.values())} cells are part of a loop")
    return max(depth.values(), default=0)


def _weight(kind):
    """Levels that a cell adds, or None if its outputs come from registers."""
    if _FREE.fullmatch(kind):
        return 0
    return 1 if _LOGIC.match(kind) or _MEMORY.match(kind) else None


def name(result):
    """Key of a result in `FILE`."""
    return f"{result['preset']} {result['family']}"


def load():
    """What is recorded, {`name`: figures}."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def record(results):
    """Put results into `FILE`, one a line, sorted."""
    recorded = dict(sorted((load() | {name(r): r for r in results}).items()))
    lines = (f"  {json.dumps(key)}: {json.dumps(entry)}" for key, entry in recorded.items())
    write_whole(FILE, "{\n" + ",\n".join(lines) + "\n}\n")


def compare(result, recorded):
    """What is worse in `result` than what is recorded under its name: a list of lines.

    LUT and FF may grow by `MARGIN` and `SLACK`, fan-out by as much; nothing else may.
    """
    old, worse = recorded[name(result)], []
    for key in KEYS[2:]:
        loose = key in ("lut", "ff", "max_fanout")
        if result[key] > old[key] * (1 + MARGIN * loose) + SLACK * loose:
            worse.append(f"{name(result)}: {key} {result[key]}, above {old[key]}")
    return worse
