"""Seconds of an all-reduce: schedules on the network model, with codecs of cards or hosts.

A nanosecond is the network model's cycle here: links in bytes per nanosecond, the card's own
latencies scaled from its clock. A message through a codec in the card takes what its link or its
engine takes, whichever is longer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.builders.schedule import Schedule
from gradnic.models.schedule.network_model import Network, simulate

from gradnic.interface.schedule_table import Table

from .constants import value
from .layers import FLOAT_BYTES

NANO = 1e-9


@dataclass(frozen=True)
class Codec:
    """What a codec makes of gradients on the wire, and how fast.

    up, down : bytes of payload per byte of FP32, towards the sum and back from it. engine : bytes
    of FP32 per second that pass a card's engines; None: no limit. encode, decode : the same of the
    host's or the accelerator's, before and behind the all-reduce; None: nothing to do there.
    fills : what is coded before it is sent fills packets, and is summed as it is: hosts and
    accelerators. Else a coded packet goes for each raw one, and floats are summed: cards.
    """

    name: str
    up: float = 1.0
    down: float = 1.0
    engine: float | None = None
    encode: float | None = None
    decode: float | None = None
    fills: bool = False

    def __post_init__(self) -> None:
        if not (self.up > 0 and self.down > 0):
            raise ValueError(f"{self.name}: ratios must be above 0, not {self.up}, {self.down}")


RAW = Codec("FP32")


def fp16() -> Codec:
    """FP16 or BF16: half of the bytes; cast by the host before and behind."""
    encode, decode = value("host.bf16.encode"), value("host.bf16.decode")
    return Codec("BF16", 0.5, 0.5, encode=encode, decode=decode, fills=True)


def truncated(bits: int) -> Codec:
    """Floats with so many low bits cut off: 16, 22 or 24. Cut by the card as it sends."""
    if bits not in (16, 22, 24):
        raise ValueError(f"bits cut off must be 16, 22 or 24, not {bits!r}")
    return Codec(f"cut {bits} bits", (32 - bits) / 32, (32 - bits) / 32)


def card_network(
    gbps: float,
    *,
    hop: float | None = None,
    clock: float | None = None,
    add: float | None = None,
    floats: int | None = None,
) -> Network:
    """Network of offload or in-line cards on Ethernet of `gbps`.

    hop : seconds of a link with what is at its end. clock : Hz of the card. add : bytes of FP32
    that a node adds per second; None: as fast as they come, by a card as wide as its line is fast.
    floats : of a packet.
    """
    clock = value("card.clock") if clock is None else clock
    cycle = 1e9 / clock  # nanoseconds
    rate = gbps / 8
    return Network(
        link_bytes_per_cycle=rate,
        link_latency=round((value("switch.hop") if hop is None else hop) / NANO),
        packet=FLOAT_BYTES * int(value("frame.floats") if floats is None else floats),
        head=int(value("frame.head")),
        flow="packet",
        reduce_per_cycle=1e9 if add is None else add * NANO / FLOAT_BYTES,
        read_per_cycle=1e9,
        block=0,
        buffer=1 << 30,
        start=round(20 * cycle), issue=round(19 * cycle), receive=round(3 * cycle),
        add=round(13 * cycle), order="port", window=1 << 20,
    )  # fmt: skip


def host_network(gbps: float, *, hop: float | None = None) -> Network:
    """Network of hosts that speak TCP and add with one core."""
    network = card_network(gbps, hop=hop, add=value("host.add"))
    message = round(value("host.message") / NANO)
    return replace(
        network, packet=int(value("tcp.payload")), head=int(value("tcp.head")), issue=message, add=0
    )


class Exchange:
    """An all-reduce of a schedule on a network; call it with bytes of FP32.

    schedule : a Schedule. network : a Network in nanoseconds. codec : a Codec. stretch : factor of
    the network's time, such as for lost packets that are sent again: a number or a function of
    (bytes, seconds).
    """

    def __init__(
        self,
        schedule: Schedule,
        network: Network,
        codec: Codec = RAW,
        *,
        stretch: float | Callable[[int, float], float] = 1.0,
    ) -> None:
        self.schedule, self.network, self.codec, self.stretch = schedule, network, codec, stretch
        self._known = {}

    @cached_property
    def table(self) -> Table:
        return compile_table(self.schedule)

    def seconds(self, n_bytes: int) -> float:
        """Of the network alone, for `n_bytes` of FP32 (rounded up to floats)."""
        n_bytes = -(-n_bytes // FLOAT_BYTES) * FLOAT_BYTES
        if n_bytes not in self._known:
            cycles = simulate(self.table, self.schedule.topology, n_bytes, self._coded).cycles
            time = cycles * NANO
            factor = self.stretch(n_bytes, time) if callable(self.stretch) else self.stretch
            self._known[n_bytes] = time * factor
        return self._known[n_bytes]

    @cached_property
    def _coded(self) -> Network:
        """The network with the codec."""
        network, codec = self.network, self.codec
        engine = math.inf if codec.engine is None else codec.engine * NANO
        adds = network.reduce_per_cycle / (codec.up if codec.fills else 1.0)
        return replace(network, wire_ratio=codec.up, gather_ratio=codec.down, fills=codec.fills,
                       engine=engine, reduce_per_cycle=adds)  # fmt: skip

    def __call__(self, n_bytes: int) -> tuple[float, float, float]:
        """(encode, network, decode) seconds, for `step`."""
        codec = self.codec
        return (
            n_bytes / codec.encode if codec.encode else 0.0,
            self.seconds(n_bytes),
            n_bytes / codec.decode if codec.decode else 0.0,
        )
