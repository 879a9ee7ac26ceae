"""How a job's tensor is cut into chunks and packets, with THC its norms, too, and where they lie.

Golden twin of `gradnic.hdl.offload.job_cutter`. The cut is that of `gradnic.models.offload.plan`,
in the numbers that a card counts by: units of 16 elements, beats of memory.
"""

from dataclasses import dataclass

from gradnic.interface.job import THC_PACKET, Job, JobCodec, Kind

from .plan import SEQ_UNIT

GROUP_OF_SUMS = THC_PACKET // SEQ_UNIT  # units that chunks of THC are multiples of
NARROW = 8  # bits of a sum, up to which a packet has `THC_PACKET` elements; half as many above


@dataclass
class Cut:
    """A tensor of `elems` in chunks of whole `group` units of 16, in packets of `packet` units.

    Attributes
    ----------
    chunk, per_chunk : units of a chunk, packets of one
    last, last_elems, last_per_chunk : the last chunk that is not empty, its elements and packets
    divided : what is divided in the first step, and the larger of two in the second and third one
    """

    elems: int
    chunks: int
    group: int
    packet: int

    def __post_init__(self) -> None:
        units = -(-self.elems // SEQ_UNIT)
        self.chunk = -(-units // (self.group * self.chunks)) * self.group
        self.per_chunk = -(-self.chunk // self.packet)
        self.last = (units - 1) // self.chunk
        rest = units - self.last * self.chunk
        self.last_elems = self.elems - SEQ_UNIT * self.last * self.chunk
        self.last_per_chunk = -(-rest // self.packet)
        first = (units - 1) // self.group
        self.divided = first, max(self.chunk - 1, units - 1), rest - 1

    def fields(self) -> dict[str, int]:
        """Of `gradnic.hdl.transport.records.Geometry`."""
        return {
            "packet": self.packet, "chunk": self.chunk, "per_chunk": self.per_chunk,
            "last_chunk": self.last, "last_per_chunk": self.last_per_chunk,
            "tail": SEQ_UNIT * (self.chunk - (self.per_chunk - 1) * self.packet),
            "last_tail": self.last_elems - SEQ_UNIT * (self.last_per_chunk - 1) * self.packet,
        }  # fmt: skip


def cuts(job: Job, chunks: int, packet: int, *, width: int = 8, block: int = 64) -> list[Cut]:
    """Of the tensor; with THC of its indices and sums, and then of its norms.

    chunks : of the job's table. packet : units of 16 elements of a packet of floats. width : bits
    of a sum of THC, 8, 12 or 16. block : elements of a block of THC.
    """
    if job.codec != JobCodec.THC:
        halves = job.kind == Kind.BF16 or job.codec == JobCodec.RAW16
        return [Cut(job.elems, chunks, 2 if halves else 1, packet)]
    n_packets = -(-job.elems // THC_PACKET)
    of_sums = GROUP_OF_SUMS if width == NARROW else GROUP_OF_SUMS // 2
    sums = Cut(THC_PACKET * n_packets, chunks, GROUP_OF_SUMS, of_sums)
    return [sums, Cut(n_packets * (THC_PACKET // block), chunks, 1, packet)]


def prepared(
    job: Job,
    chunks: int,
    packet: int,
    *,
    n_bytes: int,
    width: int = 8,
    block: int = 64,
    bits: int = 4,
) -> dict[str, int]:
    """Fields of `gradnic.hdl.offload.job_records.Prepared`, those of its records with a dot.

    n_bytes : of a beat of memory. bits : of an index of THC. The others as of `cuts`.
    """
    cut, *norms = cuts(job, chunks, packet, width=width, block=block)
    told = {
        "n_beats": -(-job.elems * (2 if job.kind == Kind.BF16 else 4) // n_bytes),
        "source": job.source // n_bytes, "result": job.result // n_bytes,
        "area": -(-job.elems // SEQ_UNIT) * SEQ_UNIT * 4 // n_bytes,
        "live": cut.last + 1, "last_elems": cut.last_elems,
        **{f"geometry.{name}": value for name, value in cut.fields().items()},
    }  # fmt: skip
    for of_norms in norms:
        n_elems = -(-job.elems // THC_PACKET) * THC_PACKET
        beats = -(-of_norms.elems // SEQ_UNIT) * SEQ_UNIT * 4 // n_bytes
        told |= {
            "area": n_elems * width // 8 // n_bytes, "n_blocks": of_norms.elems,
            "at_norms": beats, "at_indices": 2 * beats, "norms_live": of_norms.last + 1,
            "at_sums": 2 * beats + n_elems * bits // 8 // n_bytes,
            **{f"norms.{name}": value for name, value in of_norms.fields().items()},
        }  # fmt: skip
    return told
