"""A schedule as Chakra traces, one a rank, in the bytes that ASTRA-sim and Chakra's feeder read.

Read: mlcommons/chakra, schema/protobuf/et_def.proto of commit 6dc63e1 and src/feeder of 02da5d0,
protoio.cc of b1325d1; astra-sim, Workload.cc of 0383c20. A file is messages of protobuf, each
behind its length as a varint: `GlobalMetadata`, then a `Node` each.
"""

from collections.abc import Iterable

from gradnic.interface.schedule_table import Table

from .programs import ADD, SEND, programs

SCHEMA = "0.0.4"
COMPUTE, SENDS, RECEIVES = 4, 5, 6  # NodeType
VALUES = {"is_cpu_op": 27, "comm_src": 7, "comm_dst": 7, "comm_tag": 7, "tensor_size": 13}
"""Field of the value in `AttributeProto`, as et_feeder_node.cpp reads it: bool, int32 and uint64;
all others are int64, 9."""


def traces(table: Table, n_bytes: int) -> list[bytes]:
    """A trace per rank, list of bytes: what FILE.<rank>.et has to hold.

    A message is a COMM_SEND_NODE and a COMM_RECV_NODE of one tag; a partial that came is added by a
    COMP_NODE. n_bytes : of the tensor; chunks are rounded up to whole bytes. Chunks stand in
    attributes that the readers pass over.
    """
    size = -(-n_bytes // (table.n_chunks * table.repeats))
    result = []
    for rank, blocks in enumerate(programs(table)):
        messages = [_text(1, SCHEMA)]
        number, nodes = {}, 0
        for b, block in enumerate(blocks):
            for at, step in enumerate(block.steps):
                number[b, at] = nodes + (step.kind == ADD)  # what others wait for
                nodes += 1 + (step.kind == ADD)
        for b, block in enumerate(blocks):
            for at, step in enumerate(block.steps):
                last = number[b, at]
                after = [number[key] for key in step.after]
                after += [number[b, at - 1]] if at else []
                name, kind = ("send", SENDS) if step.kind == SEND else ("recv", RECEIVES)
                end = "comm_dst" if block.sends else "comm_src"
                messages.append(_node(last - (step.kind == ADD), kind, name, after, {
                    "comm_size": size * step.count, end: block.peer, "comm_tag": step.message,
                    "rank": rank, "first_chunk": step.first, "chunks": step.count,
                }))  # fmt: skip
                if step.kind == ADD:
                    messages.append(_node(last, COMPUTE, "add", [last - 1, *after], {
                        "num_ops": size * step.count // 4, "tensor_size": 2 * size * step.count,
                        "first_chunk": step.first, "chunks": step.count,
                    }))  # fmt: skip
        result.append(b"".join(_varint(len(message)) + message for message in messages))
    return result


def _node(number: int, kind: int, name: str, after: Iterable[int], values: dict[str, int]) -> bytes:
    """A `Node`: id, name, type, data_deps (packed), attr."""
    attributes = {"is_cpu_op": 0} | values
    return (
        _whole(1, number)
        + _text(2, f"{name} {number}")
        + _whole(3, kind)
        + _bytes(5, b"".join(map(_varint, sorted(set(after)))))
        + b"".join(
            _bytes(10, _text(1, key) + _whole(VALUES.get(key, 9), value))
            for key, value in attributes.items()
        )
    )


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    return bytes([*result, value])


def _whole(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data if data else b""


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())
