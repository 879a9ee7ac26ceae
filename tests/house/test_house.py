"""Guards of the house: what ships, what may import what, and that bare names fail."""

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = CONFIG["tool"]["setuptools"]["package-dir"]


def source_files(folder):
    return sorted((ROOT / folder).rglob("*.py"))


def imported(path, package):
    """Absolute names that the file imports; relative ones resolved against `package`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            module = f"{base}.{node.module or ''}".rstrip(".") if node.level else node.module
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def package_of(path):
    """Import name of the package that holds `path`."""
    parts = path.relative_to(ROOT).parent.parts
    return ".".join(parts if parts[0] == "gradnic" else ("gradnic", *parts))


def test_every_package_is_listed():
    found = {package_of(p) for f in FOLDERS.values() for p in (ROOT / f).rglob("__init__.py")}
    assert found == set(CONFIG["tool"]["setuptools"]["packages"])


def test_wheel_holds_every_module(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT], check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", wheel], check=True, capture_output=True, text=True
    ).stdout
    for folder in FOLDERS.values():
        for path in source_files(folder):
            assert f"{package_of(path).replace('.', '/')}/{path.name}" in names


def test_every_module_imports():
    """Also those that only a command or a long test asks for, without the extras installed."""
    for folder in FOLDERS.values():
        for path in source_files(folder):
            if path.name != "__main__.py":
                importlib.import_module(f"{package_of(path)}.{path.stem}".removesuffix(".__init__"))


@pytest.mark.parametrize("name", ["hdl", "models", "sim", "fpga"])
def test_bare_name_fails(name, tmp_path):
    run = subprocess.run([sys.executable, "-P", "-c", f"import {name}"], cwd=tmp_path)
    assert run.returncode != 0


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("hdl", ("gradnic.models", "gradnic.sim", "gradnic.fpga")),
        ("models", ("gradnic.hdl", "gradnic.sim", "gradnic.fpga", "amaranth", "cocotb")),
    ],
)
def test_rooms_do_not_import_each_other(folder, forbidden):
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in source_files(folder)
        for name in imported(path, package_of(path))
        if any(name == f or name.startswith(f + ".") for f in forbidden)
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", ["gradnic", "hdl", "models", "sim", "fpga", "tests"])
def test_no_file_imports_a_bare_name(folder):
    """`import hdl` would make a second copy of every class where the root is on the path."""
    bare = tuple(name for name in FOLDERS.values() if name != "gradnic")
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in source_files(folder)
        for name in imported(path, package_of(path))
        if name.split(".")[0] in bare
    ]
    assert wrong == []


UNTYPED = {"CardHook.average", "Hook.__call__"}  # DDP refuses annotations other than its own


def public(body, prefix=""):
    """(name, ast.FunctionDef, whether it is a method) of what users may call."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public(node.body, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not (
            node.name.startswith("_") and node.name not in ("__init__", "__call__")
        ):
            yield prefix + node.name, node, bool(prefix)


@pytest.mark.parametrize("folder", ["models", "gradnic/host", "gradnic/interface"])
def test_public_functions_say_every_type(folder):
    """mypy takes a function that says none for one of the private ones, which may."""
    missing = []
    for path in source_files(folder):
        for name, node, method in public(ast.parse(path.read_text()).body):
            static = any(getattr(d, "id", "") == "staticmethod" for d in node.decorator_list)
            said = node.args
            named = [*said.posonlyargs, *said.args][method and not static :]
            more = filter(None, (*said.kwonlyargs, said.vararg, said.kwarg))
            typed = node.returns and all(a.annotation for a in (*named, *more))
            if not typed and name not in UNTYPED:
                missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert missing == []
