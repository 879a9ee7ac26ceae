"""The workers of a star: the slot protocol's client, and what THC and INT32 workers send by it.

Each worker keeps a running packet count K, never reset: slot = K mod window, generation =
K div window. The result of K triggers K + window; a timer re-sends what stays unanswered. What
scales a chunk (norms, exponents) travels through the same slots ahead of it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradnic.interface.formats import GRADNIC, HEAD_BYTES, Op

from ..thc.worker import Worker, pack, unpack
from .contribution import contribution
from .jobs import Config, Job
from .slot_rule import STALE
from .switchml_worker import exponent, factor, quantize

NORMS_PER_PACKET = 256
LONGEST = 16  # times the first timeout


class SlotClient:
    """One worker's side of the slot protocol: what goes when, what is sent again, what is answered.

    Sub-classes say what the packets are: `_packet`, `_takes`, `_loses`, and `_ready` where packets
    wait for answers beyond the window.

    Parameters
    ----------
    config, job : jobs.Config and jobs.Job
    child : int
        This worker's SRC.
    plan : list of (Op, int)
        Kind and SEQ of each packet, in the order of K.
    tensor, timeout, k0 : see `Client`.

    Attributes
    ----------
    lost : list of int
        SEQ of chunks whose result was gone (STALE).
    bitmaps : list of int
        Contributors of each chunk, by SEQ, as the aggregator returned them.
    """

    def __init__(
        self,
        config: Config,
        job: Job,
        child: int,
        plan: Sequence[tuple[Op, int]],
        *,
        tensor: int,
        timeout: int,
        k0: int,
    ) -> None:
        self.config, self.job, self.child, self.plan = config, job, child, plan
        self.tensor, self.timeout, self.k0 = tensor, timeout, k0
        self.bitmaps = [0] * (1 + max(number for _, number in plan))
        self.lost = []
        self.answered = [False] * len(plan)
        self.sent = {}  # entry number: (time of the next try, timeout)
        self._head = 0  # the first entry that was never sent

    @property
    def port(self) -> int:
        """Aggregator port that this worker is attached to."""
        return self.job.children[self.child].port

    @property
    def done(self) -> bool:
        """Whether every packet has its answer."""
        return all(self.answered)

    def start(self, now: int) -> list[bytes]:
        """The first window of packets."""
        return self._pump(now)

    def tick(self, now: int) -> list[bytes]:
        """Packets whose timer has run out, sent again."""
        frames = []
        for entry, (due, timeout) in sorted(self.sent.items()):
            if now >= due:
                later = min(2 * timeout, LONGEST * self.timeout)
                self.sent[entry] = (now + later, later)
                frames.append(self._frame(entry, retx=1))
        return frames

    def receive(self, frame: bytes, now: int) -> list[bytes]:
        """Take a result or a STALE answer; return the packets that it lets go."""
        header = GRADNIC.parse(frame)
        entry = self._entry(header)
        if entry is None or self.answered[entry]:
            return []
        op, number = self.plan[entry]
        if header["op"] == Op.CONTROL:
            if header["p0"] & 15 != STALE or op == Op.NORM:
                return []
            self.lost.append(number)
            self._loses(entry)
        else:
            if op != Op.NORM:
                self.bitmaps[number] = header["arg"]
            self._takes(entry, header, frame[HEAD_BYTES:])
        self.answered[entry] = True
        self.sent.pop(entry, None)
        return self._pump(now)

    def _packet(self, entry: int) -> tuple[bytes, dict[str, int]]:
        """Payload of a packet, and fields of its header."""
        raise NotImplementedError

    def _takes(self, entry: int, header: dict[str, int], data: bytes) -> None:
        """Take the payload of a packet's result."""
        raise NotImplementedError

    def _loses(self, entry: int) -> None:
        """What a lost result leaves behind; nothing by default."""

    def _ready(self, entry: int) -> bool:
        """Whether all that a packet is made of is known."""
        return True

    def _entry(self, header: dict[str, int]) -> int | None:
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
        kinds = (Op.THC_SUM if op == Op.THC_IDX else op, Op.CONTROL)
        return entry if header["op"] in kinds and header["seq"] == number else None

    def _pump(self, now: int) -> list[bytes]:
        """Send every packet that the window and what is known allow, in order of K."""
        frames = []
        while self._head < len(self.plan):
            before = self._head - self.job.n_slots
            if (before >= 0 and not self.answered[before]) or not self._ready(self._head):
                break
            self.sent[self._head] = (now + self.timeout, self.timeout)
            frames.append(self._frame(self._head))
            self._head += 1
        return frames

    def _frame(self, entry: int, **flags: int) -> bytes:
        op, number = self.plan[entry]
        generation, slot = divmod(self.k0 + entry, self.job.n_slots)
        payload, fields = self._packet(entry)
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
            last=int(entry == len(self.plan) - 1),
            **fields,
            **flags,
        )


