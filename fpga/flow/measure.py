"""Measure a circuit on ECP5: boundary registers, Yosys, nextpnr, and what its slowest path is.

The figure is *core throughput*: the component sits alone on the device, out of context, between
two ranks of registers, so that every path through it runs from register to register and is timed.
Pins, clock tree and neighbors are not in it. nextpnr leaves paths to ports untimed, therefore
`measure` refuses a netlist in which a port meets anything but a boundary register.
"""

import hashlib
import json
import re
import statistics
import time
from collections import Counter
from pathlib import Path

from amaranth import Value
from amaranth.lib import wiring
from gradnic.hdl.primitive.target import Target
from gradnic.hdl.top import verilog

from gradnic import processes
from gradnic.output import write_whole

from . import floorplan, parts, resets, tools
from .critical import critical_path, fmax

CAPACITY = {  # of a device: LUT, registers, block RAM, multipliers; a 12k has the die of a 25k
    "12k": (24_288, 24_288, 56, 28),
    "25k": (24_288, 24_288, 56, 28),
    "45k": (43_848, 43_848, 108, 72),
    "85k": (83_640, 83_640, 208, 156),
}
KIND_NAMES = ("LUT sites", "registers", "block RAMs", "multipliers")  # as `parts.KINDS`
DEVICES = tuple(CAPACITY)
SPEEDS = (6, 7, 8)
_SYNCHRONOUS = re.compile(r"^(  always )@\(posedge clk\)(\n    if \(rst\) )", re.M)
_CLOCK_PINS = ("CLK", "CLKA", "CLKB", "CLK0", "CLK1", "CLK2", "CLK3", "WCK")


def boundary(component, ports):
    """Verilog of module ``top``: module ``component``, which is that of a component and has these
    `ports`, between two ranks of registers.

    Ports ``clk`` and ``rst``, then every port of the component under its own name. Inputs, the
    reset included, pass one register on their way in, outputs one on their way out; none of these
    registers has a reset.
    """
    names, declared, moved, wired = ["clk", "rst"], [], [], []
    wired += [
        f".{name}({wire})" for name, wire in (("clk", "clk"), ("rst", "reset")) if name in ports
    ]
    for path, member, value in component.signature.flatten(component):
        name = "_".join(map(str, path))
        span = f"[{len(Value.cast(value)) - 1}:0]"
        names.append(name)
        if member.flow is wiring.In:
            declared.append(f"input {span} {name}; reg {span} {name}__in;")
            moved.append(f"{name}__in <= {name};")
            wired.append(f".{name}({name}__in)")
        else:
            declared.append(f"output {span} {name}; reg {span} {name}; wire {span} {name}__out;")
            moved.append(f"{name} <= {name}__out;")
            wired.append(f".{name}({name}__out)")
    lines = [
        f"module top({', '.join(names)});",
        "input clk, rst; reg reset;",
        *declared,
        "always @(posedge clk) begin reset <= rst;",
        *moved,
        "end component component (",
        ",\n".join(wired),
        "); endmodule",
    ]
    return "\n".join(lines) + "\n"


