"""Schedules in formats of GPU runtimes: MSCCL's XML and MSCCL++'s execution plans.

Formats as their readers take them. Read: microsoft/msccl, src/include/msccl.h of commit 01cc7cf and
src/graph/xml.h of 73794f9; Azure/msccl-executor-nccl, msccl_parser.cc of 3b40a2a; and of
microsoft/mscclpp, src/core, executor/execution_plan.cc, include/execution_common.hpp of 00668b4.
"""

import json
import re
from typing import Any

from gradnic.interface.schedule_table import Table

from .programs import ADD, SEND, Block, programs

MSCCL_STEPS, MSCCL_BLOCKS, MSCCL_COUNT = 256, 32, 71  # a block, a channel and direction, a step:
# MSCCL_MAX_NUM_STEPS, _NUM_THREAD_BLOCKS_PER_CHANNEL and _COUNT - 1 of src/include/msccl.h
MSCCL_RANKS, MSCCL_ELEMENTS = 1024, 4095  # MAX_SUBS, MAX_NODES - 1 of src/graph/xml.h
MSCCL_CHUNKS = 2**15  # offsets are int16_t in struct mscclTransfer
MSCCL_NAME = 63  # MSCCL_MAX_ALGO_NAME
MSCCLPP_OPS = 64  # of a thread block: MAX_OPERATION of src/core/include/execution_common.hpp
MSCCLPP_MESSAGES = 10  # of a thread block: six operations where it waits and is waited for
MSCCLPP_ALIGNMENT = 16  # bytes: a chunk is a multiple of it
MSCCLPP_REACH = 2**32  # bytes: offsets in a buffer are uint32_t in struct Operation


def msccl(table: Table) -> str:
    """XML of an in-place all-reduce, str. One thread block a peer and direction, one channel.

    For tensors of any size: the parser's own limit is 128 MiB. ValueError for more than 256 steps a
    block, 32 blocks that send or receive on the channel, 71 chunks a step, or 4,095 elements that a
    rank's parser keeps (the ranks, and the blocks and steps of its own), at which it gives up,
    1,024 ranks, where it writes beyond its array, and 32,768 chunks, whose offsets it cuts. The
    parser copies the name into 256 bytes and knows no entities, so what is neither letter, digit
    nor ``:+-._`` is a space there.
    """
    n_chunks = table.n_chunks * table.repeats
    _at_most("MSCCL", f"the schedule has {table.n_nodes} ranks", table.n_nodes, MSCCL_RANKS)
    _at_most("MSCCL", f"the tensor has {n_chunks} chunks", n_chunks, MSCCL_CHUNKS)
    name = re.sub(r"[^A-Za-z0-9:+._-]", " ", table.name)[:MSCCL_NAME]
    lines = [
        f'<algo name="{name}" nchannels="1" nchunksperloop="{n_chunks}" '
        f'proto="Simple" ngpus="{table.n_nodes}" coll="allreduce" inplace="1" outofplace="0" '
        f'minBytes="0" maxBytes="{2**63 - 1}">'
    ]
    for rank, blocks in enumerate(programs(table)):
        lines.append(f'  <gpu id="{rank}" i_chunks="{n_chunks}" o_chunks="0" s_chunks="0">')
        number = [_numbers(block) for block in blocks]
        kept = 1 + table.n_nodes
        for sends, does in ((True, "send"), (False, "receive")):
            count = sum(block.sends == sends for block in blocks)
            what = f"rank {rank} has {count} blocks that {does} on a channel"
            _at_most("MSCCL", what, count, MSCCL_BLOCKS)
        for b, block in enumerate(blocks):
            ends = (block.peer, -1) if block.sends else (-1, block.peer)
            lines.append(f'    <tb id="{b}" send="{ends[0]}" recv="{ends[1]}" chan="0">')
            at = 0
            for step in block.steps:
                what = f"rank {rank}'s thread block {b} has a step of {step.count} chunks"
                _at_most("MSCCL", what, step.count, MSCCL_COUNT)
                for other, of in step.after[:-1]:  # a step waits for one other: nops for the rest
                    lines.append(_step(at, "nop", 0, 0, other, number[other][of], False))
                    at += 1
                other, of = step.after[-1] if step.after else (-1, -1)
                of = number[other][of] if step.after else -1
                kind = {SEND: "s", ADD: "rrc"}.get(step.kind, "r")
                lines.append(_step(at, kind, step.first, step.count, other, of, step.needed))
                at += 1
            what = f"rank {rank}'s thread block {b} has {at} steps"
            _at_most("MSCCL", what, at, MSCCL_STEPS)
            kept += 1 + at
            lines.append("    </tb>")
        _at_most("MSCCL", f"rank {rank}'s parser keeps {kept} elements", kept, MSCCL_ELEMENTS)
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>", ""])


