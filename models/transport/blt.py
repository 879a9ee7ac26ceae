"""BLT, the bounded-loss transport, end to end: one tensor from one sender to one receiver.

A model of a transfer in time: the packets of `Sending` on a line of given rate, losses and round
trips, and `Reception` at the other end. It runs the golden sender and receiver themselves, packet
by packet, about 10 us each.
"""

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradnic.interface.formats import HEAD_BYTES

from .reception import Reception, packet_sizes, wanted_packets
from .sender import PROBE, Sending

AROUND = 24  # bytes of FCS, preamble and gap


@dataclass(frozen=True)
class Path:
    """What lies between sender and receiver. Times in nanoseconds.

    gbps : line rate. round_trip : there and back. loss : share of frames lost, either way.
    jitter : further random delay of a frame, from 0 to jitter, so that frames overtake.
    """

    gbps: float = 100.0
    round_trip: float = 20_000.0
    loss: float = 0.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if not self.gbps > 0:
            raise ValueError(f"gbps must be above 0, not {self.gbps!r}")
        if not 0 <= self.loss < 1:
            raise ValueError(f"loss must be from 0 to below 1, not {self.loss!r}")

    def nanoseconds(self, n_bytes: int) -> float:
        """Time on the line of a frame with this payload."""
        return (max(HEAD_BYTES + n_bytes, 60) + AROUND) * 8 / self.gbps


@dataclass(frozen=True)
class Outcome:
    """What a transfer took: nanoseconds until the receiver was complete, and until the sender knew.

    loss_free : of the same tensor on a path that loses nothing, until complete. n_sent, n_again,
    n_probes : packets, of them repeated, PROBEs. missing : share of the bytes that never came.
    """

    complete: float
    stopped: float
    loss_free: float
    n_sent: int
    n_again: int
    n_probes: int
    missing: float


def transfer(
    n_bytes: int,
    path: Path,
    *,
    p_q16: int = 0,
    payload: int = 1408,
    t_probe: int | None = None,
    strict_important: bool = False,
    important: bool | None = None,
    seed: int = 0,
) -> Outcome:
    """Move `n_bytes` over `path` under loss bound p_q16 / 2**16; an Outcome.

    payload : bytes per packet. t_probe : nanoseconds between PROBEs; None: one round trip.
    important : bool array, one a packet; None: none is.
    """
    rng = np.random.default_rng(seed)
    sizes = packet_sizes(n_bytes, payload, 1)
    marks = np.zeros(len(sizes), bool) if important is None else np.asarray(important)
    reception = Reception(sizes, p_q16=p_q16, strict_important=strict_important)
    sending = Sending(
        [(int(mark), 0) for mark in marks], t_probe=path.round_trip if t_probe is None else t_probe
    )
    n_important = sending.n_important
    arrivals, count, free, complete = [], 0, 0.0, 0.0
    now: float = 0.0
    wire = [path.nanoseconds(int(size)) for size in sizes]
    probe_time = path.nanoseconds(0)

    def launch(at: float, kind: str, what: Any) -> None:
        nonlocal count
        if rng.random() >= path.loss:
            at += path.round_trip / 2 + (rng.random() * path.jitter if path.jitter else 0)
            heapq.heappush(arrivals, (at, count, kind, what))
            count += 1

    while not sending.done:
        if free <= now and (deed := sending.next(now)):
            kind, what, _ = deed
            free = now + (probe_time if kind == PROBE else wire[what])
            launch(free, kind, what)
        turn = free if sending.due(free) else max(free, sending.probe_at or free)
        if not arrivals or arrivals[0][0] > turn:
            now = max(now, turn)
            continue
        now, _, kind, what = heapq.heappop(arrivals)
        if kind == "stop":
            sending.stop()
        elif kind == "bitmap":
            stamp, wanted = what
            sending.bitmap(stamp, wanted)
        elif kind == PROBE:
            if reception.probe(0, len(sizes), n_important=n_important):
                launch(now, "stop", None)
            else:
                for body in reception.bitmaps(0, len(sizes)):
                    launch(now, "bitmap", (what, wanted_packets(*body)))
        else:
            was = reception.status
            reception.data(what, int(sizes[what]), round=0, important=int(marks[what]))
            if reception.status != was:
                launch(now, "stop", None)
        if not complete and reception.status != "open":
            complete = now
    loss_free = sum(wire) + path.round_trip / 2
    missing = 1 - reception.n_bytes / n_bytes
    return Outcome(complete, now, loss_free, sending.n_sent, sending.n_again, sending.n_probes,
                   missing)  # fmt: skip
