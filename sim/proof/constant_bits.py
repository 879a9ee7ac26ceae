"""Which bits of a netlist never change: registers and columns of memories included.

A lemma for `gradnic.sim.proof.equivalence`, whose proofs cut memories out and follow few registers.
"""

from collections import deque

ZERO, ONE, EITHER = 1, 2, 3  # values that a bit may take, as a mask; 0: none is known yet
_LITERALS = {"0": ZERO, "1": ONE}


def constant_bits(netlist):
    """{bit: "0" or "1"} of the bits that keep one value for all time, from power-up on.

    netlist : `gradnic.sim.proof.cone.Netlist`.

    Each bit's set of values grows from what registers and memories hold at the start, through the
    cells, until nothing is added: by induction, no bit ever takes a value outside its set.
    """
    values = {}

    def may_be(bit):
        return values.get(bit, 0) if isinstance(bit, int) else _LITERALS.get(bit, EITHER)

    work = deque((name, None) for name in netlist.cells)
    waiting = set(work)

    def add(bit, mask):
        if values.get(bit, 0) | mask == values.get(bit, 0):
            return
        values[bit] = values.get(bit, 0) | mask
        for name, port, index in netlist.readers.get(bit, ()):
            alone = netlist.cells[name]["type"] in _BY_BIT and port != "S"
            item = name, index if alone else None
            if item not in waiting:
                waiting.add(item)
                work.append(item)

    for bit in netlist.readers:
        if isinstance(bit, int) and bit not in netlist.drivers:
            add(bit, EITHER)
    for cell in netlist.cells.values():
        for bit, mask in _at_start(cell, netlist.init):
            add(bit, mask)
    while work:
        name, index = item = work.popleft()
        waiting.discard(item)
        for bit, mask in _outputs(netlist.cells[name], may_be, index):
            add(bit, mask)
    return {bit: "01"[mask - 1] for bit, mask in values.items() if mask in (ZERO, ONE)}


def _at_start(cell, init):
    """(bit, mask) of what a register or a memory holds at power-up."""
    if cell["type"] == "$dff":
        for bit in cell["connections"]["Q"]:
            yield bit, _LITERALS.get(init.get(bit), EITHER)
    elif _is_plain_memory(cell):
        width = int(cell["parameters"]["WIDTH"], 2)
        words = cell["parameters"]["INIT"][::-1]
        for k, bit in enumerate(cell["connections"]["RD_DATA"]):
            for value in set(words[k % width :: width]):
                yield bit, _LITERALS.get(value, EITHER)


def _is_plain_memory(cell):
    """Whether data are read without a clock, so that only what was written comes out."""
    return cell["type"] == "$mem_v2" and "1" not in cell["parameters"]["RD_CLK_ENABLE"]


def _outputs(cell, may_be, index):
    """(bit, mask) of what a cell adds to its outputs, or to one bit of them."""
    kind, pins = cell["type"], cell["connections"]
    if _is_plain_memory(cell):
        width = int(cell["parameters"]["WIDTH"], 2)
        written = [0] * width
        for k, bit in enumerate(pins["WR_DATA"]):
            written[k % width] |= may_be(bit)
        return [(bit, written[k % width]) for k, bit in enumerate(pins["RD_DATA"])]
    if kind in _BY_BIT:
        out, inputs = ("Q", "D") if kind == "$dff" else ("Y", "AB")
        select = [may_be(bit) for bit in pins.get("S", ())]
        at = range(len(pins[out])) if index is None else range(index, index + 1)
        return [
            (pins[out][k], _BY_BIT[kind](*(_operand(cell, p, k, may_be) for p in inputs), *select))
            for k in at
            if k < len(pins[out])
        ]
    if kind in _WHOLE:
        mask = _WHOLE[kind](*map(may_be, pins["A"]))
        return [(bit, ZERO if k else mask) for k, bit in enumerate(pins["Y"])]
    ways = cell["port_directions"]
    return [(bit, EITHER) for port in pins if ways[port] == "output" for bit in pins[port]]


def _operand(cell, port, index, may_be):
    """Mask of bit `index` of an input as it counts for the output; EITHER where it is narrower."""
    bits = cell["connections"].get(port, ())
    if index < len(bits):
        return may_be(bits[index])
    return EITHER


def _swapped(mask):
    return mask >> 1 | (mask & 1) << 1


def _and(*masks):
    return ONE * all(m & ONE for m in masks) | ZERO * (all(masks) and any(m & ZERO for m in masks))


def _or(*masks):
    return _swapped(_and(*map(_swapped, masks)))


def _mux(a, b, select):
    return a * bool(select & ZERO) | b * bool(select & ONE)


def _xor(a, b):
    return _mux(a, _swapped(a), b) if b else 0


_BY_BIT = {
    "$dff": lambda d: d,
    "$not": lambda a, _: _swapped(a),
    "$and": _and,
    "$or": _or,
    "$xor": _xor,
    "$mux": _mux,
}
_WHOLE = {
    "$reduce_and": _and,
    "$reduce_or": _or,
    "$reduce_bool": _or,
    "$logic_not": lambda *a: _swapped(_or(*a)),
}
