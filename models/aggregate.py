"""Aggregator (THC, in-network): sums packets of compressed codes exactly once, then multicasts.

A slot belongs to one job and holds one chunk's sum. Its generation is compared before anything
changes, so a late copy of an old packet can never touch a newer sum: unlike SwitchML's one-bit
shadow set, the rule needs no ordered paths. Contributions are counted by a bitmap of children.

Sources: THC (NSDI 2024), the switch's lookup and add; SwitchML and ATP for slots and multicast.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from ..formats import (
    AGGREGATOR,
    ETHERNET,
    GRADNIC,
    HEAD_BYTES,
    IPV4,
    PARAMETERS,
    UDP,
    UDP_PORT,
    VERSION,
    Op,
)
from .ipv4 import checksums_hold, ip_checksum, is_plain_udp
from .thc import pack, solve_table, unpack

STALE = 4  # subtype of a CONTROL packet
IMPORTANT_ECT = 2
P_CODES = tuple(1 / 2**i for i in range(4, 11))  # p index 0..6; 7 is any other
W_CODES = (8, 12, 16)
CLOSE_RULES = ("all", "n_min", "bounded")
OVERFLOW_RULES = ("wrap", "saturate", "error")


@dataclass(frozen=True)
class Address:
    """Where a host is reached: the port it is attached to, MAC and IPv4 as ints, UDP port."""

    port: int
    mac: int
    ip: int
    udp_port: int = UDP_PORT


@dataclass(frozen=True)
class Job:
    """One job's registers.

    Attributes
    ----------
    job : int
        0 to 255.
    children : tuple of Address
        Who contributes, by SRC: 1 to 32.
    first_slot, n_slots : int
        The slots that the job owns.
    n : int
        Leaves below, which the fill counts; equals the number of children on one level.
    kind : str
        ``thc`` (norms by maximum, indices and sums) or ``int32``.
    b, g, p, B : of the THC worker. w : accumulator bits, 8, 12 or 16. C : elements of a chunk.
    close : str
        ``all``; ``n_min`` children; ``bounded``: bytes of the tensor but a share p_q16 / 2**16.
    n_min, total_bytes, p_q16 : int
        Parameters of the rules; total_bytes of one child's whole tensor.
    deadline : int
        Time after the first contribution that closes a slot, in units of `now`; 0 is off.
    root : bool
        Fills missing leaves with g/2 on emission.
    overflow : str
        What an int32 sum does: ``wrap``, ``saturate``, or ``error`` (wrap and flag).
    """

    job: int
    children: tuple
    first_slot: int = 0
    n_slots: int = 64
    n: int | None = None
    kind: str = "thc"
    b: int = 4
    g: int = 30
    p: float = 1 / 32
    B: int = 1024
    w: int = 8
    C: int = 1024
    close: str = "all"
    n_min: int = 1
    total_bytes: int = 0
    p_q16: int = 0
    deadline: int = 0
    root: bool = True
    overflow: str = "saturate"

    def __post_init__(self):
        if not 0 <= self.job <= 255:
            raise ValueError(f"job must be 0 to 255, not {self.job!r}")
        if not 1 <= len(self.children) <= 32:
            raise ValueError(f"children must be 1 to 32, not {len(self.children)}")
        if not 1 <= self.n_slots <= 8192 - self.first_slot:
            raise ValueError(
                f"slots {self.first_slot} + {self.n_slots} must lie within 0 to 8191, "
                f"n_slots at least 1"
            )
        if self.kind not in ("thc", "int32"):
            raise ValueError(f"kind must be 'thc' or 'int32', not {self.kind!r}")
        if self.close not in CLOSE_RULES:
            raise ValueError(f"close must be one of {', '.join(CLOSE_RULES)}, not {self.close!r}")
        if self.overflow not in OVERFLOW_RULES:
            raise ValueError(
                f"overflow must be one of {', '.join(OVERFLOW_RULES)}, not {self.overflow!r}"
            )
        if self.w not in W_CODES:
            raise ValueError(f"w must be 8, 12 or 16, not {self.w!r}")
        if self.kind == "thc":
            if self.leaves * self.g >= 2**self.w:
                raise ValueError(f"n * g must be below 2**{self.w}, not {self.leaves} * {self.g}")
            partial = self.close != "all" or self.deadline
            if partial and self.g % 2:
                raise ValueError(f"g must be even where slots close in part, not {self.g}")

    @property
    def leaves(self):
        """Leaves below: `n`, or the number of children."""
        return len(self.children) if self.n is None else self.n

    @property
    def need_bytes(self):
        """Accepted bytes of all children that close the tensor's slots under ``bounded``."""
        total = len(self.children) * self.total_bytes
        return total - (total * self.p_q16 >> 16)


