"""Everyone with a card: a gradient in, a job, the sum out, all by UDP frames of the host.

Two cards without hardware stand at UDP sockets here; with a card in a machine, the address is the
card's own: FramedCard(FrameHost(*udp("198.51.100.0"))).

python examples/all_reduce_by_frames.py
"""

import threading

import numpy as np
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload.twin import Twin, TwinServer

from gradnic.host.framed_card import FramedCard
from gradnic.host.frames import FrameHost, udp
from gradnic.interface.job import Job

SOURCE, RESULT, N = 0, 1 << 19, 20_000

topology = parse("ring:2")
table = compile_table(build(topology, "ring"))
server = TwinServer(Twin((table,), topology, 1 << 20), port=0)
stop = threading.Event()
served = threading.Thread(target=server.serve, args=(lambda: not stop.is_set(),))
served.start()
try:
    cards = [FramedCard(FrameHost(*udp(*end))) for end in server.ends]
    gradients = np.random.default_rng(1).standard_normal((2, N)).astype("f4")
    for card, gradient in zip(cards, gradients, strict=True):
        card.link.store(SOURCE, gradient)
        card.post(Job(id=1, tensor=1, gen=1, elems=N, source=SOURCE, result=RESULT))
    for card in cards:
        ended = card.completion(timeout=60)
        total = np.frombuffer(card.link.load(RESULT, 4 * N), "f4")
        assert np.array_equal(total, gradients[0] + gradients[1])
    print(f"{N} floats summed on two cards, status {ended.status}, {server.n_frames} frames")
finally:
    stop.set()
    served.join()
    server.close()
