"""What a preset takes on parts of AMD and Intel, by Yosys: cost, levels of logic, fan-out.

It is the file that `gradnic verilog --family` writes that is synthesized, out of context. Neither
vendor's tool is here: Yosys counts cells and levels as it maps them, and says nothing of clocks.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

from gradnic.hdl.primitive.target import Target
from gradnic.hdl.top import catalog, verilog

from gradnic.interface import params
from gradnic.output import write_whole

from . import hierarchy, tools

FAMILIES = ("xilinx", "intel")
FILE = Path(str(resources.files(__package__) / "vendors.json"))
KEYS = ("preset", "family", "lut", "ff", "bram36", "uram", "dsp", "levels", "max_fanout")
KEYS += ("memories_in_ff",)
EXTRAS = ("units", "yosys", "date")  # what is recorded besides
MOST_LEVELS, MOST_LOADS = 8, 1000  # above which ways and nets are named
MARGIN, SLACK = 0.03, 8  # of LUT and FF, as in `baseline`
BATCH = 15_000  # lines of Verilog that one run of Yosys takes
SYNTH = {  # up to where Yosys makes flip-flops of what memory is left, and from there
    "xilinx": "synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top batch",
    "intel": "synth_intel_alm -family cyclonev -noiopad -noclkbuf -top batch",
}
SCRIPT = """
read_verilog batch.v
setattr -set fsm_encoding "one-hot" a:fsm_encoding=one_hot
setattr -mod -set keep_hierarchy 1 {units}
{synth} -run begin:map_ffram
tee -q -o memories.txt select -list t:$mem*
{synth} -run map_ffram:
select {units}
write_json -selected partial.json
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

    preset : str, its name, and changes behind it: ``jobs128+maxima=1+queues=8``.

    ``lut``: LUTs, those of LUT RAM and shift registers included. ``bram36``: 36 kbit, an M10K of
    Intel's being 10 of them. ``levels``: LUTs, reads of LUT RAM and carry chains in a row from
    register to register. ``max_fanout``: pins on one net, clock and the reset port left out.
    ``memories_in_ff``: memories that found no place but flip-flops. Besides, ``units``: parts that
    were mapped by themselves, see `hierarchy`; ``deep``: [levels, from, to] of ways of more than
    `MOST_LEVELS`, one an end; ``wide``: [pins, net] of nets of more than `MOST_LOADS`; ``parts``,
    see `parts`; ``yosys`` and ``date``.
    """
    if family not in FAMILIES:
        raise ValueError(f"family must be {' or '.join(FAMILIES)}, not {family!r}")
    say = progress or (lambda text: None)
    say(f"{preset}: Verilog for {family}")
    name, text = preset.split("+")[0], _text(preset, family)
    return of_text(text, name, family, folder=folder, progress=say) | {"preset": preset}


def parameters(name):
    """Parameters of a preset with changes, ``jobs128+maxima=1``; errors as of `params.preset`."""
    preset, *changes = name.split("+")
    return params.preset(preset, changes)


def _text(name, family):
    top = catalog.build(parameters(name))
    return verilog.convert(top, name.split("+")[0], platform=Target(family))


def of_text(text, top, family, *, folder="build/synth", progress=print):
    """`synthesize` for Verilog that is there; `top` is its module."""
    design = hierarchy.Design(text, top)
    mapped = map_units(design, family, folder=folder, progress=lambda t: progress(f"{top}: {t}"))
    progress(f"{top}: levels and fan-out")
    netlist = hierarchy.flat(mapped, design.top)
    in_ff = sum(mapped[unit]["memories_in_ff"] * n for unit, n in design.times.items())
    return (
        {"preset": top, "family": family}
        | figures(netlist, in_ff)
        | {
            "units": len(mapped),
            "parts": parts(mapped, design.top),
            "deep": deep(netlist),
            "wide": wide(netlist),
            "yosys": mapped[design.top]["yosys"],
            "date": datetime.now(UTC).date().isoformat(),
        }
    )


def map_units(design, family, *, folder="build/synth", progress=print):
    """{unit: `hierarchy.compact` of it, ``memories_in_ff`` and ``yosys``} of a `hierarchy.Design`.

    A unit that has been mapped before is taken from `folder`.
    """
    texts, files, waiting = {}, {}, []
    rule = f"{tools.release('yosys')}\n{SCRIPT}\n{SYNTH[family]}"
    for unit in design.units:
        modules, stubs = texts[unit] = design.text(unit)
        whole = "\n".join((rule, *modules.values(), *stubs.values()))
        key = hashlib.sha256(whole.encode()).hexdigest()[:16]
        files[unit] = Path(folder) / "units" / f"{family}-{key}.json"
        if not files[unit].exists():
            waiting.append(unit)
    total, lines = len(waiting), lambda unit: sum(m.count("\n") for m in texts[unit][0].values())
    while waiting := [unit for unit in waiting if not files[unit].exists()]:  # others map, too
        batch, room = waiting[:1], BATCH - lines(waiting[0])
        for unit in waiting[1:]:
            if (room := room - lines(unit)) < 0:
                break
            batch.append(unit)
        first = total - len(waiting) + 1
        progress(f"Yosys for {family}, unit {first} to {first + len(batch) - 1} of {total}")
        for unit, entry in _batch({unit: texts[unit] for unit in batch}, family, folder).items():
            files[unit].parent.mkdir(parents=True, exist_ok=True)
            write_whole(files[unit], json.dumps(entry))
    return {unit: json.loads(file.read_text()) for unit, file in files.items()}


def _batch(texts, family, folder):
    """Map units side by side: a top that nobody keeps instantiates each of them."""
    script = SCRIPT.format(units=" ".join(texts), synth=SYNTH[family])
    modules, stubs = {}, {}
    for inner, outer in texts.values():
        modules |= inner
        stubs |= outer
    stubs = {unit: stub for unit, stub in stubs.items() if unit not in modules}
    lines = [f"(* keep *) {unit} unit{k} ();" for k, unit in enumerate(texts)]
    text = "\n".join((*stubs.values(), *modules.values(), "module batch();", *lines, "endmodule\n"))
    key = hashlib.sha256(f"{script}\n{text}".encode()).hexdigest()[:16]
    home = Path(folder) / f"batch-{family}-{key}"
    home.mkdir(parents=True, exist_ok=True)
    (home / "batch.v").write_text(text)
    (home / "synth.ys").write_text(script)
    tools.run(["yosys", "-q", "-l", "yosys.log", "-s", "synth.ys"], home, made="partial.json")
    made = json.loads((home / "partial.json").read_text())
    netlist, release = made["modules"], made["creator"].split(" (")[0].removeprefix("Yosys ")
    left = Counter(line.split("/")[0] for line in (home / "memories.txt").read_text().split())
    (home / "partial.json").unlink()
    return {
        unit: hierarchy.compact(netlist[unit]) | {"memories_in_ff": left[unit], "yosys": release}
        for unit in texts
    }


def parts(mapped, top):
    """{path of a unit below the top: `_cost` of it and all below it}; mapped as of `map_units`."""
    found = {}

    def total(unit, path):
        kinds = Counter(kind for kind, _, _ in mapped[unit]["cells"] if kind not in mapped)
        for kind, _, name in mapped[unit]["cells"]:
            if kind in mapped:
                kinds += total(kind, f"{path}{name}.")
        found[path[:-1]] = _cost(kinds)
        return kinds

    total(top, "")
    return dict(sorted(found.items()))


def _cost(kinds):
    total = Counter()
    for cell, n in kinds.items():
        kind, each = COST.get(cell, (None, 0))
        total[kind] += n * each
    return {key: round(total[key], 1) for key in ("lut", "ff", "bram36", "uram", "dsp")}


def figures(netlist, memories_in_ff):
    """The figures of a mapped netlist (Yosys JSON, one module, or `hierarchy.flat`)."""
    cost = _cost(Counter(cell["type"] for cell in netlist["cells"].values()))
    return cost | {
        "levels": levels(netlist),
        "max_fanout": max_fanout(netlist),
        "memories_in_ff": memories_in_ff,
    }


def max_fanout(netlist):
    """The most input pins on one net that is neither clock nor the port ``rst``."""
    return max(_pins(netlist).values(), default=0)


def _pins(netlist):
    """{net: input pins on it}, clocks and the port ``rst`` left out."""
    pins = Counter()
    for cell in netlist["cells"].values():
        for pin, bits in cell["connections"].items():
            if cell["port_directions"].get(pin) == "input" and pin not in _CLOCKS:
                pins.update(bit for bit in bits if isinstance(bit, int))
    for bit in netlist["ports"].get("rst", {"bits": ()})["bits"]:
        del pins[bit]
    return pins


def wide(netlist, most=MOST_LOADS):
    """[(pins, name)] of nets with more than `most`, of a `hierarchy.flat`, widest first.

    A net without a name is called by the unit whose logic drives it.
    """
    found = [(n, bit) for bit, n in _pins(netlist).items() if n > most]
    names, drivers = netlist["names"], _drivers(netlist["cells"]) if found else {}

    def name(bit):
        unit = drivers.get(bit, "").split("$")[0].rstrip(".")
        return names.get(bit) or f"logic in {unit or 'the top'}"

    return [(n, name(bit)) for n, bit in sorted(found)[::-1]]


def levels(netlist):
    """The most LUTs, LUT RAM reads and carry chains in a row between registers and ports."""
    return max(_depths(netlist)[0].values(), default=0)


def deep(netlist, most=MOST_LEVELS):
    """[(levels, from, to)] of ends with more than `most` levels in front of them, deepest first.

    One a vector of registers; of a `hierarchy.flat`, whose names it gives.
    """
    (depth, before), names, cells = _depths(netlist), netlist["names"], netlist["cells"]
    drivers, ends = _drivers(cells), []
    for name, cell in cells.items():
        inputs, outputs = _sides(cell)
        if _MEMORY.match(cell["type"]):  # what is written waits for the clock
            pins = cell["connections"].items()
            inputs = [b for pin, bits in pins if not _READ.fullmatch(pin) for b in bits]
        elif _weight(cell["type"]) is not None:
            continue
        ends.append((next((names[bit] for bit in outputs if bit in names), name), inputs))
    ends += [(f"port {name}", port["bits"]) for name, port in netlist["ports"].items()]
    found = {}
    for name, bits in ends:
        end = name.split("[")[0]
        for first in (drivers[bit] for bit in bits if bit in drivers):
            if depth[first] > max(most, found.get(end, (0, ""))[0]):
                deepest = depth[first]
                while first in before:
                    first = before[first]
                start = next((names[b] for b in _sides(cells[first])[0] if b in names), first)
                found[end] = (deepest, start.split("[")[0])
    return sorted(((n, start, end) for end, (n, start) in found.items()), reverse=True)


def _sides(cell):
    """Nets at the inputs and at the outputs of a cell, clocks left out."""
    sides = {"input": [], "output": []}
    for pin, bits in cell["connections"].items():
        side = cell["port_directions"].get(pin)
        if side in sides and pin not in _CLOCKS:
            sides[side] += [bit for bit in bits if isinstance(bit, int)]
    return sides["input"], sides["output"]


def _drivers(cells):
    """{net: cell of logic that drives it}."""
    drivers = {}
    for name, cell in cells.items():
        if _weight(cell["type"]) is not None:
            drivers.update(dict.fromkeys(_sides(cell)[1], name))
    return drivers


def _depths(netlist):
    """({cell of logic: levels up to it}, {cell: the one before it on the deepest way})."""
    users, waits, cells = defaultdict(list), {}, netlist["cells"]
    drivers = _drivers(cells)
    for name, cell in cells.items():
        if (weight := _weight(cell["type"])) is None:
            continue
        memory, inputs = _MEMORY.match(cell["type"]), set()
        for pin, bits in cell["connections"].items():
            if cell["port_directions"].get(pin) != "input" or (memory and not _READ.fullmatch(pin)):
                continue
            step = 0 if pin == "CI" else weight
            inputs |= {(drivers[bit], step) for bit in bits if bit in drivers}
        waits[name] = len(inputs)
        for driver, step in inputs:
            users[driver].append((name, step))
    depth, before = {name: _weight(cells[name]["type"]) for name in waits}, {}
    ready = [name for name, n in waits.items() if n == 0]
    while ready:
        name = ready.pop()
        for user, step in users[name]:
            if depth[name] + step > depth[user]:
                depth[user], before[user] = depth[name] + step, name
            waits[user] -= 1
            if waits[user] == 0:
                ready.append(user)
    if any(waits.values()):
        raise ValueError(f"{sum(n > 0 for n in waits.values())} cells are part of a loop")
    return depth, before


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
    fresh = {name(r): {key: r[key] for key in (*KEYS, *EXTRAS)} for r in results}
    recorded = dict(sorted((load() | fresh).items()))
    lines = (f"  {json.dumps(key)}: {json.dumps(entry)}" for key, entry in recorded.items())
    write_whole(FILE, "{\n" + ",\n".join(lines) + "\n}\n")


def rows():
    """What is recorded as rows of a Markdown table, as `docs/reference/vendors.md` has them."""
    return [
        "| " + " | ".join(f"{entry[key]:,}" if isinstance(entry[key], int | float) else entry[key]
                          for key in (*KEYS, *EXTRAS)) + " |"
        for entry in load().values()
    ]  # fmt: skip


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
