"""Mutation campaign of the aggregation unit at 8 lanes: what its test must notice."""

import numpy as np

from ..formats import Op
from ..hdl.aggregate import AggregationUnit, Sizes
from ..models.jobs import Address, Job
from . import stimulus
from .slot_traffic import Traffic
from .slots import Bench, contribution

N_CHILDREN = 3
N_BYTES = 4
SMALL = {"n_slots": 4, "n_jobs": 2, "chunk": 32, "n_words": 8}


def component():
    """The circuit under mutation."""
    return AggregationUnit(N_BYTES, **SMALL)


def _job(number, first_slot, n_children=N_CHILDREN, **more):
    children = tuple(Address(k, k, k) for k in range(n_children))
    return Job(number, children, **{"first_slot": first_slot, "n_slots": 2, "C": 32} | more)


def test(model):
    """Rules, sums, widths, words, stalls, deadlines, bounded loss, forgetting, rate."""
    sizes = Sizes(N_BYTES, **SMALL)
    generator = np.random.default_rng(1)

    def bench(*jobs):
        return Bench(model, sizes, jobs)

    plain = _job(5, 0)
    for pair in (
        (plain, _job(6, 2, close="n_min", n_min=2, b=2, g=20, n=7)),
        (_job(9, 0, kind="int32"), _job(8, 2, 32, kind="int32", overflow="error")),
        (_job(7, 2, 2, b=3, g=34), _job(1, 0, 2, close="bounded", total_bytes=64, p_q16=20000)),
        (_job(255, 0, 4, b=1, g=60, root=False), _job(4, 2, 2, kind="int32", overflow="wrap")),
    ):
        for k, stalls in enumerate(({}, {"answers": 0.3, "sums": 0.4, "values": 0.6})):
            unit = bench(*pair)
            traffic = Traffic(pair, np.random.default_rng(7 + k), n_words=8, slots=2)
            for turn in range(3):
                unit.play(traffic.packets(120), now=turn << 30, stalls=stalls, seed=turn + 1)
    late = (_job(5, 0, deadline=50), _job(6, 2, deadline=2**31))
    unit = bench(*late)
    traffic = Traffic(late, np.random.default_rng(9), n_words=8, slots=2)
    now = 2**32 - 90
    for turn in range(12):
        unit.play(traffic.packets(12), now=now % 2**32)
        now += (1, 49, 50, 51, 2**31 - 1, 2**31)[turn % 6]
        unit.tick(now % 2**32)
        if turn % 4 == 1:
            unit.clear(late[turn // 4 % 2].job)
    unit = bench(plain)
    packets = [
        contribution(plain, child, generator, gen=gen, slot=slot, op=op)
        for gen, op in enumerate((Op.THC_IDX, Op.THC_SUM))
        for slot in range(2)
        for child in range(N_CHILDREN)
    ]
    unit.play(packets, stalls={"sums": stimulus.storm(300), "answers": stimulus.storm(290)})
    unit = bench(plain)
    run = unit.play([p for p in packets if p.head["op"] == Op.THC_IDX])
    assert (np.diff(run.taken["heads"]) == 8).all(), "not at full rate"
    assert run.taken["sums"][0] - run.taken["heads"][2] <= 28, "late"


EXPLAINED = {}
