"""What each part of a block costs: cells of a flat netlist, by the instances they came from."""

from collections import Counter

SITES = {  # of LUTs: as `flow.measure` counts them
    "LUT4": ("lut", 1),
    "CCU2C": ("lut", 2),
    "TRELLIS_DPR16X4": ("lut", 4),
    "TRELLIS_FF": ("ff", 1),
    "DP16KD": ("bram", 1),
    "MULT18X18D": ("dsp", 1),
}
KINDS = ("lut", "ff", "bram", "dsp")


def by_part(netlist, depth):
    """{instance, at most `depth` names below the block: Counter of `KINDS`}, largest first.

    netlist : the top module of a Yosys netlist in JSON, flattened, with its ``$scopeinfo`` cells.
    ``""`` is what belongs to no part. LUT sites before packing, so without route-throughs.
    """
    cells = netlist["cells"]
    scopes = {name for name, cell in cells.items() if cell["type"] == "$scopeinfo"}
    parts = {}
    for name, cell in cells.items():
        if cell["type"] in SITES:
            kind, n = SITES[cell["type"]]
            parts.setdefault(_part(name, scopes, depth), Counter())[kind] += n
    return dict(sorted(parts.items(), key=lambda part: -part[1]["lut"]))


def _part(name, scopes, depth):
    """The instance that a cell belongs to, without the block itself."""
    names = name.split(".")
    while names and ".".join(names) not in scopes:
        names.pop()
    return ".".join(names[1 : depth + 1])
