"""The DDP hooks on two processes of gloo, against the golden exchange of the training path."""

import sys

import numpy as np
import pytest
from gradnic.models.inceptionn import image
from gradnic.sim.training.codecs import Thc

from gradnic.host import ddp_hook

N_WORKERS = 2
ROUNDS = 3


def gradients():
    """What each worker's loss pulls at the weights, per round: float32 (rounds, workers, 3000)."""
    return np.random.default_rng(3).standard_normal((ROUNDS, N_WORKERS, 3000)).astype(np.float32)


def worker(rank, folder, kind):
    """One process: a layer whose gradient is the input, so that every bit is known."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=N_WORKERS
    )
    layer = torch.nn.Linear(3000, 1, bias=False)
    model = DistributedDataParallel(layer)
    hooks = {"thc": ddp_hook.thc_hook(seed=5), "inceptionn": ddp_hook.inceptionn_hook()}
    model.register_comm_hook(None, hooks[kind])
    seen = []
    for x in gradients()[:, rank]:
        layer.weight.grad = None
        model(torch.from_numpy(x)[None]).sum().backward()
        seen.append(layer.weight.grad.numpy().reshape(-1).copy())
    np.save(f"{folder}/{rank}.npy", np.stack(seen))
    dist.destroy_process_group()


def both(tmp_path, kind):
    """What the workers' weights saw, float32 (rounds, 3000); the same in both."""
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'gradnic[train]'")
    import torch.multiprocessing as processes

    sys.modules.setdefault(worker.__module__, sys.modules[__name__])
    processes.start_processes(worker, (str(tmp_path), kind), nprocs=N_WORKERS, start_method="fork")
    one, other = (np.load(tmp_path / f"{rank}.npy") for rank in range(N_WORKERS))
    np.testing.assert_array_equal(one.view("u4"), other.view("u4"))
    return one


def test_thc_as_the_golden_exchange(tmp_path):
    seen = both(tmp_path, "thc")
    golden = Thc(N_WORKERS, seed=5)
    for got, x in zip(seen, gradients(), strict=True):
        wanted = golden(x) / np.float32(N_WORKERS)  # exact: by a power of two
        np.testing.assert_array_equal(got.view("u4"), wanted.view("u4"))


def test_inceptionn_codes_up_and_down(tmp_path):
    seen = both(tmp_path, "inceptionn")
    for got, x in zip(seen, gradients(), strict=True):
        wanted = image(image(x[0]) + image(x[1])) / np.float32(N_WORKERS)
        np.testing.assert_array_equal(got.view("u4"), wanted.view("u4"))


def test_mistakes_are_found_at_once():
    with pytest.raises(ValueError, match="B must be 64, 256, 1024 or 4096, not 100"):
        ddp_hook.thc_hook(B=100)
    with pytest.raises(ValueError, match="127"):
        ddp_hook.inceptionn_hook(exponent=127)
