"""Cuts the C++ that CXXRTL writes into functions that g++ compiles in linear time.

CXXRTL puts the whole circuit into one function, ``eval``, of up to a megabyte. g++ needs time
that grows faster than its length: over a minute for a compressor of 4 lanes. Cut into functions of
some hundred statements, with the local values as members, the same text compiles several times
faster.
"""

import re

HEAD = "bool p_top::eval(performer *performer) {\n"
LOCAL = re.compile(r"^\tvalue<\d+> \w+;$")
WIRE = re.compile(r"^\twire<(\d+)> (\w+)", re.MULTILINE)
STATE = """#pragma once
namespace {
struct Register { size_t at; int64_t bits; };
const Register REGISTERS[] = {
%s};
constexpr int64_t N_STATE_BITS = %d;
[[maybe_unused]] void flip_state(Design &d, int64_t bit) {
	for (const Register &r : REGISTERS) {
		if (bit < r.bits) {  // what it is now, and what it will be
			uint32_t *now = reinterpret_cast<uint32_t *>(reinterpret_cast<char *>(&d) + r.at);
			uint32_t *next = now + (r.bits + 31) / 32;
			now[bit / 32] ^= 1u << bit %% 32;
			next[bit / 32] ^= 1u << bit %% 32;
			return;
		}
		bit -= r.bits;
	}
}
}  // namespace
"""
EDGE = "\tbool posedge_p_clk = this->posedge_p_clk();\n"


def converges(design):
    """Whether CXXRTL says that one ``eval`` is exact: there are no feedback wires."""
    return "bool converged = true;" in design and "bool converged = false;" not in design


def state(design):
    """C++ that names the registers of `design`: ``N_STATE_BITS``, ``flip_state(design, bit)``.

    Memories are not among them. To be included behind the design, called ``Design``.
    """
    registers = [(name, int(bits)) for bits, name in WIRE.findall(design)]
    rows = "".join(f"\t{{offsetof(Design, {name}), {bits}}},\n" for name, bits in registers)
    return STATE % (rows, sum(bits for _, bits in registers))


def _statements(body):
    """Statements of a function body, each with its comments; one that uses ``tmp_N`` of the one
    before stays with it."""
    statements, lines, depth, names = [], [], 0, set()
    for line in body:
        lines.append(line)
        code = line.split("//")[0]
        depth += code.count("{") - code.count("}")
        if depth or line.lstrip().startswith("//") or not line.rstrip().endswith((";", "}")):
            continue
        text = "\n".join(lines)
        used = set(re.findall(r"\btmp_\d+\b", text))
        if statements and used & names:
            statements[-1] += "\n" + text
            names |= used
        else:
            statements.append(text)
            names = used
        lines = []
    return statements


def cut(design, size):
    """`design` with ``eval`` cut into functions of at least `size` characters each.

    ValueError if the text is not of the form that CXXRTL of Yosys 0.70 writes.
    """
    if design.count(HEAD) != 1:
        raise ValueError(f"the design must have one eval, not {design.count(HEAD)}")
    before, rest = design.split(HEAD)
    body, after = rest.split("\n\treturn converged;\n}\n", 1)
    lines = body.split("\n")
    local = [line for line in lines if LOCAL.match(line)]
    edge = EDGE if EDGE in body + "\n" else ""
    fixed = {*local, "\tbool converged = true;", "\tbool converged = false;", EDGE.rstrip()}
    parts, part = [], ""
    for statement in _statements([line for line in lines if line not in fixed]):
        part += statement + "\n"
        if len(part) >= size:
            parts.append(part)
            part = ""
    parts.append(part)
    end = "}; // struct p_top\n"
    if before.count(end) != 1:
        raise ValueError(f"the design must have one struct p_top, not {before.count(end)}")
    declared = [f"\tvoid eval_{i}(performer *performer);" for i in range(len(parts))]
    before = before.replace(end, "\n".join([*local, *declared, end]))
    functions = [
        f"__attribute__((noinline)) void p_top::eval_{i}(performer *performer) {{\n{edge}{part}}}\n"
        for i, part in enumerate(parts)
    ]
    calls = "".join(f"\teval_{i}(performer);\n" for i in range(len(parts)))
    result = "true" if converges(design) else "false"
    return f"{before}{''.join(functions)}{HEAD}{calls}\treturn {result};\n}}\n{after}"