def _at_most(runtime: str, what: str, figure: int, limit: int) -> None:
    """ValueError if the figure in `what` is more than a runtime takes."""
    if figure > limit:
        raise ValueError(
            f"{what}, and {runtime} takes {limit} at most: take fewer chunks or another algorithm"
        )


def _numbers(block: Block) -> list[int]:
    """Each step's number in the XML, where others are put before it."""
    result, at = [], 0
    for step in block.steps:
        at += max(0, len(step.after) - 1)
        result.append(at)
        at += 1
    return result


def _step(at: int, kind: str, first: int, count: int, block: int, step: int, needed: bool) -> str:
    return (
        f'      <step s="{at}" type="{kind}" srcbuf="i" srcoff="{first}" dstbuf="i" '
        f'dstoff="{first}" cnt="{count}" depid="{block}" deps="{step}" hasdep="{int(needed)}"/>'
    )


def mscclpp(table: Table) -> str:
    """Execution plan of an in-place all-reduce, JSON as str; memory channels.

    A partial is put to a place of its own in its receiver's scratch buffer, signaled, waited for
    and added there; a finished chunk is put where it belongs. A block has ten messages from or to a
    peer, on a channel of its own; all of a GPU's blocks must run at once. They wait for each other
    by a semaphore a pair, released once for every step that the other needs. Messages go from one
    unit of 16 bytes a chunk, as the executor divides by them, to where an offset in the tensor or
    the scratch buffer would leave its 32 bits. ValueError for a block of more than 64 operations,
    which the executor refuses.
    """
    ranks = programs(table, longest=MSCCLPP_MESSAGES)
    n_chunks = table.n_chunks * table.repeats
    scratch = {}  # message: chunk of the receiver's scratch buffer
    sizes = []
    for blocks in ranks:
        size = 0
        for block in blocks:
            for step in block.steps:
                if step.kind == ADD:
                    scratch[step.message] = size
                    size += step.count
        sizes.append(size)
    largest = (MSCCLPP_REACH - 1) // max(n_chunks, *sizes) // MSCCLPP_ALIGNMENT * MSCCLPP_ALIGNMENT
    plan: dict[str, Any] = {
        "name": table.name, "collective": "allreduce", "protocol": "Simple", "inplace": True,
        "reuse_resources": False, "gpus": [], "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False, "buffer_alignment": MSCCLPP_ALIGNMENT,
        "min_message_size": MSCCLPP_ALIGNMENT * n_chunks, "max_message_size": largest * n_chunks,
    }  # fmt: skip
    for rank, blocks in enumerate(ranks):
        plan["gpus"].append(_gpu(rank, blocks, n_chunks, scratch, sizes[rank]))
    return json.dumps(plan) + "\n"


