"""What model and circuit of the aggregator top share: reasons, sizes, register map.

Source: docs/spec/wire.md (who may speak, what happens to a frame, bump in the wire).
"""

from enum import IntEnum

from .formats import UDP_PORT
from .register_map import RegisterMap, counters, placed

MAX_FRAME = 16384  # bytes without FCS; a longer frame is cut here and marked bad
MAX_PORTS = 32
MAX_JOBS = 16


class Refusal(IntEnum):
    """Why one of our frames never reaches a slot; the first that applies is the one counted."""

    NONE = 0
    BAD = 1  # came marked bad
    LENGTH = 2  # truncated, or a length field that disagrees
    CHECKSUM = 3  # IPv4 header or nonzero UDP checksum wrong
    FORMAT = 4  # reserved OP, or SET != GEN[0]
    OWNER = 5  # of a child's IPv4 address, but not its MAC address and SRC, or from the network
    COLLISIONS = 6  # a slot of another job: the frame goes on, marked COLL


_COUNTERS = (
    ("foreign", "frames that are not ours, by port, VER, JOB or sender: crossed as they came"),
    ("oversize", "frames cut at 16384 bytes and marked bad"),
    ("overrun", "ours, dropped: no room at its port"),
    ("bad", "ours, dropped: marked bad"),
    ("length", "ours, dropped: truncated, or a length that disagrees"),
    ("checksum", "ours, dropped: IP or UDP checksum wrong"),
    ("format", "ours, dropped: reserved OP, or SET is not GEN[0]"),
    ("owner", "ours, dropped: a child's IPv4 address, but not its MAC address, SRC and side"),
    ("collisions", "ours, a slot of another job: sent on with COLL, but for the `unsent` ones"),
    ("config", "ours, dropped: parameters are not the job's or the slot's"),
    ("accepted", "contributions added"),
    ("claims", "slots claimed by a newer generation"),
    ("abandoned", "slots claimed while open"),
    ("duplicates", "contributions that were in already"),
    ("stale", "contributions of an older generation: STALE sent"),
    ("late", "contributions after the slot had closed without them"),
    ("retransmitted", "results sent again"),
    ("partial", "slots closed with contributors missing"),
    ("overflow", "slots whose sum has overflowed"),
    ("answers", "copies of answers made for children; `lost` ones are among them"),
    ("lost", "copies of answers dropped: no room at their port"),
    ("unsent", "ours, COLL, dropped: no room behind those that a network port does not take"),
)
COUNTERS = tuple(name for name, _ in _COUNTERS)
FIRST_COUNTER = 0x80
STEP_WIDTH = 7  # 64 inputs may report at once


_WRITE = ("write", 31, 1, "a 1 after a 0 puts the words before this one into the table")

