"""The blocks that `gradnic synth` can measure: one entry a block, built when it is asked for.

An entry says in which file of `gradnic.hdl` the block stands, how to make it for a number of
lanes, and how many payload bits it moves in a cycle.
"""

import dataclasses
from collections.abc import Callable
from importlib import import_module

from amaranth.lib import wiring

LANES = (4, 8, 16, 32)


@dataclasses.dataclass(frozen=True)
class Block:
    """One measurable block.

    Attributes
    ----------
    does : str, one line for people.
    module : str, file of `gradnic.hdl`, without ``.py``.
    make : function of (the imported module, n_lanes), returns the component.
    bits : function of n_lanes: payload bits per cycle in steady state.
    """

    does: str
    module: str
    make: Callable
    bits: Callable = lambda n_lanes: 32 * n_lanes


BLOCKS = {
    "compressor": Block(
        "INCEPTIONN compressor, packet store included",
        "compressor",
        lambda hdl, n: hdl.Compressor(n),
    ),
    "decompressor": Block(
        "INCEPTIONN decompressor, packet store included",
        "decompressor",
        lambda hdl, n: hdl.Decompressor(n),
    ),
}


def build(name, n_lanes) -> wiring.Component:
    """The component called `name` for `n_lanes` lanes of 32 bits.

    Errors: ValueError for an unknown name or a number of lanes other than 4, 8, 16 or 32.
    """
    if name not in BLOCKS:
        raise ValueError(f"block must be one of {', '.join(BLOCKS)}, not {name!r}")
    if n_lanes not in LANES:
        raise ValueError(f"n_lanes must be 4, 8, 16 or 32, not {n_lanes!r}")
    block = BLOCKS[name]
    return block.make(import_module(f"..hdl.{block.module}", __package__), n_lanes)


def measure(name, n_lanes, **options):
    """Measure block `name` at `n_lanes` lanes: `flow.measure` plus the keys ``name n_lanes does``."""
    from . import flow

    result = flow.measure(
        build(name, n_lanes),
        block=f"{name}-{n_lanes}",
        bits=BLOCKS[name].bits(n_lanes),
        **options,
    )
    return result | {"name": name, "n_lanes": n_lanes, "does": BLOCKS[name].does}
