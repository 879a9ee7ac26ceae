"""The card as a neighbor of its host: answers to ARP and ICMP echo requests for its address.

Golden twin of `gradnic.hdl.offload.host_neighbor`. A request is answered as it stands: checksums
are brought up to date (RFC 1141: one of an answer of zeros alone stays 0xFFFF), not looked at, so
that a broken one stays broken and its sender drops the answer. The circuit has room for requests of
`STORE_BYTES`; longer ones are lost. Source: RFC 826, RFC 792.
"""

from collections.abc import Mapping
from typing import Any

from gradnic.interface.formats import ETHERNET, IPV4
from gradnic.interface.neighbor import (
    ARP,
    ARP_REQUEST,
    BROADCAST,
    ECHO_REQUEST,
    ECHO_WORD,
    HEAD_BYTES,
    ICMP,
)


def is_request(frame: bytes, mac: int, ip: int) -> bool:
    """Whether a frame of the host is an ARP request for `ip`, to `mac` or to all, or an ICMP echo
    request to both, without IP options and no fragment.
    """
    if len(frame) < HEAD_BYTES:
        return False
    to = ETHERNET.destination.get(frame)
    if to in (mac, BROADCAST) and ARP.target_ip.get(frame) == ip and _has(frame, ARP_REQUEST):
        return True
    return to == mac and IPV4.destination.get(frame) == ip and _has(frame, ECHO_REQUEST)


def reply(frame: bytes, mac: int, ip: int) -> bytes:
    """The answer to a request: as long as it, and all that is not named here is as it came."""
    answer = bytearray(frame)
    ETHERNET.destination.put(answer, ETHERNET.source.get(frame))
    ETHERNET.source.put(answer, mac)
    if ETHERNET.ethertype.get(frame) == ARP_REQUEST[ETHERNET.ethertype]:
        ARP.operation.put(answer, 2)
        ARP.sender_mac.put(answer, mac)
        ARP.sender_ip.put(answer, ip)
        ARP.target_mac.put(answer, ARP.sender_mac.get(frame))
        ARP.target_ip.put(answer, ARP.sender_ip.get(frame))
    else:
        IPV4.source.put(answer, ip)
        IPV4.destination.put(answer, IPV4.source.get(frame))
        ICMP.type.put(answer, 0)
        total = ICMP.checksum.get(frame) + ECHO_WORD
        ICMP.checksum.put(answer, (total & 0xFFFF) + (total >> 16))
    return bytes(answer)


def _has(frame: bytes, wanted: Mapping[Any, int]) -> bool:
    return all(field.get(frame) == value for field, value in wanted.items())
