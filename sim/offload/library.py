"""The library of a cluster of offload cards: what their ports are called, and its functions."""

import ctypes
from functools import cache
from pathlib import Path

from amaranth.utils import ceil_log2
from gradnic.hdl.offload.core import OffloadCore
from gradnic.hdl.transport.records import N_NEIGHBORS, NUMBER_WIDTH

from gradnic.interface.offload import Drop

from ..engine import cluster_library
from ..engine.design_ports import member

ENGINE = Path(__file__).with_name("cluster.cpp")
NAMES = (
    "gradient", "landing", "root", "norm", "encode", "decode", "added", "kept", "host",
)  # of ports  # fmt: skip
MEMORY = (0, 1, *[0] * 7)  # behind each
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_FUNCTIONS = {
    "new": ([_NUMBER, _POINTER, _NUMBER, _NUMBER], _POINTER),
    "fabric": ([_POINTER, _NUMBER, _POINTER, _POINTER, _POINTER], None),
    "delete": ([_POINTER], None),
    "set": ([_POINTER, _NUMBER, _NUMBER, _POINTER], None),
    "get": ([_POINTER, _NUMBER, _NUMBER, _POINTER], None),
    "tick": ([_POINTER, _NUMBER], None),
    "now": ([_POINTER], _NUMBER),
    "memory": ([_POINTER, _NUMBER, _NUMBER], _POINTER),
    "access": ([_POINTER, *[_NUMBER] * 4], None),
    "accessed": ([_POINTER, _NUMBER, _POINTER], _NUMBER),
    "dram": ([_POINTER, _NUMBER, _POINTER], None),
    "pause": ([_POINTER, _POINTER], None),
    "moved": ([_POINTER], _NUMBER),
    "waits": ([_POINTER, _NUMBER, _NUMBER], ctypes.c_char_p),
    "spoil": ([_POINTER, *[_NUMBER] * 5], None),
    "send": ([_POINTER, _NUMBER, _NUMBER, _NUMBER, _POINTER], None),
    "inject": ([_POINTER, _NUMBER, _NUMBER, _NUMBER, _NUMBER, _POINTER], None),
    "run": ([_POINTER, _POINTER, _NUMBER, _POINTER, _NUMBER, _NUMBER, _NUMBER], _NUMBER),
    "go": ([_POINTER, _NUMBER], _NUMBER),
    "sent": ([_POINTER, _POINTER, _POINTER], _NUMBER),
    "given": ([_POINTER, _POINTER], _NUMBER),
    "got": ([_POINTER, _NUMBER, _NUMBER, _NUMBER, _POINTER], _NUMBER),
    "forget": ([_POINTER], None),
    "counts": ([_POINTER, _NUMBER, _POINTER], None),
    "keep": ([_POINTER, _NUMBER, _NUMBER], None),
    "programs": ([_POINTER, *[_NUMBER] * 3, ctypes.c_double, _NUMBER, _NUMBER], None),
    "program_counts": ([_POINTER, _NUMBER, _NUMBER, _POINTER, _POINTER], _NUMBER),
    "idle": ([_POINTER, _NUMBER], None),
    "rest": ([_POINTER, _NUMBER], None),
    "state_bits": ([_POINTER], _NUMBER),
    "state_name": ([_POINTER, _NUMBER], ctypes.c_char_p),
    "state_first": ([_POINTER, ctypes.c_char_p], _NUMBER),
    "upset": ([_POINTER, _NUMBER, _NUMBER, _NUMBER], None),
}


def _registers(hosted, n_rounds=0):
    """Functions on the registers of a card that has them, and what they stand for in one of those;
    for a core, which has ports instead, the other way round. n_rounds : contexts of a core with
    jobs.
    """
    bus = "enum BusBits : uint32_t { AW = 1, W = 2, AR = 4, B = 8, R = 16 };"
    drive = "void bus_drive(Design &d, bool aw, bool w, bool ar, uint32_t address, uint32_t word)"
    counts = ("dropped", "crossed", "oversize", "overrun", "answered", "responses")
    if not hosted:
        names = [f"given_up_packet__{k}" for k in range(n_rounds)] or ["given_up_packet"]
        cases = [f"case {k}: given = {member(name)}; break;" for k, name in enumerate(names)]
        return [
            f"constexpr int N_ROUNDS = {len(names)};",
            bus,
            f"{drive} {{}}",
            "uint32_t bus_seen(Design &d) { return 0; }",
            "uint32_t bus_word(Design &d) { return 0; }",
            "bool gave_up(Design &d, int k, Given &told) {",
            "\tuint64_t given = 0;",
            f"\tswitch (k) {{ {' '.join(cases)} }}",
            f"\ttold.neighbor = given & {N_NEIGHBORS - 1}, given >>= {ceil_log2(N_NEIGHBORS)};",
            f"\ttold.number = given & {2**NUMBER_WIDTH - 1}, given >>= {NUMBER_WIDTH};",
            "\ttold.tensor = given & 0xFFFF, told.gen = given >> 16;",
            f"\treturn {member('given_up')} >> k & 1; }}",
            *(f"uint32_t {name}(Design &d) {{ return {member(name)}; }}" for name in counts),
            f"bool get_done(Design &d) {{ return {member('finished')} & 1; }}",
        ]
    set_ = {"awvalid": "aw", "wvalid": "w", "arvalid": "ar", "awaddr": "address",
            "araddr": "address", "wdata": "word", "wstrb": "15", "bready": "1",
            "rready": "1"}  # fmt: skip
    seen = ("awready", "wready", "arready", "bvalid", "rvalid")
    return [
        bus,
        f"{drive} {{ "
        + " ".join(f"{member(f'bus__{wire}')} = {value};" for wire, value in set_.items())
        + " }",
        "uint32_t bus_seen(Design &d) { return "
        + " | ".join(f"({member(f'bus__{wire}')} & 1) << {k}" for k, wire in enumerate(seen))
        + "; }",
        f"uint32_t bus_word(Design &d) {{ return {member('bus__rdata')}; }}",
        "constexpr int N_ROUNDS = 0;",
        "bool gave_up(Design &d, int k, Given &told) { return false; }",
        *(f"uint32_t {name}(Design &d) {{ return 0; }}" for name in counts),
        "bool get_done(Design &d) { return false; }",
    ]


