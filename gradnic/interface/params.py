"""Parameters of the tops that `gradnic verilog` writes, and their named presets."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any

from gradnic.text_file import whole

from .aggregator import MAX_JOBS, MAX_PORTS

LANES = (4, 8, 16, 32)
BLOCKS = (64, 256, 1024, 4096)
ROUNDINGS = ("trunc", "nearest")
MAX_FLOATS = 2104  # fit a 9,000-byte MTU at worst; 336 fit 1,500
MAX_UNIT = 3840  # of an engine alone
FLAG = (0, 1)


def check_lanes(n_lanes: int, *, name: str = "n_lanes") -> None:
    """ValueError unless `n_lanes` is a number of floats per cycle that the engines come in."""
    if not isinstance(n_lanes, Integral) or n_lanes not in LANES:
        raise ValueError(f"{name} must be 4, 8, 16 or 32, not {n_lanes!r}")


def check_block(block: int) -> None:
    """ValueError unless `block` is a size of THC's blocks."""
    if not isinstance(block, Integral) or block not in BLOCKS:
        raise ValueError(f"block must be 64, 256, 1024 or 4096, not {block!r}")


def check_rounding(rounding: str) -> None:
    """ValueError unless `rounding` is "trunc" or "nearest"."""
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be trunc or nearest, not {rounding!r}")


def check_queues(queues: int) -> None:
    """ValueError unless `queues`, a build option, is 0 or 8."""
    if not isinstance(queues, Integral) or queues not in (0, 8):
        raise ValueError(f"queues must be 0 or 8, not {queues!r}")


def check_range(name: str, value: int, lowest: int, highest: int) -> None:
    """ValueError unless `value` is an integer within `lowest` to `highest`."""
    if not isinstance(value, Integral) or not lowest <= value <= highest:
        raise ValueError(f"{name} must be {lowest} to {highest}, not {value!r}")


def check_fields(parameters: Any, **ranges: tuple[int, int]) -> None:
    """`check_range` of fields of a dataclass, in this order: name=(lowest, highest)."""
    for name, (lowest, highest) in ranges.items():
        check_range(name, getattr(parameters, name), lowest, highest)


def check_power(name: str, value: int, lowest: int, highest: int) -> None:
    """ValueError unless `value` is a power of two within `lowest` to `highest`."""
    whole_number = isinstance(value, Integral)
    if not whole_number or not lowest <= value <= highest or value & (value - 1):
        raise ValueError(f"{name} must be a power of two from {lowest} to {highest}, not {value!r}")


def check_least(name: str, value: int, lowest: int) -> None:
    """ValueError unless `value` is an integer, `lowest` at least."""
    if not isinstance(value, Integral) or value < lowest:
        raise ValueError(f"{name} must be at least {lowest}, not {value!r}")


@dataclass(frozen=True)
class Inline:
    """In-line card: 4 * `n_lanes` bytes per cycle, `meta_width` bits of tuser above the bad bit."""

    n_lanes: int = 8
    meta_width: int = 0
    rounding: str = "trunc"
    max_floats: int = MAX_FLOATS

    def __post_init__(self) -> None:
        check_lanes(self.n_lanes)
        check_range("meta_width", self.meta_width, 0, 128)
        check_rounding(self.rounding)
        check_range("max_floats", self.max_floats, 1, MAX_FLOATS)


@dataclass(frozen=True)
class Compressor:
    """INCEPTIONN compressor alone: `n_lanes` floats per cycle, units of up to `max_floats`."""

    n_lanes: int = 8
    rounding: str = "trunc"
    max_floats: int = MAX_FLOATS

    def __post_init__(self) -> None:
        check_lanes(self.n_lanes)
        check_rounding(self.rounding)
        check_range("max_floats", self.max_floats, 1, MAX_UNIT)


@dataclass(frozen=True)
class Decompressor:
    """INCEPTIONN decompressor alone: `n_lanes` floats per cycle, units of up to `max_floats`."""

    n_lanes: int = 8
    max_floats: int = MAX_FLOATS

    def __post_init__(self) -> None:
        check_lanes(self.n_lanes)
        check_range("max_floats", self.max_floats, 1, MAX_UNIT)


