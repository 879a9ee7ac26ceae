"""One subsystem, four rooms; packages import downwards only, and no two files need each other."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("hdl", "models", "sim", "fpga")

ROOTS = tuple(f"gradnic.{room}" for room in ROOMS)

GROUND = (
    "gradnic.interface",
    "gradnic.arrays",
    "gradnic.build_cache",
    "gradnic.errors",
    "gradnic.native",
    "gradnic.output",
    "gradnic.processes",
    "gradnic.text_file",
)
"""What circuit, model and bench agree on, and small helpers: any room may import these."""

HDL = {
    "primitive": "",
    "stream": "primitive",
    "axi": "primitive stream",
    "frame": "primitive stream",
    "inceptionn": "primitive stream",
    "thc": "primitive stream",
    "schedule": "primitive stream",
    "reduction": "primitive stream inceptionn",
    "aggregation": "primitive stream axi frame",
    "inline": "primitive stream axi frame inceptionn",
    "top": "primitive axi",
    "transport": "primitive stream axi frame reduction",
    "direct": "primitive stream inceptionn schedule reduction",
    "shells": "primitive stream axi frame top",
    "offload": "primitive stream axi frame inceptionn thc schedule reduction transport",
}
"""Arrows between the packages of hdl/, ground first: a new one is a decision."""

MODELS = {
    "frame": "",
    "inceptionn": "",
    "thc": "",
    "reduction": "",
    "transport": "frame",
    "aggregation": "frame thc",
    "schedule": "aggregation",
    "direct": "inceptionn reduction schedule",
    "inline": "frame inceptionn",
    "offload": "aggregation frame inceptionn reduction schedule thc transport",
    "training": "inceptionn schedule thc transport",
}
"""The same for models/."""

ELSEWHERE = {
    "axi/register_bank.py": "serves a map of `gradnic.interface.register_map`, the model of it",
    "reduction/codec_image.py": "is `gradnic.models.inceptionn.image`",
}
"""Circuits whose model or test has another name, and why."""


def files(room):
    return sorted(p for p in (ROOT / room).rglob("*.py") if p.name != "__init__.py")


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "gradnic" else ("gradnic", *parts))


def imports(path, *, lazy=True):
    """Modules of gradnic that a file imports; without `lazy` only those at its top level."""
    tree = ast.parse(path.read_text())
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    for node in ast.walk(tree) if lazy else tree.body:
        if isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            module = f"{base}.{node.module or ''}".rstrip(".") if node.level else node.module
            for alias in node.names:
                face = f"{module}.{alias.name}" if module in ROOTS else module
                yield face, alias.name
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)


def package(module):
    """Room and package of a module of gradnic, such as ("hdl", "stream")."""
    parts = module.split(".")
    return tuple((*parts[1:3], "")[:2])


@pytest.mark.parametrize(("room", "arrows"), [("hdl", HDL), ("models", MODELS)])
def test_packages_import_along_the_arrows(room, arrows):
    wrong = []
    for path in files(room):
        own = package(module_of(path))[1]
        if own not in arrows:
            continue  # a face, which hands names on
        allowed = {own, *arrows[own].split()}
        for module, _ in imports(path):
            if module.split(".")[0] != "gradnic" or module.startswith(GROUND):
                continue
            there, name = package(module)
            if there != room or name not in allowed:
                wrong.append(f"{path.relative_to(ROOT)}: {module}")
    assert wrong == []


@pytest.mark.parametrize("arrows", [HDL, MODELS])
def test_arrows_go_down(arrows):
    order = list(arrows)
    assert all(order.index(b) < order.index(a) for a in arrows for b in arrows[a].split())


@pytest.mark.parametrize("room", ["hdl", "models"])
def test_every_package_has_its_arrows(room):
    found = {p.parent.name for p in (ROOT / room).glob("*/__init__.py")}
    assert found == set(HDL if room == "hdl" else MODELS)


def test_no_two_files_need_each_other():
    known = {module_of(p): p for room in (*ROOMS, "gradnic") for p in (ROOT / room).rglob("*.py")}
    graph = {}
    for module, path in known.items():
        needs = {m if f"{m}.{n}" not in known else f"{m}.{n}" for m, n in imports(path, lazy=False)}
        graph[module] = {m for m in needs if m in known and m != module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def rooms():
    """(circuit, what it says of itself) for each file of hdl/."""
    for path in files("hdl"):
        yield path.relative_to(ROOT / "hdl"), ast.get_docstring(ast.parse(path.read_text())) or ""


def standing(path, says):
    """What a circuit has in the other rooms, or why not."""
    part = re.search(r"Part of `gradnic\.hdl\.([\w.]+)`", says)
    if part:
        assert (ROOT / "hdl" / f"{part[1].replace('.', '/')}.py").exists(), f"{path}: {part[1]}"
    twins = (ROOT / "models" / path, ROOT / "tests" / path.parent / f"test_{path.name}")
    if all(twin.exists() for twin in twins):
        return "model and test of its name"
    if "Plumbing" in says:
        return "plumbing"
    if part:
        return "part of another, named"
    return "on the list" if str(path) in ELSEWHERE else "missing"


def test_circuits_have_their_model_and_test_by_name():
    """Or say in their docstring that they are plumbing, or what they are a part of."""
    assert [path for path, says in rooms() if standing(path, says) == "missing"] == []


def test_the_list_of_others_is_short_and_true():
    for name, reason in ELSEWHERE.items():
        assert (ROOT / "hdl" / name).exists(), name
        for file in re.findall(r"(?:models|tests)/[\w/]+\.py", reason):
            assert (ROOT / file).exists(), f"{name}: {file}"
    assert len(ELSEWHERE) <= len(files("hdl")) // 10


if __name__ == "__main__":  # python tests/house/test_rooms.py
    found = [standing(path, says) for path, says in rooms()]
    for what in sorted(set(found), key=found.count, reverse=True):
        print(
            f"{found.count(what):4} of {len(found)} ({found.count(what) / len(found):.0%}): {what}"
        )
