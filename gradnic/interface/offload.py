"""What model and circuit of the offload card share: subtypes of CONTROL, reasons, registers."""

from enum import IntEnum

from .formats import UDP_PORT
from .inline import EXPONENTS
from .register_map import Register, RegisterMap, counters, packed

MAX_FRAME = 16384  # bytes without FCS; a longer frame is cut here and marked bad
ANSWER_TOS = 56 << 2 | 2  # default of answers: served before all data; ECN-capable


class Subtype(IntEnum):
    """Subtypes of a CONTROL packet."""

    PROBE = 1
    BITMAP = 2
    STOP = 3
    STALE = 4
    NOT_READY = 5


class Drop(IntEnum):
    """Why one of our frames changed nothing; the first that applies is the one counted."""

    NONE = 0
    BAD = 1  # came marked bad
    LENGTH = 2  # truncated, or a length field that disagrees
    CHECKSUM = 3  # IPv4 header or nonzero UDP checksum wrong
    FORMAT = 4  # reserved OP, or SET != GEN[0]
    OWNER = 5  # of a neighbor's IPv4 address, but not its MAC address, SRC and port
    CONFIG = 6  # not a packet of this tensor, or not from who sends it here
    NOT_READY = 7  # of a round that is not armed
    CODEC = 8  # malformed INCEPTIONN unit
    DUPLICATE = 9  # is here already, or was given up


class Table(IntEnum):
    """Tables that ``table_write`` fills, one entry at a time from ``table_data``."""

    ROWS = 0  # schedule table: a row, as `gradnic.interface.schedule_table.Layout.pack` packs it
    PLACES = 1  # by chunk: up by rank {valid, neighbor 4, leaves 8, flow 13}; down the first two
    NEIGHBORS = 2  # {valid, node 8, port, mac 48, ip 32}; port as many bits as tell the ports apart
    # by neighbor: bytes times leaves that it may lose in the next round; with closing.at_share,
    # those that must come
    ALLOWANCES = 3
    PEERS = 4  # by peer index of a row: neighbor
    LAYERS = 5  # by layer: queue
    DSCPS = 6  # by 2 * queue + important: DSCP
    THRESHOLD = 7  # at 0: score from which on a packet is important, 0 to 256
    CHECKS = 8  # by packet of a round of THC: low 20 bits of the XOR of its blocks' agreed norms
    # with egress queues, in beats, 0 for none: by queue, the depth above which it drops or marks;
    # at 8, the most that any holds
    QUEUES = 12


TABLE_WORDS = 7  # of an entry

_COUNTERS = (
    ("sent", "packets sent, without PROBEs and answers"),
    ("retransmitted", "of them sent again"),
    ("probes", "PROBEs sent"),
    ("accepted", "packets taken"),
    ("given_up", "packets closed without their values, within the allowance"),
    ("bad", "ours, dropped: marked bad"),
    ("length", "ours, dropped: truncated, or a length that disagrees"),
    ("checksum", "ours, dropped: IP or UDP checksum wrong"),
    ("format", "ours, dropped: reserved OP, or SET is not GEN[0]"),
    ("owner", "ours, dropped: a neighbor's IPv4 address, but not its MAC address, SRC and port"),
    ("config", "ours, dropped: no packet of this tensor, or not from who sends it here"),
    ("not_ready", "ours, not taken: of a round that is not armed"),
    ("unsound", "ours, dropped: coded unit malformed"),
    ("duplicate", "ours, dropped: here already, or given up"),
    ("foreign", "frames that are not ours, by port, VER, JOB or sender: passed to the host"),
    ("oversize", "frames cut at 16384 bytes and marked bad"),
    ("overrun", "ours, dropped: no room at their port"),
    ("answered", "PROBEs answered by STOP or BITMAP"),
    ("responses", "STOP, BITMAP and other answers of the round, given to the sender"),
    ("outside", "accesses outside of the registered regions, refused"),
    (
        "failed",
        "beats that memory answered with an error as they were read, ranges as they were written; "
        "passes of THC that went wrong",
    ),
)
COUNTERS = tuple(name for name, _ in _COUNTERS)


def _words(name: str, offset: int, n: int, doc: str) -> list[Register]:
    return [packed(f"{name}_{k}", offset + 4 * k, doc, ("value", 32, doc)) for k in range(n)]


