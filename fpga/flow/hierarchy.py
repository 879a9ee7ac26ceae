"""A large design in units: Yosys maps each distinct one once, and the whole is put together after.

Amaranth writes a module for each instance. Modules whose texts are the same, names of modules left
aside, are one here. A unit is a subtree of `UNIT` lines, or of `OFTEN` lines that is there `TIMES`
times or more; Yosys flattens it, and its ports stay. So nothing is simplified across a unit's edge:
cost and levels are never better than those of a flat run. `flat` joins the mapped units to one
netlist, cell by cell: levels and fan-out are counted on that, through all edges.
"""

import hashlib
import re
from collections import Counter

WHOLE = 75_000  # lines of Verilog: a design up to here is one unit
UNIT, OFTEN, TIMES = 4_000, 200, 8
_MODULE = re.compile(r"^module (\w+) *\(.*?^endmodule\n", re.M | re.S)
_INSTANCE = re.compile(r"^  (\w+) +(\w+) +(\(\n.*?^  \);)", re.M | re.S)
_PIN = re.compile(r"^(    \.)(port_\d+_\d+)\b", re.M)
_NUMBERED = re.compile(r"\bport_\d+_\d+\b")  # Amaranth's name of a part of another's signal
_PORT = re.compile(r"^  ((?:input|output) (?:\[[^\]]*\] )?\w+ ?;)\n", re.M)
_HEAD = re.compile(r"^module \w+ *(\([^)]*\);)\n")


class Design:
    """Verilog text of a design with top module `top`, by units.

    Attributes
    ----------
    top : str, the name of the top's unit. units : list of str, all of them, children first.
    times : {unit: how often it is there}.
    """

    def __init__(self, text, top):
        self._bodies = {m[1]: m[0] for m in _MODULE.finditer(text)}
        self._names, self._ports, self._texts, self._kids = {}, {}, {}, {}
        for name in self._order(top):
            self._rename(name)
        self.top = self._names[top]
        self.units = self._choose()

    def _instances(self, name):
        found = _INSTANCE.findall(self._bodies[name])
        return [(kid, instance) for kid, instance, _ in found if kid in self._bodies]

    def _order(self, name, seen=None):
        seen = {} if seen is None else seen
        for kid, _ in self._instances(name):
            if kid not in seen:
                self._order(kid, seen)
        seen[name] = True
        return seen

    def _rename(self, name):
        """Note the short name of a module whose parts have theirs, and its text with these."""

        def instance(m):
            if m[1] not in self._bodies:
                return m[0]
            ports = self._ports[m[1]]
            pins = _PIN.sub(lambda pin: f"{pin[1]}{ports[pin[2]]}", m[3])
            return f"  {self._names[m[1]]} {m[2]} {pins}"

        body = re.sub(r"^module \w+", "module M", self._bodies[name])
        body = _INSTANCE.sub(instance, body)
        self._ports[name] = ports = {}
        for port in _NUMBERED.findall(body):
            ports.setdefault(port, f"port__{len(ports)}")
        body = _NUMBERED.sub(lambda m: ports[m[0]], body)
        short = self._names[name] = f"M{hashlib.sha256(body.encode()).hexdigest()[:16]}"
        self._texts.setdefault(short, body.replace("module M", f"module {short}", 1))
        self._kids.setdefault(short, [self._names[kid] for kid, _ in self._instances(name)])

    def _choose(self):
        times = Counter({self.top: 1})
        for short in reversed(self._texts):  # parents first
            for kid in self._kids[short]:
                times[kid] += times[short]
        lines = {short: text.count("\n") for short, text in self._texts.items()}
        whole = sum(lines[short] * n for short, n in times.items()) <= WHOLE
        size, units = {}, []
        for short in self._texts:
            size[short] = lines[short] + sum(
                size[kid] for kid in self._kids[short] if kid not in units
            )
            often = times[short] >= TIMES and size[short] >= OFTEN
            if short == self.top or (not whole and (often or size[short] >= UNIT)):
                units.append(short)
        self.times = {unit: times[unit] for unit in units}
        return units

    def text(self, unit):
        """Verilog of a unit: its module, what is flattened into it, and stubs of units below."""
        needed, stubs = {}, {}

        def walk(short):
            needed[short] = self._texts[short]
            for kid in self._kids[short]:
                if kid in self.units:
                    stubs[kid] = self._stub(kid)
                elif kid not in needed:
                    walk(kid)

        walk(unit)
        return needed, stubs

    def _stub(self, short):
        text = self._texts[short]
        ports = "\n".join(_PORT.findall(text))
        return f"(* blackbox *)\nmodule {short}{_HEAD.match(text)[1]}\n{ports}\nendmodule\n"


