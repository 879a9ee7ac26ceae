"""Schedules in other people's formats, run by interpreters of these formats: the sums are right."""

import json
import re
import xml.etree.ElementTree as ET
from collections import defaultdict, deque
from dataclasses import replace

import numpy as np
import pytest
from gradnic.models.schedule.all_reduce import all_reduce
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.forest import forest
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.chakra_trace import traces
from gradnic.models.schedule.exports import msccl, mscclpp
from gradnic.models.schedule.topology import parse

SHORT = [("ring:4", "ring"), ("ring:8", "ring"), ("torus:3x3", "multitree"),
         ("bigraph:2x4", "hdrm"), ("nvlink:2x4x1", "forest"),
         ("mesh:3x3", "overlapped", 1)]  # fmt: skip
CASES = [*SHORT[:-1], ("mesh:3x3", "overlapped")]
DRAWN = [  # nodes that are no power of two, two chunks a root
    (f"{kind}:{rng.choice(sizes)}", str(rng.choice(algorithms)), 2)
    for rng in [np.random.default_rng(33)]
    for kind, sizes, algorithms in (
        ("ring", (3, 5, 6, 7), ("multitree", "bfb")),
        ("mesh", ("2x3", "3x3", "2x5"), ("multitree", "bfb")),
        ("torus", ("3x3", "3x4"), ("multitree", "bfb")),
        ("fattree", ("3x1", "5x1", "3x2"), ("multitree",)),
        ("dragonfly", ("3x1x1", "3x2x1"), ("multitree",)),
    )
]
MSCCLPP_OPS = 64  # MAX_OPERATION of src/core/include/execution_common.hpp


def title(case):
    return " ".join(map(str, case))


def make(spelling, algorithm, chunks=None):
    topology = parse(spelling)
    if algorithm == "forest":
        return compile_table(forest(topology, steps=12))
    return compile_table(build(topology, algorithm, chunks=chunks))


@pytest.fixture(params=[*CASES, *DRAWN], ids=title)
def case(request):
    """(table, values float32 (n, chunks, 16), what every rank must have)."""
    table = make(*request.param)
    n_chunks = table.n_chunks * table.repeats
    values = np.random.default_rng(3).standard_normal((table.n_nodes, n_chunks * 16))
    values = values.astype(np.float32)
    want = all_reduce(table, values).reshape(table.n_nodes, n_chunks, 16)
    return table, values.reshape(table.n_nodes, n_chunks, 16).copy(), want


def turns(blocks, step, late=()):
    """Run blocks, each a list of operations, until all are done; a deadlock fails.

    step(key, operation, at) : True if it could run. Blocks take turns, one operation each; those
    whose keys are in late only where none of the others can run.
    """
    at = dict.fromkeys(blocks, 0)
    groups = [[key for key in blocks if key not in late], [key for key in blocks if key in late]]
    while any(at[key] < len(blocks[key]) for key in blocks):
        moved = False
        for group in groups:
            for key in group:
                if at[key] < len(blocks[key]) and step(key, blocks[key][at[key]], at[key]):
                    at[key] += 1
                    moved = True
            if moved:
                break
        assert moved, f"deadlock: {at}"


NEEDED = {
    "algo": {"name", "nchannels", "nchunksperloop", "proto", "ngpus", "coll", "inplace",
             "outofplace", "minBytes", "maxBytes"},
    "gpu": {"id", "i_chunks", "o_chunks", "s_chunks"},
    "tb": {"id", "send", "recv", "chan"},
    "step": {"s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"},
}  # fmt: skip


def as_its_parser(text):
    """What MSCCL's own parser (src/graph/xml.cc; msccl_parser.cc of the executor) does not survive.

    It knows elements, attributes between double quotes behind one space each, and no entities. A
    value has 255 characters and an element 16 attributes and 1,024 others in it, unchecked; it
    keeps 4,095 elements: all but the blocks and steps of other ranks. Others' elements are passed.
    """
    kept, others = 0, 0
    for line in text.splitlines():
        found = re.fullmatch(r' *<(/?)(\w+)((?: \w+="[^"&<>]*")*)/?>', line)
        assert found, line
        assert line.isascii()
        if found[1]:
            continue
        pairs = re.findall(r'(\w+)="([^"]*)"', found[3])
        assert {key for key, _ in pairs} == NEEDED[found[2]]
        assert len(pairs) <= 16
        assert all(len(value) <= 255 for _, value in pairs)
        if found[2] in ("algo", "gpu"):
            kept, others = 0, others + 1
        else:
            kept += 1
        assert kept + others <= 4095
    assert others <= 1 + 1024


