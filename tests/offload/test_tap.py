"""Golden cards behind TAP devices: Linux finds them by ARP, pings them and sends them datagrams.

In a network namespace of its own, so that nothing of the machine's network is touched.
"""

import contextlib
import shutil
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "all_reduce_by_frames.py"
ALONE = ("unshare", "--net", "--map-root-user")
TRY = """
import fcntl, struct
with open("/dev/net/tun", "r+b", buffering=0) as end:
    fcntl.ioctl(end, 0x400454CA, struct.pack("16sH", b"gradnic0", 0x1002))
"""


@pytest.fixture(scope="module", autouse=True)
def _tap():
    for tool in ("unshare", "ip"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: apt-get install util-linux iproute2")
    run = subprocess.run([*ALONE, sys.executable, "-c", TRY], capture_output=True, text=True)
    if run.returncode:
        last = run.stderr.strip().splitlines()[-1]
        pytest.skip(f"no TAP device in a network namespace here: {last}")


def run_alone(*command):
    run = subprocess.run([*ALONE, *command], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr + run.stdout
    return run.stdout


def test_an_all_reduce_by_ordinary_sockets():
    told = run_alone(sys.executable, EXAMPLE, "--tap")
    for k in range(2):
        assert f"198.51.100.{2 * k} dev gradnic{k} lladdr 02:67:6e:00:00:0{k}" in told
    assert "20000 floats summed on two cards, status 0" in told


def test_ping():
    told = run_alone(sys.executable, __file__)
    assert told.splitlines()[-1] == "0 56 1472: answered; another address: silence"


def test_a_device_that_is_deleted_is_named():
    told = run_alone(sys.executable, __file__, "deleted")
    assert told.splitlines()[-1] == "gradnic0: File descriptor in bad state"


def _deleted():
    from gradnic.sim.offload.twin import TapServer

    class Silent:
        macs = (1,)
        busy = staticmethod(lambda: True)
        step = staticmethod(list)
        room = staticmethod(lambda node: True)

    server = TapServer(Silent(), ["gradnic0"])
    subprocess.run(["ip", "link", "set", "gradnic0", "up"], check=True)
    subprocess.run(["ip", "link", "del", "gradnic0"], check=True)
    with contextlib.closing(server), pytest.raises(OSError, match="bad state") as told:
        server.serve()
    print(f"{told.value.filename}: {told.value.strerror}")


def _sum(octets):
    total = sum(struct.unpack(f">{len(octets) // 2}H", octets))
    return 0xFFFF ^ (total % 0xFFFF or 0xFFFF)


def _ping():
    from gradnic.models.schedule.builders import build
    from gradnic.models.schedule.builders.rows import compile_table
    from gradnic.models.schedule.topology import parse
    from gradnic.sim.offload.twin import TapServer, Twin

    topology = parse("ring:2")
    twin = Twin((compile_table(build(topology, "ring")),), topology, 1 << 16)
    server, stop = TapServer(twin, ["gradnic0"]), threading.Event()
    subprocess.run(["ip", "addr", "add", "198.51.100.1/29", "dev", "gradnic0"], check=True)
    subprocess.run(["ip", "link", "set", "gradnic0", "up"], check=True)
    served = threading.Thread(target=server.serve, args=(lambda: not stop.is_set(),))
    served.start()
    try:
        if shutil.which("ping"):
            subprocess.run(["ping", "-c", "2", "-i", "0.2", "198.51.100.0"], check=True)
        end = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        end.settimeout(10)
        sizes = (0, 56, 1472)
        for k, n in enumerate(sizes):
            data = bytes(j % 251 for j in range(n))
            rest = struct.pack(">HH", 0x7300, k) + data
            end.sendto(
                struct.pack(">HH", 0x0800, _sum(b"\x08\0" + rest)) + rest, ("198.51.100.0", 0)
            )
            told = end.recv(2048)[20:]
            assert (told[0], told[4:]) == (0, rest), told
        end.settimeout(0.3)
        end.sendto(b"\x08\0\xf7\xff" + bytes(4), ("198.51.100.2", 0))
        with pytest.raises((TimeoutError, OSError)):
            end.recv(2048)
        print(*sizes, end=": answered; another address: silence\n")
    finally:
        stop.set()
        served.join()
        server.close()


if __name__ == "__main__":
    _deleted() if "deleted" in sys.argv else _ping()
