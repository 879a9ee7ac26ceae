"""The blocks that `gradnic synth` can measure: one entry a block, built when it is asked for.

An entry says in which file of `gradnic.hdl` the block stands, how to make it for a number of
lanes, and how many payload bits it moves in a cycle.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module

from gradnic.hdl.stream.beats import FrameBeat

from gradnic.interface.params import PRESETS, preset
from gradnic.interface.schedule_table import Layout

from . import measure as flow

LANES = (4, 8, 16, 32)
SMALL_JOBS = (
    "n_active=1", "inc=0", "gives_up=0", "n_tables=1", "n_nodes=16", "n_rows=128", "n_chunks=16",
    "n_packets=512", "n_ranks=2", "address_width=25", "pass_bytes=8",
)  # of `offload128thc`, for an LFE5U-85F and the 32 MiB beside one on a ULX3S  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Block:
    """One measurable block.

    Attributes
    ----------
    does : str, one line for people.
    module : str, module below `gradnic.hdl`.
    make : function of (the imported module, n_lanes), returns the component.
    lanes : tuple of int, the sizes that it comes in and that the baseline records.
    bits : function of n_lanes: payload bits per cycle in steady state.
    anchored : bool, block RAM and multipliers get fixed places, see `gradnic.fpga.flow.floorplan`.
    dense : bool, it fills the device: family "ecp5-dense", resets of parts on the pins of
        registers, the card's own by the device's.
    """

    does: str
    module: str
    make: Callable
    lanes: tuple = LANES
    bits: Callable = lambda n_lanes: 32 * n_lanes
    anchored: bool = False
    dense: bool = False


def _offload(codecs, preset):
    return Block(
        f"offload card, 1 port: schedule, transport, registers; {codecs}",
        "offload.card",
        lambda hdl, n: hdl.card(**asdict(PRESETS[f"offload{32 * n}{preset}"])),
        lanes=(4, 8, 16),
        anchored=True,
    )


BLOCKS = {
    "compressor": Block(
        "INCEPTIONN compressor, packet store included", "inceptionn.compressor",
        lambda hdl, n: hdl.Compressor(n), anchored=True,
    ),
    "decompressor": Block(
        "INCEPTIONN decompressor, packet store included", "inceptionn.decompressor",
        lambda hdl, n: hdl.Decompressor(n), anchored=True,
    ),
    "inline": Block(
        "card in line: both directions, both engines, registers", "inline.card",
        lambda hdl, n: hdl.InlineCard(n), lanes=(4, 8, 16), anchored=True,
    ),
    "aggregate": Block(
        "homomorphic aggregation unit, 128 slots of 1024 sums of 8 bits in two sets, 4 jobs",
        "aggregation.unit", lambda hdl, n: hdl.AggregationUnit(4 * n), lanes=(16,), anchored=True,
    ),
    "aggregator": Block(
        "aggregator of 4 ports, 16 slots of 1024 sums of 8 bits in two sets, 4 jobs",
        "aggregation.aggregator", lambda hdl, n: hdl.Aggregator(4, n_bytes=4 * n, n_slots=16),
        lanes=(8,),
    ),
    "offload": _offload("raw, INCEPTIONN and THC", ""),
    "offload-inc": _offload("raw and INCEPTIONN", "inc"),
    "offload-raw": _offload("raw float32 alone", "raw"),
    "jobs-thc": Block(
        "card of jobs with THC in its passes, one job at a time, small tables", "offload.job_card",
        lambda hdl, n: hdl.card(**asdict(preset("offload128thc", SMALL_JOBS))), lanes=(4,),
        anchored=True, dense=True,
    ),
    "thc-norm": Block(
        "THC worker, norms of blocks of 1024", "thc.norm", lambda hdl, n: hdl.ThcNorm(n),
        lanes=(4, 8, 16),
    ),
    "thc-encoder": Block(
        "THC worker, blocks of 1024 floats to packed indices", "thc.encoder",
        lambda hdl, n: hdl.ThcEncoder(n), lanes=(4, 8, 16), anchored=True,
    ),
    "thc-decoder": Block(
        "THC worker, packed sums to blocks of 1024 floats", "thc.decoder",
        lambda hdl, n: hdl.ThcDecoder(n), lanes=(4, 8, 16), anchored=True,
    ),
    "lane-encoder": Block(
        "value codec, one float to tag and payload", "inceptionn.lanes",
        lambda hdl, n: hdl.LaneEncoder(), lanes=(1,),
    ),
    "lane-decoder": Block(
        "value codec, tag and payload to one float", "inceptionn.lanes",
        lambda hdl, n: hdl.LaneDecoder(), lanes=(1,),
    ),
    "slice": Block(
        "register slice for frames", "stream.slice", lambda hdl, n: hdl.Slice(FrameBeat(4 * n)),
        lanes=(16,),
    ),
    "fifo": Block(
        "FIFO of 16 frame beats in LUT RAM", "stream.fifo",
        lambda hdl, n: hdl.FIFO(FrameBeat(4 * n), 16), lanes=(16,),
    ),
    "block-fifo": Block(
        "FIFO of 512 frame beats in block RAM", "stream.block_fifo",
        lambda hdl, n: hdl.BlockFIFO(FrameBeat(4 * n), 512), lanes=(16,),
    ),
    "packet-fifo": Block(
        "store and forward, 512 frame beats, drops a frame marked bad", "frame.packet_fifo",
        lambda hdl, n: hdl.PacketFIFO(FrameBeat(4 * n), 512, drop="bad"), lanes=(16,),
    ),
    "scheduler": Block(
        "message scheduler, 64 nodes, 4 ports, 512 rows, 64 chunks", "schedule.scheduler",
        lambda hdl, n: hdl.Scheduler(Layout.for_nodes(64)), lanes=(1,), bits=lambda n: None,
    ),
}  # fmt: skip


def choose(names, n_lanes=None):
    """Pairs (block, number of lanes) that a user means.

    names : str, block names with commas between, or ``all``.
    n_lanes : int or None: for one block 16 (or its only size), for ``all`` every size.
    """
    chosen = []
    for name in list(BLOCKS) if names == "all" else names.split(","):
        sizes = _block(name).lanes
        if n_lanes is not None:
            if names == "all" and n_lanes not in sizes:
                continue
            sizes = (n_lanes,)
        elif names != "all":
            sizes = (16,) if 16 in sizes else sizes[:1]
        chosen += [(name, size) for size in sizes]
    for name, size in chosen:
        _check_lanes(name, size)
    return chosen


def build(name, n_lanes):
    """The `amaranth.lib.wiring.Component` called `name`, for `n_lanes` lanes of 32 bits.

    Errors: ValueError for an unknown name or a number of lanes that the block does not come in.
    """
    block = _block(name)
    _check_lanes(name, n_lanes)
    return block.make(import_module(f"gradnic.hdl.{block.module}"), n_lanes)


def measure(name, n_lanes, **options):
    """Measure block `name`: options and result of `flow.measure`, and ``name`` and ``lanes``."""
    result = flow.measure(
        build(name, n_lanes),
        block=f"{name}-{n_lanes}",
        bits=BLOCKS[name].bits(n_lanes),
        anchored=BLOCKS[name].anchored,
        **_how(name),
        **options,
    )
    return result | {"name": name, "lanes": n_lanes}


def measure_seed(name, n_lanes, seed, speed, device, clock_mhz):
    """`measure` of one placement, without progress: what a process of a cluster does."""
    return measure(name, n_lanes, seeds=[seed], speed=speed, device=device, clock_mhz=clock_mhz,
                   progress=lambda text: None)  # fmt: skip


def cost(name, n_lanes, **options):
    """What block `name` takes: options and result of `flow.cost`, and ``name`` and ``lanes``."""
    result = flow.cost(build(name, n_lanes), block=f"{name}-{n_lanes}", **_how(name), **options)
    return result | {"name": name, "lanes": n_lanes}


def _how(name):
    """Options of synthesis."""
    dense = {"target": "ecp5-dense", "unmap_resets": False, "global_reset": True}
    return dense if BLOCKS[name].dense else {}


def _block(name):
    if name not in BLOCKS:
        raise ValueError(f"block must be one of {', '.join(BLOCKS)}, not {name!r}")
    return BLOCKS[name]


def _check_lanes(name, n_lanes):
    sizes = [str(size) for size in BLOCKS[name].lanes]
    if str(n_lanes) not in sizes:
        allowed = " or ".join(", ".join(sizes).rsplit(", ", 1))
        raise ValueError(f"n_lanes must be {allowed}, not {n_lanes!r}")
