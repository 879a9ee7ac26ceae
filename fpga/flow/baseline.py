"""What blocks cost and reached when they were last recorded, and whether a new figure is worse.

``baseline.json`` maps ``"<block>-<lanes> <device>"`` to the result of
`gradnic.fpga.flow.measure.measure` (without the path text), with a ``note`` where the circuit has
changed since. A run is worse if it passes one of the
margins: the clock has the noise of placement in it, area only that of small changes in the source.
"""

import json
from importlib import resources
from pathlib import Path

FMAX_MARGIN = 0.06  # of the median; the recorded blocks spread 6 to 9 % over their seeds
AREA_MARGIN = 0.03  # of LUT and FF
AREA_SLACK = 8  # LUT or FF that a small block may add
FILE = Path(str(resources.files(__package__) / "baseline.json"))
KEYS = ("block", "device", "fmax_mhz", "fmax_mhz_seeds", "lut", "ff", "bram", "dsp", "gbps")
EXTRAS = ("gbps_per_klut", "clock_mhz", "seeds", "lut4", "carry", "lutram", "boundary_ff")


def name(result):
    """The baseline's key of a result."""
    return f"{result['block']} {result['device']}"


def load():
    """All results recorded in `FILE`, by `name`; none if it does not exist."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def text(recorded):
    """The file's text: one entry a line, so that a change shows as one line."""
    lines = (f"  {json.dumps(key)}: {json.dumps(entry)}" for key, entry in recorded.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def merge(recorded, results):
    """`recorded` with `results` in place of what bore the same name, sorted by name."""
    fresh = {name(result): {key: result[key] for key in KEYS + EXTRAS} for result in results}
    return dict(sorted((recorded | fresh).items()))


def compare(result, recorded):
    """What is worse in `result` than in the entry of `recorded` with its name.

    Returns a list of lines, one per figure that passes its margin; empty if none does.
    """
    key = name(result)
    old, worse = recorded[key], []
    if result["fmax_mhz"] < old["fmax_mhz"] * (1 - FMAX_MARGIN):
        worse.append(
            f"{key}: fmax_mhz {result['fmax_mhz']:.1f}, more than {FMAX_MARGIN:.0%} below "
            f"{old['fmax_mhz']:.1f}"
        )
    for figure in ("lut", "ff"):
        if result[figure] > old[figure] * (1 + AREA_MARGIN) + AREA_SLACK:
            worse.append(
                f"{key}: {figure} {result[figure]}, more than {AREA_MARGIN:.0%} above {old[figure]}"
            )
    for figure in ("bram", "dsp"):
        if result[figure] > old[figure]:
            worse.append(f"{key}: {figure} {result[figure]}, above {old[figure]}")
    return worse
