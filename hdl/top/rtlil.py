"""RTLIL of a component by Amaranth, in less time.

An offload card has 14 million nets. While it is converted, what Amaranth does for each net is done
by functions with the same results: nets are taken for nets, shapes of operators are kept, and each
net is looked at once for cycles.

Plumbing: no golden model of its own.
"""

import gc
from contextlib import contextmanager

from amaranth.back import rtlil
from amaranth.hdl import _ast, _ir, _nir

_shape = _ast.Operator.shape
_told_cycles = _nir.Netlist.check_comb_cycles
_emit_module = rtlil.ModuleEmitter.emit
_BITS = (_nir.Net(0), _nir.Net(1))


def to_rtlil(component, **options):
    """`rtlil.convert`; no garbage is looked for, as all that it makes stays."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        with _quicker():
            return rtlil.convert(component, **options)
    finally:
        if was_on:
            gc.enable()


def _nets(kind, nets=()):
    """`_nir.Value` of nets, without a look at the type of each."""
    return tuple.__new__(kind, (nets,) if isinstance(nets, _nir.Net) else nets)


def _from_cell(cell, bit):
    """`Net.from_cell`."""
    assert not bit >> 16
    return _nir.Net(cell << 16 | bit)


def _from_const(value, width):
    """`Value.from_const`."""
    return _nets(_nir.Value, [_BITS[value >> bit & 1] for bit in range(width)])


def _add_value_cell(netlist, width, cell):
    """`Netlist.add_value_cell`."""
    index = netlist.add_cell(cell)
    assert width <= 1 << 16
    return _nets(_nir.Value, [_nir.Net(index << 16 | bit) for bit in range(width)])


def _resolve_value(netlist, value):
    """`Netlist.resolve_value`."""
    connections, nets = netlist.connections, []
    for net in value:
        while net < 0:
            net = connections[net]
        nets.append(net)
    return _nets(_nir.Value, nets)


def _kept_shape(operator):
    """`Operator.shape`, asked for once: else each level of an expression asks for all below it."""
    try:
        return operator._kept_shape
    except AttributeError:
        operator._kept_shape = _shape(operator)
        return operator._kept_shape


def _check_cycles(netlist):
    """`Netlist.check_comb_cycles`, which says where a cycle is, if there is one."""
    cells, connections = netlist.cells, netlist.connections
    done, busy = {0, 1}, set()  # constants

    def has_cycle(net):
        busy.add(net)
        if net < 0:
            sources = (connections[net],)
        else:
            sources = [source for source, _ in cells[net >> 16].comb_edges_to(net & 0xFFFF)]
        for source in sources:
            if source not in done and (source in busy or has_cycle(source)):
                return True
        busy.remove(net)
        done.add(net)
        return False

    nets = [net for at, cell in enumerate(cells) for net in cell.output_nets(at)]
    nets += [net for value in netlist.signals.values() for net in value]
    found = any(net not in done and has_cycle(net) for net in nets)
    has_cycle = None  # its own closure would hold the netlist until garbage is looked for
    if found:
        _told_cycles(netlist)


def _sigspec(emitter, *parts):
    """`ModuleEmitter.sigspec`: what RTLIL calls these nets."""
    flat = []
    for part in parts:
        if isinstance(part, _nir.Net):
            flat.append(part)
        else:
            flat.extend(part)
    nets, chunks, at, end = emitter.nets, [], 0, len(flat)
    while at < end:
        begin, net = at, flat[at]
        at += 1
        if net == 0 or net == 1:
            while at < end and 0 <= flat[at] <= 1:
                at += 1
            bits = "".join(["1" if net else "0" for net in reversed(flat[begin:at])])
            chunks.append(f"{at - begin}'{bits}")
            continue
        wire, first = nets[net]
        last = first
        while at < end and nets.get(flat[at]) == (wire, last + 1):
            at += 1
            last += 1
        span = f"{first}" if last == first else f"{last}:{first}"
        chunks.append(f"{wire.name} [{span}]")
    return chunks[0] if len(chunks) == 1 else f"{{ {' '.join(reversed(chunks))} }}"


def _emit_memory(emitter, cell_idx, cell):
    """`ModuleEmitter.emit_memory`; of a memory of megabits, too, each word is written at once."""
    width, mask = cell.width, (1 << cell.width) - 1
    words = "".join([f"{row & mask:0{width}b}" for row in reversed(cell.init)])
    emitter.builder.cell(
        "$meminit_v2",
        ports={
            "ADDR": emitter.sigspec(),
            "DATA": f"{len(words)}'{words}",
            "EN": f"{width}'{'1' * width}",
        },
        parameters={
            "MEMID": emitter.memories[cell_idx].memid,
            "ABITS": 0,
            "WIDTH": width,
            "WORDS": cell.depth,
            "PRIORITY": 0,
        },
        src_loc=cell.src_loc,
    )


def _emit_netlist(netlist, design, **options):
    """`_ir._emit_netlist`, whose closures would hold all of it until garbage is looked for."""
    emitter = _ir.NetlistEmitter(netlist, design, **options)
    emitter.emit_fragment(design.fragment, None)
    vars(emitter).clear()


def _emit(emitter):
    """`ModuleEmitter.emit`, whose closures would hold the netlist until garbage is looked for."""
    _emit_module(emitter)
    vars(emitter).clear()


_QUICKER = (
    (_nir.Value, "__new__", _nets),
    (_nir.Net, "from_cell", _from_cell),
    (_nir.Value, "from_const", _from_const),
    (_nir.Netlist, "add_value_cell", _add_value_cell),
    (_nir.Netlist, "resolve_value", _resolve_value),
    (_ast.Operator, "shape", _kept_shape),
    (_nir.Netlist, "check_comb_cycles", _check_cycles),
    (_ir, "_emit_netlist", _emit_netlist),
    (rtlil.ModuleEmitter, "emit", _emit),
    (rtlil.ModuleEmitter, "sigspec", _sigspec),
    (rtlil.ModuleEmitter, "emit_memory", _emit_memory),
)
if not all(hasattr(kind, name) for kind, name, _ in _QUICKER):  # another release of Amaranth
    _QUICKER = ()
_CAREFUL = [(kind, name, getattr(kind, name)) for kind, name, _ in _QUICKER]


@contextmanager
def _quicker():
    for kind, name, quick in _QUICKER:
        setattr(kind, name, quick)
    try:
        yield
    finally:
        for kind, name, careful in _CAREFUL:
            setattr(kind, name, careful)