class Client(SlotClient):
    """One THC worker: norms first, then the chunks that they scale.

    Parameters
    ----------
    config, job : jobs.Config and jobs.Job
        A ``thc`` job whose chunk is a whole number of blocks, or the other way round.
    child : int
        This worker's SRC.
    worker : thc.Worker
    gradient : float32, any shape
    round, tensor : int
    timeout : int
        Units of time until a packet is sent again; doubled at each turn, up to `LONGEST` times it.
    k0 : int
        Running packet count of the job before this tensor, alike at all workers.

    Chunks in ``lost`` decode to zero in the rotated block.
    """

    def __init__(
        self,
        config: Config,
        job: Job,
        child: int,
        worker: Worker,
        gradient: np.ndarray,
        *,
        round: int,
        tensor: int = 0,
        timeout: int = 1000,
        k0: int = 0,
    ) -> None:
        self.worker, self.round = worker, round
        self.rows = worker.blocks(gradient)
        self.own_norms = worker.norms(self.rows)
        self.norms = np.zeros_like(self.own_norms)
        n_chunks = -(-self.rows.size // job.C)
        # norms of a packet, and the chunks that they cover
        self.n_norms = min(NORMS_PER_PACKET, config.n_words)
        self.group = self.n_norms * worker.B // job.C
        plan = [
            entry
            for first in range(0, n_chunks, self.group)
            for entry in [
                (Op.NORM, first // self.group),
                *((Op.THC_IDX, c) for c in range(first, min(first + self.group, n_chunks))),
            ]
        ]
        super().__init__(config, job, child, plan, tensor=tensor, timeout=timeout, k0=k0)
        self.sums = np.full(n_chunks * job.C, worker.n * worker.g / 2)
        self.indices = {}  # norm group: indices of its blocks

    def result(self) -> np.ndarray:
        """The mean gradient, float32 (n_blocks * B,). ValueError before all answers are in."""
        if not self.done:
            raise ValueError(f"{self.answered.count(False)} packets have no answer yet")
        sums = self.sums[: self.rows.size]
        return self.worker.decode(
            sums.astype(np.int64), self.norms, round=self.round, tensor=self.tensor
        )

    def _takes(self, entry: int, header: dict[str, int], data: bytes) -> None:
        op, number = self.plan[entry]
        if op == Op.NORM:
            first = number * self.n_norms
            self.norms[first : first + header["elems"]] = np.frombuffer(data, "<u4")
        else:
            chunk = slice(number * self.job.C, (number + 1) * self.job.C)
            self.sums[chunk] = unpack(data, self.job.w, self.job.C)

    def _ready(self, entry: int) -> bool:
        op, number = self.plan[entry]
        norm_entry = number // self.group * (self.group + 1)
        return op == Op.NORM or self.answered[norm_entry]

    def _packet(self, entry: int) -> tuple[bytes, dict[str, int]]:
        op, number = self.plan[entry]
        if op == Op.NORM:
            first = number * self.n_norms
            return self.own_norms[first : first + self.n_norms].tobytes(), {}
        payload, tag = self._chunk(number)
        return payload, {"arg": tag}

    def _chunk(self, number: int) -> tuple[bytes, int]:
        """Packed indices of a chunk, and the XOR of the agreed norms it covers."""
        first, size = number * self.job.C, self.worker.B
        blocks = slice(first // size, -(-(first + self.job.C) // size))
        group = blocks.start // self.n_norms
        if group not in self.indices:
            part = slice(group * self.n_norms, (group + 1) * self.n_norms)
            self.indices[group] = self.worker.encode(
                self.rows[part],
                self.norms[part],
                round=self.round,
                worker=self.child,
                tensor=self.tensor,
                first_block=part.start,
            )
        start = first - group * self.n_norms * size
        indices = self.indices[group][start : start + self.job.C]
        middle = 2 ** (self.job.b - 1)
        indices = np.pad(indices, (0, self.job.C - indices.size), constant_values=middle)
        return pack(indices, self.job.b), int(np.bitwise_xor.reduce(self.norms[blocks]))


class Int32Client(SlotClient):
    """One worker of an ``int32`` job: fixed point under the largest exponent of all workers.

    The exponent of chunk k rides in packet k, the values of chunk k in packet k + window: the
    first window of packets carries exponents alone (e1), and zeros.

    Parameters
    ----------
    n_elems : int
        Values of a packet, at most ``config.n_words``.
    gradient : float32, any shape
    Others as of `Client`.

    Chunks in ``lost`` come back as zeros.
    """

    def __init__(
        self,
        config: Config,
        job: Job,
        child: int,
        gradient: np.ndarray,
        *,
        n_elems: int = 256,
        tensor: int = 0,
        timeout: int = 1000,
        k0: int = 0,
    ) -> None:
        values = np.asarray(gradient, np.float32).reshape(-1)
        n_chunks = -(-values.size // n_elems)
        self.chunks = np.pad(values, (0, n_chunks * n_elems - values.size)).reshape(-1, n_elems)
        self.size = values.size
        self.lead = min(job.n_slots, n_chunks)
        plan = [(Op.INT32, number) for number in range(n_chunks + self.lead)]
        super().__init__(config, job, child, plan, tensor=tensor, timeout=timeout, k0=k0)
        self.exponents: list[Any] = [None] * n_chunks
        self.values = np.zeros_like(self.chunks)

    def result(self) -> np.ndarray:
        """The sum over the workers, float32 (n,). ValueError before all answers are in."""
        if not self.done:
            raise ValueError(f"{self.answered.count(False)} packets have no answer yet")
        return self.values.reshape(-1)[: self.size]

    def _ready(self, entry: int) -> bool:
        return entry < self.lead or self.exponents[entry - self.lead] is not None

    def _packet(self, entry: int) -> tuple[bytes, dict[str, int]]:
        sent, known = entry - self.lead, entry < len(self.chunks)
        values = np.zeros(self.chunks.shape[1], np.int32)
        e0 = e1 = -128
        if sent >= 0:
            e0 = self.exponents[sent]
            scale = factor(e0, len(self.job.children))
            if np.isfinite(scale):  # else too small for a scale: zeros
                values = quantize(self.chunks[sent], scale)
        if known:
            e1 = exponent(self.chunks[entry])
        return values.astype("<i4").tobytes(), {"p0": e0 & 0xFF, "p1": e1 & 0xFF}

    def _takes(self, entry: int, header: dict[str, int], data: bytes) -> None:
        sent, e1 = entry - self.lead, (header["p1"] + 128) % 256 - 128
        if sent >= 0:
            sums = np.frombuffer(data, "<i4").astype(np.float32)
            with np.errstate(divide="ignore", invalid="ignore"):
                values = sums / factor(self.exponents[sent], len(self.job.children))
            self.values[sent] = values
        if entry < len(self.chunks):
            self.exponents[entry] = e1

    def _loses(self, entry: int) -> None:
        if entry < len(self.chunks):  # the exponent is lost too: the chunk will be sent as zeros
            self.exponents[entry] = 127
