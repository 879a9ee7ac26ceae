"""Yosys as a server: each script has its own status, log and folder, and a late one ends."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import pytest
from gradnic.sim.engine import tools

NOT = "read_verilog <<X\nmodule top(input a, output b); assign b = !a; endmodule\nX\n"
SLOW = "read_verilog <<X\nmodule top(input [255:0] a, output [511:0] b); assign b = a * a;\n"
SLOW += "endmodule\nX\nsynth -flatten\n"


def write(folder):
    folder.mkdir()
    tools.yosys(f"{NOT}write_verilog -noattr top.v\n", folder=folder, outputs=["top.v"])
    return (folder / "top.v").read_text()


def test_a_server_runs_one_script_after_the_other(tmp_path):
    first = write(tmp_path / "first")
    servers = list(tools._idle)
    with pytest.raises(tools.ToolError, match=r"(?s)ended with status 1, see .*No such command"):
        tools.yosys("nonsense\n", folder=tmp_path, outputs=[])
    with pytest.raises(tools.ToolError, match=r"wrote no other\.v"):
        tools.yosys(NOT, folder=tmp_path, outputs=["other.v"])
    assert write(tmp_path / "second") == first
    assert tools._idle == servers


def test_a_late_script_ends_with_its_server(tmp_path):
    write(tmp_path / "quick")
    server = tools._idle[-1]
    with pytest.raises(tools.TimeLimit, match=r"did not end within 0\.2 s"):
        tools.yosys(SLOW, folder=tmp_path, outputs=[], timeout=0.2)
    assert server.returncode is not None
    assert server not in tools._idle
    write(tmp_path / "again")


def test_another_takes_the_place_of_one_that_was_killed(tmp_path):
    write(tmp_path / "first")
    tools._idle[-1].kill()
    tools._idle[-1].wait()
    write(tmp_path / "second")


def test_threads_and_forks_have_servers_of_their_own(tmp_path):
    folders = [tmp_path / str(k) for k in range(6)]
    with ThreadPoolExecutor(3) as pool:
        texts = set(pool.map(write, folders[:3]))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        texts |= set(pool.map(write, folders[3:]))
    assert len(texts) == 1
    write(tmp_path / "after")
