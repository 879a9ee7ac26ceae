"""Records that the parts of a card with jobs hand to each other.

Part of `gradnic.hdl.offload.job_core`, whose golden model it follows.
"""

from amaranth.lib import data
from amaranth.utils import ceil_log2

from gradnic.interface.job import ALIGN, COMPLETION, DESCRIPTOR, TABLES

from ..axi.bursts import LENGTH_WIDTH
from ..transport.allowance_walk import LAST_WIDTH
from ..transport.ledger import CLEAR_WIDTH
from ..transport.records import LEAVES_WIDTH, Geometry, GivenUp
from .thc_memory import WIDTHS

STAMP_WIDTH = 48

Descriptor = data.StructLayout({field.name: field.width for field in DESCRIPTOR})
"""A job as it is posted: fields of `gradnic.interface.job.DESCRIPTOR`."""

Waiting = data.StructLayout({"job": Descriptor, "posted": STAMP_WIDTH})
"""A job in the queue, and when it was posted."""

Record = data.StructLayout({field.name: field.width for field in COMPLETION})
"""How a job ended: fields of `gradnic.interface.job.COMPLETION`."""

JobTable = data.StructLayout(
    {
        "valid": 1,
        "rows": 16,
        "peers": 8,
        "lockstep": 1,
        "chunks": 14,
        "stride": 14,
        "repeats": 14,
        "iterations": 15,
        "leaves": LEAVES_WIDTH,
        "collective": DESCRIPTOR["collective"].width,
        "offset": 16,
        "scale": 32,
        "code": 2,
    }
)
"""A schedule table that is loaded. chunks : of all repeats. leaves : nodes that contribute to a
sum, 1 where nothing is added. collective : `gradnic.interface.job.Collective` that it is for.
offset, scale : of `gradnic.hdl.thc.decoder.ThcDecoder`, for so many leaves; scale 0: no THC.
code : 0, 1, 2 for sums of 8, 12, 16 bits.
Others: as of `gradnic.hdl.schedule.row_reader.Setup`."""

JobTableWrite = data.StructLayout({"enable": 1, "index": ceil_log2(TABLES), "table": JobTable})
"""One entry of the list of tables, to be written while ``enable`` is 1 and no job names it."""


def Prepared(n_bytes, address_width):
    """A job that may start: what it does, where, and how its tensor is cut. live : chunks that are
    not empty; last_elems : of the last of those. n_numbers : packet numbers. n_beats, area : of
    memory, of the tensor and of one landing area. THC alone: norms, norms_live : how its
    norms are cut; n_blocks; at_norms, at_indices, at_sums : beats of scratch before them.
    """
    beat = address_width - ceil_log2(n_bytes)
    return data.StructLayout(
        {
            "job": Descriptor,
            "posted": STAMP_WIDTH,
            "table": JobTable,
            "geometry": Geometry,
            "live": 14,
            "last_elems": LAST_WIDTH,
            "n_numbers": CLEAR_WIDTH,
            "source": beat,
            "result": beat,
            "n_beats": LENGTH_WIDTH,
            "area": LENGTH_WIDTH,
            "norms": Geometry,
            "norms_live": 14,
            "n_blocks": WIDTHS[1],
            "at_norms": LENGTH_WIDTH,
            "at_indices": LENGTH_WIDTH,
            "at_sums": LENGTH_WIDTH,
        }
    )


GivenUpBy = data.StructLayout(GivenUp.members | {"tensor": 16, "gen": 16})
"""A packet that was given up, who should have sent it, and the round that it is of."""

Abort = data.StructLayout({"id": 16, "any": 1})
"""Which job is to end: the oldest one with this id, or of all where ``any``."""

LeavesSeen = data.StructLayout({"valid": 1, "leaves": LEAVES_WIDTH})
"""In cycles of ``valid``: contributions in a packet of the result."""


def half_of_residual(job, half):
    """Byte address of a half of a job's residual region, see `gradnic.interface.job.Job`."""
    more = (job.elems + (ALIGN // 4 - 1)) >> ceil_log2(ALIGN // 4) if half else 0
    return (job.residual + more) << ceil_log2(ALIGN)
