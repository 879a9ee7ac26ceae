"""Heads of the frames that are made here: plain UDP over IPv4 over Ethernet.

Plumbing: no golden model of its own.
"""

from collections.abc import Mapping

from amaranth.hdl import Cat, Signal, ValueLike

from gradnic.interface.formats import (
    ETHERNET,
    ETHERTYPE_IPV4,
    GRADNIC,
    IP_PROTOCOL_UDP,
    IPV4,
    VERSION,
    Field,
)

TTL = 64
PLAIN = {
    ETHERNET.ethertype: ETHERTYPE_IPV4,
    IPV4.version: 4,
    IPV4.ihl: 5,
    IPV4.dont_fragment: 1,
    IPV4.ttl: TTL,
    IPV4.protocol: IP_PROTOCOL_UDP,
    GRADNIC.ver: VERSION,
}
"""Fields that are the same in all."""

WITHOUT_FLAGS = 0x4500 + (TTL << 8) + IP_PROTOCOL_UDP
"""Sum of the IPv4 header's words that are the same in all, but for that of DF."""

DF = 1 << 14  # in its word of the IPv4 header


def put(m, head: Signal, fields: Mapping[Field, ValueLike]) -> None:
    """Give fields of a head their values, most significant byte first on the wire."""
    for field, value in fields.items():
        m.d.comb += Cat(head[a:b] for a, b in field.slices).eq(value)
