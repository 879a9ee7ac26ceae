"""Breaks the sources one at a time, and sees the test that is there for it fail: ``make breaks``.

Each entry of ``breaks.toml`` is a text of one file, what is put in its place, and a test. They are
played in a copy of the tree, whose tests must all pass as they are. Exit status 1 if one does not,
or if a break is not seen.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import click

from gradnic import processes
from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json, write_whole
from gradnic.paths import OutputFile
from gradnic.progress import Progress
from gradnic.quantities import option

ROOT = Path(__file__).parents[2]
PLACES = ("gradnic", "hdl", "models", "sim", "fpga", "tests", "docs", "examples", ".ci")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "Makefile")


def read():
    """({row: what it is about}, [dict]): row, what, file, old, new and test of each break."""
    told = tomllib.loads(Path(__file__).with_name("breaks.toml").read_text())
    return {int(row): text for row, text in told["rows"].items()}, told["break"]


def copy_tree(target):
    """A new copy of the tree's sources in folder `target`, its packages as one import root."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in PLACES:
        unwanted = shutil.ignore_patterns("__pycache__", ".*_cache")
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=unwanted)
    for name in FILES:
        shutil.copy(ROOT / name, target / name)
    for name in ("hdl", "models", "sim", "fpga"):
        (target / "gradnic" / name).symlink_to(f"../{name}")


class Sources:
    """The copy's files, written so that Python sees each change: its caches go by whole seconds."""

    def __init__(self, folder):
        self.folder, self._second = folder, int(time.time()) - 1_000_000

    def write(self, name, text):
        """Put `text` into file `name`, with a time of change that it never had."""
        path = self.folder / name
        path.write_text(text)
        self._second += 1
        os.utime(path, (self._second, self._second))


def play(folder, tests, seconds):
    """(status of pytest, what it printed) of tests in the copy; status None: no end in time."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p",
               "no:xdist", "-m", "slow or not slow", *tests]  # fmt: skip
    env = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200",
                        "GRADNIC_BUILD": str(ROOT / "build")}  # fmt: skip
    try:
        done = processes.run(command, cwd=folder, env=env, timeout=seconds, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"no end in {seconds} s"
    return done.returncode, done.stdout


def seen(status, said):
    """(whether a test failed, its own words) of a run of pytest."""
    failed = re.findall(r"^FAILED .*?(?: - (.*))?$", said, re.MULTILINE)
    if status == 1 and failed:
        return True, failed[0] or "failed"
    return False, "passed" if status == 0 else (said.strip().splitlines() or ["nothing"])[-1]


@click.command(name="breaks")
@option("--row", q.Whole(1, 1000), help="Only breaks of this row of the table.")
@option("--only", q.Whole(1, 1000), help="Only the break of this number, from 1.")
@option("--seconds", q.Whole(1, 86400), 1800, "Until a test is given up.")
@click.option("--page", type=OutputFile(".md"), metavar="FILE", help="Also write the table there.")
@json_option
def command(row, only, seconds, page, json_file):
    """Apply one break at a time to a copy of the sources, and see its test fail.

    \b
    Example:
      python tests/house/breaks.py --row 8 --json -
    """
    rows, entries = read()
    chosen = [
        entry | {"number": number}
        for number, entry in enumerate(entries, 1)
        if row in (None, entry["row"]) and only in (None, number)
    ]
    if not chosen:
        raise click.UsageError("no break has this row and number")
    folder = ROOT / "build" / "breaks"
    copy_tree(folder)
    sources = Sources(folder)
    with Progress() as bar:
        task = bar.add_task("tests of the sources as they are", total=len(chosen))
        tests = list(dict.fromkeys(entry["test"] for entry in chosen))
        status, said = play(folder, tests, seconds * len(tests))
        if status:
            raise click.ClickException(f"unbroken, the tests fail:\n{said[-4000:]}")
        for entry in chosen:
            bar.update(task, description=f"break {entry['number']}, {entry['file']}")
            whole = (folder / entry["file"]).read_text()
            begin = time.monotonic()
            if entry["old"] in whole:
                sources.write(entry["file"], whole.replace(entry["old"], entry["new"]))
                entry["dies"], entry["says"] = seen(*play(folder, [entry["test"]], seconds))
            else:
                entry["dies"], entry["says"] = False, f"its text is not in {entry['file']}"
            entry["seconds"] = round(time.monotonic() - begin, 1)
            sources.write(entry["file"], whole)
            bar.advance(task)
            if not entry["dies"]:
                click.echo(f"break {entry['number']} is not seen: {entry['says']}", err=True)
    columns = ("number", "row", "what", "test", "dies", "seconds", "says")
    shown = [[entry[name] for name in columns] for entry in chosen]
    console(json_file).print(table("Breaks", columns, shown))
    if page:
        write_whole(page, markdown(rows, chosen))
    write_json(json_file, [{name: entry[name] for name in columns} for entry in chosen])
    sys.exit(not all(entry["dies"] for entry in chosen))


def markdown(rows, played):
    """The table as a page of the docs."""
    dead = sum(entry["dies"] for entry in played)
    lines = [
        "# Faults that users found, put in again",
        "",
        f"Written by `make breaks`: of {len(played)} breaks, one at a time, the test that is there "
        f"for it saw {dead}. What stands for what then: `tests/house/breaks.toml`.",
        "",
        "| row | break | test | seen | it says |",
        "| --- | --- | --- | --- | --- |",
    ]
    for entry in sorted(played, key=lambda entry: (entry["row"], entry["number"])):
        says = re.sub(r"/\S*/", "", entry["says"])[:70]
        says = re.sub(r"([|<*_`\\\[\]])", r"\\\1", says)
        name = entry["test"].removeprefix("tests/").partition("[")[0]
        about = f"{entry['row']}: {rows[entry['row']]}"
        seen_so = "yes" if entry["dies"] else "**no**"
        lines.append(f"| {about} | {entry['what']} | `{name}` | {seen_so} | {says} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    processes.exit_on_signals()
    command()
