"""Whether anybody outside can tell a mutant from its circuit: proofs for all time.

Only what the mutated bit can reach is there twice; the rest of the circuit feeds both. Memories are
cut out: both sides must write the same, and may read differently only where their addresses differ.
What never changes in the circuit is a constant beforehand (`gradnic.sim.proof.constant_bits`).
ABC's signal correspondence merges by induction, from the reset state on, what is always equal; the
two are equivalent if the difference of their outputs becomes the constant 0. Or Yosys' SAT solver
proves by induction over some cycles that they do not differ. Payloads count only while their stream
is valid. Most equivalent mutants are so at once: no register takes anything else because of them,
or none that lies beyond a few more. That is tried first, with the logic before them alone.
"""

import json
import re
from collections import deque

from gradnic import processes

from ..engine import tools
from . import cone

SECONDS = 10  # for each attempt
PREPARE = """
read_json pair.json
hierarchy -top pair
memory_map
opt_expr
opt_clean
techmap
setundef -zero
opt -fast
dfflegalize -cell $_DFF_P_ 01
opt -fast
"""
CORRESPONDENCE = """
abc -dff -script +strash;scorr;dc2;scorr,-F,2;dretime
opt_clean
write_json result.json
"""
INDUCTION = "tee -o result.txt sat -timeout 60 -tempinduct -maxsteps 9 -prove differ 0\n"
NEAR = 3  # registers between what the mutant reaches and what is free
BEYOND = 4  # registers one behind the other that may take anything else because of the mutant


def proven(netlist, masks, command, *, timeout=SECONDS):
    """Method by which a mutant is proven equivalent; "" if there is no proof.

    netlist : `gradnic.sim.proof.cone.Netlist` of the prepared circuit. masks : {output: the output
    that says whether it counts}. command : the mutant, as ``mutate -list`` writes it. timeout :
    seconds for each of six attempts: that no register takes anything else, with the registers
    before it free, or with some of them in their place; that none does beyond a few; induction with
    all registers free that are far from the mutant; signal correspondence and induction with all of
    the circuit.
    """
    for depth, beyond, method in (
        (1, 0, INDUCTION),
        (NEAR, 0, INDUCTION),
        (NEAR, BEYOND, INDUCTION),
        (NEAR, None, INDUCTION),
        (None, None, CORRESPONDENCE),
        (None, None, INDUCTION),
    ):
        pair = Pair(netlist, masks, command, depth=depth, beyond=beyond)
        if _never_differ(pair, method, timeout):
            return "induction" if method is INDUCTION else "signal correspondence"
    return ""


def _never_differ(pair, method, timeout):
    root = tools.build_root() / "mutate"
    root.mkdir(parents=True, exist_ok=True)
    with processes.work_folder(root, ".equivalence-") as work:
        (work / "pair.json").write_text(json.dumps({"modules": {"pair": pair.made()}}))
        try:
            tools.yosys(PREPARE + method, folder=work, outputs=[], timeout=timeout)
        except tools.TimeLimit:
            return False
        if method is INDUCTION:
            return "Induction step proven: SUCCESS!" in (work / "result.txt").read_text()
        ports = json.loads((work / "result.json").read_text())["modules"]["pair"]["ports"]
        return ports["differ"]["bits"] == ["0"]


def _number(value):
    return f"{value:032b}"


def _ends(cell, way):
    """(port, index, bit) of all inputs or outputs of a cell."""
    for port, bits in cell["connections"].items():
        if cell["port_directions"][port] == way:
            yield from ((port, index, bit) for index, bit in enumerate(bits))


