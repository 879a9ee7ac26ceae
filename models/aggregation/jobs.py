"""What the host registers at an aggregator: jobs, their slots and rules, who may speak for them."""

from dataclasses import dataclass
from typing import Any

from gradnic.interface.aggregator import MAX_FRAME
from gradnic.interface.formats import HEAD_BYTES, UDP_PORT
from gradnic.interface.params import check_block, check_fields, check_range
from gradnic.interface.switchml import PORT, PORT_MASK

W_CODES = (8, 12, 16)
CLOSE_RULES = ("all", "n_min", "bounded")
OVERFLOW_RULES = ("wrap", "saturate", "error")


def check_place(job: Any, n_slots: int) -> None:
    """ValueError unless the number of a job, its children and its slots, of `n_slots`, fit."""
    check_range("job", job.job, 0, 255)
    check_range("children", len(job.children), 1, 32)
    check_range("first_slot", job.first_slot, 0, n_slots - 1)
    if not 1 <= job.n_slots <= n_slots - job.first_slot:
        raise ValueError(
            f"slots {job.first_slot} + {job.n_slots} must lie within 0 to {n_slots - 1}, "
            f"n_slots at least 1"
        )
    check_range("n_slots", job.n_slots, 1, n_slots)


@dataclass(frozen=True)
class Job:
    """One job's registers.

    Attributes
    ----------
    job : int
        0 to 255.
    children : tuple of Address
        Who contributes, by SRC: 1 to 32.
    first_slot, n_slots : int
        The slots that the job owns, of 8192.
    n : int
        Leaves below, at most 255, which the fill counts; the number of children on one level.
    kind : str
        ``thc`` (norms by maximum, indices and sums) or ``int32``.
    b, g, p, B : of the THC worker. w : accumulator bits, 8, 12 or 16.
    C : int
        Elements of a chunk: a multiple of 64 up to 8192.
    close : str
        ``all``; ``n_min`` children; ``bounded``: bytes of the tensor but a share p_q16 / 2**16.
    n_min, total_bytes, p_q16 : int
        Parameters of the rules: 1 to the number of children; of one child's whole tensor, so
        that all children's are below 2**40; 0 to 65535.
    deadline : int
        Time after the first contribution that closes a slot, in units of `now`, below 2**32; 0 is
        off.
    root : bool
        Fills missing leaves with g/2 on emission.
    overflow : str
        What an int32 sum does: ``wrap``, ``saturate``, or ``error``, ``wrap`` for receivers
        that go by OVF; every rule sets it.
    """

    job: int
    children: tuple
    first_slot: int = 0
    n_slots: int = 64
    n: int | None = None
    kind: str = "thc"
    b: int = 4
    g: int = 30
    p: float = 1 / 32
    B: int = 1024
    w: int = 8
    C: int = 1024
    close: str = "all"
    n_min: int = 1
    total_bytes: int = 0
    p_q16: int = 0
    deadline: int = 0
    root: bool = True
    overflow: str = "saturate"

    def __post_init__(self) -> None:
        check_place(self, 8192)
        check_range("n", self.leaves, 1, 255)
        n_children = len(self.children)
        check_fields(
            self, n_min=(1, n_children), total_bytes=(0, (2**40 - 1) // n_children),
            p_q16=(0, 65535), deadline=(0, 2**32 - 1), C=(64, 8192),
        )  # fmt: skip
        if self.C % 64:
            raise ValueError(f"C must be a multiple of 64, not {self.C}")
        if self.kind not in ("thc", "int32"):
            raise ValueError(f"kind must be 'thc' or 'int32', not {self.kind!r}")
        if self.close not in CLOSE_RULES:
            raise ValueError(f"close must be one of {', '.join(CLOSE_RULES)}, not {self.close!r}")
        if self.overflow not in OVERFLOW_RULES:
            raise ValueError(
                f"overflow must be one of {', '.join(OVERFLOW_RULES)}, not {self.overflow!r}"
            )
        if self.w not in W_CODES:
            raise ValueError(f"w must be 8, 12 or 16, not {self.w!r}")
        if self.kind == "thc":
            check_range("b", self.b, 1, 8)
            check_range("g", self.g, max(1, 2**self.b - 2), 255)
            check_block(self.B)
            fitting = 8 * (MAX_FRAME - HEAD_BYTES) // self.w
            if fitting < self.C:
                raise ValueError(f"C must be at most {fitting} with w = {self.w}, not {self.C}")
            if self.leaves * self.g >= 2**self.w:
                raise ValueError(f"n * g must be below 2**{self.w}, not {self.leaves} * {self.g}")
            partial = self.close != "all" or self.deadline
            if partial and self.g % 2:
                raise ValueError(f"g must be even where slots close in part, not {self.g}")

    @property
    def leaves(self) -> int:
        """Leaves below: `n`, or the number of children."""
        return len(self.children) if self.n is None else self.n

    def owns(self, slot: int) -> bool:
        """Whether `slot` is one of this job's."""
        return self.first_slot <= slot < self.first_slot + self.n_slots

    @property
    def need_bytes(self) -> int:
        """Accepted bytes of all children that close the tensor's slots under ``bounded``."""
        total = len(self.children) * self.total_bytes
        return total - (total * self.p_q16 >> 16)


def speakers(job: Any, port: int) -> list[int]:
    """IPv4 addresses of the children of `job` at a pair of ports."""
    return [child.ip for child in job.children if child.port == port]


@dataclass(frozen=True)
class Config:
    """An aggregator: its own MAC and IPv4 address, ports, slots and jobs.

    Frames of worker i arrive and leave at port i, its worker side; port n_ports + i is its
    network side. Jobs are `Job`, or `switchml.SwitchmlJob`, whose frames have ports of their own.
    Who may speak is the children table: a contribution is accepted only at the
    child's port, from its MAC and IPv4 address.
    """

    mac: int
    ip: int
    n_ports: int
    jobs: tuple
    udp_port: int = UDP_PORT
    n_words: int = 256  # most elements of a NORM or INT32 packet, 1 to 2048

    def __post_init__(self) -> None:
        for name, highest in ("mac", 2**48 - 1), ("ip", 2**32 - 1), ("udp_port", 65535):
            check_range(name, getattr(self, name), 0, highest)
        check_range("n_ports", self.n_ports, 1, 32)
        check_range("n_words", self.n_words, 1, 2048)
        if self.udp_port & PORT_MASK == PORT:
            raise ValueError(f"udp_port must not be one of SwitchML's, {self.udp_port:#06x}")
        owner = {}
        for job in self.jobs:
            for slot in range(job.first_slot, job.first_slot + job.n_slots):
                if owner.setdefault(slot, job.job) != job.job:
                    raise ValueError(f"slot {slot} belongs to jobs {owner[slot]} and {job.job}")
            for child in job.children:
                check_range("port", child.port, 0, self.n_ports - 1)
        if len({job.job for job in self.jobs}) != len(self.jobs):
            raise ValueError(f"jobs must differ, not {[job.job for job in self.jobs]}")
