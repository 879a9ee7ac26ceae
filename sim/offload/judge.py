"""What an offload card must do with each frame of a round: numpy, many copies at once.

The rules are those of `gradnic.interface.offload.Drop` and docs/internals/transport.md, for the
rounds of `gradnic.sim.offload.breaker`: raw floats or INCEPTIONN, no allowance.
"""

from dataclasses import dataclass

import numpy as np
from gradnic.models.frame.ipv4 import gradnic_frame
from gradnic.models.offload.plan import CHECK

from gradnic.interface.formats import (
    ETHERNET,
    ETHERTYPE_IPV4,
    GRADNIC,
    HEAD_BYTES,
    IP_PROTOCOL_UDP,
    IPV4,
    NETWORK_OPS,
    UDP,
    VERSION,
    Op,
)
from gradnic.interface.offload import ANSWER_TOS, MAX_FRAME, Drop, Subtype

from .breaker import CHUNK, GROUPS, LEAVES, N_HERE, PACKET, PER_CHUNK, elems_of, sign

ACCEPTED = int(Drop.NONE)
FOREIGN, HEARD, ANSWERED = 10, 11, 12  # fates beside the reasons of `Drop`
RUN = 64  # packets that a PROBE may cover
UNITS, PACKET_UNITS = CHUNK // 16, PACKET // 16
N_NUMBERS = PER_CHUNK * len(N_HERE)
NEVER = 2**31


@dataclass
class Fates:
    """What becomes of the frames of each copy.

    fate : (copies, frames), `Drop` or one of the three above. group, number : of data packets in
    form, -1 elsewhere. leaves : contributions that a packet says it holds.
    taken : bytes of the values of each accepted packet, in order, copy after copy.
    answers, n_answers : (n, 80) bytes of the answers, in order, copy after copy; their lengths and
    the copy of each.
    """

    fate: np.ndarray
    group: np.ndarray
    number: np.ndarray
    leaves: np.ndarray
    taken: list
    answers: np.ndarray
    answer_lengths: np.ndarray
    answer_copies: np.ndarray


def _words(octets):
    return octets[:, ::2].astype(np.int64) << 8 | octets[:, 1::2]


def _sum16(words):
    total = words.sum(axis=1)
    for _ in range(3):
        total = (total & 0xFFFF) + (total >> 16)
    return total


def _checksums_hold(frames, udp):
    """IPv4 header sums; and UDP's where there are any. udp : its length field, in the frame."""
    holds = _sum16(_words(frames[:, IPV4.start : IPV4.stop])) == 0xFFFF
    summed = np.flatnonzero(UDP.checksum.get(frames) != 0)
    some, udp = frames[summed], udp[summed]
    place = np.arange(frames.shape[1])
    inside = (place >= UDP.start) & (place < (UDP.start + udp)[:, None])
    more = np.stack([udp, np.full(len(udp), IP_PROTOCOL_UDP)], axis=1)
    words = [_words(np.where(inside, some, 0)), _words(some[:, 26:34]), more]
    holds[summed] &= _sum16(np.concatenate(words, axis=1)) == 0xFFFF
    return holds


class _Fate:
    """Of each frame the first that was said of it."""

    def __init__(self, n):
        self.fate, self.undecided = np.full(n, ACCEPTED), np.ones(n, bool)

    def __call__(self, where, what):
        self.fate[self.undecided & where] = what
        self.undecided &= ~where


def _are_ours(flat, h, size, setting):
    """Whether heads are those of packets for this card, from somebody that it knows."""
    ours = (size >= GRADNIC.job.stop) & (ETHERNET.ethertype.get(flat) == ETHERTYPE_IPV4)
    ours &= (IPV4.version.get(flat) == 4) & (IPV4.ihl.get(flat) == 5)
    ours &= (IPV4.protocol.get(flat) == IP_PROTOCOL_UDP) & (IPV4.more_fragments.get(flat) == 0)
    ours &= (IPV4.fragment_offset.get(flat) == 0) & (h["job"] == setting.job)
    ours &= UDP.destination_port.get(flat) == setting.own.udp_port
    return (
        ours
        & (h["ver"] == VERSION)
        & np.isin(IPV4.source.get(flat), [x.ip for x in setting.others])
    )


def _neighbors(flat, h, setting):
    """Who sent each packet, as its head says: a number, or -1 if that does not fit together."""
    neighbor = np.full(len(flat), -1)
    for k, other in enumerate(setting.others):
        same = (h["src"] == other.node) & (ETHERNET.source.get(flat) == other.mac)
        neighbor[same & (IPV4.source.get(flat) == other.ip)] = k
    return neighbor


