"""The library of a cluster of offload cards: what their ports are called, and its functions."""

import ctypes
from functools import cache
from pathlib import Path

from amaranth.utils import ceil_log2
from gradnic.hdl.offload.core import OffloadCore
from gradnic.hdl.transport.records import N_NEIGHBORS

from gradnic.interface.offload import Drop

from ..engine import cluster_library
from ..engine.cluster_library import level

ENGINE = Path(__file__).with_name("cluster.cpp")
READS = ("gradient_read", "landing_read")
WRITES = ("gradient_write", "landing_write")
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_FUNCTIONS = {
    "new": ([_NUMBER, _POINTER, _NUMBER, _NUMBER], _POINTER),
    "delete": ([_POINTER], None),
    "set": ([_POINTER, _NUMBER, _NUMBER, _POINTER], None),
    "get": ([_POINTER, _NUMBER, _NUMBER, _POINTER], None),
    "tick": ([_POINTER, _NUMBER], None),
    "now": ([_POINTER], _NUMBER),
    "memory": ([_POINTER, _NUMBER, _NUMBER], _POINTER),
    "send": ([_POINTER, _NUMBER, _NUMBER, _NUMBER, _POINTER], None),
    "inject": ([_POINTER, _NUMBER, _NUMBER, _NUMBER, _NUMBER, _POINTER], None),
    "run": ([_POINTER, _POINTER, _NUMBER, _POINTER], _NUMBER),
    "sent": ([_POINTER, _POINTER, _POINTER], _NUMBER),
    "given": ([_POINTER, _POINTER], _NUMBER),
    "got": ([_POINTER, _NUMBER, _NUMBER, _NUMBER, _POINTER], _NUMBER),
    "counts": ([_POINTER, _NUMBER, _POINTER], None),
    "keep": ([_POINTER, _NUMBER, _NUMBER], None),
    "programs": ([_POINTER, *[_NUMBER] * 3, ctypes.c_double, _NUMBER, _NUMBER], None),
    "program_counts": ([_POINTER, _NUMBER, _NUMBER, _POINTER, _POINTER], _NUMBER),
    "idle": ([_POINTER, _NUMBER], None),
    "state_bits": ([_POINTER], _NUMBER),
    "upset": ([_POINTER, _NUMBER, _NUMBER, _NUMBER], None),
}


