"""Fixed places for a block's block RAM, so that placement has something to hold on to.

nextpnr's analytic placer pulls cells together along their nets, against cells that are fixed: the
pins. A block out of context has none, and everything starts on one spot. Block RAM is what is
scarce and far apart on the device, so its places stand for the pins.
"""

import re

MIN_BRAM = 8  # a block with fewer has no shape to give
PAIR_BRAM = 64  # so many in two rows, before two more are taken
ROWS = {"85k": ((70, 82), (46, 22))}  # rows of block RAM in pairs, the closest first
N_COLUMNS = 52
OPTIONS = ["--placer-heap-timingweight", "30"]  # what else suits a placement that has them


def places(netlist, device):
    """Places for the block RAM of a netlist (Yosys JSON, one module): {cell: nextpnr's BEL}.

    Block RAM that holds the same bits of a word stands together, in order of the bits: what
    `gradnic.hdl.memory` calls ``bits36`` of all memories next to ``bits0``. They fill two
    neighboring rows, a column at a time, in the middle of the device, then the next two. No places
    on devices that are not in `ROWS`, or for less than `MIN_BRAM` cells.
    """
    found = sorted(
        (_first_bit(name), name)
        for name, cell in netlist["cells"].items()
        if cell["type"] == "DP16KD"
    )
    if device not in ROWS or len(found) < MIN_BRAM:
        return {}
    pairs = ROWS[device][: -(-len(found) // PAIR_BRAM)]
    chosen = {}
    for near, names in zip(pairs, _shared(found, len(pairs)), strict=True):
        first = (N_COLUMNS - -(-len(names) // 2)) // 2
        for k, name in enumerate(names):
            x, kind = _column(first + k // 2)
            chosen[name] = f"X{x}/Y{near[k % 2]}/{kind}"
    return chosen


def _shared(found, n):
    """`n` lists of names, alike in length. Where they fit, no memory is torn apart."""
    names = [name for _, name in found]
    if n == 1:
        return [names]
    memories = {}
    for _, name in found:
        memories.setdefault(re.sub(r"\.bits\d+$", "", name), []).append(name)
    lists, before = [[] for _ in range(n)], 0
    for bits in memories.values():
        middle = before + len(bits) / 2
        lists[int(middle * n / len(names))].extend(bits)
        before += len(bits)
    if max(map(len, lists)) <= 2 * N_COLUMNS:
        return lists
    share = -(-len(names) // n)
    return [names[k * share : (k + 1) * share] for k in range(n)]


def _first_bit(name):
    """Sum of the numbers in ``part180.bits36``: the word's first bit in this block RAM."""
    return sum(map(int, re.findall(r"\b(?:part|bits)(\d+)", name)))


def _column(n):
    """Place of the nth block RAM of a row: four to nine columns, and two columns in the middle."""
    group, kind = divmod(n, 4)
    return 4 + 9 * group + 2 * kind + 2 * (group >= 7), f"EBR{kind}"
