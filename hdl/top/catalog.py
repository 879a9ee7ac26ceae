"""The tops that `gradnic verilog` writes: one entry for each class of `gradnic.interface.params`.

Plumbing: no golden model of its own.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module

from gradnic.interface import aggregator, inline, offload, params
from gradnic.interface.register_map import RegisterMap

from ..axi.ports import Top


@dataclass(frozen=True)
class Entry:
    """One top.

    Attributes
    ----------
    doc : str
        One line for people.
    module : str
        Module below `gradnic.hdl` in which the component stands, imported when it is asked for.
    make : function of (the module, {parameter: value}), returns the component.
    members : dict
        One line for each member of the component, for the port list; <k> in a name stands for
        each number below ``n_ports``.
    registers : RegisterMap or None
    """

    doc: str
    module: str
    make: Callable
    members: dict
    registers: RegisterMap | None = None


TOPS = {
    params.Inline: Entry(
        "card in line between host and MAC: codes marked traffic, passes the rest bit for bit",
        "inline.card",
        lambda hdl, p: hdl.InlineCard(**p),
        {
            "host_tx": "frames from the host",
            "mac_tx": "frames to the MAC",
            "mac_rx": "frames from the MAC",
            "host_rx": "frames to the host",
            "bus": "registers",
        },
        inline.REGISTERS,
    ),
    params.Compressor: Entry(
        "INCEPTIONN compressor with its packet store",
        "inceptionn.compressor",
        lambda hdl, p: hdl.Compressor(**p),
        {
            "units": "one record a unit, before or with its first floats",
            "floats": "float32 values, lane 0 lowest; drop with the last beat discards the unit",
            "sizes": "one record a unit, in order, once it is encoded",
            "coded": "coded units that were not dropped, each from byte 0 of a beat",
        },
    ),
    params.Decompressor: Entry(
        "INCEPTIONN decompressor with its packet store",
        "inceptionn.decompressor",
        lambda hdl, p: hdl.Decompressor(**p),
        {
            "units": "one record a unit, before or with its first coded beat",
            "coded": "coded units; drop with the last beat discards the unit",
            "verdicts": "one record a unit, in order, once it is stored and checked",
            "floats": "float32 values of the units that were sound; lanes past the count are 0",
        },
    ),
    params.Aggregator: Entry(
        "aggregator: a bump in the wire for each worker, sums in the network, passes the rest",
        "aggregation.aggregator",
        lambda hdl, p: hdl.Aggregator(**p),
        {
            "worker_rx<k>": "frames from worker <k>",
            "worker_tx<k>": "frames to worker <k>: results, and what came for it",
            "network_rx<k>": "frames from the network for worker <k>",
            "network_tx<k>": "frames of worker <k> to the network",
            "bus": "registers",
            "now": "time, in the unit of the jobs' deadlines",
            "tick": "a pulse has every slot's deadline checked",
            "hears": "a frame of ours has gone to be judged",
            "heard": "where it came in: 2 * port, plus 1 from the network",
        },
        aggregator.REGISTERS,
    ),
    params.Offload: Entry(
        "offload card: runs a whole all-reduce by itself, over Ethernet that may lose packets",
        "offload.card",
        lambda hdl, p: hdl.card(**p),
        {
            "host_tx<k>": "frames from the host for port <k>",
            "mac_tx<k>": "frames to the MAC of port <k>",
            "mac_rx<k>": "frames from the MAC of port <k>",
            "host_rx<k>": "frames to the host from port <k>",
            "gradient_read": "gradients and results",
            "gradient_write": "results",
            "landing_read": "landing areas",
            "landing_write": "landing areas",
            "bus": "registers",
            "interrupt": "an event that the mask lets through",
        },
        offload.REGISTERS,
    ),
}


def entry(parameters):
    """The entry of `TOPS` that `parameters` belong to."""
    return TOPS[type(parameters)]


def core(parameters, **changes):
    """The component for `parameters`, an instance of a class of `gradnic.interface.params`.

    changes : arguments of the component that differ, such as the side band that a shell needs.
    """
    found = entry(parameters)
    module = import_module(f"gradnic.hdl.{found.module}")
    return found.make(module, describe(parameters) | changes)


def docs(parameters):
    """{member of the component: a line}."""
    lines = {}
    for name, doc in entry(parameters).members.items():
        for k in range(parameters.n_ports) if "<k>" in name else ("",):
            lines[name.replace("<k>", str(k))] = doc.replace("<k>", str(k))
    return lines


def build(parameters, **changes):
    """`core` with AXI ports."""
    return Top(core(parameters, **changes), docs(parameters))


def describe(parameters):
    """Parameters as {name: value}."""
    return asdict(parameters)
