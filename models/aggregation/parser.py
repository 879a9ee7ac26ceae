"""Aggregator (THC, in-network): a bump in the wire that sums its jobs' packets and multicasts.

Which frames are ours and who may speak is decided here; what a contribution does to its slot in
`gradnic.models.aggregation.unit`. Foreign traffic crosses from a worker's side to the network's and
back.
"""

from gradnic.interface.formats import (
    AGGREGATOR,
    ETHERNET,
    GRADNIC,
    HEAD_BYTES,
    IPV4,
    UDP,
    Op,
)
from gradnic.interface.params import check_range

from ..frame.address import Address
from ..frame.ipv4 import gradnic_frame
from ..frame.parser import native_job, refusal
from .jobs import W_CODES, Config, Job, is_heard
from .slot_rule import STALE
from .slot_verdict import index_parameters
from .switchml import SwitchmlJob, SwitchmlSwitch
from .unit import SlotEngine

__all__ = ["STALE", "Address", "Aggregator", "Config", "Job", "contribution"]

IMPORTANT_ECT = 2


class Aggregator:
    """Golden twin of the aggregator's circuit: frames in, frames out, counters by reason.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    engine : gradnic.models.aggregation.unit.SlotEngine
    switch : gradnic.models.aggregation.switchml.SwitchmlSwitch
        For the jobs that are SwitchML's, second profile of the aggregator.
    counters : collections.Counter
        Those of the engine, and drops before it: ``bad``, ``checksum``, ``length``, ``format``,
        ``owner``. ``collisions`` are frames that were sent on with COLL.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        native = [job for job in config.jobs if job.kind != "switchml"]
        others = [job for job in config.jobs if job.kind == "switchml"]
        self.jobs = {job.job: job for job in native}
        self.engine = SlotEngine(native, n_words=config.n_words)
        self.counters = self.engine.counters
        self.switch = SwitchmlSwitch(
            config.mac, config.ip, config.n_ports, others, counters=self.counters
        )

    def receive(
        self, frame: bytes, port: int, now: int, *, bad: bool = False
    ) -> list[tuple[int, bytes]]:
        """Take one frame; return what leaves because of it.

        frame : bytes, Ethernet without FCS. port : int, where it arrives. now : int, time.
        Returns a list of (port, frame). A frame that is not ours crosses to the other side.
        """
        job = self.job_of(frame, port)
        other = (port + self.config.n_ports) % (2 * self.config.n_ports)
        if job is None:
            return [(other, frame)]
        if isinstance(job, SwitchmlJob):
            return self.switch.receive(frame, port, now, bad=bad)
        reason = self._refusal(frame, job, port, bad)
        if reason:
            self.counters[reason] += 1
            return []
        head = GRADNIC.parse(frame)
        if not job.owns(head["slot"]):
            self.counters["collisions"] += 1
            collided = bytearray(frame)
            GRADNIC.coll.put(collided, 1)
            UDP.checksum.put(collided, 0)
            return [(other, bytes(collided))]
        head["ecn"] |= int(IPV4.ecn.get(frame) == 3)
        payload = frame[HEAD_BYTES : HEAD_BYTES + UDP.length.get(frame) - 30]
        return self._frames(self.engine.contribute(head, payload, now))

    def tick(self, now: int) -> list[tuple[int, bytes]]:
        """Close every open slot whose deadline has passed, lowest (slot, set) first."""
        return self._frames(self.engine.tick(now))

    def job_of(self, frame: bytes, port: int) -> Job | SwitchmlJob | None:
        """The job whose frame this is, or None for foreign traffic.

        Ours is what has the port, VER, and a JOB with a child at this pair of ports whose IPv4
        address the frame comes from. ValueError for a port that is none of the 2 * n_ports.
        """
        check_range("port", port, 0, 2 * self.config.n_ports - 1)
        number = native_job(frame, self.config.udp_port)
        if number is None:
            return self.switch.job_of(frame, port)
        job = self.jobs.get(number)
        return job if job and is_heard(job, frame, port % self.config.n_ports) else None

    def _refusal(self, frame: bytes, job: Job, port: int, bad: bool) -> str | None:
        """Why a frame of ours is dropped before any slot is read, or None."""
        reason = refusal(frame, bad, HEAD_BYTES)
        if reason:
            return reason
        header = GRADNIC.parse(frame)
        source = header["src"]
        if header["ph"] or source >= len(job.children):
            return "owner"
        child = job.children[source]
        claimed = (port, ETHERNET.source.get(frame), IPV4.source.get(frame))
        return None if claimed == (child.port, child.mac, child.ip) else "owner"

    def _frames(self, answers: list[tuple[dict, bytes]]) -> list[tuple[int, bytes]]:
        """Answers as (port, frame), one for each child that gets a copy."""
        out = []
        for head, payload in answers:
            job = self.jobs[head["job"]]
            tos = 8 * (7 - head["lc"]) << 2 | IMPORTANT_ECT
            fields = {name: value for name, value in head.items() if name != "children"}
            fields |= {"ph": 1, "imp": 1, "src": AGGREGATOR, "set": head["gen"] & 1}
            for child, address in enumerate(job.children):
                if head["children"] >> child & 1:
                    out.append(
                        (address.port, gradnic_frame(self.config, address, tos, fields, payload))
                    )
        return out


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
