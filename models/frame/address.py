"""Where a host is on the network."""

from dataclasses import dataclass

from gradnic.interface.formats import UDP_PORT


@dataclass(frozen=True)
class Address:
    """Where a host is reached: the port it is attached to, MAC and IPv4 as ints, UDP port."""

    port: int
    mac: int
    ip: int
    udp_port: int = UDP_PORT
