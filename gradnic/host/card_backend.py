"""A backend of torch.distributed whose all-reduces are jobs of each rank's own card.

``register(card, memory=(0, 1 << 24))``, then ``init_process_group("gradnic", ...)``: programs of
`torch.distributed`, DDP among them, go on as they are. Needs PyTorch, the extra ``train``.
"""

import secrets
from collections import deque
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from gradnic.interface.host_frame import OPTIONS
from gradnic.interface.job import ALIGN, HISTORY, JobCodec, Kind, Operation

from .card_jobs import RUNS, CardJobs, check_memory, kind_of
from .framed_card import FramedCard

NAME = "gradnic"
SLOTS = 8  # places of memory: jobs that may wait or be at work at a time
_card: dict[str, Any] = {}  # what `register` was given


def register(
    card: FramedCard,
    *,
    memory: tuple[int, int],
    codec: JobCodec = JobCodec.RAW32,
    table: int = 0,
    p_q16: int = 0,
    seed: int = 0,
    timeout: float = 60.0,
) -> None:
    """Make ``gradnic`` a backend of `init_process_group`, over this rank's card.

    The default group's all-reduces of dense float32 and bfloat16 tensors on the processor, by SUM,
    AVG or MAX, are jobs of the card, as far as it was built for them. All else goes over Gloo:
    other types, operations and collectives, and other groups, since a card's table is for all.

    A tensor longer than an eighth of `memory` is several jobs. Up to eight jobs wait or are at work
    at a time; `all_reduce` waits while there are as many. One that ends with another status than
    done or short raises RuntimeError where it is waited for, and so does every one after it. A card
    remembers the last rounds of 64 tensors until a reset: each process group has one of 1,024 runs
    of tensors, which rank 0 draws.

    Parameters
    ----------
    card : FramedCard
        Set up: addresses, an all-reduce table of as many nodes as there are ranks under the number
        `table`, landing areas, region of `memory`. Only the backend uses it from here on.
    memory : (first byte, bytes)
        Of the card, alike on all ranks: a multiple of 64.
    codec, table, p_q16, seed
        As of `gradnic.interface.job.Job`. The codec is that of float32 tensors and of SUM and AVG.
    timeout : seconds, for one job.

    ValueError for memory that cannot be, and by `init_process_group` where ranks differ in any of
    this, or in what their cards were built with.
    """
    check_memory(memory)
    _card.update(
        card=card, memory=memory, codec=codec, timeout=timeout,
        fields={"table": table, "p_q16": p_q16, "seed": seed},
    )  # fmt: skip
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _group, devices=["cpu"])


def _group(store: Any, rank: int, size: int, timeout: Any) -> "CardGroup":
    """What `torch.distributed` calls for a new group; cards are for the first one, of all ranks."""
    return CardGroup(store, rank, size, timeout, None if dist.is_initialized() else dict(_card))


