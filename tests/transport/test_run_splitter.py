"""Runs of messages, against packets counted one by one; and how soon the first one is there."""

import numpy as np
import pytest
from gradnic.hdl.schedule.row_reader import Message
from gradnic.hdl.transport.run_splitter import RunSplitter
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.interface.schedule_table import Layout

LAYOUT, N_CHUNKS = Layout.for_nodes(4), 64
N_PEERS = 2**LAYOUT.peer


def geometry(n_chunks, units, packet, last_units):
    """How a tensor is cut: units of 16 elements of a chunk, of a packet, and of the last chunk."""
    return {
        "packet": packet, "chunk": units, "per_chunk": -(-units // packet),
        "last_chunk": n_chunks - 1, "last_per_chunk": -(-last_units // packet),
    }  # fmt: skip


def runs_of(cut, message, peers, longest):
    """[fields of a run], packet by packet."""
    told = []
    for to in [None] if message["terminal"] else [peers[k] for k in message["peers"]]:
        for chunk in range(message["first"], message["first"] + message["count"] + 1):
            n = cut["last_per_chunk" if chunk == cut["last_chunk"] else "per_chunk"]
            for within in range(n):
                if within % longest == 0:
                    start = chunk * cut["chunk"]
                    place = {
                        "chunk": chunk, "within": within, "start": start,
                        "number": chunk * cut["per_chunk"] + within,
                        "offset": start + within * cut["packet"],
                    }  # fmt: skip
                    told.append({"place": place, "neighbor": to, "n_less_1": -1})
                told[-1]["n_less_1"] += 1
    return told


CUTS = (
    geometry(1, 22, 22, 22), geometry(1, 22 * 65 - 3, 22, 22 * 65 - 3), geometry(3, 22 * 12, 22, 1),
    geometry(64, 7, 6, 6), geometry(64, 64 * 3, 1, 64 * 2), geometry(40, 22 * 130, 22, 22 * 64),
)  # fmt: skip


@pytest.mark.parametrize("longest", [64, 16, 5])
def test_messages_are_cut_as_their_packets_are_counted(longest):
    part = RunSplitter(Message(LAYOUT, N_CHUNKS), N_PEERS, longest=longest)
    rng = np.random.default_rng(longest)
    peers = [int(one) for one in rng.permutation(N_PEERS)]

    async def bench(ctx):
        for index, one in enumerate(peers):
            ctx.set(part.peers[index], one)
        for cut in CUTS:
            for name, value in cut.items():
                ctx.set(part.round.geometry[name], value)
            for kind in ("reduce", "gather", "terminal", "all"):
                await one_message(ctx, cut, kind)

    async def one_message(ctx, cut, kind):
        last = cut["last_chunk"]
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