@pytest.mark.parametrize("name", ['a "graph" & <more>', "x" * 300, "gr\xfc\xdfe", "two\nlines"])
def test_msccl_name(name):
    table = make("ring:2", "ring")
    text = msccl(replace(table, name=name))
    as_its_parser(text)
    assert len(ET.fromstring(text).get("name")) <= 63
    assert 'name="ring ring:2"' in msccl(table)


def test_msccl_runtime_sums(case):
    table, values, want = case
    text = msccl(table)
    as_its_parser(text)
    algo = ET.fromstring(text)
    assert algo.get("coll") == "allreduce"
    assert int(algo.get("maxBytes")) == 2**63 - 1  # without it a tensor of 128 MiB is MSCCL's last
    assert int(algo.get("ngpus")) == table.n_nodes
    blocks, ends, waited = {}, {}, set()
    for gpu in algo:
        rank = int(gpu.get("id"))
        assert int(gpu.get("i_chunks")) == int(algo.get("nchunksperloop")) == values.shape[1]
        for tb in gpu:
            key = rank, int(tb.get("id"))
            blocks[key] = [dict(s.attrib) for s in tb]
            assert [int(s["s"]) for s in blocks[key]] == list(range(len(blocks[key])))
            ends[key] = int(tb.get("send")), int(tb.get("recv"))
    peers = [(key[0], *e) for key, e in ends.items()]
    assert len(set(peers)) == len(peers)  # a connection belongs to one thread block
    done, fifo = set(), defaultdict(deque)

    def step(key, s, at):
        rank, needs = key[0], (key[0], int(s["depid"]), int(s["deps"]))
        if needs[1] >= 0:
            waited.add(needs)
            if needs not in done:
                return False
        part = slice(int(s["srcoff"]), int(s["srcoff"]) + int(s["cnt"]))
        send, receive = ends[key]
        if s["type"] == "s":
            if len(fifo[rank, send]) == 2:  # of 8 steps a connection a message takes 4
                return False
            fifo[rank, send].append(values[rank, part].copy())
        elif s["type"] in ("r", "rrc"):
            if not fifo[receive, rank]:
                return False
            came = fifo[receive, rank].popleft()
            values[rank, part] = came if s["type"] == "r" else values[rank, part] + came
        else:
            assert s["type"] == "nop"
        done.add((*key, at))
        return True

    turns(blocks, step)
    np.testing.assert_array_equal(values.view("u4"), want.view("u4"))
    flags = {(*key, i) for key, steps in blocks.items() for i, s in enumerate(steps)
             if s["hasdep"] == "1"}  # fmt: skip
    assert flags == waited


