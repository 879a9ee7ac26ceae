"""Frames for the aggregator's benches: contributions, faults, attacks, foreign traffic."""

import numpy as np
from gradnic.models.aggregation.contribution import contribution
from gradnic.models.aggregation.jobs import Config, Job
from gradnic.models.aggregation.switchml import SwitchmlJob
from gradnic.models.frame.address import Address
from gradnic.models.frame.ipv4 import ones_complement_sum, udp_frame
from gradnic.models.thc.worker import pack

from gradnic.interface.formats import ETHERNET, GRADNIC, HEAD_BYTES, IPV4, UDP, UDP_PORT, Op
from gradnic.interface.switchml import PORT, PORT_MASK, SWITCHML, TYPE, VALUES

from ..frame import frames as makers

MAC, IP = 0x02AA00000000, 0x0A0000FE


def children(ports):
    """Addresses of workers at `ports`, each with a UDP port of its own."""
    return tuple(Address(p, 0x020000000100 + p, 0x0A000001 + p, 50000 + p) for p in ports)


def small_config(n_ports=2, **changes):
    """Three jobs on few slots: THC on all ports, INT32 with the ports in the other order, and
    SwitchML.

    changes : of the THC job.
    """
    ports = range(n_ports)
    thc = {"B": 64, "C": 128, "n_slots": 4, "kind": "thc"} | changes
    return Config(
        MAC,
        IP,
        n_ports,
        (
            Job(5, children(ports), first_slot=0, **thc),
            Job(200, children(reversed(ports)), first_slot=4, n_slots=2, kind="int32"),
            SwitchmlJob(77, children(ports), first_slot=6, n_slots=2, values=64),
        ),
        n_words=64,
    )


def payload_of(job, op, rng, n_words):
    """A random payload: indices, sums of one leaf, or `n_words` norms or int32."""
    if op == Op.THC_IDX:
        return pack(rng.integers(0, 1 << job.b, job.C), job.b)
    if op == Op.THC_SUM:
        return pack(rng.integers(0, job.g + 1, job.C), job.w)
    return rng.integers(0, 2**32, n_words, dtype=np.uint32).tobytes()


def sound(config, rng, *, job=None, child=None, slot=None, gen=None, op=None, **fields):
    """A contribution that is accepted where its slot is free; what is not given is random.

    A slot always holds the same kind of packet, so that contributions of children meet.
    """
    job = config.jobs[int(rng.integers(len(config.jobs)))] if job is None else job
    child = int(rng.integers(len(job.children))) if child is None else child
    slot = int(rng.integers(job.n_slots)) + job.first_slot if slot is None else slot
    if job.kind == "switchml":
        return switchml(config, rng, job, child, slot, **fields)
    if op is None:
        op = (Op.THC_IDX, Op.NORM, Op.THC_SUM)[slot % 3] if job.kind == "thc" else Op.INT32
    fields = {
        "payload": payload_of(job, op, rng, 1 + (37 * slot + 20) % config.n_words),
        "seq": slot,
        "tensor": 7,
        "arg": 0x1234,
    } | fields
    gen = int(rng.integers(0, 4)) if gen is None else gen
    return contribution(job, child, aggregator=config, op=op, gen=gen, slot=slot, **fields)


def switchml(config, rng, job, child, slot, **fields):
    """A SwitchML worker's packet; set, packet number, exponents and values random unless given."""
    corner = rng.random()
    values = rng.integers(-(2**31), 2**31, job.values) if corner < 0.8 else np.full(job.values, -1)
    payload = fields.pop("payload", values.astype(">i4").tobytes())
    head = {
        "type": TYPE,
        "size": VALUES[job.values],
        "job": job.job,
        "packet": int(rng.integers(2**32)),
        "set": int(rng.integers(2)),
        "slot": slot,
        "e0": int(rng.integers(-128, 128)),
        "e1": int(rng.integers(-128, 128)),
    } | fields
    worker = job.children[child]
    port = PORT | int(rng.integers(16))
    sender = (worker.mac, worker.ip, int(rng.integers(2**16)))
    return udp_frame(sender, (config.mac, config.ip, port), SWITCHML.pack(**head) + payload, 128)


def summed(frame):
    """`frame` with a UDP checksum where it had 0."""
    frame = bytearray(frame)
    stop = UDP.start + UDP.length.get(frame)
    pseudo = bytes(frame[26:34]) + bytes([0, 17]) + bytes(frame[38:40])
    total = 0xFFFF ^ ones_complement_sum(pseudo + bytes(frame[UDP.start : stop]))
    UDP.checksum.put(frame, total or 0xFFFF)
    return bytes(frame)


def marked(frame):
    """`frame` with a congestion mark."""
    frame = bytearray(frame)
    IPV4.ecn.put(frame, 3)
    return makers.refreshed(frame)


