"""``gradnic verilog``: a top as plain Verilog, with everything needed to drop it in."""

import textwrap
from dataclasses import asdict, fields
from pathlib import Path

import click
from rich.markdown import Markdown

from gradnic import __version__
from gradnic import quantities as q
from gradnic.interface import entries, params
from gradnic.interface import register_map as registers
from gradnic.output import console, json_option, list_option, table, write_json, write_whole
from gradnic.paths import OutputFolder, check_files
from gradnic.progress import status
from gradnic.quantities import option
from gradnic.verilog_names import ModuleName

FOR_SHELL = "shell."  # in front of a key of --set


def template(name, ports):
    """Verilog that declares a wire for each port and instantiates the module."""
    width = max(len(port["name"]) for port in ports)
    wires = []
    for port in ports:
        span = f"[{port['width'] - 1}:0] " if port["width"] > 1 else ""
        wires.append(f"wire {span}{port['name']}; // {port['direction']}: {port['doc']}")
    pins = [f"    .{port['name']:{width}} ({port['name']})" for port in ports]
    return "\n".join([*wires, "", f"{name} {name}_inst (", ",\n".join(pins), ");", ""])


def port_page(name, doc, parameters, ports):
    """The port list as a Markdown page."""
    chosen = ", ".join(f"{key} = {value}" for key, value in parameters.items())
    rows = [f"| {p['name']} | {p['direction']} | {p['width']} | {p['doc']} |" for p in ports]
    head = [f"# Ports of {name}", "", f"{doc}; {chosen}.", ""]
    return "\n".join(
        [*head, "| port | direction | bits | what |", "| --- | --- | --- | --- |", *rows, ""]
    )


def generate(name, parameters, family, preset=None):
    """({file name: text}, result for JSON) of one top; nothing is written."""
    from gradnic.hdl.primitive.target import Target
    from gradnic.hdl.top import catalog as tops
    from gradnic.hdl.top import verilog

    doc = tops.entry(parameters).doc
    top = tops.build(parameters)
    ports = top.ports()
    if name in {port["name"] for port in ports}:  # Verilator takes no top that is called so
        raise ValueError(f"--name must be none of the module's ports, not {name!r}")
    values = tops.describe(parameters)
    head = heading(preset or name, values, family)
    files = verilog.files(top, name, platform=Target(family), head=head)
    files |= {
        f"{name}_inst.vh": template(name, ports),
        f"{name}_ports.md": port_page(name, doc, values, ports),
    }
    more, words = register_files(name, tops.entry(parameters).registers, parameters)
    result = {
        "top": type(parameters).__name__.lower(),
        "module": name,
        "family": family,
        "gradnic": __version__,
        "parameters": values,
        "ports": ports,
        "registers": words,
    }
    return files | more, result


def heading(what, values, family):
    """Lines at the top of a Verilog file: version, preset, family and parameters."""
    chosen = ", ".join(f"{key}={value}" for key, value in values.items())
    return [f"gradnic {__version__}: {what} for {family}", *textwrap.wrap(chosen, 96)]


def register_files(name, register_map, parameters=None):
    """({file name: text}, rows for JSON) of a register map, or nothing for None. parameters : of
    the top whose map it is.
    """
    if register_map is None:
        return {}, []
    files = {
        f"{name}_registers.md": registers.markdown(register_map) + entries.markdown(parameters),
        f"{name}_registers.h": registers.c_header(register_map),
    }
    words = [
        {"name": r.name, "offset": r.offset, "access": r.access, "width": r.width, "doc": r.doc}
        for r in register_map
    ]
    return files, words


def generate_shell(name, options, parameters, family, preset):
    """({file name: text}, result for JSON) of a card wrapped for a shell."""
    from gradnic.hdl.primitive.target import Target
    from gradnic.hdl.top import catalog as tops

    files = options.files(parameters, platform=Target(family))
    module = next(iter(files)).removesuffix(".v")
    values = tops.describe(parameters) | asdict(options)
    head = heading(f"{preset} in {name}", values, family)
    files[f"{module}.v"] = "".join(f"// {line}\n" for line in head) + files[f"{module}.v"]
    more, words = register_files(module, tops.entry(parameters).registers, parameters)
    for register_map in options.maps(parameters):
        more |= register_files(f"{module}_{register_map.name}", register_map)[0]
    result = {
        "top": type(parameters).__name__.lower(),
        "module": module,
        "shell": name,
        "options": asdict(options),
        "family": family,
        "gradnic": __version__,
        "parameters": tops.describe(parameters),
        "registers": words,
    }
    return files | more, result


def split_changes(changes, preset):
    """Changes of the preset and those of the shell, by their keys; `FOR_SHELL` in front of a key
    of both is for the shell.
    """
    kept = {field.name for field in fields(params.preset(preset))}
    own = [change for change in changes if change.partition("=")[0] in kept]
    return own, [change.removeprefix(FOR_SHELL) for change in changes if change not in own]


