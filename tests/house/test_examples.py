"""The programs in examples/ run as they stand."""

import re
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.engine import tools
from gradnic.sim.offload.twin import Twin, TwinServer

from gradnic.host.framed_card import FramedCard
from gradnic.host.frames import FrameHost, udp
from gradnic.interface.job import Job

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize(
    "path",
    [path for path in EXAMPLES if path.stem != "train_on_cards"],  # below, on both engines
    ids=lambda path: path.stem,
)
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


class Losing(TwinServer):
    """A server that loses every fourth frame, either way."""

    n_told = 0

    def _framed(self, node, octets, host):
        return b"" if self.n_frames % 4 == 3 else super()._framed(node, octets, host)

    def _tell(self, node, frame):
        self.n_told += 1
        if self.n_told % 4 != 2:
            super()._tell(node, frame)


@pytest.mark.parametrize("kind", [TwinServer, Losing])
def test_hosts_in_c_sum_on_cards(kind, tmp_path):
    source = EXAMPLES[0].with_name("all_reduce.c")
    built = ["g++", "-x", "c", "-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Wconversion"]
    subprocess.run([*built, "-Werror", "-o", tmp_path / "all_reduce", source], check=True)
    topology = parse("ring:3")
    table = compile_table(build(topology, "ring"))
    server, stop = kind(Twin((table,), topology, 1 << 16), port=0), threading.Event()
    served = threading.Thread(target=server.serve, args=(lambda: not stop.is_set(),))
    served.start()
    try:
        for end in server.ends:  # a host that leaves before its job has ended
            with FrameHost(*udp(*end), patience=60.0) as link:
                FramedCard(link)
                link.post(Job(id=7, tensor=1, gen=1, elems=64, source=57344, result=57344))
        ends = [f"{host}:{port}" for host, port in server.ends]
        run = subprocess.run([tmp_path / "all_reduce", *ends], capture_output=True, text=True)
    finally:
        stop.set()
        served.join()
        server.close()
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("5000 floats summed") == 3
    assert f"{ends[0]}: beats of 64 bytes, 1 port, 65536 bytes of memory from 0 on" in run.stdout
    for port in "", "0", "65536", "1x":
        run = subprocess.run([tmp_path / "all_reduce", f"127.0.0.1:{port}"], capture_output=True)
        assert (run.returncode, run.stderr) == (1, b"error: a port must be 1 to 65535\n")


def test_a_users_module_holds_the_compressor(tmp_path):
    (example,) = [path for path in EXAMPLES if path.stem == "compressor_in_a_design"]
    run = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    assert "module mine(" in run.stdout
    assert run.stdout.count("endmodule") > 1