REGISTERS = RegisterMap(
    "aggregator",
    "Aggregator. Addresses and jobs may change while their jobs have no traffic. Every child and "
    "the levels of a job are written before it is enabled; its slots are cleared before that too.",
    (
        placed("mac_low", 0x00, "the aggregator's MAC address", ("value", 0, 32, "bits 31:0")),
        placed("mac_high", 0x04, "the aggregator's MAC address", ("value", 0, 16, "bits 47:32")),
        placed("ip", 0x08, "the aggregator's IPv4 address", ("value", 0, 32, "address")),
        placed(
            "native", 0x0C, "frames with the gradnic head",
            ("port", 0, 16, "UDP destination port", UDP_PORT),
        ),
        placed(
            "job_slots", 0x10, "slots of a job",
            ("first_slot", 0, 13, "first"), ("n_slots", 16, 14, "number"),
        ),
        placed(
            "job_rule", 0x14, "whom a job waits for",
            ("n_children", 0, 6, "children, 1 to 32"),
            ("leaves", 8, 8, "leaves below, which the fill counts"),
            ("n_min", 16, 6, "children that close a slot under n_min"),
            ("close", 24, 2, "0 all, 1 n_min, 2 bounded loss"),
            ("root", 26, 1, "fills missing leaves"),
            ("int32", 27, 1, "INT32 packets instead of THC"),
            ("overflow", 28, 2, "of INT32: 0 wrap, 1 saturate, 2 as 0; all set OVF"),
            ("switchml", 30, 1, "frames of SwitchML-UDP; then int32 is 1, close and overflow 0"),
            ("large", 31, 1, "a SwitchML packet has 256 values, not 64"),
        ),
        placed(
            "job_codec", 0x18, "THC parameters of a job",
            ("block", 0, 2, "log4(B) - 3"),
            ("p", 2, 3, "truncation share: 1/16 is 0, 1/1024 is 6, 7 other"),
            ("bits", 5, 3, "bits per index less 1"), ("g", 8, 8, "granularity of the table"),
        ),
        placed("job_need_low", 0x1C, "bytes that close a tensor", ("value", 0, 32, "bits 31:0")),
        placed("job_need_high", 0x20, "bytes that close a tensor", ("value", 0, 8, "bits 39:32")),
        placed("job_deadline", 0x24, "time from claim to close", ("value", 0, 32, "0 is off")),
        placed(
            "job", 0x28, "table of jobs",
            ("index", 0, 4, "place in the table"), ("number", 8, 8, "JOB of its packets"),
            ("enabled", 16, 1, "its packets are ours"), _WRITE,
        ),
        placed("child_mac_low", 0x30, "a child's MAC address", ("value", 0, 32, "bits 31:0")),
        placed(
            "child_mac_high", 0x34, "a child's MAC address and port",
            ("value", 0, 16, "MAC address, bits 47:32"),
            ("udp_port", 16, 16, "UDP port that answers go to", UDP_PORT),
        ),
        placed("child_ip", 0x38, "a child's IPv4 address", ("value", 0, 32, "address")),
        placed(
            "child", 0x3C,
            "table of children: at most one of a job at each port; ignored beyond what was built",
            ("job", 0, 4, "place of the job"), ("port", 8, 5, "port that it is attached to"),
            ("src", 16, 5, "its SRC"), ("enabled", 24, 1, "there is one"), _WRITE,
        ),
        placed(
            "level", 0x40, "table of THC levels; ignored beyond what was built",
            ("address", 0, 12, "place of the job times 2**b_max, plus the index"),
            ("data", 16, 8, "level"), ("write", 31, 1, "written as long as this is 1"),
        ),
        placed(
            "clear", 0x44, "forgets what a job's slots hold",
            ("job", 0, 4, "place of the job"),
            ("write", 31, 1, "a 1 after a 0 begins, once jobs before it are forgotten"),
        ),
        placed(
            "status", 0x48, "state",
            ("busy", 0, 1, "slots are being cleared, or are to be"),
            ("queues", 1, 1, "answers wait in egress queues"), access="ro",
        ),
        placed(
            "queue", 0x4C, "with egress queues: a threshold of them all, or their limit",
            ("address", 0, 4, "queue 0 to 7; 8: the limit"),
            ("beats", 8, 16, "depth above which it drops or marks; or that none exceeds"), _WRITE,
        ),
        placed(
            "queue_shown", 0x50, "with egress queues: which counter is shown",
            ("count", 0, 6, "what + 4 * (queue + 8 * important); what: 0 enqueued, 1 and marked, "
             "2 dropped at the threshold, 3 at the limit"),
            ("port", 8, 5, "worker"),
        ),
        placed(
            "queue_count", 0x54, "with egress queues: the counter that is shown",
            ("value", 0, 32, "frames since the last reset"), access="ro",
        ),
        placed(
            "build", 0x58, "what the aggregator was built with",
            ("n_ports", 0, 6, "ports"), ("n_jobs", 8, 5, "places in the table of jobs"),
            ("b_max", 16, 4, "most bits of an index"),
            ("slot_bits", 20, 4, "of a slot's number: 2**slot_bits slots"),
            ("width", 24, 5, "bits of a THC sum"), access="ro",
        ),
        placed(
            "packets", 0x5C, "sizes of packets that the aggregator was built for",
            ("chunk", 0, 14, "elements of a THC chunk"),
            ("n_words", 16, 12, "most values of an INT32 or a SwitchML packet"), access="ro",
        ),
        *counters(FIRST_COUNTER, _COUNTERS, STEP_WIDTH),
    ),
)  # fmt: skip