def measure(
    component,
    *,
    block=None,
    bits=None,
    seeds=5,
    speed=8,
    device="85k",
    clock_mhz=300,
    unmap_resets=True,
    global_reset=False,
    target="ecp5",
    anchored=False,
    synth_options=(),
    pnr_options=(),
    jobs=1,
    folder="build/synth",
    progress=None,
):
    """Synthesize, place and route `component` alone; return its cost and its speed.

    Parameters
    ----------
    component : `amaranth.lib.wiring.Component` in domain ``sync``.
    block : str, its name in the result; by default its class.
    bits : int, payload bits it moves per cycle, for ``gbps``; None leaves that null.
    seeds : int, placements, with seeds 1 to `seeds`; or a list of seeds.
    speed : 6, 7 or 8, speed grade. device : "12k", "25k", "45k" or "85k".
    clock_mhz : number, the clock that placement and routing aim at.
    unmap_resets : bool. Yosys folds ``x ? 0 : y`` into the set/reset input of a register, which
        costs a LUT, a long route and 0.29 ns; True turns that back into plain logic.
    global_reset : bool, the reset is that of the device (SGSR, in step with the clock), which
        nextpnr does not time, and none of the two that each tile has for eight registers.
    target : "ecp5" or "ecp5-dense", see `gradnic.hdl.primitive.target.Target`.
    anchored : bool, block RAM and multipliers get the places of `gradnic.fpga.flow.floorplan`.
    synth_options, pnr_options : further options of synth_ecp5 and nextpnr-ecp5.
    jobs : int, placements at a time. folder : where netlists and reports are kept; a netlist or a
        placement that is already there is not made again.
    progress : called with one line of text at each step.

    Returns
    -------
    dict, ready for JSON: ``block device fmax_mhz fmax_mhz_seeds lut ff bram dsp gbps
    gbps_per_klut``, and ``speed clock_mhz seeds lut4 carry lutram boundary_ff seconds
    critical_path parts``. ``fmax_mhz`` is the median of the seeds. ``lut`` counts 4-input LUT
    sites as nextpnr packs them: logic, carry (2 a cell) and LUT RAM (a route-through counts too).
    ``ff`` leaves the boundary registers out. ``critical_path`` is text, of the median seed.
    ``parts`` is what `parts.by_part` finds, two levels deep.

    Errors: ValueError for an argument, for a port with an untimed path, or for a circuit that does
    not fit the device; ChildProcessError if a tool fails, with the end of its log.
    """
    if device not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}, not {device!r}")
    if speed not in SPEEDS:
        raise ValueError(f"speed must be 6, 7 or 8, not {speed!r}")
    seeds = list(range(1, seeds + 1)) if isinstance(seeds, int) else list(seeds)
    if not seeds:
        raise ValueError(f"seeds must be at least 1, not {len(seeds)}")
    if not 1 <= clock_mhz <= 1000:
        raise ValueError(f"clock_mhz must be from 1 to 1000, not {clock_mhz!r}")
    say = progress or (lambda text: None)
    block = block or type(component).__name__
    started = time.monotonic()
    home = synthesize(
        component,
        folder=folder,
        block=block,
        unmap_resets=unmap_resets,
        global_reset=global_reset,
        target=target,
        options=synth_options,
        progress=say,
    )
    whole = json.loads((home / "netlist.json").read_text())
    netlist = whole["modules"]["top"]
    boundary = check_boundary(netlist, block)
    check_fit(netlist, device, block)
    places = floorplan.places(netlist, device) if anchored else {}
    source = _anchor(home, whole, places) if places else "netlist.json"
    reports = place(
        home,
        seeds,
        source=source,
        speed=speed,
        device=device,
        clock_mhz=clock_mhz,
        options=[*(floorplan.options(places) if places else []), *pnr_options],
        jobs=jobs,
        block=block,
        progress=say,
    )
    reached = [round(fmax(report), 2) for report in reports]
    middle = statistics.median(reached)
    shown = min(range(len(reached)), key=lambda k: abs(reached[k] - middle))
    used = {name: entry["used"] for name, entry in reports[shown]["utilization"].items()}
    kinds = [cell["type"] for cell in netlist["cells"].values()]
    lut = used.get("TRELLIS_COMB", 0)
    gbps = None if bits is None else round(bits * middle / 1000, 2)
    return {
        "block": block,
        "device": part(device, speed),
        "fmax_mhz": middle,
        "fmax_mhz_seeds": reached,
        "lut": lut,
        "ff": used.get("TRELLIS_FF", 0) - boundary,
        "bram": used.get("DP16KD", 0),
        "dsp": used.get("MULT18X18D", 0),
        "gbps": gbps,
        "gbps_per_klut": None if gbps is None or not lut else round(1000 * gbps / lut, 2),
        "speed": speed,
        "clock_mhz": clock_mhz,
        "seeds": seeds,
        "lut4": kinds.count("LUT4"),
        "carry": kinds.count("CCU2C"),
        "lutram": kinds.count("TRELLIS_DPR16X4"),
        "boundary_ff": boundary,
        "seconds": round(time.monotonic() - started, 1),
        "critical_path": critical_path(reports[shown], netlist),
        "parts": parts.by_part(netlist, 2),
    }


