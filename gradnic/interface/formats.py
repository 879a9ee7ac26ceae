"""Field tables of the frame head: Ethernet, IPv4, UDP, and the 22-byte gradnic header.

One description for both rooms. A model reads and writes bytes or numpy arrays with `Field.get` and
`Field.put`; a circuit that holds the head as a value with byte 0 in its lowest bits takes
``Cat(head[a:b] for a, b in field.slices)``, which can also be assigned to.

Source: docs/spec/wire.md (frame and header); RFC 791, RFC 768 and RFC 894 for the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

HEAD_BYTES = 64  # Ethernet 14, IPv4 20, UDP 8, gradnic 22: the payload starts here
GRADNIC_START = 42  # first byte after the UDP header
GRADNIC_BYTES = 22
ETHERTYPE_IPV4 = 0x0800
IP_PROTOCOL_UDP = 17
# Default of the UDP destination port registers, 0x7300. Within 29170 to 29998, which IANA's list
# of ports (state of November 2024) has as unassigned for every transport, and below 32768, where
# systems begin to draw their own ports (Linux from there on, RFC 6335 from 49152 on), and below
# 30000, where Kubernetes begins to give ports to services.
UDP_PORT = 29440
VERSION = 1
WHOLE = (int, np.integer, np.bool_)  # types of one field's value
AGGREGATOR = 0xFF  # value of ``src``


class Op(IntEnum):
    """Payload kind of a gradnic packet; the other codes of the 4 bits are reserved."""

    RAW = 0
    INC = 1
    THC_IDX = 2
    THC_SUM = 3
    NORM = 4
    INT32 = 5
    RAW16 = 6
    HOST = 14  # between a card and its own host: reserved on the network
    CONTROL = 15


NETWORK_OPS = tuple(op for op in Op if op != Op.HOST)
"""What packets between cards may hold."""


@dataclass(frozen=True)
class Field:
    """One field of a frame: `width` bits, of big-endian byte order.

    Attributes
    ----------
    name : str
    byte : int
        First byte of the frame that the field touches.
    width : int
        Bits; a field that is not a whole number of bytes may share its bytes with others.
    lsb : int
        Place of the lowest bit in the big-endian integer made of the field's bytes.
    signed : bool
        Two's complement.
    doc : str
    """

    name: str
    byte: int
    width: int
    lsb: int = 0
    signed: bool = False
    doc: str = ""

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of the frame that the field touches."""
        return -(-(self.lsb + self.width) // 8)

    @property
    def stop(self) -> int:
        """First byte of the frame after the field."""
        return self.byte + self.n_bytes

    @cached_property
    def slices(self) -> tuple:
        """Pieces of the frame's bits, lowest first, as (start, stop); bit 0 is bit 0 of byte 0."""
        pieces = []
        left, low = self.width, self.lsb % 8
        byte = self.stop - 1 - self.lsb // 8
        while left:
            n = min(8 - low, left)
            pieces.append((8 * byte + low, 8 * byte + low + n))
            left, low, byte = left - n, 0, byte - 1
        return tuple(pieces)

    def get(self, frame: bytes | bytearray | np.ndarray, *, origin: int = 0) -> Any:
        """Value in `frame`: an int for bytes, int64 (…) for a uint8 array of shape (…, n_bytes).

        origin : int, byte of the frame at which `frame` starts.
        """
        start = self.byte - origin
        if isinstance(frame, np.ndarray):
            whole = np.zeros(frame.shape[:-1], np.int64)
            for i in range(start, start + self.n_bytes):
                whole = whole << 8 | frame[..., i].astype(np.int64)
        else:
            octets = frame[start : start + self.n_bytes]
            if len(octets) != self.n_bytes:
                raise ValueError(
                    f"{self.name} ends at byte {self.stop} of the frame, "
                    f"which has only {origin + len(frame)}"
                )
            whole = int.from_bytes(octets, "big")
        value = whole >> self.lsb & (1 << self.width) - 1
        if self.signed:
            value = value - ((value >> self.width - 1) << self.width)
        return value

    def put(self, frame: bytearray | np.ndarray, value: Any, *, origin: int = 0) -> None:
        """Write `value` into `frame` (bytearray, or uint8 array as in `get`), other bits kept."""
        lowest = -(1 << self.width - 1) if self.signed else 0
        highest = lowest + (1 << self.width) - 1
        if isinstance(value, np.ndarray):
            inside = value.dtype.kind in "iub" and ((value >= lowest) & (value <= highest)).all()
        else:
            value = int(value) if isinstance(value, WHOLE) else value  # NumPy's would lose bits
            inside = isinstance(value, int) and lowest <= value <= highest
        if not inside:
            raise ValueError(f"{self.name} must be {lowest} to {highest}, not {value!r}")
        start = self.byte - origin
        n_bytes = frame.shape[-1] if isinstance(frame, np.ndarray) else len(frame)
        if start < 0 or start + self.n_bytes > n_bytes:
            raise ValueError(f"{self.name} needs bytes {self.byte} to {self.stop - 1} of the frame")
        mask = (1 << self.width) - 1
        bits = (value & mask) << self.lsb
        if not isinstance(frame, np.ndarray):
            stop = start + self.n_bytes
            others = int.from_bytes(frame[start:stop], "big") & ~(mask << self.lsb)
            frame[start:stop] = (others | int(bits)).to_bytes(self.n_bytes, "big")
            return
        for i in range(self.n_bytes):
            shift = 8 * (self.n_bytes - 1 - i)
            keep = 0xFF & ~((mask << self.lsb) >> shift)
            frame[..., start + i] = frame[..., start + i] & keep | bits >> shift & 0xFF


@dataclass(frozen=True)
class Header:
    """Fields of bytes `start` to `start + n_bytes - 1` of a frame, by attribute or by name."""

    name: str
    start: int
    n_bytes: int
    fields: tuple

    @property
    def stop(self) -> int:
        """First byte of the frame after the header."""
        return self.start + self.n_bytes

    def __post_init__(self) -> None:
        for field in self.fields:
            self.__dict__[field.name] = field  # found at once, as often as frames are read

    def __getitem__(self, name: str) -> Field:
        field = self.__dict__.get(name)
        if not isinstance(field, Field):
            raise KeyError(f"{self.name} has no field {name!r}")
        return field

    def __getattr__(self, name: str) -> Field:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def parse(self, frame: bytes, *, origin: int = 0) -> dict[str, int]:
        """All fields of `frame` as {name: value}; see `Field.get`."""
        first, end, unsigned = self._unsigned
        if unsigned and not isinstance(frame, np.ndarray) and first - origin >= 0:
            octets = frame[first - origin : end - origin]
            if len(octets) == end - first:
                word = int.from_bytes(octets, "big")
                return {name: word >> shift & mask for name, shift, mask in unsigned}
        return {field.name: field.get(frame, origin=origin) for field in self.fields}

    @cached_property
    def _unsigned(self) -> tuple[int, int, list]:
        """Bytes from the first to the last of all fields as one number: where each stands there.

        No fields if one is signed.
        """
        first = min(field.byte for field in self.fields)
        end = max(field.stop for field in self.fields)
        places = [
            (field.name, 8 * (end - field.stop) + field.lsb, (1 << field.width) - 1)
            for field in self.fields
        ]
        return first, end, [] if any(field.signed for field in self.fields) else places

    def pack(self, **values: int) -> bytes:
        """The header's bytes; fields that are not named are 0. ValueError for unknown ones."""
        octets = bytearray(self.n_bytes)
        word, rest = 0, values
        if self._places:
            rest = {}
            for name, value in values.items():
                shift, mask = self._places.get(name, (0, -1))
                if isinstance(value, WHOLE) and 0 <= value <= mask:
                    word = word & ~(mask << shift) | int(value) << shift
                else:
                    rest[name] = value  # unknown, or too large: the error is below
            octets = bytearray(word.to_bytes(self.n_bytes, "big"))
        for name, value in rest.items():
            try:
                field = self[name]
            except KeyError as error:
                raise ValueError(error.args[0]) from None
            field.put(octets, value, origin=self.start)
        return bytes(octets)

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """{field: (its lowest bit in the header as one number, its mask)}; none if one of them is
        signed, or reaches out of the header.
        """
        first, end, unsigned = self._unsigned
        if first < self.start or end > self.stop:
            return {}
        return {name: (shift + 8 * (self.stop - end), mask) for name, shift, mask in unsigned}


ETHERNET = Header("ethernet", 0, 14, (
    Field("destination", 0, 48, doc="MAC address of the receiver"),
    Field("source", 6, 48, doc="MAC address of the sender"),
    Field("ethertype", 12, 16, doc="0x0800 for IPv4"),
))  # fmt: skip

IPV4 = Header("ipv4", 14, 20, (
    Field("version", 14, 4, 4, doc="4"),
    Field("ihl", 14, 4, doc="header length in 32-bit words; 5 without options"),
    Field("tos", 15, 8, doc="DSCP and ECN in one byte"),
    Field("dscp", 15, 6, 2, doc="class of service"),
    Field("ecn", 15, 2, doc="0 not capable, 1 and 2 capable, 3 congestion experienced"),
    Field("total_length", 16, 16, doc="bytes from the IP header to the end of the payload"),
    Field("identification", 18, 16, doc="of the datagram, for reassembly"),
    Field("reserved", 20, 1, 15, doc="0"),
    Field("dont_fragment", 20, 1, 14, doc="may not be fragmented"),
    Field("more_fragments", 20, 1, 13, doc="another fragment follows"),
    Field("fragment_offset", 20, 13, doc="in units of 8 bytes"),
    Field("ttl", 22, 8, doc="hops left"),
    Field("protocol", 23, 8, doc="17 for UDP"),
    Field("checksum", 24, 16, doc="one's complement sum over the header"),
    Field("source", 26, 32, doc="IP address of the sender"),
    Field("destination", 30, 32, doc="IP address of the receiver"),
))  # fmt: skip

UDP = Header("udp", 34, 8, (
    Field("source_port", 34, 16, doc="path entropy"),
    Field("destination_port", 36, 16, doc="29440 by default for gradnic"),
    Field("length", 38, 16, doc="bytes of UDP header and payload"),
    Field("checksum", 40, 16, doc="0 where none was computed"),
))  # fmt: skip

GRADNIC = Header("gradnic", GRADNIC_START, GRADNIC_BYTES, (
    Field("ver", 42, 2, 6, doc="1"),
    Field("ph", 42, 1, 5, doc="0 reduce, push, up; 1 gather, pull, down"),
    Field("rf", 42, 1, 4, doc="refilled INCEPTIONN payload, seq is the first group"),
    Field("op", 42, 4, doc="payload kind, see Op"),
    Field("imp", 43, 1, 7, doc="important"),
    Field("last", 43, 1, 6, doc="last packet of the tensor"),
    Field("retx", 43, 1, 5, doc="sent again"),
    Field("set", 43, 1, 4, doc="slot set, gen[0]"),
    Field("ovf", 43, 1, 3, doc="overflow, sticky"),
    Field("coll", 43, 1, 2, doc="slot collision, to the host"),
    Field("ecn", 43, 1, 1, doc="congestion seen, sticky, or its echo"),
    Field("part", 43, 1, 0, doc="closed with contributors missing"),
    Field("job", 44, 8, doc="job"),
    Field("src", 45, 8, doc="sender index, bit number in the bitmap; 0xFF aggregator"),
    Field("gen", 46, 16, doc="slot generation, or tensor round"),
    Field("lc", 48, 3, 13, doc="layer class, queue number"),
    Field("slot", 48, 13, doc="slot"),
    Field("tensor", 50, 16, doc="tensor"),
    Field("tree", 52, 8, doc="MultiTree flow; 0 ring or star"),
    Field("seq", 53, 24, doc="packet or chunk number"),
    Field("elems", 56, 16, doc="true element count of this packet"),
    Field("p0", 58, 8, doc="parameter 0, its meaning is set by op"),
    Field("p1", 59, 8, doc="parameter 1, its meaning is set by op"),
    Field("arg", 60, 32, doc="timestamp, contributor bitmap or norm check, by op and ph"),
))  # fmt: skip

_LEAVES = Field("leaves", 58, 8, doc="leaf count")
PARAMETERS = {
    Op.RAW: Header("raw", 58, 2, (_LEAVES,)),
    Op.RAW16: Header("raw16", 58, 2, (_LEAVES,)),
    Op.NORM: Header("norm", 58, 2, (_LEAVES,)),
    Op.INC: Header("inc", 58, 2, (
        Field("paper", 58, 1, 7, doc="1 paper mode, 0 strict mode"),
        Field("exponent", 58, 7, doc="biased exponent E of the error bound, 113 to 126"),
        Field("prescale", 59, 8, signed=True, doc="PS, the coded value is f * 2^PS"),
    )),
    Op.INT32: Header("int32", 58, 2, (
        Field("e0", 58, 8, signed=True, doc="block exponent of this chunk"),
        Field("e1", 59, 8, signed=True, doc="block exponent of the next chunk"),
    )),
    Op.THC_IDX: Header("thc_idx", 58, 2, (
        Field("bits", 58, 3, 5, doc="bits per index less 1"),
        Field("p", 58, 3, 2, doc="truncation share: 1/16 is 0, 1/1024 is 6, 7 other"),
        Field("block", 58, 2, doc="log4 of the block size, less 3"),
        Field("g", 59, 8, doc="granularity of the table"),
    )),
    Op.THC_SUM: Header("thc_sum", 58, 2, (
        _LEAVES,
        Field("w", 59, 2, 6, doc="bits per sum: 0 is 8, 1 is 12, 2 is 16"),
    )),
    Op.HOST: Header("host", 58, 2, (
        Field("kind", 58, 8, doc="what is asked or told, see `gradnic.interface.host_frame.Kind`"),
        Field("status", 59, 8, doc="of an answer, see `gradnic.interface.host_frame.Status`"),
    )),
    Op.CONTROL: Header("control", 58, 2, (
        Field("form", 58, 1, 7, doc="form of the body"),
        Field("subtype", 58, 4, doc="1 PROBE, 2 BITMAP, 3 STOP, 4 STALE, 5 NOT_READY"),
        Field("ce_share", 59, 8, doc="CE share since the last echo, in 1/256"),
    )),
}  # fmt: skip
"""Fields of p0 and p1 by `Op`."""

HEAD = (ETHERNET, IPV4, UDP, GRADNIC)
