"""Communication hook for PyTorch's DistributedDataParallel: gradients are averaged by cards.

``model.register_comm_hook(None, CardHook(card, memory=(0x1000, 1 << 24)).average)``: each bucket
becomes a job of the rank's own card, posted as soon as it is ready; the cards sum among themselves,
and the backward pass goes on meanwhile. Needs PyTorch, the extra ``train``.
"""

import secrets
from functools import partial
from typing import Any, NoReturn

from gradnic.interface.job import ALIGN, HISTORY, JobCodec, Kind, Operation
from gradnic.interface.params import check_range

from .card_jobs import RUNS, CardJobs, check_memory, kind_of
from .framed_card import FramedCard
from .process_group import chosen_group, dense, of_ddp, raise_behind
from .ranks import Held, check_cards


class CardHook:
    """A hook, `average`, whose all-reduces are jobs of a card that is reached by host frames.

    All ranks' cards have the same tables, tenant and codec settings; DDP makes buckets in the same
    order everywhere, which is the order of posting that jobs want. Buckets are tensors of FP32 or
    BF16 on the processor. DDP's first bucket, the last layers, is of class 7, served last; the
    eighth and all behind it, the front layers, of class 0.

    A job that ends with another status than done or short raises RuntimeError in the training step,
    at the end of its backward pass, as does a bucket that is refused; gradients are then this
    rank's own. After that, or any error of the card, nothing more is posted: ranks may be out of
    step, and each later step ends with the same error.

    A card remembers the last round of 64 tensors, by the low bits of their number, until a reset.
    So a hook has up to 64 kinds of bucket (parameters and type, of one model or several; DDP makes
    new ones after the first step), and those of run r are the tensors from 64 r on. It copies as
    itself, and pickling it is a TypeError.

    Parameters
    ----------
    card : FramedCard
        Set up: addresses, table `table`, landing areas, region of `memory`. Only the hook uses it.
    memory : (first byte, bytes)
        Of the card, for buckets: a multiple of 64. Twice the bytes of the gradients, and 64 a
        bucket, suffice: DDP makes new buckets once. ValueError in the step that needs more.
    codec, table, p_q16, seed :
        As of `gradnic.interface.job.Job`.
    mean : str
        ``card``: jobs of means, which the card must be built for; ``host``: sums, divided here by
        `n_ranks`. Jobs of THC are means either way.
    n_ranks : int, of the group; needed for ``host``.
    n_nodes : int or None
        Of the table, as many as ranks. None: as `bring_up` in this process has it, if it has.
    timeout : seconds, for one job.
    run : int or None
        0 to 1023, the same on all ranks, and another one than of hooks before on these cards. None:
        rank 0 of the process group draws one in the first step, a collective call; 0 without one.
        Another one in the first step after ``destroy_process_group`` and ``init_process_group``.
        That call ends in a ValueError on all ranks where two have the same card, or ranks are not
        as many as nodes or `n_ranks`.
    """

    def __init__(
        self,
        card: FramedCard,
        *,
        memory: tuple[int, int],
        codec: JobCodec = JobCodec.RAW32,
        table: int = 0,
        p_q16: int = 0,
        seed: int = 0,
        mean: str = "card",
        n_ranks: int | None = None,
        timeout: float = 60.0,
        run: int | None = None,
        n_nodes: int | None = None,
    ) -> None:
        first, n_bytes = memory
        check_memory(memory)
        if mean not in ("card", "host"):
            raise ValueError(f"mean must be card or host, not {mean!r}")
        if mean == "host" and not n_ranks:
            raise ValueError("n_ranks must be given where the host makes the mean")
        self._memory = first, first + n_bytes
        self._fields = {"codec": codec, "table": table, "p_q16": p_q16, "seed": seed}
        self._fields["op"] = Operation.MEAN if mean == "card" else Operation.SUM
        is_mean = mean == "card" or codec == JobCodec.THC  # which decodes means
        self._after = None if is_mean else lambda buffer: buffer.div_(n_ranks)
        self._rounds = 2 if codec == JobCodec.THC else 1  # GENs of a job: norms have one, too
        if run is not None:
            check_range("run", run, 0, RUNS - 1)
        self._given = self._run = run
        self._held = Held(*card.own, n_nodes or card.nodes_of(table))
        self._n_ranks = n_ranks
        self._world: Any = None  # the process group that `_run` was drawn in
        self._served: int | None = None  # run of `_places`, [tensor, gen, address, parameters] each
        self._places: dict[tuple, list] = {}
        self._step: list = []  # futures of a backward pass so far
        self._jobs = CardJobs(card, timeout=timeout)

    # DDP refuses annotations other than its own.
    def average(self, state, bucket, *shard):  # type: ignore[no-untyped-def]
        """What DDP calls with each bucket; a future of its mean."""
        import torch

        of_ddp(bucket, *shard)
        buffer = bucket.buffer()
        future: Any = torch.futures.Future()
        try:
            self._ask(state, bucket, buffer, future)
        except Exception as error:
            future.set_exception(error)
        self._step.append(future)
        if bucket.is_last():
            step, self._step = self._step, []
            try:
                for each in step:
                    each.wait()
            except Exception as error:
                raise_behind(error)
        return future.then(lambda _: buffer)

    def _ask(self, state: Any, bucket: Any, buffer: Any, future: Any) -> None:
        kind = kind_of(buffer)
        if kind is None:
            raise ValueError(
                f"a bucket must be of float32 or bfloat16 on cpu, not {buffer.dtype} on "
                f"{buffer.device}"
            )
        dense(buffer)
        if self._jobs.closed:
            raise RuntimeError("this hook is closed")
        if not buffer.numel():  # of parameters without elements alone: no job
            future.set_result(buffer)
            return
        world = _world()
        if self._given is None and (self._run is None or world is not self._world):
            self._run, self._world = self._agreed(state), world
        layer = max(0, 7 - bucket.index())  # the first bucket is the last layers'
        n_bytes = buffer.numel() * buffer.element_size()
        place = partial(self._place, self._run, bucket.parameters(), kind, n_bytes)
        self._jobs.ask(future, buffer, place, {"layer": layer, **self._fields}, self._after)

    def __deepcopy__(self, memo: dict) -> "CardHook":
        return self

    def __getstate__(self) -> NoReturn:
        raise TypeError("a CardHook speaks to its card and is not saved: save the model without it")

    def close(self) -> None:
        """End the thread that speaks to the card, once all that was asked is done."""
        self._jobs.close()

    def _agreed(self, state: Any) -> int:
        """A run that rank 0 has drawn; 0 without a process group."""
        import torch.distributed as dist

        if _world() is None:
            return 0
        group = chosen_group(state, None)
        n = dist.get_world_size(group)
        told: list[Any] = [None] * n
        mine = secrets.randbelow(RUNS), self._held, self._n_ranks
        dist.all_gather_object(told, mine, group=group)
        check_cards([held for _, held, _ in told])
        for rank, (*_, n_ranks) in enumerate(told):
            if n_ranks not in (None, n):
                raise ValueError(f"n_ranks must be {n}, the group's, not {n_ranks} of rank {rank}")
        self._jobs.n_ranks = n
        return told[0][0]

    def _place(
        self, run: int | None, parameters: list, kind: Kind, n_bytes: int
    ) -> tuple[int, int, int]:
        """Tensor, generation and address of a bucket."""
        run = run or 0
        if run != self._served:
            self._served, self._free = run, self._memory[0]
            self._places.clear()
        # By parameters: buckets of two models may be alike, and under way at once.
        key = kind, frozenset(map(id, parameters))
        if key not in self._places:
            if len(self._places) == HISTORY:
                raise ValueError(
                    f"kinds of bucket must be at most {HISTORY}, not one more of {n_bytes} bytes"
                )
            size = -(-n_bytes // ALIGN) * ALIGN
            if self._free + size > self._memory[1]:
                raise ValueError(
                    f"memory must have {self._free + size - self._memory[1]} bytes more for a "
                    f"bucket of {n_bytes}"
                )
            tensor = run * HISTORY + len(self._places)
            # Parameters are kept so that no others have their ids.
            self._places[key] = [tensor, self._rounds, self._free, parameters]
            self._free += size
        place = self._places[key]
        tensor, gen, address, _ = place
        place[1] = (gen + self._rounds) & 0xFFFF
        return tensor, gen, address


def _world() -> Any:
    """The default process group; None without one."""
    import torch.distributed as dist

    return dist.group.WORLD if dist.is_available() and dist.is_initialized() else None
