"""Verification engineers: any component against a model, in bulk, under stalls, with its rate.

python examples/bench_of_a_fifo.py
"""

import numpy as np
from gradnic.hdl.stream.beats import Beat
from gradnic.hdl.stream.fifo import FIFO
from gradnic.sim.engine import batch, stimulus

model = batch.build(FIFO(Beat(32), 4))
noise = stimulus.rng("example").integers(0, 256, (1000, 4), np.uint8)
beats = model.pack("i", data=np.concatenate([stimulus.byte_corners(4), noise]), last=0)
for name, stalls in stimulus.stall_grid(["i"], ["o"]):
    run = model.run({"i": beats}, stalls=stalls, max_cycles=200_000)
    run.check(o=beats)  # whole outputs, equal
    print(f"{name}: {len(beats)} beats in {run.cycles} cycles")
run = model.run({"i": beats})
assert run.taken["i"].tolist() == list(range(len(beats)))  # full rate
