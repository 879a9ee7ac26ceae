"""Machine-learning engineers: two workers of PyTorch DDP whose gradients go through THC.

python examples/train_with_thc.py (needs PyTorch: pip install -e '.[train]')
"""

import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gradnic.ddp_hook import thc_hook

N_WORKERS = 2


def worker(rank, folder):
    """Fits y = x @ w on batches of its own; every step's gradient is coded to 4 bits a value."""
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=N_WORKERS)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(1000, 10))
    model.register_comm_hook(None, thc_hook(seed=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    target = torch.randn(1000, 10)
    torch.manual_seed(rank)
    losses = []
    for _ in range(20):
        x = torch.randn(64, 1000)
        loss = nn.functional.mse_loss(model(x), x @ target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if rank == 0:
        print(f"loss {losses[0]:.1f} -> {losses[-1]:.1f}")
        assert losses[-1] < losses[0]
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, (folder,), N_WORKERS)
