"""Frame head of SwitchML-UDP, which model and circuit share: 10 bytes behind the UDP header.

Big-endian, but for the packet number, which is in the worker's byte order. Source: p4app-switchML;
docs/spec/wire.md.
"""

from .formats import Field, Header

PORT, PORT_MASK = 0xBEE0, 0xFFF0
TYPE = 1
VALUES = {64: 1, 256: 3}  # values of a packet that work: code of the size field

SWITCHML = Header("switchml", 42, 10, (
    Field("type", 42, 4, 4, doc="1"),
    Field("size", 42, 3, doc="0..3: 128, 256, 512 or 1024 bytes of values"),
    Field("job", 43, 8, doc="low bits of the worker's job number"),
    Field("packet", 44, 32, doc="packet number, in the worker's byte order; echoed"),
    Field("set", 48, 1, 15, doc="which of a slot's two sets"),
    Field("slot", 48, 14, doc="slot"),
    Field("e0", 50, 8, signed=True, doc="exponent"),
    Field("e1", 51, 8, signed=True, doc="exponent"),
))  # fmt: skip
