"""Captures: bytes as written down here, and scapy's reading of the same file."""

import json
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.sim.frame import frames as makers
from gradnic.sim.frame import pcap
from gradnic.sim.inline import ring as cluster
from gradnic.sim.inline.idle_card import IdleCard

from gradnic import cli
from gradnic.interface.formats import IPV4


def test_bytes_of_a_capture():
    octets = pcap.pcap([(1_000_000_007, b"abc"), (3_000_000_000, b"")])
    assert octets.hex() == (
        "4d3cb2a1 02000400 00000000 00000000 00000100 01000000"
        "01000000 07000000 03000000 03000000 616263"
        "03000000 00000000 00000000 00000000"
    ).replace(" ", "")


def test_scapy_reads_it(tmp_path):
    from scapy.utils import rdpcap

    rng = np.random.default_rng(1)
    frames = [*makers.own_frames(rng, 20).values(), *makers.foreign_frames(rng).values()]
    timed = [(1000 * k, frame) for k, frame in enumerate(frames)]
    assert pcap.write_pcap(tmp_path / "a.pcap", timed) == len(frames)
    packets = rdpcap(str(tmp_path / "a.pcap"))
    assert [bytes(packet) for packet in packets] == frames
    assert [round(float(packet.time) * 1e9) for packet in packets] == [t for t, _ in timed]


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="times must not run backward, from 5 to 4"):
        pcap.pcap([(5, b"a"), (4, b"b")])
    with pytest.raises(ValueError, match="a frame must be at most 65536 bytes, not 65537"):
        pcap.pcap([(0, bytes(65537))])


def test_frames_of_a_ring_in_order_of_time():
    """Two workers, two steps: a frame's time is that of its last beat, after the steps before."""
    frames = [[b"a" * 40, b"b" * 16], [b"c" * 17]]
    cycles = [{"mac_tx": np.array([3, 4, 9, 12])}, {"mac_tx": np.array([5, 7])}]
    step = SimpleNamespace(wire=frames)
    result = SimpleNamespace(traffic=[step, step], beat_cycles=[cycles] * 2, step_cycles=[20, 20])
    timed = pcap.wire_frames(result, 4, cycle_ns=10)
    one = [(70, frames[1][0]), (90, frames[0][0]), (120, frames[0][1])]
    assert timed == [*one, *((time + 200, frame) for time, frame in one)]
    assert struct.unpack("<I", pcap.pcap(timed)[:4])[0] == pcap.MAGIC


def test_cosim_leaves_its_frames(tmp_path, monkeypatch):
    from scapy.utils import rdpcap

    monkeypatch.setattr(cluster, "build_card", lambda n: cluster.build(IdleCard(n), f"idle{n}"))
    words = [
        "cosim",
        "ring",
        "--nodes",
        "2",
        "--lanes",
        "4",
        "--iteration",
        "1",
        "--elements",
        "700",
    ]
    words += ["--pcap", str(tmp_path / "run.pcap"), "--json", str(tmp_path / "j")]
    CliRunner().invoke(cli.cli, words)
    packets = rdpcap(str(tmp_path / "run.pcap"))
    assert len(packets) == json.loads((tmp_path / "j").read_text())["frames"] == 8
    assert {IPV4.tos.get(bytes(packet)) for packet in packets} == {0x28}
    times = [float(packet.time) for packet in packets]
    assert times == sorted(times)
