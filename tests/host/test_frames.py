"""The host's end of host frames against the golden card's end, over links that lose and double."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from gradnic.models.frame.address import Address
from gradnic.models.offload.host_port import HostPort, carried, default_address, parse

from gradnic.host.driver import CardGone
from gradnic.host.framed_card import FramedCard
from gradnic.host.frames import FrameHost
from gradnic.interface.formats import GRADNIC_START
from gradnic.interface.job import Completion, Job
from gradnic.interface.job_card import HOSTED

CARD = Address(0, default_address(0x0A0B0C0D0E0F), 0xC6336400)
HOST = Address(0, 0x020000000001, 0xC6336401, 41000)
SIZE = 1 << 20
BUILD = {"beat_bytes": 64, "n_ports": 1, "n_ranks": 4, "n_rows": 512, "n_chunks": 64, "n_peers": 16}
CYCLE = 4e-9
GRID = np.arange(16, dtype=np.float32).reshape(4, 4)
IDLE = {HOSTED["status"].offset: HOSTED["status"].fields[1].mask}
JOB = Job(id=3, tensor=1, gen=1, elems=16, source=4096, result=4096)


class Wire:
    """A card's end behind a wire of its own time; `lose` is asked once a frame, either way."""

    def __init__(self, lose=lambda: False, *, twice=lambda: False, **options):
        self.memory, self.words, self.jobs, self.room = bytearray(SIZE), dict(IDLE), [], 16
        self.lose, self.twice, self.now, self.back, self.sent = lose, twice, 0.0, [], []
        self.port = HostPort(
            self.memory, [(4096, SIZE - 4096)], mac=CARD.mac, build=BUILD, post=self.post,
            read_register=lambda at: self.words.get(at, 0), write_register=self.write, **options,
        )  # fmt: skip
        self.written = []

    def write(self, address, word):
        self.written.append((address, word))
        self.words[address] = word

    def post(self, job):
        if len(self.jobs) >= self.room:
            return False
        self.jobs.append(job)
        return True

    def clock(self):
        return self.now

    def send(self, octets):
        self.sent.append(octets)
        self.now += len(octets) * 8e-11  # 100 Gb/s
        if self.lose():
            return
        frame = carried(HOST, CARD, octets)
        for _ in range(1 + self.twice()):
            self._come(self.port.frame(frame, round(self.now / CYCLE)))

    def _come(self, frames):
        self.back += [frame for frame in frames if not self.lose()]

    def receive(self, seconds):
        if not self.back:
            self.now += seconds
            self._come(self.port.tick(round(self.now / CYCLE)))
        return bytes(self.back.pop(0)[GRADNIC_START:]) if self.back else None

    def host(self, **options):
        return FrameHost(self.send, self.receive, clock=self.clock, **options)


def losses(share, seed):
    rng = np.random.default_rng(seed)
    return lambda: rng.random() < share


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0, 0.02, 0.3])
def test_all_comes_through_once_and_in_order(share, seed):
    wire = Wire(losses(share, seed), twice=losses(share, seed + 100), credits=16384)
    host = wire.host(patience=60.0)
    noise = np.random.default_rng(seed).integers(0, 256, 200_000, dtype=np.uint8)
    told = []
    for turn, (size, place) in enumerate(((4, 4096), (1408, 8192), (200_000, 16384), (68, 512000))):
        wanted = bytearray(wire.memory)
        wanted[place : place + size] = noise[:size].tobytes()
        host.store(place, noise[:size])
        host.write(0x20, turn)
        host.write(0x24, 100 + turn)
        told += [(0x20, turn), (0x24, 100 + turn)]
        assert host.read(0x24) == 100 + turn
        assert wire.written == told
        assert wire.memory == wanted
        assert host.load(place, size) == noise[:size].tobytes()
        job = Job(id=turn, tensor=1, gen=turn, elems=16, source=4096, result=4096)
        host.post(job)
        assert [one.id for one in wire.jobs] == list(range(turn + 1))
    for k in range(3):
        wire._come(wire.port.event(Completion(id=k, status=0), round(wire.now / CYCLE)))
    assert [host.completion(60.0).id for _ in range(3)] == [0, 1, 2]
    assert host.completion(0.0) is None
    host.flush()
    assert (host.n_resent > 0) == (share > 0)


