"""INCEPTIONN's ring all-reduce: N workers, each with a card between host and wire, no aggregator.

The gradient is padded with +0 to a multiple of 8 N floats and cut in N blocks. In step t = 1..2N-2
worker i sends block (i - t + 1) mod N to worker i + 1 and receives block (i - t) mod N. Up to step
N-1 a received block is added to the worker's own copy (reduce); then worker i owns block
(i + 1) mod N, replaces it by its codec image, and from step N on blocks are copied (gather).
Hosts add, cards code: a host sees plain float32 only, and the owner's image makes all replicas
equal, since coding an image again changes nothing.

`ring_allreduce` is the part of the hosts alone; what carries the blocks is an argument: the image
of the codec (`image_exchange`), golden cards with every frame (`Cards`), or RTL cards
(`gradnic.sim.inline.ring`).

Source: INCEPTIONN, MICRO 2018 (ring, as recalled); owner rule and NaN rule are gradnic's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from gradnic.interface.formats import ETHERNET, ETHERTYPE_IPV4, IP_PROTOCOL_UDP, IPV4, UDP
from gradnic.interface.inline import PAPER_START, InlineSettings
from gradnic.interface.params import check_least

from ..frame.ipv4 import ip_checksum, ones_complement_sum
from .card import InlineCard

NAN = np.uint32(0x7FC00000).view(np.float32)  # every NaN that a sum makes
UDP_PORT = 5001  # of the workers' sockets; any port that paper mode may touch
GROUP = 8


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """float32 sum of two arrays, any NaN as 0x7FC00000 (numpy's sign and payload vary by host)."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.add(a, b, dtype=np.float32)
    total[np.isnan(total)] = NAN
    return total


def block_floats(n_floats: int, n_workers: int) -> int:
    """Floats of one worker's block: a multiple of 8."""
    check_least("n_workers", n_workers, 2)
    return -(-n_floats // (GROUP * n_workers)) * GROUP


def ring_allreduce(
    gradients: np.ndarray, exchange: "Cards", owner_image: Callable | None = None
) -> np.ndarray:
    """Sum the workers' gradients round the ring.

    gradients : float32, shape (n_workers, n_floats), at least 2 workers.
    exchange : exchange(step, blocks), blocks float32 (n_workers, block): row i leaves worker i;
        returns what the workers receive, row i from worker i - 1.
    owner_image : what an owner makes of its reduced block; None leaves it (cards that do not code).

    Returns the replicas, float32 (n_workers, n_floats): row i is what worker i ends with.
    """
    gradients = np.asarray(gradients)
    if gradients.dtype != np.float32 or gradients.ndim != 2:
        raise ValueError(
            f"gradients must be float32 (n_workers, n_floats), not {gradients.dtype} "
            f"{gradients.shape}"
        )
    n_workers, n_floats = gradients.shape
    block = block_floats(n_floats, n_workers)
    held = np.zeros((n_workers, n_workers * block), np.float32)
    held[:, :n_floats] = gradients
    held = held.reshape(n_workers, n_workers, block)  # worker, block, float
    worker = np.arange(n_workers)
    for step in range(1, 2 * n_workers - 1):
        if step == n_workers and owner_image is not None:
            for i in worker:
                own = (i + 1) % n_workers
                held[i, own] = owner_image(held[i, own])
        incoming = exchange(step, held[worker, (worker - step + 1) % n_workers])
        arrives = (worker - step) % n_workers
        if step < n_workers:
            incoming = add(incoming, held[worker, arrives])
        held[worker, arrives] = incoming
    return held.reshape(n_workers, -1)[:, :n_floats].copy()


def image_exchange(image: Callable) -> Callable:
    """The exchange in which every transfer does to its block what `image` does."""
    return lambda step, blocks: np.stack([image(b) for b in np.roll(blocks, 1, axis=0)])


@dataclass(frozen=True)
class Framing:
    """Ordinary UDP frames, with the mark that asks the card to code them.

    tos : int, 0x28 is the card's default mark, 0 asks for nothing.
    n_floats : int, floats of a frame; 336 is the most that an MTU of 1500 is sure to take.
    """

    tos: int = 0x28
    n_floats: int = 336

    def frames(self, block: np.ndarray, sender: int, receiver: int) -> list[bytes]:
        """Frames, as bytes, that carry `block` from worker `sender` to `receiver`, in order.

        Headers are what an operating system writes: IP and UDP checksums right, datagrams
        numbered from 0 in each block.
        """
        payloads = np.asarray(block, "<f4")
        starts = range(0, payloads.size, self.n_floats)
        return [
            self._frame(payloads[s : s + self.n_floats].tobytes(), sender, receiver, k)
            for k, s in enumerate(starts)
        ]

    def _frame(self, payload: bytes, sender: int, receiver: int, number: int) -> bytes:
        size = len(payload)
        head = bytearray(_head(self.tos, sender, receiver))
        IPV4.total_length.put(head, IPV4.n_bytes + UDP.n_bytes + size)
        IPV4.identification.put(head, number & 0xFFFF)
        UDP.length.put(head, UDP.n_bytes + size)
        IPV4.checksum.put(head, ip_checksum(head[IPV4.start : UDP.start]))
        addresses = head[IPV4.source.byte : IPV4.destination.stop]
        pseudo = addresses + bytes([0, IP_PROTOCOL_UDP]) + head[38:40]
        total = ones_complement_sum(pseudo + head[UDP.start :] + payload)
        UDP.checksum.put(head, 0xFFFF ^ total or 0xFFFF)  # 0 would mean that there is none
        return (bytes(head) + payload).ljust(60, b"\0")

    @staticmethod
    def floats(frames: Sequence[bytes]) -> np.ndarray:
        """Floats that a worker finds in `frames`, in order; float32, one dimension."""
        parts = [f[PAPER_START : UDP.start + UDP.length.get(f)] for f in frames]
        return np.frombuffer(b"".join(parts), "<f4").astype(np.float32)


@cache
def _head(tos: int, sender: int, receiver: int) -> bytes:
    """Headers of every frame between two workers; lengths, number and checksums are 0."""
    return (
        ETHERNET.pack(destination=_mac(receiver), source=_mac(sender), ethertype=ETHERTYPE_IPV4)
        + IPV4.pack(
            version=4,
            ihl=5,
            tos=tos,
            dont_fragment=1,
            ttl=64,
            protocol=IP_PROTOCOL_UDP,
            source=_ip(sender),
            destination=_ip(receiver),
        )
        + UDP.pack(source_port=UDP_PORT, destination_port=UDP_PORT)
    )


def _mac(worker: int) -> int:
    return 0x020000000000 + worker  # locally administered


def _ip(worker: int) -> int:
    return 0x0A000001 + worker  # 10.0.0.1 and up


@dataclass
class Traffic:
    """Frames of one step, each list in order.

    sent : frames that worker i's host gave its card, list of lists, by i.
    wire : frames between worker i's card and worker i + 1's.
    received : frames that worker i's card gave its host.
    """

    sent: list
    wire: list = field(default_factory=list)
    received: list = field(default_factory=list)


class Cards:
    """Golden cards in a ring, as the exchange of `ring_allreduce`; keeps every frame.

    n_workers : int. settings : `gradnic.interface.inline.InlineSettings` of all cards. framing :
    `Framing`.
    rounding : of the cards' compressors.

    Attributes: `cards`; `traffic`, a `Traffic` per step.
    """

    def __init__(
        self,
        n_workers: int,
        settings: InlineSettings | None,
        framing: Framing,
        *,
        rounding: str = "trunc",
    ) -> None:
        self.cards = [InlineCard(settings, rounding=rounding) for _ in range(n_workers)]
        self.framing = framing
        self.traffic = []

    def __call__(self, step: int, blocks: np.ndarray) -> np.ndarray:
        """Carry the blocks of one step through cards and wires."""
        n = len(blocks)
        traffic = Traffic([self.framing.frames(b, i, (i + 1) % n) for i, b in enumerate(blocks)])
        self.carry(traffic)
        self.traffic.append(traffic)
        return np.stack([self.framing.floats(frames) for frames in traffic.received])

    def carry(self, step: Traffic) -> None:
        """Fill in `wire` and `received` of one step's `Traffic`."""
        n = len(self.cards)
        step.wire = [[self.cards[i].transmit(f)[0] for f in step.sent[i]] for i in range(n)]
        for i in range(n):
            arrived = [self.cards[i].receive(f) for f in step.wire[i - 1]]
            step.received.append([frame[0] for frame in arrived if frame is not None])
