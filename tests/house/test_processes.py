"""No tool outlives the program that started it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from gradnic import processes

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
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids, seconds=5):
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(map(alive, pids)):
        time.sleep(0.02)
    return not any(map(alive, pids))


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc to see what is alive")
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
