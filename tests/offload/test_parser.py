"""Heads of packets against the golden parser: whose frames are taken, and of which round."""

from types import SimpleNamespace

import numpy as np
from amaranth.lib import data
from gradnic.hdl.offload.parser import Facts, PacketParser
from gradnic.hdl.transport.records import HEAD_FIELDS, Context, NeighborWrite, Over
from gradnic.models.frame.address import Address
from gradnic.models.frame.ipv4 import gradnic_frame
from gradnic.models.offload import parser as golden
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.engine.amaranth_run import simulate
from gradnic.sim.frame import frames as makers

from gradnic.interface.formats import GRADNIC, HEAD_BYTES, IPV4, UDP, Op
from gradnic.interface.inline import Fate
from gradnic.interface.offload import Drop

HEAD = {"op": Op.RAW, "set": 1, "job": 7, "gen": 1, "elems": 16, "p0": 1, "imp": 1}
N_PORTS, N_CONTEXTS = 2, 2
CARD = Address(0, mac=0x020000000000, ip=0x0A000000)
NODES = {
    node: Address(node % N_PORTS, mac=CARD.mac + node, ip=CARD.ip + node) for node in range(1, 6)
}
SPEAKERS = {(one.port, one.mac, one.ip): node for node, one in NODES.items()}
FACTS = Facts(N_CONTEXTS)
GENS = 0, 1, 2, 5, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF


def drawn(rng, n):
    """(Frames of ours, whole and broken; their ports), of several tensors and rounds."""
    frames, ports = [], []
    for k in range(n):
        src = int(rng.integers(1, 6))
        sender, port = NODES[src], NODES[src].port
        gen = int(rng.choice(GENS))
        header = {name: int(rng.integers(1 << GRADNIC[name].width)) for name in HEAD_FIELDS}
        header |= {"op": int(rng.choice([Op.RAW, Op.INC, Op.THC_SUM, Op.CONTROL])), "job": 7}
        header |= {"set": gen & 1, "src": src, "gen": gen, "tensor": int(rng.integers(3))}
        header["tree"] = int(rng.random() < 0.1)
        which = k % 8
        other = NODES[src % 5 + 1]
        if which == 1:
            header["src"] = int(rng.choice([0, 6, 255, src % 5 + 1]))
        elif which == 2:
            sender = Address(port, mac=sender.mac ^ 1 << int(rng.integers(48)), ip=sender.ip)
        elif which == 3:
            sender = Address(port, mac=sender.mac, ip=sender.ip ^ 1 << int(rng.integers(32)))
        elif which == 4:
            port ^= 1
        elif which == 5:
            sender = other
        elif which == 6:
            header |= {"op": int(rng.integers(16)), "set": int(rng.integers(2))}
        size = int(rng.choice([0, 1, 4, 14, 15, 64, 300]))
        frame = gradnic_frame(sender, CARD, int(rng.integers(256)), header, rng.bytes(size))
        broken = makers.faults(frame, rng).values() if which == 7 and size else []
        frames += [frame, *broken]
        ports += [port] * (1 + len(broken))
    order = rng.permutation(len(frames))
    return [frames[k] for k in order], [ports[k] for k in order]


def writes(rng):
    """Entries of the table of neighbors, a cycle each, at numbers of their own."""
    shape, rows = NeighborWrite(N_PORTS), []
    for index, (node, one) in zip(rng.permutation(16), NODES.items(), strict=False):
        entry = {"valid": 1, "node": node, "port": one.port, "mac": one.mac, "ip": one.ip}
        rows.append({"enable": 1, "index": int(index), "neighbor": entry})
    return bits(shape, [*rows, {}]), {row["neighbor"]["node"]: row["index"] for row in rows}


