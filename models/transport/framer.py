"""Frames that an offload card sends: whom a head is for, and which path it takes.

Twin of `gradnic.hdl.transport.framer`. Format: docs/spec/wire.md. Source: DLCP (arXiv 2008.08445),
a path for each packet. Ours: what PROBEs and answers take. `gradnic.models.offload.card` knows
paths to each neighbor apart; here all neighbors share what is known of them.
"""

from collections.abc import Mapping
from dataclasses import replace

from gradnic.interface.formats import Op
from gradnic.interface.offload import Subtype

from ..frame.address import Address
from ..frame.ipv4 import gradnic_frame
from .spray import Spray

N_PATHS = 8
BESIDE = ("neighbor", "path", "tos")  # of a head: what is no field of gradnic's


class Framer:
    """Frames in the order of their heads.

    Parameters
    ----------
    own : Address of the card; path k is told by UDP source port ``own.udp_port + k``.
    neighbors : {index: Address}; frames go to ``own.udp_port`` there.
    node, job : int, the card's number and the job, of all frames.
    rule : str or None, as of `Spray`; None: all take path 0.
    """

    def __init__(
        self,
        own: Address,
        neighbors: Mapping[int, Address],
        *,
        node: int,
        job: int,
        rule: str | None = None,
    ) -> None:
        self.own, self.neighbors, self.node, self.job = own, neighbors, node, job
        self.spray = Spray(N_PATHS, rule) if rule else Spray(1)
        self.chosen = self.spray.next()  # when the one before is taken: a mark may come too late
        self.latest = 0  # of data packets
        self.probed: dict[int, int] = {}  # of the latest PROBE to each neighbor

    def frame(self, head: Mapping[str, int], payload: bytes) -> tuple[int, bytes]:
        """(port, frame) of a head and its payload.

        head : fields of gradnic's head but for VER, SET, JOB and SRC; ``neighbor``, its receiver;
        ``tos``; ``path``: of an answer, the UDP source port of what it answers. A
        PROBE that goes again needs one before it to that neighbor, else KeyError.
        """
        fields = {name: value for name, value in head.items() if name not in BESIDE}
        fields |= {"set": head["gen"] & 1, "job": self.job, "src": self.node}
        receiver = replace(self.neighbors[head["neighbor"]], udp_port=self.own.udp_port)
        sender = replace(self.own, udp_port=self._source_port(head))
        return receiver.port, gradnic_frame(sender, receiver, head["tos"], fields, payload)

    def _source_port(self, head: Mapping[str, int]) -> int:
        if head["op"] != Op.CONTROL:
            self.latest = self._next()
            return self.own.udp_port + self.latest
        if head["p0"] & 15 != Subtype.PROBE:
            return head["path"]  # an answer takes the way back
        path = self.latest
        if head["retx"]:  # nothing came back on the path of the one before
            path = self._next()
            self.spray.mark(self.probed[head["neighbor"]], silent=True)
        self.probed[head["neighbor"]] = path
        return self.own.udp_port + path

    def _next(self) -> int:
        path, self.chosen = self.chosen, self.spray.next()
        return path
