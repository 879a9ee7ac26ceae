"""A card with jobs, reached by Ethernet frames of its own host: memory, registers and jobs.

The host's end of host frames (docs/spec/wire.md, HOST): a window of numbered requests, sent again
from the first that is missing (go-back-n, as in HDLC's REJ recovery, ISO/IEC 13239).
`gradnic.models.offload.host_port` is the card's end.
"""

import contextlib
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from gradnic.interface.formats import GRADNIC, GRADNIC_START, HEAD_BYTES, UDP_PORT, VERSION, Op
from gradnic.interface.host_frame import (
    ALIGN,
    HEAD,
    HELLO,
    MAX_PAYLOAD,
    MAX_READ,
    SEQ_BITS,
    Kind,
    Status,
)
from gradnic.interface.job import Completion, Job
from gradnic.interface.params import check_range

from .driver import WORD, CardGone, octets_of

SEQS = 1 << SEQ_BITS
PAYLOAD = 1408  # bytes of a frame of 1,500 behind its IPv4 header: 64 n
READS = 2  # on their way at a time
TRIES = 8  # turns without anything new, at least, until a card is given up
STRANGE = 16  # requests of no session whose refusal is waited for
SPACE = 1 << HEAD.address.width  # bytes that a frame can name
_MISTAKES = {
    Status.OUTSIDE: "is not within the card's regions or registers",
    Status.UNALIGNED: f"must be a multiple of {ALIGN} in memory, of 4 for a register",
    Status.UNKNOWN: "names a kind of request that the card does not know",
}


def udp(card: str, port: int = UDP_PORT, *, bind: tuple[str, int] = ("", 0)) -> tuple:
    """(send, receive, close) of `FrameHost` over a UDP socket to a card's host address.

    card : IPv4 address that the system reaches the card by: its register ``host_ip``, 198.51.100.0
    after reset. The card answers ARP: ``ip addr add 198.51.100.1/31 dev DEV`` is enough.
    """
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    end.bind(bind)
    end.connect((card, port))

    def send(octets: bytes) -> None:
        with contextlib.suppress(ConnectionRefusedError):  # nobody listens there now: it is lost
            end.settimeout(None)
            end.send(octets)

    def receive(seconds: float) -> bytes | None:
        end.settimeout(max(seconds, 1e-6))
        try:
            return end.recv(1 << 16)
        except (TimeoutError, ConnectionRefusedError):  # nothing came, or nobody listens there yet
            return None

    return send, receive, end.close


