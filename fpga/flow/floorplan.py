"""Fixed places for block RAM and multipliers, so that placement has something to hold on to.

nextpnr's analytic placer pulls cells together along their nets, against cells that are fixed: the
pins. A block out of context has none, and everything starts on one spot. Block RAM and multipliers
are what is scarce and far apart on the device, so their places stand for the pins.
"""

import re
from collections import defaultdict

MIN_CELLS = 8  # block RAMs, or multipliers: fewer have no shape to give
PAIR_CELLS = 64  # so many in two rows, before two more are taken
RAM_ROWS = {"85k": ((70, 82), (46, 22))}  # rows of block RAM in pairs, the closest first
# rows of multipliers in the middle, and the one of block RAM between them
MULTIPLIER_ROWS = {"85k": ((34, 58), 46)}
N_COLUMNS = 52  # of either kind in a row


def places(netlist, device):
    """Places for block RAM and multipliers of a netlist (Yosys JSON, one module): {cell: BEL}.

    Block RAM that holds the same bits of a word stands together, in order of the bits: what
    `gradnic.hdl.primitive.block_ram` calls ``bits36`` of all memories next to ``bits0``. They fill
    two neighboring rows, a column at a time, in the middle of the device, then the next two. That
    of a queue (``ring``) stays free: one address serves all of it.

    Multipliers stand in two rows, in the order of the lanes they serve, which are numbers of the
    component's parts, and those of no lane between them. Block RAM then has the row in the middle.

    No places on devices that are not known here, or for less than `MIN_CELLS` of a kind.
    """
    cells = {"DP16KD": [], "MULT18X18D": []}
    for name, cell in netlist["cells"].items():
        if cell["type"] in cells and ".ring." not in name:
            cells[cell["type"]].append(name)
    rams, multipliers = (
        found if device in RAM_ROWS and len(found) >= MIN_CELLS else [] for found in cells.values()
    )
    rams = sorted((_first_bit(name), name) for name in rams)
    rows = _two_rows(multipliers)
    width = max(map(len, (*rows, rams)))
    if not multipliers or width > N_COLUMNS:
        return _pairs_of_rows(rams, device)
    (above, below), between = MULTIPLIER_ROWS[device]
    lines = [(above, rows[0], _multiplier_column), (below, rows[1], _multiplier_column)]
    lines.append((between, [name for _, name in rams], ram_column))
    chosen = {}
    first = (N_COLUMNS - width) // 2
    for y, names, column in lines:
        for k, name in enumerate(names):
            x, kind = column(first + (2 * k + 1) * width // (2 * len(names)))
            chosen[name] = f"X{x}/Y{y}/{kind}"
    return chosen


def options(chosen):
    """What else suits a placement with these places: how much timing weighs against wire length.

    With multipliers, routing of much more does not end.
    """
    multipliers = any("MULT" in bel for bel in chosen.values())
    return ["--placer-heap-timingweight", "20" if multipliers else "30"]


def _pairs_of_rows(found, device):
    if not found:
        return {}
    pairs = RAM_ROWS[device][: -(-len(found) // PAIR_CELLS)]
    chosen = {}
    for near, names in zip(pairs, _shared(found, len(pairs)), strict=True):
        first = (N_COLUMNS - -(-len(names) // 2)) // 2
        for k, name in enumerate(names):
            x, kind = ram_column(first + k // 2)
            chosen[name] = f"X{x}/Y{near[k % 2]}/{kind}"
    return chosen


def _two_rows(names):
    """Two lists of multipliers, alike in length: those of a kind by lane, all over the width."""
    kinds, others = defaultdict(list), []
    for name in names:
        part, number, rest = re.match(r"(\w+\.[a-z_]+)(\d*)(?:[$_]\d+)?(.*)", name).groups()
        if number:
            kinds[part, rest].append((int(number), name))
        else:
            others.append(name)
    lists = [[name for _, name in sorted(kinds[key])] for key in sorted(kinds)] + [sorted(others)]
    sizes = [len(kind) for kind in lists]
    cut = min(range(len(lists)), key=lambda n: abs(2 * sum(sizes[:n]) - len(names)))
    rows = []
    for chosen in (lists[:cut], lists[cut:]):
        places = [(k / len(kind), name) for kind in chosen for k, name in enumerate(kind, 1)]
        rows.append([name for _, name in sorted(places)])
    return rows


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


def ram_column(n):
    """Place of the nth block RAM of a row: four to nine columns, and two columns in the middle."""
    group, kind = divmod(n, 4)
    return 4 + 9 * group + 2 * kind + 2 * (group >= 7), f"EBR{kind}"


def _multiplier_column(n):
    """Place of the nth multiplier of a row, in the same groups of columns."""
    group, kind = divmod(n, 4)
    offset, number = ((0, 0), (1, 1), (4, 4), (5, 5))[kind]
    return 4 + 9 * group + offset + 2 * (group >= 7), f"MULT18_{number}"
