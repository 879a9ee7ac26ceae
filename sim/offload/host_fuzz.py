"""Host frames of all kinds, sound and broken, for the circuit and for its golden model.

Most requests have the SEQ that is expected; addresses lie in the regions, at their borders, or
anywhere; between them come frames of others, ARP and pings. The host and what is behind the
network's frames listen in 3 of 10 cycles; in every other round memory pauses
(`gradnic.sim.offload.pausing`). After many frames both must have the same memory, registers, jobs
and counters, and nothing may have changed outside of the regions. Frames of others must have passed
each way in order, those of the host with their marks and without a cycle's wait, and ARP and pings
been answered, bit for bit.

What is not watched: answers to host frames, as those of many depend on the circuit's time
(``tests/offload/test_host_circuit.py`` compares them frame by frame).
"""

from dataclasses import dataclass, field

import numpy as np
from gradnic.models.frame.ipv4 import ip_checksum
from gradnic.models.offload.host_neighbor import is_request, reply
from gradnic.models.offload.host_port import HostPort, Octets, request

from gradnic.interface.formats import ETHERNET, IPV4
from gradnic.interface.host_frame import Drop, Kind
from gradnic.interface.job import DESCRIPTOR
from gradnic.interface.neighbor import ARP, ARP_REQUEST, BROADCAST, ECHO_REQUEST, ICMP

from .host_bench import BROKEN, BUILD, CARD, HOST, MAP, N_KIB, REGIONS, Bench

STORE = 32768  # bytes of frames that the card has room for
A_ROUND = 2000  # host frames
SIZES = (4, 60, 64, 68, 128, 252, 1024)
PAUSED = 0.05  # of the input while memory pauses
DUTIES = {"i": 0.15, "o": 0.3, "from_network": 0.3}  # see `batch`: of an input, and of listeners
KINDS = (Kind.WRITE,) * 9 + (Kind.READ, Kind.POST, Kind.READ_REG, Kind.WRITE_REG) * 2 + (Kind.ACK,)


class Faulty(Octets):
    """Memory that has errors from `BROKEN` on, while it is ``broken``."""

    broken = False

    def read(self, address, n_bytes):
        fails = self.broken and address + n_bytes > BROKEN
        return None if fails else super().read(address, n_bytes)

    def write(self, address, octets):
        fails = self.broken and address + len(octets) > BROKEN
        return not fails and super().write(address, octets)


class ModelCard:
    """The golden model with memory, registers and a queue of jobs as `Bench` has them."""

    def __init__(self, n_bytes):
        self.memory = np.zeros(1024 * N_KIB, np.uint8)
        self.faulty = Faulty(self.memory)
        self.words, self.posted, self.full = {}, [], False
        self.n_bad = 0  # requests of ARP and echo that were marked bad
        self.port = HostPort(
            self.faulty, REGIONS, mac=CARD.mac, read_register=lambda at: self.words.get(at, 0),
            write_register=self.words.__setitem__, post=self._post,
            build=BUILD | {"beat_bytes": n_bytes}, credits=STORE,
            register_bytes=1 << MAP.address_width,
        )  # fmt: skip

    def _post(self, job):
        if not self.full:
            self.posted.append(DESCRIPTOR.parse(job.pack()))
        return not self.full

    def counts(self):
        """Counters as the circuit's."""
        port = self.port
        drops = {why.name.lower(): port.dropped[why] for why in Drop if why}
        drops["bad"] += self.n_bad
        return drops | {"late": port.late, "gaps": port.gaps, "strangers": port.strangers}