@pytest.mark.parametrize("size", [0, 1 << 16])
def test_card_has_no_more_on_its_way_than_its_credits(size):
    wire = Wire(credits=4096)
    host, held = wire.host(), []
    wire.port.frame = lambda octets, now: held.append(octets) or []  # a card that stores nothing

    def much():
        host.store(4096, bytes(size))
        for k in range(100):
            host.write(4 * k, k)

    with pytest.raises(CardGone):
        much()
    asked = [one for one in held if parse(one)["session"] == host.session]
    first = dict.fromkeys(asked)  # sent again and again
    assert 4096 - 1472 < sum(-(-len(one) // 64) * 64 for one in first) <= 4096
    assert len(asked) > len(first)


@pytest.mark.parametrize("share", [0, 0.3])
def test_refusals_name_what_is_wrong_and_nothing_behind_them_is_done(share):
    wire = Wire(losses(share, 5))
    host = wire.host(patience=60.0)
    host.write(0x20, 4)
    host.store(0, bytes(64))  # not registered
    with pytest.raises(ValueError, match="WRITE of 64 bytes at 0x0 is not within the card's"):
        host.post(JOB)
    host.write(0x22, 5)
    host.write(0x24, 6)
    with pytest.raises(ValueError, match="WRITE_REG of 4 bytes at 0x22 must be a multiple of 64"):
        host.flush()
    host.write(0x28, 7)
    host.flush()
    assert (wire.written, wire.jobs) == ([(0x20, 4), (0x28, 7)], [])
    with pytest.raises(ValueError, match="address must be a multiple of 64, not 0x1004"):
        host.load(4100, 4)
    with pytest.raises(ValueError, match="bytes must be a multiple of 4, not 6"):
        host.store(4096, bytes(6))
    with pytest.raises(ValueError, match="READ of 128 bytes at 0xfffc0 is not within"):
        host.load(SIZE - 64, 128)
    assert host.load(SIZE - 64, 64) == bytes(64)


@pytest.mark.parametrize(
    ("deed", "said"),
    [
        (lambda host: host.load(-64, 64), "address must be 0 to 281474976710655, not -64"),
        (lambda host: host.store(-64, bytes(64)), "address must be 0 to 281474976710655, not -64"),
        (
            lambda host: host.store(1 << 48, bytes(64)),
            "address must be 0 to 281474976710655, not 28",
        ),
        (lambda host: host.load(1 << 50, 4), "address must be 0 to 281474976710655, not 1125"),
        (
            lambda host: host.store((1 << 48) - 1472, bytes(2816)),
            "must end by 0x1000000000000, not 0x1000000000540",
        ),
        (lambda host: host.load(4096, -4), "bytes must be 0 to 281474976710656, not -4"),
        (lambda host: host.load(4096.0, 4), "address must be 0 to 281474976710655, not 4096.0"),
        (lambda host: host.read(1 << 48), "address must be 0 to 281474976710655, not 28"),
        (lambda host: host.write(0x20, -1), "word must be 0 to 4294967295, not -1"),
        (lambda host: host.write(0x20, 1 << 32), "word must be 0 to 4294967295, not 4294967296"),
        (lambda host: host.write(0x20, 1.0), "word must be 0 to 4294967295, not 1.0"),
        (lambda host: host.store(4096, GRID.T), "must be bytes or a C-contiguous buffer, not one"),
        (lambda host: host.store(4096, GRID[:, ::2]), "bytes or a C-contiguous buffer, not one w"),
        (lambda host: host.store(4096, [1, 2]), "bytes or a C-contiguous buffer, not list"),
        (lambda host: host.write(-4, 1), "address must be 0 to 281474976710655, not -4"),
    ],
)
def test_an_address_that_no_frame_can_name_is_refused_before_anything_is_asked(deed, said):
    wire = Wire()
    host = wire.host()
    n_sent = len(wire.sent)
    with pytest.raises(ValueError, match=said):
        deed(host)
    assert len(wire.sent) == n_sent
    host.store(4096, bytes(range(64)))
    assert host.load(4096, 64) == bytes(range(64))
    host.write(0x20, 5)
    assert host.read(0x20) == 5
    host.flush()


@pytest.mark.parametrize("share", [0, 0.3])
def test_a_full_queue_is_waited_for_and_a_job_is_posted_once(share):
    wire = Wire(losses(share, 7), twice=lambda: True)
    host, wire.room = wire.host(patience=60.0), 0
    receive = wire.receive

    def soon(seconds):  # room comes between two copies of the request
        wire.room += len(wire.sent) > 6
        return receive(seconds)

    host._receive = soon
    host.post(JOB, timeout=100.0)
    host.write(0x20, 1)
    assert host.read(0x20) == 1
    assert wire.jobs == [JOB]
    host._receive, wire.room = receive, 1
    with pytest.raises(TimeoutError, match=r"the card's queue is full for 1.0 s"):
        host.post(replace(JOB, id=9), timeout=1.0)
    wire.room = 2
    host.flush()
    assert [job.id for job in wire.jobs] == [JOB.id, 9]


def test_what_a_host_before_left_is_nobodys():
    wire = Wire()
    wire._come(wire.port.event(Completion(id=1, status=0)))
    card = FramedCard(wire.host())
    assert card.completion(0.1) is None
    for id in (2, 3):
        wire._come(wire.port.event(Completion(id=id, status=0)))
    wire.back, told = [], wire.port.waiting
    card.link._open()  # as after a refusal: what waits is told again
    assert [card.completion(1.0).id for _ in range(2)] == [2, 3]
    assert not told


def test_memory_that_fails_is_an_error():
    class Broken:
        def read(self, address, n_bytes):
            return None

        def write(self, address, octets):
            return False

    wire = Wire()
    wire.port.memory = Broken()
    host = wire.host()
    host.store(4096, bytes(64))
    with pytest.raises(OSError, match="WRITE of 64 bytes at 0x1000: memory answers with an error"):
        host.flush()
    with pytest.raises(OSError, match="memory"):
        host.load(4096, 64)
    with pytest.raises(OSError, match="READ at 0x1000: memory"):
        host.load(4096, 200_000)  # of several READs under way
    host.write(0x20, 1)
    host.flush()
    assert host.read(0x20) == 1


def test_memory_that_fails_is_an_error_though_its_ack_is_lost():
    class Deaf(Wire):
        def _come(self, frames):
            super()._come([f for f in frames if (parse(f)["kind"], parse(f)["status"]) != (5, 3)])

    wire = Deaf()
    host = wire.host()
    sound, wire.port.memory.read = wire.port.memory.read, lambda address, n_bytes: None
    with pytest.raises(OSError, match="READ at 0x1000: memory answers with an error"):
        host.load(4096, 64)
    wire.port.memory.read = sound
    host.store(4096, bytes(range(64)))
    assert host.load(4096, 64) == bytes(range(64))


def test_silence_and_other_hosts_end_a_session():
    wire = Wire()
    host = wire.host()
    wire.lose = lambda: True
    with pytest.raises(CardGone, match=r"the card is gone: nothing new in 2.0 s"):
        host.read(0x20)
    with pytest.raises(CardGone, match=r"no answer to HELLO in 0.5 s"):
        wire.host(patience=0.5)
    wire.lose = lambda: False
    other = wire.host()
    with pytest.raises(ConnectionAbortedError, match="another host"):
        host.completion(10.0)  # looks whether the card is there
    other.write(0x20, 3)
    assert other.read(0x20) == 3


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("listening", [False, True])
def test_a_process_that_stood_still_has_not_lost_its_card(lost, listening):
    """What waits for it then may begin with an EVENT; what was lost is asked for again."""
    wire = Wire()
    host = wire.host()
    wire._come(wire.port.event(Completion(id=3, status=0)))
    wire.lose = lambda: lost
    for k in range(20):
        host.write(4 * k, k)
    wire.lose = lambda: False
    receive = wire.receive

    def stopped(seconds):
        host._receive = receive
        wire.now += 100.0
        return receive(seconds)

    if listening:
        host._receive = stopped
    else:
        wire.now += 100.0  # at other work
    host.flush()
    assert wire.written == [(4 * k, k) for k in range(20)]
    assert host.completion(1.0).id == 3


class SlowWire(Wire):
    """Whose card's frames come `delay` seconds late."""

    delay = 0.0

    def __init__(self, **options):
        self.late = []
        super().__init__(**options)

    def _come(self, frames):
        self.late += [(self.now + self.delay, frame) for frame in frames]

    def receive(self, seconds):
        end = self.now + seconds
        if not self.late or self.late[0][0] > end:
            self.now = end
            self._come(self.port.tick(round(self.now / CYCLE)))
        if not self.late or self.late[0][0] > end:
            return None
        at, frame = self.late.pop(0)
        self.now = max(self.now, at)
        return bytes(frame[GRADNIC_START:])


@pytest.mark.parametrize("delays", [(0.0,), (0.004,), (0.1,), (0.4,), (0.0, 0.2), (0.0, 0.4)])
def test_a_slow_card_is_not_asked_again_and_again(delays):
    """One that takes longer than the timeout of 10 ms, from the start or later."""
    wire = SlowWire(credits=16384)
    wire.delay = delays[0]
    host = wire.host(patience=60.0)
    for wire.delay in delays:
        before = host.n_resent
        for _ in range(20):
            host.store(4096, bytes(64_000))
            host.flush()
        assert host.n_resent - before <= (0 if wire.delay < 0.01 else 100)  # of 920


@pytest.mark.parametrize("patience", [2.0, 60.0])
def test_lost_frames_are_not_a_slow_card(patience):
    took = []
    for seed in range(8):
        wire = Wire(losses(0.3, seed), credits=16384)
        host = wire.host(patience=patience)
        host.store(4096, bytes(200_000))
        host.load(4096, 200_000)
        for k in range(20):
            host.write(4 * k, k)
            assert host.read(4 * k) == k
        took.append(wire.now)
    assert sum(took) / len(took) < 2  # seconds; 1 where nobody waits longer than 10 ms


def test_numbers_wrap(monkeypatch):
    monkeypatch.setattr("secrets.randbits", lambda n: (1 << n) - 3)
    wire = Wire(losses(0.1, 3))
    host = wire.host(patience=60.0)
    for k in range(10):
        host.write(4 * k, k)
    assert [host.read(4 * k) for k in range(10)] == list(range(10))
    assert wire.written == [(4 * k, k) for k in range(10)]


def test_driver_of_jobs_speaks_through_frames():
    wire = Wire()
    card = FramedCard(wire.host())
    card.identify(mac=0x0A0B0C0D0E0F, ip=0x0A000001, node=2, tenant=7)
    card.allow_memory(0, 4096, 1 << 16)
    assert card.get("mac_high")["node"] == 2
    assert card.read("host_low") == 0x6E000000  # as it was found, not by the new own address
    assert card.get("host_high") == {"value": 0x0267, "chosen": 1}
    assert card.get("host") == {"events": 1}
    assert wire.words[card.map["source0_beats"].offset] == (1 << 16) // 64
    assert card.post(JOB)
    wire._come(wire.port.event(Completion(id=3, status=0)))
    assert card.completion(1.0) == Completion(id=3, status=0)
    assert card.completion() is None
    assert (card.n_bytes, card.n_ranks, card.n_rows) == (64, 4, 512)


@pytest.mark.parametrize("whole", [np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_numbers_may_be_numpys(whole):
    wire = Wire()
    host = wire.host()
    host.store(whole(4096), GRID)
    assert host.load(whole(4096), whole(64)) == GRID.tobytes()
    host.write(whole(0x20), whole(7))
    assert (host.read(whole(0x20)), wire.written) == (7, [(0x20, 7)])
    host.store(4096, GRID[:0])
    host.flush()


def test_bad_frames_are_nothing():
    wire = Wire()
    host = wire.host()
    wire.back += itertools.starmap(bytes.__add__, [(bytes(42), bytes(k)) for k in (0, 21, 22, 90)])
    host.write(0x20, 1)
    assert host.read(0x20) == 1
