"""Signatures of an AXI4 memory port, seen from the manager: bursts of whole beats, one ID.

Source: Arm IHI 0022E part A (AXI4); docs/spec/shells.md for the widths that shells have.

Plumbing: no golden model of its own.
"""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.params import check_power, check_range

from .channel import Channel

BEAT_BYTES = (4, 128)  # a power of two
BOUNDARY = 4096  # bytes; no burst may cross a multiple of it (A3.4.1)
INCREMENTING = 1  # axburst
BUFFERABLE = 3  # axcache: normal memory, not cached, bufferable
OKAY = 0


def _check(n_bytes, address_width):
    check_power("n_bytes", n_bytes, *BEAT_BYTES)
    check_range("address_width", address_width, 12, 64)


def _address(prefix, address_width):
    return {
        f"{prefix}id": Out(1),
        f"{prefix}addr": Out(address_width),
        f"{prefix}len": Out(8),
        f"{prefix}size": Out(3),
        f"{prefix}burst": Out(2),
        f"{prefix}cache": Out(4),
        f"{prefix}prot": Out(3),
        f"{prefix}valid": Out(1),
        f"{prefix}ready": In(1),
    }


class ReadPort(wiring.Signature):
    """The read channels, AR and R. ``arid`` is 0 always, so data come back in order.

    n_bytes : int, bytes of a beat, a power of two from 4 to 128.
    address_width : int, bits of a byte address, 12 to 64.
    """

    def __init__(self, n_bytes: int, address_width: int = 64) -> None:
        _check(n_bytes, address_width)
        self.n_bytes = n_bytes
        self.address_width = address_width
        super().__init__(
            {
                **_address("ar", address_width),
                "rid": In(1),
                "rdata": In(8 * n_bytes),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )

    def __eq__(self, other):
        return type(self) is type(other) and self.members == other.members


class WritePort(wiring.Signature):
    """The write channels, AW, W and B. ``awid`` is 0 always, so answers come back in order.

    n_bytes, address_width : as for `ReadPort`.
    """

    def __init__(self, n_bytes: int, address_width: int = 64) -> None:
        _check(n_bytes, address_width)
        self.n_bytes = n_bytes
        self.address_width = address_width
        super().__init__(
            {
                **_address("aw", address_width),
                "wdata": Out(8 * n_bytes),
                "wstrb": Out(n_bytes),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
            }
        )

    def __eq__(self, other):
        return type(self) is type(other) and self.members == other.members


def drive_address(port, prefix: str, burst, n_bytes: int):
    """Statements that put a `gradnic.hdl.axi.bursts.Burst` on address channel `prefix`."""
    channel = Channel(port, prefix)
    return [
        channel["id"].eq(0),
        channel["addr"].eq(burst.beat << ceil_log2(n_bytes)),
        channel["len"].eq(burst.n_less_1),
        channel["size"].eq(ceil_log2(n_bytes)),
        channel["burst"].eq(INCREMENTING),
        channel["cache"].eq(BUFFERABLE),
        channel["prot"].eq(0),
    ]
