"""Host frames: the golden model against what docs/spec/wire.md says, frame by frame."""

import numpy as np
import pytest
from gradnic.models.frame.address import Address
from gradnic.models.frame.ipv4 import incremental_checksum
from gradnic.models.offload import host_port
from gradnic.models.offload.host_port import HostPort, parse, request
from scapy.layers import inet
from scapy.layers.l2 import Ether

from gradnic.interface.formats import GRADNIC, IPV4, UDP
from gradnic.interface.host_frame import HELLO, Drop, Kind, Status
from gradnic.interface.job import Completion, Job

CARD = Address(0, host_port.default_address(0x0A0B0C0D0E0F), 0xC6336400, 29440)
HOST = Address(0, 0x020000000001, 0xC6336401, 41000)
SESSION = 0x5EED0001
REGIONS = ((4096, 131072), (1 << 18, 640))
JOB = Job(id=7, tensor=3, gen=1, elems=64, source=4096, result=8192)
ENDED = Completion(id=7, status=0, leaves_least=2, leaves_most=2, cycles=1234)


class Card:
    """A model card with memory, registers, and room for two jobs."""

    def __init__(self, **options):
        self.memory = np.zeros(1 << 19, np.uint8)
        self.words, self.jobs, self.taken = {}, [], 0
        self.port = HostPort(
            options.pop("memory", self.memory), REGIONS, mac=CARD.mac,
            read_register=lambda at: self.words.get(at, 0),
            write_register=self.words.__setitem__, post=self.post, take=self.take,
            build={"beat_bytes": 64, "n_ports": 1}, **options,
        )  # fmt: skip

    def post(self, job):
        if len(self.jobs) == 2:
            return False
        self.jobs.append(job)
        return True

    def take(self):
        self.taken += 1

    def ask(self, kind, payload=b"", **fields):
        """Answers, parsed."""
        fields = {"session": SESSION} | fields
        return self.hear(request(CARD, HOST, kind, payload, **fields))

    def hear(self, frame, **how):
        return [parse(answer) for answer in self.port.frame(frame, **how)]


@pytest.fixture
def card():
    one = Card()
    one.ask(Kind.HELLO)
    return one


def noise(n):
    return np.random.default_rng(n).integers(0, 256, n, np.uint8).tobytes()


def acked(answers):
    (answer,) = answers
    assert answer["kind"] == Kind.ACK
    return answer["status"], answer["next"]


def test_gradient_in_job_result_out(card):
    octets = noise(1408)
    assert card.ask(Kind.WRITE, octets, seq=1, address=4096) == []
    assert acked(card.ask(Kind.POST, JOB.pack(), seq=2)) == (Status.DONE, 3)
    assert card.jobs == [JOB]
    (told,) = map(parse, card.port.event(ENDED))
    assert told["kind"] == Kind.EVENT
    assert Completion.parse(told["payload"]) == ENDED
    assert card.ask(Kind.ACK, seq=told["seq"]) == []
    assert card.taken == 1
    (data,) = card.ask(Kind.READ, seq=3, address=4096, elems=1408)
    assert (data["kind"], data["seq"], data["session"]) == (Kind.DATA, 3, SESSION)
    assert data["payload"] == octets
    assert data["elems"] == 1408


def test_answers_go_back_by_the_same_way(card):
    (answer,) = card.port.frame(request(CARD, HOST, Kind.READ_REG, seq=1, session=SESSION,
                                        address=16, elems=4))  # fmt: skip
    head = IPV4.parse(answer)
    assert answer[:6] == HOST.mac.to_bytes(6, "big")
    assert answer[6:12] == CARD.mac.to_bytes(6, "big")
    assert (head["source"], head["destination"]) == (CARD.ip, HOST.ip)
    assert (UDP.source_port.get(answer), UDP.destination_port.get(answer)) == (29440, 41000)


