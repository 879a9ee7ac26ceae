"""Circuits that were elaborated before: an offload card takes Amaranth ten to twenty seconds."""

import os
import sys
import time
import warnings
from functools import cache
from importlib import metadata
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import UnusedElaboratable

from gradnic import hdl, interface

from . import tools, verilated

_started = time.time()


@cache
def _sources():
    """Digest of what circuits are made of; None if a file changed since this process began."""
    files = sorted(
        path for package in (hdl, interface) for path in Path(package.__path__[0]).rglob("*.py")
    )
    if max(path.stat().st_mtime for path in files) > _started:
        return None
    versions = (metadata.version("amaranth"), tools.yosys_version(), sys.version)
    return tools.digest(*(path.read_bytes() for path in files), *versions)


def design(component, made_of):
    """The folder of `verilated.design` for a component; not elaborated where it was before.

    made_of : dict, all that the component's constructor was given; a value's ``repr`` must tell it
        from any other. A class that is not a module's own, as a twin's, is always elaborated.
    """
    kind = type(component)
    module = sys.modules.get(kind.__module__)
    known = kind.__module__.startswith(f"{hdl.__name__}.") and _sources()
    if not known or getattr(module, kind.__qualname__, None) is not kind:
        return _elaborate(component)
    told = f"{kind.__module__}.{kind.__qualname__} {sorted(made_of.items())}"
    tool = (Path(verilated.__file__).read_text(), verilated.versions())
    root = tools.build_root() / "verilator"
    note = root / f"elaborated-{tools.digest(told, known, *tool)}"
    if note.exists() and (folder := root / note.read_text()).exists():
        # the component was made to be asked for its ports only
        warnings.filterwarnings("ignore", category=UnusedElaboratable)
        return folder
    folder = _elaborate(component)
    part = note.with_name(f".{note.name}-{os.getpid()}")
    part.write_text(folder.name)
    part.replace(note)
    return folder


def _elaborate(component):
    return verilated.design(rtlil.convert(component, name="top", emit_src=False))
