"""Ports of the offload core: frames, memory, what its registers set and count.

Part of `gradnic.hdl.offload.core`, which says what each is for.
"""

from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from gradnic.interface.offload import Drop

from ..axi.bursts import LENGTH_WIDTH, Region
from ..frame.queue_rules import queue_members
from ..stream.beats import FrameBeat
from ..thc.level_table import LevelWrite
from ..transport.pace import PaceRules
from ..transport.records import (
    Allowance,
    CheckWrite,
    GivenUp,
    NeighborWrite,
    Own,
    Round,
    TagWrite,
)
from .memory_side import memory_ports


def core_members(core):
    """Members of an `OffloadCore` whose scheduler, sender and receiver are made."""
    n_bytes, n_ports, address_width = core.n_bytes, core.n_ports, core.address_width
    sent = stream.Signature(FrameBeat(core.port_bytes, meta_width=core.meta_width))
    received = stream.Signature(FrameBeat(core.port_bytes, meta_width=core.rx_meta_width))
    region = data.ArrayLayout(Region(n_bytes, address_width), 3)
    scheduler, receiver = core.scheduler, core.receiver
    return {
        "host_tx": In(sent).array(n_ports),
        "mac_tx": Out(sent).array(n_ports),
        "mac_rx": In(received).array(n_ports),
        "host_rx": Out(received).array(n_ports),
        **memory_ports(n_bytes, address_width, roots=core.roots),
        "own": In(Own),
        "round": In(Round),
        "start": In(1),
        "abort": In(1),
        "setup": In(scheduler.setup.shape()),
        "status": Out(scheduler.status.shape()),
        "clear": In(1),
        "clearing": Out(1),
        "drained": Out(1),
        "starting": Out(1),
        "finished": Out(1),
        "regions": In(region),
        "area": In(LENGTH_WIDTH),
        "peers": In(core.sender.peers.shape()),
        "pace": In(PaceRules),
        "tag_write": In(TagWrite),
        "floor": In(8),
        "table_en": In(1),
        "table_addr": In(len(scheduler.table_addr)),
        "table_data": In(core.layout.width),
        "place_en": In(1),
        "place_addr": In(len(receiver.place_addr)),
        "place_data": In(receiver.places),
        "check": In(CheckWrite),
        "neighbor": In(NeighborWrite(n_ports)),
        "allowance": In(Allowance),
        "dropped": Out(len(Drop)),
        "refused": Out(4),
        "failed": Out(4),
        "sent": Out(1),
        "retransmitted": Out(1),
        "probes": Out(1),
        "answered": Out(1),
        "responses": Out(1),
        "given_up": Out(1),
        "given_up_packet": Out(GivenUp),
        **({"level_write": In(LevelWrite)} if core.bits > 4 else {}),
        "crossed": Out(n_ports),
        "oversize": Out(n_ports),
        "overrun": Out(n_ports),
        **(queue_members(core.n_ports) if core.queues else {}),
    }
