"""The in-line card: bytes of a frame in, bytes of a frame out. Twin of `gradnic.hdl.inline.card`.

Ethernet frames without preamble and FCS. What happens to each is the table "What happens to a
frame" (docs/spec/wire.md); how marked frames look is docs/spec/codec.md.

A frame is *ours* if it is Ethernet, IPv4 without options, not a fragment, UDP, at least 42 bytes,
and either goes to the native port with our VER and an enabled JOB (byte 44 present), or carries a
mark inside the port range while paper mode is on. Everything else is foreign and passes.
"""

from collections.abc import Callable, Sequence

import numpy as np

from gradnic.interface import inline
from gradnic.interface.formats import GRADNIC, HEAD_BYTES, IPV4, UDP, Op
from gradnic.interface.inline import Fate, InlineSettings

from ..frame.ipv4 import ip_checksum, is_plain_udp
from ..frame.parser import native_job, refusal
from ..inceptionn import compress, decompress

_IP, _UDP = IPV4.start, UDP.start
_SEGMENT = UDP.stop  # payload of UDP starts here
_FLOAT_OPS = {Op.RAW, Op.INT32}  # payload is 4 * ELEMS bytes


class InlineCard:
    """One card: `transmit` is host to network, `receive` is network to host.

    settings : InlineSettings, replaced at will between frames.
    rounding : "trunc" or "nearest", as the circuit is built; the paper codec truncates always.
    max_floats : int, most floats of a packet that the circuit's stores hold.

    Attributes: `counters`, {name of `gradnic.interface.inline.COUNTERS`: int}. Overrun needs a
    clock and never happens here.
    """

    def __init__(
        self,
        settings: InlineSettings | None = None,
        *,
        rounding: str = "trunc",
        max_floats: int = inline.MAX_FLOATS,
    ) -> None:
        self.settings = settings or InlineSettings()
        self.rounding = rounding
        self.max_floats = max_floats
        self.counters = dict.fromkeys(inline.COUNTERS, 0)

    def transmit(self, frame: bytes, bad: bool = False) -> tuple[bytes, bool]:
        """Frame from the host, as it leaves for the MAC: (bytes, bad mark)."""
        frame, bad = self._guard(bytes(frame), bool(bad), "tx")
        kind = self.kind_out(frame)
        fate = self._fate_out(frame, bad, kind) if kind else None
        _, coded = self._count("tx", fate, frame, kind, self._code, Fate.SIZE)
        return (frame, bad) if coded is None else (coded, False)

    def receive(self, frame: bytes, bad: bool = False) -> tuple[bytes, bool] | None:
        """Frame from the MAC, as it reaches the host: (bytes, bad mark), or None if dropped."""
        frame, bad = self._guard(bytes(frame), bool(bad), "rx")
        kind = self.kind_in(frame)
        fate = self._fate_in(frame, bad, kind) if kind else None
        fate, restored = self._count("rx", fate, frame, kind, self._restore, Fate.CODEC)
        if fate in (None, Fate.KEPT):
            return frame, bad
        return None if restored is None else (restored, False)

    def _count(
        self,
        side: str,
        fate: Fate | None,
        frame: bytes,
        kind: str | None,
        rewrite: Callable[[bytes, str | None], bytes | None],
        failing: Fate,
    ) -> tuple[Fate | None, bytes | None]:
        """(fate, the frame rewritten or None): counted, `failing` where it cannot be rewritten."""
        rewritten = rewrite(frame, kind) if fate is Fate.CODED else None
        if fate is Fate.CODED and rewritten is None:
            fate = failing
        self.counters[f"{side}_{'foreign' if fate is None else fate.name.lower()}"] += 1
        return fate, rewritten

    def kind_out(self, frame: bytes) -> str | None:
        """ "native" or "paper" if a frame from the host is ours, None if it is foreign."""
        return self._kind(frame, (self.settings.tos,))[0]

    def kind_in(self, frame: bytes) -> str | None:
        """ "native", "paper", or "marked" (marked but uncoded: kept); None if foreign."""
        kind, tos = self._kind(frame, (self.settings.tos_coded, self.settings.tos))
        return "marked" if kind == "paper" and tos != self.settings.tos_coded else kind

    def _guard(self, frame: bytes, bad: bool, side: str) -> tuple[bytes, bool]:
        if len(frame) > inline.MAX_FRAME:
            self.counters[f"{side}_oversize"] += 1
            return frame[: inline.MAX_FRAME], True
        return frame, bad

    def _kind(self, frame: bytes, marks: Sequence[int]) -> tuple[str | None, int | None]:
        """Kind of frame and, in paper mode, the first of `marks` that its ToS carries."""
        s = self.settings
        if not is_plain_udp(frame):
            return None, None
        tos, port = IPV4.tos.get(frame), UDP.destination_port.get(frame)
        if port == s.native_port:
            ours = native_job(frame, port) in s.jobs
            return ("native" if ours else None), None
        if s.paper and s.port_low <= port <= s.port_high:
            for mark in marks:
                if (tos ^ mark) & s.tos_mask == 0:
                    return "paper", mark
        return None, None

    def _common_fate(self, frame: bytes, bad: bool, kind: str, payload_fits: bool) -> Fate | None:
        """Fate from everything both directions check; None if the frame may be coded."""
        native = kind == "native"
        stop = HEAD_BYTES if native else _SEGMENT
        reason = refusal(frame, bad, stop, fits=payload_fits, native=native)
        return None if reason is None else Fate[reason.upper()]

    def _native_fits(self, frame: bytes) -> bool:
        if len(frame) < HEAD_BYTES:
            return False
        n_payload = UDP.length.get(frame) - (HEAD_BYTES - _UDP)
        op, elems = GRADNIC.op.get(frame), GRADNIC.elems.get(frame)
        return n_payload >= 0 and (op not in _FLOAT_OPS or n_payload == 4 * elems)

    def _fate_out(self, frame: bytes, bad: bool, kind: str) -> Fate:
        s = self.settings
        n_payload = UDP.length.get(frame) - (_SEGMENT - _UDP)
        if kind == "native":
            fits = self._native_fits(frame)
        else:
            fits = n_payload > 0 and n_payload % 4 == 0
        fate = self._common_fate(frame, bad, kind, fits)
        if fate is not None:
            return fate
        if kind == "native":
            if GRADNIC.op.get(frame) != Op.RAW:
                return Fate.KEPT
            count, limit = GRADNIC.elems.get(frame), min(s.floats_limit, self.max_floats)
        else:
            count, limit = n_payload // 4, self.max_floats
        codable = s.exponent in inline.EXPONENTS
        return Fate.CODED if codable and 1 <= count <= limit else Fate.LIMIT

    def _fate_in(self, frame: bytes, bad: bool, kind: str) -> Fate:
        if kind == "marked":
            return Fate.KEPT
        if kind == "native":
            fits = self._native_fits(frame)
        else:
            fits = UDP.length.get(frame) >= inline.PAPER_CODED_START - _UDP
        fate = self._common_fate(frame, bad, kind, fits)
        if fate is None and kind == "native" and GRADNIC.op.get(frame) != Op.INC:
            return Fate.KEPT
        return Fate.CODED if fate is None else fate

    def _code(self, frame: bytes, kind: str | None) -> bytes | None:
        """The coded frame, or None if it would not become shorter."""
        s = self.settings
        start = HEAD_BYTES if kind == "native" else inline.PAPER_START
        floats = np.frombuffer(frame[start : _UDP + UDP.length.get(frame)], "<f4")
        unit = compress(
            floats,
            exponent=s.exponent,
            prescale=s.prescale,
            mode="paper" if s.paper_codec else "strict",
            rounding="trunc" if s.paper_codec else self.rounding,
        )
        head = bytearray(frame[:start])
        if kind == "native":
            GRADNIC.op.put(head, Op.INC)
            GRADNIC.p0.put(head, s.paper_codec << 7 | s.exponent)
            GRADNIC.p1.put(head, s.prescale & 0xFF)
        else:
            head += floats.size.to_bytes(2, "big")
            self._mark(head, s.tos_coded)
            if len(head) + len(unit) >= start + 4 * floats.size:
                return None
        return _finish(head, unit)

    def _restore(self, frame: bytes, kind: str | None) -> bytes | None:
        """The restored frame, or None if the coded unit is malformed."""
        s = self.settings
        start = HEAD_BYTES if kind == "native" else inline.PAPER_CODED_START
        unit = frame[start : _UDP + UDP.length.get(frame)]
        head = bytearray(frame[:start])
        if kind == "native":
            count, p0 = GRADNIC.elems.get(frame), GRADNIC.p0.get(frame)
            exponent, paper = p0 & 0x7F, p0 >> 7
            prescale = (GRADNIC.p1.get(frame) ^ 0x80) - 0x80
            GRADNIC.op.put(head, Op.RAW)
            GRADNIC.p0.put(head, 1)
            GRADNIC.p1.put(head, 0)
        else:
            count = int.from_bytes(head[inline.PAPER_START :], "big")
            exponent, paper, prescale = s.exponent, s.paper_codec, s.prescale
            del head[inline.PAPER_START :]
            self._mark(head, s.tos)
        if count > self.max_floats:
            return None
        mode = "paper" if paper else "strict"
        try:
            floats = decompress(unit, count, exponent=exponent, mode=mode, prescale=prescale)
        except ValueError:
            return None
        return _finish(head, floats.astype("<f4").tobytes())

    def _mark(self, head: bytearray, tos: int) -> None:
        mask = self.settings.tos_mask
        IPV4.tos.put(head, IPV4.tos.get(head) & ~mask & 0xFF | tos & mask)


def _finish(head: bytearray, payload: bytes) -> bytes:
    """Frame of `head` and `payload`: lengths, IP checksum, no UDP checksum, padded."""
    size = len(head) + len(payload)
    IPV4.total_length.put(head, size - _IP)
    UDP.length.put(head, size - _UDP)
    UDP.checksum.put(head, 0)
    IPV4.checksum.put(head, ip_checksum(head[_IP:_UDP]))
    return (bytes(head) + payload).ljust(inline.MIN_FRAME, b"\0")
