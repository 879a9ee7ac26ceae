"""What the communication hooks ask of PyTorch: process groups, tensors on the processor, errors."""

import atexit
import hashlib
import time
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from gradnic.interface.schedule_table import to_json

EXCHANGES = ("ring", "tree", "star")
_lent: Any = weakref.WeakSet()


def check_exchange(exchange: Any) -> Any:
    """`exchange` if it is a name of `EXCHANGES` or a schedule table, else ValueError."""
    if not hasattr(exchange, "peers") and exchange not in EXCHANGES:
        raise ValueError(
            f"exchange must be {', '.join(EXCHANGES)} or a schedule table, not {exchange!r}"
        )
    return exchange


class Members:
    """One rank's view of a hook's process group, alike on all ranks or an error on all ranks.

    group : process group, None is the default one. settings : {name: value} that must be alike;
    compared once, here: a collective call.

    Attributes
    ----------
    n, rank : ints, ranks of the group and this one's place among them.

    ValueError on every rank where a setting differs, naming it and who has what; where this
    process is no member; or where a schedule table is for another number of nodes.
    """

    def __init__(self, group: Any, settings: Mapping[str, Any]) -> None:
        import torch.distributed as dist

        self.group, self.n, self.rank = group, dist.get_world_size(group), dist.get_rank(group)
        if self.rank < 0:
            raise ValueError("this process is no member of the hook's process group")
        mine = {name: _told(value) for name, value in settings.items()}
        settings_by_rank: list[Any] = [None] * self.n
        dist.all_gather_object(settings_by_rank, mine, group=group)
        names = sorted({name for one in settings_by_rank for name in one})
        differing = [name for name in names if len({one.get(name) for one in settings_by_rank}) > 1]
        if differing:
            raise ValueError(
                f"ranks differ in the hook's {_differences(differing, settings_by_rank)}; "
                "every rank must make its hook alike"
            )
        table: Any = settings.get("exchange")
        if getattr(table, "n_nodes", self.n) != self.n:
            raise ValueError(
                f"the schedule table is for {table.n_nodes} nodes, the process group has {self.n}"
            )

    def shares(self, values: np.ndarray) -> np.ndarray:
        """All ranks' values of this rank's share of a tensor: float32 (n, length).

        values : float32 (n_elems,). The share is elements rank * length and up, `length` the nth
        part of the tensor rounded up; zeros behind its end.
        """
        import torch
        import torch.distributed as dist

        length = -(-values.size // self.n)
        sent = np.zeros((self.n, length), np.float32)
        sent.reshape(-1)[: values.size] = values
        received = torch.empty(self.n, length)
        dist.all_to_all_single(lent(received), lent(torch.from_numpy(sent)), group=self.group)
        return received.numpy()

    def whole(self, share: np.ndarray, n_elems: int) -> Any:
        """The tensor out of all ranks' shares: a future of a torch tensor, float32 (n_elems,)."""
        import torch
        import torch.distributed as dist

        result = torch.empty(self.n * share.size)
        parts = [lent(part) for part in result.split(share.size)]
        sent = lent(torch.from_numpy(share))
        work = dist.all_gather(parts, sent, group=self.group, async_op=True)
        return work.get_future().then(lambda _: result[:n_elems])


def chosen_group(state: Any, group: Any) -> Any:
    """The process group that a hook works in: `state` of `register_comm_hook`, or `group`.

    None is the default one. TypeError where `state` is something else, ValueError where both are
    given and differ.
    """
    import torch.distributed as dist

    if state is None:
        return group
    if not isinstance(state, dist.ProcessGroup):
        raise TypeError(
            "register_comm_hook's state must be None or the process group of the hook, "
            f"not {type(state).__name__}"
        )
    if group is not None and group is not state:
        raise ValueError("the hook's group and register_comm_hook's state are different groups")
    return state


def lent(tensor: Any) -> Any:
    """`tensor`, which a collective gets; the process does not end before its thread lets it go.

    Gloo's threads let go after the result is there and need the interpreter for that: one that
    comes while Python ends is killed, and with it the process.
    """
    _lent.add(tensor)
    return tensor


@atexit.register
def _wait_for_lent() -> None:
    deadline = time.monotonic() + 1
    while _lent and time.monotonic() < deadline:
        time.sleep(0.001)


def raise_behind(error: BaseException) -> None:
    """Raise it at the end of the backward pass, behind DDP's own end of it; at once if there is no
    such pass. DDP takes no model that an error left in the middle of one.
    """
    from torch.autograd import Variable

    def fail() -> None:
        raise error

    queue = Variable._execution_engine.queue_callback
    try:
        queue(lambda: queue(fail))  # DDP's is queued when the last hook has returned
    except RuntimeError:
        fail()


def of_ddp(bucket: Any, *shard: Any) -> None:
    """TypeError where what a hook is called with is no bucket of DDP: FSDP has tensors instead."""
    if shard or not hasattr(bucket, "buffer"):
        raise TypeError(
            "the hooks take the buckets of DistributedDataParallel; FSDP, which calls hooks with "
            "tensors, needs reduce-scatters that they do not have"
        )


def dense(buffer: Any) -> None:
    """TypeError where a bucket is a sparse gradient."""
    import torch

    if buffer.layout != torch.strided:
        raise TypeError(
            f"the hooks take dense gradients, not layout {buffer.layout} of a parameter of shape "
            f"{tuple(buffer.shape)}: build its layer with sparse=False"
        )


def _told(value: Any) -> str:
    """A setting as text that is alike where the setting is, whatever the process."""
    if hasattr(value, "peers"):
        return f"table {value.name}, {_hash(to_json(value))}"
    return repr(value.item() if isinstance(value, np.generic) else value)


def _hash(text: str) -> str:
    """First 12 digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _differences(names: list[str], settings: list[dict[str, str]]) -> str:
    """``seed: 5 (rank 0), 6 (ranks 1, 2)`` of every name, joined by semicolons."""
    parts = []
    for name in names:
        ranks = {}
        for rank, one in enumerate(settings):
            ranks.setdefault(one.get(name, "none"), []).append(rank)
        values = (
            f"{value} (rank{'s' if len(who) > 1 else ''} {', '.join(map(str, who))})"
            for value, who in ranks.items()
        )
        parts.append(f"{name}: {', '.join(values)}")
    return "; ".join(parts)
