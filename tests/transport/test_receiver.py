"""The receiver by itself against a golden reception: which PROBE closes its range."""

import numpy as np
import pytest
from gradnic.hdl.transport.receiver import Receiver
from gradnic.models.transport.reception import Reception
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.interface.formats import Op
from gradnic.interface.offload import Subtype

N, PACKET, LEAVES, NEIGHBOR, P = 8, 1024, 3, 5, 20_000  # one chunk of N packets of indices


@pytest.mark.parametrize("bits", [None, 2, 4, 8])  # of an index; None: a card for 4 alone
def test_a_range_closes_once_the_share_of_its_bytes_is_here(bits):
    """A PROBE after each packet: STOP comes with the same one as of the golden reception."""
    part = Receiver(16, n_ranks=2, n_chunks=4, n_packets=16, counts_share=True,
                    bits=4 if bits is None else 8)  # fmt: skip
    size = PACKET * (bits or 4) // 8
    golden = Reception(
        np.full(N, size), p_q16=P, weights=np.full(N, LEAVES), eager=False, at_share=True
    )

    async def hand(ctx, op, number, **told):
        head = {"op": op, "elems": PACKET, "seq": number * PACKET // 16, "neighbor": NEIGHBOR}
        arrival = {"head": head | told, "ready": 1}
        ctx.set(
            part.arrivals.p,
            {"arrival": arrival, "within": number, "number": number, "whole": 1},
        )
        ctx.set(part.arrivals.valid, 1)
        await ctx.tick().until(part.arrivals.ready)
        ctx.set(part.arrivals.valid, 0)

    async def bench(ctx):
        cut = {"packet": PACKET // 16, "chunk": N * PACKET // 16, "per_chunk": N,
               "last_per_chunk": N, "tail": PACKET, "last_tail": PACKET}  # fmt: skip
        codec = {"thc": 1, "bits": bits or 0}
        ctx.set(part.round, {"geometry": cut, "codec": codec, "at_share": 1})
        ctx.set(part.share, P)
        ctx.set(part.last_elems, N * PACKET)
        ctx.set(part.n_clear, 16)
        ctx.set(part.place_data.up[0], {"valid": 1, "neighbor": NEIGHBOR, "leaves": LEAVES})
        for queue in (part.destinations, part.landings, part.replies):
            ctx.set(queue.ready, 1)
        for name in ("place_en", "clear"):
            ctx.set(getattr(part, name), 1)
            await ctx.tick()
            ctx.set(getattr(part, name), 0)
        await ctx.tick().until(~part.clearing)
        for number in range(N):
            await hand(ctx, Op.THC_IDX, number, arg=LEAVES << 20)
            assert golden.data(number, size, round=0) is None
            await hand(ctx, Op.CONTROL, 0, p0=int(Subtype.PROBE), elems=N, arg=0)
            subtype, body = await ctx.tick().sample(
                part.replies.p.p0, part.replies.p.body
            ).until(part.replies.valid)  # fmt: skip
            assert (subtype == Subtype.STOP) == golden.probe(0, N), number
            if subtype == Subtype.STOP:
                return
            assert body == (1 << number + 1) - 1
        raise AssertionError("nothing closed")

    simulate(part, bench)
    assert golden.lost == 2 * size * LEAVES
