"""Communication hooks for PyTorch's DistributedDataParallel: training with the golden codecs.

``model.register_comm_hook(None, thc_hook(seed=1))`` sums gradients as an aggregator of THC would,
``inceptionn_hook()`` as in-line cards would around an exact sum. Every value is that of the golden
models, bit for bit; time is not, since the codecs run in numpy on the processor.

Needs PyTorch, the extra ``train``.
"""

import numpy as np

from gradnic.models import inceptionn
from gradnic.models.thc import worker as thc


class _Thc:
    """One worker's THC: its error memory and its count of rounds, per bucket."""

    def __init__(self, group, feedback, seed, parameters):
        self.group, self.feedback = group, feedback
        self._seed, self._parameters = seed, parameters
        self._worker = None
        self._errors, self._rounds = {}, {}

    def average(self, bucket):
        """Future of a bucket's mean over the workers."""
        import torch
        import torch.distributed as dist

        if self._worker is None:
            self._worker = thc.Worker(
                dist.get_world_size(self.group), self._seed, **self._parameters
            )
        worker, rank, tensor = self._worker, dist.get_rank(self.group), bucket.index()
        buffer = bucket.buffer()
        x = buffer.detach().cpu().numpy().astype(np.float32, copy=False)
        error = self._errors.get(tensor)
        if error is not None and error.size == x.size:  # buckets change after the first iteration
            x = x + error
        turn = self._rounds.get(tensor, 0)
        self._rounds[tensor] = turn + 1

        # Norms are not negative, so their bits compare as integers.
        norms = torch.from_numpy(worker.norms(x).view(np.int32).copy())
        dist.all_reduce(norms, op=dist.ReduceOp.MAX, group=self.group)
        norms = norms.numpy().view(np.uint32)
        indices = worker.encode(x, norms, round=turn, worker=rank, tensor=tensor)
        if self.feedback:
            self._errors[tensor] = worker.residual(x, indices, norms, tensor=tensor)[: x.size]
        sums = torch.from_numpy(worker.table[indices].astype(np.int32))
        work = dist.all_reduce(sums, op=dist.ReduceOp.SUM, group=self.group, async_op=True)

        def decoded(future):
            total = future.value()[0].numpy()
            mean = worker.decode(total, norms, round=turn, tensor=tensor)[: x.size]
            return torch.from_numpy(mean).to(buffer.device, buffer.dtype)

        return work.get_future().then(decoded)


def thc_hook(*, seed=0, feedback=True, group=None, **parameters):
    """A hook that averages gradients by THC: norms by maximum, table values by integer sum.

    seed : 32 bits, the same in all workers. feedback : adds what a worker's codes lost to its next
    gradient of the same bucket. group : process group, None is the default one. parameters : b, g,
    p, B, norm, sign_round of `gradnic.models.thc.Worker`.

    Each rank makes its own hook, before `register_comm_hook(None, hook)`. The result of a bucket is
    what `gradnic.sim.training.codecs.Thc` gives for the same rounds, with the bucket's number as
    tensor.
    """
    thc.Worker(1, seed, **parameters)  # complains about parameters now
    state = _Thc(group, feedback, seed, parameters)

    def hook(_, bucket):  # DDP wants a function
        return state.average(bucket)

    return hook


def inceptionn_hook(*, exponent=117, mode="strict", prescale=0, group=None):
    """A hook that codes what each worker sends, sums exactly, and codes the mean that comes back.

    exponent, mode, prescale : see `gradnic.models.inceptionn`; the bound is absolute, so the scale
    of the loss matters. `register_comm_hook(None, hook)`.
    """
    settings = {"exponent": exponent, "mode": mode, "prescale": prescale}
    inceptionn.image(np.zeros(1, np.float32), **settings)  # complains about settings now

    def hook(_, bucket):
        import torch
        import torch.distributed as dist

        buffer = bucket.buffer()
        n = dist.get_world_size(group)

        def image(values):
            return inceptionn.image(values.detach().cpu().numpy(), **settings)

        coded = torch.from_numpy(image(buffer.float()))
        work = dist.all_reduce(coded, op=dist.ReduceOp.SUM, group=group, async_op=True)

        def mean(future):
            total = torch.from_numpy(image(future.value()[0])) / n
            return total.to(buffer.device, buffer.dtype)

        return work.get_future().then(mean)

    return hook
