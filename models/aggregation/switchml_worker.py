"""SwitchML-UDP, the worker's side: slots, timer, exponents one batch ahead, quantization.

A float32 tensor is cut into chunks. The exponent of chunk k's largest value rides in packet k; the
values of chunk k, scaled by the largest exponent of all workers, in packet k + batch. The first
batch of packets therefore carries exponents alone.

Source: docs/spec/wire.md; p4app-switchML, client library (DPDK worker thread, CPU exponent
quantizer).
"""

from typing import Any

import numpy as np

from gradnic.interface.switchml import PORT, SWITCHML, TYPE, VALUES

from ..frame.ipv4 import udp_frame
from .switchml import SwitchmlJob

TTL = 128
VECTOR = 16  # values that the vector path takes at once; what is left over goes one by one
INT32_MAX = 2**31 - 1


def exponent(chunk: np.ndarray) -> int:
    """int8 e with 2**e above every magnitude of `chunk`, float32 (n,), at least 1 value.

    -126 for zeros; Inf and NaN give 129, which wraps to -127.
    """
    largest = np.abs(chunk).max(initial=0)  # a NaN stays
    e = int((np.float32(largest).view(np.uint32) & 0x7F800000) >> 23) - 126
    return (e + 128) % 256 - 128


def factor(e: int, n_workers: int) -> np.float32:
    """Scale of a chunk whose agreed exponent is `e`: float32, so that N products fit an int32.

    Infinite from e = -97 down: such a chunk comes back as zeros.
    """
    power = np.float32(2.0) ** np.float32(e)
    with np.errstate(over="ignore"):
        return np.float32(np.float64(INT32_MAX) / np.float64(np.float32(n_workers) * power))


def quantize(chunk: np.ndarray, scale: np.float32) -> np.ndarray:
    """int32 (n,) of `chunk` * `scale`: whole vectors round to nearest even, the tail half away.

    A product outside int32 (a chunk that held Inf or NaN) becomes the most negative value, as the
    conversion of x86 gives.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        products = chunk.astype(np.float32) * scale
    body = products.size - products.size % VECTOR
    tail = np.trunc(products[body:].astype(np.float64) + np.copysign(0.5, products[body:]))
    rounded = np.concatenate([np.rint(products[:body].astype(np.float64)), tail])
    inside = (rounded >= -(2.0**31)) & (rounded <= INT32_MAX)
    return np.where(inside, rounded, -(2.0**31)).astype(np.int64).astype(np.int32)


class SwitchmlWorker:
    """One worker's side for one float32 tensor; runs in `gradnic.models.aggregation.star.run`.

    Parameters
    ----------
    switch : tuple
        (MAC, IPv4 address) of the switch.
    job : switchml.SwitchmlJob
    child : int
        This worker's number.
    gradient : float32, any shape
    window : int
        Packets under way, at most ``job.n_slots``.
    shift : int
        Packets that the slots have seen before, alike at all workers; see `next_shift`.
    timeout : int
        Units of time until a packet is sent again: doubled after 100 timeouts, then after 200
        more, and so on.
    """

    def __init__(
        self,
        switch: tuple[int, int],
        job: SwitchmlJob,
        child: int,
        gradient: np.ndarray,
        *,
        window: int | None = None,
        shift: int = 0,
        timeout: int = 1000,
    ) -> None:
        self.switch, self.job, self.child = switch, job, child
        self.address = job.children[child]
        self.window = job.n_slots if window is None else window
        if not 1 <= self.window <= job.n_slots:
            raise ValueError(f"window must be 1 to {job.n_slots}, not {window!r}")
        self.gradient = np.asarray(gradient, np.float32).reshape(-1)
        self.chunks = [
            self.gradient[at : at + job.values] for at in range(0, self.gradient.size, job.values)
        ]
        self.batch = min(self.window, len(self.chunks))
        self.n_packets = len(self.chunks) + self.batch
        self.shift, self.timeout = shift % (2 * self.window), timeout
        self.scales: list[Any] = [None] * len(self.chunks)
        self.values = np.zeros_like(self.gradient)
        self.answered = [False] * self.n_packets
        self.due = {}  # packet: time of the next try
        self.n_timeouts, self.threshold = 0, 100

    @property
    def port(self) -> int:
        """Port of the switch that this worker is attached to."""
        return self.address.port

    @property
    def done(self) -> bool:
        """Whether every packet has its answer."""
        return all(self.answered)

    @property
    def next_shift(self) -> int:
        """`shift` of the tensor that follows on the same slots."""
        return (self.shift + self.n_packets) % (2 * self.window)

    def start(self, now: int) -> list[bytes]:
        """The first batch of packets."""
        return [self._send(packet, now) for packet in range(self.batch)]

    def tick(self, now: int) -> list[bytes]:
        """Packets whose timer has run out, sent again."""
        frames = []
        for packet in [p for p, due in self.due.items() if now >= due]:
            self.n_timeouts += 1
            if self.n_timeouts >= self.threshold:
                self.n_timeouts, self.threshold = 0, self.threshold + 100
                self.timeout *= 2
            frames.append(self._send(packet, now))
        return frames

    def receive(self, frame: bytes, now: int) -> list[bytes]:
        """Take a result; return the packet that it lets go, if any."""
        head = SWITCHML.parse(frame)
        packet = int.from_bytes(head["packet"].to_bytes(4, "big"), "little")
        if head["job"] != self.job.job or packet >= self.n_packets or self.answered[packet]:
            return []
        self.answered[packet] = True
        self.due.pop(packet, None)
        if packet >= self.batch:
            chunk = packet - self.batch
            first = chunk * self.job.values
            sums = np.frombuffer(frame, ">i4", self.chunks[chunk].size, SWITCHML.stop)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                values = sums.astype(np.float32) / self.scales[chunk]
            self.values[first : first + values.size] = values
        if packet < len(self.chunks):
            self.scales[packet] = factor(head["e0"], len(self.job.children))
        following = packet + self.batch
        return [self._send(following, now)] if following < self.n_packets else []

    def result(self) -> np.ndarray:
        """The sum over the workers, float32 (n,). ValueError before all answers are in."""
        if not self.done:
            raise ValueError(f"{self.answered.count(False)} packets have no answer yet")
        return self.values

    def _send(self, packet: int, now: int) -> bytes:
        self.due[packet] = now + self.timeout
        place = (packet + self.shift) % (2 * self.window)
        values = np.zeros(self.job.values, np.int32)
        if packet >= self.batch:
            chunk = packet - self.batch
            values[: self.chunks[chunk].size] = quantize(self.chunks[chunk], self.scales[chunk])
        head = SWITCHML.pack(
            type=TYPE,
            size=VALUES[self.job.values],
            job=self.job.job,
            packet=int.from_bytes(packet.to_bytes(4, "little"), "big"),
            set=place // self.window,
            slot=self.job.first_slot + place % self.window,
            e0=exponent(self.chunks[packet]) if packet < len(self.chunks) else 0,
        )
        sender = (self.address.mac, self.address.ip, self.address.udp_port)
        receiver = (*self.switch, PORT)
        return udp_frame(sender, receiver, head + values.astype(">i4").tobytes(), TTL)
