"""Which frames of the host are for its card. Golden twin of `gradnic.hdl.offload.host_tap`."""

from typing import Literal

from gradnic.interface.formats import ETHERNET

from .host_neighbor import is_request

Way = Literal["port", "requests", "others"]


def is_to(frame: bytes, mac: int) -> bool:
    """Whether a frame, which may be cut short, names this destination."""
    return len(frame) >= ETHERNET.destination.stop and ETHERNET.destination.get(frame) == mac


def way(frame: bytes, mac: int, ip: int) -> Way:
    """Where a frame of the host goes: ``requests`` of ARP and ICMP echo that the card answers as a
    neighbor, whatever else is to its host address ``mac`` to ``port``, ``others`` to the network.

    ip : the IPv4 address that the card has for its host.
    """
    if is_request(frame, mac, ip):
        return "requests"
    return "port" if is_to(frame, mac) else "others"
