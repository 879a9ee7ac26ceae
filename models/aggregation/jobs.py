"""What the host registers at an aggregator: jobs, their slots and rules, who may speak for them."""

from dataclasses import dataclass

from gradnic.interface.formats import IPV4, UDP_PORT
from gradnic.interface.switchml import PORT, PORT_MASK

W_CODES = (8, 12, 16)
CLOSE_RULES = ("all", "n_min", "bounded")
OVERFLOW_RULES = ("wrap", "saturate", "error")


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
        The slots that the job owns.
    n : int
        Leaves below, at most 255, which the fill counts; the number of children on one level.
    kind : str
        ``thc`` (norms by maximum, indices and sums) or ``int32``.
    b, g, p, B : of the THC worker. w : accumulator bits, 8, 12 or 16. C : elements of a chunk.
    close : str
        ``all``; ``n_min`` children; ``bounded``: bytes of the tensor but a share p_q16 / 2**16.
    n_min, total_bytes, p_q16 : int
        Parameters of the rules; total_bytes of one child's whole tensor.
    deadline : int
        Time after the first contribution that closes a slot, in units of `now`; 0 is off.
    root : bool
        Fills missing leaves with g/2 on emission.
    overflow : str
        What an int32 sum does: ``wrap``, ``saturate``, or ``error`` (wrap and flag).
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
        if not 0 <= self.job <= 255:
            raise ValueError(f"job must be 0 to 255, not {self.job!r}")
        if not 1 <= len(self.children) <= 32:
            raise ValueError(f"children must be 1 to 32, not {len(self.children)}")
        if not 1 <= self.n_slots <= 8192 - self.first_slot:
            raise ValueError(
                f"slots {self.first_slot} + {self.n_slots} must lie within 0 to 8191, "
                f"n_slots at least 1"
            )
        if not 1 <= self.leaves <= 255:
            raise ValueError(f"n must be 1 to 255, not {self.n!r}")
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
            if self.leaves * self.g >= 2**self.w:
                raise ValueError(f"n * g must be below 2**{self.w}, not {self.leaves} * {self.g}")
            partial = self.close != "all" or self.deadline
            if partial and self.g % 2:
                raise ValueError(f"g must be even where slots close in part, not {self.g}")

    @property
    def leaves(self):
        """Leaves below: `n`, or the number of children."""
        return len(self.children) if self.n is None else self.n

    def owns(self, slot):
        """Whether `slot` is one of this job's."""
        return self.first_slot <= slot < self.first_slot + self.n_slots

    @property
    def need_bytes(self):
        """Accepted bytes of all children that close the tensor's slots under ``bounded``."""
        total = len(self.children) * self.total_bytes
        return total - (total * self.p_q16 >> 16)


def is_heard(job, frame, port):
    """Whether a frame comes from the IPv4 address of a child of `job` at a pair of ports."""
    source = IPV4.source.get(frame)
    return any(child.port == port and child.ip == source for child in job.children)


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
    n_words: int = 256  # most elements of a NORM or INT32 packet

    def __post_init__(self) -> None:
        if not 1 <= self.n_ports <= 32:
            raise ValueError(f"n_ports must be 1 to 32, not {self.n_ports!r}")
        if self.udp_port & PORT_MASK == PORT:
            raise ValueError(f"udp_port must not be one of SwitchML's, {self.udp_port:#06x}")
        owner = {}
        for job in self.jobs:
            for slot in range(job.first_slot, job.first_slot + job.n_slots):
                if owner.setdefault(slot, job.job) != job.job:
                    raise ValueError(f"slot {slot} belongs to jobs {owner[slot]} and {job.job}")
            for child in job.children:
                if not 0 <= child.port < self.n_ports:
                    raise ValueError(f"port must be 0 to {self.n_ports - 1}, not {child.port!r}")
        if len({job.job for job in self.jobs}) != len(self.jobs):
            raise ValueError(f"jobs must differ, not {[job.job for job in self.jobs]}")
