"""One round of an offload card in a shell's bench: its host, the other node, and its memory."""

from types import SimpleNamespace

import numpy as np
from gradnic.models.frame.ipv4 import gradnic_frame

from gradnic.interface import params
from gradnic.interface.formats import Op
from gradnic.interface.offload import Subtype
from gradnic.interface.schedule_table import REDUCE, ROW

CARD = params.Offload(n_bytes=16, n_rows=16, n_chunks=4, n_packets=64, n_nodes=4)
N_CHUNKS, CHUNK, PACKET = 4, 80, 32  # elements
N_ELEMS = 300
GRADIENT, RESULT, LANDING = 0x1000, 0x4000, 0x2000
MEMORY_BYTES = 2**16
OWN = SimpleNamespace(mac=0x020000000001, ip=0x0A000001, udp_port=29440)
OTHER = SimpleNamespace(mac=0x020000000002, ip=0x0A000002, udp_port=29440)
TENSOR, GEN = 3, 9
_HEAD = {"job": 5, "src": 2, "gen": GEN, "set": 1, "tensor": TENSOR, "imp": 1}


class Round:
    """The sum of two nodes at a card that is the root of all chunks.

    n_elems : int, up to `N_ELEMS`; the last chunks are empty then.

    Members
    -------
    mine, theirs : float32 (n_elems,), of the card's host and of the other node.
    packets : list of bytes, frames with `theirs`.
    probe : bytes, a frame that a card answers.
    """

    def __init__(self, rng, n_elems=N_ELEMS):
        self.n_elems = n_elems
        self.mine, self.theirs = rng.standard_normal((2, n_elems)).astype(np.float32)
        self.packets = []
        for first in range(0, n_elems, CHUNK):
            chunk = self.theirs[first : first + CHUNK]
            for at in range(0, len(chunk), PACKET):
                part = chunk[at : at + PACKET]
                data = {"op": Op.RAW, "p0": 1, "arg": 1 << 20, "slot": first // CHUNK}
                data |= {"seq": (first + at) // 16, "elems": len(part)}
                self.packets.append(gradnic_frame(OTHER, OWN, 2, _HEAD | data, part.tobytes()))
        asks = {"op": Op.CONTROL, "p0": Subtype.PROBE, "seq": 1, "elems": 2}
        self.probe = gradnic_frame(OTHER, OWN, 2, _HEAD | asks, b"")

    def prepare(self, driver):
        """Write tables and settings; the round is not started."""
        rows = np.zeros(N_CHUNKS, ROW)
        rows["op"], rows["sends"], rows["wait"] = REDUCE, -1, 1
        rows["first"] = rows["flow"] = rows["step"] = range(N_CHUNKS)
        layout = driver.layout
        driver.identify(mac=OWN.mac, ip=OWN.ip, node=1, job=5)
        driver.add_neighbor(0, node=2, port=0, mac=OTHER.mac, ip=OTHER.ip)
        driver.load_rows(layout.pack(rows), layout.row_bytes)
        for chunk in range(N_CHUNKS):
            driver.set_places(chunk, {0: (0, 1, chunk)})
        driver.register("gradient", GRADIENT, self.n_elems)
        driver.register("result", RESULT, self.n_elems)
        driver.register("landing", LANDING, self.n_elems)
        driver.cut(self.n_elems, n_chunks=N_CHUNKS, chunk=CHUNK, packet=PACKET)
        driver.set("schedule", rows=N_CHUNKS, peers=0, lockstep=0)

    def check(self, gradients, landings):
        """Whether both memories, each a cocotbext-axi AxiRam, hold what they must."""
        assert gradients.read(RESULT, 4 * self.n_elems) == (self.mine + self.theirs).tobytes()
        assert landings.read(LANDING, 4 * self.n_elems) == self.theirs.tobytes()