def test_hello_tells_what_the_card_is_and_takes_the_last_ones_place(card):
    (told,) = card.ask(Kind.HELLO, session=9, seq=70, elems=1472)
    build = HELLO.parse(told["payload"])
    assert (build["beat_bytes"], build["payload"], build["source1_bytes"]) == (64, 1472, 640)
    assert told["session"] == 9
    assert told["seq"] == 70
    (other,) = card.ask(Kind.READ, seq=1, address=4096, elems=64)
    assert (other["status"], other["seq"], other["next"]) == (Status.STRANGER, 1, 0)
    assert card.ask(Kind.ACK) == []
    assert card.port.strangers == 2
    (data,) = card.ask(Kind.READ, session=9, seq=71, address=4096, elems=64)
    assert data["payload"] == bytes(64)
    card.ask(Kind.HELLO, session=9, seq=70, elems=1472)  # a late copy opens nothing
    assert card.ask(Kind.READ, session=9, seq=72, address=4096, elems=64)[0]["kind"] == Kind.DATA


def test_without_a_session_nothing_is_done():
    card = Card()
    (answer,) = card.ask(Kind.WRITE, bytes(64), seq=0, session=0, address=4096)
    assert answer["status"] == Status.STRANGER
    assert card.port.event(ENDED) == []
    assert [x["kind"] for x in card.ask(Kind.HELLO)] == [Kind.HELLO, Kind.EVENT]