class _Request:
    """One that is on its way."""

    def __init__(self, kind: Kind, address: int, payload: bytes, elems: int) -> None:
        self.kind, self.address, self.payload, self.elems = kind, address, payload, elems
        self.seq = 0
        self.sent_at = 0.0  # the last time
        self.again = False  # it was sent more than once, so its answer says no time

    @property
    def n_bytes(self) -> int:
        """Of the card's store that its frame takes: whole units."""
        return -(-(HEAD_BYTES + len(self.payload)) // ALIGN) * ALIGN


class FrameHost:
    """One session with a card, over two functions that carry datagrams.

    ``FrameHost(*udp("198.51.100.0"))`` speaks through a socket. Numbers are kept in order, frames
    may be lost, late or doubled either way. Not for two threads at a time.

    Every call raises `CardGone` where nothing comes for `patience` seconds, those in which the
    process does something else or stands still not counted; ConnectionAbortedError
    once another host has opened a session, ValueError for an address that the card does not take,
    and OSError where its memory answers with an error. A `write` or `store` that the card refuses
    may be told by a later call; what was asked for behind it is not done. `flush` waits for all.

    Parameters
    ----------
    send : function (bytes)
        Of what is behind a UDP header.
    receive : function (seconds) -> bytes or None
        Waits at most so long.
    close : function () or None
        What `close` calls, as the end of a ``with`` does.
    payload : int
        Bytes of payload of the longest frame both ways, a multiple of 64 to 8,192.
    timeout, patience : seconds
        Without anything new, until requests are sent again, and until the card is given up. For a
        card that takes longer to answer than `timeout`, requests are sent again later, as in
        RFC 6298: after up to a 64th of `patience`. A request of no session goes with them, whose
        refusal has its number: so a slow card is told from frames that are lost.
    clock : function () -> seconds

    Attributes
    ----------
    hello : dict
        Fields of `gradnic.interface.host_frame.HELLO`: what the card is.
    n_resent : int, frames.
    """

    def __init__(
        self,
        send: Callable[[bytes], Any],
        receive: Callable[[float], bytes | None],
        close: Callable[[], Any] | None = None,
        *,
        payload: int = PAYLOAD,
        timeout: float = 0.01,
        patience: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if payload % ALIGN or not ALIGN <= payload <= MAX_PAYLOAD:
            raise ValueError(
                f"payload must be a multiple of {ALIGN} to {MAX_PAYLOAD}, not {payload!r}"
            )
        self._send_bytes, self._receive, self._clock = send, receive, clock
        self._close = close
        self._timeout, self._patience = timeout, patience
        self._wait = timeout  # until requests are sent again
        self._takes: tuple[float, float] | None = None  # seconds of an answer: mean, deviation
        self._strange: dict[int, float] = {}  # when each request of no session went, by its number
        self._payload = payload
        self._window: deque[_Request] = deque()
        self._completions: deque[Completion] = deque()
        self._events = 0  # number of the next EVENT
        self._told: Completion | None = None  # the last one, which a new session may tell again
        self._words: dict[int, int | None] = {}  # by the READ_REG's number
        self._reads: dict[int, dict[int, int]] = {}  # by a READ's: {address: bytes} to come
        self._missing: dict[int, int] = {}  # {address: bytes} that no READ asks for now
        self._asked: dict[int, int] = {}  # addresses of the READs of this load, by their numbers
        self._into = 0, bytearray()
        self._fault: Exception | None = None
        self._repaired: int | None = None
        self._refused = False
        self.n_resent = 0
        self._heard_at = self._silent_since = self._here_at = clock()
        self._next = self.session = 0
        self.hello: dict[str, int] = {}
        self._open()

    def close(self) -> None:
        """Give the socket back. The card keeps the session, which nobody else needs to end."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> "FrameHost":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    # requests

    def read(self, address: int) -> int:
        """A register's word; what was written before is in it."""
        while (word := self._word(address)) is None:
            self.n_resent += 1
        return word

    def write(self, address: int, word: int) -> None:
        """Write a register's word; returns before the card has it."""
        check_range("word", word, 0, WORD)
        self._ask(Kind.WRITE_REG, address, int(word).to_bytes(4, "big"))

    def store(self, address: int, octets: Any) -> None:
        """Bytes, or any C-contiguous buffer, into the card's memory; returns before all is there.

        address : a multiple of 64; the number of bytes is one of 4.
        """
        view = octets_of(octets)
        address, n_bytes = self._place(address, len(view))
        size = self.hello["payload"]
        for at in range(0, n_bytes, size):
            self._ask(Kind.WRITE, address + at, bytes(view[at : at + size]))

    def load(self, address: int, n_bytes: int) -> bytearray:
        """Bytes of the card's memory, what was stored before included. As of `store`."""
        address, n_bytes = self._place(address, n_bytes)
        size = self.hello["payload"]
        into = bytearray(n_bytes)
        self._into, self._reads, self._asked = (address, into), {}, {}
        self._missing = {address + at: min(size, n_bytes - at) for at in range(0, n_bytes, size)}
        self._progress()
        while self._missing or self._reads:
            while self._missing and len(self._reads) < READS:
                self._ask_missing(size)
            self._turn(self._timeout)
        self.read(0)  # an error of memory would have been told before it, or is told by it
        return into

    def post(self, job: Job, timeout: float = 60.0) -> None:
        """Post a job, behind all that was stored; waits while the card's queue is full.

        TimeoutError after so many seconds: the job stays asked for, and may still be posted.
        """
        request = self._ask(Kind.POST, 0, job.pack())
        self._until(lambda: request not in self._window, timeout)
        if request in self._window:
            raise TimeoutError(f"the card's queue is full for {timeout} s")

    def completion(self, timeout: float = 0.0) -> Completion | None:
        """The oldest `Completion`, which leaves the card; None if none comes within `timeout`
        seconds. The card's register ``host.events`` must be 1.
        """
        end = self._clock() + timeout
        while True:
            left = max(0.0, end - self._clock())
            self._until(lambda: self._completions, min(left, self._patience))
            if self._completions:
                return self._completions.popleft()
            if left <= self._patience:
                return None
            self.read(0)  # is the card there, and ours?

    def flush(self) -> None:
        """Wait until the card has all that was written and stored."""
        self._until(lambda: not self._window)

    # rules

    def _open(self) -> None:
        """A session of its own number; what was asked for in the one before is void."""
        self._window.clear()
        self._reads, self._missing, self._events = {}, {}, 0
        self._asked, self._words, self._strange = {}, {}, {}
        self.session, self.hello = secrets.randbits(32), {}
        hello = _Request(Kind.HELLO, 0, b"", self._payload)
        hello.seq = secrets.randbits(SEQ_BITS)
        self._next = (hello.seq + 1) % SEQS
        end = self._clock() + self._patience
        while not self.hello:
            self._send(hello)
            octets = self._receive(self._wait)
            self._wait = self._bounded(2 * self._wait)
            while octets is not None and not self.hello:
                self._hear(octets)
                octets = None if self.hello else self._receive(0.0)
            if not self.hello and self._clock() > end:
                raise CardGone(f"the card is gone: no answer to HELLO in {self._patience} s")
        self._fault, self._refused = None, False
        self._progress()

    def _word(self, address: int) -> int | None:
        """A register's word, or None: the answer was lost."""
        request = self._ask(Kind.READ_REG, address, elems=4)
        self._words = {request.seq: None}
        self._until(lambda: request not in self._window)
        self._until(lambda: self._words[request.seq] is not None, self._wait)
        return self._words[request.seq]

    def _place(self, address: int, n_bytes: int) -> tuple[int, int]:
        """Both as ints; ValueError unless frames can name all of it."""
        check_range("address", address, 0, SPACE - 1)
        check_range("bytes", n_bytes, 0, SPACE)
        address, n_bytes = int(address), int(n_bytes)
        if address + n_bytes > SPACE:
            raise ValueError(
                f"address and bytes must end by {SPACE:#x}, not {address + n_bytes:#x}"
            )
        if address % ALIGN:
            raise ValueError(f"address must be a multiple of {ALIGN}, not {address:#x}")
        if n_bytes % 4:
            raise ValueError(f"bytes must be a multiple of 4, not {n_bytes}")
        return address, n_bytes

    def _ask(
        self, kind: Kind, address: int, payload: bytes = b"", *, elems: int | None = None
    ) -> _Request:
        check_range("address", address, 0, SPACE - 1)  # else no frame could ever be made of it
        request = _Request(kind, int(address), payload, len(payload) if elems is None else elems)
        room = self.hello["credits"] - request.n_bytes
        self._until(lambda: sum(one.n_bytes for one in self._window) <= room)
        request.seq = self._next
        self._next = (self._next + 1) % SEQS
        if not self._window:
            self._progress()
        self._window.append(request)
        self._send(request)
        return request

    def _ask_missing(self, size: int) -> None:
        """A READ of the first run of pieces that nobody asks for."""
        first = address = next(iter(self._missing))
        pieces, n_bytes = {}, 0
        while address in self._missing and n_bytes + size <= MAX_READ:
            pieces[address] = self._missing.pop(address)
            n_bytes += pieces[address]
            address += size
        seq = self._ask(Kind.READ, first, elems=n_bytes).seq
        self._reads[seq], self._asked[seq] = pieces, first

    def _send(self, request: _Request, session: int = 0) -> None:
        head = {"ver": VERSION, "op": Op.HOST, "seq": request.seq, "elems": request.elems,
                "p0": request.kind, "arg": session or self.session}  # fmt: skip
        request.sent_at = self._clock()
        octets = bytearray(GRADNIC.pack(**head))
        HEAD.address.put(octets, request.address, origin=GRADNIC_START)
        self._send_bytes(bytes(octets) + request.payload)

    def _progress(self) -> None:
        self._heard_at = self._silent_since = self._here_at = self._clock()
        self._expect()

    def _until(self, done: Callable[[], Any], timeout: float | None = None) -> None:
        """Until `done()`, or so many seconds from now; what is on its way is looked after."""
        end = None if timeout is None else self._clock() + timeout
        while not done():
            left = self._timeout if end is None else max(0.0, end - self._clock())
            if not self._turn(min(left, self._timeout)) and not left:
                break

    def _turn(self, seconds: float) -> bool:
        """One frame of the card, or what its silence asks for; whether one came."""
        octets = self._receive(seconds)
        if octets is not None:
            self._hear(octets)
        now = self._clock()
        # Time away from here is no silence of the card, and what came then is heard first.
        counted = max(self._patience / TRIES, self._timeout)
        self._heard_at += max(0.0, now - self._here_at - counted)
        self._here_at = now
        if self._window or self._reads:
            if now - self._heard_at > self._patience:
                self._progress()  # for who tries again
                raise CardGone(f"the card is gone: nothing new in {self._patience} s")
            if now - self._silent_since >= self._wait:
                self._silent_since = now
                self._wait = self._bounded(2 * self._wait)
                self._again()
                self._time()
        if self._fault is not None:
            fault, self._fault = self._fault, None
            if self._refused:  # frames behind it may be under way: the card shall not take them
                self._refused = False
                self._open()
            raise fault
        return octets is not None

    def _again(self) -> None:
        """Nothing new came: what the card has not done is sent again, what is missing asked for."""
        asked = {one.seq for one in self._window}
        for seq in [seq for seq in self._reads if seq not in asked]:
            self._missing = self._reads.pop(seq) | self._missing
        self._resend()

    def _resend(self) -> None:
        self.n_resent += len(self._window)
        for request in self._window:
            request.again = True
            self._send(request)

    def _time(self) -> None:
        """Ask what the card refuses at once, under a number that no request has now."""
        ask = _Request(Kind.READ_REG, 0, b"", 4)
        ask.seq = (self._next + SEQS // 2 + secrets.randbelow(SEQS // 4)) % SEQS
        if len(self._strange) == STRANGE:
            del self._strange[next(iter(self._strange))]
        self._strange[ask.seq] = self._clock()
        self._send(ask, self.session ^ 1)

    def _done(self) -> None:
        """The oldest request is answered."""
        request = self._window.popleft()
        if not request.again:
            self._took(self._clock() - request.sent_at)

    def _took(self, took: float) -> None:
        """An answer says how long a card takes."""
        mean, deviation = self._takes or (took, took / 2)
        deviation += (abs(took - mean) - deviation) / 4
        mean += (took - mean) / 8
        self._takes = mean, deviation
        self._expect()

    def _expect(self) -> None:
        """Requests are sent again when an answer should have come, if one ever has."""
        if self._takes is not None:
            mean, deviation = self._takes
            self._wait = self._bounded(mean + 4 * deviation)

    def _may_know(self, request: _Request) -> bool:
        """Whether what the card says now may be about this request: else it is of earlier ones."""
        mean = self._takes[0] if self._takes else 0.0
        return mean < 2 * self._timeout or self._clock() - request.sent_at >= mean / 4

    def _bounded(self, seconds: float) -> float:
        return max(self._timeout, min(seconds, self._patience / 64))

    def _hear(self, octets: bytes) -> None:
        if len(octets) < HEAD_BYTES - GRADNIC_START:
            return
        said = GRADNIC.parse(octets, origin=GRADNIC_START)
        if said["ver"] != VERSION or said["op"] != Op.HOST:
            return
        head = HEAD.parse(octets, origin=GRADNIC_START)
        payload = octets[HEAD_BYTES - GRADNIC_START :][: head["elems"]]
        if head["kind"] == Kind.ACK:
            self._acknowledged(head)
        elif head["session"] != self.session or len(payload) != head["elems"]:
            return
        elif head["kind"] == Kind.HELLO:
            self.hello = HELLO.parse(payload)
        elif head["kind"] == Kind.DATA:
            self._data(head, payload, said["last"])
        elif head["kind"] == Kind.EVENT:
            self._event(head["seq"], payload)

    def _acknowledged(self, head: dict[str, int]) -> None:
        status, seq = head["status"], head["seq"]
        if status == Status.STRANGER:
            if seq in self._strange:
                self._took(self._clock() - self._strange.pop(seq))
            elif seq in {one.seq for one in self._window}:
                self._fault = ConnectionAbortedError(
                    "another host has opened a session with this card, which has one at a time"
                )
            return
        if status == Status.MEMORY and seq in self._asked:
            self._read_failed(self._asked[seq])
            return
        if not self._window:
            return
        done = (head["next"] - self._window[0].seq) & 0xFFFF
        if done > len(self._window):
            return  # of a session before, or late
        for _ in range(done):
            self._done()
        if done:
            self._progress()
        oldest = self._window[0] if self._window else None
        if oldest is None:
            return
        if status == Status.FULL and oldest.kind == Kind.POST:
            self._progress()  # it is sent again in a while
        elif status != Status.DONE:
            if oldest.seq == seq and self._fault is None:
                self._refuse(oldest, Status(status))
        elif not done and self._repaired != oldest.seq and self._may_know(oldest):
            self._repaired = oldest.seq  # one before it was lost, or this is a late copy
            self._resend()

    def _refuse(self, request: _Request, status: Status) -> None:
        self._refused = True
        where = f"{request.kind.name} of {request.elems} bytes at {request.address:#x}"
        if status is Status.MEMORY:
            self._fault = OSError(f"{where}: memory answers with an error")
        else:
            self._fault = ValueError(f"{where} {_MISTAKES[status]}")

    def _read_failed(self, address: int) -> None:
        self._refused = True
        self._fault = OSError(f"READ at {address:#x}: memory answers with an error")

    def _data(self, head: dict[str, int], payload: bytes, last: int) -> None:
        seq = head["seq"]
        while self._window and (seq - self._window[0].seq) % SEQS < SEQS // 2:
            self._done()
        if seq in self._words:
            if head["status"] == Status.MEMORY:  # the ACK that said so was lost
                self._read_failed(self._into[0])
            self._words[seq] = int.from_bytes(payload[:4], "big")
            self._progress()
            return
        pieces = self._reads.get(seq, {})
        n_bytes = pieces.pop(head["address"], None)
        if n_bytes is None:
            return
        first, into = self._into
        at = head["address"] - first
        into[at : at + n_bytes] = payload[:n_bytes]
        self._progress()
        if last or not pieces:  # what has not come by now is lost
            self._missing = self._reads.pop(seq) | self._missing

    def _event(self, seq: int, payload: bytes) -> None:
        if seq == self._events:
            completion = Completion.parse(payload)
            if seq or completion != self._told:
                self._completions.append(completion)
            self._heard_at = self._clock()
            self._told, self._events = completion, (seq + 1) % SEQS
        elif (seq + 1) % SEQS != self._events:
            return
        answer = _Request(Kind.ACK, 0, b"", 0)
        answer.seq = seq
        self._send(answer)