@dataclass(frozen=True)
class Config:
    """An aggregator: its own MAC and IPv4 address, ports, slots and jobs.

    Frames of worker i arrive and leave at port i, its worker side; port n_ports + i is its
    network side. Who may speak is the children table: a contribution is accepted only at the
    child's port, from its MAC and IPv4 address.
    """

    mac: int
    ip: int
    n_ports: int
    jobs: tuple
    udp_port: int = UDP_PORT

    def __post_init__(self):
        if not 1 <= self.n_ports <= 32:
            raise ValueError(f"n_ports must be 1 to 32, not {self.n_ports!r}")
        owner = {}
        for job in self.jobs:
            for slot in range(job.first_slot, job.first_slot + job.n_slots):
                if owner.setdefault(slot, job.job) != job.job:
                    raise ValueError(f"slot {slot} belongs to jobs {owner[slot]} and {job.job}")
            for child in job.children:
                if not 0 <= child.port < self.n_ports:
                    raise ValueError(f"port must be 0 to {self.n_ports - 1}, not {child.port!r}")
        if len({job.job for job in self.jobs}) != len(self.jobs):
            raise ValueError(f"jobs must differ, not {[job.job for job in self.jobs]}")


@dataclass
class Slot:
    """State of one (slot, set): all of it is replaced when a newer generation claims it."""

    gen: int
    job: Job
    claim: dict  # header of the first contribution
    opened: int  # time of the claim
    sums: np.ndarray
    closed: bool = False
    bitmap: int = 0
    leaves: int = 0
    flags: dict = field(default_factory=lambda: {"last": 0, "ecn": 0, "ovf": 0})
    exponents: tuple = (-128, -128)