@dataclass
class Source:
    """Draws frames, of the session that is open and the SEQ that is expected for the most part."""

    rng: np.random.Generator
    session: int = 1
    seq: int = 0
    spare: list = field(default_factory=list)  # frames before, for late copies

    def hello(self):
        """A session begins."""
        rng = self.rng
        self.session, self.seq = int(rng.integers(1 << 32)), int(rng.integers(1 << 24))
        limit = int(rng.choice([0, 63, 64, 1472, 8192, 65535]))
        frame = request(CARD, HOST, Kind.HELLO, seq=self.seq, session=self.session, elems=limit)
        self.seq = (self.seq + 1) % (1 << 24)
        return frame

    def draw(self):
        """(frame, whether it is marked bad)."""
        rng = self.rng
        what = rng.random()
        if what < 0.01:
            frame = self.hello()
        elif self.spare and what < 0.06:
            frame = self.spare[int(rng.integers(len(self.spare)))]
        else:
            frame = self._request()
        self.spare = [*self.spare[-20:], frame]
        if rng.random() < 0.1:
            frame = self._broken(frame)
        return frame, bool(rng.random() < 0.02)

    def follow(self, port):
        """What `port` expects now is what comes next."""
        self.seq = port.next
        if port.session is not None:
            self.session = port.session

    def _request(self):
        rng = self.rng
        kind = rng.choice(KINDS) if rng.random() < 0.97 else rng.integers(256)
        size = int(rng.choice(SIZES))
        first, length = REGIONS[int(rng.random() < 0.2)]
        at = rng.random()
        if at < 0.8:
            address = first + 64 * int(rng.integers(max(1, (length - size) // 64)))
        elif at < 0.95:
            edge = first + int(rng.integers(2)) * length
            address = max(0, edge + 64 * int(rng.integers(-4, 4)) + 4 * int(rng.random() < 0.1))
        else:
            address = int(rng.integers(1 << int(rng.integers(1, 49))))
        if kind in (Kind.READ_REG, Kind.WRITE_REG):
            size = 4 * int(rng.integers(1, 4))
            address = 4 * int(rng.integers(17)) + (rng.random() < 0.05)
        size = 40 if kind == Kind.POST else size
        asks = kind in (Kind.READ, Kind.READ_REG, Kind.ACK, Kind.HELLO)
        payload = b"" if asks else rng.integers(0, 256, size, np.uint8).tobytes()
        seq = (self.seq + (int(rng.integers(-3, 4)) if rng.random() < 0.05 else 0)) % (1 << 24)
        session = self.session ^ int(rng.random() < 0.02)
        return request(CARD, HOST, int(kind), payload, seq=seq, session=session,
                       address=int(address), elems=size + 4 * int(rng.random() < 0.03))  # fmt: skip

    def _broken(self, frame):
        """Some bits are wrong, or bytes are missing or too many; some with a right IP checksum."""
        rng, frame = self.rng, bytearray(frame)
        what = int(rng.integers(4))
        if what == 0:
            return bytes(frame[: int(rng.integers(14, len(frame)))])
        if what == 1:
            return bytes(frame) + rng.integers(0, 256, int(rng.integers(1, 80)), np.uint8).tobytes()
        for _ in range(int(rng.integers(1, 3))):
            frame[int(rng.integers(12, 64))] ^= 1 << int(rng.integers(8))
        if what == 2:
            IPV4.checksum.put(frame, ip_checksum(frame[14:34]))
        return bytes(frame)


def ping(data):
    """An echo request to the card."""
    frame = bytearray(ICMP.stop) + data
    ETHERNET.destination.put(frame, CARD.mac)
    ETHERNET.source.put(frame, HOST.mac)
    for field_, value in (ECHO_REQUEST | {IPV4.destination: CARD.ip}).items():
        field_.put(frame, value)
    return bytes(frame)


def foreign(rng):
    """A frame of the host that is no host frame: to others, to all, ARP or echo, for the card or
    nearly so.
    """
    size, near = int(rng.integers(14, 300)), CARD.mac ^ 1 << int(rng.integers(48))
    frame = bytearray(rng.bytes(size))
    ETHERNET.destination.put(frame, (near, BROADCAST, CARD.mac)[int(rng.integers(3))])
    if rng.random() < 0.6 and size >= ICMP.stop:
        asks = ARP_REQUEST | {ARP.target_ip: CARD.ip}
        if rng.random() < 0.5:
            asks = ECHO_REQUEST | {IPV4.destination: CARD.ip}
        for field_, value in asks.items():
            field_.put(frame, value)
        if rng.random() < 0.3:
            frame[int(rng.integers(12, 42))] ^= 1 << int(rng.integers(8))
    return bytes(frame)


class Traffic:
    """What becomes of a host's frames, by the models."""

    def __init__(self, card: ModelCard):
        self.card, self.frames, self.bad = card, [], []
        self.passed, self.passed_bad, self.answers, self.n_bad = [], [], [], 0

    def add(self, frame, mark):
        self.frames.append(frame)
        self.bad.append(int(mark))
        if is_request(frame, CARD.mac, CARD.ip):
            self.n_bad += mark
            self.answers += [] if mark else [reply(frame, CARD.mac, CARD.ip)]
        elif ETHERNET.destination.get(frame) == CARD.mac:
            self.card.port.frame(frame, bad=mark)
        else:
            self.passed.append(frame)
            self.passed_bad.append(int(mark))


def play(bench: Bench, card: ModelCard, source: Source, n_frames: int) -> int:
    """`n_frames` to both, back to back, and others between them: so many. AssertionError where the
    two differ behind them.
    """
    rng, traffic = source.rng, Traffic(card)
    traffic.add(source.hello(), False)  # as `compare` has had a session of its own
    for _ in range(n_frames - 1):
        traffic.add(*source.draw())
        source.follow(card.port)
        if rng.random() < 0.3:
            traffic.add(foreign(rng), bool(rng.random() < 0.02))
    up, come = ([foreign(rng) for _ in range(n_frames // 4)] for _ in range(2))
    before = dict(bench.counts)
    stalls = DUTIES | ({"i": PAUSED} if bench.levels["pauses"] else {})
    run = bench.run(
        traffic.frames, bad=traffic.bad, stalls=stalls, others={"core_rx": up, "mac_rx": come}
    )
    card.n_bad += traffic.n_bad
    spoofs = [f for f in come if ETHERNET.destination.get(f) == CARD.mac]
    known, got = set(up), run.frames("o")
    network = run.unpack("core_tx")
    answers = [f for f in got if f not in known and IPV4.protocol.get(f) != 17]
    for what, is_so in {
        "a frame waited": bench.counts["stalled"] == before["stalled"],
        "frames to the network": run.frames("core_tx") == traffic.passed,
        "marks to the network": network["bad"][network["last"] == 1].tolist() == traffic.passed_bad,
        "frames from the network": run.frames("from_network") == [f for f in come
                                                                   if f not in spoofs],
        "frames to the host": [f for f in got if f in known] == up,
        "frames to the host address from the network": bench.counts["spoofed"]
        == before["spoofed"] + len(spoofs),
        "answers of ARP and echo": answers == traffic.answers,
    }.items():  # fmt: skip
        assert is_so, f"{what}: circuit and model differ"
    compare(bench, card)
    return len(traffic.frames) - n_frames + len(up) + len(come)


def compare(bench: Bench, card: ModelCard) -> None:
    """AssertionError unless memory, registers, jobs and counters are the same."""
    counts = {name: bench.counts[name] for name in card.counts()}
    assert bench.counts["overrun"] == 0, "frames were lost: the source is too fast"
    assert counts == card.counts(), f"counters: {counts}, not {card.counts()}"
    assert bench.posted == card.posted, "jobs: circuit and model differ"
    words = [card.words.get(at, 0) for at in range(0, 1 << MAP.address_width, 4)]
    assert bench.words() == words, "registers: circuit and model differ"
    assert (bench.memory() == card.memory).all(), "memory: circuit and model differ"
    inside = np.zeros(len(card.memory), bool)
    for first, n_bytes in REGIONS:
        inside[first : first + n_bytes] = True
    assert not card.memory[~inside].any(), "memory outside of the regions"


def fuzz(n_frames, *, n_bytes=64, seed=1, progress=None):
    """At least `n_frames` host frames, in rounds of `A_ROUND`; AssertionError at a difference.

    n_bytes : of a beat, 16, 32 or 64. progress : called with (frames done, frames in all).

    Returns {"frames", "foreign", "rounds", "n_bytes", "reasons"}; foreign : other frames beside.
    """
    bench, card = Bench(n_bytes), ModelCard(n_bytes)
    n_rounds, n_foreign = -(-n_frames // A_ROUND), 0
    for number in range(n_rounds):
        rng = np.random.default_rng((seed, number))
        card.full = bench.levels["full"] = int(rng.random() < 0.2)
        bench.levels["pauses"] = int(rng.integers(1, 1 << 32)) if number % 2 else 0
        try:
            n_foreign += play(bench, card, Source(rng), A_ROUND)
        except (AssertionError, RuntimeError) as error:
            raise AssertionError(f"seed {seed}, round {number}: {error}") from None
        bench.posted.clear()
        card.posted.clear()
        if progress:
            progress(min((number + 1) * A_ROUND, n_frames), n_frames)
    reasons = card.counts() | {name: bench.counts[name] for name in ("answered", "spoofed")}
    return {"frames": n_rounds * A_ROUND, "foreign": n_foreign, "rounds": n_rounds,
            "n_bytes": n_bytes, "reasons": reasons}  # fmt: skip
