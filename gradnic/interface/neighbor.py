"""ARP and ICMP echo: what a card answers its own host, so that ordinary IP software finds it.

Model and circuit share these tables. Source: RFC 826 (ARP on Ethernet), RFC 792 (echo), RFC 791.
"""

from .formats import ETHERNET, ETHERTYPE_IPV4, IPV4, Field, Header

ETHERTYPE_ARP = 0x0806
BROADCAST = (1 << 48) - 1
CARD_IP = (
    0xC6336400  # 198.51.100.0, of TEST-NET-2 (RFC 5737): the card's, its host has the next one
)
STORE_BYTES = 4096  # of requests that wait to be answered; one without room is lost

ARP = Header("arp", 14, 28, (
    Field("hardware", 14, 16, doc="1 for Ethernet"),
    Field("protocol", 16, 16, doc="0x0800 for IPv4"),
    Field("hardware_bytes", 18, 8, doc="6"),
    Field("protocol_bytes", 19, 8, doc="4"),
    Field("operation", 20, 16, doc="1 request, 2 reply"),
    Field("sender_mac", 22, 48, doc="MAC address of the sender"),
    Field("sender_ip", 28, 32, doc="IPv4 address of the sender"),
    Field("target_mac", 32, 48, doc="MAC address of the receiver, of a request any"),
    Field("target_ip", 38, 32, doc="IPv4 address that is asked for"),
))  # fmt: skip

ICMP = Header("icmp", 34, 8, (
    Field("type", 34, 8, doc="8 echo request, 0 echo reply"),
    Field("code", 35, 8, doc="0"),
    Field("checksum", 36, 16, doc="one's complement sum over ICMP header and data"),
    Field("identifier", 38, 16, doc="of who asks"),
    Field("sequence", 40, 16, doc="number of the request"),
))  # fmt: skip

ECHO_WORD = 0x0800  # type and code of an echo request as the checksum adds them up; a reply has 0
HEAD_BYTES = max(ARP.stop, ICMP.stop)  # what must be there to tell that a frame is one of the two

ARP_REQUEST = {
    ETHERNET.ethertype: ETHERTYPE_ARP,
    ARP.hardware: 1,
    ARP.protocol: ETHERTYPE_IPV4,
    ARP.hardware_bytes: 6,
    ARP.protocol_bytes: 4,
    ARP.operation: 1,
}
"""{field: value} of an ARP request, but for ``ARP.target_ip``, which is the card's."""

ECHO_REQUEST = {
    ETHERNET.ethertype: ETHERTYPE_IPV4,
    IPV4.version: 4,
    IPV4.ihl: 5,
    IPV4.more_fragments: 0,
    IPV4.fragment_offset: 0,
    IPV4.protocol: 1,
    ICMP.type: 8,
    ICMP.code: 0,
}
"""{field: value} of an ICMP echo request, but for ``IPV4.destination``, which is the card's."""
