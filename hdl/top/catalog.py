"""The tops that `gradnic verilog` writes: one entry for each class of `gradnic.interface.params`.

Plumbing: no golden model of its own.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib import import_module

from gradnic.interface import aggregator, inline, job_card, offload, params
from gradnic.interface.register_map import RegisterMap
from gradnic.interface.schedule_table import Layout

from ..axi.ports import Top, members_of, places


@dataclass(frozen=True)
class Entry:
    """One top.

    Attributes
    ----------
    doc : str
        One line for people.
    module : str
        Module below `gradnic.hdl` in which the component stands, imported when it is asked for.
    make : function of (the module, {parameter: value}), returns the component.
    members : dict
        One line for each member of the component, for the port list, or a function of
        {parameter: value} that returns it; <k> in a name stands for each number below ``n_ports``.
    registers : RegisterMap or None
    """

    doc: str
    module: str
    make: Callable
    members: dict
    registers: RegisterMap | None = None


def _rows_of_scheduler(p):
    return Layout.for_nodes(p["n_nodes"])


def _rows_of_direct(p):
    return Layout.for_nodes(p["n_nodes"], ports=p["n_ports"])


SCHEDULER = {
    "table_en": "write a row of the table",
    "table_addr": "which row",
    "setup": "what the round is, stable while it runs",
    "start": "a strobe: a round begins",
    "abort": "a strobe: the round is given up",
    "status": "what the round does",
}

_CARD = {
    "host_tx<k>": "frames from the host for port <k>",
    "mac_tx<k>": "frames to the MAC of port <k>",
    "mac_rx<k>": "frames from the MAC of port <k>",
    "host_rx<k>": "frames to the host from port <k>",
    "gradient_read": "gradients and results",
    "gradient_write": "results",
    "landing_read": "landing areas",
    "landing_write": "landing areas",
    "bus": "registers",
    "interrupt": "an event that the mask lets through",
}

TOPS = {
    params.Inline: Entry(
        "card in line between host and MAC: codes marked traffic, passes the rest bit for bit",
        "inline.card",
        lambda hdl, p: hdl.InlineCard(**p),
        {
            "host_tx": "frames from the host",
            "mac_tx": "frames to the MAC",
            "mac_rx": "frames from the MAC",
            "host_rx": "frames to the host",
            "bus": "registers",
        },
        inline.REGISTERS,
    ),
    params.Compressor: Entry(
        "INCEPTIONN compressor with its packet store",
        "inceptionn.compressor",
        lambda hdl, p: hdl.Compressor(**p),
        {
            "units": "one record a unit, before or with its first floats",
            "floats": "float32 values, lane 0 lowest; drop with the last beat discards the unit",
            "sizes": "one record a unit, in order, once it is encoded; dropped: of more bytes than "
            "its limit, of no float or more than max_floats, not as many beats as count says, "
            "exponent not 113 to 126, or drop",
            "coded": "coded units that were not dropped, each from byte 0 of a beat",
        },
    ),
    params.Decompressor: Entry(
        "INCEPTIONN decompressor with its packet store",
        "inceptionn.decompressor",
        lambda hdl, p: hdl.Decompressor(**p),
        {
            "units": "one record a unit, before or with its first coded beat",
            "coded": "coded units; drop with the last beat discards the unit",
            "verdicts": "one record a unit, in order, once it is stored and checked; not ok, and "
            "gone: bytes not what count and its tags add up to, or not as many beats, no float or "
            "more than max_floats, exponent not 113 to 126, or drop",
            "floats": "float32 values of the units that were sound; lanes past the count are 0",
        },
    ),
    params.Aggregator: Entry(
        "aggregator: a bump in the wire for each worker, sums in the network, passes the rest",
        "aggregation.aggregator",
        lambda hdl, p: hdl.Aggregator(**p),
        {
            "worker_rx<k>": "frames from worker <k>",
            "worker_tx<k>": "frames to worker <k>: results, and what came for it",
            "network_rx<k>": "frames from the network for worker <k>",
            "network_tx<k>": "frames of worker <k> to the network",
            "bus": "registers",
            "now": "time, in the unit of the jobs' deadlines",
            "tick": "a pulse has every slot's deadline checked",
            "ingress_valid": "a frame of ours has gone to be judged",
            "ingress_port": "where it came in: 2 * port, plus 1 from the network",
            "judged<k>": "what became of an answer for worker <k> at its egress queues",
            "dequeued<k>": "an answer for worker <k> left its egress queue",
        },
        aggregator.REGISTERS,
    ),
    params.Offload: Entry(
        "offload card: runs a whole all-reduce by itself, over Ethernet that may lose packets",
        "offload.card",
        lambda hdl, p: hdl.card(**p),
        _CARD,
        offload.REGISTERS,
    ),
    params.Jobs: Entry(
        "offload card that takes jobs: a queue of 16, several all-reduces side by side",
        "offload.job_card",
        lambda hdl, p: hdl.card(**p),
        _CARD
        | {
            "root_read": "gradients that are summed into results here",
            "root_write": "results that are summed here",
            "norm_read": "gradients on their way to norms",
            "norm_write": "norms, in scratch",
            "encode_read": "gradients and agreed norms on their way to indices",
            "encode_write": "indices, in scratch",
            "decode_read": "sums and agreed norms on their way to results",
            "decode_write": "results",
            "added_read": "residuals that are added on the way to norms",
            "kept_read": "residuals that are added on the way to indices",
            "kept_write": "residuals for the next job",
            "host_read": "gradients and results that the host reads by frames",
            "host_write": "gradients that the host writes by frames",
        },
        job_card.REGISTERS,
    ),
    params.ThcNorm: Entry(
        "THC worker, first pass: an exact norm for each block",
        "thc.norm",
        lambda hdl, p: hdl.ThcNorm(p["n_lanes"], block=p["block"]),
        {
            "log4": "log4 of the block's size, less 3; may change while nothing is inside",
            "floats": "float32 values, lane 0 lowest",
            "norms": "a float32 norm of each block",
        },
    ),
    params.ThcEncoder: Entry(
        "THC worker, second pass: blocks of floats to packed indices",
        "thc.encoder",
        lambda hdl, p: hdl.ThcEncoder(p["n_lanes"], block=p["block"]),
        {
            "log4": "log4 of the block's size, less 3",
            "tensor": "1: one factor for the whole tensor instead of norms",
            "bits": "b, bits of an index",
            "t_fixed": "t, the clip point, in 1/256 sigma",
            "unit": "U = round(2^24 g / (2 t))",
            "write_en": "write a cell of the table",
            "write_addr": "which cell: table units, 0 to g",
            "write_data": "index of the level at or below, units above it, gap to the next",
            "random_key": "key of (seed, round, worker)",
            "sign_key": "key of (seed, sign round, 2^32 - 1)",
            "tensor_hash": "mix(tensor + 0x7F4A7C15)",
            "rekey": "a strobe: keys have changed",
            "busy": "keys are being taken in",
            "blocks": "norm (word), number, silence of a block, before or with its floats",
            "floats": "float32 values, lane 0 lowest",
            "indices": "packed indices, most significant bit first",
        },
    ),
    params.ThcDecoder: Entry(
        "THC worker, way down: packed sums to blocks of floats",
        "thc.decoder",
        lambda hdl, p: hdl.ThcDecoder(p["n_lanes"], block=p["block"]),
        {
            "log4": "log4 of the block's size, less 3",
            "code": "width of a packed sum: 0, 1 or 2 for 8, 12 or 16 bits",
            "offset": "n * g, taken from each sum",
            "unit": "t / (256 n g B), float32, a normal number",
            "sign_key": "key of (seed, sign round, 2^32 - 1)",
            "tensor_hash": "mix(tensor + 0x7F4A7C15)",
            "blocks": "norm (word) and number of a block, before or with its sums",
            "sums": "packed sums, most significant bit first",
            "floats": "float32 values, lane 0 lowest",
        },
    ),
    params.Aggregation: Entry(
        "homomorphic aggregation unit: slots of sums, without parser and ports",
        "aggregation.unit",
        lambda hdl, p: hdl.AggregationUnit(**p),
        {
            "jobs": "what each job's registers say",
            "clear": "forget a job's slots; not heard while busy",
            "clear_job": "which job",
            "busy": "slots are being forgotten, after a reset all: no head is taken",
            "write_en": "write a word of a job's table",
            "write_addr": "which word: the job's place times 2^b_max, plus the index",
            "write_data": "the index's level, in table units",
            "now": "time, in the unit of the jobs' deadlines",
            "tick": "a pulse has every slot's deadline checked",
            "heads": "one record a packet",
            "values": "payloads of packets that have one, in the order of their heads",
            "answers": "one record an answer",
            "sums": "payloads of the answers that have one, in their order",
            "events": "pulses: what is counted",
            "event_job": "of which job",
            "overflow": "a slot's sum has overflowed for the first time",
            "overflow_job": "of which job",
        },
    ),
    params.Scheduler: Entry(
        "message scheduler: runs a schedule table, row by row",
        "schedule.scheduler",
        lambda hdl, p: hdl.Scheduler(
            _rows_of_scheduler(p),
            depth=p["n_rows"],
            n_chunks=p["n_chunks"],
            n_ports=p["n_ports"],
        ),
        SCHEDULER
        | {
            "table_data": lambda p: f"the row: {places(_rows_of_scheduler(p).offsets)}",
            "starting": "the round before is forgotten; the new one begins",
            "added": "one more contribution is in a chunk's sum",
            "finals": "a chunk is final here",
            "released": "the node's own partial of a chunk was read for the last time",
            "asks": "a chunk whose state is asked for",
            "answered": "the answer is there, 4 cycles after the ask",
            "answer": "state of the chunk",
            "issues": "a row that may leave",
            "idle": "a bit a port: nothing under way on it",
        },
    ),
    params.Direct: Entry(
        "card on direct links: scheduler, adders and memory behind credit flow control",
        "direct.card",
        lambda hdl, p: hdl.FlitCard(
            _rows_of_direct(p),
            depth=p["n_rows"],
            integers=bool(p["integers"]),
            coded=bool(p["coded"]),
            **{k: p[k] for k in ("n_ports", "n_lanes", "n_words", "n_chunks", "credits")},
        ),
        SCHEDULER
        | {
            "table_data": lambda p: f"the row: {places(_rows_of_direct(p).offsets)}",
            "entry_en": "write a chunk's contributions",
            "entry_addr": "which chunk",
            "entry": "its contributions",
            "peer_en": "write a peer",
            "peer_addr": "which peer",
            "peer": "its port and number",
            "host_en": "access to gradient memory, while no round runs",
            "host_write": "1: write",
            "host_addr": "which word",
            "host_data": "what is written",
            "host_read": "what was read, 3 cycles later",
            "done": "the last round ended well, all is written and sent",
            "broken": "an abort, at rest too, or a fault: no start is taken until a reset",
            "foreign": "a message named what this node does not have, or was unsound",
            "overflow": "a neighbor sent without credit",
            "rx<k>": "flits from neighbor <k>",
            "rx_credit": "a bit a port: a flit has left the landing buffer",
            "tx<k>": "flits to neighbor <k>",
            "tx_credit": "a bit a port: a flit has left the neighbor's landing buffer",
        },
    ),
}


def entry(parameters):
    """The entry of `TOPS` that `parameters` belong to."""
    found = TOPS[type(parameters)]
    hosted = isinstance(parameters, params.Jobs) and parameters.host
    return replace(found, registers=job_card.HOSTED) if hosted else found


def core(parameters, **changes):
    """The component for `parameters`, an instance of a class of `gradnic.interface.params`.

    changes : arguments of the component that differ, such as the side band that a shell needs.
    """
    found = entry(parameters)
    module = import_module(f"gradnic.hdl.{found.module}")
    return found.make(module, describe(parameters) | changes)


def docs(parameters):
    """{member of the component: a line}."""
    lines = {}
    for name, doc in entry(parameters).members.items():
        if callable(doc):
            doc = doc(describe(parameters))
        for k in range(parameters.n_ports) if "<k>" in name else ("",):
            lines[name.replace("<k>", str(k))] = doc.replace("<k>", str(k))
    return lines


def build(parameters, **changes):
    """`core` with AXI ports."""
    component = core(parameters, **changes)
    there = dict(members_of(component))  # some are only with a codec
    return Top(component, {name: doc for name, doc in docs(parameters).items() if name in there})


def describe(parameters):
    """Parameters as {name: value}."""
    return asdict(parameters)
