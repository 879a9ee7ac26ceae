"""Machine-learning engineers: two workers of PyTorch DDP whose gradients are averaged by cards.

Two cards without hardware stand at UDP sockets here, golden ones, or with --rtl their Verilog as
compiled by Verilator; each worker knows only its own. Both train to the same weights, bit for bit.

python examples/train_on_cards.py (needs PyTorch: pip install -e '.[train]')
python examples/train_on_cards.py --rtl (compiles a card for minutes, once)
"""

import sys
import tempfile
import threading
import zlib

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload.rtl_twin import RtlTwin
from gradnic.sim.offload.twin import Twin, TwinServer
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gradnic.host.card_hook import CardHook
from gradnic.host.framed_card import FramedCard
from gradnic.host.frames import FrameHost, udp

N_WORKERS, MEMORY = 2, 1 << 20
PATIENCE = 30  # seconds: a card that is a thread of Python is slow on a busy machine


def worker(rank, folder, ends):
    """Fits y = x @ w on batches of its own; every bucket of gradients is a job of the card."""
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=N_WORKERS)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(1000, 10))
    link = FrameHost(*udp(*ends[rank]), patience=PATIENCE)
    hook = CardHook(FramedCard(link), memory=(0, MEMORY))
    model.register_comm_hook(None, hook.average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    target = torch.randn(1000, 10)
    torch.manual_seed(rank)
    losses = []
    for _ in range(10):
        x = torch.randn(64, 1000)
        loss = nn.functional.mse_loss(model(x), x @ target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    hook.close()
    link.close()
    torch.save(model.module.weight.detach(), f"{folder}/weight{rank}")
    if rank == 0:
        print(f"loss {losses[0]:.1f} -> {losses[-1]:.1f}")
        assert losses[-1] < losses[0]
    dist.destroy_process_group()


if __name__ == "__main__":
    topology = parse(f"ring:{N_WORKERS}")
    table = compile_table(build(topology, "ring"))
    kind = RtlTwin if "--rtl" in sys.argv else Twin
    server = TwinServer(kind((table,), topology, MEMORY), port=0)
    stop = threading.Event()
    served = threading.Thread(target=server.serve, args=(lambda: not stop.is_set(),))
    served.start()
    with tempfile.TemporaryDirectory() as folder:
        try:
            mp.spawn(worker, args=(folder, server.ends), nprocs=N_WORKERS)
            weights = [torch.load(f"{folder}/weight{rank}") for rank in range(N_WORKERS)]
            assert torch.equal(*weights)  # alike to the bit on both
            print(f"CRC-32 of the weights: {zlib.crc32(weights[0].numpy().tobytes()):08x}")
        finally:
            stop.set()
            served.join()
            server.close()