def compact(module):
    """What `flat` needs of a mapped unit (Yosys JSON, one module)."""
    names = {}
    for name, net in module["netnames"].items():
        if not net["hide_name"]:
            for k, bit in enumerate(net["bits"]):
                names.setdefault(str(bit), f"{name}[{k}]" if len(net["bits"]) > 1 else name)
    return {
        "cells": [[c["type"], c["connections"], name] for name, c in module["cells"].items()],
        "pins": {c["type"]: c["port_directions"] for c in module["cells"].values()},
        "ports": {name: port["bits"] for name, port in module["ports"].items()},
        "names": names,
    }


def flat(units, top):
    """One netlist, as Yosys' JSON has a module, of {unit: `compact` of it}.

    Its ``names`` are {bit: path of a net}; a bit of several nets has the name of the topmost.
    """
    root, names, pending = [], {}, []

    def fresh():
        root.append(len(root))
        return root[-1]

    def find(bit):
        while isinstance(bit, int) and root[bit] != bit:
            if isinstance(root[bit], int):
                root[bit] = root[root[bit]] if isinstance(root[root[bit]], int) else root[bit]
            bit = root[bit]
        return bit

    def join(a, b):
        a, b = find(a), find(b)
        if a != b and isinstance(a, int):
            root[a] = b if not isinstance(b, int) or b < a else root[a]
            if isinstance(b, int) and a < b:
                root[b] = a
        elif a != b and isinstance(b, int):
            root[b] = a

    class Bits(dict):
        def __missing__(self, bit):
            self[bit] = bit if isinstance(bit, str) else fresh()
            return self[bit]

    def place(unit, path, outside):
        local, entry = Bits(), units[unit]
        for port, bits in outside.items():
            for inner, outer in zip(entry["ports"][port], bits, strict=False):
                if isinstance(inner, int) and inner not in local:
                    local[inner] = outer
                elif inner != outer:
                    join(local[inner], outer)
        for kind, connections, name in entry["cells"]:
            bound = {pin: [local[bit] for bit in bits] for pin, bits in connections.items()}
            if kind in units:
                place(kind, f"{path}{name}.", bound)
            else:
                pending.append((f"{path}{name}", kind, entry["pins"][kind], bound))
        for bit, name in entry["names"].items():
            if bit.isdigit() and int(bit) in local:
                names.setdefault(local[int(bit)], []).append(path + name)
        return local

    local = place(top, "", {})
    cells = {
        name: {
            "type": kind,
            "port_directions": directions,
            "connections": {pin: [find(bit) for bit in bits] for pin, bits in bound.items()},
        }
        for name, kind, directions, bound in pending
    }
    ports = {
        port: {"bits": [find(local[bit]) for bit in bits]}
        for port, bits in units[top]["ports"].items()
    }
    shortest = {}
    for bit, paths in names.items():
        best = min(paths, key=lambda path: path.count("."))
        bit = find(bit)
        shortest[bit] = min(shortest.get(bit, best), best, key=lambda path: path.count("."))
    return {"cells": cells, "ports": ports, "names": shortest}
