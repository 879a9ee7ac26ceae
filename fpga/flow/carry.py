"""Moves the operands of carry chains to those inputs of their LUT that wires reach soonest.

On the ECP5 the inputs C and D of a LUT are some 280 ps nearer than A and B (`fabric.least_delays`).
A router may swap the inputs of a LUT, but not all of a carry chain's: what is carried where both
operands agree comes from A and B alone. Yosys puts both operands there. One is enough, and none
where the other operand is a constant.
"""

ADDER = 0x96AA  # A + B: sum A ^ B ^ C where D is 1, carry A where A ^ B ^ C is 0


def hasten(netlist):
    """Change the CCU2C of a netlist (Yosys JSON, one module) that add or subtract."""
    for cell in netlist["cells"].values():
        if cell["type"] == "CCU2C":
            for half in "01":
                _hasten(cell, half)


def _hasten(cell, half):
    pins, init = cell["connections"], f"INIT{half}"
    a, b, invert, d = (pins[f"{pin}{half}"][0] for pin in "ABCD")
    known = int(cell["parameters"][init], 2) == ADDER and d == "1" and invert in ("0", "1")
    a_moves = not isinstance(a, str) and b in ("0", "1")
    if not known or isinstance(b, str) and not a_moves:
        return
    if a_moves:  # where A ^ B ^ C is 0, A is B ^ C
        carry = sum_of_0 = 0xF * (int(b) ^ int(invert))
    else:
        carry = 0xF * int(a) if isinstance(a, str) else 0xA
        sum_of_0 = carry ^ 0xF * int(invert)
    value = (sum_of_0 ^ 0xF) * 0x1100 | sum_of_0 << 4 | carry
    cell["parameters"][init] = f"{value:016b}"
    kept = "1" if a_moves or isinstance(a, str) else a
    for pin, bit in zip("ABCD", (kept, "1", "1", a if a_moves else b), strict=True):
        pins[f"{pin}{half}"] = [bit]
