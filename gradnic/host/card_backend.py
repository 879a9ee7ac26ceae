"""A backend of torch.distributed whose collectives are jobs of each rank's own card.

``register(card, memory=(0, 1 << 24))``, then ``init_process_group("gradnic", ...)``: programs of
`torch.distributed`, DDP among them, go on as they are. Needs PyTorch, the extra ``train``.
"""

import json
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from gradnic.interface.host_frame import OPTIONS
from gradnic.interface.job import ALIGN, HISTORY, Collective, JobCodec, Kind, Operation

from .card_jobs import RUNS, CardJobs, check_memory, kind_of
from .framed_card import FramedCard
from .ranks import Held, check_cards

NAME = "gradnic"
UNIT = 32  # elements that chunks are multiples of: BF16 wants as many
SLOTS = 8  # places of memory: jobs that may wait or be at work at a time
_card: dict[str, Any] = {}  # what `register` was given


@dataclass(frozen=True)
class Shards:
    """Where tables of reduce-scatter and all-gather leave the chunks of a tensor.

    roots : the node of each chunk, ``schedule.roots``, as many chunks for each node.
    reduce_scatter, all_gather : numbers of the tables.
    """

    roots: Sequence[int]
    reduce_scatter: int = 1
    all_gather: int = 2

    def told(self) -> tuple:
        """All of it as numbers, alike where it is."""
        return tuple(map(int, self.roots)), self.reduce_scatter, self.all_gather


