"""What a bit of a netlist can reach: the cheap half of the question whether a mutant matters.

Works on the JSON that Yosys writes of a flat module, bit by bit: through gates, registers and
memories. A mutant whose bit reaches no output is equivalent, without any proof.
"""

import re

ALONG = {"$not", "$pos", "$and", "$or", "$xor", "$xnor", "$mux", "$pmux", "$buf"}
REGISTERS = {"$dff", "$dffe", "$sdff", "$sdffe", "$sdffce"}
UPWARD = {"$add", "$sub", "$neg", "$mul"}
DATA_PORTS = {"A", "B", "D", "WR_DATA"}


def _affected(cell, port, index):
    """(port, index) pairs of the outputs that bit `index` of an input port can change."""
    outputs = [p for p, way in cell["port_directions"].items() if way == "output"]
    every = [(p, i) for p in outputs for i in range(len(cell["connections"][p]))]
    kind = cell["type"]
    if port not in DATA_PORTS or (port == "B" and kind not in ALONG | UPWARD):
        return every
    if kind in ALONG | UPWARD | REGISTERS:
        ((name, wide),) = [(p, len(cell["connections"][p])) for p in outputs]
        at = index % wide if kind == "$pmux" and port == "B" else index
        signed = int(cell["parameters"].get(f"{port}_SIGNED", "0"), 2)
        if kind in UPWARD or signed:  # carries, and the sign's copies
            return [(name, i) for i in range(min(at, wide), wide)]
        return [(name, at)] if at < wide else []
    if kind == "$mem_v2" and port == "WR_DATA":
        width = int(cell["parameters"]["WIDTH"], 2)
        return [(p, i) for p, i in every if i % width == index % width]
    return every


class Netlist:
    """Fan-out of every bit of a module, from the dict that ``write_json`` gives of it."""

    def __init__(self, module):
        self.cells = module["cells"]
        ports = module["ports"].values()
        self.outputs = {bit for p in ports if p["direction"] == "output" for bit in p["bits"]} - {
            "0",
            "1",
            "x",
            "z",
        }
        self.readers = {}
        for name, cell in self.cells.items():
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "input":
                    for index, bit in enumerate(bits):
                        self.readers.setdefault(bit, []).append((name, port, index))

    def memory_bits(self):
        """Bits in memories."""
        memories = [c["parameters"] for c in self.cells.values() if c["type"].startswith("$mem")]
        return sum(int(m["SIZE"], 2) * int(m["WIDTH"], 2) for m in memories)

    def reaches_output(self, cell_name, port, index):
        """Whether a change of one bit of a cell's port can ever change an output of the module."""
        cell = self.cells[cell_name]
        if cell["port_directions"][port] == "output":
            start = [cell["connections"][port][index]]
        else:
            start = [cell["connections"][p][i] for p, i in _affected(cell, port, index)]
        seen, work = set(start), list(start)
        while work:
            bit = work.pop()
            if bit in self.outputs:
                return True
            for name, reader, at in self.readers.get(bit, ()):
                found = self.cells[name]
                for p, i in _affected(found, reader, at):
                    next_bit = found["connections"][p][i]
                    if next_bit not in seen:
                        seen.add(next_bit)
                        work.append(next_bit)
        return False

    def matters(self, command):
        """Whether a mutant, as ``mutate -list`` writes it, can reach an output."""
        found = re.search(r" -cell (\S+) -port (\S+) -portbit (\d+)", command)
        name, port, index = found[1].removeprefix("\\"), found[2], int(found[3])
        stuck = re.search(r" -mode const([01]) ", command)
        if stuck and self.cells[name]["connections"][port][index] == stuck[1]:
            return False  # it is that constant already
        return self.reaches_output(name, port, index)
