"""Examples in the docs run as they stand: a page's blocks in turn, or the page says why not.

``<!-- not run: reason -->`` stands before a block that no test runs; what it says to `gradnic` must
still be right, and is parsed, and so are commands inside of sentences.
"""

import ast
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
TODAY = [page for page in PAGES if "log" not in page.parts]  # the log's pages are dated
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


def check_imports(text):
    """That Python which no test runs compiles, and that what it takes from gradnic is there."""
    tree = compile(text, "example", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("gradnic"):
            exec(compile(ast.Module([node], []), "example", "exec"), {})


def inline_commands(page):
    """Words behind `gradnic` of each command that stands in a sentence."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"(?<!`)`gradnic ([^`\u2026]+)`(?!`)", prose):
        yield shlex.split(span)


def unknown(words):
    """The first word of a command line, part of it or all, that is no command and no option."""
    command = cli.cli
    for word in words:
        if isinstance(command, click.Group) and re.match(r"[a-z]", word):
            command = command.get_command(click.Context(command), word)
            if command is None:
                return word
        elif re.match(r"--?[a-z]", word):
            known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
            if word not in known | {"--help", "--version"}:
                return word
    return None


def test_there_are_examples():
    kinds = [kind for page in PAGES for kind, *_ in blocks(page)]
    assert min(map(kinds.count, ("python", "console", "sh"))) >= 4
    fence = re.compile(r"^ *(?:```|~~~) *(?:sh|bash|shell|console|py)", re.MULTILINE)
    fences = sum(len(fence.findall(page.read_text())) for page in PAGES)
    assert len(kinds) == fences, "a block that is not found: is it indented, or of another kind?"


def test_commands_in_sentences_are_there():
    found = [(page.stem, words) for page in TODAY for words in inline_commands(page)]
    assert len(found) > 100
    assert [(page, words) for page, words in found if unknown(words)] == []


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.stem)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADNIC_BUILD", str(tools.build_root()))
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for kind, text, is_run in blocks(page):
        if kind == "python" and not is_run:
            check_imports(text)
            continue
        if kind == "python":
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
    named = {
        (page.name, name)
        for page in TODAY
        for name in re.findall(r"`([a-z0-9_/]+\.py)`", page.read_text())
    }
    assert len(named) > 30
    assert {(page, name) for page, name in named if name not in endings} == set()


def test_pages_that_sources_name_are_there():
    sources = [path for path in ROOT.glob("[!.b]*/**/*.py") if path != Path(__file__)]
    named = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in sources
        for name in re.findall(r"docs/[\w/]+\.md", path.read_text())
    }
    assert len(named) > 30
    assert {(path, name) for path, name in named if not (ROOT / name).exists()} == set()


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
