"""What model and circuit of the in-line card share: settings, fates of a frame, register map.

Source: docs/spec/codec.md (NIC integration) and docs/spec/wire.md (what happens to a
frame).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from .formats import UDP_PORT
from .params import check_fields, check_range
from .register_map import RegisterMap, counters, placed

MAX_FRAME = 16384  # bytes without FCS; a longer frame is cut here and marked bad
MAX_FLOATS = 2104  # floats of one packet, 8 * floor((9000 - 50) / 34)
MTU_FLOATS = 336  # the same at MTU 1500: the worst case, 6.25 % expansion, still fits
MIN_FRAME = 60  # bytes without FCS; shorter rewritten frames are padded with zeros
N_JOBS = 256
EXPONENTS = range(113, 127)

PAPER_START = 42  # paper mode: floats start behind the UDP header
PAPER_CODED_START = 44  # and the coded unit behind the count of floats, u16 big-endian


class Fate(IntEnum):
    """What became of one of our frames. Order: the first reason that applies is the one counted."""

    CODED = 0  # rewritten: coded on the way out, restored on the way in
    BAD = 1  # came marked bad
    LENGTH = 2  # truncated, or a length field that disagrees
    CHECKSUM = 3  # IPv4 header or nonzero UDP checksum wrong
    FORMAT = 4  # reserved OP, or SET != GEN[0]
    KEPT = 5  # ours, but nothing to do: passes as it came
    LIMIT = 6  # out: count of floats above the limit or 0, or settings that the codec refuses
    SIZE = 7  # out, paper mode: would not become shorter
    CODEC = 8  # in: coded unit malformed
    OVERRUN = 9  # in: no room in the store of coded frames


_FATES = (Fate.CODED, Fate.BAD, Fate.LENGTH, Fate.CHECKSUM, Fate.FORMAT, Fate.KEPT)
TX_FATES = (*_FATES, Fate.LIMIT, Fate.SIZE)
RX_FATES = (*_FATES, Fate.CODEC, Fate.OVERRUN)


@dataclass(frozen=True)
class InlineSettings:
    """Run-time settings of the card, the reset values of its registers.

    Attributes
    ----------
    paper : bool
        Act on ToS marks (paper mode of the framing).
    tos, tos_coded, tos_mask : int
        Mark of frames to be coded and of coded ones, 0..255; only bits in `tos_mask` count, the
        others (ECN) are kept.
    port_low, port_high : int
        UDP destination ports that paper mode may touch, both included. `native_port` never is.
    native_port : int
        UDP destination port of frames with the gradnic head.
    jobs : frozenset of int
        Jobs (0..255) whose gradnic frames are ours; others pass.
    exponent, prescale : int
        Codec settings E, 113 to 126, and PS, -128 to 127: of frames sent, and in paper mode also of
        frames received.
    paper_codec : bool
        MODE: value codec of the paper instead of the strict one.
    floats_limit : int
        Largest ELEMS of a native frame that is coded, at most `MAX_FLOATS`.
    """

    paper: bool = False
    tos: int = 0x28
    tos_coded: int = 0x2C
    tos_mask: int = 0xFC
    port_low: int = 0
    port_high: int = 0xFFFF
    native_port: int = UDP_PORT
    jobs: frozenset = frozenset()
    exponent: int = 117
    prescale: int = 0
    paper_codec: bool = False
    floats_limit: int = MTU_FLOATS

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", frozenset(self.jobs))
        byte, word = (0, 0xFF), (0, 0xFFFF)
        check_fields(
            self, tos=byte, tos_coded=byte, tos_mask=byte, port_low=word, port_high=word,
            native_port=word, floats_limit=word, exponent=(EXPONENTS[0], EXPONENTS[-1]),
            prescale=(-128, 127),
        )  # fmt: skip
        if self.port_low > self.port_high:
            raise ValueError(
                f"port_low must be at most port_high, {self.port_high}, not {self.port_low}"
            )
        for job in self.jobs:
            check_range("jobs", job, 0, N_JOBS - 1)

    def words(self) -> dict[str, int]:
        """Settings as register writes: {register name: 32-bit word}."""
        fields: dict[str, dict] = {
            "control": {"paper": self.paper},
            "mark": {"tos": self.tos, "coded": self.tos_coded, "mask": self.tos_mask},
            "ports": {"low": self.port_low, "high": self.port_high},
            "native": {"port": self.native_port, "limit": self.floats_limit},
            "codec": {
                "exponent": self.exponent,
                "paper": self.paper_codec,
                "prescale": self.prescale,
            },
        }
        words = {}
        for name, values in fields.items():
            register = REGISTERS[name]
            words[name] = sum((int(values[f.name]) << f.lsb) & f.mask for f in register.fields)
        for k in range(N_JOBS // 32):
            words[f"jobs_{k}"] = sum(1 << j for j in range(32) if 32 * k + j in self.jobs)
        return words


_COUNTERS = (
    ("tx_foreign", "frames sent that are not ours, or of another VER: passed as they came"),
    ("tx_coded", "frames sent coded"),
    ("tx_bad", "ours, passed uncoded: marked bad"),
    ("tx_length", "ours, passed uncoded: truncated, or a length that disagrees"),
    ("tx_checksum", "ours, passed uncoded: IP or UDP checksum wrong"),
    ("tx_format", "ours, passed uncoded: reserved OP, or SET is not GEN[0]"),
    ("tx_kept", "ours, passed as it came: gradnic frame that is not RAW"),
    ("tx_limit", "ours, passed uncoded: count of floats or codec settings out of range"),
    ("tx_size", "ours, passed uncoded: would not become shorter (paper mode)"),
    ("tx_oversize", "frames cut at 16384 bytes and marked bad, on the way out"),
    ("rx_foreign", "frames received that are not ours, or of another VER: passed as they came"),
    ("rx_coded", "frames received and restored"),
    ("rx_bad", "ours, dropped: marked bad"),
    ("rx_length", "ours, dropped: truncated, or a length that disagrees"),
    ("rx_checksum", "ours, dropped: IP or UDP checksum wrong"),
    ("rx_format", "ours, dropped: reserved OP, or SET is not GEN[0]"),
    ("rx_kept", "ours, passed as it came: nothing to restore"),
    ("rx_codec", "ours, dropped: coded unit malformed, or count of floats out of range"),
    ("rx_overrun", "ours, dropped: no room in the store of coded frames"),
    ("rx_oversize", "frames cut at 16384 bytes and marked bad, on the way in"),
)
COUNTERS = tuple(name for name, _ in _COUNTERS)

_RESET = InlineSettings.__dataclass_fields__


def _default(name: str) -> Any:
    default: Any = _RESET[name].default
    return int(default)


REGISTERS = RegisterMap(
    "inline",
    "In-line card. A setting takes effect with the next frame whose head arrives; a frame under "
    "way keeps what it started with.",
    (
        placed(
            "control", 0x00, "what the card acts on",
            ("paper", 0, 1, "act on ToS marks of ordinary UDP frames"),
        ),
        placed(
            "mark", 0x04, "ToS marks of paper mode",
            ("tos", 0, 8, "to be coded", _default("tos")),
            ("coded", 8, 8, "coded", _default("tos_coded")),
            ("mask", 16, 8, "bits that count; leave out ECN", _default("tos_mask")),
        ),
        placed(
            "ports", 0x08, "UDP destination ports that paper mode may touch",
            ("low", 0, 16, "lowest", _default("port_low")),
            ("high", 16, 16, "highest", _default("port_high")),
        ),
        placed(
            "native", 0x0C, "frames with the gradnic head",
            ("port", 0, 16, "UDP destination port", _default("native_port")),
            ("limit", 16, 16, "most floats of a native frame to code, at most max_floats",
             _default("floats_limit")),
        ),
        placed(
            "codec", 0x10, "value codec of frames sent, and of paper-mode frames received",
            ("exponent", 0, 7, "E, 113 to 126: bound 2^(E-127)", _default("exponent"), False,
             EXPONENTS),
            ("paper", 7, 1, "MODE: codec of the paper instead of the strict one"),
            ("prescale", 8, 8, "PS: coded value = float * 2^PS", 0, True),
        ),
        *(
            placed(
                f"jobs_{k}", 0x20 + 4 * k, f"jobs {32 * k} to {32 * k + 31} of gradnic frames",
                ("enabled", 0, 32, "one bit per job, lowest first"),
            )
            for k in range(N_JOBS // 32)
        ),
        *counters(0x40, _COUNTERS),
    ),
)  # fmt: skip