def bits(shape, values):
    """Rows of a plain input."""
    size = -(-shape.size // 8)
    numbers = [shape.const(value).as_value().value for value in values]
    rows = [np.frombuffer(number.to_bytes(size, "little"), np.uint8) for number in numbers]
    return np.array(rows)


def test_heads_are_read_as_the_model_does():
    """Of rounds under way, over and to come, in all orders of GENs."""
    model = batch.build(PacketParser(64, N_PORTS, n_contexts=N_CONTEXTS))
    rng, seen = stimulus.rng("parser"), set()
    stalled = [{}, {"i": 0.7, "beats": 0.6}, {"facts": 0.6, "beats": 0.3}]
    for k in range(6):
        frames, ports = drawn(rng, 100)
        write, numbers = writes(rng)
        under_way = [(0, int(rng.choice(GENS))), (int(rng.integers(2)), int(rng.choice(GENS)))]
        under_way = list(dict.fromkeys(under_way))
        over = None if k % 4 == 0 else (int(rng.integers(3)), int(rng.choice(GENS)))
        contexts = [{"armed": 1, "tensor": t, "gen": g, "epoch": 5 + i}
                    for i, (t, g) in enumerate(under_way)]  # fmt: skip
        contexts += [{"tensor": 2, "gen": 1}] * (N_CONTEXTS - len(contexts))  # not armed
        told = {} if over is None else {"valid": 1, "tensor": over[0], "gen": over[1]}
        beats = model.pack_frames("i", frames, meta=ports)
        stalls = stalled[k % 3]
        stalls = stalls | {"i": ([0] * len(write), stalls.get("i", 1))}
        signals = {"write": write, "over": bits(Over, [told]), "contexts": joined(contexts)}
        run = model.run({"i": beats}, stalls=stalls, signals=signals)
        assert len(run.outputs["facts"]) == len(frames)
        run.check(beats=model.pack_frames("beats", frames))
        for frame, port, row in zip(frames, ports, run.outputs["facts"], strict=True):
            facts = fields(FACTS, int.from_bytes(row.tobytes(), "little"))
            seen |= check(frame, port, facts, numbers, under_way, over)
    assert seen == {
        "length", "checksum", "format", "owner", None, "ready", "stale", "not_ready"
    }  # fmt: skip


def joined(contexts):
    """The array of contexts, one row."""
    number = sum(
        Context.const(one).as_value().value << k * Context.size for k, one in enumerate(contexts)
    )
    size = -(-Context.size * N_CONTEXTS // 8)
    return np.frombuffer(number.to_bytes(size, "little"), np.uint8)[None]


def fields(shape, number):
    """Fields of a record by name, those of records in it too."""
    found = {}
    for name, field in shape:
        value = number >> field.offset & (1 << field.width) - 1
        inner = isinstance(field.shape, data.StructLayout)
        found[name] = fields(field.shape, value) if inner else value
    return SimpleNamespace(**found)


def check(frame, port, facts, numbers, under_way, over):
    """What is found of a frame, once it is as the model says."""
    if len(frame) < HEAD_BYTES:
        assert facts.check.fate == Fate.LENGTH
        return set()
    head = GRADNIC.parse(frame)
    for name in HEAD_FIELDS:
        assert getattr(facts.head, name) == head[name], name
    assert facts.head.path == UDP.source_port.get(frame)
    assert facts.head.tos == IPV4.tos.get(frame)
    assert facts.tree == (head["tree"] != 0)
    last = over[1] if over and over[0] == head["tensor"] else None
    standing = golden.standing(head["tensor"], head["gen"], under_way, last)
    assert (facts.ready, facts.stale) == (standing == "ready", standing == "stale"), head
    if standing == "ready":
        at = under_way.index((head["tensor"], head["gen"]))
        assert (facts.place.context, facts.place.epoch) == (at, 5 + at)
    if len(frame) < max(UDP.start + UDP.length.get(frame),
                        IPV4.start + IPV4.total_length.get(frame)):  # fmt: skip
        return {standing}  # cut behind its head, which the head does not show
    why = golden.refusal(frame, port, bad=False, speakers=SPEAKERS)
    if why == "checksum" and makers.refreshed(frame) == frame:
        return {standing}  # that of UDP, which takes the whole frame
    if why in ("length", "checksum"):
        assert facts.check.fate == Fate[why.upper()]
        return {why, standing}
    assert facts.check.fate == Fate.CODED
    assert facts.drop == (Drop.NONE if why is None else Drop[why.upper()])
    if why is None:
        assert facts.head.neighbor == numbers[golden.speaker(frame, port, SPEAKERS)]
        assert facts.head.length == UDP.length.get(frame) - (HEAD_BYTES - UDP.start)
    return {why, standing}


def test_rate_and_latency():
    """Facts 9 cycles behind the 64th byte; a frame of one beat each two cycles."""
    part = PacketParser(64, N_PORTS, n_contexts=N_CONTEXTS)
    model = batch.build(part)
    frames = [gradnic_frame(NODES[1], CARD, 0, HEAD | {"src": 1}, b"")] * 40
    run = model.run({"i": model.pack_frames("i", frames, meta=0)})
    assert run.taken["facts"][0] - run.taken["i"][0] == 9
    assert (np.diff(run.taken["facts"]) == 2).all()


def test_of_a_node_under_several_numbers_the_lowest_counts():
    """Others are as if they were not there; a neighbor that is removed leaves no trace."""
    part = PacketParser(64, 1, n_contexts=2)
    own, other = (Address(0, mac=0x020000000000 + k, ip=0x0A000000 + k) for k in range(2))
    frame = gradnic_frame(other, own, 0, HEAD | {"src": 1}, bytes(64))

    async def fate(ctx, entries):
        for index, valid in entries:
            entry = {"valid": valid, "node": 1, "mac": other.mac, "ip": other.ip}
            ctx.set(part.write, {"enable": 1, "index": index, "neighbor": entry})
            await ctx.tick()
        ctx.set(part.write, {})
        ctx.set(part.beats.ready, 1)
        ctx.set(part.i.valid, 1)
        for at in range(0, len(frame), 64):
            ctx.set(part.i.p.data, int.from_bytes(frame[at : at + 64], "little"))
            ctx.set(part.i.p.keep, (1 << 64) - 1)
            ctx.set(part.i.p.last, at + 64 >= len(frame))
            await ctx.tick().until(part.i.ready)
        ctx.set(part.i.valid, 0)
        await ctx.tick().until(part.facts.valid)
        facts = ctx.get(part.facts.p)
        ctx.set(part.facts.ready, 1)
        await ctx.tick()
        ctx.set(part.facts.ready, 0)
        return Drop(facts.drop), facts.head.neighbor

    async def bench(ctx):
        assert await fate(ctx, [(9, 1), (6, 1)]) == (Drop.NONE, 6)
        assert await fate(ctx, [(6, 0)]) == (Drop.NONE, 9)
        assert (await fate(ctx, [(9, 0)]))[0] == Drop.OWNER

    simulate(part, bench)
