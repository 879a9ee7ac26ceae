"""No tool outlives the program that started it."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gradnic import build_cache, processes

# Starts a shell that starts a sleep, says their numbers, and waits for them.
PROGRAM = """
import signal, subprocess, sys
from gradnic import processes
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs behind a shell ignores it
processes.exit_on_signals()
tool = processes.start(["sh", "-c", "sleep 100 & echo $$ $!; wait"], stdout=subprocess.PIPE)
print(tool.stdout.readline().decode(), flush=True)
tool.wait()
"""


def alive(pid):
    """Is there such a process, and is it not just waiting for its parent to notice its end?"""
    try:
        with Path(f"/proc/{pid}/stat").open() as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids, seconds=5):
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(map(alive, pids)):
        time.sleep(0.02)
    return not any(map(alive, pids))


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="reads /proc to see what is alive")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_tool_ends_with_its_user(number):
    user = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    pids = [int(word) for word in user.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(alive, pids))
    user.send_signal(number)
    assert user.wait(20) != 0
    user.stdout.close()
    assert gone(pids)


def test_kill_ends_what_the_tool_started():
    tool = processes.start(["sh", "-c", "sleep 100 & echo $!; wait"], stdout=subprocess.PIPE)
    child = int(tool.stdout.readline())
    processes.kill(tool)
    tool.stdout.close()
    assert tool.returncode == -signal.SIGKILL
    assert gone([child])
    processes.kill(tool)  # ended already: nothing happens


# As a command that compiles: in a pool's thread, or in a forked worker, in a folder that is kept.
BUILDER = """
import multiprocessing, pathlib, signal, sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from gradnic import build_cache, processes
signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.argv[2] != "plain":  # a program of somebody's own, that only builds
    processes.exit_on_signals()
root = pathlib.Path(sys.argv[1])

def make(work):
    (work / "design").write_text("x")
    told = f"sleep 100 & echo $$ $! > {root}/pids.part; mv {root}/pids.part {root}/pids; wait"
    for _ in range(3):  # a tool that is killed is not followed by the next
        processes.run(["sh", "-c", told])

def build(name):
    build_cache.kept(root / name, make)

if sys.argv[2] == "thread":
    with ThreadPoolExecutor(2) as pool:
        pool.submit(build, "card").result()
elif sys.argv[2] == "worker":
    context = multiprocessing.get_context("fork")
    with context.Pool(1, initializer=processes.die_on_signals) as pool:
        list(pool.imap(build, ["card"]))
elif sys.argv[2] == "executor":
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, context, processes.die_on_signals) as pool:
        pool.submit(build, "card").result()
else:
    build("card")
