"""In-network all-reduce: workers around an aggregator, over links that lose, copy and reorder.

Source: SwitchML's slot pool, with generations in place of its shadow set; THC's two exchanges.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradnic.errors import Unfinished

from .star_client import Client, Int32Client

__all__ = ["Client", "Faults", "Int32Client", "run"]


@dataclass(frozen=True)
class Faults:
    """What every link does to a frame, drawn independently; shares from 0 to 1.

    delay : int, least time on a link. reorder : int, further random time from 0 to reorder.
    death : {worker: time} from which a worker is silent.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    delay: int = 10
    reorder: int = 0
    death: tuple = ()

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 0 to below 1, not {getattr(self, name)!r}")


def run(
    aggregator: Any,
    clients: Sequence[Any],
    faults: Faults,
    *,
    seed: int = 0,
    tick: int = 100,
    limit: int = 10_000_000,
) -> int:
    """Let `clients` all-reduce through `aggregator` (anything with its receive and tick).

    Returns the time at which the last living client was done. `Unfinished` at `limit`.
    """
    rng = np.random.default_rng(seed)
    events, count = [], 0
    death = dict(faults.death)

    def send(now: int, target: str, item: tuple) -> None:
        nonlocal count
        copies = 0 if rng.random() < faults.loss else 1 + (rng.random() < faults.duplicate)
        for _ in range(copies):
            at = now + faults.delay + int(rng.integers(0, faults.reorder + 1))
            heapq.heappush(events, (at, count, target, item))
            count += 1

    def up(now: int, worker: int, frames: Sequence[bytes]) -> None:
        for frame in frames:
            send(now, "up", (worker, frame))

    def alive(worker: int, now: int) -> bool:
        return worker not in death or now < death[worker]

    for worker, client in enumerate(clients):
        first = client.start(0)
        up(0, worker, first if alive(worker, 0) else [])
    heapq.heappush(events, (tick, -1, "tick", None))
    while True:
        now, _, target, item = heapq.heappop(events)
        if now >= limit:
            waiting = [w for w, c in enumerate(clients) if not c.done and alive(w, now)]
            raise Unfinished(f"workers {waiting} are not done at time {limit}")
        if target == "up":
            worker, frame = item
            for port, answer in aggregator.receive(frame, clients[worker].port, now):
                send(now, "down", (port, answer))
        elif target == "down":
            port, frame = item
            for worker, client in enumerate(clients):
                if client.port == port and alive(worker, now):
                    up(now, worker, client.receive(frame, now))
        else:
            for port, answer in aggregator.tick(now):
                send(now, "down", (port, answer))
            for worker, client in enumerate(clients):
                if alive(worker, now):
                    up(now, worker, client.tick(now))
            heapq.heappush(events, (now + tick, -1, "tick", None))
        if all(c.done for w, c in enumerate(clients) if alive(w, now)):
            return now