def _names(component):
    """Lines of C++ that name the ports of a card for ``cluster.cpp``."""
    hosted = "bus" in component.signature.members
    members = component.signature.members  # a card may have more memory ports than its core
    if hosted:
        component = component.core
    n_bytes, n_ports, beat = component.n_bytes, component.n_ports, component.port_bytes
    names = [name for name in NAMES if f"{name}_read" in members]
    return [
        f"constexpr int N_BYTES = {n_bytes}, PORT_BYTES = {beat}, N_PORTS = {n_ports};",
        f"constexpr int N_DROPS = {len(Drop)}, N_MEMORY_PORTS = {len(names)};",
        f"constexpr int MEMORY_OF[] = {{ {', '.join(map(str, MEMORY[: len(names)]))} }};",
        "constexpr const char *MEMORY_NAMES[] = { "
        + ", ".join(f'"{name}"' for name in names) + " };",
        "enum WriteBits : uint32_t { AWVALID = 1, WVALID = 2 };",
        *_packing(beat),
        *_registers(hosted, getattr(component, "n_engines", 0)),
        *_frames(n_ports),
        *_memories(names, members, n_bytes),
    ]  # fmt: skip


def _packing(beat):
    """Beats of frames, of `beat` bytes, to a port's payload and back."""
    return [
        "template<class T, class B> void pack(T &port, const B &beat) {",
        f"\tstatic_assert(sizeof port > {beat} && sizeof port <= {beat} + 24);",
        "\tunsigned __int128 keep = ~(unsigned __int128)(0);",
        "\tif (beat.kept < 128) keep = ((unsigned __int128)(1) << beat.kept) - 1;",
        "\tuint8_t more[24] = {}; std::memcpy(more, &keep, sizeof keep);",
        f"\tmore[{beat // 8}] |= (beat.last | beat.bad << 1) << {beat % 8};",
        f"\tstd::memcpy(&port, beat.data, {beat});",
        f"\tstd::memcpy(reinterpret_cast<char *>(&port) + {beat}, more, sizeof port - {beat}); }}",
        "template<class T, class B> void unpack(const T &port, B &beat) {",
        "\tuint8_t more[24] = {}; uint64_t keep[2];",
        f"\tstd::memcpy(beat.data, &port, {beat});",
        "\tstd::memcpy(more, reinterpret_cast<const char *>(&port) + "
        f"{beat}, sizeof port - {beat});",
        f"\tbeat.last = more[{beat // 8}] >> {beat % 8} & 1;",
        f"\tbeat.bad = more[{beat // 8}] >> {beat % 8 + 1} & 1;",
        "\tstd::memcpy(keep, more, sizeof keep);",
        "\tint low = ~keep[0] ? __builtin_ctzll(~keep[0]) : 64;",
        "\tint high = low < 64 ? 0 : ~keep[1] ? __builtin_ctzll(~keep[1]) : 64;",
        f"\tbeat.kept = std::min(low + high, {beat}); }}",
    ]


def _frames(n_ports):
    """Streams of frames."""

    def per_port(head, body, tail=""):
        cases = " ".join(f"case {k}: {{ {body(k)} }}" for k in range(n_ports))
        return f"{head} {{ switch (p) {{ {cases} }} {tail} }}"

    def offer(stream):
        return lambda k: (
            f"{member(f'{stream}__{k}__valid')} = any; if (any) pack("
            f"{member(f'{stream}__{k}__payload')}, beat); break;"
        )

    def taken(stream):
        return lambda k: f"return {member(f'{stream}__{k}__ready')};"

    def leaves(stream):
        return lambda k: (
            f"if (!({member(f'{stream}__{k}__valid')} & "
            f"{member(f'{stream}__{k}__ready')}))"
            f" return false; unpack({member(f'{stream}__{k}__payload')}, beat); return true;"
        )

    return [
        per_port("template<class B> void mac_rx(Design &d, int p, bool any, const B &beat)",
                 offer("mac_rx")),
        per_port("template<class B> void host_tx(Design &d, int p, bool any, const B &beat)",
                 offer("host_tx")),
        per_port("bool mac_rx_taken(Design &d, int p)", taken("mac_rx"), "return false;"),
        per_port("bool host_tx_taken(Design &d, int p)", taken("host_tx"), "return false;"),
        *(
            per_port(f"void {name}_ready(Design &d, int p, bool bit)",
                     lambda k, name=name: f"{member(f'{name}__{k}__ready')} = bit; break;")
            for name in ("mac_tx", "host_rx")
        ),
        *(
            per_port(f"template<class B> bool {name}_taken(Design &d, int p, B &beat)",
                     leaves(name), "return false;")
            for name in ("mac_tx", "host_rx")
        ),
    ]  # fmt: skip


