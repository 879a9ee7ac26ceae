"""What each packet that a node sends comes to: what is read and added, and what all others hear.

Golden twin of `gradnic.hdl.offload.packet_steps`; heads: `gradnic.models.offload.packet_head`.

A packet of a row on its way up is the node's own values and those contributions that are here, of
the packet's ranks; on its way down (``ph``) it is the result. With THC a node has its own values as
indices: with nothing to add they leave as they are, else they become levels, as contributions do
that came as indices (``packed``). Those of terminal rows stay, and are sent to nobody.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..transport.tagger import CONTROL, PULL, PUSH
from . import packet_head, scaler
from .packet_head import index_octets, octets_of

LEAVES_BITS = 12
REST = 4  # cycles from a reset to the first packet
PROBE_CYCLES = 3
CYCLES = 10  # of any other packet, beside those of its contributions
QUANTUM = 16  # elements, the unit of a packet's offset
NO_LIMIT = 0xFFFF  # of a coded unit

Known = Mapping[str, Any]
"""What a receiver knows of a packet's number: ``marks`` with ``up``, a list by rank, and ``down``,
both of ``here``, ``packed`` and ``leaves``; ``check`` of its norms, 20 bits."""


class PacketSteps:
    """Packets of one round, one after the other.

    Parameters
    ----------
    codec : dict
        Fields of `gradnic.hdl.reduction.codec.Codec`.
    layer : int
    by_size : bool
        Sizes decide on importance.
    area : int
        Beats from one rank's landing area to the next.
    n_bytes : int
        Of a beat.

    Attributes
    ----------
    rows : int
        Packets of terminal rows so far.
    """

    def __init__(
        self, codec: Mapping[str, int], *, layer: int, by_size: bool, area: int, n_bytes: int
    ) -> None:
        self.codec, self.layer, self.by_size = codec, layer, by_size
        self.area, self.n_bytes, self.rows = area, n_bytes, 0

    def tag(self, packet: Mapping[str, int]) -> dict[str, int]:
        """What the tagger hears of a packet; one that is sent again has no weight."""
        codec, up = self.codec, not packet["ph"]
        kind = PUSH if up else PULL
        kind = CONTROL if codec["norm"] or packet["probe"] else kind
        scored = up and not codec["thc"] and not codec["norm"] and self.by_size
        elems = 0 if packet["retx"] else packet["elems"]
        return {"layer": self.layer, "kind": kind, "elems": elems, "scored": int(scored)}

    def added(self, packet: Mapping[str, int], known: Known) -> list[int]:
        """Ranks whose contributions are added, in their order."""
        ranks = range(0 if packet["ph"] else min(packet["wait"], len(known["marks"]["up"])))
        return [k for k in ranks if known["marks"]["up"][k]["here"]]

    def leaves(self, packet: Mapping[str, int], known: Known) -> int:
        """Leaves that a packet's values stand for."""
        marks = known["marks"]
        if packet["ph"]:
            return marks["down"]["leaves"]
        own = 1 + sum(marks["up"][k]["leaves"] for k in self.added(packet, known))
        return own % (1 << LEAVES_BITS)

    def cycles(self, packet: Mapping[str, int], known: Known) -> int:
        """Cycles that a packet takes where nothing stalls: one each to the last rank added."""
        if packet["probe"]:
            return PROBE_CYCLES
        return CYCLES + max((k + 1 for k in self.added(packet, known)), default=0)

    def make(self, packet: Mapping[str, int], known: Known) -> dict[str, list[dict[str, Any]]]:
        """What a packet adds to each queue, by the queue's name; names of operations and regions
        are those of `gradnic.hdl.reduction.reduce.Op` and `gradnic.hdl.offload.own_reader`.
        """
        entry = {"number": packet["number"], "rows": self.rows}
        if packet["probe"]:
            head = packet_head.said(self.codec, packet, 0, 0, leaf=False)
            return {"heads": [entry | {"head": head}], "to_tag": [self.tag(packet)]}
        codec, ranks, leaves = self.codec, self.added(packet, known), self.leaves(packet, known)
        up, sent = known["marks"]["up"], not packet["terminal"]
        indices = bool(codec["thc"] and not packet["ph"])
        leaf = bool(indices and sent and packet["wait"] == 0)
        size, first, n_indices, first_index = self._extent(packet)
        place = (first_index, n_indices) if indices else (first, size)
        told: dict[str, list[dict[str, Any]]] = {
            "reads": [{"region": self._region(packet)} | _range(*place)],
            "jobs": [{"n_beats": n_indices if leaf else self._inside(packet), "op": self._op(),
                      "n_contributions": len(ranks)}],
            "goals": [self._goal(packet, leaves, leaf)],
            "expands": [{"expand": int(indices and not leaf), "plain": int(leaf)}],
            "packs": [{"expand": up[k]["packed"]} for k in ranks],
            "landings": [_range(first + k * self.area, n_indices if up[k]["packed"] else size)
                         for k in ranks],
        }  # fmt: skip
        if codec["coded"] and sent:
            same = {name: codec[name] for name in ("exponent", "paper", "prescale")}
            told["units"] = [{"count": packet["elems"], "limit": NO_LIMIT} | same]
        if sent:
            check = known["check"] if codec["thc"] else 0
            head = packet_head.said(codec, packet, leaves, check, leaf=leaf)
            told |= {"heads": [entry | {"head": head}], "to_tag": [self.tag(packet)]}
        else:
            same = {name: packet[name] for name in ("chunk", "number", "offset", "elems")}
            told["owned"] = [{"leaves": leaves} | same]
            self.rows += 1
        return told

    def _beats(self, octets: int) -> int:
        return -(-octets // self.n_bytes)

    def _extent(self, packet: Mapping[str, int]) -> Sequence[int]:
        """Beats and first beat of its values, and of its indices."""
        elems, offset = packet["elems"], QUANTUM * packet["offset"]
        found = []
        for octets in (octets_of, index_octets):
            found += [self._beats(octets(self.codec, elems))]
            found += [octets(self.codec, offset) // self.n_bytes]
        return found

    def _inside(self, packet: Mapping[str, int]) -> int:
        """Beats that are added: sums of 12 bits are 16 inside."""
        wide = {**self.codec, "code": 2} if self.codec["code"] == 1 else self.codec
        return self._beats(octets_of(wide, packet["elems"]))

    def _region(self, packet: Mapping[str, int]) -> str:
        if packet["ph"]:
            return "RESULT"
        return "ROOT" if packet["terminal"] else "GRADIENT"

    def _op(self) -> str:
        """How sums are made."""
        if self.codec["thc"]:
            return ("INT8", "INT12", "INT16")[self.codec["code"]]
        if self.codec["norm"]:
            return "MAX"
        return "MAXIMUM" if self.codec["largest"] else "FLOAT"

    def _goal(self, packet: Mapping[str, int], leaves: int, leaf: bool) -> dict[str, int]:
        """What becomes of the sums: fill makes up for leaves of THC that are missing, at half of
        the highest level each; factor, FP32 bits, is that of a mean.
        """
        codec, stays, few = self.codec, packet["terminal"], leaves % 256
        fill = (codec["n"] - leaves) % 256 * codec["g"] // 2 if codec["thc"] else 0
        factor = int(np.float32(scaler.factor(few)).view(np.uint32)) if few else 0
        scored = self.tag(packet)["scored"] and not stays
        return {"stays": stays, "scored": int(scored), "fill": fill, "summed": int(not leaf),
                "factor": factor}  # fmt: skip


def _range(offset: int, n_beats: int) -> dict[str, int]:
    return {"offset": offset, "n_beats": n_beats}