def test_a_read_of_65535_bytes_comes_in_pieces(card):
    octets = noise(65536)
    card.memory[4096 : 4096 + 65536] = np.frombuffer(octets, np.uint8)
    card.ask(Kind.HELLO, session=1, elems=1500)
    pieces = card.ask(Kind.READ, session=1, seq=1, address=4096, elems=65535)
    assert len(pieces) == -(-65536 // 1472)
    assert b"".join(piece["payload"] for piece in pieces) == octets
    assert [piece["address"] for piece in pieces] == list(range(4096, 4096 + 65536, 1472))
    assert {piece["status"] for piece in pieces} == {0}


@pytest.mark.parametrize(
    ("kind", "address", "n", "status"),
    [
        (Kind.WRITE, 4096 + 32, 64, Status.UNALIGNED), (Kind.READ, 4100, 64, Status.UNALIGNED),
        (Kind.WRITE_REG, 2, 4, Status.UNALIGNED), (Kind.READ_REG, 1, 4, Status.UNALIGNED),
        (Kind.WRITE, 4096 - 64, 64, Status.OUTSIDE), (Kind.WRITE, 4096 - 64, 128, Status.OUTSIDE),
        (Kind.WRITE, 4096 + 131008, 68, Status.OUTSIDE), (Kind.WRITE, 0, 64, Status.OUTSIDE),
        (Kind.READ, (1 << 18) + 576, 65, Status.OUTSIDE),
        (Kind.READ, 1 << 47, 64, Status.OUTSIDE), (Kind.READ, (1 << 32) + 4096, 64, Status.OUTSIDE),
        (Kind.WRITE_REG, 1020, 8, Status.OUTSIDE), (Kind.READ_REG, 1 << 20, 4, Status.OUTSIDE),
        (Kind.DATA, 4096, 64, Status.UNKNOWN), (Kind.EVENT, 0, 0, Status.UNKNOWN),
        (9, 0, 0, Status.UNKNOWN), (255, 4096, 64, Status.UNKNOWN),
    ],
)  # fmt: skip
def test_a_refused_request_changes_nothing_and_keeps_its_number(card, kind, address, n, status):
    before = card.memory.copy()
    payload = b"" if kind in (Kind.READ, Kind.READ_REG) else b"\xa5" * n
    (answer,) = card.ask(kind, payload, seq=1, address=address, elems=n)
    assert (answer["kind"], answer["status"]) == (Kind.ACK, status)
    assert (answer["seq"], answer["next"]) == (1, 1)
    assert (card.memory == before).all()
    assert not card.words
    assert not card.jobs
    card.ask(Kind.WRITE, noise(64), seq=1, address=4096 + 131008)
    card.ask(Kind.WRITE, noise(640), seq=2, address=1 << 18)
    assert card.memory[4096 + 131008 : 4096 + 131072].tobytes() == noise(64)


def test_late_copies_and_gaps_do_nothing(card):
    card.ask(Kind.WRITE, b"\x01" * 64, seq=1, address=4096)
    for seq in (1, 0, 0xFFFFFF, 3, 2 + (1 << 22)):  # the expected one is 2
        assert acked(card.ask(Kind.WRITE, b"\x02" * 64, seq=seq, address=4096)) == (0, 2)
    assert (card.memory[4096:4160] == 1).all()
    assert (card.port.late, card.port.gaps) == (3, 2)
    card.ask(Kind.HELLO, session=8, seq=0xFFFFFE)
    card.ask(Kind.WRITE, b"\x03" * 64, session=8, seq=0xFFFFFF, address=4096)
    assert acked(card.ask(Kind.POST, JOB.pack(), session=8, seq=0)) == (0, 1)


def test_a_full_queue_refuses_and_loses_nothing(card):
    for seq in (1, 2):
        card.ask(Kind.POST, JOB.pack(), seq=seq)
    for _ in range(2):
        assert acked(card.ask(Kind.POST, JOB.pack(), seq=3)) == (Status.FULL, 3)
    card.jobs.pop()
    assert acked(card.ask(Kind.POST, JOB.pack(), seq=3)) == (Status.DONE, 4)


def test_writes_are_acknowledged_every_16_and_after_silence(card):
    answers = [card.ask(Kind.WRITE, bytes(64), seq=seq, address=4096) for seq in range(1, 19)]
    assert [len(answer) for answer in answers] == 15 * [0] + [1, 0, 0]
    assert acked(answers[15]) == (Status.DONE, 17)
    assert card.port.tick(63) == []
    assert acked(map(parse, card.port.tick(64))) == (Status.DONE, 19)
    assert card.port.tick(1000) == []


@pytest.mark.parametrize(("asked", "taken"), [(300, 300), (256, 256), (100, 256), (0, 256)])
def test_an_event_repeats_until_its_ack(asked, taken):
    card = Card(t_event=asked)
    card.ask(Kind.HELLO)
    told = card.port.event(ENDED, now=10)
    assert card.port.event(Completion(id=8, status=4), now=20) == []
    assert card.port.tick(9 + taken) == []
    assert card.port.tick(10 + taken) == told
    assert card.port.tick(9 + 2 * taken) == []
    assert card.port.tick(10 + 2 * taken) == told
    assert card.ask(Kind.ACK, seq=5) == []
    assert card.taken == 0
    (second,) = card.ask(Kind.ACK, seq=0)
    assert (Completion.parse(second["payload"]).id, second["seq"]) == (8, 1)
    assert card.ask(Kind.ACK, seq=0) == []
    assert card.taken == 1
    assert card.ask(Kind.ACK, seq=1) == []
    assert card.taken == 2
    assert card.port.tick(10_000) == []
    card.port.events = False
    assert card.port.event(ENDED) == []
    assert card.ask(Kind.ACK, seq=2) == []


def test_registers_are_words_of_the_map(card):
    words = noise(64)
    assert acked(card.ask(Kind.WRITE_REG, words, seq=1, address=0x40)) == (0, 2)
    assert card.words[0x44] == int.from_bytes(words[4:8], "big")
    assert len(card.words) == 16
    (data,) = card.ask(Kind.READ_REG, seq=2, address=0x44, elems=8)
    assert data["payload"] == words[4:12]
    assert data["address"] == 0x44


def test_errors_of_memory_are_told():
    card = Card(memory=bytearray(4096 + 64))
    card.ask(Kind.HELLO)
    assert acked(card.ask(Kind.WRITE, bytes(128), seq=1, address=4096)) == (Status.MEMORY, 1)
    data, ack = card.ask(Kind.READ, seq=1, address=4096, elems=128)
    assert (data["payload"], acked([ack])) == (bytes(128), (Status.MEMORY, 2))
    (word,) = card.ask(Kind.READ_REG, seq=2, elems=4)  # that ACK may have been lost
    assert (data["status"], word["status"]) == (Status.DONE, Status.MEMORY)
    card.ask(Kind.HELLO, session=2)
    (word,) = card.ask(Kind.READ_REG, seq=1, session=2, elems=4)
    assert word["status"] == Status.DONE


def broken(frame, byte, flip=0x01, *, sum_kept=False):
    frame = bytearray(frame)
    old = int.from_bytes(frame[byte & ~1 : (byte & ~1) + 2], "big")
    frame[byte] ^= flip
    if sum_kept:
        new = int.from_bytes(frame[byte & ~1 : (byte & ~1) + 2], "big")
        IPV4.checksum.put(frame, incremental_checksum(IPV4.checksum.get(frame), old, new))
    return bytes(frame)


def malformed():
    """{what: (frame, why)}; each but for its fault a WRITE that would be carried out."""
    good = request(CARD, HOST, Kind.WRITE, noise(128), seq=1, session=SESSION, address=4096)
    ask = lambda kind, payload=b"", **fields: request(  # noqa: E731
        CARD, HOST, kind, payload, **{"seq": 1, "session": SESSION, "address": 4096} | fields
    )
    summed = bytearray(good)
    UDP.checksum.put(summed, 0x1234)
    return {
        "ARP": (broken(good, 13, 0x06), Drop.FOREIGN),
        "options": (broken(good, 14, 0x03, sum_kept=True), Drop.FOREIGN),
        "fragment": (broken(good, 21, 0x02, sum_kept=True), Drop.FOREIGN),
        "TCP": (broken(good, 23, 0x17, sum_kept=True), Drop.FOREIGN),
        "port": (broken(good, 37), Drop.FOREIGN),
        "version": (broken(good, 42, 0x80), Drop.FOREIGN),
        "short of all": (good[:40], Drop.FOREIGN),
        "short of the head": (good[:60], Drop.LENGTH),
        "truncated": (good[:-1], Drop.LENGTH),
        "UDP length": (broken(good, 39), Drop.LENGTH),
        "IP length": (broken(good, 17, sum_kept=True), Drop.LENGTH),
        "IP checksum": (broken(good, 24), Drop.CHECKSUM),
        "UDP checksum": (bytes(summed), Drop.CHECKSUM),
        "op": (broken(good, 42, 0x02), Drop.FORMAT),
        "elems": (broken(good, 57, 0x40), Drop.FORMAT),
        "no words": (ask(Kind.WRITE, bytes(66)), Drop.FORMAT),
        "no bytes": (ask(Kind.WRITE), Drop.FORMAT),
        "too long": (ask(Kind.WRITE, bytes(8196)), Drop.FORMAT),
        "17 words": (ask(Kind.WRITE_REG, bytes(68), address=0), Drop.FORMAT),
        "half a word": (ask(Kind.READ_REG, address=0, elems=6), Drop.FORMAT),
        "reads nothing": (ask(Kind.READ), Drop.FORMAT),
        "reads and brings": (ask(Kind.READ, bytes(64)), Drop.FORMAT),
        "half a job": (ask(Kind.POST, bytes(36)), Drop.FORMAT),
        "HELLO with more": (ask(Kind.HELLO, bytes(4)), Drop.FORMAT),
    }


@pytest.mark.parametrize("what", malformed())
def test_malformed_frames_are_counted_and_answered_by_nothing(card, what):
    frame, why = malformed()[what]
    assert card.hear(frame) == []
    assert card.port.dropped == {why: 1}
    assert not card.memory.any()
    assert not card.words
    assert not card.jobs


def test_a_frame_marked_bad_is_dropped(card):
    good = request(CARD, HOST, Kind.WRITE, noise(128), seq=1, session=SESSION, address=4096)
    assert card.hear(good, bad=True) == []
    assert card.port.dropped == {Drop.BAD: 1}
    assert not card.memory.any()
    assert card.hear(good + bytes(6)) == []  # padding is nobody's
    assert card.memory[4096:4224].tobytes() == noise(128)


def test_summed_frames_are_taken(card):
    """Ordinary UDP sockets fill in the checksum."""
    good = request(CARD, HOST, Kind.WRITE, noise(128), seq=1, session=SESSION, address=4096)
    packet = Ether(good)
    del packet[inet.UDP].chksum, packet[inet.IP].chksum
    frame = bytes(packet)
    assert UDP.checksum.get(frame)
    assert GRADNIC.op.get(frame) == 14
    assert len(frame) == 64 + 128
    card.hear(frame)
    assert card.memory[4096:4224].tobytes() == noise(128)


def test_what_a_port_is_built_with_is_checked():
    with pytest.raises(ValueError, match="payload must be a multiple of 64 to 8192, not 100"):
        Card(payload=100)
    with pytest.raises(ValueError, match="credits must be a multiple of 64 to 4194240, not 0"):
        Card(credits=0)
