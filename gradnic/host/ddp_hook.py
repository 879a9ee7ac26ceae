"""Communication hooks for PyTorch's DistributedDataParallel: training with the golden codecs.

``model.register_comm_hook(None, thc_hook(seed=1))`` averages gradients by THC,
``inceptionn_hook(exchange="ring")`` as a ring of in-line cards does. Every sum is that of the
golden cluster of cards, bit for bit; time is not, since the codecs run on the processor: the
process group must take tensors there, as Gloo does.

Needs PyTorch, the extra ``train``.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gradnic.models import inceptionn
from gradnic.models.schedule import addition
from gradnic.models.thc import worker as thc

from .process_group import (
    Members,
    check_exchange,
    chosen_group,
    dense,
    lent,
    of_ddp,
    raise_behind,
)


def thc_hook(
    *,
    seed: int = 0,
    feedback: bool = True,
    group: Any = None,
    exchange: Any = "star",
    **parameters: Any,
) -> "Hook":
    """A hook that averages gradients by THC: norms by maximum, table values by integer sum.

    seed : int, 0 to 2**32 - 1. feedback : adds what a worker's codes lost of a parameter's gradient
    to its next one. group : process group, also `register_comm_hook`'s state; None is the default
    one. exchange : "star", an aggregator; "ring", "tree" or a schedule table, offload cards:
    integers add up to the same whatever the way, so it does not change a bit. parameters : b, g, p,
    B, norm, sign_round, fast of `gradnic.models.thc.Worker`.

    Each rank makes its own hook, all alike: the first step compares them and raises ValueError on
    every rank where they differ. After ``destroy_process_group`` and ``init_process_group`` a hook
    is as new. A bucket is a tensor of THC, bucket k the tensor k + 1, its rounds
    count from 0; the mean is what aggregator or offload cards and `Worker.decode` give for it. The
    error memory belongs to the parameter, whatever bucket it is in, is finite, and starts at 0, or
    at what `Hook.load_state_dict` takes out of a checkpoint.
    """
    thc.Worker(1, seed, **parameters)  # complains about parameters now
    settings = {"hook": "thc", "seed": seed, "feedback": feedback, **parameters}
    return Hook(_Thc, group, settings | {"exchange": check_exchange(exchange)})


def inceptionn_hook(
    *,
    exchange: str = "ring",
    exponent: int = 117,
    mode: str = "strict",
    prescale: int = 0,
    rounding: str = "trunc",
    group: Any = None,
) -> "Hook":
    """A hook that averages gradients as cards with INCEPTIONN do, coding every hop.

    exchange : how the cards are arranged, N workers.
        "ring": in-line cards, `gradnic.models.inline.ring`: a value is coded N times.
        "tree": offload cards that run the double binary tree, one chunk a shard, on ``full:N``.
        "star": in-line cards round a server that adds in the order of ranks: coded twice.
        A schedule table (`gradnic.interface.schedule_table.Table`) for N nodes: offload cards.
    exponent, mode, prescale, rounding : see `gradnic.models.inceptionn`; the bound is absolute, so
    the scale of the loss matters. group : as of `thc_hook`.

    The mean is the cluster's sum, divided by N in float32; a single worker's gradient stays as it
    is. Hooks that differ between ranks: as of `thc_hook`.
    """
    codec: dict[str, Any] = {
        "exponent": exponent,
        "mode": mode,
        "prescale": prescale,
        "rounding": rounding,
    }
    inceptionn.image(np.zeros(1, np.float32), **codec)  # complains about settings now
    settings = {"hook": "inceptionn", **codec, "exchange": check_exchange(exchange)}
    return Hook(_Inceptionn, group, settings)


class Hook:
    """What `thc_hook` and `inceptionn_hook` make, for `register_comm_hook`.

    It belongs to its process: it copies as itself, and a pickled one is new, of the default group.
    PyTorch registers no hook with a copy of a DDP model, or with one that was loaded.
    """

    def __init__(self, kind: Any, group: Any, settings: dict[str, Any]) -> None:
        self._kind, self._group, self._settings = kind, group, settings
        self._states: dict[Any, Any] = {}  # one for each process group
        self._world: Any = None  # the default group that they are of
        self._loaded: list[tuple] = []  # (parameters, what was saved), for the first of them
        self._fault: Exception | None = None  # of this backward pass
        self.__name__ = self.__qualname__ = f"{settings['hook']}_hook"  # DDP asks for both

    # DDP refuses annotations other than its own.
    def __call__(self, state, bucket, *shard):  # type: ignore[no-untyped-def]
        """What DDP calls with each bucket; a future of its mean.

        An error is raised at the end of the backward pass, of which no more buckets are averaged:
        gradients are then this rank's own.
        """
        import torch

        of_ddp(bucket, *shard)
        if self._fault is None:
            try:
                return self._average(state, bucket)
            except Exception as error:
                self._fault = error
        fault = self._fault
        if bucket.is_last():
            self._fault = None
        raise_behind(fault)
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def _average(self, state: Any, bucket: Any) -> Any:
        import torch.distributed as dist

        of = chosen_group(state, self._group)
        if not bucket.buffer().numel():  # of parameters without elements alone
            return _done(bucket.buffer())
        if self._world is not dist.group.WORLD:  # all groups of the one before are gone
            self._world = dist.group.WORLD
            self._states.clear()
        if of not in self._states:
            self._states[of] = self._kind(Members(of, self._settings), self._settings)
            for parameters, saved in self._loaded:
                self._states[of].restore(parameters, saved)
            self._loaded = []
        return self._states[of].average(bucket)

    def __deepcopy__(self, memo: dict) -> "Hook":
        return self

    def __getstate__(self) -> dict[str, Any]:
        fresh = dict.fromkeys(("_group", "_world", "_fault"))
        return vars(self) | fresh | {"_states": {}, "_loaded": []}

    def state_dict(self, model: Any) -> dict[str, Any]:
        """What this rank has to save with a model, such as the error memory of THC; {} is nothing.

        Of the process group that the hook works in; ValueError if there are several, or if no
        parameter of `model` is one whose errors the hook has, as where it is a copy.
        """
        if self._loaded:  # no step since
            return next((dict(saved) for of, saved in self._loaded if _same(of, model)), {})
        if len(self._states) > 1:
            raise ValueError(f"the hook works in {len(self._states)} process groups, not in one")
        return next((s.saved(dict(model.named_parameters())) for s in self._states.values()), {})

    def load_state_dict(self, model: Any, saved: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave for such a model, each rank from its own.

        Before the first step of this hook in the default process group, for each of several models
        if it averages for several. ValueError names what does not fit. DDP fills its buckets anew
        after the first step, in the order in which gradients came, so the first step of a process
        may round otherwise than the same step of a longer run.
        """
        import torch.distributed as dist

        if self._states and self._world is dist.group.WORLD:
            raise ValueError("a hook takes a state before its first step")
        parameters = dict(model.named_parameters())
        self._kind.check(parameters, saved)
        others = [one for one in self._loaded if not _same(one[0], model)]
        self._loaded = [*others, (parameters, saved)]


