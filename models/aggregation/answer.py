"""Frames of a slot's answer, one for each child that gets a copy. Twin of
`gradnic.hdl.aggregation.answer`.

Copies differ in what says to whom they go: MAC, IPv4 and UDP port, and the IPv4 checksum. Source:
docs/spec/wire.md (answers; the SwitchML profile).
"""

from typing import Any

import numpy as np

from gradnic.interface.formats import AGGREGATOR
from gradnic.interface.switchml import PORT, SWITCHML, TYPE, VALUES

from ..frame.ipv4 import gradnic_frame, udp_frame

IMPORTANT_ECT = 2
TTL = 64


def chosen(job: Any, children: int) -> list:
    """Addresses of the children of `job` whose bit in `children` is 1, lowest first."""
    return [child for number, child in enumerate(job.children) if children >> number & 1]


def native_frames(
    sender: Any, job: Any, head: dict[str, int], payload: bytes
) -> list[tuple[int, bytes]]:
    """A native job's answer as (port, frame): PH and IMP are 1, SRC is the aggregator's, SET is
    GEN[0]; DSCP is 8 * (7 - LC), ECN is ECT(0).

    sender : has mac, ip and udp_port. job : Job. head : fields of
    `gradnic.interface.formats.GRADNIC` by name, and ``children``, one bit each. payload : bytes,
    none for STALE.
    """
    tos = 8 * (7 - head["lc"]) << 2 | IMPORTANT_ECT
    fields = {name: value for name, value in head.items() if name != "children"}
    fields |= {"ph": 1, "imp": 1, "src": AGGREGATOR, "set": head["gen"] & 1}
    return [
        (child.port, gradnic_frame(sender, child, tos, fields, payload))
        for child in chosen(job, head["children"])
    ]


def switchml_frames(
    sender: Any, job: Any, head: dict[str, int], payload: bytes
) -> list[tuple[int, bytes]]:
    """A SwitchML job's answer as (port, frame): the UDP ports of the packet that asked change
    places, all children share them; packet number, slot and set are its.

    sender : has mac and ip. job : SwitchmlJob. head : as of
    `gradnic.models.aggregation.parser.contribution_head`, ``p0`` and ``p1`` the sum's exponents,
    and ``children``, one bit each. payload : bytes, little-endian int32 as slots have them; in the
    frame they are big-endian.
    """
    own = SWITCHML.pack(
        type=TYPE,
        size=VALUES[job.values],
        job=job.job,
        packet=head["arg"],
        set=head["gen"] & 1,
        slot=head["slot"],
        e0=(head["p0"] ^ 0x80) - 0x80,
        e1=(head["p1"] ^ 0x80) - 0x80,
    )
    values = np.frombuffer(payload, "<i4").astype(">i4").tobytes()
    source = sender.mac, sender.ip, PORT | head["tree"]
    return [
        (child.port, udp_frame(source, (child.mac, child.ip, head["tensor"]), own + values, TTL))
        for child in chosen(job, head["children"])
    ]
