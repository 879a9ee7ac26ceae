"""The guide's program for torchrun, on golden cards."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload.twin import Twin, TwinServer

pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[train]'")
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "training.md"
SAME = """
every = [torch.empty_like(model.module.weight) for _ in cards]
dist.all_gather(every, model.module.weight.detach())
assert torch.equal(*every)
"""


def test_the_guides_program_trains(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (text,) = [block for block in blocks if "RANK" in block]
    end = "dist.destroy_process_group()\n"
    assert text.count(end) == 1
    program = tmp_path / "train.py"
    program.write_text(text.replace(end, SAME + end))
    topology = parse("ring:2")
    server = TwinServer(Twin((compile_table(build(topology, "ring")),), topology, 1 << 20), port=0)
    stop = threading.Event()
    served = threading.Thread(target=server.serve, args=(lambda: not stop.is_set(),))
    served.start()
    (tmp_path / "build").mkdir()
    cards = [dict(zip(("address", "port"), end, strict=True)) for end in server.ends]
    (tmp_path / "build" / "twin.json").write_text(json.dumps({"cards": cards}))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    try:
        run = subprocess.run(
            [*torchrun, "2", program], cwd=tmp_path, capture_output=True, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=600,
        )  # fmt: skip
    finally:
        stop.set()
        served.join()
        server.close()
    assert run.returncode == 0, run.stderr
    assert server.n_frames > 10 * 2 * 40_000 // 1408  # the gradients of ten steps
