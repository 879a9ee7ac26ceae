"""The card's end of host frames: what it does with each, and the frames that come back.

Golden twin of `gradnic.hdl.offload.host_port`. Format and rules: docs/spec/wire.md.

Requests are carried out in the order of SEQ, each at most once: a request that is not the next one
does nothing (go-back-n, as in HDLC's REJ recovery, ISO/IEC 13239), and one that ends with a status
other than `Status.DONE` may be sent again under its number.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradnic.interface.formats import (
    GRADNIC,
    GRADNIC_START,
    HEAD_BYTES,
    UDP_PORT,
)
from gradnic.interface.host_frame import (
    ALIGN,
    FORMAT,
    HELLO,
    LEAST_T_EVENT,
    MAX_PAYLOAD,
    OUI,
    T_EVENT,
    Drop,
    Kind,
    Status,
)
from gradnic.interface.job import Completion, Job

from ..frame.address import Address
from ..frame.ipv4 import gradnic_frame
from . import host_judge
from .host_framer import framed
from .host_judge import SEQS
from .host_parser import ends, parse, refusal
from .host_registers import read_words, write_words
from .host_writes import HostWrites


class Octets:
    """Memory as `HostPort` wants it, of anything with a buffer: a bytearray, an array of uint8.

    Addresses behind its end are answered with an error, as memory does.
    """

    def __init__(self, buffer: Any) -> None:
        self.view = memoryview(buffer).cast("B")

    def read(self, address: int, n_bytes: int) -> bytes | None:
        """The bytes, or None for an error."""
        if address + n_bytes > len(self.view):
            return None
        return bytes(self.view[address : address + n_bytes])

    def write(self, address: int, octets: bytes) -> bool:
        """Whether the bytes are stored."""
        if address + len(octets) > len(self.view):
            return False
        self.view[address : address + len(octets)] = octets
        return True


def default_address(mac: int) -> int:
    """The host address of a card whose own MAC address is `mac`, unless another is registered."""
    return OUI << 24 | mac & 0xFFFFFF


def request(
    card: Address, host: Address, kind: int, payload: bytes = b"", *, seq: int = 0,
    session: int = 0, address: int = 0, elems: int | None = None,
) -> bytes:  # fmt: skip
    """A frame from `host` to `card`; elems : None for the bytes of payload."""
    elems = len(payload) if elems is None else elems
    head = {"seq": seq, "elems": elems, "p0": int(kind), "arg": session}
    return framed(host, card, head, address, payload)


def carried(host: Address, card: Address, datagram: bytes) -> bytes:
    """The frame by which a NIC carries what a host sends by UDP."""
    head = GRADNIC.parse(datagram, origin=GRADNIC_START)
    payload = datagram[HEAD_BYTES - GRADNIC_START :]
    del head["ver"]
    frame = bytearray(gradnic_frame(host, card, 0, head, payload))
    frame[GRADNIC_START:HEAD_BYTES] = datagram[: HEAD_BYTES - GRADNIC_START]  # as it is
    return bytes(frame)


class HostPort:
    """A card's end. Time is in cycles, and only goes on where it is given.

    Parameters
    ----------
    memory : with ``read(address, n_bytes) -> bytes or None`` and ``write(address, octets) -> bool``
        As `Octets`, or a buffer, which is put into one. None and False: memory has an error.
    regions : sequence of (first byte, bytes), or a function that gives it
        Where READ and WRITE may go: the registered sources of the card; whole beats of it.
    read_register, write_register : function (address) -> int; (address, word)
        Words of 32 bits.
    post : function (Job) -> bool
        False: the queue is full, as of `gradnic.models.offload.job_card.JobCard.post`.
    mac : int
        The host address.
    build : dict
        Fields of `HELLO` that tell what the card was built with.
    take : function ()
        Called as an EVENT was acknowledged: its completion leaves the card's ring.
    payload, credits : int
        Bytes of payload, a multiple of 64 to `MAX_PAYLOAD`; bytes of frames that have room.
    register_bytes : int
        Bytes of the register map.
    udp_port, t_event : int
        Our port; cycles between copies of an EVENT.

    Attributes
    ----------
    events : bool
        Completions are told by EVENT; False: they wait for the register ``job.take``.
    dropped : Counter of `Drop`
    late, gaps, strangers : int
        Requests and ACKs that were copies; requests ahead of the one expected; frames of another
        session.
    session : int or None
    """

    def __init__(
        self,
        memory: Any,
        regions: Sequence[tuple[int, int]] | Callable,
        *,
        read_register: Callable[[int], int],
        write_register: Callable[[int, int], Any],
        post: Callable[[Job], bool],
        mac: int,
        build: Mapping[str, int] | None = None,
        take: Callable[[], Any] | None = None,
        payload: int = MAX_PAYLOAD,
        credits: int = 16384,
        register_bytes: int = 1024,
        udp_port: int = UDP_PORT,
        t_event: int = T_EVENT,
    ) -> None:
        if payload % ALIGN or not ALIGN <= payload <= MAX_PAYLOAD:
            raise ValueError(
                f"payload must be a multiple of {ALIGN} to {MAX_PAYLOAD}, not {payload!r}"
            )
        if credits % ALIGN or not 0 < credits <= 0xFFFF * ALIGN:
            raise ValueError(
                f"credits must be a multiple of {ALIGN} to {0xFFFF * ALIGN}, not {credits!r}"
            )
        self.memory = memory if hasattr(memory, "write") else Octets(memory)
        self.regions = regions if callable(regions) else lambda: regions
        self.read_register, self.write_register = read_register, write_register
        self.post, self.take = post, take or (lambda: None)
        self.mac, self.udp_port, self.build = mac, udp_port, dict(build or {})
        self.payload, self.credits, self.register_bytes = payload, credits, register_bytes
        self.t_event, self.events = max(t_event, LEAST_T_EVENT), True
        self.dropped: Counter = Counter()
        self.late = self.gaps = self.strangers = 0
        self.session: int | None = None
        self.peer = self.me = Address(0, 0, 0)
        self.unit = payload  # of this session's DATA
        self.writes = HostWrites()
        self.now = self.told_at = 0
        self.event_seq, self.spoiled = 0, False  # spoiled: a READ of this session had an error
        self.waiting: deque = deque()  # completions

    @property
    def next(self) -> int:
        """SEQ of the request that is to come."""
        return self.writes.next

    def frame(self, frame: bytes, now: int | None = None, *, bad: bool = False) -> list[bytes]:
        """The frames that come back for one to the host address; bad : its mark."""
        self._goes_on(now)
        why = refusal(frame, bad, self.udp_port)
        if why is not Drop.NONE:
            self.dropped[why] += 1
            return []
        asked = parse(frame)
        if asked["kind"] == Kind.HELLO:
            return self._hello(frame, asked)
        if self.session != asked["session"]:
            self.strangers += 1
            if asked["kind"] == Kind.ACK:
                return []
            me, peer = ends(frame, self.mac, self.udp_port)
            head = {"p0": int(Kind.ACK), "p1": int(Status.STRANGER), "seq": asked["seq"]}
            return [framed(me, peer, head, 0, b"")]
        if asked["kind"] == Kind.ACK:
            return self._heard(asked["seq"])
        apart = host_judge.apart(asked["seq"], self.next)
        if apart:
            self.late += apart < 0
            self.gaps += apart > 0
            return [self._ack()]
        return self._carry_out(asked)

    def tick(self, now: int) -> list[bytes]:
        """What time alone makes the card send: ACKs after silence, copies of an EVENT."""
        self._goes_on(now)
        frames = []
        if self.writes.due(self.now):
            frames.append(self._ack())
        if self.told_at + self.t_event <= self.now:
            frames += self._tell()
        return frames

    def event(self, completion: Completion, now: int | None = None) -> list[bytes]:
        """A job has ended: its EVENT, unless another one waits for its ACK."""
        self._goes_on(now)
        self.waiting.append(completion)
        return self._tell() if len(self.waiting) == 1 else []

    def _goes_on(self, now: int | None) -> None:
        self.now = self.now if now is None else now

    def _hello(self, frame: bytes, asked: dict[str, Any]) -> list[bytes]:
        again = self.session == asked["session"]
        if not again:
            self.session, self.event_seq = asked["session"], 0
            self.writes.opens((asked["seq"] + 1) % SEQS)
            self.writes.tell()  # nothing of the last session is acknowledged any more
            self.spoiled = False
        self.me, self.peer = ends(frame, self.mac, self.udp_port)
        wanted = asked["elems"] // ALIGN * ALIGN
        self.unit = min(wanted or self.payload, self.payload)
        regions = {}
        for k, (first, n_bytes) in enumerate(self.regions()):
            regions |= {f"source{k}": first, f"source{k}_bytes": n_bytes}
        hello = HELLO.pack(
            format=FORMAT, map=1, payload=self.unit, credits=self.credits, **self.build, **regions
        )
        answer = self._told(Kind.HELLO, asked["seq"], payload=hello)
        return [answer] if again else [answer, *self._tell()]

    def _heard(self, seq: int) -> list[bytes]:
        """An ACK: the EVENT of this number has arrived."""
        if not self.waiting or not self.events or seq != self.event_seq:
            self.late += 1
            return []
        self.waiting.popleft()
        self.take()
        self.event_seq = (self.event_seq + 1) % SEQS
        return self._tell()

    def _carry_out(self, asked: dict[str, Any]) -> list[bytes]:
        kind, address, n_bytes = asked["kind"], asked["address"], asked["elems"]
        status = host_judge.status(asked, self.regions(), self.register_bytes)
        answers = []
        if status is not Status.DONE:
            pass  # nothing is done
        elif kind == Kind.POST:
            if not self.post(Job.parse(asked["payload"])):
                status = Status.FULL
        elif kind == Kind.WRITE:
            if not self._write(address, asked["payload"]):
                status = Status.MEMORY
        elif kind == Kind.WRITE_REG:
            write_words(address, asked["payload"], self.write_register)
        elif kind == Kind.READ_REG:
            octets = read_words(address, n_bytes // 4, self.read_register)
            how = Status.MEMORY if self.spoiled else Status.DONE
            answers = [self._told(Kind.DATA, asked["seq"], address, octets, last=1, status=how)]
        else:
            self.writes.advance()  # done as soon as it is taken
            return self._read(asked["seq"], address, n_bytes)
        if status is not Status.DONE:
            return [self._ack(status, asked["seq"])]
        if kind == Kind.WRITE:
            return [self._ack()] if self.writes.due(self.now) else []
        self.writes.advance()
        return [self._ack()] if kind in (Kind.WRITE_REG, Kind.POST) else answers

    def _write(self, address: int, octets: bytes) -> bool:
        """Whether the bytes are stored; here that is known at once, and told if not."""
        self.writes.begin()
        self.writes.end(self.now, stored=self.memory.write(address, octets))
        stored = not self.writes.failed
        self.writes.forgive()
        return stored

    def _read(self, seq: int, address: int, n_bytes: int) -> list[bytes]:
        """DATA, whole words; zeros and an ACK behind them where memory has an error."""
        n_bytes = -(-n_bytes // 4) * 4
        answers, failed = [], False
        for at in range(0, n_bytes, self.unit):
            n = min(self.unit, n_bytes - at)
            octets = self.memory.read(address + at, n)
            failed |= octets is None
            last = int(at + n == n_bytes)
            answers.append(self._told(Kind.DATA, seq, address + at, octets or bytes(n), last=last))
        self.spoiled |= failed
        return [*answers, self._ack(Status.MEMORY, seq)] if failed else answers

    def _tell(self) -> list[bytes]:
        """The oldest completion that waits, as an EVENT."""
        if not self.waiting or not self.events or self.session is None:
            return []
        self.told_at = self.now
        return [self._told(Kind.EVENT, self.event_seq, payload=self.waiting[0].pack())]

    def _told(
        self,
        kind: Kind,
        seq: int,
        address: int = 0,
        payload: bytes = b"",
        *,
        last: int = 0,
        status: Status = Status.DONE,
    ) -> bytes:
        head: dict[str, Any] = {"p0": int(kind), "p1": int(status), "seq": seq, "last": last}
        head |= {"elems": len(payload), "arg": self.session}
        return framed(self.me, self.peer, head, address, payload)

    def _ack(self, status: Status = Status.DONE, seq: int | None = None) -> bytes:
        """All before ``next`` is done; with a status, how the request `seq` ended."""
        self.writes.tell()
        seq = (self.next - 1) % SEQS if seq is None else seq
        state = (self.next & 0xFFFF) << 16 | self.credits // ALIGN
        head = {"p0": int(Kind.ACK), "p1": int(status), "seq": seq, "arg": state}
        return framed(self.me, self.peer, head, 0, b"")
