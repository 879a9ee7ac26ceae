"""Lets nothing pass to the slots but whole, sound contributions of those who may speak. Twin of
`gradnic.hdl.aggregation.gate`.

Source: docs/spec/wire.md (what happens to a frame).
"""

from typing import Any

from gradnic.interface.aggregator import Refusal
from gradnic.interface.formats import GRADNIC, UDP

from ..frame import parser as frame_parser
from . import parser


def refusal(frame: bytes, job: Any, port: int, *, bad: bool = False) -> Refusal:
    """Why a frame of `job` never reaches a slot, the first that applies, or NONE.

    job : Job or SwitchmlJob. port : where the frame came in. bad : it was marked so.
    """
    native = job.kind != "switchml"
    reason = frame_parser.refusal(frame, bad, parser.head_bytes(native), native=native)
    return Refusal[reason.upper()] if reason else parser.claim(frame, job, port)


def collided(frame: bytes) -> bytes:
    """A frame for a slot of another job as it goes on: marked COLL, its UDP checksum 0."""
    marked = bytearray(frame)
    GRADNIC.coll.put(marked, 1)
    UDP.checksum.put(marked, 0)
    return bytes(marked)