def register(
    card: FramedCard,
    *,
    memory: tuple[int, int],
    codec: JobCodec = JobCodec.RAW32,
    table: int = 0,
    p_q16: int = 0,
    seed: int = 0,
    timeout: float | None = 60.0,
    shards: Shards | None = None,
    n_nodes: int | None = None,
) -> None:
    """Make ``gradnic`` a backend of `init_process_group`, over this rank's card.

    The default group's all-reduces of dense float32 and bfloat16 tensors on the processor, by SUM,
    AVG or MAX, are jobs of the card, as far as it was built for them, and with `shards` so are
    `reduce_scatter_single` and `all_gather_single`, which FSDP calls. All else goes over Gloo:
    other types, operations and collectives, and other groups, since a card's table is for all.

    A tensor longer than an eighth of `memory` is several jobs. Up to eight jobs wait or are at work
    at a time; `all_reduce` waits while there are as many. One that ends with another status than
    done or short raises RuntimeError where it is waited for, and so does every one after it. Jobs
    of ranks match by their order alone: all ask for collectives in the same one, which several
    threads do only if they take turns alike; else jobs do not end in time, or sum what is not
    meant. A card
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
        As of `gradnic.interface.job.Job`. The codec is that of float32 tensors and of SUM and AVG;
        gathered values are raw, and with THC so are scattered sums.
    timeout : seconds or None
        For one job; None: what `init_process_group` is given, 30 minutes unless told. A rank that
        is at other work for longer, such as a checkpoint, ends the others.
    shards : Shards or None
        Of cards with tables of these collectives, where rank r has the card of node r.
    n_nodes : int or None
        Of the table, as many as there must be ranks. None: as `shards` or `bring_up` in this
        process have it; where neither is, ranks without a card are told and cards without a rank
        are waited for.

    ValueError for memory that cannot be, and by `init_process_group`, on all ranks, where they
    differ in any of this but the timeout or in what their cards were built with, where two have
    the same card, or where ranks are not as many as nodes.
    """
    check_memory(memory)
    _card.update(
        card=card, memory=memory, codec=codec, timeout=timeout, shards=shards, n_nodes=n_nodes,
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
        self._plain = dist.ProcessGroup(store, rank, size)
        for group in self, self._plain:
            group._register_backend(
                torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo
            )
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
        self._shards = given["shards"]
        n_nodes = given["n_nodes"] or given["card"].nodes_of(self._fields["table"])
        if self._shards:
            n_nodes = n_nodes or max(self._shards.roots, default=-1) + 1
        mine = {"memory": given["memory"], "codec": int(self._codec), "built": sorted(self._can),
                "shards": self._shards and self._shards.told(), **self._fields}  # fmt: skip
        node, mac = given["card"].own
        held = Held(node, mac, n_nodes)
        self._run = _agree(store, rank, size, mine, held)
        if self._shards:
            self._order = _chunks_of(self._shards.roots, size)
        self._rounds = 2 if self._codec == JobCodec.THC else 1  # of GEN: norms have one, too
        self._waiting: deque = deque()
        self._turn = threading.Lock()  # threads, and what is put behind futures, ask for jobs
        seconds = timeout.total_seconds() if given["timeout"] is None else given["timeout"]
        self._jobs = CardJobs(given["card"], timeout=seconds, n_ranks=size)

    def getBackendName(self) -> str:
        return NAME

    def allreduce(self, tensors: list, opts: Any = None) -> Any:
        """`dist.all_reduce`, and what DDP calls."""
        opts = dist.AllreduceOptions() if opts is None else opts
        job = self._job_of(tensors, opts.reduceOp) if self._jobs else None
        if job is None:
            return self._gloo.allreduce(tensors, opts)
        (tensor,) = tensors
        fields, after = job
        flat = tensor.detach().resolve_neg().contiguous().view(-1)  # a copy where it is not dense
        length = self._slot // tensor.element_size()
        parts = [self._begin(part, fields, after) for part in flat.split(length)]

        def copied() -> None:
            if flat.data_ptr() != tensor.data_ptr():
                tensor.copy_(flat.view(tensor.shape))

        return _pending(parts, tensor, copied)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        """`dist.reduce_scatter_single`: the sum of this rank's shard of all `input`."""
        opts = dist.ReduceScatterOptions() if opts is None else opts
        job = self._job_of([input], opts.reduceOp, of_shards=True)
        step = self._step_of(input)
        if job is None or not step or not self._are_shards(output, input):
            return self._plain.reduce_scatter_single(output, input, opts)
        fields, after = job
        fields |= {"collective": Collective.REDUCE_SCATTER, "table": self._shards.reduce_scatter}
        rows, own = input.detach().reshape(self.size(), -1), self._order[self.rank()]
        result, parts = torch.empty_like(output, memory_format=torch.contiguous_format), []
        for first in range(0, rows.shape[1], step):
            spread = self._spread(rows[:, first : first + step])
            chunks = torch.empty_like(spread)
            chunks[self._order.view(-1)] = spread

            def kept(flat: Any, first: int = first, like: Any = chunks) -> None:
                if after is not None:
                    after(flat)
                into = result.view(-1)[first : first + step]
                into.copy_(flat.view(like.shape)[own].view(-1)[: into.numel()])

            parts.append(
                self._begin(chunks.view(-1), fields, kept, loaded=_spans(own, chunks.shape[1]))
            )
        return _pending(parts, output, lambda: output.copy_(result))

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        """`dist.all_gather_single`: the `input` of every rank, one behind the other."""
        opts = dist.AllgatherOptions() if opts is None else opts
        job = self._job_of([input], dist.ReduceOp.SUM, of_shards=True)
        step = self._step_of(input)
        if job is None or not step or not self._are_shards(input, output):
            return self._plain.all_gather_single(output, input, opts)
        fields = job[0] | {"collective": Collective.ALL_GATHER, "codec": JobCodec.RAW32,
                           "table": self._shards.all_gather, "p_q16": 0}  # fmt: skip
        mine, own = input.detach().reshape(-1), self._order[self.rank()]
        result = torch.empty(self.size(), mine.numel(), dtype=input.dtype)
        parts = []
        for first in range(0, mine.numel(), step):
            part = self._spread(mine[first : first + step].expand(1, -1))
            chunks = torch.zeros(self._order.numel(), part.shape[1], dtype=input.dtype)
            chunks[own] = part

            def kept(flat: Any, first: int = first, like: Any = chunks) -> None:
                ordered = flat.view(like.shape)[self._order.view(-1)].view(self.size(), -1)
                into = result[:, first : first + step]
                into.copy_(ordered[:, : into.shape[1]])

            parts.append(
                self._begin(chunks.view(-1), fields, kept, stored=_spans(own, chunks.shape[1]))
            )
        return _pending(parts, output, lambda: output.copy_(result.view(output.shape)))

    def shutdown(self) -> None:
        """What `destroy_process_group` calls."""
        if self._jobs:
            self._jobs.close()
            self._jobs = None

    def _are_shards(self, shard: Any, whole: Any) -> bool:
        """Whether each rank has one of `whole`; Gloo says what is wrong where not."""
        return shard.dtype == whole.dtype and self.size() * shard.numel() == whole.numel()

    def _step_of(self, tensor: Any) -> int:
        """Elements of a shard that a job takes, at most; 0 where there is no room for any."""
        if not (self._jobs and self._shards):
            return 0
        n_chunks = self._order.numel()
        return self._slot // tensor.element_size() // n_chunks // UNIT * UNIT * self._order.shape[1]

    def _spread(self, rows: Any) -> Any:
        """Chunks, a row each, of `rows`, one a node; zeros behind the end of each row."""
        k = self._order.shape[1]
        length = -(-rows.shape[1] // (k * UNIT)) * UNIT
        spread = torch.zeros(rows.shape[0], k * length, dtype=rows.dtype)
        spread[:, : rows.shape[1]] = rows
        return spread.view(-1, length)

    def _job_of(self, tensors: list, op: Any, *, of_shards: bool = False) -> Any:
        """(fields of a job, what the host does behind it), or None for what goes over Gloo."""
        if not self._jobs or (of_shards and not self._shards):
            return None
        if len(tensors) != 1 or tensors[0].layout != torch.strided or not tensors[0].numel():
            return None
        kind = kind_of(tensors[0])
        if kind is None or (kind is Kind.BF16 and "bf16" not in self._can):
            return None
        fields = {"codec": JobCodec.RAW32, **self._fields}
        if op == dist.ReduceOp.MAX and "maxima" in self._can:
            return {**fields, "op": Operation.MAX, "p_q16": 0}, None
        averages = bool(op == dist.ReduceOp.AVG)
        if not (averages or op == dist.ReduceOp.SUM):  # `in` compares the other way round: never
            return None
        if kind is Kind.FP32 and not (of_shards and self._codec == JobCodec.THC):
            fields["codec"] = self._codec
        n = self.size()
        if fields["codec"] == JobCodec.THC:  # means, whatever is asked for
            return fields, None if averages else lambda flat: flat.mul_(n)
        if averages and "scale" in self._can:
            return {**fields, "op": Operation.MEAN}, None
        return fields, (lambda flat: flat.div_(n)) if averages else None

    def _begin(self, part: Any, fields: dict[str, Any], after: Any, **spans: Any) -> Any:
        """A job; the future of its result."""
        assert self._jobs is not None
        with self._turn:
            if len(self._waiting) == self._n_slots:  # the place is in use till then
                _failed(self._waiting.popleft())  # told to who waits for that tensor
            future: Any = torch.futures.Future()
            self._waiting.append(future)
            slot, turn = self.n_jobs % self._n_slots, self.n_jobs // self._n_slots
            gen = self._rounds * (turn + 1) & 0xFFFF
            place = self._run * HISTORY + slot, gen, self._first + slot * self._slot
            self._jobs.ask(future, part, partial(tuple, place), fields, after, **spans)
            self.n_jobs += 1
        return future


def _over_gloo(name: str) -> Callable[..., Any]:
    """A method of `CardGroup` that is the plain group's.

    PyTorch 2.13 keeps the interpreter while a subclass in Python has a method's C++ done
    (PyProcessGroup.hpp, WORK_OVERRIDE). Gloo's thread, which has Gloo's lock where it lets go of a
    tensor, wants the interpreter then, and neither ever goes on.
    """

    def method(self: CardGroup, *arguments: Any, **named: Any) -> Any:
        return getattr(self._plain, name)(*arguments, **named)

    return method


for _name in (
    "allgather", "all_gather_single_coalesced", "all_to_all_single", "allreduce_coalesced",
    "barrier", "broadcast", "recv", "reduce_scatter", "reduce_scatter_single_coalesced", "send",
):  # fmt: skip
    setattr(CardGroup, _name, _over_gloo(_name))


def _untrace(kind: type) -> None:
    """Let torch.compile leave methods and what they call to Python, of which it can trace none."""
    dynamo = torch._C._dynamo.eval_frame  # torch.compiler.disable takes as long as PyTorch to load
    skip = dynamo._FrameAction.SKIP
    for method in vars(kind).values():
        if hasattr(method, "__code__"):
            dynamo.set_code_exec_strategy(method.__code__, dynamo._FrameExecStrategy(skip, skip))


def _chunks_of(roots: Sequence[int], n: int) -> Any:
    """int64 (n, k): the chunks of each node."""
    order = [[c for c, root in enumerate(roots) if root == node] for node in range(n)]
    if len({len(one) for one in order}) != 1 or not order[0]:
        raise ValueError(f"roots must have as many chunks for each of {n} nodes, not {roots!r}")
    return torch.tensor(order)


def _spans(chunks: Any, length: int) -> list[tuple[int, int]]:
    """Elements of these chunks."""
    return [(c * length, (c + 1) * length) for c in chunks.tolist()]


def _pending(parts: list, tensor: Any, last: Callable[[], Any]) -> "_Pending":
    """What `torch.distributed` waits for: all jobs, and then `last` of the host."""

    def whole(futures: Any) -> list:
        for future in futures.value():
            future.value()  # raises what went wrong
        with torch.no_grad():  # a leaf may be what the host writes to
            last()
        return [tensor]

    return _Pending(torch.futures.collect_all(parts).then(whole), parts)


class _Pending(dist.Work):
    """A collective under way: its future, and those of its jobs."""

    def __init__(self, future: Any, parts: list) -> None:
        super().__init__()
        self._future, self._parts = future, parts

    def wait(self, timeout: Any = None) -> bool:
        if timeout:  # a timedelta; 0 is none, as in PyTorch
            done = threading.Event()
            self._future.add_done_callback(lambda _: done.set())
            if not done.wait(timeout.total_seconds()):
                raise RuntimeError(f"the all-reduce has not ended in {timeout.total_seconds()} s")
        try:
            self._future.wait()
        except RuntimeError as error:  # PyTorch puts two lines round what went wrong in a callback
            raise RuntimeError(str(next(filter(None, map(_failed, self._parts)), error))) from None
        return True

    def is_completed(self) -> bool:
        return self._future.done()

    def is_success(self) -> bool:
        return self._future.done() and _failed(self._future) is None

    def result(self) -> list:
        return self._future.value()

    def get_future(self) -> Any:
        return self._future


for _kind in CardGroup, _Pending:
    _untrace(_kind)


def _failed(future: Any) -> Exception | None:
    """What goes wrong with a future, once it is done; None if nothing does."""
    try:
        future.wait()
    except Exception as error:
        return error
    return None


def _agree(store: Any, rank: int, size: int, mine: dict[str, Any], held: Held) -> int:
    """A run that rank 0 draws; ValueError where ranks differ in their settings, or have not the
    cards of the table.
    """
    if rank == 0:
        store.set("run", str(secrets.randbelow(RUNS)))
    store.set(f"card{rank}", json.dumps(held))
    store.set(f"rank{rank}", repr(mine))
    settings = [store.get(f"rank{k}").decode() for k in range(size)]
    for k, one in enumerate(settings):
        if one != settings[0]:
            raise ValueError(f"ranks 0 and {k} differ in their cards: {settings[0]} and {one}")
    cards = [Held(*json.loads(store.get(f"card{k}"))) for k in range(size)]
    check_cards(cards)
    nodes = [card.node for card in cards]
    if mine["shards"] and nodes != [*range(size)]:
        told = ", ".join(map(str, nodes))
        raise ValueError(f"rank r must have the card of node r to scatter shards, not {told}")
    return int(store.get("run"))
