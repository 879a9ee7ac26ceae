"""Examples in the docs run as they stand: a page's blocks in turn, or the page says why not.

``<!-- not run: reason -->`` stands before an ``sh`` block that no test runs; what it says to
`gradnic` must still be right, and is parsed.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from gradnic.sim.engine import tools

from gradnic import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(<!-- not run: [^\n]+ -->\n)?```(python|console|sh|bash|shell)\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(page):
    """[(kind, text, whether it is run)]."""
    return [(kind, text, not reason) for reason, kind, text in BLOCK.findall(page.read_text())]


def commands(text):
    """Words of each line of an ``sh`` block, comments and continuations aside."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def parse(words):
    """What click makes of a command line, without running it."""
    command, context = cli.cli, None
    words = list(words)
    while isinstance(command, click.Group):
        context = click.Context(command, parent=context, info_name=command.name)
        command = command.get_command(context, words.pop(0))
    command.make_context(command.name, words, parent=context)


def test_there_are_examples():
    kinds = [kind for page in PAGES for kind, *_ in blocks(page)]
    assert min(map(kinds.count, ("python", "console", "sh"))) >= 4
    fences = sum(len(re.findall(r"^```(?:sh|bash|shell)", p.read_text(), re.M)) for p in PAGES)
    assert kinds.count("sh") == fences, "an sh block that is not found: is it indented?"


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.stem)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADNIC_BUILD", str(tools.build_root()))
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for kind, text, is_run in blocks(page):
        if kind == "python":
            assert is_run
            exec(compile(text, f"{page.name}", "exec"), names)
            continue
        if kind == "console":
            text = "\n".join(line.removeprefix("$ ") for line in text.splitlines())
        for words in commands(text):
            if words[0] == "gradnic" and is_run:
                result = CliRunner().invoke(cli.cli, words[1:])
                assert result.exit_code == 0, f"{words}\n{result.output}\n{result.exception!r}"
            elif words[0] == "gradnic":
                parse(words[1:])
            elif is_run:
                assert words[0] == "python3", f"{page.name}: {words[0]} is run by no test"
                subprocess.run([sys.executable, *words[1:]], check=True)


def test_sources_that_are_named_are_there():
    """Python files that the docs speak of, dated pages of the log aside."""
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("[!.b]*/**/*.py")}
    endings = {
        "/".join(name.split("/")[at:]) for name in files for at in range(name.count("/") + 1)
    }
    pages = [page for page in PAGES if "log" not in page.parts]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"`([a-z0-9_/]+\.py)`", page.read_text())
    }
    assert len(named) > 30
    assert {(page, name) for page, name in named if name not in endings} == set()


def test_pictures_are_as_they_are_drawn():
    """Of the docs; the floors of packages are those of ``hdl/``."""
    spec = importlib.util.spec_from_file_location("drawn", ROOT / ".ci" / "draw_pictures.py")
    drawn = importlib.util.module_from_spec(spec)
    sys.modules["drawn"] = drawn  # where its dataclasses look
    spec.loader.exec_module(drawn)
    for name, picture in drawn.PICTURES.items():
        assert (drawn.FOLDER / f"{name}.svg").read_text() == picture.svg(), name
    folders = {path.parent.name for path in (ROOT / "hdl").glob("*/__init__.py")}
    assert {box.name for box in drawn.PACKAGES.boxes.values()} == folders