"""


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="reads /proc to see what is alive")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("where", ["here", "plain", "thread", "worker", "executor"])
def test_a_build_that_is_ended_leaves_nothing(tmp_path, number, where):
    user = subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(tmp_path), where], stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 30
    while not (tmp_path / "pids").exists() and time.monotonic() < end:
        time.sleep(0.02)
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert len(list(tmp_path.glob(".build-card-*"))) == 1
    assert all(map(alive, pids))
    user.send_signal(number)
    assert user.wait(20) != 0
    assert gone(pids)
    assert not list(tmp_path.glob(".build-*"))
    assert not (tmp_path / "card").exists()


# The command, whose first import of another package, by `test_told_to_end_while_it_imports`, lasts.
COMMAND = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("gradnic", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("number", "status", "line"), [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "interrupted")]
)
def test_told_to_end_while_it_imports(tmp_path, number, status, line):
    """As later: a status of its own, and no traceback."""
    (tmp_path / "click.py").write_text("print(1, flush=True)\nimport time\ntime.sleep(60)\n")
    user = subprocess.Popen(
        [sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert user.stdout.readline() == "1\n"
    user.send_signal(number)
    assert user.communicate(timeout=20)[1].strip() == line
    assert user.returncode == status


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="reads /proc to see what is alive")
def test_a_compiler_of_cocotb_ends_with_pytest(tmp_path):
    """Told to end while a compiler runs: the compiler ends, and no other test begins."""
    for name in ("iverilog", "vvp"):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\nsleep 100 & echo $$ $! > {tmp_path}/part\n"
                        f"mv {tmp_path}/part {tmp_path}/pids\nwait\n")  # fmt: skip
        tool.chmod(0o755)
    bench = Path(__file__).parents[1] / "engine" / "test_runner.py"
    words = ["-p", "no:cacheprovider", "-k", "no_test or failure", "-q", str(bench)]
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    user = subprocess.Popen(
        [sys.executable, "-m", "pytest", *words], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PATH": path, "GRADNIC_BUILD": str(tmp_path / "build")},
    )  # fmt: skip
    end = time.monotonic() + 60
    while not (tmp_path / "pids").exists() and time.monotonic() < end:
        time.sleep(0.02)
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert all(map(alive, pids))
    user.send_signal(signal.SIGTERM)
    said, _ = user.communicate(timeout=20)
    assert user.returncode == 130, said
    assert "told to end" in said
    assert "1 failed" in said
    assert gone(pids)


# A worker that is told to end before it has begun: the signal comes before its first instruction.
FRESH = """
import multiprocessing, os, signal, sys, time
from gradnic import processes
processes.exit_on_signals()
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
context = multiprocessing.get_context("fork")
with processes.sigterm_waits():
    begin = lambda: (processes.die_on_signals(), time.sleep(100))
    worker = context.Process(target=begin, daemon=True)
    worker.start()
worker.join(20)
sys.exit(worker.exitcode)
"""


def test_a_worker_that_has_not_begun_ends():
    assert subprocess.run([sys.executable, "-c", FRESH]).returncode == 128 + signal.SIGTERM


# A worker that does not hear the first signal: a pool itself sends no other.
DEAF = """
import multiprocessing, signal, sys, time
from gradnic import processes

def work(k):
    if k:
        signal.signal(signal.SIGTERM, lambda *_: processes.die_on_signals())
        time.sleep(100)

with processes.sigterm_waits():
    pool = multiprocessing.get_context("fork").Pool(2, initializer=processes.die_on_signals)
next(pool.imap_unordered(work, range(2)))
time.sleep(0.5)
processes.terminate(pool)
"""


def test_workers_are_told_to_end_until_they_do():
    assert subprocess.run([sys.executable, "-c", DEAF], timeout=20).returncode == 0


def test_what_a_killed_builder_left_is_removed(tmp_path):
    (tmp_path / ".build-card-dead").mkdir()
    folder = build_cache.kept(tmp_path / "card", lambda work: (work / "so").touch())
    assert [path.name for path in folder.iterdir()] == ["so"]
    assert not list(tmp_path.glob(".build-*"))
    build_cache.kept(folder, lambda work: pytest.fail("it is there"))


def test_one_builds_and_the_others_wait(tmp_path):
    made = []

    def make(work):
        made.append(work)
        time.sleep(0.1)

    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(lambda _: build_cache.kept(tmp_path / "card", make), range(4)))
    assert folders == [tmp_path / "card"] * 4
    assert len(made) == 1


def test_run_gives_what_the_tool_says():
    done = processes.run(["sh", "-c", "echo out; exit 3"], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (3, "out\n")
    with pytest.raises(subprocess.TimeoutExpired):
        processes.run(["sleep", "60"], timeout=0.1)


def test_a_folder_that_takes_nothing_is_told_with_the_way_out(tmp_path):
    (tmp_path / "file").touch()
    for folder in tmp_path / "file" / "native", Path("/proc/self/native"):
        with pytest.raises(processes.ToolError, match=f"{folder} takes nothing .*GRADNIC_BUILD"):
            build_cache.kept(folder / "model", lambda work: None)
