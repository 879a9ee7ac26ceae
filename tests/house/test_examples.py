"""The programs in examples/ run as they stand."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from gradnic.sim.engine import tools

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADNIC_BUILD", str(tools.build_root()))
    if "import torch" in path.read_text() and find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: pip install -e '.[train]'")
    run = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout


def test_training_through_the_circuit_ends_as_through_golden_cards(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADNIC_BUILD", str(tools.build_root()))
    if find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: pip install -e '.[train]'")
    (example,) = [path for path in EXAMPLES if path.stem == "train_on_cards"]
    runs = [
        subprocess.run([sys.executable, example, *words], cwd=tmp_path, capture_output=True,
                       text=True, check=True).stdout
        for words in ([], ["--rtl"])
    ]  # fmt: skip
    assert re.search(r"loss \S+ -> \S+\nCRC-32 of the weights: [0-9a-f]{8}\n", runs[0])
    assert runs[0] == runs[1]


def test_a_users_module_holds_the_compressor(tmp_path):
    (example,) = [path for path in EXAMPLES if path.stem == "compressor_in_a_design"]
    run = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    assert "module mine(" in run.stdout
    assert run.stdout.count("endmodule") > 1
