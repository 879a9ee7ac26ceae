"""Examples in the docs run as they stand: a page's python blocks in turn, and `$ gradnic` lines."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from gradnic.sim.engine import tools

from gradnic import cli

PAGES = sorted((Path(__file__).parents[2] / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    return BLOCK.findall(page.read_text())


def test_there_are_examples():
    assert sum(len(blocks(page)) for page in PAGES) >= 6


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.stem)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADNIC_BUILD", str(tools.build_root()))
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for kind, text in blocks(page):
        if kind == "python":
            exec(compile(text, f"{page.name}", "exec"), names)
            continue
        for line in text.splitlines():
            command = line.removeprefix("$ gradnic ")
            assert command != line, f"{page.name}: {line!r} must begin with '$ gradnic '"
            result = CliRunner().invoke(cli.cli, shlex.split(command))
            assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception!r}"