def merged(results):
    """The result of `measure` for all seeds, out of its results for one seed each."""
    reached = [mhz for result in results for mhz in result["fmax_mhz_seeds"]]
    middle = statistics.median(reached)
    shown = min(range(len(reached)), key=lambda k: abs(reached[k] - middle))
    whole = results[shown] | {
        "fmax_mhz": middle,
        "fmax_mhz_seeds": reached,
        "seeds": [seed for result in results for seed in result["seeds"]],
        "seconds": round(sum(result["seconds"] for result in results), 1),
    }
    if whole["gbps"] is not None:
        scale = middle / results[shown]["fmax_mhz"]
        whole["gbps"] = round(results[shown]["gbps"] * scale, 2)
        if whole["lut"]:
            whole["gbps_per_klut"] = round(1000 * whole["gbps"] / whole["lut"], 2)
    return whole


def cost(component, *, block=None, folder="build/synth", progress=None, **options):
    """What `component` takes before it is placed, for circuits of any size.

    options : ``unmap_resets``, ``global_reset`` and ``target``, as of `measure`.

    Returns ``block lut ff bram dsp boundary_ff parts`` as `measure` has them, but for
    route-throughs, which only packing adds.
    """
    block, say = block or type(component).__name__, progress or (lambda text: None)
    home = synthesize(component, folder=folder, block=block, progress=say, **options)
    netlist = json.loads((home / "netlist.json").read_text())["modules"]["top"]
    boundary = check_boundary(netlist, block)
    found = parts.by_part(netlist, 2)
    total = sum(found.values(), Counter())
    taken = {kind: total[kind] for kind in parts.KINDS} | {"ff": total["ff"] - boundary}
    return {"block": block, **taken, "boundary_ff": boundary, "parts": found}


def part(device, speed):
    """Name of a device and its speed grade: ("85k", 8) is LFE5U-85F-8."""
    return f"LFE5U-{device[:-1]}F-{speed}"


def synthesize(component, *, folder, block, unmap_resets=True, global_reset=False, target="ecp5",
               options=(), progress=print):  # fmt: skip
    """Make ``netlist.json`` of `component` between boundary registers; return its folder.

    What is synthesized is the Verilog that users get, of family `target`, with ``src`` attributes
    that say where a signal comes from. The reset goes to the LSR pin of its registers, and through
    no LUT: Yosys would mix it with the clears of the datapath, so it is read as an asynchronous
    one (the only change of the text), stays apart, and becomes synchronous when it is on its pin.
    Its users get it from `resets.spread`.
    """
    text = verilog.convert(component, "component", platform=Target(target), src=True)
    head = re.search(r"^module component\(([^)]*)\);", text, re.M)[1]  # of several lines
    text += boundary(component, re.findall(r"\w+", head))
    script = "\n".join(
        [
            "read_verilog top.v",
            "hierarchy -top top",
            "proc",
            "flatten",
            f"synth_ecp5 -top top {' '.join(options)} -run begin:map_ffs",
            *(["dffunmap -srst-only", "opt_clean"] if unmap_resets else []),
            f"synth_ecp5 -top top {' '.join(options)} -run map_ffs:map_luts",
            'setparam -set SRMODE "LSR_OVER_CE" r:SRMODE=ASYNC',
            f"synth_ecp5 -top top {' '.join(options)} -run map_luts:",
            "write_json netlist.json",
            "",
        ]
    )
    made_of = f"{tools.release('yosys')}\n{script}\n{text}" + global_reset * "global reset"
    key = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    home = Path(folder) / f"{block}-{key}"
    if not (home / "netlist.json").exists():
        progress(f"{block}: synthesis")
        home.mkdir(parents=True, exist_ok=True)
        (home / "top.v").write_text(_SYNCHRONOUS.sub(r"\1@(posedge clk, posedge rst)\2", text))
        (home / "synth.ys").write_text(script.replace("netlist.json", "partial.json"))
        tools.run(["yosys", "-q", "-l", "yosys.log", "-s", "synth.ys"], home, made="partial.json")
        netlist = json.loads((home / "partial.json").read_text())
        resets.spread(netlist["modules"]["top"], global_reset)
        write_whole(home / "netlist.json", json.dumps(netlist))
        (home / "partial.json").unlink()
    return home


