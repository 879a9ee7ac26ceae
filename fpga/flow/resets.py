"""How the reset of a block reaches its registers on ECP5: by copies, or the device's own net."""

RESET_FANOUT = 32  # registers that one copy of the reset serves
CROWDED = 60_000  # registers; from here on 8 that share a tile would have three resets
CROWDED_FANOUT = 256  # registers that one copy serves then


def spread(netlist, globally):
    """Put a second rank of registers behind the boundary register of the reset.

    Each serves up to `RESET_FANOUT` users of one component, which are neighbors on the device; in a
    netlist of more than `CROWDED` registers up to `CROWDED_FANOUT` that follow each other by name.
    netlist : Yosys JSON, one module; changed in place.
    globally : bool, the device's own net resets the registers, and takes none of the two resets
        that a tile has; copies are for LUTs alone.
    """
    cells = netlist["cells"]
    registers = [cell for cell in cells.values() if cell["type"] == "TRELLIS_FF"]
    port = netlist["ports"]["rst"]["bits"][0]
    first = next((cell for cell in registers if port in cell["connections"].get("DI", [])), None)
    if first is None:
        return  # no register has a reset
    (reset,) = first["connections"]["Q"]
    crowded = len(registers) > CROWDED and not globally
    fanout = CROWDED_FANOUT if crowded else RESET_FANOUT
    if globally:
        _reset_globally(cells, registers, reset, first["connections"]["CLK"])
    users = sorted(
        (name, pin)
        for name, cell in cells.items()
        if name != "global_reset_low"
        for pin, bits in cell["connections"].items()
        if cell["port_directions"].get(pin) == "input" and reset in bits
    )
    fresh = 1 + _last_wire(cells)
    groups = []
    for name, pin in users:
        part = "" if crowded else name.rpartition(".")[0]
        if not groups or groups[-1][0] != part or len(groups[-1][1]) == fanout:
            groups.append((part, []))
        groups[-1][1].append((name, pin))
    for k, (_, group) in enumerate(groups):
        for name, pin in group:
            bits = cells[name]["connections"][pin]
            cells[name]["connections"][pin] = [fresh + k if bit == reset else bit for bit in bits]
        copy = first | {"connections": first["connections"] | {"DI": [reset], "Q": [fresh + k]}}
        cells[f"reset{k}"] = copy
        netlist["netnames"][f"reset{k}"] = {"hide_name": 0, "bits": [fresh + k], "attributes": {}}


def _reset_globally(cells, registers, reset, clock):
    """Let `registers` that `reset` resets have it from the device's net, in step with `clock`."""
    for register in registers:
        if register["connections"].get("LSR") == [reset]:
            register["connections"]["LSR"] = ["0"]
            register["parameters"]["GSR"] = "ENABLED"
    low = 1 + _last_wire(cells)
    cells["global_reset_low"] = _cell("LUT4", {"A": [reset], "B": ["0"], "C": ["0"], "D": ["0"]},
                                      {"Z": [low]}, INIT="0000000000000001")  # fmt: skip
    cells["global_reset"] = _cell("SGSR", {"GSR": [low], "CLK": clock}, {})


def _last_wire(cells):
    wires = (
        bit for cell in cells.values() for bits in cell["connections"].values() for bit in bits
    )
    return max(bit for bit in wires if isinstance(bit, int))


def _cell(kind, inputs, outputs, **parameters):
    """Return a cell of Yosys' JSON."""
    directions = dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output")
    return {
        "hide_name": 0,
        "type": kind,
        "parameters": parameters,
        "attributes": {},
        "port_directions": directions,
        "connections": inputs | outputs,
    }
