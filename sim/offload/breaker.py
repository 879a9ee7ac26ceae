"""A round of an offload card, the frames that belong to it, and broken ones: numpy, in volume.

Frames are rows of `WIDTH` bytes, zeros behind their end; bytes from there on of longer ones are
zeros too, so that a length says the rest.
"""

from enum import IntEnum
from types import SimpleNamespace

import numpy as np
from gradnic.models import inceptionn
from gradnic.models.frame.ipv4 import gradnic_frame

from gradnic.interface.formats import ETHERNET, GRADNIC, HEAD_BYTES, IPV4, UDP, Op
from gradnic.interface.offload import MAX_FRAME, Subtype

WIDTH = 400
PACKET, CHUNK = 32, 496  # elements
N_ELEMS = CHUNK + 13 * PACKET + 12
PER_CHUNK = 16
N_HERE = (16, 14)  # packets of each chunk
LEAVES = (1, 3, 2)  # that each neighbor's contributions stand for, at most
# who sends what: (neighbor, on its way down, chunk), in the order of ranks
GROUPS = ((0, 0, 0), (1, 0, 0), (2, 0, 0), (1, 0, 1), (2, 0, 1), (0, 1, 1))
RUNS = ((0, 1, 0), (1, 1, 0), (2, 1, 0), (0, 0, 1), (1, 1, 1), (2, 1, 1))  # that the card sends
N_SENT = sum(N_HERE[chunk] for _, _, chunk in RUNS)  # packets
IS_DOWN = np.array([ph for _, ph, _ in GROUPS])
RANKS = np.array(
    [sum(g[1:] == (0, chunk) for g in GROUPS[:k]) for k, (_, _, chunk) in enumerate(GROUPS)]
)
FIRST = np.arange(len(N_HERE) * PER_CHUNK) % PER_CHUNK * PACKET
FIRST += np.arange(len(FIRST)) // PER_CHUNK * CHUNK  # element of each packet number
HELD_BACK = 2  # packets of each group that nobody breaks, so that no chunk is complete too soon


class Kind(IntEnum):
    """What was done to a frame."""

    FIELD = 0
    FIELDS = 1
    BYTES = 2
    CUT = 3
    GROWN = 4
    LENGTHS = 5  # both length fields, in agreement
    CLAIM = 6  # of another job, round, tensor, sender, place
    MARKED = 7  # bad by the MAC
    PAYLOAD = 8  # bytes behind the heads
    LONG = 9  # kilobytes


NAMES = ("one field", "several fields", "bytes of the heads", "cut", "grown", "both lengths",
         "another's", "marked bad", "bytes of the payload", "oversize")  # fmt: skip
_RUNS = np.array(
    [
        (8 * f.stop - f.lsb - f.width, f.width)
        for head in (ETHERNET, IPV4, UDP, GRADNIC)
        for f in head
    ]
)  # (first bit, width) of each field, most significant bit first
_CLAIMS = [
    GRADNIC[name] for name in ("job", "src", "gen", "tensor", "seq", "elems", "ph", "arg", "slot")
]


