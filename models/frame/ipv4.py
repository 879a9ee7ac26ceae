"""IPv4 and UDP as both cards see them: which frames are plain UDP, and their checksums."""

from typing import Any

from gradnic.interface.formats import (
    ETHERNET,
    ETHERTYPE_IPV4,
    GRADNIC,
    IP_PROTOCOL_UDP,
    IPV4,
    UDP,
    VERSION,
)


def ones_complement_sum(octets: bytearray | bytes) -> int:
    """One's complement sum of big-endian 16-bit words, odd ends padded with 0 (RFC 1071)."""
    words = int.from_bytes(octets, "big") << 8 * (len(octets) % 2)
    # 65536 is 1 modulo 65535, so carries come back in at the bottom; only zeros sum up to 0
    return words and (words % 0xFFFF or 0xFFFF)


def ip_checksum(header: bytearray) -> int:
    """Checksum field of the 20 header bytes, whatever stands in the field now."""
    return 0xFFFF ^ ones_complement_sum(header[:10] + header[12:20])


def incremental_checksum(checksum: int, old: int, new: int) -> int:
    """IPv4 checksum after one 16-bit word changed from `old` to `new` (RFC 1624, equation 3)."""
    total = (checksum ^ 0xFFFF) + (old ^ 0xFFFF) + new
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def retag(frame: bytes, tos: int) -> bytes:
    """The IPv4 frame with another ToS byte, its checksum brought up to date."""
    frame = bytearray(frame)
    old = int.from_bytes(frame[14:16], "big")
    frame[IPV4.tos.byte] = tos
    new = int.from_bytes(frame[14:16], "big")
    IPV4.checksum.put(frame, incremental_checksum(IPV4.checksum.get(frame), old, new))
    return bytes(frame)


def is_plain_udp(frame: bytes) -> bool:
    """Whether the frame is Ethernet, IPv4 without options, UDP, and no fragment."""
    if len(frame) < UDP.stop or ETHERNET.ethertype.get(frame) != ETHERTYPE_IPV4:
        return False
    ip = IPV4.parse(frame)
    if (ip["version"], ip["ihl"], ip["protocol"]) != (4, 5, IP_PROTOCOL_UDP):
        return False
    return not ip["more_fragments"] and not ip["fragment_offset"]


def is_native(frame: bytes) -> bool:
    """Whether a frame to our port may be gradnic's: it has a JOB byte, and VER is ours."""
    return len(frame) >= GRADNIC.job.stop and GRADNIC.ver.get(frame) == VERSION


def checksums_hold(frame: bytes, ip_end: int) -> bool:
    """Whether the IP checksum is right, and the UDP checksum too unless it is 0 (RFC 768)."""
    if ones_complement_sum(frame[IPV4.start : IPV4.stop]) != 0xFFFF:
        return False
    if UDP.checksum.get(frame) == 0:
        return True
    datagram = frame[UDP.start : ip_end]
    pseudo = frame[26:34] + bytes((0, IP_PROTOCOL_UDP)) + len(datagram).to_bytes(2, "big")
    return ones_complement_sum(pseudo + datagram) == 0xFFFF


def gradnic_frame(source: Any, destination: Any, tos: int, header: dict, payload: bytes) -> bytes:
    """A gradnic frame between two holders of mac, ip and udp_port; header : its fields."""
    length = 30 + len(payload)
    ip = bytearray(
        IPV4.pack(
            version=4,
            ihl=5,
            tos=tos,
            total_length=20 + length,
            dont_fragment=1,
            ttl=64,
            protocol=17,
            source=source.ip,
            destination=destination.ip,
        )
    )
    IPV4.checksum.put(ip, ip_checksum(ip), origin=14)
    ethernet = ETHERNET.pack(destination=destination.mac, source=source.mac, ethertype=0x0800)
    udp = UDP.pack(
        source_port=source.udp_port, destination_port=destination.udp_port, length=length
    )
    return ethernet + bytes(ip) + udp + GRADNIC.pack(ver=VERSION, **header) + payload


def udp_frame(
    sender: tuple[int, int, int], receiver: tuple[int, int, int], payload: bytes, ttl: int
) -> bytes:
    """An Ethernet frame as SwitchML's ends make it; sender and receiver: (MAC, IPv4, UDP port).

    Identification, flags, ToS and the UDP checksum are 0.
    """
    length = UDP.n_bytes + len(payload)
    ip = bytearray(
        IPV4.pack(
            version=4,
            ihl=5,
            total_length=IPV4.n_bytes + length,
            ttl=ttl,
            protocol=IP_PROTOCOL_UDP,
            source=sender[1],
            destination=receiver[1],
        )
    )
    IPV4.checksum.put(ip, ip_checksum(ip), origin=IPV4.start)
    ethernet = ETHERNET.pack(destination=receiver[0], source=sender[0], ethertype=ETHERTYPE_IPV4)
    udp = UDP.pack(source_port=sender[2], destination_port=receiver[2], length=length)
    return ethernet + bytes(ip) + udp + payload
