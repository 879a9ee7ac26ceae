"""What people read: figures whole at any width, one format, progress wherever it is read."""

import io
import json
import time

import pytest
from click.testing import CliRunner
from gradnic.sim.inceptionn import chain

from gradnic import cli, output, progress, quantities
from gradnic.commands import chain as chain_command
from gradnic.commands import train as train_command


def gradnic(words, **environment):
    return CliRunner(env=environment).invoke(cli.cli, words.split())


@pytest.mark.parametrize("columns", ["20", "80", "300"])
def test_figures_are_not_cut_where_there_is_no_terminal(columns, tmp_path):
    words = f"transport --bytes 1MB --p 0,0.01 --runs 1 --json {tmp_path}/t.json"
    done = gradnic(words, COLUMNS=columns)
    assert done.exit_code == 0, done.output
    assert "…" not in done.output
    for row in json.loads((tmp_path / "t.json").read_text())["curve"]:
        for value in row.values():
            assert f" {output.figure(value)} " in done.output


@pytest.mark.parametrize("columns", ["20", "80"])
def test_lines_are_whole_where_there_is_no_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    line = " ".join(f"word{k}" for k in range(100))
    output.console().print(line)
    assert capsys.readouterr().out == f"{line}\n"


@pytest.mark.parametrize("width", [12, 40, 80, 200])
def test_figures_are_not_cut_on_a_terminal(width, monkeypatch):
    monkeypatch.setattr(output.Screen, "is_terminal", True)
    screen = output.Screen()
    screen.width, screen.file = width, io.StringIO()
    names = [f"figure {k} of many" for k in range(9)]
    screen.print(output.table("wide", names, [[123456789 + k for k in range(9)], [0.12345] * 9]))
    text = screen.file.getvalue()
    assert "…" not in text
    for k in range(9):
        assert str(123456789 + k) in text
    assert text.count("0.1235") == 9 or text.count("0.1234") == 9


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (70516, "70516"),
        (64510.4, "64510"),
        (6.451e9, "6451000000"),
        (9999.4, "9999"),
        (0.12345, "0.1235"),
        (1.0, "1"),
        (0.0, "0"),
        (-64510.4, "-64510"),
        (2.5e-7, "2.5e-07"),
        (1e20, "1e+20"),
        (float("nan"), "nan"),
        (True, "True"),
        ("x", "x"),
    ],
)
def test_one_format(value, text):
    assert output.figure(value) == text


def test_simulate_prints_cycles_alike():
    done = gradnic("simulate --topology torus:4x4 --algorithm ring --bytes 1MB")
    assert done.exit_code == 0, done.output
    assert "e+0" not in done.output


def test_progress_without_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PERIOD", 0.02)
    with progress.Progress() as bar:
        task = bar.add_task("training", total=200)
        bar.update(task, completed=50)
        time.sleep(0.2)
        bar.update(task, completed=200)
        bar.add_task("all-reduce", total=None)
        time.sleep(0.2)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert "training, 50 of 200, 0 s" in lines
    assert "all-reduce, 0 s" in lines
    assert not lines[-1].startswith("training")
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [(12345, 1_000_000, "12,345 of 1,000,000"), (0, 3, "0 of 3"), (0.25, 1.0, "0.25 of 1")],
)
def test_counts_are_whole_in_progress(done, total, text):
    with progress.Progress() as bar:
        task = bar.add_task("frames", total=total)
        bar.update(task, completed=done)
        assert progress.line_of(bar.tasks[0]) == f"frames, {text}, 0 s"


@pytest.fixture
def told(monkeypatch):
    """Every line that a command's progress could be told by, without its seconds."""
    lines = []

    class Watched(progress.Progress):
        def add_task(self, *args, **fields):
            task = super().add_task(*args, **fields)
            lines.append(progress.line_of(self.tasks[task]))
            return task

        def update(self, task, **fields):
            super().update(task, **fields)
            lines.append(progress.line_of(self.tasks[task]))

    for command in chain_command, train_command:
        monkeypatch.setattr(command, "Progress", Watched)
    return lambda: [line.rpartition(", ")[0] for line in lines]


def test_training_is_told_by_iterations(told):
    done = gradnic("train --codec none --epochs 2 --workers 4 --batch 500")
    assert done.exit_code == 0, done.output
    assert told() == [f"none, iterations, {i} of 4" for i in range(5)]


def test_a_chain_tells_its_share_once_it_is_built(told, monkeypatch):
    monkeypatch.setattr(chain, "chain", lambda n_lanes: None)
    monkeypatch.setattr(chain, "play", lambda *args, **options: (400, 10, 0.001))
    done = gradnic("chain --lanes 4 --floats 1000 --jobs 1")
    assert done.exit_code == 0, done.output
    shares = [f"floats, {n} of 1,000" for n in ("0", "400", "800", "1,000")]
    assert told() == ["building the chain, 4 lanes", *shares]


def test_short_work_says_nothing(capsys):
    with progress.status("one") as say:
        say("two")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        *[("4096", 4096), ("4096B", 4096), ("1e3", 1000), ("1kB", 1000), ("1KB", 1000)],
        *[("2GB", 2 * 10**9), ("2Gb", 250_000_000), ("2Gbit", 250_000_000), ("16b", 2)],
        *[("2GiB", 2 << 30), ("2Gib", 1 << 28), ("0.5 KiB", 512)],
    ],
)
def test_a_small_b_is_bits(text, n_bytes):
    assert quantities.parse_size(text) == n_bytes
    for command in ("simulate --topology ring:4 --algorithm ring", "transport --p 0 --runs 1"):
        if n_bytes <= 4096:
            done = gradnic(f"{command} --json - --bytes {text.replace(' ', '')}")
            expected = (0, n_bytes) if n_bytes >= 4 else (2, None)
            found = json.loads(done.stdout)["bytes"] if done.exit_code == 0 else None
            assert (done.exit_code, found) == expected, done.output


@pytest.mark.parametrize("text", ["", "b", "2gb", "2mib", "2 XB", "1.3", "9b", "1e400", "-4"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="bytes must be"):
        quantities.parse_size(text)


@pytest.mark.parametrize(
    ("command", "name"),
    [("schedule", "multitree"), ("simulate", "multitree"), ("synth", "compressor"),
     ("verilog", "inline8"), ("fpga", "ulx3s"), ("mutate", "fifo")],
)  # fmt: skip
def test_lists_are_asked_for_in_one_way(command, name):
    done = gradnic(f"{command} --list --json -")
    assert done.exit_code == 0, done.output
    assert name in json.loads(done.stdout)
    assert name in gradnic(f"{command} --list").stdout
