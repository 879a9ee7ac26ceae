"""What a frame is to an in-line card, what becomes of it, and how it is coded. Twin of
`gradnic.hdl.inline.parser`.

A frame is *ours* if it is Ethernet, IPv4 without options, not a fragment, UDP, at least 42 bytes,
and either goes to the native port with our VER and an enabled JOB (byte 44 present), or carries a
mark inside the port range while paper mode is on. Everything else is foreign and passes.

Source: docs/spec/wire.md (what happens to a frame), docs/spec/codec.md (marked frames).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gradnic.interface import inline
from gradnic.interface.formats import GRADNIC, HEAD_BYTES, IPV4, UDP, Op
from gradnic.interface.inline import Fate, InlineSettings

from ..frame.ipv4 import is_plain_udp
from ..frame.parser import native_job, refusal

_FLOAT_OPS = {Op.RAW, Op.INT32}  # payload is 4 * ELEMS bytes


@dataclass(frozen=True)
class Unit:
    """What the codec and the new head need to know of a frame that is to be coded or restored.

    Attributes
    ----------
    native : bool
        It has the gradnic head, else paper framing.
    start, n_bytes : int
        Bytes of the frame before its payload, and of it.
    count : int
        Floats of the packet.
    exponent, prescale : int
    paper : bool
        The codec's mode.
    limit : int
        Most bytes that the coded unit may take.
    tos : int
        ToS byte of the frame that leaves.
    """

    native: bool
    start: int
    n_bytes: int
    count: int
    exponent: int
    paper: bool
    prescale: int
    limit: int
    tos: int


def kind_out(settings: InlineSettings, frame: bytes) -> str | None:
    """ "native" or "paper" if a frame from the host is ours, None if it is foreign."""
    return _kind(settings, frame, (settings.tos,))[0]


def kind_in(settings: InlineSettings, frame: bytes) -> str | None:
    """ "native", "paper", or "marked" (marked but uncoded: kept); None if foreign."""
    kind, tos = _kind(settings, frame, (settings.tos_coded, settings.tos))
    return "marked" if kind == "paper" and tos != settings.tos_coded else kind


def _kind(s: InlineSettings, frame: bytes, marks: Sequence[int]) -> tuple[str | None, int | None]:
    """Kind of frame and, in paper mode, the first of `marks` that its ToS carries."""
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


def fate_out(
    s: InlineSettings, frame: bytes, bad: bool, kind: str, *, max_floats: int = inline.MAX_FLOATS
) -> Fate:
    """What becomes of a frame of ours from the host, unless its codes would not be shorter."""
    native = kind == "native"
    n_payload = UDP.length.get(frame) - UDP.n_bytes
    fits = _native_fits(frame) if native else n_payload > 0 and n_payload % 4 == 0
    fate = _common_fate(frame, bad, native, fits)
    if fate is not None:
        return fate
    if native and GRADNIC.op.get(frame) != Op.RAW:
        return Fate.KEPT
    unit = unit_out(s, frame, native=native)
    limit = min(s.floats_limit, max_floats) if native else max_floats
    codable = s.exponent in inline.EXPONENTS
    return Fate.CODED if codable and 1 <= unit.count <= limit else Fate.LIMIT


def fate_in(frame: bytes, bad: bool, kind: str) -> Fate:
    """What becomes of a frame of ours from the network, unless its unit is malformed."""
    if kind == "marked":
        return Fate.KEPT
    native = kind == "native"
    fits = UDP.length.get(frame) >= inline.PAPER_CODED_START - UDP.start
    fate = _common_fate(frame, bad, native, _native_fits(frame) if native else fits)
    if fate is None and native and GRADNIC.op.get(frame) != Op.INC:
        return Fate.KEPT
    return Fate.CODED if fate is None else fate


def _common_fate(frame: bytes, bad: bool, native: bool, payload_fits: bool) -> Fate | None:
    """Fate from everything both directions check; None if the frame may be coded."""
    stop = HEAD_BYTES if native else UDP.stop
    reason = refusal(frame, bad, stop, fits=payload_fits, native=native)
    return None if reason is None else Fate[reason.upper()]


def _native_fits(frame: bytes) -> bool:
    if len(frame) < HEAD_BYTES:
        return False
    n_payload = UDP.length.get(frame) - (HEAD_BYTES - UDP.start)
    op, elems = GRADNIC.op.get(frame), GRADNIC.elems.get(frame)
    return n_payload >= 0 and (op not in _FLOAT_OPS or n_payload == 4 * elems)


def unit_out(s: InlineSettings, frame: bytes, *, native: bool) -> Unit:
    """How a frame from the host is coded: by the settings.

    A frame in paper framing has to become shorter, with its u16 count of floats before the unit.
    """
    start = HEAD_BYTES if native else inline.PAPER_START
    n_bytes = UDP.start + UDP.length.get(frame) - start
    return Unit(
        native=native,
        start=start,
        n_bytes=n_bytes,
        count=GRADNIC.elems.get(frame) if native else n_bytes // 4,
        exponent=s.exponent,
        paper=bool(s.paper_codec),
        prescale=s.prescale,
        limit=0xFFFF if native else n_bytes - 3,
        tos=_tos(s, frame, s.tos_coded, native),
    )


def unit_in(s: InlineSettings, frame: bytes, *, native: bool) -> Unit:
    """How a frame from the network is restored: by its head, else by the settings."""
    start = HEAD_BYTES if native else inline.PAPER_CODED_START
    p0, p1 = GRADNIC.p0.get(frame) if native else 0, GRADNIC.p1.get(frame) if native else 0
    count = int.from_bytes(frame[inline.PAPER_START : inline.PAPER_CODED_START], "big")
    return Unit(
        native=native,
        start=start,
        n_bytes=UDP.start + UDP.length.get(frame) - start,
        count=GRADNIC.elems.get(frame) if native else count,
        exponent=p0 & 0x7F if native else s.exponent,
        paper=bool(p0 >> 7) if native else bool(s.paper_codec),
        prescale=(p1 ^ 0x80) - 0x80 if native else s.prescale,
        limit=0xFFFF,  # of no use: what is restored has 4 bytes a float
        tos=_tos(s, frame, s.tos, native),
    )


def _tos(s: InlineSettings, frame: bytes, mark: int, native: bool) -> int:
    """ToS byte of the frame that leaves: native frames keep theirs."""
    tos = IPV4.tos.get(frame)
    return tos if native else tos & ~s.tos_mask & 0xFF | mark & s.tos_mask
