"""Circuits that were elaborated before: an offload card takes Amaranth ten to twenty seconds."""

import enum
import os
import sys
import threading
import time
import warnings
from functools import cache
from importlib import metadata
from pathlib import Path

from amaranth.hdl import Cat, Const, MemoryData, Shape, Signal, UnusedElaboratable
from amaranth.lib import data, wiring
from gradnic.hdl.top.rtlil import to_rtlil

from gradnic import hdl, interface

from . import tools, verilated

_started = time.time()
_Concat = type(Cat())  # which Amaranth names nowhere else


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


class _Unknown(Exception):
    """Something whose text may be the same for two that differ."""


def _described(item, seen):
    """Text of what an elaboration can see of a component or of what it holds."""
    if item is None or isinstance(item, bool | int | float | str | bytes | range | enum.Enum):
        return repr(item)
    if isinstance(item, type):
        return f"{item.__module__}.{item.__qualname__}"
    if id(item) in seen:
        return f"#{seen[id(item)][0]}"
    seen[id(item)] = len(seen), item  # kept, so that no other gets its id
    if isinstance(item, list | tuple):
        return f"[{', '.join([_described(each, seen) for each in item])}]"
    if isinstance(item, dict):
        place = "_MustUse__"  # where it was made
        pairs = [pair for pair in item.items() if not str(pair[0]).startswith(place)]
        return _described(pairs, seen)
    if isinstance(item, Signal):
        return f"{item!r} {item.shape()!r} {item.init!r} {item.reset_less}"
    if isinstance(item, _Concat):
        return f"cat {_described([*item.parts], seen)}"
    if isinstance(item, data.View):
        return f"{_described(item.shape(), seen)} {_described(item.as_value(), seen)}"
    if isinstance(item, wiring.FlippedInterface):
        return f"flipped {_described(wiring.flipped(item), seen)}"
    if isinstance(item, MemoryData):
        return f"{_described(item.shape, seen)} {item.depth} {_described([*item.init], seen)}"
    kind = type(item)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(item, wiring.Signature):
        return f"{name} {_described([*item.members.items()], seen)}"
    if isinstance(item, wiring.Member):
        what = item.signature if item.is_signature else (item.shape, repr(item.init))
        return _described([item.flow, what, item.dimensions], seen)
    if isinstance(item, data.Layout | Shape | Const):
        text = repr(item)
        if " at 0x" in text:
            raise _Unknown
        return text
    ours = kind.__module__.startswith((f"{hdl.__name__}.", f"{interface.__name__}."))
    ours &= getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind
    ours |= kind.__module__.startswith("amaranth.lib.")
    if hasattr(item, "__dict__") and ours:
        return f"{name} {_described(vars(item), seen)}"
    raise _Unknown(name)


def described(component):
    """Text that two components share only if they have the same circuit, or None: none is sure.

    It holds all that the constructor has left in the component, and in what that refers to: what
    an elaboration reads, apart from the sources. Plain values, shapes, signals, and objects of
    classes of this package are known; None where there is anything else, as a function.
    """
    try:
        return _described(component, {})
    except _Unknown:
        return None


def design(component, made_of=None, *, look=None):
    """The folder of `verilated.design` for a component; not elaborated where it was before.

    made_of : dict, all that the component's constructor was given; a value's ``repr`` must tell it
        from any other. None: what `described` says. A class that is not a module's own, as a
        twin's, is always elaborated. look : called with the RTLIL of one that is elaborated.
    """
    kind = type(component)
    module = sys.modules.get(kind.__module__)
    known = kind.__module__.startswith(f"{hdl.__name__}.") and _sources()
    own = known and getattr(module, kind.__qualname__, None) is kind
    described_as = own and (
        described(component) if made_of is None else f"{sorted(made_of.items())}"
    )
    if not described_as:
        return _elaborate(component, look)
    described_as = f"{kind.__module__}.{kind.__qualname__} {described_as}"
    tool = (Path(verilated.__file__).read_text(), verilated.versions())
    root = tools.build_root() / "verilator"
    note = root / f"elaborated-{tools.digest(described_as, known, *tool)}"
    if note.exists() and (folder := root / note.read_text()).exists():
        # the component was made to be asked for its ports only
        warnings.filterwarnings("ignore", category=UnusedElaboratable)
        return folder
    folder = _elaborate(component, look)
    part = note.with_name(f".{note.name}-{os.getpid()}-{threading.get_ident()}")
    part.write_text(folder.name)
    part.replace(note)
    return folder


def _elaborate(component, look):
    text = to_rtlil(component, name="top", emit_src=False)
    if look:
        look(text)
    return verilated.design(text)
