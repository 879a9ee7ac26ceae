"""Tests of YoWASP's tools on a machine that has none of them compiled yet."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import wasmtime

from gradnic import yowasp

EMPTY = '(module (func (export "_start")))'


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Folder of the compiled modules; `yowasp` knows a tool `empty` that does nothing."""
    package = tmp_path / "packages" / "empty_tool"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def run(arguments):\n    return len(arguments)\n")
    (package / "empty.wasm").write_bytes(wasmtime.wat2wasm(EMPTY))
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("YOWASP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(yowasp.TOOLS, "empty", ("empty_tool", "run"))
    yield tmp_path / "cache" / "empty_tool" / "empty.wasm"
    sys.modules.pop("empty_tool", None)


def test_one_compiles_and_nobody_sees_half_of_a_module(cache, monkeypatch):
    """Others wait; who asks for no lock, as YoWASP's own runtime, finds no file or a whole one."""
    made, seen = [], []

    def writes(path, content):
        made.append(content)
        with path.open("wb") as file:
            for half in (content[: len(content) // 2], content[len(content) // 2 :]):
                file.write(half)
                file.flush()
                time.sleep(0.1)
                seen.extend(file.read_bytes() for file in cache.iterdir() if file.is_file())

    monkeypatch.setattr(Path, "write_bytes", writes)
    with ThreadPoolExecutor(3) as pool:
        loaded = [pool.submit(yowasp.load, "empty") for _ in range(3)]
        assert all(isinstance(each.result()[1], wasmtime.Module) for each in loaded)
    assert len(made) == 1
    assert not seen
    assert [file.read_bytes() for file in cache.iterdir()] == made


def test_a_module_of_another_version_is_replaced(cache):
    yowasp.load("empty")
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(b"of another version")
    yowasp.load("empty")
    assert [file.read_bytes() for file in cache.iterdir()] == [whole]


def test_a_tool_is_called_with_its_arguments(cache, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gradnic.yowasp", "empty", "-q", "script.ys"])
    assert yowasp.main() == 2
    assert "made ready" in capsys.readouterr().err
    assert yowasp.main() == 2
    assert not capsys.readouterr().err
