"""The table of breaks fits the sources; `make breaks` plays it."""

import ast
import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from gradnic import processes

ROOT = Path(__file__).parents[2]
RUNNER = runpy.run_path(str(Path(__file__).with_name("breaks.py")))
ROWS, BREAKS = RUNNER["read"]()


@cache
def functions(path):
    """Tests of a file, by name."""
    body = ast.parse((ROOT / path).read_text()).body
    return {item.name for item in body if isinstance(item, ast.FunctionDef)}


def test_every_row_has_a_break():
    assert {entry["row"] for entry in BREAKS} == set(ROWS)


@pytest.mark.parametrize("entry", BREAKS, ids=lambda entry: entry["what"])
def test_a_break_has_its_place_and_its_test(entry):
    """The text stands in its file once; the test's function is there."""
    assert entry["old"] != entry["new"]
    assert (ROOT / entry["file"]).read_text().count(entry["old"]) == 1
    path, function, *_ = entry["test"].replace("[", "::").split("::")
    assert function in functions(path)


def test_the_tests_of_the_table_are_collected():
    """Their parameters, too: pytest refuses a name that it does not find, and says which."""
    names = sorted({entry["test"] for entry in BREAKS})
    done = processes.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *names],
        cwd=ROOT,
        env=os.environ | {"PYTEST_ADDOPTS": ""},
        timeout=300,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_page_has_a_line_of_each_break():
    """It was played as the table says it now: row, what is wrong, test."""
    played = [e | {"number": n, "dies": True, "says": ""} for n, e in enumerate(BREAKS, 1)]
    pages = ((ROOT / "docs/internals/breaks.md").read_text(), RUNNER["markdown"](ROWS, played))
    told, said = (re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|", page, re.M) for page in pages)
    assert told == said


def test_only_a_failed_test_is_a_death():
    seen, last = RUNNER["seen"], "1 failed in 0.10s"
    assert seen(1, f"FAILED tests/a.py::test[x y] - assert 1 == 2\n{last}") == (
        True,
        "assert 1 == 2",
    )
    assert seen(0, "1 passed in 0.10s") == (False, "passed")
    assert seen(2, "ERROR tests/a.py\n1 error in 0.10s") == (False, "1 error in 0.10s")
    assert seen(1, "ERROR tests/a.py::test - OSError\n1 error in 0.10s")[0] is False
    assert seen(None, "no end in 9 s") == (False, "no end in 9 s")


def test_breaks_differ():
    (most, n), *_ = Counter(
        (e["file"], e["old"], e["new"], e["test"]) for e in BREAKS
    ).most_common()
    assert n == 1, most
