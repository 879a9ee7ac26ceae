"""The in-line card: bytes of a frame in, bytes of a frame out. Twin of `gradnic.hdl.inline.card`.

Ethernet frames without preamble and FCS. What happens to each is the table "What happens to a
frame" (docs/spec/wire.md); how marked frames look is docs/spec/codec.md.

Which frames are ours, and what becomes of them: `gradnic.models.inline.parser`. Their new heads:
`gradnic.models.inline.rewrite`.
"""

from collections.abc import Callable

import numpy as np

from gradnic.interface import inline
from gradnic.interface.inline import Fate, InlineSettings

from ..inceptionn import compress, decompress
from . import parser, rewrite


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
        fate = None
        if kind:
            fate = parser.fate_out(self.settings, frame, bad, kind, max_floats=self.max_floats)
        _, coded = self._count("tx", fate, frame, kind, self._code, Fate.SIZE)
        return (frame, bad) if coded is None else (coded, False)

    def receive(self, frame: bytes, bad: bool = False) -> tuple[bytes, bool] | None:
        """Frame from the MAC, as it reaches the host: (bytes, bad mark), or None if dropped."""
        frame, bad = self._guard(bytes(frame), bool(bad), "rx")
        kind = self.kind_in(frame)
        fate = parser.fate_in(frame, bad, kind) if kind else None
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
        return parser.kind_out(self.settings, frame)

    def kind_in(self, frame: bytes) -> str | None:
        """ "native", "paper", or "marked" (marked but uncoded: kept); None if foreign."""
        return parser.kind_in(self.settings, frame)

    def _guard(self, frame: bytes, bad: bool, side: str) -> tuple[bytes, bool]:
        if len(frame) > inline.MAX_FRAME:
            self.counters[f"{side}_oversize"] += 1
            return frame[: inline.MAX_FRAME], True
        return frame, bad

    def _code(self, frame: bytes, kind: str | None) -> bytes | None:
        """The coded frame, or None if it would not become shorter."""
        unit = parser.unit_out(self.settings, frame, native=kind == "native")
        coded = compress(
            np.frombuffer(frame, "<f4", unit.count, unit.start),
            exponent=unit.exponent,
            prescale=unit.prescale,
            mode="paper" if unit.paper else "strict",
            rounding="trunc" if unit.paper else self.rounding,
        )
        if len(coded) > unit.limit:
            return None
        return rewrite.finish(rewrite.coded_head(frame, unit), coded)

    def _restore(self, frame: bytes, kind: str | None) -> bytes | None:
        """The restored frame, or None if the coded unit is malformed."""
        unit = parser.unit_in(self.settings, frame, native=kind == "native")
        if unit.count > self.max_floats:
            return None
        coded = frame[unit.start : unit.start + unit.n_bytes]
        mode = "paper" if unit.paper else "strict"
        try:
            floats = decompress(
                coded, unit.count, exponent=unit.exponent, mode=mode, prescale=unit.prescale
            )
        except ValueError:
            return None
        return rewrite.finish(rewrite.restored_head(frame, unit), floats.astype("<f4").tobytes())
