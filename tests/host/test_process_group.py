"""What the DDP hooks ask of process groups."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[train]'")

# All threads share a processor, and Gloo's only run when nobody else wants it.
LATE = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from gradnic.ddp_hook import thc_hook

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/meet", rank=0, world_size=1)
model = DistributedDataParallel(nn.Linear(1000, 10))
model.register_comm_hook(None, thc_hook(seed=1))
loss = model(torch.ones(2, 1000)).sum()
late = 0
for thread in map(int, os.listdir("/proc/self/task")):
    with open(f"/proc/self/task/{thread}/comm") as name:
        if "gloo_run" in name.read():
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setaffinity(thread, os.sched_getaffinity(0))
            late += 1
assert late
loss.backward()
dist.destroy_process_group()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are made late as Linux does it")
def test_a_process_ends_only_after_what_it_sent_is_let_go(tmp_path):
    command = [sys.executable, "-c", LATE, tmp_path]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
