"""What a command leaves behind: tables for people, JSON for programs, whole files or none."""

import json
import os
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

json_option = click.option(
    "--json", "json_file", metavar="FILE", help="Also write the result as JSON; - is stdout."
)


def write_whole(path, data):
    """Write bytes or text to `path` so that a reader sees the old file or the whole new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = data.encode() if isinstance(data, str) else data
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def write_json(path, result):
    """Write `result` as JSON to `path`; ``-`` is standard output, None writes nothing."""
    if path is None:
        return
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        write_whole(path, text)


def console(json_file=None):
    """The console for people: stderr where stdout carries JSON."""
    return Console(stderr=json_file == "-", highlight=False)


def progress_to(out, status):
    """A function that shows one line of progress: moving on a terminal, plain lines elsewhere."""

    def say(text):
        if out.is_terminal:
            status.update(text)
        else:
            click.echo(text, err=True)

    return say


def table(title, columns, rows):
    """A `rich` table of `rows` (sequences as long as `columns`); numbers right-justified."""
    result = Table(title=title, title_justify="left")
    for i, name in enumerate(columns):
        numeric = all(isinstance(row[i], int | float) for row in rows)
        result.add_column(name, justify="right" if numeric else "left")
    for row in rows:
        result.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row))
    return result
