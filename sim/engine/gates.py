"""A component as gates in C++ over bit planes: one vector operation a gate, one bit a copy.

Yosys turns the component into gates, flip-flops and memories; each gate becomes one operation on
256-bit vectors, so that 256 copies of the circuit, each with inputs, registers and memories of its
own, are played at once. What the copies do needs no branch, except in memories: there the planes
are transposed to words, one a copy, and back.

The C++ is for g++, needs ``gates.h`` beside it, and is cut into functions of some hundred gates,
which compile in linear time.
"""

import json
import re
import shutil
from pathlib import Path

from . import tools

COPIES = 256
HEADER = Path(__file__).with_name("gates.h")
FLAGS = [
    "-std=c++17",
    "-O1",
    "-march=native",
    "-fno-strict-aliasing",
    "-fPIC",
    "-shared",
    "-w",
    f"-DN_COPIES={COPIES}",
]
PART = 400  # gates in a function
GATES = {
    "$_NOT_": "~{A}",
    "$_AND_": "{A} & {B}",
    "$_NAND_": "~({A} & {B})",
    "$_OR_": "{A} | {B}",
    "$_NOR_": "~({A} | {B})",
    "$_XOR_": "{A} ^ {B}",
    "$_XNOR_": "~({A} ^ {B})",
    "$_ANDNOT_": "{A} & ~{B}",
    "$_ORNOT_": "{A} | ~{B}",
    "$_MUX_": "({A} & ~{S}) | ({B} & {S})",
}
_REGISTER = "$_DFF_P_"
_SCRIPT = """
read_rtlil design.il
synth -flatten -top top -run begin:fine
memory_nordff
opt -full
techmap
opt -fast
dfflegalize -cell $_DFF_P_ 01
abc -g AND,NAND,OR,NOR,XOR,XNOR,ANDNOT,ORNOT,MUX
opt_clean
write_json gates.json
"""


