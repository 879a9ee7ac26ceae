"""What flows between the parts of the aggregation unit: heads, jobs, tasks, answers.

Plumbing: no golden model of its own.
"""

from dataclasses import dataclass
from enum import IntEnum
from numbers import Integral

from amaranth.hdl import Mux, Shape, Value
from amaranth.lib import data
from amaranth.utils import ceil_log2

from gradnic.interface.aggregator import MAX_JOBS
from gradnic.interface.params import check_power, check_range

MAX_CHILDREN = 32
MAX_ROWS = 16384  # of the store: a block RAM's deepest shape

_HEADER = {"lc": 3, "tensor": 16, "tree": 8, "seq": 24, "elems": 16}
_HEADER |= {"p0": 8, "p1": 8, "arg": 32, "last": 1}

ContributionHead = data.StructLayout(
    {
        "job": 4,  # place of the job in the table of jobs, not its number on the wire
        "src": 5,
        "op": 4,
        "gen": 16,
        "slot": 14,
        **_HEADER,
        "ovf": 1,
        "ecn": 1,  # the header's bit, or an IP congestion mark
        "length": 16,  # payload bytes
    }
)
"""What the unit must know of a contribution: fields of the gradnic header, and two more.

Of a SwitchML packet ``op`` is INT32, ``gen`` the set, ``p0`` and ``p1`` the exponents; what its
answer only repeats is in ``tensor`` (UDP source port), ``tree`` (destination port, low bits) and
``arg`` (packet number).
"""

Answer = data.StructLayout(
    {
        "job": 4,
        "children": MAX_CHILDREN,  # bit k: child k gets a copy
        "op": 4,
        "gen": 16,
        "slot": 13,
        **_HEADER,
        "retx": 1,
        "ovf": 1,
        "ecn": 1,
        "part": 1,
        "length": 16,  # payload bytes, 0 for STALE
    }
)
"""An answer's header fields; PH = 1, IMP = 1, SRC = 255, SET = GEN[0] go without saying."""

JobRegisters = data.StructLayout(
    {
        "first_slot": 13,
        "n_slots": 14,
        "n_children": 6,  # 1 to 32
        "leaves": 8,  # n, which the fill counts
        "int32": 1,  # 0: norms, indices and sums of THC
        "block": 2,  # log4(B) - 3, p index and b - 1: P0 of THC_IDX
        "p": 3,
        "bits": 3,
        "g": 8,
        "close": 2,  # 0 all, 1 n_min, 2 bounded loss
        "n_min": 6,
        "need_bytes": 40,
        "deadline": 32,  # in steps of `now`; 0 is off
        "root": 1,  # fills what is missing
        "overflow": 2,  # of INT32: 0 wrap, 1 saturate, 2 as 0; all set OVF
        "switchml": 1,  # frames and rule of SwitchML-UDP; then int32 = 1, and close = 0
        "large": 1,  # its packets have 256 values, not 64
    }
)
"""Registers of a job, as `gradnic.models.aggregation.jobs` names them."""

Record = data.StructLayout(
    {
        "valid": 1,  # never, if the job is SwitchML's
        "closed": 1,
        "job": 4,
        "gen": 16,
        "bitmap": 32,
        "count": 6,  # children that are in; of a SwitchML job those awaited
        "leaves": 8,
        "last": 1,
        "ecn": 1,
        "op": 4,
        "lc": 3,
        "tensor": 16,
        "tree": 8,
        "seq": 24,
        "elems": 16,
        "tag": 32,
        "e0": 8,
        "e1": 8,
        "opened": 32,
    }
)
"""What a slot and set holds, beside its sums and its overflow flag."""

EVENTS = (
    "accepted",
    "claims",
    "abandoned",
    "duplicates",
    "stale",
    "late",
    "retransmitted",
    "partial",
    "collisions",
    "config",
    "length",
)
"""What is counted, by reason."""