def _groups(neighbor, phase, chunk):
    """Which of `GROUPS` a packet belongs to, or -1."""
    group = np.full(len(chunk), -1)
    for k, (sender, its_phase, its_chunk) in enumerate(GROUPS):
        group[(neighbor == sender) & (phase == its_phase) & (chunk == its_chunk)] = k
    return group


def _gate(decide, whole, flat, h, size, marked, udp, setting):
    """What intake and gate drop; the neighbors of the others."""
    decide(~_are_ours(flat, h, size, setting), FOREIGN)
    decide((size > MAX_FRAME) | marked, Drop.BAD)
    total = IPV4.total_length.get(flat)
    decide((udp + 20 != total) | (size < 14 + total) | (udp < HEAD_BYTES - UDP.start), Drop.LENGTH)
    decide(~_checksums_hold(whole, udp), Drop.CHECKSUM)
    formed = np.isin(h["op"], [int(op) for op in NETWORK_OPS])
    decide(~formed | (h["set"] != h["gen"] & 1), Drop.FORMAT)
    neighbor = _neighbors(flat, h, setting)
    decide(neighbor < 0, Drop.OWNER)
    return neighbor


def judge(frames, lengths, marked, setting):
    """`Fates` of frames (copies, n, WIDTH) in order of arrival.

    lengths, marked : (copies, n), bytes, and whether the frame came marked bad.
    """
    copies, n, width = frames.shape
    whole, size = frames.reshape(-1, width), lengths.reshape(-1)
    flat = np.asfortranarray(whole[:, :HEAD_BYTES])  # a field is a few columns
    h = {f.name: f.get(flat) for f in GRADNIC}
    decide = _Fate(len(flat))
    fate, undecided = decide.fate, decide.undecided  # as they come to be

    udp = UDP.length.get(flat)
    neighbor = _gate(decide, whole, flat, h, size, marked.reshape(-1), udp, setting)

    came = undecided.copy()  # to the receiver
    is_data = h["op"] != Op.CONTROL
    is_probe = ~is_data & (h["p0"] & 15 == Subtype.PROBE)
    mine = (h["tensor"] == setting.tensor) & (h["gen"] == setting.gen)
    decide(~is_data & ~is_probe & mine, HEARD)
    wanted = setting.parameters(0)
    right = h["op"] == wanted["op"]
    if setting.codec:
        right &= (h["p0"] == wanted["p0"]) & (h["p1"] == wanted["p1"]) & (udp > 30)
    else:
        right &= (udp - 30 == 4 * h["elems"]) & (h["elems"] != 0)
    right &= h["tree"] == 0
    decide(~is_probe & ~mine, Drop.NOT_READY)
    decide(is_data & ~right, Drop.CONFIG)
    older = (setting.last_gen - h["gen"]) % 2**16 < 2**15
    stale = undecided & ~mine & (h["tensor"] == setting.last_tensor) & older
    refused = undecided & ~mine & ~stale
    decide(~mine & ~stale, Drop.NOT_READY)
    decide(stale, ANSWERED)

    units = np.where(is_data, UNITS, PER_CHUNK)
    chunk, within = np.divmod(h["seq"], units)
    within, rest = np.where(is_data, np.divmod(within, PACKET_UNITS), (within, 0 * within))
    here = np.array([*N_HERE, 0])[np.minimum(chunk, len(N_HERE))]
    group = _groups(neighbor, h["ph"], chunk)
    known = (group >= 0) & (within < here)
    number = np.where(known, chunk * PER_CHUNK + within, -1)
    decide(is_probe & ~(known & (h["elems"] > 0) & (h["elems"] <= RUN)), Drop.CONFIG)
    decide(is_probe & (within + h["elems"] > here), Drop.CONFIG)
    probes = undecided & is_probe
    decide(probes, ANSWERED)
    other_flow = (h["ph"] == 0) & (h["slot"] != chunk)
    decide(~known | (rest != 0) | other_flow, Drop.CONFIG)
    decide(h["elems"] != np.array([*map(elems_of, range(N_NUMBERS)), 0])[number], Drop.LENGTH)
    most = np.where(h["ph"] == 1, 255, np.array([*LEAVES, 0])[neighbor])
    leaves = h["arg"] >> 20
    decide((leaves == 0) | (leaves > most) | (h["arg"] & CHECK != 0), Drop.CONFIG)

    at = np.flatnonzero(undecided)
    values = {
        k: setting.decode(whole[k, HEAD_BYTES : UDP.start + udp[k]].tobytes(), int(h["elems"][k]))
        for k in at.tolist()
    }
    unsound = [k for k, octets in values.items() if octets is None]
    fate[unsound], undecided[unsound] = Drop.CODEC, False

    # the first of each packet is taken
    at = np.flatnonzero(undecided)
    key = (at // n * len(GROUPS) + group[at]) * N_NUMBERS + number[at]
    fate[at] = Drop.DUPLICATE
    _, first = np.unique(key, return_index=True)
    fate[at[first]] = ACCEPTED
    closed = np.full(copies * len(GROUPS) * N_NUMBERS, NEVER)
    closed[key[first]] = at[first]
    closed = closed.reshape(copies, len(GROUPS), N_NUMBERS)
    answers = _answers(
        flat, h, setting, neighbor, came, stale, refused, probes, group, number, closed, n
    )
    taken = [values[k] for k in np.flatnonzero(fate == ACCEPTED).tolist()]
    shape = copies, n
    return Fates(
        fate.reshape(shape), group.reshape(shape), number.reshape(shape), leaves.reshape(shape),
        taken, *answers,
    )  # fmt: skip


def _answers(flat, h, setting, neighbor, came, stale, refused, probes, group, number, closed, n):
    at = np.flatnonzero(stale | refused | probes)
    asked = {name: values[at] for name, values in h.items()}
    subtype = np.where(refused[at], Subtype.NOT_READY, Subtype.STOP)
    first = np.where(probes[at], number[at], 0)
    count = np.where(probes[at], asked["elems"], 0)
    places = first[:, None] + np.arange(PER_CHUNK)
    here = closed[at[:, None] // n, group[at][:, None], np.minimum(places, N_NUMBERS - 1)]
    inside = np.arange(PER_CHUNK) < count[:, None]
    is_closed = inside & (here < at[:, None])
    bitmaps = probes[at] & (is_closed != inside).any(axis=1)
    subtype[bitmaps] = Subtype.BITMAP
    low = asked["seq"] & 7
    bits = np.zeros((len(at), 24), bool)
    bits[np.arange(24) < low[:, None]] = True
    rows, columns = np.nonzero(is_closed)
    bits[rows, columns + low[rows]] = True
    n_bits = np.where(bitmaps, count + low, 0)
    body = -(-n_bits // 8)
    udp = 30 + body
    share = _shares(flat, came, neighbor, at, n)

    out = np.zeros((len(at), 80), np.uint8)
    blank = gradnic_frame(setting.own, setting.own, ANSWER_TOS, {}, b"")
    out[:, :HEAD_BYTES] = np.frombuffer(blank, np.uint8)
    others = [
        np.array([getattr(o, name) for o in setting.others])[neighbor[at]] for name in ("mac", "ip")
    ]
    ETHERNET.destination.put(out, others[0])
    IPV4.destination.put(out, others[1])
    UDP.length.put(out, udp)
    IPV4.total_length.put(out, udp + 20)
    UDP.source_port.put(out, UDP.source_port.get(flat[at]))
    answer = {name: asked[name] for name in ("ph", "slot", "tensor", "lc", "seq", "elems")}
    answer |= {name: asked[name] for name in ("gen", "set")}
    answer["arg"] = np.where(refused[at], setting.last_gen, asked["arg"])
    answer["ecn"] = probes[at] & (IPV4.ecn.get(flat[at]) == 3)
    answer["seq"] = np.where(bitmaps, asked["seq"] & ~7, asked["seq"])
    answer["elems"] = np.where(bitmaps, n_bits, asked["elems"])
    answer |= {"op": Op.CONTROL, "imp": 1, "p0": subtype, "p1": share, "job": setting.job}
    answer["src"] = setting.own.node
    for name, value in answer.items():
        GRADNIC[name].put(out, np.broadcast_to(value, len(at)))
    packed = np.packbits(bits, axis=1, bitorder="little")
    out[:, HEAD_BYTES : HEAD_BYTES + 3] = np.where(bitmaps[:, None], packed, 0)
    sign(out)
    lengths = HEAD_BYTES + body
    out[np.arange(80) >= lengths[:, None]] = 0
    return out, lengths, at // n


def _shares(flat, came, neighbor, at, n):
    """Share of marked packets of each answer's neighbor since its last answer, in 1/256."""
    got = np.flatnonzero(came)
    line = got // n * 16 + neighbor[got]  # copy and neighbor
    order = np.lexsort((got, line))
    got, line = got[order], line[order]
    marked = np.cumsum(IPV4.ecn.get(flat[got]) == 3)
    count = np.arange(1, len(got) + 1)
    answered = np.isin(got, at)
    starts = np.r_[True, line[1:] != line[:-1]]
    # what stood behind the last answer, or the start of the line
    resets = starts.copy()
    resets[1:] |= answered[:-1]
    base = np.maximum.accumulate(np.where(resets, np.arange(len(got)), 0))
    was_marked = np.where(base > 0, marked[base - 1], 0)
    share = np.minimum((marked - was_marked) * 256 // (count - base), 255)
    result = np.zeros(len(flat), np.int64)
    result[got] = share
    return result[at]
