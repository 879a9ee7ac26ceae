"""Everyone with a card: a gradient in, a job, the sum out, all by UDP frames of the host.

Two cards without hardware stand at UDP sockets here, with --tap behind TAP devices, where the
system finds them by ARP; with a card in a machine, that is its network device.

python examples/all_reduce_by_frames.py
sudo unshare --net python examples/all_reduce_by_frames.py --tap
"""

import subprocess
import sys
import threading

import numpy as np
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload.twin import TapServer, Twin, TwinServer

from gradnic.host.framed_card import FramedCard
from gradnic.host.frames import FrameHost, udp
from gradnic.interface.job import Job

SOURCE, RESULT, N = 0, 1 << 19, 20_000
PATIENCE = 30  # seconds: a card that is a thread of Python is slow on a busy machine


def behind_devices(twin):
    """(server, what `udp` finds each card by)."""
    server = TapServer(twin, ["gradnic0", "gradnic1"])
    for k in range(2):
        subprocess.run(["ip", "addr", "add", f"198.51.100.{2 * k + 1}/31", "dev", f"gradnic{k}"])
        subprocess.run(["ip", "link", "set", f"gradnic{k}", "up"], check=True)
    return server, [(f"198.51.100.{2 * k}",) for k in range(2)]


topology = parse("ring:2")
twin = Twin((compile_table(build(topology, "ring")),), topology, 1 << 20)
if "--tap" in sys.argv:
    server, ends = behind_devices(twin)
else:
    server = TwinServer(twin, port=0)
    ends = server.ends
stop = threading.Event()
served = threading.Thread(target=server.serve, args=(lambda: not stop.is_set(),))
served.start()
try:
    cards = [FramedCard(FrameHost(*udp(*end), patience=PATIENCE)) for end in ends]
    gradients = np.random.default_rng(1).standard_normal((2, N)).astype("f4")
    for card, gradient in zip(cards, gradients, strict=True):
        card.link.store(SOURCE, gradient)
        card.post(Job(id=1, tensor=1, gen=1, elems=N, source=SOURCE, result=RESULT))
    for card in cards:
        ended = card.completion(timeout=60)
        total = np.frombuffer(card.link.load(RESULT, 4 * N), "f4")
        assert np.array_equal(total, gradients[0] + gradients[1])
        card.link.close()
    if "--tap" in sys.argv:
        subprocess.run(["ip", "neighbor"], check=True)
    print(f"{N} floats summed on two cards, status {ended.status}, {server.n_frames} frames")
finally:
    stop.set()
    served.join()
    server.close()