@dataclass(frozen=True)
class Aggregator:
    """Aggregator: `n_ports` bumps in the wire around one aggregation unit.

    queues : 8 has egress queues for the answers to each worker, that drop or mark; 0 one store.
    The others are as of `gradnic.hdl.aggregation.unit.AggregationUnit`.
    """

    n_ports: int = 4
    n_bytes: int = 64
    n_slots: int = 64
    n_jobs: int = 4
    chunk: int = 1024
    width: int = 8
    b_max: int = 4
    n_words: int = 256
    queues: int = 0

    def __post_init__(self) -> None:
        check_range("n_ports", self.n_ports, 1, MAX_PORTS)
        check_range("n_jobs", self.n_jobs, 2, MAX_JOBS)
        check_queues(self.queues)


@dataclass(frozen=True)
class ThcNorm:
    """THC worker, first pass: norms of blocks of up to `block` floats, `n_lanes` a cycle."""

    n_lanes: int = 8
    block: int = 1024

    def __post_init__(self) -> None:
        check_lanes(self.n_lanes)
        check_block(self.block)


@dataclass(frozen=True)
class ThcEncoder(ThcNorm):
    """THC worker, second pass: blocks of up to `block` floats to packed indices."""


@dataclass(frozen=True)
class ThcDecoder(ThcNorm):
    """THC worker, way down: packed sums to blocks of up to `block` floats."""


@dataclass(frozen=True)
class Aggregation:
    """Aggregation unit alone, `n_bytes` a cycle; see `gradnic.hdl.aggregation.unit`."""

    n_bytes: int = 64
    n_slots: int = 64
    n_jobs: int = 4
    chunk: int = 1024
    width: int = 8
    b_max: int = 4
    n_words: int = 256

    def __post_init__(self) -> None:
        check_range("n_jobs", self.n_jobs, 2, MAX_JOBS)


_TABLE = {"n_nodes": (2, 255), "n_rows": (2, 16384), "n_chunks": (2, 8192)}  # of a schedule


@dataclass(frozen=True)
class Scheduler:
    """Message scheduler alone: tables for `n_nodes` nodes, up to `n_rows` rows of `n_chunks`."""

    n_nodes: int = 64
    n_rows: int = 512
    n_chunks: int = 64
    n_ports: int = 4

    def __post_init__(self) -> None:
        check_fields(self, **_TABLE, n_ports=(1, 8))


@dataclass(frozen=True)
class Direct(Scheduler):
    """Card on direct links: `n_words` words of `n_lanes` values of gradient memory.

    credits : flits of a landing buffer. integers : 0 leaves out integer sums. coded : 1 has
    INCEPTIONN on all links, of FP32 sums.
    """

    n_nodes: int = 16
    n_rows: int = 128
    n_lanes: int = 16
    n_words: int = 1024
    credits: int = 318
    integers: int = 1
    coded: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_lanes not in (8, 16, 32) or self.n_lanes < 4 * self.n_ports:
            raise ValueError(
                f"n_lanes must be 8, 16 or 32 and 4 n_ports at least, not {self.n_lanes!r}"
            )
        check_fields(self, n_words=(2, 16384), credits=(4, 16384), integers=FLAG, coded=FLAG)


