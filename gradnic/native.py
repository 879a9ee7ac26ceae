"""C++ that lies beside a Python file, compiled once and kept: loops that Python is too slow for."""

import ctypes
import hashlib
import os
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from gradnic import processes
from gradnic.build_cache import build_root, kept


@cache
def library(source: Path, *, build: bool = True) -> ctypes.CDLL | None:
    """The library of a C++ file, which may include headers beside it.

    Compiling takes seconds, once, into ``build/native``.

    build : False: only if it is there already. None where there is no compiler (``CXX``, else g++)
    or no filelock to compile under. `gradnic.processes.ToolError` if the compiler fails.
    """
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-std=c++20", "-O2", "-ffp-contract=off", "-shared", "-fPIC"]
    texts = [one.read_text() for one in (source, *sorted(source.parent.glob("*.h")))]
    named = hashlib.sha256("\0".join([*texts, *command]).encode()).hexdigest()[:20]
    folder = build_root() / "native" / f"{source.stem}-{named}"
    if not folder.exists():
        if not build or shutil.which(compiler) is None or find_spec("filelock") is None:
            return None
        kept(folder, lambda work: _compile(command, source, work))
    return ctypes.CDLL(str(folder / "model.so"))


def _compile(command, source, folder):
    with (folder / "compiler.log").open("wb") as log:
        done = processes.run([*command, str(source), "-o", "model.so"], cwd=folder, stdout=log,
                             stderr=subprocess.STDOUT)  # fmt: skip
    if done.returncode:
        tail = (folder / "compiler.log").read_text(errors="replace")[-2000:]
        raise processes.ToolError(f"{command[0]} does not compile {source.name}:\n{tail}")
