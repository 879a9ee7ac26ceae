"""Researchers: a network of your own, the algorithms that fit it, and what each costs.

python examples/schedule_a_topology.py
"""

from gradnic.models.schedule import topology
from gradnic.models.schedule.bounds import throughput_bound
from gradnic.models.schedule.builders import build

torus = topology.parse("torus:4x4")
print(f"{torus.n_nodes} nodes, bound {float(throughput_bound(torus)):.3f} slots a phase")
for algorithm in ("ring", "ring2d", "multitree", "dbtree"):
    schedule = build(torus, algorithm)
    print(f"{algorithm:10} {schedule.slots_total / 2:6.2f} slots a phase, {schedule.steps:4} steps")
