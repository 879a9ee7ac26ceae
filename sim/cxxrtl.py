"""Cuts the C++ that CXXRTL writes into functions that g++ compiles in linear time.

CXXRTL puts the whole circuit into one function, ``eval``, of up to a megabyte. g++ needs time
that grows faster than its length: over a minute for a compressor of 4 lanes. Cut into functions of
some hundred statements, with the local values as members, the same text compiles several times
faster.
"""

import re

HEAD = "bool p_top::eval(performer *performer) {\n"
LOCAL = re.compile(r"^\tvalue<\d+> \w+;$")
EDGE = "\tbool posedge_p_clk = this->posedge_p_clk();\n"


def converges(design):
    """Whether CXXRTL says that one ``eval`` is exact: there are no feedback wires."""
    return "bool converged = true;" in design and "bool converged = false;" not in design


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