_REGION = (("low", "byte address, low half"), ("high", "byte address, high half"))

REGISTERS = RegisterMap(
    "offload",
    "Offload card. Everything but control must stay as it is while a round is armed.",
    (
        packed(
            "control", 0x000, "what is to happen; start and abort act when they rise",
            ("armed", 1, "packets of the round are taken, once clearing is 0"),
            ("clear", 1, "when it rises: forget the packets of the last round"),
            ("start", 1, "when it rises: the schedule begins, once clearing is 0"),
            ("abort", 1, "the schedule ends"),
        ),
        packed(
            "status", 0x004, "where the round is",
            ("running", 1, "the schedule runs"),
            ("done", 1, "its rows are out, and all chunks are final"),
            ("finished", 1, "done, and all neighbors have what they need from here"),
            ("clearing", 1, "packets of the last round are being forgotten"),
            ("stuck", 1, "the watchdog has barked"),
            ("fault", 3, "of the table: 1 setup, 2 operation, 3 chunk, 4 peer"),
            ("thc", 1, "the card was built with THC"),
            ("inc", 1, "the card was built with INCEPTIONN"),
            ("queues", 1, "the card was built with egress queues"),
            access="ro",
        ),
        packed(
            "position", 0x008, "the oldest row that is not out",
            ("row", 16, "its number"), ("chunk", 13, "its first chunk"), access="ro",
        ),
        packed(
            "events", 0x00C, "sticky; the interrupt is their OR with the mask",
            ("finished", 1, "a round is finished"), ("stuck", 1, "the watchdog has barked"),
            ("fault", 1, "a bad table"), ("outside", 1, "an access was refused"),
            ("failed", 1, "memory answered with an error"),
            access="w1c",
        ),
        packed("interrupts", 0x010, "which events interrupt", ("mask", 5, "as events")),
        packed("mac_low", 0x014, "own MAC address", ("value", 32, "low bits")),
        packed(
            "mac_high", 0x018, "own MAC address, and who this is",
            ("value", 16, "high bits"), ("node", 8, "SRC of what is sent"),
            ("job", 8, "JOB of ours"),
        ),
        packed("ip", 0x01C, "own IPv4 address", ("value", 32, "of the card")),
        packed(
            "network", 0x020, "of frames that are sent",
            ("udp_port", 16, "destination, and source of path 0", UDP_PORT),
            ("tos", 8, "DSCP and ECN of answers; at first DSCP 56, ECT(0)", ANSWER_TOS),
            ("spray", 1, "frames take 8 paths"),
            ("rule", 2, "0 round robin, 1 random, 2 the path that was marked least recently"),
        ),
        packed(
            "round", 0x024, "the round",
            ("tensor", 16, "TENSOR of its packets"), ("gen", 16, "GEN of its packets"),
        ),
        packed(
            "chunk", 0x028, "how the tensor is cut",
            ("units", 24, "elements of a chunk / 16"),
            ("packet", 8, "of a packet / 16; above `longest`, four times that with THC, a round "
             "is a fault, 1 setup"),
        ),
        packed(
            "packets", 0x02C, "packets of a chunk",
            ("whole", 16, "of a whole one"), ("last", 16, "of the last one"),
        ),
        packed(
            "tails", 0x030, "elements of the last packet",
            ("whole", 12, "of a whole chunk"), ("last", 12, "of the last chunk"),
        ),
        packed(
            "codec", 0x034, "what packets hold; none of the first three: raw floats",
            ("coded", 1, "INCEPTIONN"), ("norm", 1, "norms, of which the largest counts"),
            ("thc", 1, "THC indices of 4 bits and sums of 8"),
            ("exponent", 7, "E, 113 to 126", 117, False, EXPONENTS), ("paper", 1, "MODE"),
            ("prescale", 8, "PS, two's complement"),
        ),
        packed(
            "thc", 0x038, "THC",
            ("n", 8, "leaves"), ("g", 8, "granularity"),
            ("index_p0", 8, "P0 of indices"), ("index_p1", 8, "P1 of indices"),
        ),
        *_words("levels", 0x03C, 4, "four levels of the THC table, lowest index first"),
        packed("t_probe", 0x04C, "cycles between PROBEs", ("value", 24, "cycles", 4000)),
        packed(
            "schedule", 0x050, "schedule table",
            ("rows", 16, "in the table"), ("peers", 8, "that rows may name"),
            ("lockstep", 1, "obey steps and NOP rows"),
        ),
        packed(
            "chunks", 0x054, "chunks of the tensor",
            ("all", 14, "of all repeats"), ("live", 14, "those that are not empty"),
        ),
        packed(
            "period", 0x058, "periodic tables",
            ("stride", 14, "chunks of one period"), ("repeats", 14, "periods", 1),
        ),
        packed(
            "iterations", 0x05C, "repeats + stages - 1", ("value", 15, "turns of the table", 1)
        ),
        packed("step_cycles", 0x060, "estimated time of a step", ("value", 24, "cycles")),
        packed("watchdog", 0x064, "cycles without progress; 0 is off", ("value", 32, "cycles")),
        *(
            packed(f"{region}_{half}", 0x068 + 12 * k + 4 * h, text, ("value", 32, text))
            for k, region in enumerate(("gradient", "result", "landing"))
            for h, (half, text) in enumerate((*_REGION, ("beats", "size in beats")))
        ),
        packed("area", 0x08C, "landing area of one rank", ("beats", 24, "its size")),
        packed(
            "table_write", 0x090, "writes an entry when toggle changes; not while armed",
            ("address", 16, "of the entry"), ("table", 4, "0 rows, 1 places, 2 neighbors, "
             "3 allowances, 4 peers, 5 layers, 6 DSCPs, 7 threshold, 8 checks, 12 queues"),
            ("toggle", 1, "changes with each write"),
        ),
        packed(
            "ports", 0x094, "shares of a line",
            ("floor", 8, "beats for own frames to 256 foreign ones, while both wait", 28),
        ),
        packed(
            "tags", 0x098, "importance of packets; with back_layer 0 all are important",
            ("back_layer", 13, "layers from here on are important"),
            ("layer", 6, "of the tensor"),
            ("source", 2, "of the threshold: 0 no size is important, 1 host, 2 the last round"),
            ("by_sum", 1, "score is the sum of sizes, not the largest exponent"),
            ("results", 1, "packets of the result are important", 1),
        ),
        packed(
            "scores", 0x09C, "how sizes become importance",
            ("unit", 8, "biased exponent of the sum's unit", 100),
            ("share", 8, "of the elements that are to be important, in 1/256", 128),
        ),
        packed(
            "pace", 0x0A0, "rate of packets and PROBEs",
            ("rule", 2, "0 the line's, 1 by marks, 2 by round trips"),
            ("floor", 17, "least, in 1/65536 of the line's", 1024),
        ),
        packed("pace_step", 0x0A4, "gain", ("value", 17, "in 1/65536 of the line's", 256)),
        packed("pace_low", 0x0A8, "round trip", ("value", 32, "below which the rate grows")),
        packed("pace_high", 0x0AC, "round trip", ("value", 32, "above which the rate falls")),
        *_words("table_data", 0x0B0, TABLE_WORDS, "an entry, low bits first"),
        packed(
            "closing", 0x0CC, "when packets may be given up, at a PROBE",
            ("at_share", 1, "0: what the range lacks fits the neighbor's allowance; 1: all that it "
             "sends is here but for its share"),
        ),
        packed(
            "queue_shown", 0x0D0, "cards with egress queues: which counter is shown",
            ("count", 6, "what + 4 * (queue + 8 * important); what: 0 enqueued, 1 and marked, 2 "
             "dropped at the threshold, 3 at the limit"),
            ("port", 3, "of the card"),
        ),
        packed(
            "queue_count", 0x0D4, "cards with egress queues: the counter that is shown",
            ("value", 32, "frames since the last reset"), access="ro",
        ),
        packed(
            "longest", 0x0D8, "what the card was built for",
            ("units", 8, "floats of a packet / 16, at most"), access="ro",
        ),
        packed(
            "build", 0x0F8, "what the card was built with",
            ("bytes", 8, "of a beat: regions begin at multiples of it"),
            ("ports", 4, "Ethernet ports"), ("ranks", 4, "contributions of a chunk"),
            ("nodes", 8, "that rows of the table have room for"), access="ro",
        ),
        packed(
            "capacity", 0x0FC, "what the card was built for",
            ("rows", 15, "of a table"), ("chunks", 14, "of a table"), access="ro",
        ),
        *counters(0x100, _COUNTERS, step_width=4),
    ),
)  # fmt: skip
