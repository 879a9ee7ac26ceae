"""Homomorphic aggregation unit: contributions in, sums out, each counted exactly once.

The slot engine of an aggregator, without frames: parsing, ownership and addresses are the business
of what stands around it. THC (NSDI 2024) for the lookup and the add; SwitchML and ATP for slots.
"""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .streams import Beat

MAX_CHILDREN = 32

Head = data.StructLayout(
    {
        "job": 4,  # place of the job in the table of jobs, not its number on the wire
        "src": 5,
        "op": 4,
        "gen": 16,
        "slot": 13,
        "lc": 3,
        "tensor": 16,
        "tree": 8,
        "seq": 24,
        "elems": 16,
        "p0": 8,
        "p1": 8,
        "arg": 32,
        "last": 1,
        "ovf": 1,
        "ecn": 1,  # the header's bit, or an IP congestion mark
        "length": 16,  # payload bytes
    }
)
"""What the unit must know of a contribution: fields of the gradnic header, and two more."""

Answer = data.StructLayout(
    {
        "job": 4,
        "children": MAX_CHILDREN,  # bit k: child k gets a copy
        "op": 4,
        "gen": 16,
        "slot": 13,
        "lc": 3,
        "tensor": 16,
        "tree": 8,
        "seq": 24,
        "elems": 16,
        "p0": 8,
        "p1": 8,
        "arg": 32,
        "last": 1,
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
        "overflow": 2,  # of INT32: 0 wrap, 1 saturate, 2 error (wrap, and say so)
    }
)
"""Registers of a job, as `gradnic.models.aggregate.Job` names them."""

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


class AggregationUnit(wiring.Component):
    """Adds contributions into slots and answers: `2 * n_bytes` indices of 4 bits per cycle.

    Twin of `gradnic.models.slots.SlotEngine`. What comes in is complete and good: whoever stands
    in front has stored the whole frame, and checked format, owner (``src`` is a child of the job)
    and checksum. A head's slot must be its job's; if it is not, the unit changes nothing and
    counts it, but the frame that should go on with COLL is gone: check before.

    Parameters
    ----------
    n_bytes : int
        Bytes of a beat: 4, 8, 16, 32 or 64. A row of the store is `2 * n_bytes` sums.
    n_slots : int
        Slots in all, each with two sets, for all jobs together; a power of two, 2 to 8192.
    n_jobs : int
        1 to 16.
    chunk : int
        C, elements of a THC packet: a multiple of 8 * n_bytes.
    width : int
        w, bits of a sum: 8, 12 or 16.
    b_max : int
        Most bits of an index, 1 to 8. The table of a job has 2**b_max entries.
    n_words : int
        Most elements of a NORM or INT32 packet.

    Members
    -------
    jobs : In(ArrayLayout(JobRegisters, n_jobs))
        May change only for a job without traffic; ``clear`` its slots before its first packet.
    clear, clear_job, busy : In(1), In(4), Out(1)
        Forgets all that a job's slots hold. ``busy`` while that, or the same for all slots after a
        reset, is under way: no head is taken, for 2 * n_slots cycles.
    write_en, write_addr, write_data : In(1), In(4 + b_max), In(8)
        Table of levels: address is the job's place times 2**b_max, plus the index.
    now, tick : In(32), In(1)
        Time, and a pulse that starts a visit to every slot, lowest first, which closes those whose
        deadline has passed. It ends within 4 * n_slots cycles without load.
    heads : In(stream.Signature(Head))
    values : In(stream.Signature(Beat(8 * n_bytes)))
        Payloads in the order of their heads: ceil(length / n_bytes) beats each, ``last`` on the
        last one, none if ``length`` is 0. What follows the payload in its last beat is ignored.
    answers : Out(stream.Signature(Answer))
    sums : Out(stream.Signature(Beat(8 * n_bytes)))
        Payloads of the answers that have one, in their order; zeros after the end of a payload. A
        payload is not offered before its answer is, but it may have to be taken before a later
        answer comes, and the other way round: nobody may wait for one without taking the other.
    events, event_job : Out(StructLayout of EVENTS), Out(4)
        Pulses, one cycle each: what is counted, and of which job.
    overflow, overflow_job : Out(1), Out(4)
        A slot's sum has overflowed for the first time.
    """

    def __init__(
        self, n_bytes=64, *, n_slots=128, n_jobs=4, chunk=1024, width=8, b_max=4, n_words=256
    ):
        if n_bytes not in (4, 8, 16, 32, 64):
            raise ValueError(f"n_bytes must be 4, 8, 16, 32 or 64, not {n_bytes!r}")
        if n_slots not in [2**k for k in range(1, 14)]:
            raise ValueError(f"n_slots must be a power of two from 2 to 8192, not {n_slots!r}")
        if not 1 <= n_jobs <= 16:
            raise ValueError(f"n_jobs must be 1 to 16, not {n_jobs!r}")
        if chunk < 1 or chunk % (8 * n_bytes):
            raise ValueError(f"chunk must be a multiple of {8 * n_bytes}, not {chunk!r}")
        if width not in (8, 12, 16):
            raise ValueError(f"width must be 8, 12 or 16, not {width!r}")
        if not 1 <= b_max <= 8:
            raise ValueError(f"b_max must be 1 to 8, not {b_max!r}")
        self.n_bytes, self.n_slots, self.n_jobs = n_bytes, n_slots, n_jobs
        self.chunk, self.width, self.b_max, self.n_words = chunk, width, b_max, n_words
        beats = stream.Signature(Beat(8 * n_bytes))
        super().__init__(
            {
                "jobs": In(data.ArrayLayout(JobRegisters, n_jobs)),
                "clear": In(1),
                "clear_job": In(4),
                "busy": Out(1),
                "write_en": In(1),
                "write_addr": In(4 + b_max),
                "write_data": In(8),
                "now": In(32),
                "tick": In(1),
                "heads": In(stream.Signature(Head)),
                "values": In(beats),
                "answers": Out(stream.Signature(Answer)),
                "sums": Out(beats),
                "events": Out(data.StructLayout(dict.fromkeys(EVENTS, 1))),
                "event_job": Out(4),
                "overflow": Out(1),
                "overflow_job": Out(4),
            }
        )
