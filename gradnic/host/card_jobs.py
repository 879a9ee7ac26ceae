"""Tensors of PyTorch through a card, in place, a job each: what hook and backend share."""

import contextlib
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gradnic.interface.job import (
    ALIGN,
    HISTORY,
    Completion,
    Job,
    JobCodec,
    JobStatus,
    Kind,
    ending,
)

from .framed_card import FramedCard

RUNS = (1 << 16) // HISTORY  # of so many tensors each
POLL = 0.0005  # seconds that a completion is waited for, while other tensors may come
Spans = Sequence[tuple[int, int | None]]
WHOLE: Spans = ((0, None),)


class CardJobs:
    """A thread that speaks to a card: stores tensors, posts jobs, loads results.

    Jobs are posted in the order of `ask`, which is alike on all nodes. After any error of the card,
    or a job that ends with another status than done or short, nothing more is posted, since nodes
    may be out of step: that error is the end of all that was asked and will be.

    card : FramedCard, set up; only this thread uses it. timeout : seconds, for one job. n_ranks :
    that there are, if it is known, for who is told that a job has not ended.
    """

    def __init__(self, card: FramedCard, *, timeout: float, n_ranks: int | None = None) -> None:
        self._card, self._timeout, self.n_ranks = card, timeout, n_ranks
        self._n_jobs = secrets.randbits(16)  # jobs of a program before may still end
        self._fault: Exception | None = None
        self._asked: queue.SimpleQueue = queue.SimpleQueue()
        self._under_way: dict[int, tuple] = {}
        self.closed = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def ask(
        self,
        future: Any,
        buffer: Any,
        place: Callable[[], tuple[int, int, int]],
        fields: Mapping[str, Any],
        after: Callable[[Any], Any] | None = None,
        *,
        stored: Spans = WHOLE,
        loaded: Spans = WHOLE,
    ) -> None:
        """Let the card work on `buffer`, a dense tensor of float32 or bfloat16 on the processor.

        future : torch.futures.Future, which gets the buffer, or what went wrong. place : called in
        the thread: tensor, generation, and the address of memory that no other has under way.
        fields : further ones of the `Job`. after : what the host does to the result. stored, loaded
        : elements that go to the card and come back, (first, behind the last) each, of multiples of
        64 bytes but at the buffer's end.
        """
        self._asked.put((future, buffer, place, fields, after, stored, loaded))

    def close(self) -> None:
        """End the thread, once all that was asked is done."""
        self.closed = True
        self._asked.put(None)
        self._thread.join()

    def _serve(self) -> None:
        open_ = True
        while open_ or self._under_way:
            try:
                asked = self._asked.get(block=open_ and not self._under_way)
            except queue.Empty:
                asked = ()
            if asked is None:
                open_ = False
            elif asked:
                self._try(asked[0], self._begin, *asked)
            if self._under_way:
                self._try(None, self._collect)

    def _try(self, future: Any, act: Callable[..., None], *what: Any) -> None:
        """Whatever goes wrong belongs to who waits, and to all that follows."""
        if self._fault is None:
            try:
                return act(*what)
            except Exception as error:
                self._fault = error
        for waits in [future, *(held[0] for held in self._under_way.values())]:
            if waits is not None and not waits.done():
                _tell(waits.set_exception, self._fault)
        for id in self._under_way:
            with contextlib.suppress(Exception):  # the card may be gone
                self._card.abort(id)
        self._under_way.clear()

    def _begin(
        self,
        future: Any,
        buffer: Any,
        place: Callable[[], tuple[int, int, int]],
        fields: Mapping[str, Any],
        after: Callable[[Any], Any] | None,
        stored: Spans,
        loaded: Spans,
    ) -> None:
        import torch

        kind = Kind.BF16 if kind_of(buffer) is Kind.BF16 else Kind.FP32
        octets = (buffer.view(torch.int16) if kind is Kind.BF16 else buffer).numpy().view("u1")
        tensor, gen, address = place()
        self._n_jobs = (self._n_jobs + 1) & 0xFFFF
        job = Job(
            id=self._n_jobs, tensor=tensor, gen=gen, elems=buffer.numel(), source=address,
            result=address, kind=kind, **fields,
        )  # fmt: skip
        for part, at in _parts(octets, stored, buffer.element_size()):
            self._card.link.store(address + at, _whole(part))
        self._card.link.post(job, self._timeout)
        end = time.monotonic() + self._timeout
        self._under_way[job.id] = future, buffer, octets, job, after, loaded, end

    def _collect(self) -> None:
        """A completion, if one comes soon."""
        ended = self._card.completion(POLL)
        if ended is not None and ended.id in self._under_way:
            self._finish(ended, *self._under_way[ended.id][:-1])
            del self._under_way[ended.id]
        for id, (*_, end) in self._under_way.items():
            if time.monotonic() > end:
                n = self.n_ranks
                of = f"; nodes of its table must be {n}, as many as ranks" if n else ""
                raise TimeoutError(
                    f"job {id} has not ended in {self._timeout} s: every rank must be there, "
                    f"and ask for the same jobs in the same order{of}"
                )

    def _finish(
        self,
        ended: Completion,
        future: Any,
        buffer: Any,
        octets: Any,
        job: Job,
        after: Callable[[Any], Any] | None,
        loaded: Spans,
    ) -> None:
        if ended.status not in (JobStatus.DONE, JobStatus.SHORT):
            raise RuntimeError(
                f"job {ended.id}, codec {JobCodec(job.codec).name} of {buffer.numel()} values of "
                f"{buffer.dtype}, ended as {ending(ended.status, ended.detail)}"
            )
        for part, at in _parts(octets, loaded, buffer.element_size()):
            part[:] = self._card.link.load(job.result + at, -(-part.size // 4) * 4)[: part.size]
        if after is not None:
            after(buffer)
        _tell(future.set_result, buffer)


def _tell(told: Callable[[Any], Any], what: Any) -> None:
    """In a thread of its own: what `then` has put behind a future may wait for jobs itself, as
    PyTorch's PowerSGD does.
    """
    threading.Thread(target=told, args=(what,), daemon=True).start()


def check_memory(memory: tuple[int, int]) -> None:
    """ValueError for memory that cannot be: (first byte, bytes)."""
    first, n_bytes = memory
    if first % ALIGN or n_bytes < ALIGN:
        raise ValueError(
            f"memory must begin at a multiple of {ALIGN} and have bytes, not {memory!r}"
        )


def kind_of(tensor: Any) -> Kind | None:
    """What a tensor is in a card's memory; None for one that cards cannot take."""
    import torch

    kinds = {torch.float32: Kind.FP32, torch.bfloat16: Kind.BF16}
    return kinds.get(tensor.dtype) if tensor.device.type == "cpu" else None


def _parts(octets: Any, spans: Spans, size: int) -> Iterator[tuple[Any, int]]:
    """(bytes, where they are) of spans of elements of `size` bytes."""
    for first, stop in spans:
        part = octets[first * size : None if stop is None else stop * size]
        yield part, first * size


def _whole(octets: Any) -> Any:
    """Words of 4 bytes: of BF16 one may be half."""
    return octets if octets.size % 4 == 0 else bytes(octets) + bytes(-octets.size % 4)