def _same(parameters: Mapping[str, Any], model: Any) -> bool:
    """Whether these parameters, by name, are those of a model, under whatever names."""
    return {id(p) for p in parameters.values()} == {id(p) for p in model.parameters()}


def _floats(bucket: Any) -> tuple[np.ndarray, Callable[[Any], Any]]:
    """A bucket's gradients as float32 (n,) on the processor, and what makes a result of them."""
    import torch

    buffer = bucket.buffer()
    dense(buffer)
    if buffer.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise TypeError(
            "the hooks take gradients that FP32 holds, of float32, bfloat16 or float16, not "
            f"{buffer.dtype}"
        )

    def result(mean: Any) -> Any:
        return torch.as_tensor(mean).to(buffer.device, buffer.dtype)

    return buffer.detach().cpu().float().numpy(), result


def _size(parameter: Any) -> int:
    """Floats of a parameter's gradient: buckets have real and imaginary parts of complex ones."""
    return parameter.numel() * (2 if parameter.is_complex() else 1)


class _Thc:
    """One worker's THC: its error memory by parameter, and its count of rounds by bucket."""

    def __init__(self, members: Members, settings: dict[str, Any]) -> None:
        own = {"hook", "exchange", "feedback", "seed"}
        parameters = {name: value for name, value in settings.items() if name not in own}
        self.members, self.feedback = members, settings["feedback"]
        self._worker = thc.Worker(members.n, settings["seed"], **parameters)
        self._errors, self._rounds = {}, {}

    def average(self, bucket: Any) -> Any:
        """Future of a bucket's mean over the workers."""
        import torch
        import torch.distributed as dist

        worker, members, tensor = self._worker, self.members, bucket.index() + 1
        x, result = _floats(bucket)
        # DDP makes new buckets after the first step, in the order in which gradients came.
        parameters = bucket.parameters()
        if self.feedback:
            with np.errstate(over="ignore", invalid="ignore"):
                x = x + self._memory(parameters, x.size)
        turn = self._rounds.get(tensor, 0)
        self._rounds[tensor] = turn + 1

        # Norms are not negative, so their bits compare as integers.
        norms = lent(torch.from_numpy(worker.norms(x).view(np.int32).copy()))
        dist.all_reduce(norms, op=dist.ReduceOp.MAX, group=members.group)
        norms = norms.numpy().view(np.uint32)
        indices = worker.encode(x, norms, round=turn, worker=members.rank, tensor=tensor)
        if self.feedback:
            self._remember(parameters, worker.residual(x, indices, norms, tensor=tensor))
        sums = lent(torch.from_numpy(worker.values(indices).astype(np.int32)))
        work = dist.all_reduce(sums, op=dist.ReduceOp.SUM, group=members.group, async_op=True)

        def decoded(future: Any) -> Any:
            total = future.value()[0].numpy()
            return result(worker.decode(total, norms, round=turn, tensor=tensor)[: x.size])

        return work.get_future().then(decoded)

    def _memory(self, parameters: list, size: int) -> np.ndarray:
        """Errors of a bucket's parameters, one behind the other: float32 (size,)."""
        parts = [
            self._errors[id(p)][1] if id(p) in self._errors else np.zeros(_size(p), np.float32)
            for p in parameters
        ]
        return np.concatenate(parts) if parts else np.zeros(size, np.float32)

    def _remember(self, parameters: list, errors: np.ndarray) -> None:
        start = 0
        for p in parameters:  # kept beside its errors: no other parameter can have its id
            self._errors[id(p)] = p, errors[start : start + _size(p)].copy()
            start += _size(p)

    def saved(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Of `state_dict`: rounds by bucket, and errors by the parameters' names."""
        import torch

        errors = {name: self._errors[id(p)][1] for name, p in parameters.items()
                  if id(p) in self._errors}  # fmt: skip
        if self._errors and not errors:
            raise ValueError("the hook has errors of other parameters than the model's: give the "
                             "model that it averages for, no copy")  # fmt: skip
        return {
            "rounds": dict(self._rounds),
            "errors": {name: torch.from_numpy(values.copy()) for name, values in errors.items()},
        }

    @staticmethod
    def check(parameters: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
        """ValueError where a saved state is none, or none of these parameters."""
        if saved and saved.keys() != {"rounds", "errors"}:
            raise ValueError(f"a state of thc_hook has rounds and errors, not {', '.join(saved)}")
        for tensor, turn in saved.get("rounds", {}).items():
            if type(tensor) is not int or type(turn) is not int or tensor < 1 or turn < 0:
                raise ValueError(
                    f"rounds are whole numbers by tensor, from 1 on, not {tensor!r}: {turn!r}"
                )
        for name, values in saved.get("errors", {}).items():
            if name not in parameters:
                raise ValueError(f"the model has no parameter {name!r}, of which errors are saved")
            if not hasattr(values, "numel"):
                raise ValueError(
                    f"errors of {name} must be a tensor, not a {type(values).__name__}"
                )
            if values.numel() != _size(parameters[name]):
                raise ValueError(
                    f"{name} has {_size(parameters[name])} floats, and {values.numel()} are saved"
                )

    def restore(self, parameters: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
        for tensor, turn in saved.get("rounds", {}).items():  # of several models: the later one
            self._rounds[tensor] = max(turn, self._rounds.get(tensor, 0))
        for name, values in saved.get("errors", {}).items():
            self._errors[id(parameters[name])] = parameters[name], values.cpu().numpy().astype("f4")


class _Inceptionn:
    """One worker's part of a coded all-reduce: it sums its share of the tensor for all."""

    def __init__(self, members: Members, settings: dict[str, Any]) -> None:
        self.members, self._exchange = members, settings["exchange"]
        names = ("exponent", "mode", "prescale", "rounding")
        self._codec = {name: settings[name] for name in names}
        self._parts = {}  # by size of the bucket

    def average(self, bucket: Any) -> Any:
        """Future of a bucket's mean over the workers."""
        members = self.members
        x, result = _floats(bucket)
        if members.n == 1:
            return _done(result(x))
        if x.size not in self._parts:
            self._parts[x.size] = self._order(x.size)
        contributions = members.shares(x)
        first = members.rank * contributions.shape[1]
        share = np.zeros(contributions.shape[1], np.float32)
        for part in self._parts[x.size]:
            here = slice(max(part.start - first, 0), min(part.stop - first, share.size))
            if here.start < here.stop:
                own = contributions[:, here]
                share[here] = addition.summed(part.additions, part.root, own, image=self._image)
        n = np.float32(members.n)
        return members.whole(share / n, x.size).then(lambda future: result(future.value()))

    def saved(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    @staticmethod
    def check(parameters: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
        if saved:
            raise ValueError(f"inceptionn_hook has no state, and {', '.join(saved)} are given")

    def restore(self, parameters: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
        pass

    def _image(self, values: np.ndarray) -> np.ndarray:
        return inceptionn.image(values, **self._codec)

    def _order(self, size: int) -> list[addition.Part]:
        """Parts of a bucket of `size` values."""
        n, exchange = self.members.n, self._exchange
        if exchange in ("ring", "star"):
            return {"ring": addition.ring, "star": addition.star}[exchange](n, size)
        return addition.of_table(_double_tree(n) if exchange == "tree" else exchange, size)


def _double_tree(n: int) -> Any:
    """Table of the double binary tree on n nodes, each linked to each."""
    from gradnic.models.schedule.builders import build
    from gradnic.models.schedule.builders.rows import compile_table
    from gradnic.models.schedule.topology import parse

    return compile_table(build(parse(f"full:{n}"), "dbtree"))


def _done(value: Any) -> Any:
    """A future that has its value."""
    import torch

    future = torch.futures.Future()
    future.set_result(value)
    return future