def _names(component):
    """Lines of C++ that name the ports of a card for ``cluster.cpp``."""
    n, n_ports = component.n_bytes, component.n_ports

    def out(name):
        return f"peek({level(name)}).data[0]"

    def per_port(head, body, tail=""):
        cases = " ".join(f"case {k}: {{ {body(k)} }}" for k in range(n_ports))
        return f"{head} {{ switch (p) {{ {cases} }} {tail} }}"

    def per_memory(head, body, tail=""):
        cases = " ".join(f"case {k}: {{ {body(k)} }}" for k in range(2))
        return f"{head} {{ switch (k) {{ {cases} }} {tail} }}"

    def offer(stream):
        return lambda k: (
            f"{level(f'{stream}__{k}__valid')}.data[0] = any; if (any) pack("
            f"{level(f'{stream}__{k}__payload')}, beat); break;"
        )

    def taken(stream):
        return lambda k: f"return {out(f'{stream}__{k}__ready')} & 1;"

    def leaves(stream):
        return lambda k: (
            f"if (!({out(f'{stream}__{k}__valid')} & {level(f'{stream}__{k}__ready')}.data[0] & 1))"
            f" return false; unpack(peek({level(f'{stream}__{k}__payload')}), beat); return true;"
        )

    def read(k, wire):
        return level(f"{READS[k]}__{wire}")

    def write(k, wire):
        return level(f"{WRITES[k]}__{wire}")

    def asked(wires, address):
        return lambda k: (
            f"if (!(peek({wires(k, address + 'valid')}).data[0] & "
            f"{wires(k, address + 'ready')}.data[0] & 1)) return false; "
            f"address = wide(peek({wires(k, address + 'addr')})); "
            f"length = peek({wires(k, address + 'len')}).data[0] + 1; return true;"
        )

    lines = [
        f"constexpr int N_BYTES = {n}, N_PORTS = {n_ports}, N_DROPS = {len(Drop)};",
        "template<size_t N> uint64_t wide(value<N> &v) {",
        "\treturn v.data[0] | (N > 32 ? uint64_t(v.data[N > 32]) << 32 : 0); }",
        "template<size_t N, class B> void pack(value<N> &v, const B &beat) {",
        "\tuint8_t raw[(N + 31) / 32 * 4 + 16] = {};",
        f"\tstd::memcpy(raw, beat.data, {n});",
        "\tauto put = [&](size_t at, bool bit) { raw[at / 8] |= bit << at % 8; };",
        f"\tfor (int i = 0; i < beat.kept; i++) put({8 * n} + i, 1);",
        f"\tput({9 * n}, beat.last), put({9 * n + 1}, beat.bad);",
        "\tstd::memcpy(v.data, raw, (N + 31) / 32 * 4); }",
        "template<size_t N, class B> void unpack(value<N> &v, B &beat) {",
        "\tconst uint8_t *raw = reinterpret_cast<const uint8_t *>(v.data);",
        f"\tstd::memcpy(beat.data, raw, {n});",
        "\tauto get = [&](size_t at) { return raw[at / 8] >> at % 8 & 1; };",
        f"\tbeat.kept = 0; while (beat.kept < {n} && get({8 * n} + beat.kept)) beat.kept++;",
        f"\tbeat.last = get({9 * n}), beat.bad = get({9 * n + 1}); }}",
        "bool gave_up(Design &d, int32_t &neighbor, int32_t &number) {",
        f"\tuint32_t given = {out('given')};",
        f"\tneighbor = given & {N_NEIGHBORS - 1}, number = given >> {ceil_log2(N_NEIGHBORS)};",
        f"\treturn {out('given_up')} & 1; }}",
        *(
            f"uint32_t {name}(Design &d) {{ return {out(name)}; }}"
            for name in ("dropped", "crossed", "oversize", "overrun", "answered", "heard")
        ),
        f"bool get_done(Design &d) {{ return {out('finished')} & 1; }}",
        per_port("template<class B> void mac_rx(Design &d, int p, bool any, const B &beat)",
                 offer("mac_rx")),
        per_port("template<class B> void host_tx(Design &d, int p, bool any, const B &beat)",
                 offer("host_tx")),
        per_port("bool mac_rx_taken(Design &d, int p)", taken("mac_rx"), "return false;"),
        per_port("bool host_tx_taken(Design &d, int p)", taken("host_tx"), "return false;"),
        *(
            per_port(f"void {name}_ready(Design &d, int p, bool bit)",
                     lambda k, name=name: f"{level(f'{name}__{k}__ready')}.data[0] = bit; break;")
            for name in ("mac_tx", "host_rx")
        ),
        *(
            per_port(f"template<class B> bool {name}_taken(Design &d, int p, B &beat)",
                     leaves(name), "return false;")
            for name in ("mac_tx", "host_rx")
        ),
        per_memory("void read_data(Design &d, int k, bool any, const uint8_t *word, bool last)",
                   lambda k: f"{read(k, 'rvalid')}.data[0] = any; if (any && word) fill("
                   f"{read(k, 'rdata')}, word); {read(k, 'rlast')}.data[0] = last; "
                   f"{read(k, 'rresp')}.data[0] = 0; break;"),
        per_memory("void read_ready(Design &d, int k, bool bit)",
                   lambda k: f"{read(k, 'arready')}.data[0] = bit; break;"),
        per_memory("void write_ready(Design &d, int k, bool address, bool data)",
                   lambda k: f"{write(k, 'awready')}.data[0] = address; "
                   f"{write(k, 'wready')}.data[0] = data; break;"),
        per_memory("void write_answer(Design &d, int k, bool bit)",
                   lambda k: f"{write(k, 'bvalid')}.data[0] = bit; "
                   f"{write(k, 'bresp')}.data[0] = 0; break;"),
        per_memory("bool read_taken(Design &d, int k)",
                   lambda k: f"return {read(k, 'rvalid')}.data[0] & "
                   f"peek({read(k, 'rready')}).data[0] & 1;", "return false;"),
        per_memory("bool read_asked(Design &d, int k, uint64_t &address, int &length)",
                   asked(read, "ar"), "return false;"),
        per_memory("bool write_asked(Design &d, int k, uint64_t &address, int &length)",
                   asked(write, "aw"), "return false;"),
        per_memory("bool write_taken(Design &d, int k, uint8_t *data, uint64_t &keep)",
                   lambda k: f"if (!(peek({write(k, 'wvalid')}).data[0] & "
                   f"{write(k, 'wready')}.data[0] & 1)) return false; std::memcpy(data, "
                   f"peek({write(k, 'wdata')}).data, {n}); keep = wide("
                   f"peek({write(k, 'wstrb')})); return true;", "return false;"),
        per_memory("bool answer_taken(Design &d, int k)",
                   lambda k: f"return {write(k, 'bvalid')}.data[0] & "
                   f"peek({write(k, 'bready')}).data[0] & 1;", "return false;"),
    ]  # fmt: skip
    return lines


@cache
def build(layout, *, n_bytes, n_ports, **sizes):
    """Build, or find, the library of a card: (ctypes library, {plain port: (number, port)}).

    layout, n_bytes, n_ports, sizes : of `OffloadCore`.
    """
    card = OffloadCore(n_bytes, n_ports, layout, **sizes)
    return cluster_library.load(card, ENGINE, _names(card), _FUNCTIONS)