class Pair:
    """The circuit and its mutant side by side, as a module of one output, ``differ``.

    depth : registers that the mutant does not reach are free inputs, beyond so many between them
    and what it does reach; None: none is. beyond : what registers take is compared, as well as the
    outputs, of those beyond so many one behind the other that are there twice; None: all that the
    mutant reaches are there twice. Else as for `proven`.
    """

    def __init__(self, netlist, masks, command, *, depth, beyond=None):
        self.netlist, self.masks, self.depth = netlist, masks, depth
        self.cells, self.differences = {}, []
        self.last_bit, self.init = netlist.last_bit, dict(netlist.init)
        pattern = r"-mode (\w+) .*-cell (\S+) -port (\S+) -portbit (\d+)(?: -ctrlbit (\d+))?"
        self.mode, name, self.port, index, control = re.search(pattern, command).groups()
        self.mutated, self.index = name.removeprefix("\\"), int(index)
        self.control = None if control is None else int(control)
        mutated = self.mutated, self.port, self.index
        reached = netlist.reached(*mutated, stored=False, clocked=beyond)
        self.twin = {bit: self._fresh() for bit in sorted(reached)}
        names = {netlist.drivers[bit] for bit in reached} | {self.mutated}
        readers = {name for bit in reached for name, _, _ in netlist.readers.get(bit, ())}
        names |= {name for name in readers if self._compares(netlist.cells[name])}
        for name in sorted(names):
            self._copy(name, netlist.cells[name])
        self._compare_outputs()

    def made(self):
        """The module for ``read_json``: what the differences are made of."""
        differ = self._gate("$reduce_or", A=self.differences or ["0"])
        drivers = dict(self.netlist.drivers)
        for name, cell in self.cells.items():
            drivers |= {bit: name for _, _, bit in _ends(cell, "output")}
        cells, inputs, seen, work = {}, set(), set(), deque([(differ, 0)])
        while work:
            bit, depth = work.popleft()
            if bit in seen or not isinstance(bit, int):
                continue
            seen.add(bit)
            name = drivers.get(bit)
            ours = name in self.cells
            cell = self.cells[name] if ours else self.netlist.cells.get(name)
            held = cell is not None and cell["type"] in cone.REGISTERS and not self._reached(name)
            if name in cells:
                continue
            if cell is None or (not ours and cone.is_store(cell)) or (held and depth == self.depth):
                inputs.add(bit)
            else:
                cells[name] = cell = self._settled(cell)
                ends = [(b, depth + held) for _, _, b in _ends(cell, "input")]
                work.extend(ends) if held else work.extendleft(ends)
        nets = {
            f"net{bit}": {"bits": [bit], "attributes": {"init": self.init[bit]}}
            for cell in cells.values()
            for _, _, bit in _ends(cell, "output")
            if self.init.get(bit, "x") != "x"
        }
        ports = {
            "free": {"direction": "input", "bits": sorted(inputs)},
            "differ": {"direction": "output", "bits": [differ]},
        }
        return {"attributes": {}, "ports": ports, "cells": cells, "netnames": nets}

    def _settled(self, cell):
        """A cell with constants in the place of what never changes in the circuit."""
        pins = {
            port: [self.netlist.constants.get(bit, bit) for bit in bits]
            if cell["port_directions"][port] == "input"
            else bits
            for port, bits in cell["connections"].items()
        }
        return {**cell, "connections": pins}

    def _compares(self, cell):
        """Whether what goes into a cell is compared, and what comes out of it the same."""
        return cone.is_store(cell) or cell["type"] in cone.REGISTERS

    def _reached(self, name):
        """Whether a cell is one that the mutant reaches, on either side."""
        return name in self.cells or f"twin.{name}" in self.cells

    def _fresh(self):
        self.last_bit += 1
        return self.last_bit

    def _cell(self, kind, parameters, inputs, outputs):
        ways = {**dict.fromkeys(inputs, "input"), **dict.fromkeys(outputs, "output")}
        self.cells[f"pair{len(self.cells)}"] = {
            "type": kind,
            "parameters": {name: _number(value) for name, value in parameters.items()},
            "attributes": {},
            "port_directions": ways,
            "connections": {**inputs, **outputs},
        }

    def _gate(self, kind, out=None, **inputs):
        """The bit `out`, by default a new one, that a cell makes of bits."""
        out = self._fresh() if out is None else out
        inputs = {port: bits if isinstance(bits, list) else [bits] for port, bits in inputs.items()}
        parameters = {"WIDTH": 1} if kind == "$mux" else {"Y_WIDTH": 1}
        for port, bits in inputs.items() if kind != "$mux" else ():
            parameters |= {f"{port}_WIDTH": len(bits), f"{port}_SIGNED": 0}
        self._cell(kind, parameters, inputs, {"Y": [out]})
        return out

    def _changed(self, bit, control):
        """What the mutant makes of a bit, beside its control bit."""
        if self.mode in ("const0", "const1"):
            return self.mode[-1]
        if self.mode == "inv":
            return self._gate("$not", A=bit)
        return self._gate("$xor" if self.mode == "cnot1" else "$xnor", A=bit, B=control)

    def _pins(self, name, cell):
        """Connections of a cell on the mutant's side; a mutated input is changed."""
        pins = {
            port: [self.twin.get(bit, bit) for bit in bits]
            for port, bits in cell["connections"].items()
        }
        if name == self.mutated and cell["port_directions"][self.port] == "input":
            bits = pins[self.port]
            control = None if self.control is None else bits[self.control]
            bits[self.index] = self._changed(bits[self.index], control)
        return pins

    def _copy(self, name, cell):
        """The mutant's own copy of a cell, whose outputs go to twins."""
        pins = self._pins(name, cell)
        at_output = name == self.mutated and cell["port_directions"][self.port] == "output"
        if at_output and all(bit not in self.twin for _, _, bit in _ends(cell, "input")):
            old = cell["connections"][self.port]
            control = None if self.control is None else old[self.control]
            changed = self._changed(old[self.index], control)
            self._gate("$pos", out=self.twin[old[self.index]], A=changed)
            return
        if cell["type"] in cone.REGISTERS:
            self._compare_register(cell, pins)
            if self.twin.keys().isdisjoint(cell["connections"]["Q"]):
                return
        own = {}  # what the copy gives, where it is not the twin itself
        for port, index, bit in _ends(cell, "output"):
            if bit not in self.twin:
                own[port, index] = self._fresh()  # the same on both sides
            elif (name, port, index) == (self.mutated, self.port, self.index):
                own[port, index] = self._fresh()
                control = None if self.control is None else pins[port][self.control]
                self._gate("$pos", out=self.twin[bit], A=self._changed(own[port, index], control))
            at = own.get((port, index), self.twin.get(bit))
            self.init[at] = self.init.get(bit, "x")
        for (port, index), bit in own.items():
            pins[port][index] = bit
        if cone.is_store(cell):
            self._compare_store(cell, pins)
        else:
            parameters = dict(cell["parameters"])
            if "MEMID" in parameters:
                parameters["MEMID"] = f"\\twin{len(self.cells)}"
            self.cells[f"twin.{name}"] = {**cell, "parameters": parameters, "connections": pins}

    def _unlike(self, *lists):
        """A bit that says whether two lists of bits differ; None if they are the same."""
        pairs = [(a, b) for a, b in zip(*lists, strict=True) if a != b]
        unlike = [self._gate("$xor", A=a, B=b) for a, b in pairs]
        return self._gate("$reduce_or", A=unlike) if unlike else None

    def _note(self, unlike, counts=None):
        """The two sides differ where `unlike`, as far as it counts."""
        if unlike is not None:
            unlike = unlike if counts is None else self._gate("$and", A=unlike, B=counts)
            self.differences.append(unlike)

    def _compare_outputs(self):
        ports = self.netlist.ports
        for name, port in ports.items():
            if port["direction"] == "output":
                counts = ports[self.masks[name]]["bits"][0] if name in self.masks else None
                twins = [self.twin.get(bit, bit) for bit in port["bits"]]
                self._note(self._unlike(port["bits"], twins), counts)

    def _compare_register(self, cell, pins):
        """Where a register is not there twice, both sides take the same."""
        old = cell["connections"]
        if not self.twin.keys().isdisjoint(old["Q"]):
            at = [k for k, bit in enumerate(old["Q"]) if bit not in self.twin]
            self._note(self._unlike(*([side["D"][k] for k in at] for side in (old, pins))))
            return
        for port, way in cell["port_directions"].items():
            if way == "input" and port != "D":
                self._note(self._unlike(old[port], pins[port]))
        enable = old.get("EN", [None])[0]
        if enable is not None and not int(cell["parameters"]["EN_POLARITY"], 2):
            enable = self._gate("$not", A=enable)
        self._note(self._unlike(old["D"], pins["D"]), enable)

    def _compare_store(self, cell, pins):
        """Both sides write the same; what is read at another address may be anything."""
        sides = cell["connections"], pins
        number = {name: int(cell["parameters"][f"{name}_PORTS"], 2) for name in ("RD", "WR")}

        def parts(port, k):
            return [cone.part(side[port], k, number[port[:2]]) for side in sides]

        for k in range(number["WR"]):
            enables = parts("WR_EN", k)
            self._note(self._unlike(*enables))
            address = self._unlike(*parts("WR_ADDR", k))
            for enable in sorted(set(enables[0])):
                at = [i for i, bit in enumerate(enables[0]) if bit == enable]
                self._note(self._unlike(*([d[i] for i in at] for d in parts("WR_DATA", k))), enable)
                self._note(address, enable)
        for k in range(number["RD"]):
            enables, address = parts("RD_EN", k), self._unlike(*parts("RD_ADDR", k))
            enabled = self._unlike(*enables)
            unlike = [bit for bit in (address, enabled) if bit is not None]
            elsewhere = self._gate("$reduce_or", A=unlike or ["0"])
            if int(cell["parameters"]["RD_CLK_ENABLE"], 2) >> k & 1:
                elsewhere = self._since(elsewhere, [bits[0] for bits in enables])
            for old, new in zip(*parts("RD_DATA", k), strict=True):
                if old != new:
                    self._gate("$mux", out=new, A=old, B=self._fresh(), S=elsewhere)

    def _since(self, elsewhere, enables):
        """`elsewhere` in the cycle of the last read, for data that comes a cycle later."""
        was, reads = self._fresh(), self._gate("$or", A=enables[0], B=enables[1])
        now = self._gate("$mux", A=was, B=elsewhere, S=reads)
        clock = self.netlist.ports["clk"]["bits"]
        pins = {"C": clock, "D": [now]}
        self._cell("$_DFF_P_", {}, pins, {"Q": [was]})
        self.init[was] = "0"
        return was
