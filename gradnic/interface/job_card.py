"""Registers of an offload card with jobs: what is shared stays, what is of one round is posted."""

from . import offload
from .formats import Header
from .host_frame import T_EVENT
from .inline import EXPONENTS
from .job import ACTIVE, COMPLETION, DESCRIPTOR
from .neighbor import CARD_IP
from .register_map import Register, RegisterMap, counters, packed

JOBS = 9  # the table of loaded tables, beside `gradnic.interface.offload.Table`
CELLS = 10  # by table unit of THC: {index below 8, units above its value 8, gap to the next 8}
LEVELS = 11  # by index of THC, on cards for any bits: its level
N_SOURCES = 2
NOWHERE = (1 << 32) - 1  # upper word of an address that no card has

_SAME = (
    "mac_low", "ip", "network", "t_probe", "table_write", "ports",
    "scores", "pace", "pace_step", "pace_low", "pace_high", "closing",
    "queue_shown", "queue_count", "longest", "capacity",
)  # fmt: skip


def _region(name: str, offset: int, what: str, high: int = 0) -> list[Register]:
    """Two words of a byte address; high : the upper one after reset."""
    return [
        packed(f"{name}_low", offset, what, ("value", 32, "byte address, low half")),
        packed(f"{name}_high", offset + 4, what, ("value", 32, "byte address, high half", high)),
    ]


def _regions(name: str, offset: int, what: str) -> list[Register]:
    """A region of each context or engine, at no address after reset."""
    return [
        one
        for k in range(ACTIVE)
        for one in _region(f"{name}{k}", offset + 8 * k, f"{what} {k}; none after reset", NOWHERE)
    ]