@dataclass(frozen=True)
class Offload:
    """Offload card: `n_bytes` a cycle, `n_ports` Ethernet ports, tables for `n_nodes` nodes.

    n_bytes : 16, 32, 64 or 128; with 128, chunks and packets are multiples of 32 elements.

    port_bytes : of a beat at each port, a power of two from 4 to `n_bytes`; 0: `n_bytes`. With
    ``n_bytes / n_ports`` all ports run at their line at once. n_rows, n_chunks, n_packets,
    n_ranks : of the largest table and tensor, see
    `gradnic.hdl.offload.core.OffloadCore`. address_width : bits of a byte address of memory.
    meta_width : bits of tuser above the bad bit. thc, inc : 0 leaves out the circuits of THC or of
    INCEPTIONN, and no round may have that codec; raw rounds are always there. queues : 8 has egress
    queues at each port, that drop or mark; 0 one store, that makes its source wait.
    """

    n_bytes: int = 32
    n_ports: int = 1
    port_bytes: int = 0
    n_nodes: int = 64
    n_rows: int = 512
    n_chunks: int = 64
    n_packets: int = 4096
    n_ranks: int = 4
    address_width: int = 32
    meta_width: int = 0
    thc: int = 1
    inc: int = 1
    queues: int = 0

    def __post_init__(self) -> None:
        if self.n_bytes not in (16, 32, 64, 128):
            raise ValueError(f"n_bytes must be 16, 32, 64 or 128, not {self.n_bytes!r}")
        check_range("n_ports", self.n_ports, 1, 8)
        if self.port_bytes and (
            self.port_bytes & (self.port_bytes - 1) or not 4 <= self.port_bytes <= self.n_bytes
        ):
            raise ValueError(
                f"port_bytes must be 0, or a power of two from 4 to {self.n_bytes}, "
                f"not {self.port_bytes!r}"
            )
        check_fields(
            self, **_TABLE, n_packets=(2, 16384), n_ranks=(1, 8), address_width=(16, 64),
            meta_width=(0, 128), thc=FLAG, inc=FLAG,
        )  # fmt: skip
        check_queues(self.queues)