@pytest.mark.parametrize("late", ["none", "first", "second", "any"])
@pytest.mark.parametrize("case", SHORT, ids=title, indirect=True)
def test_mscclpp_executor_sums(case, late):
    """Blocks of two warps that meet at `nop` only, in orders that favor one of them.

    As in src/core/include/execution_kernel.hpp: `put` and `re` are shared by a block's threads,
    everything else is done by threads of the first warp.
    """
    table, values, want = case
    plan = json.loads(mscclpp(table))
    warps, gpus = {}, plan["gpus"]
    scratch = [np.full((g["scratch_chunks"], 16), np.nan, np.float32) for g in gpus]
    for g in gpus:  # the executor divides both sizes by their chunks; output is input here
        assert g["input_chunks"] == g["output_chunks"] == values.shape[1]
        refs = [ref for block in g["threadblocks"] for ref in block["remote_buffer_refs"]]
        used = {at for ref in refs for at in ref["remote_buffer_ids"]}
        assert used == set(range(len(g["remote_buffers"])))  # an empty one cannot be registered
        for block in g["threadblocks"]:
            assert len(block["ops"]) <= MSCCLPP_OPS
            for warp in range(2):
                warps[g["id"], block["id"], warp] = block["ops"]
    signals, semaphores, arrived = defaultdict(int), defaultdict(int), set()

    def local(rank, part, warp):
        where = {"i": values[rank], "s": scratch[rank]}[part["type"]]
        floats = where[part["index"] : part["index"] + part["size"]].reshape(-1)
        half = floats.size // 2
        return floats[:half] if warp == 0 else floats[half:]

    def step(key, op, at):
        rank, _, warp = key
        block = gpus[rank]["threadblocks"][key[1]]
        name = op["name"]
        if name == "nop":
            arrived.add((*key, at))
            return (*key[:2], 1 - warp, at) in arrived
        if "channel_ids" in op:
            (number,) = (block["channels"][0]["channel_ids"][i] for i in op["channel_ids"])
            ends = gpus[rank]["channels"][0]["connected_to"]
            peer = ends[number]
            way = ends[:number].count(peer)  # channels of two ranks are paired in order
        if name == "put":
            (to,) = op["dst_buff"]
            far = gpus[rank]["remote_buffers"][
                block["remote_buffer_refs"][0]["remote_buffer_ids"][to["buffer_id"]]
            ]
            assert far["rank"] == peer
            to = {**to, "type": far["type"]}
            local(peer, to, warp)[:] = local(rank, op["src_buff"][0], warp)
        elif name == "re":
            a, b = (local(rank, part, warp) for part in op["src_buff"])
            local(rank, op["dst_buff"][0], warp)[:] = a + b
        elif warp:
            assert name in ("signal", "wait", "sem_release", "sem_acquire")
        elif name == "signal":
            signals[rank, peer, way] += 1
        elif name == "wait":
            if not signals[peer, rank, way]:
                return False
            signals[peer, rank, way] -= 1
        elif name == "sem_release":
            semaphores[rank, op["semaphore_ids"][0]] += 1
        else:
            if not semaphores[rank, op["semaphore_ids"][0]]:
                return False
            semaphores[rank, op["semaphore_ids"][0]] -= 1
        return True

    coin = np.random.default_rng(5).random(len(warps)) < 0.5
    turns(warps, step, {
        "none": (), "first": {key for key in warps if key[2] == 0},
        "second": {key for key in warps if key[2] == 1},
        "any": {key for key, tails in zip(warps, coin, strict=True) if tails},
    }[late])  # fmt: skip
    np.testing.assert_array_equal(values.view("u4"), want.view("u4"))
    assert not any(signals.values())
    assert not any(semaphores.values())  # so that the plan can run again


@pytest.mark.parametrize(
    ("write", "words", "figure"),
    [
        (mscclpp, ["mesh:3x3", "overlapped"], "has 68 operations, and MSCCL\\+\\+ takes 64"),
        (msccl, ["mesh:4x4", "overlapped"], "320 steps, and MSCCL takes 256"),
        (msccl, ["fattree:8x2", "multitree"], "63 blocks that send on a channel, .* 32"),
        (msccl, ["ring:2", "ring", 72], "a step of 72 chunks, .* 71"),
        (msccl, ["full:32", "multitree", 34], "parser keeps 4295 elements, .* 4095"),
    ],
    ids=["operations", "steps", "blocks", "chunks", "elements"],
)
def test_limits_of_runtimes(write, words, figure):
    with pytest.raises(ValueError, match=figure):
        write(make(*words))


def test_msccl_ranks_and_chunks():
    table = make("ring:2", "ring")
    with pytest.raises(ValueError, match="the schedule has 1025 ranks, and MSCCL takes 1024"):
        msccl(replace(table, n_nodes=1025))
    with pytest.raises(ValueError, match="the tensor has 32769 chunks, and MSCCL takes 32768"):
        msccl(replace(table, n_chunks=32769))
    assert 'i_chunks="32768"' in msccl(replace(table, n_chunks=32768))