def faults(frame, rng):
    """{name: frame} of a contribution after an accident, and of what its sender may not say."""
    bad = makers.faults(frame, rng)
    bad |= {
        "trailer": frame + rng.bytes(int(rng.integers(1, 100))),
        "congested": marked(frame),
        "head alone": _resized(frame[: SWITCHML.stop if is_switchml(frame) else HEAD_BYTES]),
        "one byte more": _resized(frame + b"\0"),
        "one byte less": _resized(frame[:-1]),
    }
    return bad | attacks(frame, rng)


def attacks(frame, rng):
    """{name: frame} of a sender that claims to be another, or another job's."""
    bad = {}
    claims = _switchml_claims(rng) if is_switchml(frame) else _native_claims(frame, rng)
    for field, value in (
        *claims,
        (ETHERNET.source, ETHERNET.source.get(frame) ^ 1 << int(rng.integers(48))),
        (IPV4.source, IPV4.source.get(frame) ^ 1 << int(rng.integers(32))),
    ):
        wrong = bytearray(frame)
        field.put(wrong, value)
        bad[f"claims {field.name} {len(bad)}"] = makers.refreshed(wrong)
    return bad


def is_switchml(frame):
    """Whether a frame of one of the jobs is SwitchML's."""
    return UDP.destination_port.get(frame) & PORT_MASK == PORT


def _switchml_claims(rng):
    return (
        (SWITCHML.job, int(rng.choice([5, 77, 200]))),
        (SWITCHML.type, int(rng.integers(16))),
        (SWITCHML.size, int(rng.integers(8))),
        (SWITCHML.slot, int(rng.integers(0, 16))),
        (SWITCHML.slot, int(rng.integers(0, 16384))),
        (SWITCHML.slot, 8192 + int(rng.integers(0, 16))),
        (UDP.destination_port, int(rng.choice([PORT - 1, PORT + 16, PORT + 15]))),
    )


def _native_claims(frame, rng):
    return (
        (GRADNIC.job, int(rng.choice([5, 200]))),
        (GRADNIC.src, int(rng.choice([0, 1, 2, 31, 32, 33, 255]))),
        (GRADNIC.ph, 1),
        (GRADNIC.slot, int(rng.integers(0, 16))),
        (GRADNIC.slot, int(rng.integers(0, 8192))),
        (GRADNIC.gen, int(rng.integers(0, 65536)) & 0xFFFE | GRADNIC.set.get(frame)),
        (GRADNIC.elems, int(rng.integers(0, 300))),
        (GRADNIC.op, int(rng.integers(0, 6))),
        (GRADNIC.op, int(Op.CONTROL)),
        (GRADNIC.op, int(rng.integers(8, 14))),  # reserved
    )


def _resized(frame):
    frame = bytearray(frame)
    IPV4.total_length.put(frame, len(frame) - IPV4.start)
    UDP.length.put(frame, len(frame) - UDP.start)
    return makers.refreshed(frame)


def foreign(config, rng):
    """{name: frame} of traffic that is not any job's, whatever it looks like."""
    own = sound(config, rng, job=config.jobs[0])
    others = {
        "other port": own[:36] + (UDP_PORT - 1).to_bytes(2, "big") + own[38:],
        "other job": own[:44] + b"\x06" + own[45:],
        "cut before the job": own[:44],
    }
    # A server's answers whose bytes fit: by version, or type, and job they are ours.
    for job in config.jobs:
        answer = bytearray(sound(config, rng, job=job))
        IPV4.source.put(answer, 0x08080808)
        others[f"answer with job {job.job}"] = makers.refreshed(answer)
    others |= makers.replies(rng, PORT | int(rng.integers(16)))
    return makers.foreign_frames(rng) | {f"{name}, ours": f for name, f in others.items()}


def traffic(config, rng, n, *, share_bad=0.3, share_foreign=0.2):
    """Frames for all ports, {port: [(frame, bad mark)]}: about `n` each, every kind among them."""
    given = {}
    for port in range(2 * config.n_ports):
        frames = []
        while len(frames) < n:
            dice = rng.random()
            if dice < share_foreign:
                frames += list(foreign(config, rng).values())[int(rng.integers(0, 25)) :]
                continue
            job = config.jobs[int(rng.integers(len(config.jobs)))]
            here = [i for i, child in enumerate(job.children) if child.port == port]
            frame = sound(config, rng, job=job, child=here[0] if here else None)
            frame = summed(frame) if rng.random() < 0.3 else frame
            if dice < share_foreign + share_bad:
                kinds = list(faults(frame, rng).values())
                frames += [kinds[k] for k in rng.permutation(len(kinds))[:4]]
            else:
                frames.append(frame if rng.random() < 0.7 or not frames else frames[-1])
        given[port] = [(frame, bool(rng.random() < 0.03)) for frame in frames]
    return given
