"""Pages of the site that are written from the code: wire format, registers, commands, API; the nav.

A hook of mkdocs. What is generated is never out of date, and never in the way of a diff.
"""

import importlib
import re
from os.path import relpath
from pathlib import Path

import click
from mkdocs.structure.files import File

from gradnic import cli
from gradnic.interface import (
    aggregator,
    card_memory,
    entries,
    host_frame,
    inline,
    job,
    job_card,
    offload,
    params,
    tap,
)
from gradnic.interface.formats import HEAD, PARAMETERS, Op
from gradnic.interface.register_map import markdown

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()\.\./[^)#]+(?=\))")
# {who reads it: {what the nav calls it: page}}, as in the table of docs/index.md
GUIDE = {
    "FPGA": {"Verilog": "verilog", "Shells": "shells", "Host and driver": "host", "Jobs": "jobs"},
    "Verification": {"Clusters of RTL": "cosim", "Aggregator and workers": "aggregator_cosim"},
    "Research": {
        "Schedules": "schedules",
        "Network model": "simulate",
        "The papers' claims": "reproduce",
        "Long sweeps": "cluster",
    },
    "Training": {"Training": "training", "Codec on files": "codec"},
}
SECTIONS = ("reference", "internals", "spec", "log")
MAPS = (inline, offload, job_card, aggregator, tap, card_memory)
PRESETS = {offload: "offload128", job_card: "jobs128"}  # whose tables a page shows
API = {
    "gradnic": ["host", "interface"],
    "gradnic.models": [
        *("inceptionn", "thc", "aggregation", "reduction", "schedule"),
        *("transport", "inline", "offload", "training"),
    ],
    "gradnic.hdl": [
        *("primitive", "stream", "axi", "frame", "inceptionn", "thc", "schedule", "reduction"),
        *("aggregation", "inline", "transport", "direct", "offload", "top", "shells"),
    ],
}


def generated():
    """{path below docs/: text} of all pages that have no file."""
    found = {"reference/wire_format.md": wire_format(), "reference/commands.md": commands()}
    for module in MAPS:
        name = module.__name__.rpartition(".")[2]
        more = entries.markdown(params.preset(PRESETS[module])) if module in PRESETS else ""
        found[f"reference/registers_{name}.md"] = markdown(module.REGISTERS) + more
    for room, packages in API.items():
        for package in packages:
            module = f"{room}.{package}"
            found[f"reference/api/{module}.md"] = f"# `{module}`\n\n::: {module}\n"
    return found


def wire_format():
    """Bytes of a frame, by the field tables that circuits and models use."""
    kinds = ", ".join(f"{op.value} {op.name}" for op in Op)
    lines = [
        "# Wire format",
        "",
        "From the field tables of `gradnic.interface.formats` and `gradnic.interface.job`, which "
        "circuits, golden models, driver and dissector share. Bytes are counted from the first "
        "byte of the frame (of the record, for jobs and `hello`); fields are big-endian; bit 0 is "
        f"the lowest of the field's bytes. `op`: {kinds}.",
    ]
    for header in (
        *HEAD,
        *PARAMETERS.values(),
        job.DESCRIPTOR,
        job.COMPLETION,
        host_frame.HEAD,
        host_frame.HELLO,
    ):
        lines += [
            "",
            f"## {header.name}",
            "",
            f"{header.n_bytes} bytes from byte {header.start} on.",
            "",
            "| bytes | bits | field | meaning |",
            "| --- | --- | --- | --- |",
        ]
        for field in header:
            last = field.stop - 1
            at = str(field.byte) if last == field.byte else f"{field.byte} to {last}"
            top = field.lsb + field.width - 1
            bits = f"{top}:{field.lsb}" if field.width > 1 else str(top)
            sign = ", two's complement" if field.signed else ""
            lines.append(f"| {at} | {bits} | `{field.name}` | {field.doc}{sign} |")
    return "\n".join([*lines, ""])


def commands():
    """Every command's own help."""
    lines = ["# Commands", "", "What `gradnic COMMAND --help` says, of every command.", ""]
    for name in cli.COMMANDS:
        command = importlib.import_module(f"gradnic.commands.{name}").command
        lines += _help(command, f"gradnic {name}", None)
    return "\n".join(lines)


def _help(command, name, parent):
    context = click.Context(command, info_name=name, parent=parent)
    lines = [f"## {name}", "", "```text", command.get_help(context), "```", ""]
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            lines += _help(command.get_command(context, sub), f"{name} {sub}", None)
    return lines


def source(page, link):
    """Where the site has a file of the repository that a page links to; None for what is a page."""
    target = (DOCS / page).parent.joinpath(link).resolve()
    return None if target.is_relative_to(DOCS) else f"source/{target.relative_to(ROOT)}"


def on_files(files, config):
    """Add the generated pages, and the files of the repository that pages link to."""
    pages = generated()
    for page in list(files.documentation_pages()):
        for link in LINK.findall(page.content_string):
            if path := source(page.src_uri, link):
                pages[path] = (ROOT / path.removeprefix("source/")).read_text()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links to files of the repository lead to those of the site."""

    def moved(link):
        path = source(page.file.src_uri, link[0])
        return relpath(path, Path(page.file.src_uri).parent) if path else link[0]

    return LINK.sub(moved, markdown)


def on_config(config):
    """The guide by who reads it; then one section a folder, in the order of names."""
    for reader, titles in GUIDE.items():
        pages = [{title: f"guide/{name}.md"} for title, name in titles.items()]
        config.nav.append({f"Guide: {reader}": pages})
    for section in SECTIONS:
        pages = [f"{section}/{p.name}" for p in sorted((DOCS / section).glob("*.md"))]
        if section == "reference":
            api, maps = (
                [path for path in generated() if key in path] for key in ("/api/", "/registers_")
            )
            written = [path for path in generated() if path not in (*api, *maps)]
            pages = [*written, {"Registers": maps}, *pages, {"API": api}]
        config.nav.append({section.capitalize(): pages})
    return config
