"""In-network all-reduce: workers around an aggregator, over links that lose, copy and reorder.

Each worker keeps a running packet count K, never reset: slot = K mod window, generation =
K div window. The result of K triggers K + window; a timer re-sends what stays unanswered. Norms
travel through the same slots ahead of the chunks they scale. Source: SwitchML's slot pool, with
generations in place of its shadow set; THC's two exchanges.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from ..formats import GRADNIC, HEAD_BYTES, Op
from .aggregate import STALE, contribution
from .thc import pack, unpack

NORMS_PER_PACKET = 256


class Client:
    """One worker's side of the slot protocol for one tensor.

    Parameters
    ----------
    config, job : aggregate.Config and aggregate.Job
        A ``thc`` job whose chunk is a whole number of blocks, or the other way round.
    child : int
        This worker's SRC.
    worker : thc.Worker
    gradient : float32, any shape
    round, tensor : int
    timeout : int
        Units of time until a packet is sent again; doubled at each turn.
    k0 : int
        Running packet count of the job before this tensor, alike at all workers.

    Attributes
    ----------
    lost : list of int
        Chunks whose result was gone (STALE): they decode to zero in the rotated block.
    bitmaps : list of int
        Contributors of each chunk, as the aggregator returned them.
    """

    def __init__(
        self, config, job, child, worker, gradient, *, round, tensor=0, timeout=1000, k0=0
    ):
        self.config, self.job, self.child, self.worker = config, job, child, worker
        self.round, self.tensor, self.timeout, self.k0 = round, tensor, timeout, k0
        self.rows = worker.blocks(gradient)
        self.own_norms = worker.norms(self.rows)
        self.norms = np.zeros_like(self.own_norms)
        n_chunks = -(-self.rows.size // job.C)
        group = NORMS_PER_PACKET * worker.B // job.C  # chunks that one norm packet covers
        self.plan = [
            entry
            for first in range(0, n_chunks, group)
            for entry in [
                (Op.NORM, first // group),
                *((Op.THC_IDX, chunk) for chunk in range(first, min(first + group, n_chunks))),
            ]
        ]
        self.sums = np.full(n_chunks * job.C, worker.n * worker.g / 2)
        self.bitmaps = [0] * n_chunks
        self.lost = []
        self.answered = [False] * len(self.plan)
        self.sent = {}  # entry number: (time of the next try, timeout)
        self.indices = {}  # norm group: indices of its blocks

    @property
    def port(self):
        """Aggregator port that this worker is attached to."""
        return self.job.children[self.child].port

    @property
    def done(self):
        """Whether every packet has its answer."""
        return all(self.answered)

    def start(self, now):
        """The first window of packets."""
        return self._pump(now)

    def tick(self, now):
        """Packets whose timer has run out, sent again."""
        frames = []
        for entry, (due, timeout) in sorted(self.sent.items()):
            if now >= due:
                self.sent[entry] = (now + 2 * timeout, 2 * timeout)
                frames.append(self._frame(entry, retx=1))
        return frames

    def receive(self, frame, now):
        """Take a result or a STALE answer; return the packets that it lets go."""
        header = GRADNIC.parse(frame)
        entry = self._entry(header)
        if entry is None or self.answered[entry]:
            return []
        op, number = self.plan[entry]
        data = frame[HEAD_BYTES:]
        if header["op"] == Op.CONTROL:
            if header["p0"] & 15 != STALE or op == Op.NORM:
                return []
            self.lost.append(number)
        elif op == Op.NORM:
            first = number * NORMS_PER_PACKET
            self.norms[first : first + header["elems"]] = np.frombuffer(data, "<u4")
        else:
            chunk = slice(number * self.job.C, (number + 1) * self.job.C)
            self.sums[chunk] = unpack(data, self.job.w, self.job.C)
            self.bitmaps[number] = header["arg"]
        self.answered[entry] = True
        self.sent.pop(entry, None)
        return self._pump(now)

    def result(self):
        """The mean gradient, float32 (n_blocks * B,). ValueError before all answers are in."""
        if not self.done:
            raise ValueError(f"{self.answered.count(False)} packets have no answer yet")
        sums = self.sums[: self.rows.size]
        return self.worker.decode(sums.astype(np.int64), self.norms, round=self.round)

    def _entry(self, header):
        """Number in the plan of the packet that `header` answers, or None."""
        if (header["job"], header["tensor"]) != (self.job.job, self.tensor):
            return None
        window = self.job.n_slots
        period = window << 16  # K mod period is what slot and generation tell
        k = header["gen"] * window + header["slot"] - self.job.first_slot
        entry = (k - self.k0) % period
        if entry >= len(self.plan):
            return None
        op, number = self.plan[entry]
        kinds = {Op.NORM: (Op.NORM, Op.CONTROL), Op.THC_IDX: (Op.THC_SUM, Op.CONTROL)}[op]
        return entry if header["op"] in kinds and header["seq"] == number else None

    def _pump(self, now):
        """Send every packet that the window and the norms allow, in order of K."""
        frames = []
        for entry in range(len(self.plan)):
            if self.answered[entry] or entry in self.sent:
                continue
            before = entry - self.job.n_slots
            if (before >= 0 and not self.answered[before]) or not self._ready(entry):
                break
            self.sent[entry] = (now + self.timeout, self.timeout)
            frames.append(self._frame(entry))
        return frames

    def _ready(self, entry):
        op, number = self.plan[entry]
        return op == Op.NORM or self.answered[self._norm_entry(number)]

    def _norm_entry(self, chunk):
        group = NORMS_PER_PACKET * self.worker.B // self.job.C
        return chunk // group * (group + 1)

    def _frame(self, entry, **flags):
        op, number = self.plan[entry]
        generation, slot = divmod(self.k0 + entry, self.job.n_slots)
        if op == Op.NORM:
            first = number * NORMS_PER_PACKET
            payload, tag = self.own_norms[first : first + NORMS_PER_PACKET].tobytes(), 0
        else:
            payload, tag = self._chunk(number)
        return contribution(
            self.job,
            self.child,
            aggregator=self.config,
            op=op,
            gen=generation % 2**16,
            slot=self.job.first_slot + slot,
            tensor=self.tensor,
            seq=number,
            payload=payload,
            arg=tag,
            last=int(entry == len(self.plan) - 1),
            **flags,
        )

    def _chunk(self, number):
        """Packed indices of a chunk, and the XOR of the agreed norms it covers."""
        first, size = number * self.job.C, self.worker.B
        blocks = slice(first // size, -(-(first + self.job.C) // size))
        group = blocks.start // NORMS_PER_PACKET
        if group not in self.indices:
            part = slice(group * NORMS_PER_PACKET, (group + 1) * NORMS_PER_PACKET)
            self.indices[group] = self.worker.encode(
                self.rows[part],
                self.norms[part],
                round=self.round,
                worker=self.child,
                first_block=part.start,
            )
        start = first - group * NORMS_PER_PACKET * size
        indices = self.indices[group][start : start + self.job.C]
        middle = 2 ** (self.job.b - 1)
        indices = np.pad(indices, (0, self.job.C - indices.size), constant_values=middle)
        return pack(indices, self.job.b), int(np.bitwise_xor.reduce(self.norms[blocks]))


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

    def __post_init__(self):
        for name in ("loss", "duplicate"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 0 to below 1, not {getattr(self, name)!r}")


def run(aggregator, clients, faults, *, seed=0, tick=100, limit=10_000_000):
    """Let `clients` all-reduce through `aggregator` (anything with its receive and tick).

    Returns the time at which the last living client was done. RuntimeError at `limit`.
    """
    rng = np.random.default_rng(seed)
    events, count = [], 0
    death = dict(faults.death)

    def send(now, target, item):
        nonlocal count
        copies = 0 if rng.random() < faults.loss else 1 + (rng.random() < faults.duplicate)
        for _ in range(copies):
            at = now + faults.delay + int(rng.integers(0, faults.reorder + 1))
            heapq.heappush(events, (at, count, target, item))
            count += 1

    def up(now, worker, frames):
        for frame in frames:
            send(now, "up", (worker, frame))

    def alive(worker, now):
        return now < death.get(worker, limit)

    for worker, client in enumerate(clients):
        up(0, worker, client.start(0))
    heapq.heappush(events, (tick, -1, "tick", None))
    while True:
        now, _, target, item = heapq.heappop(events)
        if now > limit:
            waiting = [w for w, c in enumerate(clients) if not c.done and alive(w, now)]
            raise RuntimeError(f"workers {waiting} are not done at time {limit}")
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
