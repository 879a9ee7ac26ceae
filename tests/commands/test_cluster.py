"""Runs on a cluster: two worker processes, one killed; resumed by content; errors in one line."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from gradnic import cli, cluster
from gradnic.cluster import Cluster, key_of, spread

# Dask's own warnings, of versions and of ports, say nothing about these runs
pytestmark = pytest.mark.filterwarnings("ignore")


def squared(log):
    """A function that notes each run in a file; sent as it is, workers need not import this."""

    def run(x):
        with Path(log).open("a") as file:
            file.write(f"{x} {os.getpid()}\n")
        return {"x": x, "square": x * x, "tenth": x / 10}

    return run


def ran(log):
    return [int(line.split()[0]) for line in log.read_text().splitlines()]


def test_a_killed_worker_s_work_is_done_again(tmp_path):
    log, marker = tmp_path / "log", tmp_path / "killed"

    def run(x):
        if x == 3 and not marker.exists():
            marker.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        with Path(log).open("a") as file:
            file.write(f"{x} {os.getpid()}\n")
        return x * x

    kept = tmp_path / "kept.jsonl"
    got = spread(run, [{"x": x} for x in range(12)], Cluster(workers=2, resume=str(kept)))
    assert got == [x * x for x in range(12)]
    assert marker.exists()
    assert set(ran(log)) == set(range(12))
    assert len({line.split()[1] for line in log.read_text().splitlines()}) >= 2
    assert sorted(json.loads(line)["result"] for line in kept.read_text().splitlines()) == got


def test_what_was_kept_is_not_run_again(tmp_path):
    log, kept = tmp_path / "log", tmp_path / "sub" / "kept.jsonl"
    run, where = squared(str(log)), Cluster(resume=str(kept))
    work = [{"x": x} for x in (1, 2, 3)]
    first = spread(run, work, where)
    assert first == [{"x": x, "square": x * x, "tenth": x / 10} for x in (1, 2, 3)]
    assert spread(run, [*work, {"x": 4}], where)[:3] == first
    assert ran(log) == [1, 2, 3, 4]
    text = kept.read_text()
    kept.write_text(text[:-20])  # killed while it wrote: that one is run again
    assert spread(run, [*work, {"x": 4}], where)[3]["square"] == 16
    assert ran(log) == [1, 2, 3, 4, 4]
    assert kept.read_text() == text
    kept.write_text("no results\n" + text)
    with pytest.raises(ValueError, match=r"holds no results of runs: 'no results'"):
        spread(run, work, where)


def test_a_key_is_the_function_and_its_arguments():
    run = squared("x")
    keys = {key_of(run, {"a": 1, "b": 2}), key_of(run, {"b": 2, "a": 1}), key_of(run, {"a": 2})}
    assert len(keys) == 2
    assert key_of(ran, {"a": 2}) not in keys


def test_transport_gives_the_same_on_two_processes(tmp_path):
    words = ["transport", "--bytes", "100kB", "--p", "0,0.02", "--runs", "1", "--json", "-"]
    kept = ["--resume", f"{tmp_path}/t.jsonl"]
    alone, two = (
        CliRunner().invoke(cli.cli, [*words, *more]) for more in ([], ["--workers", "2", *kept])
    )
    assert alone.exit_code == two.exit_code == 0, two.output
    assert json.loads(alone.stdout) == json.loads(two.stdout)
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"scheduler": "tcp://127.0.0.1:9", "workers": 2}, "exclude each other"),
        ({"scheduler": "nowhere:x", "workers": 0}, "no Dask scheduler answers at nowhere:x"),
    ],
)
def test_mistakes_are_named(where, message):
    with pytest.raises(Exception, match=message):
        spread(ran, [{"log": 1}], cluster.of_options(**where, resume=None))