class Aggregator:
    """Golden twin of the aggregator's circuit: frames in, frames out, counters by reason.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    counters : collections.Counter
        ``accepted``, ``claims``, ``abandoned`` (claimed while open), ``duplicates``, ``stale``,
        ``late``, ``retransmitted``, ``collisions``, ``partial``, ``overflow``, and drops:
        ``bad``, ``checksum``, ``length``, ``format``, ``owner``, ``config``.
    """

    def __init__(self, config):
        self.config = config
        self.jobs = {job.job: job for job in config.jobs}
        self.tables = {
            job.job: np.array(solve_table(job.b, job.g, job.p))
            for job in config.jobs
            if job.kind == "thc"
        }
        self.slots = {}
        self.counters = Counter()
        self.accepted_bytes = {}  # by job: (tensor, bytes) of the tensor that arrives

    def receive(self, frame, port, now, *, bad=False):
        """Take one frame; return what leaves because of it.

        frame : bytes, Ethernet without FCS. port : int, where it arrives. now : int, time.
        Returns a list of (port, frame). A frame that is not ours crosses to the other side.
        """
        other = (port + self.config.n_ports) % (2 * self.config.n_ports)
        job = self._job_of(frame)
        if job is None:
            return [(other, frame)]
        reason = self._refusal(frame, job, port, bad)
        if reason:
            self.counters[reason] += 1
            return []
        header = GRADNIC.parse(frame)
        if not job.first_slot <= header["slot"] < job.first_slot + job.n_slots:
            self.counters["collisions"] += 1
            collided = bytearray(frame)
            GRADNIC.coll.put(collided, 1)
            return [(other, bytes(collided))]
        return self._contribute(frame, header, job, now)

    def tick(self, now):
        """Close every open slot whose deadline has passed, lowest (slot, set) first."""
        out = []
        for key in sorted(self.slots):
            slot = self.slots[key]
            due = slot.job.deadline and now - slot.opened >= slot.job.deadline
            if due and not slot.closed and slot.claim["op"] != Op.NORM:
                out += self._close(slot)
        return out

    def _job_of(self, frame):
        """The job whose frame this is, or None for foreign traffic."""
        if not is_plain_udp(frame) or UDP.destination_port.get(frame) != self.config.udp_port:
            return None
        if len(frame) < GRADNIC.job.stop:
            return None
        return self.jobs.get(GRADNIC.job.get(frame))

    def _refusal(self, frame, job, port, bad):
        """Why a frame of ours is dropped before any slot is read, or None."""
        if bad:
            return "bad"
        total = IPV4.total_length.get(frame)
        payload = UDP.length.get(frame) - 30
        if UDP.length.get(frame) + 20 != total or len(frame) < 14 + total or payload < 0:
            return "length"
        if not checksums_hold(frame, 14 + total):
            return "checksum"
        header = GRADNIC.parse(frame)
        ops = (Op.THC_IDX, Op.THC_SUM, Op.NORM) if job.kind == "thc" else (Op.INT32,)
        if header["ver"] != VERSION or header["op"] not in set(Op):
            return "format"
        if header["set"] != header["gen"] & 1:
            return "format"
        source = header["src"]
        if header["ph"] or source >= len(job.children):
            return "owner"
        child = job.children[source]
        if (port, ETHERNET.source.get(frame), IPV4.source.get(frame)) != (
            child.port,
            child.mac,
            child.ip,
        ):
            return "owner"
        if header["op"] not in ops or not self._agrees(header, job):
            return "config"
        if payload != _payload_bytes(header["op"], header["elems"], job):
            return "length"
        return None

    @staticmethod
    def _agrees(header, job):
        """Whether the packet's parameters are those of the job's registers."""
        op, elems = header["op"], header["elems"]
        if op in (Op.INT32, Op.NORM):
            return 1 <= elems <= 256
        fields = {f.name: f.get(bytes((header["p0"], header["p1"])), origin=58)
                  for f in PARAMETERS[op]}  # fmt: skip
        if op == Op.THC_SUM:
            return elems == job.C and W_CODES.index(job.w) == fields["w"]
        p_code = P_CODES.index(job.p) if job.p in P_CODES else 7
        block = (job.B.bit_length() - 1) // 2 - 3
        expected = {"bits": job.b - 1, "p": p_code, "block": block, "g": job.g}
        return elems == job.C and fields == expected

    def _contribute(self, frame, header, job, now):
        key = (header["slot"], header["set"])
        slot = self.slots.get(key)
        age = 1 if slot is None else _int16(header["gen"] - slot.gen)
        if age < 0:
            self.counters["stale"] += 1
            return [self._stale(header, slot, job)]
        if age > 0:
            if slot is not None and not slot.closed:
                self.counters["abandoned"] += 1
            self.counters["claims"] += 1
            empty = np.zeros(_lanes(header, job), np.int64)
            slot = self.slots[key] = Slot(header["gen"], job, header, now, empty)
        elif any(header[f] != slot.claim[f] for f in _claimed(header)):
            self.counters["config"] += 1
            return []
        bit = 1 << header["src"]
        if slot.closed:
            self.counters["retransmitted" if slot.bitmap & bit else "late"] += 1
            return [self._result(slot, header["src"], retransmitted=True)]
        if slot.bitmap & bit:
            self.counters["duplicates"] += 1
            return []
        self._add(slot, frame, header, job)
        slot.bitmap |= bit
        self.counters["accepted"] += 1
        return self._closed_by(slot, header, job)

    def _add(self, slot, frame, header, job):
        """Add one contribution to the slot's sums, lane by lane."""
        op = header["op"]
        data = frame[HEAD_BYTES : HEAD_BYTES + _payload_bytes(op, header["elems"], job)]
        if op == Op.NORM:
            slot.sums = np.maximum(slot.sums, np.frombuffer(data, "<u4"))
        elif op == Op.INT32:
            first = slot.bitmap == 0
            values = np.frombuffer(data, "<i4").astype(np.int64)
            exact = values if first else slot.sums + values
            wrapped = (exact + 2**31) % 2**32 - 2**31
            if (exact != wrapped).any():
                self._overflow(slot)
            saturated = np.clip(exact, -(2**31), 2**31 - 1)
            slot.sums = saturated if job.overflow == "saturate" else wrapped
            own = tuple(_int8(header[name]) for name in ("p0", "p1"))
            slot.exponents = tuple(map(max, slot.exponents, own))
        else:
            width = job.b if op == Op.THC_IDX else job.w
            values = unpack(data, width, job.C)
            values = self.tables[job.job][values] if op == Op.THC_IDX else values.astype(np.int64)
            slot.sums = slot.sums + values
            if slot.sums.max() >= 2**job.w:
                self._overflow(slot)
                slot.sums = np.minimum(slot.sums, 2**job.w - 1)
        slot.leaves += header["p0"] if op in (Op.NORM, Op.THC_SUM) else 1
        ce = IPV4.ecn.get(frame) == 3
        for name, value in (("last", header["last"]), ("ecn", header["ecn"] | ce),
                            ("ovf", header["ovf"])):  # fmt: skip
            slot.flags[name] |= value

    def _overflow(self, slot):
        if not slot.flags["ovf"]:
            self.counters["overflow"] += 1
        slot.flags["ovf"] = 1

    def _closed_by(self, slot, header, job):
        """Results that leave because this contribution completed something."""
        count = slot.bitmap.bit_count()
        enough = self._tensor_is_enough(header, job)
        partial = job.close == "n_min" and count >= job.n_min and header["op"] != Op.NORM
        out = self._close(slot) if count == len(job.children) or partial else []
        if enough:
            for key in sorted(self.slots):
                other = self.slots[key]
                same = other.job is job and other.claim["tensor"] == header["tensor"]
                if same and not other.closed and other.claim["op"] != Op.NORM:
                    out += self._close(other)
        return out

    def _tensor_is_enough(self, header, job):
        """Count the tensor's accepted bytes; whether they close its open slots."""
        if job.close != "bounded" or header["op"] == Op.NORM:
            return False
        tensor, total = self.accepted_bytes.get(job.job, (header["tensor"], 0))
        total = total if tensor == header["tensor"] else 0
        total += _payload_bytes(header["op"], header["elems"], job)
        self.accepted_bytes[job.job] = (header["tensor"], total)
        return total >= job.need_bytes

    def _close(self, slot):
        slot.closed = True
        if slot.bitmap.bit_count() < len(slot.job.children):
            self.counters["partial"] += 1
        return [self._result(slot, child) for child in range(len(slot.job.children))]

    def _result(self, slot, child, *, retransmitted=False):
        """The unicast copy of a closed slot's result for one child: (port, frame)."""
        job, claim = slot.job, slot.claim
        part = slot.bitmap.bit_count() < len(job.children)
        header = {
            "op": Op.THC_SUM if claim["op"] == Op.THC_IDX else claim["op"],
            "retx": int(retransmitted),
            "part": int(part),
            "p0": slot.leaves,
            "arg": slot.bitmap,
            **slot.flags,
        }
        if claim["op"] == Op.NORM:
            payload = slot.sums.astype("<u4").tobytes()
        elif claim["op"] == Op.INT32:
            header["p0"], header["p1"] = (e & 0xFF for e in slot.exponents)
            payload = slot.sums.astype("<i4").tobytes()
        else:
            header["p1"] = W_CODES.index(job.w) << 6
            missing = (job.leaves - slot.leaves) * job.g // 2 if job.root else 0
            payload = pack(np.minimum(slot.sums + missing, 2**job.w - 1), job.w)
        return self._to_child(job, claim, child, header, payload)

    def _stale(self, header, slot, job):
        """Tell a sender that its generation is gone; ARG holds the one that the slot has."""
        answer = {"op": Op.CONTROL, "p0": STALE, "arg": slot.gen, "elems": 0}
        return self._to_child(job, header, header["src"], answer, b"")

    def _to_child(self, job, origin, child, header, payload):
        address = job.children[child]
        copied = ("set", "job", "gen", "lc", "slot", "tensor", "tree", "seq", "elems")
        fields = {f: origin[f] for f in copied}
        fields |= {"ph": 1, "imp": 1, "src": AGGREGATOR} | header
        tos = 8 * (7 - origin["lc"]) << 2 | IMPORTANT_ECT
        return address.port, _frame(self.config, address, tos, fields, payload)