class CardGroup(dist.ProcessGroup):
    """A process group as `register` says; made by `torch.distributed`.

    store, rank, size, timeout : as a backend gets them. given : what `register` got, or None: all
    goes over Gloo.

    Attributes
    ----------
    n_jobs : int, jobs so far
    """

    def __init__(
        self, store: Any, rank: int, size: int, timeout: Any, given: dict[str, Any] | None
    ) -> None:
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)
        self.n_jobs, self._jobs = 0, None
        if given is None:
            return
        options = given["card"].link.hello["options"]
        self._can = {name for k, name in enumerate(OPTIONS) if options >> k & 1}
        self._codec, self._fields = given["codec"], given["fields"]
        first, n_bytes = given["memory"]
        self._first, self._slot = first, max(n_bytes // SLOTS // ALIGN, 1) * ALIGN
        self._n_slots = min(SLOTS, n_bytes // self._slot)
        store = dist.PrefixStore(NAME, store)
        mine = {"memory": given["memory"], "codec": int(self._codec), "built": sorted(self._can),
                **self._fields}  # fmt: skip
        self._run = _agree(store, rank, size, mine)
        self._rounds = 2 if self._codec == JobCodec.THC else 1  # of GEN: norms have one, too
        self._waiting: deque = deque()
        self._jobs = CardJobs(given["card"], timeout=given["timeout"])

    def getBackendName(self) -> str:
        return NAME

    def allreduce(self, tensors: list, opts: Any = None) -> Any:
        """`dist.all_reduce`, and what DDP calls."""
        opts = dist.AllreduceOptions() if opts is None else opts
        job = self._job_of(tensors, opts) if self._jobs else None
        if job is None:
            return self._gloo.allreduce(tensors, opts)
        (tensor,) = tensors
        fields, after = job
        flat = tensor.detach().contiguous().view(-1)  # a copy where it is not dense
        length = self._slot // tensor.element_size()
        parts = [self._begin(part, fields, after) for part in flat.split(length)]

        def whole(futures: Any) -> list:
            for future in futures.value():
                future.value()  # raises what went wrong
            if flat.data_ptr() != tensor.data_ptr():
                tensor.copy_(flat.view(tensor.shape))
            return [tensor]

        return _Pending(torch.futures.collect_all(parts).then(whole))

    def shutdown(self) -> None:
        """What `destroy_process_group` calls."""
        if self._jobs:
            self._jobs.close()
            self._jobs = None

    def _job_of(self, tensors: list, opts: Any) -> Any:
        """(fields of a job, what the host does behind it), or None for what goes over Gloo."""
        if len(tensors) != 1 or tensors[0].layout != torch.strided or not tensors[0].numel():
            return None
        kind, op = kind_of(tensors[0]), opts.reduceOp
        if kind is None or (kind is Kind.BF16 and "bf16" not in self._can):
            return None
        fields = {"codec": JobCodec.RAW32, **self._fields}
        if op == dist.ReduceOp.MAX and "maxima" in self._can:
            return {**fields, "op": Operation.MAX, "p_q16": 0}, None
        averages = bool(op == dist.ReduceOp.AVG)
        if not (averages or op == dist.ReduceOp.SUM):  # `in` compares the other way round: never
            return None
        if kind is Kind.FP32:
            fields["codec"] = self._codec
        n = self.size()
        if fields["codec"] == JobCodec.THC:  # means, whatever is asked for
            return fields, None if averages else lambda flat: flat.mul_(n)
        if averages and "scale" in self._can:
            return {**fields, "op": Operation.MEAN}, None
        return fields, (lambda flat: flat.div_(n)) if averages else None

    def _begin(self, part: Any, fields: dict[str, Any], after: Any) -> Any:
        """A job; the future of its result."""
        assert self._jobs is not None
        if len(self._waiting) == self._n_slots:  # the place is in use till then
            _wait(self._waiting.popleft())
        future: Any = torch.futures.Future()
        self._waiting.append(future)
        slot, turn = self.n_jobs % self._n_slots, self.n_jobs // self._n_slots
        gen = self._rounds * (turn + 1) & 0xFFFF
        place = self._run * HISTORY + slot, gen, self._first + slot * self._slot
        self._jobs.ask(future, part, partial(tuple, place), fields, after)
        self.n_jobs += 1
        return future


class _Pending(dist.Work):
    """An all-reduce under way."""

    def __init__(self, future: Any) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: Any = None) -> bool:
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        return self._future.done()

    def is_success(self) -> bool:
        return self._future.done() and not _failed(self._future)

    def result(self) -> list:
        return self._future.value()

    def get_future(self) -> Any:
        return self._future


def _failed(future: Any) -> bool:
    try:
        future.value()
    except Exception:
        return True
    return False


def _wait(future: Any) -> None:
    """Until it is done; what went wrong is told to who waits for that tensor."""
    try:
        future.wait()
    except Exception:
        return


def _agree(store: Any, rank: int, size: int, mine: dict[str, Any]) -> int:
    """A run that rank 0 draws; ValueError where ranks differ in their settings."""
    if rank == 0:
        store.set("run", str(secrets.randbelow(RUNS)))
    store.set(f"rank{rank}", repr(mine))
    told = [store.get(f"rank{k}").decode() for k in range(size)]
    for k, one in enumerate(told):
        if one != told[0]:
            raise ValueError(f"ranks 0 and {k} differ in their cards: {told[0]} and {one}")
    return int(store.get("run"))