CLOSE_ALL, CLOSE_N_MIN, CLOSE_BOUNDED = range(3)
WRAP, SATURATE, ERROR = range(3)


def chosen(array, index):
    """The element of a short array at `index`, the last one for an index behind the end."""
    elements = [array[k] for k in range(len(array))]
    value = Value.cast(elements[-1])
    for k, element in enumerate(elements[:-1]):
        value = Mux(index == k, element, value)
    shape = elements[-1].shape() if isinstance(elements[-1], data.View) else None
    return value if shape is None else data.View(shape, value)


class Kind(IntEnum):
    """How values are added."""

    INDEX = 0  # looked up, then lane by lane
    SUM = 1  # lane by lane
    NORM = 2  # unsigned maximum of 32 bits
    INT32 = 3


def Task(place_width: int):
    """Shape of what the slot rule decided on one packet, or on one slot whose time is over.

    place_width : int, bits of (slot, set). Values that come with a task are added or ignored.
    """
    return data.StructLayout(
        {
            "answer": Answer,  # its ovf is that of this packet
            "place": place_width,
            "job": 4,
            "kind": Shape.cast(Kind).width,
            "bits": 3,
            "overflow": 2,
            "elems": 16,
            "takes": 1,  # a payload comes with it
            "adds": 1,
            "first": 1,  # overwrites
            "emits": 1,  # the slot's sum leaves
            "tells": 1,  # an answer without sum leaves
            "leaves": 8,  # that are in, and that there should be: the rest is filled
            "wanted": 8,
            "g": 8,
        }
    )


@dataclass(frozen=True)
class Sizes:
    """What is fixed when an aggregation unit is built: see `gradnic.hdl.aggregation.unit`.

    ValueError for a value outside its limits.
    """

    n_bytes: int = 64
    n_slots: int = 128
    n_jobs: int = 4
    chunk: int = 1024
    width: int = 8
    b_max: int = 4
    n_words: int = 256

    def __post_init__(self):
        check_power("n_bytes", self.n_bytes, 4, 64)
        check_range("n_jobs", self.n_jobs, 1, MAX_JOBS)
        whole = isinstance(self.chunk, Integral)
        if not whole or not 1 <= self.chunk <= 8192 or self.chunk % (8 * self.n_bytes):
            raise ValueError(
                f"chunk must be a multiple of {8 * self.n_bytes} up to 8192, not {self.chunk!r}"
            )
        if self.width not in (8, 12, 16):
            raise ValueError(f"width must be 8, 12 or 16, not {self.width!r}")
        check_range("b_max", self.b_max, 1, 8)
        check_range("n_words", self.n_words, 1, 2048)
        rows = 2**self.row_width
        most = MAX_ROWS // (2 * rows)
        whole = isinstance(self.n_slots, Integral)
        if not whole or not 2 <= self.n_slots <= most or self.n_slots & (self.n_slots - 1):
            raise ValueError(
                f"n_slots must be a power of two from 2 to {most}, where a sum has {rows} rows, "
                f"not {self.n_slots!r}"
            )

    @property
    def lanes(self):
        """Sums in a row of the store."""
        return 2 * self.n_bytes

    @property
    def row_bits(self):
        """Bits of a row: `width` / 4 beats."""
        return self.lanes * self.width

    @property
    def row_words(self):
        """Words of 32 bits in a row."""
        return self.row_bits // 32

    @property
    def index_units(self):
        """Bits of a lane's largest index, 4 or 8."""
        return 4 if self.b_max <= 4 else 8

    @property
    def n_rows(self):
        """Rows that the largest sum takes."""
        return max(self.chunk // self.lanes, -(-self.n_words // self.row_words))

    @property
    def row_width(self):
        """Bits of the number of a row within its slot."""
        return ceil_log2(max(2, self.n_rows))

    @property
    def place_width(self):
        """Bits of (slot, set), the set lowest."""
        return ceil_log2(self.n_slots) + 1
