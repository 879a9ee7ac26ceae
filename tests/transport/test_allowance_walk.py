"""Allowances: the share by itself and as the golden receiver has it; the circuit's walk."""

import numpy as np
import pytest
from gradnic.hdl.transport.allowance_walk import LATENCY, AllowanceWalk
from gradnic.models.offload.plan import Plan
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.models.transport.allowance_walk import NEVER, allowance, need_bytes
from gradnic.models.transport.reception import Reception
from gradnic.sim.engine.amaranth_run import simulate

PACKET = 96
P = 6500  # of 65,536


def sent_up(plan, node, elem_bits):
    """{source: [(bytes, leaves)] of each chunk that it sends up}."""
    octets = [
        int(plan.elems[plan.packets(chunk, chunk + 1)].sum()) * elem_bits // 8
        for chunk in range(plan.n_chunks)
    ]
    return {
        source: [(octets[chunk], one.leaves) for chunk, one in told.items()]
        for source, told in plan.up[node].items()
    }


@pytest.mark.parametrize(
    ("total", "p", "need"),
    [
        (1000, 0x0148, 995),
        (1000, 0x199A, 900),
        (232000000, 0x0148, 230838868),
        (232000000, 0x199A, 208798584),
        (1000, 0, 1000),
        (0, 0xFFFF, 0),
    ],
)
def test_need_bytes(total, p, need):
    assert need_bytes(total, p) == need


@pytest.mark.parametrize("p", [0, 1, P, 0xFFFF])
def test_an_allowance_is_what_the_receiver_has(p):
    sizes, weights = np.array([1400, 1400, 60, 1400, 0]), np.array([1, 1, 1, 255, 7])
    golden = Reception(sizes, p_q16=p, weights=weights)
    sent = [(2860, 1), (1400, 255), (0, 7)]
    assert allowance(sent, p) == golden.allowance
    assert allowance(sent, p, at_share=True) == (golden.need if p else NEVER)


@pytest.mark.parametrize("at_share", [0, 1])
@pytest.mark.parametrize("b", [0, 4, 7])  # of indices of THC, or none
def test_allowances_are_the_share_of_what_a_neighbor_sends(b, at_share):
    part, thc = AllowanceWalk(4, bits=8 if b == 7 else 4), int(b > 0)
    shapes = (("ring:3", "ring"), ("torus:4x2", "multitree"), ("mesh:3x3", "multitree"))
    tables = [compile_table(build(parse(spelling), name)) for spelling, name in shapes]
    rng = np.random.default_rng(1)

    async def bench(ctx):
        for k in range(12):
            table, node = tables[k % 3], k % 3
            elems = int(rng.integers(1, 30_000)) if k > 2 else 16
            elems = -(-elems // 1024) * 1024 if thc else elems
            unit = 1024 if thc else 16
            p = [0xFFFF, 0, 1, P][k % 4]
            plan = Plan(table, elems, unit=unit, packet=PACKET)
            index = {u: u for u in plan.up[node]}
            last = (elems - 1) // plan.chunk
            ctx.set(part.geometry, {"chunk": plan.chunk // 16, "last_chunk": last})
            ctx.set(part.last_elems, elems - last * plan.chunk)
            ctx.set(part.share, p)
            ctx.set(part.thc, thc)
            if b == 7:
                ctx.set(part.bits, b)
            ctx.set(part.at_share, at_share)
            found, asked = {}, [0] * LATENCY
            ctx.set(part.start, 1)
            while True:
                _, _, busy, enable, write, chunk = await ctx.tick().sample(
                    part.busy, part.write.enable, part.write, part.chunk
                )
                ctx.set(part.start, 0)
                if enable:
                    assert write.index not in found
                    found[write.index] = write.bytes
                if not busy and found:
                    break
                asked = [*asked[1:], chunk]
                up = [{} for _ in range(4)]
                for u, told in plan.up[node].items():
                    if asked[0] in told:
                        one = told[asked[0]]
                        up[one.rank] = {"valid": 1, "neighbor": index[u], "leaves": one.leaves}
                ctx.set(part.places, {"up": up})
            want = dict.fromkeys(range(16), allowance([], p, at_share=bool(at_share)))
            for source, sent in sent_up(plan, node, b or 32).items():
                want[source] = allowance(sent, p, at_share=bool(at_share))
            assert found == want, (k, p)

    simulate(part, bench)
