"""Runs of messages; and how soon the first one is there."""

import numpy as np
import pytest
from gradnic.hdl.schedule.row_reader import Message
from gradnic.hdl.transport.run_splitter import RunSplitter
from gradnic.models.transport.packet_walk import Cut
from gradnic.models.transport.run_splitter import runs
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.interface.schedule_table import Layout

LAYOUT, N_CHUNKS = Layout.for_nodes(4), 64
N_PEERS = 2**LAYOUT.peer


def geometry(cut):
    """The registers that tell a splitter of a cut."""
    last = (cut.n_elems - 1) // cut.chunk
    return {
        "packet": cut.packet, "chunk": cut.chunk, "per_chunk": cut.per_chunk,
        "last_chunk": last, "last_per_chunk": len(cut.packets(last, last + 1)),
    }  # fmt: skip


def runs_of(cut, message, peers, longest):
    """[fields of a run]: a terminal message's go to nobody."""
    to = [None] if message["terminal"] else [peers[k] for k in message["peers"]]
    stop = message["first"] + message["count"] + 1
    made = []
    for peer, numbers in runs(cut, message["first"], stop, to, longest=longest):
        one = cut.place(numbers[0])
        place = {
            "chunk": one.chunk, "within": one.within, "start": one.chunk_start,
            "number": one.number, "offset": one.start,
        }  # fmt: skip
        made.append({"place": place, "n_less_1": len(numbers) - 1, "neighbor": peer})
    return made


CUTS = (
    Cut(22, 22, 22), Cut(22 * 65 - 3, 22 * 65 - 3, 22), Cut(2 * 22 * 12 + 1, 22 * 12, 22),
    Cut(63 * 7 + 6, 7, 6), Cut(64 * 3 * 63 + 64 * 2, 64 * 3, 1),
    Cut(22 * 130 * 39 + 22 * 64, 22 * 130, 22),
)  # fmt: skip
"""Tensors, chunks and packets in units of 16 elements."""


@pytest.mark.parametrize("longest", [64, 16, 5])
def test_messages_are_cut_as_their_packets_are_counted(longest):
    part = RunSplitter(Message(LAYOUT, N_CHUNKS), N_PEERS, longest=longest)
    rng = np.random.default_rng(longest)
    peers = [int(one) for one in rng.permutation(N_PEERS)]

    async def bench(ctx):
        for index, one in enumerate(peers):
            ctx.set(part.peers[index], one)
        for cut in CUTS:
            for name, value in geometry(cut).items():
                ctx.set(part.round.geometry[name], value)
            for kind in ("reduce", "gather", "terminal", "all"):
                await one_message(ctx, cut, kind)

    async def one_message(ctx, cut, kind):
        last = (cut.n_elems - 1) // cut.chunk
        first = 0 if kind == "all" else int(rng.integers(last + 1))
        count = last - first if kind == "all" else int(rng.integers(min(last - first, 2) + 1))
        n_sends = int(rng.integers(1, LAYOUT.n_sends + 1)) if kind == "gather" else 1
        message = {
            "gather": int(kind == "gather"), "terminal": int(kind == "terminal"), "first": first,
            "count": count, "flow": int(rng.integers(1 << LAYOUT.flow)),
            "wait": int(rng.integers(4)),
            "peers": [] if kind == "terminal" else rng.permutation(N_PEERS)[:n_sends].tolist(),
        }  # fmt: skip
        port = part.messages
        for name in ("gather", "terminal", "first", "count", "flow", "wait"):
            ctx.set(port.p[name], message[name])
        for k in range(LAYOUT.n_sends):
            ctx.set(port.p.sends[k].valid, k < len(message["peers"]))
            ctx.set(port.p.sends[k].peer, (message["peers"] + [0] * LAYOUT.n_sends)[k])
        assert ctx.get(port.ready)
        ctx.set(port.valid, 1)
        await ctx.tick()
        ctx.set(port.valid, 0)
        left, got, waits = [], [], []  # waits: whether a run was offered, cycle by cycle
        while ctx.get(part.busy):
            ready = rng.random() < 0.5
            ctx.set(part.runs.ready, ready)
            ctx.set(part.released.ready, 1)
            if ctx.get(part.released.valid):
                left.append(ctx.get(part.released.payload))
            if ctx.get(part.runs.valid) and ready:
                run = ctx.get(part.runs.p)
                assert (run.ph, run.terminal) == (message["gather"], message["terminal"])
                assert (run.flow, run.wait) == (message["flow"], message["wait"])
                place = {name: run.place[name] for name in
                         ("chunk", "within", "start", "number", "offset")}  # fmt: skip
                got.append({"place": place, "n_less_1": run.n_less_1,
                            "neighbor": None if run.terminal else run.neighbor})  # fmt: skip
            waits.append(ctx.get(part.runs.valid))
            await ctx.tick()
        assert got == runs_of(cut, message, peers, longest)
        bits = max(first.bit_length(), (count + 1).bit_length())
        assert waits.index(1) == bits + (1 if message["gather"] else count + 1) + 5
        assert left == ([] if message["gather"] else list(range(first, first + count + 1)))

    simulate(part, bench)


@pytest.mark.parametrize("longest", [64, 16, 5, 1])
@pytest.mark.parametrize("cut", CUTS[:4])
def test_runs_are_packets_counted_one_by_one(cut, longest):
    stop = -(-cut.n_elems // cut.chunk)
    counted = []
    for number in range(cut.n_packets):
        starts = cut.place(number).within == 0 or len(counted[-1]) == longest
        counted += [[number]] if starts else []
        counted[-1] += [] if starts else [number]
    made = list(runs(cut, 0, stop, "ab", longest=longest))
    assert [(peer, list(one)) for peer, one in made] == [
        (peer, one) for peer in "ab" for one in counted
    ]