@dataclass(frozen=True)
class Jobs(Offload):
    """Offload card that takes jobs: `n_active` of them side by side, `n_tables` schedule tables.

    n_engines : for rounds of so many of them, 1 to `n_active`; 0: of all. Jobs with THC spend most
    of their time in passes, which need none. n_rows : a power of two with several tables.
    bf16, scale, maxima : 1 has BF16, in memory and on the wire; means, not with `thc`, whose
    results are means; maxima. gives_up : 0 refuses jobs that let a share of their packets miss.
    thc : 1 has jobs with THC, and three more memory ports; feedback : 1 has error feedback with
    it, and three ports more; bits : 4 has indices of 4 bits, 8 of 2 to 8. pass_bytes : of a beat in
    THC's passes, 0 for `n_bytes`, or half of `n_bytes`: their circuits are smaller, and take twice
    the cycles; `address_width` is at most 23 + log2(pass_bytes) then. host : 1 has host frames
    at port 0, and two more memory ports; not with ports narrower than the card. Others as of
    `Offload`.
    """

    thc: int = 0
    feedback: int = 0
    bits: int = 4
    pass_bytes: int = 0
    bf16: int = 0
    scale: int = 0
    maxima: int = 0
    gives_up: int = 1
    n_active: int = 2
    n_engines: int = 0
    n_tables: int = 4
    host: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_bytes > 64:
            raise ValueError(f"n_bytes must be 16, 32 or 64 with jobs, not {self.n_bytes!r}")
        check_fields(
            self, bf16=FLAG, scale=FLAG, maxima=FLAG, gives_up=FLAG, feedback=FLAG, host=FLAG
        )
        if self.host and self.port_bytes not in (0, self.n_bytes):
            raise ValueError(f"host must be 0 where port_bytes is {self.port_bytes}, not 1")
        if self.feedback and not self.thc:
            raise ValueError("feedback must be 0 without thc, not 1")
        if self.scale and self.thc:
            raise ValueError("scale must be 0 with thc, whose results are means, not 1")
        if self.bits not in (4, 8):
            raise ValueError(f"bits must be 4 or 8, not {self.bits!r}")
        if self.pass_bytes not in (0, self.n_bytes // 2):
            raise ValueError(
                f"pass_bytes must be 0 or {self.n_bytes // 2}, not {self.pass_bytes!r}"
            )
        if self.pass_bytes and not self.thc:
            raise ValueError(f"pass_bytes must be 0 without thc, not {self.pass_bytes}")
        widest = 22 + self.pass_bytes.bit_length()
        if self.pass_bytes and self.address_width > widest:
            raise ValueError(
                f"address_width must be at most {widest} where pass_bytes is {self.pass_bytes}, "
                f"not {self.address_width}"
            )
        check_fields(self, n_active=(1, 4), n_engines=(0, self.n_active))
        if self.n_tables not in (1, 2, 4, 8, 16):
            raise ValueError(f"n_tables must be 1, 2, 4, 8 or 16, not {self.n_tables!r}")
        if self.n_tables > 1 and self.n_rows & (self.n_rows - 1):  # one behind the other
            raise ValueError(
                f"n_rows must be a power of two where n_tables is {self.n_tables}, "
                f"not {self.n_rows!r}"
            )


PRESETS: dict[str, Any] = {
    f"{kind.__name__.lower()}{n_lanes}": kind(n_lanes=n_lanes)
    for kind in (Inline, Compressor, Decompressor)
    for n_lanes in LANES
} | {f"aggregator{n_ports}": Aggregator(n_ports=n_ports) for n_ports in (2, 4, 8, 16, 32)}
for _n_bytes in (16, 32, 64):
    for _name, _codecs in (("", {}), ("inc", {"thc": 0}), ("raw", {"thc": 0, "inc": 0})):
        PRESETS[f"offload{8 * _n_bytes}{_name}"] = Offload(n_bytes=_n_bytes, **_codecs)
PRESETS["offload1024"] = Offload(n_bytes=128)
PRESETS["offload512x2"] = Offload(n_bytes=64, n_ports=2, port_bytes=32)
PRESETS["offload512x4"] = Offload(n_bytes=64, n_ports=4, port_bytes=16)
PRESETS |= {f"jobs{8 * n_bytes}": Jobs(n_bytes=n_bytes) for n_bytes in (16, 32, 64)}
PRESETS["jobs512host"] = Jobs(n_bytes=64, host=1)
PRESETS["offload128thc"] = Jobs(n_bytes=16, thc=1)
PRESETS["offload512thc"] = Jobs(n_bytes=64, thc=1, n_active=4, n_engines=2)
PRESETS |= {
    f"{kind.__name__.lower()}{n_lanes}": kind(n_lanes=n_lanes)
    for kind in (ThcNorm, ThcEncoder, ThcDecoder)
    for n_lanes in LANES[:3]
}
PRESETS |= {f"aggregation{8 * n_bytes}": Aggregation(n_bytes=n_bytes) for n_bytes in (16, 32, 64)}
PRESETS |= {
    "scheduler64": Scheduler(),
    "direct2": Direct(n_ports=2, n_lanes=8),
    "direct4": Direct(),
    "direct4inc": Direct(integers=0, coded=1),
}


def preset(name: str, changes: Iterable[str] = ()) -> Any:
    """Parameters of the preset `name`, with `changes` as ("parameter=value", …).

    ValueError for an unknown preset or parameter, one that is there twice, and a value out of
    range.
    """
    if name not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {name!r}")
    parameters = PRESETS[name]
    # at once: whether one fits may depend on others
    return replace(parameters, **changed(f"a parameter of {name}", parameters, changes))


def changed(what: str, parameters: Any, changes: Iterable[str]) -> dict[str, Any]:
    """{key: value} of `changes` as ("key=value", …) to the fields of a dataclass.

    ValueError, which says `what` they are, for an unknown key, one that is there twice, and a value
    that is no number where the field is one.
    """
    kinds: dict[str, Any] = {field.name: field.type for field in fields(parameters)}
    values: dict[str, Any] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or key not in kinds:
            raise ValueError(
                f"{what} must be set as {' or '.join(f'{k}=…' for k in kinds)}, not {change!r}"
            )
        if key in values:
            raise ValueError(f"{key} must be set once, not to {values[key]} and {value}")
        try:
            values[key] = whole(value) if kinds[key] is int else value
        except ValueError:
            raise ValueError(f"{key} must be a number, not {value!r}") from None
    return values