def _anchor(home, netlist, places):
    """Write a netlist with `places` for some cells into folder `home`; return the file's name."""
    for name, bel in places.items():
        netlist["modules"]["top"]["cells"][name]["attributes"]["BEL"] = bel
    key = hashlib.sha256(json.dumps(places).encode()).hexdigest()[:8]
    write_whole(home / f"anchored-{key}.json", json.dumps(netlist))
    return f"anchored-{key}.json"


def place(
    home,
    seeds,
    *,
    speed,
    device,
    clock_mhz,
    options=(),
    source="netlist.json",
    jobs=1,
    block="block",
    progress=print,
):
    """Place and route netlist `source` of folder `home` once a seed; return nextpnr's reports.

    A report takes its name when nextpnr has ended, and is not made again.
    """
    flags = [f"--{device}", "--speed", str(speed), "--freq", f"{clock_mhz:g}", *options]
    other = [source] if source != "netlist.json" else []

    def name(seed):
        text = f"{tools.release('nextpnr-ecp5')}{[*flags, *other]}{seed}"
        return f"s{seed}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    reports = {seed: f"{name(seed)}.json" for seed in seeds}
    waiting = [seed for seed in seeds if not (home / reports[seed]).exists()]
    running = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                seed = waiting.pop(0)
                done = len(seeds) - len(waiting) - len(running) - 1
                progress(f"{block}: place and route, seed {seed} ({done} of {len(seeds)} done)")
                made = f"{reports[seed]}.part"
                command = ["nextpnr-ecp5", "-q", "-l", f"{name(seed)}.log", "--json", source]
                command += ["--out-of-context", "--timing-allow-fail", *flags]
                command += ["--seed", str(seed), "--report", made]
                running[seed] = tools.start(command, home), made
            for seed, (process, made) in list(running.items()):
                if process.poll() is None:
                    continue
                tools.check(process.returncode, home, f"{name(seed)}.log", made, "nextpnr-ecp5")
                (home / made).replace(home / reports[seed])
                del running[seed]
            time.sleep(0.1)
    finally:
        for process, _ in running.values():
            processes.kill(process)
    return [json.loads((home / reports[seed]).read_text()) for seed in seeds]


def check_fit(netlist, device, block="block"):
    """ValueError if a netlist (Yosys JSON, one module) has more of anything than the device.

    nextpnr would look for places without end.
    """
    total = sum(parts.by_part(netlist, 0).values(), Counter())
    over = [
        f"{total[kind]:,} of {most:,} {name}"
        for kind, name, most in zip(parts.KINDS, KIND_NAMES, CAPACITY[device], strict=True)
        if total[kind] > most
    ]
    if over:
        raise ValueError(f"{block} does not fit an LFE5U-{device[:-1]}F: {', '.join(over)}")


def check_boundary(netlist, block="block"):
    """Count the boundary registers of a netlist (Yosys JSON, one module); refuse other ports.

    ValueError if an input port other than the clock meets anything but the data input of a
    register, or an output port anything but the output of one: nextpnr would leave that path out.
    """
    drivers, users = {}, {}
    for name, cell in netlist["cells"].items():
        for pin, bits in cell["connections"].items():
            side = drivers if cell["port_directions"].get(pin) == "output" else users
            for bit in bits:
                side.setdefault(bit, []).append((name, cell["type"], pin))
    registers = set()
    for port, entry in netlist["ports"].items():
        inward = entry["direction"] == "input"
        for bit in entry["bits"]:
            if isinstance(bit, str):
                continue  # constant: there is no path
            for name, kind, pin in (users if inward else drivers).get(bit, []):
                if port == "clk":
                    timed = pin in _CLOCK_PINS
                else:
                    timed = kind == "TRELLIS_FF" and pin in (("DI", "M") if inward else ("Q",))
                    registers.add(name)
                if not timed:
                    raise ValueError(
                        f"{block}: port {port} meets {kind}.{pin} without a boundary register, "
                        "so its path would not be timed"
                    )
    return len(registers)
