"""Parameters of the tops that `gradnic verilog` writes, and their named presets."""

from dataclasses import dataclass, fields, replace

LANES = (4, 8, 16, 32)
ROUNDINGS = ("trunc", "nearest")
MAX_FLOATS = 2104  # of a 9,000-byte MTU; 336 of 1,500 bytes


def check_lanes(lanes):
    """ValueError unless `lanes` is a number of floats per cycle that the engines come in."""
    if lanes not in LANES:
        raise ValueError(f"lanes must be 4, 8, 16 or 32, not {lanes!r}")


@dataclass(frozen=True)
class Compressor:
    """INCEPTIONN compressor alone: `lanes` floats per cycle, units of up to `max_floats`."""

    lanes: int = 8
    rounding: str = "trunc"
    max_floats: int = MAX_FLOATS

    def __post_init__(self):
        check_lanes(self.lanes)
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding must be trunc or nearest, not {self.rounding!r}")
        if not 1 <= self.max_floats <= MAX_FLOATS:
            raise ValueError(f"max_floats must be 1 to {MAX_FLOATS}, not {self.max_floats!r}")


@dataclass(frozen=True)
class Decompressor:
    """INCEPTIONN decompressor alone: `lanes` floats per cycle, units of up to `max_floats`."""

    lanes: int = 8
    max_floats: int = MAX_FLOATS

    def __post_init__(self):
        check_lanes(self.lanes)
        if not 1 <= self.max_floats <= MAX_FLOATS:
            raise ValueError(f"max_floats must be 1 to {MAX_FLOATS}, not {self.max_floats!r}")


@dataclass(frozen=True)
class Inline:
    """In-line card: 4 * `lanes` bytes per cycle, `meta_width` bits of tuser above the bad bit."""

    lanes: int = 8
    meta_width: int = 0

    def __post_init__(self):
        check_lanes(self.lanes)
        if not 0 <= self.meta_width <= 128:
            raise ValueError(f"meta_width must be 0 to 128, not {self.meta_width!r}")


PRESETS = {
    f"{kind.__name__.lower()}{lanes}": kind(lanes=lanes)
    for kind in (Inline, Compressor, Decompressor)
    for lanes in LANES
}


def preset(name, changes=()):
    """Parameters of the preset `name`, with `changes` as ("parameter=value", …).

    ValueError for an unknown preset or parameter, and for a value out of range.
    """
    if name not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {name!r}")
    parameters = PRESETS[name]
    kinds = {field.name: field.type for field in fields(parameters)}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or key not in kinds:
            raise ValueError(
                f"a parameter of {name} must be set as {' or '.join(f'{k}=…' for k in kinds)}, "
                f"not {change!r}"
            )
        try:
            parameters = replace(parameters, **{key: kinds[key](value)})
        except ValueError as error:
            if "must be" in str(error):
                raise
            raise ValueError(f"{key} must be a number, not {value!r}") from None
    return parameters