def _gpu(rank: int, blocks: list[Block], n_chunks: int, scratch: dict, size: int) -> dict:
    channels = sorted({(block.peer, block.part) for block in blocks})
    buffers = sorted({(block.peer, "s" if step.message in scratch else "i")
                      for block in blocks if block.sends for step in block.steps})  # fmt: skip
    pairs = sorted({(other, b) for b, block in enumerate(blocks)
                    for step in block.steps for other, _ in step.after})  # fmt: skip
    needs = {pair: set() for pair in pairs}  # steps of the first that the second waits for
    for b, block in enumerate(blocks):
        for step in block.steps:
            for other, of in step.after:
                needs[other, b].add(of)
    order = {pair: sorted(steps) for pair, steps in needs.items()}
    taken = dict.fromkeys(pairs, 0)
    threads = []
    for b, block in enumerate(blocks):
        way = channels.index((block.peer, block.part))
        channel = {"channel_ids": [way], "channel_type": "memory"}
        ops: list[dict] = []
        used = set()
        for at, step in enumerate(block.steps):
            for other, of in step.after:
                pair = other, b
                due = order[pair].index(of) + 1  # releases that must have come
                while taken[pair] < due:
                    ops.append({"name": "sem_acquire", "semaphore_ids": [pairs.index(pair)]})
                    taken[pair] += 1
            own = [{"type": "i", "index": step.first, "size": step.count}]
            landed = scratch.get(step.message)
            if step.kind == SEND:
                to = buffers.index((block.peer, "i" if landed is None else "s"))
                used.add(to)
                far = {"buffer_id": to, "index": step.first if landed is None else landed,
                       "size": step.count}  # fmt: skip
                ops.append({"name": "put", "src_buff": own, "dst_buff": [far], **channel})
                ops.append({"name": "signal", **channel})
            else:
                ops.append({"name": "wait", **channel})
                if step.kind == ADD:
                    part = {"type": "s", "index": landed, "size": step.count}
                    ops.append({"name": "re", "src_buff": [*own, part], "dst_buff": own,
                                "reduce_op": "sum"})  # fmt: skip
            for pair in pairs:
                if pair[0] == b and at in needs[pair]:
                    ops.append({"name": "sem_release", "semaphore_ids": [pairs.index(pair)]})
        ops = _synced(ops)
        what = f"rank {rank}'s thread block {b} has {len(ops)} operations"
        _at_most("MSCCL++", what, len(ops), MSCCLPP_OPS)
        refs = [{"access_channel_type": "memory", "remote_buffer_ids": sorted(used)}]
        threads.append({
            "id": b, "ops": _local(ops, sorted(used)),
            "channels": [{"channel_type": "memory", "channel_ids": channel["channel_ids"]}],
            "remote_buffer_refs": refs if used else [],
        })  # fmt: skip
    return {
        "id": rank, "input_chunks": n_chunks, "output_chunks": n_chunks, "scratch_chunks": size,
        "threadblocks": threads,
        "channels": [{"channel_type": "memory", "connected_to": [p for p, _ in channels]}],
        "remote_buffers": [{"rank": peer, "type": kind, "access_channel_types": ["memory"]}
                           for peer, kind in buffers],
        "semaphores": [{"init_value": 0} for _ in pairs],
    }  # fmt: skip


def _synced(ops: list[dict]) -> list[dict]:
    """Operations with a `nop`, the barrier of a block's threads, wherever these must meet.

    One thread signals, waits, acquires and releases; all of them put and add. So what they wrote is
    there before it is told of, and nobody reads what the one still waits for.
    """
    shared, waits, tells = {"put", "re"}, {"wait", "sem_acquire"}, {"signal", "sem_release"}
    result, since = [], set()  # names since the last barrier
    for op in ops:
        if (op["name"] in shared and since & waits) or (op["name"] in tells and since & shared):
            result.append({"name": "nop"})
            since = set()
        result.append(op)
        since.add(op["name"])
    return result


def _local(ops: list[dict], used: list[int]) -> list[dict]:
    """Channels and remote buffers by their place in the block's own lists."""
    for op in ops:
        if "channel_ids" in op:
            op["channel_ids"] = [0]
        for part in op.get("dst_buff", ()):
            if "buffer_id" in part:
                part["buffer_id"] = used.index(part["buffer_id"])
    return ops