def _record(name: str, offset: int, header: Header, what: str, access: str) -> list[Register]:
    """The words of a record, first byte first."""
    return [
        packed(
            f"{name}_{k}", offset + 4 * k, what,
            ("value", 32, f"bytes {4 * k} to {4 * k + 3}, the first in the highest bits"),
            access=access,
        )
        for k in range(header.n_bytes // 4)
    ]  # fmt: skip


_SHARED = [
    one
    for one in offload.REGISTERS
    if one.name in _SAME or one.name.startswith("table_data_") or one.access == "counter"
]
_OWN = (
    packed(
        "status", 0x004, "where the card is",
        ("active", ACTIVE, "bit k: context k has a job"),
        ("idle", 1, "no job waits or is active"),
        ("completion", 1, "one waits"),
        ("aborting", 1, "the last abort is being looked for"),
        ("inc", 1, "the card was built with INCEPTIONN"),
        ("n_active", 3, "contexts"), ("n_tables", 5, "tables that can be loaded"),
        ("bf16", 1, "the card was built with BF16"),
        ("scale", 1, "the card was built with means"),
        ("thc", 1, "the card was built with THC"),
        ("gives_up", 1, "the card was built for jobs that let a share miss"),
        ("feedback", 1, "the card was built with error feedback"),
        ("maxima", 1, "the card was built with maxima"),
        ("any_bits", 1, "indices of THC may have 2 to 8 bits, not 4 alone"),
        ("queues", 1, "the card was built with egress queues"),
        ("n_engines", 3, "engines: rounds side by side, each with landing areas"),
        access="ro",
    ),
    packed(
        "events", 0x00C, "sticky; the interrupt is their OR with the mask",
        ("ended", 1, "a completion came"), ("overrun", 1, "a post found the queue full"),
        ("failed", 1, "memory answered with an error, or a pass of THC went wrong"),
        ("outside", 1, "an access was refused"),
        ("renewed", 1, "the card was stuck: it reset what jobs share, active ones ended"),
        access="w1c",
    ),
    packed("interrupts", 0x010, "which events interrupt", ("mask", 5, "as events")),
    packed(
        "mac_high", 0x018, "own MAC address, and who this is",
        ("value", 16, "high bits"), ("node", 8, "SRC of what is sent"),
        ("tenant", 8, "JOB of ours"),
    ),
    packed(
        "packet", 0x028, "how tensors are cut",
        ("units", 8, "of a packet / 16; jobs are refused unless 1 to `longest`", 22),
    ),
    packed(
        "codec", 0x034, "INCEPTIONN",
        ("exponent", 7, "E, 113 to 126", 117, False, EXPONENTS), ("paper", 1, "MODE"),
        ("prescale", 8, "PS, two's complement"),
    ),
    packed("watchdog", 0x064, "cycles without progress that end a job; 0 is off",
           ("value", 32, "cycles")),
    packed(
        "tags", 0x098, "importance of packets; with back_layer 0 all are important",
        ("back_layer", 13, "layers from here on are important"),
        ("source", 2, "of the threshold: 0 no size is important, 1 host"),
        ("by_sum", 1, "score is the sum of sizes, not the largest exponent"),
        ("results", 1, "packets of the result are important", 1),
    ),
    packed(
        "build", 0x0F8, "what the card was built with",
        ("bytes", 8, "of a beat"), ("ports", 4, "Ethernet ports"),
        ("ranks", 4, "contributions of a chunk"),
        ("nodes", 8, "that rows of a table have room for"),
        ("peer_bits", 4, "of a peer index of a table"), access="ro",
    ),
    *_record("post", 0x180, DESCRIPTOR, "a descriptor, see docs/reference/jobs.md", "rw"),
    packed(
        "job", 0x1B0, "acts where a bit changes",
        ("post", 1, "the descriptor is posted"), ("take", 1, "the completion is taken"),
        ("abort", 1, "a job is to end: the oldest one with this id"), ("id", 16, "of that job"),
        ("any", 1, "the oldest one, whatever its id"),
    ),
    *_record("completion", 0x1B8, COMPLETION, "the oldest one, while status.completion", "ro"),
    *(
        one
        for k in range(N_SOURCES)
        for one in (
            *_region(f"source{k}", 0x200 + 12 * k, "where gradients and results may lie"),
            packed(f"source{k}_beats", 0x208 + 12 * k, "its size", ("value", 25, "beats")),
        )
    ),
    *_regions("landing", 0x220, "landing areas of engine"),
    packed("landing", 0x240, "size of each engine's landing areas", ("beats", 24, "beats")),
    packed(
        "thc", 0x248, "THC",
        ("log4", 2, "log4 of the block's size, less 3"),
        ("clip", 10, "clip point, in 1/256 sigma"),
        ("g", 8, "largest level"), ("index_p0", 8, "P0 of indices"),
        ("bits", 4, "of an index, on cards for any", 4),
    ),
    packed(
        "thc_unit", 0x24C, "THC",
        ("unit", 23, "g * 2**24 / (2 * clip), rounded"), ("index_p1", 8, "P1 of indices"),
    ),
    *(
        packed(
            f"levels_{k}", 0x250 + 4 * k,
            "four levels of the THC table of 4 bits, lowest index first",
            ("value", 32, "one a byte"),
        )
        for k in range(4)
    ),
    *_regions("scratch", 0x260, "THC: scratch of context"),
    packed("scratch", 0x280, "size of each context's scratch", ("beats", 24, "beats")),
    packed(
        "thc_own", 0x284, "THC with feedback: decodes indices of one node",
        ("scale", 32, "clip / (256 * g * block size), FP32"),
    ),
    packed(
        "thc_middle", 0x288, "THC: what an index that is not sent stands for",
        ("level", 8, "of index 2**(bits - 1)"),
    ),
    *counters(0x28C, [("renewals", "times that the card was stuck, see events.renewed")]),
)  # fmt: skip
_HOST_COUNTERS = (
    ("host_frames", "frames to the host address that are whole"),
    ("host_bad", "of them, dropped: marked bad", 2),
    ("host_foreign", "of them, dropped: not UDP to our port with our VER"),
    ("host_length", "of them, dropped: truncated, or a length that disagrees"),
    ("host_checksum", "of them, dropped: IP or UDP checksum wrong"),
    ("host_format", "of them, dropped: OP is not 14, or ELEMS and payload do not fit the kind"),
    ("host_overrun", "frames to the host address that found no room, or were too long", 2),
    ("host_late", "requests and ACKs that were copies"),
    ("host_gaps", "requests ahead of the one expected"),
    ("host_strangers", "frames of another session"),
    ("spoofed", "frames of the network to the host address: dropped", 4),
    ("host_answered", "ARP and ICMP echo requests of the host that were answered"),
)
_HOST = (
    packed("host_low", 0x290, "host address, where it is chosen", ("value", 32, "low bits")),
    packed(
        "host_high", 0x294, "host address, where it is chosen",
        ("value", 16, "high bits"),
        ("chosen", 1, "0: the address is 02:67:6e and the last three bytes of the own MAC"),
    ),
    packed("t_event", 0x298, "between copies of an EVENT", ("value", 32, "cycles", T_EVENT)),
    packed(
        "host", 0x29C, "host frames",
        ("events", 1, "completions are told by EVENT, and leave by its ACK, not by job.take"),
    ),
    *counters(0x2A0, _HOST_COUNTERS),
    packed(
        "host_ip", 0x2D0, "what the host reaches the card by",
        ("value", 32, "IPv4 address: its ARP and ICMP echo requests are answered", CARD_IP),
    ),
)  # fmt: skip

REGISTERS = RegisterMap(
    "jobs",
    "Offload card with jobs.",
    tuple(sorted([*_SHARED, *_OWN], key=lambda one: one.offset)),
)
HOSTED = RegisterMap(
    "jobs_host", "Offload card with jobs and host frames.", (*REGISTERS.registers, *_HOST)
)
