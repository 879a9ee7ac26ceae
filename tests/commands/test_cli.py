"""Every command answers --help; a user's mistake is one line and exit status 2."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from gradnic import cli
from gradnic.cli import COMMANDS


def gradnic(*words):
    return subprocess.run(
        [sys.executable, "-m", "gradnic", *words], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name):
    result = CliRunner().invoke(cli.cli, [name, "--help"])
    assert "None" not in re.findall(r"^ +--[a-z-]+ +([^ ,]+)", result.output, re.MULTILINE)
    assert result.exit_code == 0
    assert "Example" in result.output


def test_unknown_command_is_one_clear_line():
    run = gradnic("polish")
    assert run.returncode == 2
    assert "No such command 'polish'" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["codec", "stats", "missing.npy"], "Error: missing.npy: No such file or directory\n"),
        (
            ["accuracy", "--distribution", "cauchy"],
            "Error: --distribution must be lognormal, gaussian or laplace, not cauchy\n",
        ),
        (
            ["accuracy", "--workers", "x"],
            "Error: --workers must be 1 to 64, not x\n",
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_value(words, line):
    run = gradnic(*words)
    assert run.returncode == 2
    assert run.stderr == line
