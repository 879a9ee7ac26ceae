"""What a bit of a netlist can reach: the cheap half of the question whether a mutant matters.

Works on the JSON that Yosys writes of a flat module, bit by bit: through gates, registers and
memories. A mutant whose bit reaches no output is equivalent, without any proof.
"""

import re
from functools import cached_property, partial

from .constant_bits import constant_bits

ALONG = {"$not", "$pos", "$and", "$or", "$xor", "$xnor", "$mux", "$buf"}
REGISTERS = {"$dff", "$dffe", "$sdff", "$sdffe", "$sdffce"}
UPWARD = {"$add", "$sub", "$neg", "$mul"}
SIMPLE = ALONG | UPWARD
DATA_PORTS = {"A", "B", "D", "WR_DATA", "WR_EN"}


def _affected(cell, port, index):
    """(port, index) pairs of the outputs that bit `index` of an input port can change."""
    outputs = [p for p, way in cell["port_directions"].items() if way == "output"]
    kind = cell["type"]
    data = port in DATA_PORTS and (port != "B" or kind in SIMPLE)
    if data and (kind in SIMPLE or kind in REGISTERS):
        ((name, wide),) = [(p, len(cell["connections"][p])) for p in outputs]
        signed = int(cell["parameters"].get(f"{port}_SIGNED", "0"), 2)
        if kind in UPWARD or signed:  # carries, and the sign's copies
            return [(name, i) for i in range(min(index, wide), wide)]
        return [(name, index)] if index < wide else []
    every = [(p, i) for p in outputs for i in range(len(cell["connections"][p]))]
    if kind == "$mem_v2" and port in ("WR_DATA", "WR_EN"):  # an enable for each bit
        width = int(cell["parameters"]["WIDTH"], 2)
        return [(p, i) for p, i in every if i % width == index % width]
    return every


def is_store(cell):
    """Whether a cell is a memory that is written to."""
    return cell["type"] == "$mem_v2" and int(cell["parameters"]["WR_PORTS"], 2) > 0


def part(bits, index, count):
    """Part `index` of `count` equal parts of the bits of a port."""
    width = len(bits) // count
    return bits[index * width : (index + 1) * width]


def _read_there(cell, port, index):
    """Data bits of the read port of a memory to which bit `index` of an input belongs."""
    if port not in ("RD_ADDR", "RD_EN"):
        return []
    n = int(cell["parameters"]["RD_PORTS"], 2)
    pins = cell["connections"]
    return part(pins["RD_DATA"], index // (len(pins[port]) // n), n)


class Netlist:
    """Fan-out of every bit of a module, from the dict that ``write_json`` gives of it."""

    def __init__(self, module):
        self.cells, self.ports = module["cells"], module["ports"]
        ports = self.ports.values()
        self.outputs = {bit for p in ports if p["direction"] == "output" for bit in p["bits"]}
        self.outputs -= {"0", "1", "x", "z"}
        self.init = {}  # of registers, as text
        self.names = {}  # of bits that the source names
        for name, net in module["netnames"].items():
            value = net["attributes"].get("init", "")
            self.init |= zip(net["bits"], reversed(value), strict=False)
            if not name.startswith("$"):  # Yosys' own
                self.names |= {bit: name for bit in net["bits"] if isinstance(bit, int)}
        wires = [bit for net in module["netnames"].values() for bit in net["bits"]]
        self.last_bit = max(bit for bit in wires if isinstance(bit, int))
        self.readers, self.drivers = {}, {}
        for name, cell in self.cells.items():
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "input":
                    for index, bit in enumerate(bits):
                        self.readers.setdefault(bit, []).append((name, port, index))
                else:
                    self.drivers |= dict.fromkeys(bits, name)

    @cached_property
    def constants(self):
        """{bit: "0" or "1"} of the bits that never change."""
        return constant_bits(self)

    def _outputs(self, name, port, index, *, stored):
        cell = self.cells[name]
        if not stored and is_store(cell):
            return _read_there(cell, port, index)
        return [cell["connections"][p][i] for p, i in _affected(cell, port, index)]

    def reached(self, cell_name, port, index, *, stored=True, clocked=None, until=frozenset()):
        """Bits that a change of one bit of a cell's port can change, now or ever.

        stored : what is written to a memory comes out of it again; else a memory only gives other
        data where it is read at another address. clocked : how many registers a change may pass one
        behind the other; None for any number.
        """
        outputs = partial(self._outputs, stored=stored)
        cell = self.cells[cell_name]
        passed = 0
        if cell["port_directions"][port] == "output":
            start = [cell["connections"][port][index]]
        else:
            start = outputs(cell_name, port, index)
            passed = int(cell["type"] in REGISTERS)
        if passed and clocked == 0:
            return set()
        seen, work, later = set(start), list(start), []
        while work:
            for reader in self.readers.get(work.pop(), ()):
                new = set(outputs(*reader)) - seen
                if not until.isdisjoint(new):
                    return new
                if self.cells[reader[0]]["type"] in REGISTERS:
                    later += new
                else:
                    seen |= new
                    work += new
            if not work and passed != clocked:
                passed, work, later = passed + 1, [*set(later) - seen], []
                seen.update(work)
        return seen

    def names_around(self, cell_name):
        """(Names on the inputs of a cell, names of registers or else outputs that it feeds first),
        each sorted.
        """
        cell = self.cells[cell_name]
        ways = cell["port_directions"]
        given = [b for p, way in ways.items() if way == "input" for b in cell["connections"][p]]
        work = [b for p, way in ways.items() if way == "output" for b in cell["connections"][p]]
        seen, fed = set(work), set()
        while work:
            bit = work.pop()
            fed |= {self.names[bit]} if bit in self.outputs else set()
            for reader, port, index in self.readers.get(bit, ()):
                new = self._outputs(reader, port, index, stored=True)
                if self.cells[reader]["type"] in REGISTERS:
                    fed |= {self.names[b] for b in new if b in self.names}
                else:
                    work += set(new) - seen
                    seen.update(new)
        return sorted({self.names[b] for b in given if b in self.names}), sorted(fed)

    def reaches_output(self, cell_name, port, index):
        """Whether a change of one bit of a cell's port can ever change an output of the module."""
        found = self.reached(cell_name, port, index, until=self.outputs)
        return not self.outputs.isdisjoint(found)

    def matters(self, command):
        """Whether a mutant, as ``mutate -list`` writes it, can reach an output."""
        found = re.search(r" -cell (\S+) -port (\S+) -portbit (\d+)", command)
        name, port, index = found[1].removeprefix("\\"), found[2], int(found[3])
        stuck = re.search(r" -mode const([01]) ", command)
        if stuck and self.cells[name]["connections"][port][index] == stuck[1]:
            return False  # it is that constant already
        return self.reaches_output(name, port, index)
