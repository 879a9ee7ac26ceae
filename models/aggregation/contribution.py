"""What a worker's card puts on the wire for an aggregator: the frame of a contribution."""

from gradnic.interface.formats import Op
from gradnic.interface.params import check_range

from ..frame.ipv4 import gradnic_frame
from .jobs import W_CODES, Config, Job
from .slot_verdict import index_parameters

IMPORTANT_ECT = 2


def contribution(
    job: Job,
    child: int,
    *,
    aggregator: Config,
    op: Op,
    gen: int,
    slot: int,
    tensor: int,
    seq: int,
    payload: bytes,
    arg: int = 0,
    **flags: int,
) -> bytes:
    """The frame that child number `child` of `job` sends: what a worker's card puts on the wire.

    aggregator : Config, for its addresses. payload : bytes. arg : norm tag of THC packets.
    flags : other header fields, such as ``last=1`` or ``lc=3``.
    """
    check_range("child", child, 0, len(job.children) - 1)
    source = job.children[child]
    elems = {Op.NORM: len(payload) // 4, Op.INT32: len(payload) // 4}.get(op, job.C)
    parameters = {}
    if op == Op.THC_IDX:
        own = index_parameters(job)
        parameters = {"p0": own["bits"] << 5 | own["p"] << 2 | own["block"], "p1": own["g"]}
    elif op == Op.THC_SUM:
        parameters = {"p0": 1, "p1": W_CODES.index(job.w) << 6}
    elif op == Op.NORM:
        parameters = {"p0": 1}
    fields = {
        "op": op,
        "set": gen & 1,
        "job": job.job,
        "src": child,
        "gen": gen,
        "slot": slot,
        "tensor": tensor,
        "seq": seq,
        "elems": elems,
        "arg": arg,
        "imp": 1,
    }
    tos = 8 * (7 - flags.get("lc", 0)) << 2 | IMPORTANT_ECT
    return gradnic_frame(source, aggregator, tos, fields | parameters | flags, payload)