@pytest.mark.parametrize("case", SHORT, ids=title)
def test_mscclpp_message_sizes(case):
    """As execution_plan.cc: chunks are whole units of the alignment, of which it divides by the
    number, and bytes into a buffer are 32 bits in an operation, unchecked.
    """
    plan = json.loads(mscclpp(make(*case)))
    unit, (chunks,) = plan["buffer_alignment"], {gpu["input_chunks"] for gpu in plan["gpus"]}
    most = max(chunks, *(gpu["scratch_chunks"] for gpu in plan["gpus"]))
    assert plan["min_message_size"] == unit * chunks
    size, left = divmod(plan["max_message_size"], chunks)
    assert (left, size % unit) == (0, 0)
    assert most * size < 2**32 <= most * (size + unit)


def test_msccl_takes_its_limits():
    assert 'cnt="71"' in msccl(make("ring:2", "ring", 71))
    assert '<tb id="63"' in msccl(make("fattree:33x1", "multitree"))


def messages(data):
    """Messages of a file as Chakra's protoio.cc finds them: each behind its length, a varint."""
    at = 0
    while at < len(data):
        length, at = varint(data, at)
        assert at + length <= len(data)
        yield list(fields(data[at : at + length]))
        at += length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """(field, value) of a message: whole numbers, or bytes behind their length."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        else:
            assert key & 7 == 0
        yield key >> 3, value


READ_AS = {"comm_src": 7, "comm_dst": 7, "comm_tag": 7, "tensor_size": 13, "is_cpu_op": 27}
NODE_TYPES = {4: "compute", 5: "send", 6: "receive"}


def node(message):
    """A `Node` as Chakra's et_feeder_node.cpp reads it: an attribute of another type is 0, and
    without is_cpu_op a node would be one of the processor.
    """
    said = dict(message)
    packed, deps, at = said.get(5, b""), [], 0
    while at < len(packed):
        number, at = varint(packed, at)
        deps.append(number)
    attr = {}
    for field, value in message:
        if field == 10:
            one = dict(fields(value))
            key = one[1].decode()
            assert READ_AS.get(key, 9) in one
            attr[key] = one[READ_AS.get(key, 9)]
    assert attr["is_cpu_op"] == 0
    return said.get(1, 0), NODE_TYPES[said[3]], deps, attr


def test_chakra_graph_sums(case):
    table, values, want = case
    n_bytes = values[0].nbytes
    nodes, landed, came = {}, {}, {}
    for rank, data in enumerate(traces(table, n_bytes)):
        head, *rest = messages(data)
        assert head == [(1, b"0.0.4")]
        assert not all(node(message)[2] for message in rest)  # the feeder gives up on such a file
        for message in rest:
            number, *what = node(message)
            assert (rank, number) not in nodes
            nodes[rank, number] = what
    blocks = {key: [it] for key, it in nodes.items()}
    done = set()

    def step(key, it, at):
        rank, (kind, deps, attr) = key[0], it
        if not all((rank, before) in done for before in deps):
            return False
        part = slice(attr["first_chunk"], attr["first_chunk"] + attr["chunks"])
        if kind == "send":
            assert attr["comm_size"] == values[rank, part].nbytes
            landed[attr["comm_tag"]] = rank, attr["comm_dst"], values[rank, part].copy()
        elif kind == "receive":
            assert attr["comm_size"] == values[rank, part].nbytes
            if attr["comm_tag"] not in landed:
                return False
            source, to, message = landed[attr["comm_tag"]]
            assert (source, to) == (attr["comm_src"], rank)
            if nodes.get((rank, key[1] + 1), [""])[0] == "compute":
                came[rank, key[1] + 1] = message
            else:
                values[rank, part] = message
        else:
            assert attr["tensor_size"] == 2 * values[rank, part].nbytes
            assert attr["num_ops"] == values[rank, part].size
            values[rank, part] += came[key]
        done.add(key)
        return True

    turns(blocks, step)
    np.testing.assert_array_equal(values.view("u4"), want.view("u4"))
