"""Where a host is on the network."""

from dataclasses import dataclass

from gradnic.interface.formats import UDP_PORT
from gradnic.interface.params import check_range


@dataclass(frozen=True)
class Address:
    """Where a host is reached: the port it is attached to, MAC and IPv4 as ints, UDP port.

    ValueError for what does not fit the 6 bits, 48, 32 and 16 of these.
    """

    port: int
    mac: int
    ip: int
    udp_port: int = UDP_PORT

    def __post_init__(self) -> None:
        for name, width in ("port", 6), ("mac", 48), ("ip", 32), ("udp_port", 16):
            check_range(name, getattr(self, name), 0, 2**width - 1)
