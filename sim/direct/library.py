"""A card on the flit layer in C++, and the library that makes clusters of it."""

import ctypes
from functools import cache
from pathlib import Path

from gradnic.hdl.direct.card import FlitCard

from gradnic.interface.flit import HEAD

from ..engine import cluster_library
from ..engine.design_ports import member

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_PLACE = [_POINTER, _NUMBER, _NUMBER]
_UNSIGNED = ctypes.c_uint64
_FUNCTIONS = {
    "new": ([_NUMBER] * 3 + [_POINTER, _NUMBER, _POINTER, _POINTER, _NUMBER], _POINTER),
    "delete": ([_POINTER], None),
    "set": ([*_PLACE, _POINTER], None),
    "get": ([*_PLACE, _POINTER], None),
    "tick": ([_POINTER, _NUMBER], None),
    "load": ([*_PLACE, _NUMBER, _POINTER], None),
    "dump": ([*_PLACE, _NUMBER, _POINTER], None),
    "run": ([_POINTER, _POINTER, _NUMBER, _UNSIGNED, _UNSIGNED, _NUMBER], _NUMBER),
    "go": ([_POINTER, _NUMBER], _NUMBER),
    "told": ([_POINTER, _POINTER, _POINTER], None),
}
_ROUTE_AT = sum(list(HEAD.values())[: list(HEAD).index("route")])


ENGINE = Path(__file__).with_name("cluster.cpp")


def _names(component):
    """Lines of C++ that name the ports of a card for ``cluster.cpp``."""
    ports = range(component.n_ports)

    def cases(body):
        return " ".join(f"case {k}: {body(k)}" for k in ports)

    lines = [
        f"constexpr int ROUTE_AT = {_ROUTE_AT};",
        f"void set_start(Design &d, bool bit) {{ {member('start')} = bit; }}",
        f"bool get_done(Design &d) {{ return {member('done')} & 1; }}",
        f"uint32_t rx_credit(Design &d) {{ return {member('rx_credit')}; }}",
        f"auto &tx_credit(Design &d) {{ return {member('tx_credit')}; }}",
        "void tx_ready(Design &d, int port, bool bit) { switch (port) {",
        cases(lambda k: f"{member(f'tx__{k}__ready')} = bit; break;"),
        "} }",
        "void rx_valid(Design &d, int port, bool bit) { switch (port) {",
        cases(lambda k: f"{member(f'rx__{k}__valid')} = bit; break;"),
        "} }",
        "void rx_payload(Design &d, int port, const uint32_t *data) { switch (port) {",
        cases(lambda k: f"std::memcpy(&{member(f'rx__{k}__payload')}, data, 20); break;"),
        "} }",
        "bool tx_taken(Design &d, int port, uint32_t *data) { switch (port) {",
        cases(
            lambda k: (
                f"std::memcpy(data, &{member(f'tx__{k}__payload')}, 20); "
                f"return {member(f'tx__{k}__valid')} & {member(f'tx__{k}__ready')};"
            )
        ),
        "} return false; }",
        "void host(Design &d, bool en, bool write, uint32_t at, const uint8_t *word) {",
        f"\t{member('host_en')} = en; {member('host_write')} = write;",
        f"\t{member('host_addr')} = at;",
        f"\tif (word) load<{32 * component.n_lanes}>({member('host_data')}, word); }}",
        "void host_word(Design &d, uint8_t *word) {",
        f"\tstore({member('host_read')}, word, {4 * component.n_lanes}); }}",
    ]
    return lines


@cache
def build(layout, **sizes):
    """Build, or find, the library of a card: (ctypes library, {plain port: (number, port)}).

    layout, sizes : of `FlitCard`.
    """
    card = FlitCard(layout, **sizes)
    given = {"layout": layout, **sizes}
    return cluster_library.load(card, ENGINE, _names(card), _FUNCTIONS, given)