def _memories(names, members, n_bytes):
    """Memory ports, of which some only read or only write."""

    def per_memory(head, body, tail="", *, way):
        there = [k for k, name in enumerate(names) if f"{name}_{way}" in members]
        cases = " ".join(f"case {k}: {{ {body(k)} }}" for k in there)
        return f"{head} {{ switch (k) {{ {cases} }} {tail} }}"

    def read(k, wire):
        return member(f"{names[k]}_read__{wire}")

    def write(k, wire):
        return member(f"{names[k]}_write__{wire}")

    def asked(wires, address):
        return lambda k: (
            f"if (!({wires(k, address + 'valid')} & "
            f"{wires(k, address + 'ready')} & 1)) return false; "
            f"address = {wires(k, address + 'addr')}; "
            f"length = {wires(k, address + 'len')} + 1; return true;"
        )

    return [
        per_memory("void read_data(Design &d, int k, bool any, const uint8_t *word, bool last, "
                   "bool wrong)",
                   lambda k: f"{read(k, 'rvalid')} = any; if (any && word) load<8 * N_BYTES>("
                   f"{read(k, 'rdata')}, word); {read(k, 'rlast')} = last; "
                   f"{read(k, 'rresp')} = 2 * wrong; break;", way="read"),
        per_memory("void read_ready(Design &d, int k, bool bit)",
                   lambda k: f"{read(k, 'arready')} = bit; break;", way="read"),
        per_memory("void write_ready(Design &d, int k, bool address, bool data)",
                   lambda k: f"{write(k, 'awready')} = address; "
                   f"{write(k, 'wready')} = data; break;", way="write"),
        per_memory("void write_answer(Design &d, int k, bool bit, bool wrong)",
                   lambda k: f"{write(k, 'bvalid')} = bit; "
                   f"{write(k, 'bresp')} = 2 * wrong; break;", way="write"),
        per_memory("bool read_taken(Design &d, int k)",
                   lambda k: f"return {read(k, 'rvalid')} & "
                   f"{read(k, 'rready')} & 1;", "return false;", way="read"),
        per_memory("bool read_asked(Design &d, int k, uint64_t &address, int &length)",
                   asked(read, "ar"), "return false;", way="read"),
        per_memory("bool write_asked(Design &d, int k, uint64_t &address, int &length)",
                   asked(write, "aw"), "return false;", way="write"),
        per_memory("bool read_waits(Design &d, int k)",
                   lambda k: f"return {read(k, 'arvalid')} & ~{read(k, 'arready')} & 1;",
                   "return false;", way="read"),
        per_memory("bool write_offers(Design &d, int k)",
                   lambda k: f"return {write(k, 'wvalid')} & 1;", "return false;", way="write"),
        per_memory("uint32_t write_waits(Design &d, int k)",
                   lambda k: f"return ({write(k, 'awvalid')} & ~{write(k, 'awready')} & 1) | "
                   f"({write(k, 'wvalid')} & ~{write(k, 'wready')} & 1) << 1;",
                   "return 0;", way="write"),
        per_memory("bool write_taken(Design &d, int k, uint8_t *data, uint8_t *keep, bool &last)",
                   lambda k: f"if (!({write(k, 'wvalid')} & "
                   f"{write(k, 'wready')} & 1)) return false; std::memcpy(data, "
                   f"&{write(k, 'wdata')}, {n_bytes}); std::memcpy(keep, "
                   f"&{write(k, 'wstrb')}, {n_bytes // 8}); last = {write(k, 'wlast')} & 1; "
                   "return true;", "return false;", way="write"),
        per_memory("bool answer_taken(Design &d, int k)",
                   lambda k: f"return {write(k, 'bvalid')} & "
                   f"{write(k, 'bready')} & 1;", "return false;", way="write"),
    ]  # fmt: skip


@cache
def build(layout, *, n_bytes, n_ports, card=OffloadCore, **sizes):
    """Build, or find, the library of a card: (ctypes library, {plain port: (number, port)}).

    layout, n_bytes, n_ports, sizes : of `card`, a class with the ports of `OffloadCore`,
    ``port_bytes`` among them.
    """
    given = {"n_bytes": n_bytes, "n_ports": n_ports, "layout": layout, **sizes}
    made = card(**given)
    return cluster_library.load(made, ENGINE, _names(made), _FUNCTIONS, given)