class Setting:
    """Addresses and numbers of one round, drawn by `rng`, and the frames that are right in it.

    Parameters
    ----------
    rng : numpy.random.Generator
    coded : bool
        Packets hold INCEPTIONN units, not raw floats.

    Members
    -------
    codec : dict or None
        Settings of `gradnic.models.inceptionn`.
    own, others : mac, ip, node, udp_port of the card and of its three neighbors.
    job, tensor, gen : int
    last_tensor, last_gen : int
        Of the round that is over.
    data : (frames, lengths, group) of all data packets, group after group of `GROUPS`.
    asks : (frames, lengths) of PROBEs and answers.
    stops : (frames, lengths) that end the runs which the card sends.
    """

    def __init__(self, rng, *, coded=False):
        self.codec, self._units = None, {}
        if coded:
            mode = ("strict", "paper")[int(rng.integers(2))]
            exponent, prescale = int(rng.integers(113, 127)), int(rng.integers(-3, 4))
            self.codec = {"mode": mode, "exponent": exponent, "prescale": prescale}
        self.job, self.tensor = int(rng.integers(256)), int(rng.integers(2**16))
        self.gen = int(rng.integers(2**16))
        self.last_gen = (self.gen - 1) % 2**16
        self.last_tensor = self.tensor if rng.random() < 0.5 else int(rng.integers(2**16))
        port = int(rng.integers(1024, 2**16))
        nodes = rng.choice(256, 4, replace=False)
        ips = rng.choice(2**32 - 1, 4, replace=False)
        self.own, *self.others = (
            SimpleNamespace(mac=0x020000000000 | int(ip), ip=int(ip), node=int(n), udp_port=port)
            for n, ip in zip(nodes, ips, strict=True)
        )
        data, group = [], []
        for k, (neighbor, ph, chunk) in enumerate(GROUPS):
            for q in range(N_HERE[chunk]):
                number = chunk * PER_CHUNK + q
                leaves = 6 if ph else LEAVES[neighbor]
                fields = {"ph": ph, "slot": chunk, **self.parameters(leaves)}
                fields |= {"seq": (chunk * CHUNK + q * PACKET) // 16, "elems": elems_of(number)}
                fields |= {"arg": leaves << 20}
                payload = self._payload(rng, fields["elems"])
                data.append(self._frame(neighbor, fields, payload))
                group.append(k)
        self.data = *_table(data), np.array(group)
        asks = []
        for neighbor, ph, chunk in GROUPS:
            n = N_HERE[chunk]
            for first, count in ((0, n), (3, 5), (n - 1, 1), (4, n - 4)):
                for subtype in (Subtype.PROBE, Subtype.PROBE, Subtype.PROBE, Subtype.STOP):
                    asks.append(self._ask(neighbor, subtype, ph, chunk, first, count, rng))
            for subtype in (Subtype.BITMAP, Subtype.NOT_READY):
                asks.append(self._ask(neighbor, subtype, ph, chunk, 0, n, rng))
        self.asks = _table(asks)
        self.stops = _table(
            [
                self._ask(neighbor, Subtype.STOP, ph, chunk, 0, N_HERE[chunk], rng)
                for neighbor, ph, chunk in RUNS
            ]
        )

    def parameters(self, leaves):
        """OP, P0 and P1 of a data packet."""
        if not self.codec:
            return {"op": Op.RAW, "p0": min(leaves, 255), "p1": 0}
        p0 = (self.codec["mode"] == "paper") << 7 | self.codec["exponent"]
        return {"op": Op.INC, "p0": p0, "p1": self.codec["prescale"] & 0xFF}

    def _payload(self, rng, elems):
        if not self.codec:
            return rng.bytes(4 * elems)
        floats = rng.standard_normal(elems) * 2.0 ** rng.integers(-14, 3, elems)
        return inceptionn.compress(floats.astype(np.float32), **self.codec)

    def decode(self, payload, elems):
        """Bytes of the floats in a payload, None if its unit is unsound."""
        if not self.codec:
            return payload
        key = payload, elems
        if key not in self._units:
            try:
                floats = inceptionn.decompress(payload, elems, **self.codec)
                self._units[key] = floats.astype("<f4").tobytes()
            except ValueError:
                self._units[key] = None
        return self._units[key]

    def _ask(self, neighbor, subtype, ph, chunk, first, count, rng):
        fields = {"op": Op.CONTROL, "p0": subtype, "ph": ph, "slot": chunk, "elems": count}
        fields |= {"seq": chunk * PER_CHUNK + first, "arg": int(rng.integers(2**32))}
        body = rng.bytes(2) if subtype == Subtype.BITMAP else b""
        return self._frame(neighbor, fields, body)

    def _frame(self, neighbor, fields, payload):
        sender = self.others[neighbor]
        head = {"job": self.job, "src": sender.node, "gen": self.gen, "set": self.gen & 1}
        head |= {"tensor": self.tensor, "imp": 1}
        return gradnic_frame(sender, self.own, 2, head | fields, payload)


def held_back(group):
    """Numbers of the data packets that come last, given the group of each."""
    numbers = np.arange(len(group))
    return np.concatenate([numbers[group == k][-HELD_BACK:] for k in range(len(GROUPS))])


def elems_of(number):
    """Elements of a packet."""
    chunk, q = divmod(number, PER_CHUNK)
    if q < N_HERE[chunk] - 1:
        return PACKET
    return (CHUNK, N_ELEMS - CHUNK)[chunk] - q * PACKET


def _table(frames):
    rows = np.zeros((len(frames), WIDTH), np.uint8)
    for row, frame in zip(rows, frames, strict=True):
        row[: len(frame)] = np.frombuffer(frame, np.uint8)
    return rows, np.array([len(frame) for frame in frames])


def sign(frames):
    """Write the IPv4 checksum that the rest of each header asks for."""
    words = frames[:, 14:34].reshape(-1, 10, 2).astype(np.int64) @ (256, 1)
    total = words.sum(axis=1) - words[:, 5]
    total = (total & 0xFFFF) + (total >> 16)
    total = 0xFFFF - ((total & 0xFFFF) + (total >> 16))
    frames[:, 24], frames[:, 25] = total >> 8, total & 0xFF


def breaks(rng, setting, n, *, long=0):
    """`n` broken frames of a round, and among them `long` that have kilobytes at the end.

    Returns (frames (n, WIDTH), lengths, kinds). Half have a right IPv4 checksum. Frames marked bad
    are right otherwise.
    """
    data, data_lengths, group = setting.data
    asks, ask_lengths = setting.asks
    open_ = np.setdiff1d(np.arange(len(group)), held_back(group))
    corpus = np.concatenate([data[open_], asks])
    corpus_lengths = np.concatenate([data_lengths[open_], ask_lengths])
    pick = rng.integers(len(corpus), size=n)
    frames, lengths = corpus[pick], corpus_lengths[pick]
    kinds = rng.integers(Kind.LONG, size=n)
    kinds[n - long :] = Kind.LONG
    signs = rng.random(n) < 0.5

    fields = np.flatnonzero(kinds <= Kind.FIELDS)
    times = np.where(kinds[fields] == Kind.FIELD, 1, rng.integers(2, 6, len(fields)))
    for k in range(5):
        _change(rng, frames, fields[times > k])
    rows = np.flatnonzero(kinds == Kind.BYTES)
    times = rng.integers(1, 9, len(rows))
    for k in range(8):
        some = rows[times > k]
        frames[some, rng.integers(HEAD_BYTES, size=len(some))] = rng.integers(256, size=len(some))
    rows = kinds == Kind.CUT
    lengths[rows] = rng.integers(1, lengths[rows] + 1)
    rows = np.flatnonzero(kinds == Kind.PAYLOAD)
    for _ in range(2):
        frames[rows, rng.integers(HEAD_BYTES, np.maximum(lengths[rows], HEAD_BYTES + 1))] = (
            rng.integers(256, size=len(rows))
        )
    rows = np.flatnonzero(kinds == Kind.GROWN)
    fill = rng.integers(256, size=len(rows), dtype=np.uint8)
    more = rng.integers(1, 201, len(rows))
    _grow(frames, lengths, rows, more, fill)
    _lengths(rng, frames, lengths, np.flatnonzero(kinds == Kind.LENGTHS))
    _claim(rng, frames, np.flatnonzero(kinds == Kind.CLAIM), setting)
    _lengthen(rng, frames, lengths, np.flatnonzero(kinds == Kind.LONG))
    frames[np.arange(WIDTH) >= lengths[:, None]] = 0
    whole = np.flatnonzero(signs & (lengths >= IPV4.stop))
    signed = frames[whole]
    sign(signed)
    frames[whole] = signed
    return frames, lengths, kinds


def _change(rng, frames, rows):
    """A field of each row: one bit of it, all of it, one more or less, or its least or most."""
    first, width = _RUNS[rng.integers(len(_RUNS), size=len(rows))].T
    at = first[:, None] // 8 + np.arange(8)
    word = frames[rows[:, None], at].view(">u8")[:, 0].astype(np.uint64)
    shift = (64 - first % 8 - width).astype(np.uint64)
    mask = np.uint64(2) ** width.astype(np.uint64) - np.uint64(1)
    old = word >> shift & mask
    how = rng.integers(5, size=len(rows))
    one = np.uint64(1)
    near = np.where(rng.random(len(rows)) < 0.5, old + one, old - one)
    bit = old ^ one << (rng.integers(2**30, size=len(rows)) % width).astype(np.uint64)
    noise = rng.integers(2**63, size=len(rows)).astype(np.uint64)
    new = np.choose(how, [bit, noise, near, np.zeros_like(old), mask]) & mask
    word = word & ~(mask << shift) | new << shift
    frames[rows[:, None], at] = word.astype(">u8")[:, None].view(np.uint8)


def _grow(frames, lengths, rows, more, fill):
    place = np.arange(WIDTH)
    inside = (place >= lengths[rows, None]) & (place < (lengths[rows] + more)[:, None])
    frames[rows] = np.where(inside, fill[:, None], frames[rows])
    lengths[rows] += more


def put_lengths(frames, rows, udp):
    """Write both length fields of some rows, in agreement, and the IPv4 checksum."""
    some = frames[rows]
    UDP.length.put(some, udp & 0xFFFF)
    IPV4.total_length.put(some, udp + 20 & 0xFFFF)
    sign(some)
    frames[rows] = some


def _lengths(rng, frames, lengths, rows):
    """Both lengths fields agree, with the frame in half of the cases."""
    n = len(rows)
    fits = rng.random(n) < 0.5
    more = np.where(fits, rng.integers(-80, 180, n), 0)
    more = np.maximum(more, 35 - lengths[rows])
    _grow(frames, lengths, rows, np.maximum(more, 0), np.zeros(n, np.uint8))
    lengths[rows] += np.minimum(more, 0)
    wrong = np.where(rng.random(n) < 0.5, rng.integers(0, 400, n), rng.integers(0, 2**16, n))
    put_lengths(frames, rows, np.where(fits, lengths[rows] - UDP.start, wrong))


def _claim(rng, frames, rows, setting):
    """Right in form: of another job, round, tensor, sender or place, often one nearby."""
    some, n = frames[rows], len(rows)
    which = rng.integers(len(_CLAIMS) + 2, size=n)
    for k, field in enumerate(_CLAIMS):
        mine = some[which == k]
        old, m = field.get(mine), int((which == k).sum())
        near = old + rng.integers(-4, 5, m)
        value = np.where(rng.random(m) < 0.7, near, rng.integers(2**32, size=m))
        field.put(mine, value & (1 << field.width) - 1)
        if field.name == "gen":
            GRADNIC.set.put(mine, GRADNIC.gen.get(mine) & 1)
        some[which == k] = mine
    mine = some[which == len(_CLAIMS)]  # another neighbor altogether
    others = [
        np.array([getattr(o, name) for o in setting.others]) for name in ("mac", "ip", "node")
    ]
    who = rng.integers(len(setting.others), size=len(mine))
    for field, values in zip((ETHERNET.source, IPV4.source, GRADNIC.src), others, strict=True):
        field.put(mine, values[who])
    sign(mine)
    some[which == len(_CLAIMS)] = mine
    mine = some[which > len(_CLAIMS)]  # the round that is over
    last = {"tensor": setting.last_tensor, "gen": setting.last_gen, "set": setting.last_gen & 1}
    for name, value in last.items():
        GRADNIC[name].put(mine, np.full(len(mine), value))
    some[which > len(_CLAIMS)] = mine
    frames[rows] = some


def _lengthen(rng, frames, lengths, rows):
    """Kilobytes: about as long as may be, longer, or by what a narrow length field forgets."""
    n = len(rows)
    how = rng.integers(3, size=n)
    sizes = [
        MAX_FRAME + rng.integers(-20, 21, n),
        rng.integers(9000, 21000, n),
        lengths[rows] + 2 ** rng.integers(12, 14, n),
    ]
    lengths[rows] = np.choose(how, sizes)
    agree = rng.random(n) < 0.7
    put_lengths(frames, rows[agree], lengths[rows[agree]] - UDP.start)
