"""`gradnic simulate --card`: cycles of RTL, without RTL; and `schedule --card`: tables for it."""

import json

import pytest
from click.testing import CliRunner

from gradnic import cli


def figures(words):
    done = CliRunner().invoke(cli.cli, [*words.split(), "--json", "-"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def cycles(words):
    return figures(f"simulate {words}")["cycles_total"]


@pytest.mark.parametrize(
    ("words", "rtl"),
    [
        ("--topology torus:4x4 --chunks 1 --bytes 256KiB --port-lanes 4", 16_000),
        ("--topology mesh:4x4 --chunks 1 --bytes 256KiB --port-lanes 4 --lanes 16", 24_334),
        ("--topology torus:4x4 --chunks 4 --bytes 1MiB --port-lanes 4", 47_122),
        ("--topology torus:4x4 --algorithm ring --bytes 256KiB", 19_957),
        (
            "--topology torus:4x4 --chunks 2 --bytes 256KiB --port-lanes 4 --codec ratio:3.05",
            11_450,
        ),
        ("--topology torus:4x4 --chunks 2 --bytes 1MiB --port-lanes 4 --codec thc", 15_793),
    ],
)
def test_offload_cards_take_what_rtl_takes(words, rtl):
    """RTL: `gradnic cosim card --lanes 16 --delay 10`, 27 and 29 November 2026."""
    assert abs(cycles(f"{words} --card offload --link-latency 10") / rtl - 1) < 0.03


def test_tables_of_offload_cards_are_cut_as_those_of_cosim():
    """What `gradnic cosim card --topology torus:4x4 --lanes 16 --port-lanes 4` runs: two chunks."""
    words = "--topology torus:4x4 --card offload --port-lanes 4 --bytes 256KiB --link-latency 10"
    assert cycles(words) == cycles(f"{words} --chunks 2") < cycles(f"{words} --chunks 1")


@pytest.mark.parametrize(
    ("words", "rtl"),
    [
        ("--topology torus:4x4 --chunks 2 --bytes 1MiB", 36_030),
        ("--topology mesh:4x4 --bytes 256KiB", 18_329),
        ("--topology mesh:2x2 --chunks 2 --bytes 256KiB", 14_164),
    ],
)
def test_direct_cards_take_what_rtl_takes(words, rtl):
    """RTL: `gradnic cosim direct`; nodes of two ports get words of 16 floats, others of 32."""
    assert abs(cycles(f"{words} --card direct") / rtl - 1) < 0.015


def test_receive_buffers_cover_a_round_trip(tmp_path):
    """Links of 50 bytes a cycle and 500 cycles: six steps of a quarter and a flight."""
    file = tmp_path / "ring.json"
    lists = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]}
    file.write_text(json.dumps(lists))
    words = f"simulate --topology file:{file} --algorithm ring --bytes 1MiB --head 0 --issue 0"
    words += " --link-bytes-per-cycle 50 --reduce-per-cycle 1000000"
    found = figures(words)
    assert (found["buffer"], found["link_latency"]) == (50_000, None)
    assert found["cycles_total"] == pytest.approx(6 * (2**18 / 50 + 500), rel=0.01)
    small = figures(f"{words} --buffer 5088")  # asked for: as much a round trip, and the rest
    turns, rest = divmod(2**18, 5088)
    assert small["cycles_total"] == pytest.approx(6 * (turns * 1000 + 500 + rest / 50), rel=0.01)
    file.write_text("0 1\n1 2\n2 0\n")
    found = figures(f"simulate --topology file:{file} --bytes 64KiB")
    assert (found["buffer"], found["link_latency"]) == (5088, 150)


def test_a_files_unit_is_the_links_rate(tmp_path):
    """ASTRA-sim's GB/s are bytes a cycle of 1 GHz; the option wins; schedules do not change."""
    net = "topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ {} ]\nlatency: [ 500 ]\n"
    links = [f"{v} {(v + 1) % 8} {{}} 500ns 0\n" for v in range(8)]
    for name, text, slow, fast in ("x.yml", net, "50", "100"), (
        "x.txt", "8 0 8\n" + "".join(links), "400Gbps", "100GBps"
    ):  # fmt: skip
        file = tmp_path / name
        words = f"--topology file:{file} --algorithm ring --bytes 8MiB"
        file.write_text(text.replace("{}", slow))
        slow = figures(f"simulate {words}")
        assert slow["link_bytes_per_cycle"] == 50
        assert slow["cycles_total"] == pytest.approx(14 * (2**20 / 50 + 500), rel=0.01)
        card = cycles(f"{words} --card offload")
        file.write_text(text.replace("{}", fast))
        assert cycles(words) == pytest.approx(14 * (2**20 / 100 + 500), rel=0.05)
        asked = "--link-bytes-per-cycle 50"
        assert cycles(f"{words} {asked}") == slow["cycles_total"]
        assert cycles(f"{words} {asked} --card offload") == card
        words = f"--topology file:{file} --algorithm best"
        wanted = figures("schedule --topology ring:8 --algorithm best")
        assert figures(f"schedule {words}")["gap"] == wanted["gap"]


@pytest.mark.parametrize(("algorithm", "parts"), [("ring", [8] * 7), ("halving", [2, 4, 8])])
def test_memory_is_as_fast_as_the_adder(tmp_path, algorithm, parts):
    """Links of 400 bytes a cycle to a switch, two flights a step: none waits for a node."""
    file, n_bytes = tmp_path / "switch.json", 1 << 24
    lists = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [400], "latency": [936.25]}
    file.write_text(json.dumps(lists))
    words = f"--topology file:{file} --algorithm {algorithm} --bytes {n_bytes} --head 0 --issue 0"
    found = cycles(f"{words} --link-bytes-per-cycle 400 --reduce-per-cycle 1000000")
    wanted = 2 * sum(n_bytes / part / 400 + 2 * 936.25 for part in parts)
    assert found == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("codec", ["none", "ratio:4", "thc"])
@pytest.mark.parametrize("algorithm", ["best", "multitree"])
def test_schedule_builds_the_table_that_simulate_times(algorithm, codec):
    """The fastest, and of another algorithm the one in the chunks that are fastest."""
    words = f"--topology torus:2x2 --algorithm {algorithm} --card offload --port-lanes 4"
    words += f" --bytes 64KiB --codec {codec}"
    table, run = figures(f"schedule {words}"), figures(f"simulate {words}")
    assert table["chunks"] == run["chunks"] > 1
    assert table.get("cycles_total") == (run["cycles_total"] if algorithm == "best" else None)