class _Writer:
    """Writes the functions of one netlist; values are named by the bits of Yosys' JSON."""

    def __init__(self, module):
        self.module = module
        self.inputs, self.outputs = {}, {}  # port: (first plane, width)
        self.lines = []  # (text with {bit} for values used, bits used, bits defined)
        self.planes = {"0": "zero", "1": "ones", "x": "zero"}  # values that stand in arrays
        self.state, self.gates, self.reads, self.writes = [], {}, {}, []
        self.memories = []
        self._sort()

    def _sort(self):
        for port, entry in self.module["ports"].items():
            ports = self.inputs if entry["direction"] == "input" else self.outputs
            first = sum(width for _, width in ports.values())
            if port == "clk":
                continue
            ports[port] = first, len(entry["bits"])
            if ports is self.inputs:
                for k, bit in enumerate(entry["bits"]):
                    self.planes[bit] = f"m.in[{first + k}]"
        odd = set()
        for name, cell in self.module["cells"].items():
            kind, pins = cell["type"], cell["connections"]
            if kind in GATES:
                single = {pin: bits[0] for pin, bits in pins.items()}
                self.gates[single.pop("Y")] = (GATES[kind], single)
            elif kind == _REGISTER:
                self.planes[pins["Q"][0]] = f"q[{len(self.state)}]"
                self.state.append(pins["D"][0])
            elif kind == "$mem_v2":
                self._memory(name, cell)
            elif kind != "$scopeinfo":
                odd.add(kind)
        if odd:
            raise ValueError(f"a circuit must have gates, registers, memories only, not {odd}")

    def _memory(self, name, cell):
        pins = cell["connections"]
        number = {k: int(v, 2) for k, v in cell["parameters"].items() if re.fullmatch("[01]+", v)}
        width, addr = number["WIDTH"], number["ABITS"]
        if number["RD_CLK_ENABLE"] or number.get("INIT", 0) or number["OFFSET"]:
            raise ValueError(f"memory {name} must be read at once, and be empty at first")
        k = len(self.memories)
        self.memories.append((width, number["SIZE"], addr))
        for port in range(number["RD_PORTS"]):
            data = pins["RD_DATA"][port * width : (port + 1) * width]
            read = (k, pins["RD_ADDR"][port * addr : (port + 1) * addr], data)
            self.reads |= dict.fromkeys(data, read)
        for port in range(number["WR_PORTS"]):
            (enable,) = set(pins["WR_EN"][port * width : (port + 1) * width])
            data = pins["WR_DATA"][port * width : (port + 1) * width]
            self.writes.append(
                (k, [*pins["WR_ADDR"][port * addr : (port + 1) * addr], enable], data)
            )

    def _order(self):
        """Gates and reads of memories in the order of the signals' flow."""
        roots = [*self.state, *(bit for _, addr, data in self.writes for bit in (*addr, *data))]
        roots += [bit for port in self.outputs for bit in self.module["ports"][port]["bits"]]
        order, done = [], set(self.planes)
        for root in roots:
            stack = [root]
            while stack:
                bit = stack[-1]
                needs = self.gates[bit][1].values() if bit in self.gates else None
                if bit in self.reads:
                    needs = self.reads[bit][1]
                if bit in done:
                    stack.pop()
                elif missing := [b for b in needs if b not in done]:
                    stack += missing
                else:
                    stack.pop()
                    order.append(bit)
                    done |= set(self.reads[bit][2]) if bit in self.reads else {bit}
        return order

    def text(self):
        """C++: ``Machine``, with planes ``in`` and ``out``, and ``play(Machine &)``, one cycle."""
        order = self._order()
        part_of, nets = {}, {}
        for i, bit in enumerate(order):
            part_of[bit] = i // PART

        def net(bit):
            return nets.setdefault(bit, f"m.n[{len(nets)}]")

        for bit in order:  # what memories give stands in a row of planes
            if bit in self.reads:
                for b in self.reads[bit][2]:
                    net(b)

        def used(bit, part):
            if bit in self.planes:
                return self.planes[bit]
            return net(bit) if bit in self.reads or part_of[bit] != part else f"v{bit}"

        def array(name, bits, part):
            return f"const V {name}[] = {{{', '.join(used(bit, part) for bit in bits)}}};"

        bodies = [[] for _ in range(-(-len(order) // PART))]
        for i, bit in enumerate(order):
            part = i // PART
            if bit in self.reads:
                k, addr, data = self.reads[bit]
                where = array("addr", [*addr, "0"], part)
                line = f"{{ {where} m.memory{k}.read(addr, &{nets[data[0]]}); }}"
            else:
                template, pins = self.gates[bit]
                operands = {pin: used(b, part) for pin, b in pins.items()}
                line = f"const V v{bit} = {template.format(**operands)};"
            bodies[part].append((bit, line))
        last = []
        for k, bit in enumerate(self.state):
            part = part_of.get(bit, len(bodies))
            text = f"d[{k}] = {used(bit, part)};"
            (bodies[part] if part < len(bodies) and bit not in self.reads else last).append(
                (None, text)
            )
        for port, (first, _) in self.outputs.items():
            for k, bit in enumerate(self.module["ports"][port]["bits"]):
                last.append((None, f"m.out[{first + k}] = {used(bit, -1)};"))
        for k, addr, data in self.writes:
            where, what = array("addr", addr, -1), array("data", data, -1)
            last.append((None, f"{{ {where} {what} m.memory{k}.write(addr, data); }}"))
        functions = [self._function(k, body, nets) for k, body in enumerate([*bodies, last])]
        return self._machine(functions, len(nets))

    def _function(self, k, body, nets):
        """Part `k` of a cycle; nets that others read are put where they look."""
        lines = []
        for bit, line in body:
            lines.append(line)
            if bit in nets and bit not in self.reads:
                lines.append(f"{nets[bit]} = v{bit};")
        return (
            f"static void part{k}(Machine &__restrict m, const V *__restrict q, "
            "V *__restrict d) {\n"
            "\tconst V zero = {}, ones = ~zero;\n\t" + "\n\t".join(lines) + "\n}\n"
        )

    def _machine(self, functions, n_nets):
        """The state, and a cycle of it by `functions`."""
        sizes = {
            "in": sum(w for _, w in self.inputs.values()),
            "out": sum(w for _, w in self.outputs.values()),
            "n": n_nets,
        }
        members = [f"V {name}[{size + 1}] = {{}};" for name, size in sizes.items()]
        members += [f"V state[2][{len(self.state) + 1}] = {{}};", "int now = 0;"]
        members += [
            f"Memory<{width}, {depth}, {addr}> memory{k};"
            for k, (width, depth, addr) in enumerate(self.memories)
        ]
        calls = [f"part{k}(m, q, d);" for k in range(len(functions))]
        return "\n".join(
            [
                '#include "gates.h"\n',
                "struct Machine {",
                *(f"\t{line}" for line in members),
                "};\n",
                *functions,
                "static void play(Machine &m) {  // outputs show what stands before the edge",
                "\tconst V *q = m.state[m.now];",
                "\tV *d = m.state[m.now ^= 1];",
                *(f"\t{call}" for call in calls),
                "}\n",
            ]
        )


def write(folder):
    """C++ of ``design.il`` in `folder`, by Yosys, and its ports: (text, inputs, outputs).

    The latter are {port: (first plane in ``in`` or ``out``, width)}. ValueError for a circuit that
    has latches, another clock edge, or memories with contents.
    """
    tools.yosys(_SCRIPT, folder=folder, outputs=["gates.json"], timeout=3600)
    shutil.copy(HEADER, folder)
    writer = _Writer(json.loads((folder / "gates.json").read_text())["modules"]["top"])
    return writer.text(), writer.inputs, writer.outputs