def show_presets(json_file):
    """The list of presets, as a table and as JSON."""
    from gradnic.hdl.top import catalog as tops

    screen = console(json_file)
    for kind, entry in tops.TOPS.items():
        rows = [
            (name, ", ".join(f"{k}={v}" for k, v in tops.describe(parameters).items()))
            for name, parameters in params.PRESETS.items()
            if type(parameters) is kind
        ]
        screen.print(table(entry.doc, ("preset", "parameters"), rows))
    write_json(
        json_file,
        {name: tops.describe(parameters) for name, parameters in params.PRESETS.items()},
    )


def write_all(out, files):
    """Write {file name: text} below the folder `out`, all or none; returns the paths."""
    paths = [str(Path(out) / file) for file in files]
    check_files(paths)
    for path, text in zip(paths, files.values(), strict=True):
        write_whole(path, text)
    return paths


def write_shell(preset, shell, changes, name, family, out, json_file):
    """A preset wrapped for a shell: files, and the note that says what to do with them."""
    from gradnic.hdl import shells

    if name is not None:
        raise click.UsageError(f"{shell} gives the module its name: leave --name out")
    own, others = split_changes(changes, preset)
    parameters = params.preset(preset, own)
    if not hasattr(parameters, "meta_width"):
        raise click.UsageError(f"{shell} takes a card, such as inline16, not {preset}")
    if parameters.meta_width:
        raise click.UsageError(f"{shell} has a side band of its own: leave meta_width out")
    options = shells.shell(shell, others)
    screen = console(json_file)
    with status(f"writing {preset} for {shell}"):
        files, result = generate_shell(shell, options, parameters, family, preset)
    written = write_all(out, files)
    note = next(text for file, text in files.items() if file == f"{result['module']}.md")
    if screen.is_terminal:
        screen.print(Markdown(note))
    else:
        screen.print(note, markup=False, soft_wrap=True)
    for path in written:
        screen.print(f"wrote {path}", soft_wrap=True)
    write_json(json_file, result | {"files": written})


@click.command(cls=q.Command)
@click.option("--preset", metavar="NAME", help="Which top, in which size; see --list.")
@click.option(
    "--shell",
    metavar="NAME",
    default="generic",
    show_default=True,
    help="Wrap the card for a NIC shell: corundum, opennic or liteeth; generic: AXI4 ports alone.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change one parameter of the preset or the shell; may repeat.",
)
@option(
    "--name",
    ModuleName(),
    help="Name of the Verilog module; default: the preset's.",
    metavar="MODULE",
)
@option(
    "--family",
    q.OneOf("generic", "ecp5", "ecp5-dense", "xilinx", "intel"),
    "generic",
    "Attributes, memory banks and multipliers as the part has them; ecp5: its primitives;"
    " ecp5-dense: block RAM before LUT RAM and registers.",
)
@option("--out", OutputFolder(), "build/verilog", "Folder to write to.")
@list_option
@json_option
def command(preset, shell, changes, name, family, out, listing, json_file):
    """Write a top as Verilog with AXI4-Stream and AXI4-Lite ports.

    Beside MODULE.v come MODULE.xdc and MODULE.sdc (constraints, scoped to its instances),
    MODULE_ports.md (every port), MODULE_inst.vh (an instantiation to paste) and, where the top has
    registers, MODULE_registers.md and MODULE_registers.h.

    With --shell, the file that takes the place of the shell's own is written, and a note on what
    to set where. Its options go by --set too: tap, n_ports, app_id, bits, ram, channels and
    ram_bits for corundum, n_ports and memory_kib for opennic, bits for liteeth (shell.bits where
    the card has bits, too: those with jobs). Every shell takes in-line cards and offload cards,
    with jobs or without, whose memory is on DDR or HBM of corundum, on the chip in opennic and at
    two AXI4 ports of liteeth; n_ports is the card's then.

    \b
    Example:
      gradnic verilog --list
      gradnic verilog --preset inline16 --out build/verilog
      gradnic verilog --preset inline16 --set meta_width=16 --name my_card --json -
      gradnic verilog --preset inline16 --shell corundum --set n_ports=2
      gradnic verilog --preset jobs512 --shell corundum --set address_width=34
      gradnic verilog --preset offload512 --shell opennic --set memory_kib=2048
      gradnic verilog --preset jobs128 --shell liteeth --set host=1 --set shell.bits=64
    """
    if listing:
        show_presets(json_file)
        return
    if preset is None:
        raise click.UsageError("name a top with --preset; gradnic verilog --list shows them")
    keys = [change.partition("=")[0] for change in changes]
    if found := q.repeated(keys):
        raise click.UsageError(f"--set names {found[0]} twice")
    screen = console(json_file)
    if shell != "generic":
        write_shell(preset, shell, changes, name, family, out, json_file)
        return
    parameters = params.preset(preset, changes)
    endings = (".v", ".xdc", ".sdc", "_ports.md", "_inst.vh", "_registers.md", "_registers.h")
    check_files(str(Path(out) / f"{name or preset}{end}") for end in endings)
    with status(f"writing {preset}"):
        files, result = generate(name or preset, parameters, family, preset)
    written = write_all(out, files)
    rows = [(p["name"], p["direction"], p["width"], p["doc"]) for p in result["ports"]]
    screen.print(table(f"Ports of {result['module']}", ("port", "direction", "bits", "what"), rows))
    for path in written:
        screen.print(f"wrote {path}", soft_wrap=True)
    write_json(json_file, result | {"files": written})