def _frame(source, destination, tos, header, payload):
    """A gradnic frame between two holders of mac, ip and udp_port."""
    length = 30 + len(payload)
    ip = bytearray(
        IPV4.pack(
            version=4,
            ihl=5,
            tos=tos,
            total_length=20 + length,
            dont_fragment=1,
            ttl=64,
            protocol=17,
            source=source.ip,
            destination=destination.ip,
        )
    )
    IPV4.checksum.put(ip, ip_checksum(ip), origin=14)
    ethernet = ETHERNET.pack(destination=destination.mac, source=source.mac, ethertype=0x0800)
    udp = UDP.pack(
        source_port=source.udp_port, destination_port=destination.udp_port, length=length
    )
    return ethernet + bytes(ip) + udp + GRADNIC.pack(ver=VERSION, **header) + payload


def contribution(job, child, *, aggregator, op, gen, slot, tensor, seq, payload, arg=0, **flags):
    """The frame that child number `child` of `job` sends: what a worker's card puts on the wire.

    aggregator : Config, for its addresses. payload : bytes. arg : norm tag of THC packets.
    flags : other header fields, such as ``last=1`` or ``lc=3``.
    """
    source = job.children[child]
    elems = {Op.NORM: len(payload) // 4, Op.INT32: len(payload) // 4}.get(op, job.C)
    parameters = {}
    if op == Op.THC_IDX:
        p_code = P_CODES.index(job.p) if job.p in P_CODES else 7
        block = (job.B.bit_length() - 1) // 2 - 3
        parameters = {"p0": (job.b - 1) << 5 | p_code << 2 | block, "p1": job.g}
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
    return _frame(source, aggregator, tos, fields | parameters | flags, payload)


def _claimed(header):
    """Fields that every contribution to one slot must share with the first."""
    common = ("tensor", "seq", "elems", "op", "lc", "tree")
    return (*common, "arg") if header["op"] in (Op.THC_IDX, Op.THC_SUM) else common


def _lanes(header, job):
    return header["elems"] if header["op"] in (Op.NORM, Op.INT32) else job.C


def _payload_bytes(op, elems, job):
    """Payload bytes that `elems` elements of this kind take."""
    bits = {Op.THC_IDX: job.b, Op.THC_SUM: job.w}.get(op, 32)
    return elems * bits // 8


def _int16(value):
    return (value + 0x8000) % 0x10000 - 0x8000


def _int8(value):
    return (value + 0x80) % 0x100 - 0x80
