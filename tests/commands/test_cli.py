"""Every command answers --help; a user's mistake is one line and exit status 2."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from gradnic import cli
from gradnic.cli import COMMANDS
from gradnic.errors import Unfinished


def gradnic(*words):
    return subprocess.run(
        [sys.executable, "-m", "gradnic", *words], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name):
    result = CliRunner().invoke(cli.cli, [name, "--help"])
    assert "None" not in re.findall(r"^ +--[a-z-]+ +([^ ,]+)", result.output, re.MULTILINE)
    assert result.exit_code == 0
    assert re.search(r"\n  Example:\n    gradnic [^\n]+\n", result.output)


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


def test_a_simulation_that_does_not_end_is_one_line(monkeypatch, capsys):
    def hangs(*_, **__):
        raise Unfinished("cards [0] are not done after 20101 cycles: no port waits")

    monkeypatch.setattr("gradnic.sim.offload.run.cosim", hangs)
    monkeypatch.delenv("GRADNIC_TRACEBACK", raising=False)
    with pytest.raises(SystemExit) as ended:
        cli.main(["cosim", "card", "--topology", "full:33", "--elements", "33"])
    assert ended.value.code == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "Error: cards [0] are not done after 20101 cycles: no port waits"
