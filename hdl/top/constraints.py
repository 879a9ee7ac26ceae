"""Timing constraints of a module, scoped to its instances: for AMD's tools and for Intel's.

Only paths between clocks are constrained. The first stage of a synchronizer takes a Gray code, or a
bit that stays, from the other clock: its bits may arrive a period of the receiving clock apart. A
reset is set at any time, and released by the clock.

Plumbing: no golden model of its own.
"""

NONE = "One clock, no path that crosses: there is nothing to constrain but the clock itself.\n"


def xdc(name, stages):
    """XDC of module `name` whose synchronizers begin at `stages`, as `verilog.write` has them."""
    lines = [
        f"# For every instance of {name}: read_xdc -ref {name} {name}.xdc",
        "# (or the file's property SCOPED_TO_REF). Clocks are created outside.",
    ]
    if not stages:
        return "\n".join([*lines, f"# {NONE}"])
    for path, is_reset in stages:
        at = "/".join(path)
        if is_reset:
            for stage in ("stage0", "stage1"):
                register = "/".join((*path[:-1], f"{stage}_reg*"))
                lines.append(f"set_false_path -to [get_pins {{{register}/PRE}}]")
            continue
        cells = f"[get_cells {{{at}_reg*}}]"
        clock = f"[get_property -min PERIOD [get_clocks -of_objects {cells}]]"
        pins = f"[get_pins {{{at}_reg*/D}}]"
        source = f"[all_fanin -flat -startpoints_only -only_cells {pins}]"
        lines.append(f"set_max_delay -datapath_only -from {source} -to {cells} {clock}")
        lines.append(f"set_bus_skew -from {source} -to {cells} {clock}")
    stores = dict.fromkeys("/".join(path[:-2]) for path, is_reset in stages if not is_reset)
    for store in stores:  # a word is read long after it was written
        lines.append(f"set_false_path -from [get_cells -quiet {{{store}/storage_reg*}}]")
    return "\n".join(lines) + "\n"


def sdc(name, stages):
    """SDC (Quartus) of module `name`: the same for each of its instances, by wildcard."""
    lines = [f"# For every instance of {name}, wherever it stands. Clocks are created outside."]
    if not stages:
        return "\n".join([*lines, f"# {NONE}"])
    for path, is_reset in stages:
        at = "|".join(path)
        registers = f"[get_registers {{*|{at}* {at}*}}]"
        if is_reset:
            both = "|".join((*path[:-1], "stage"))
            lines.append(f"set_false_path -to [get_registers {{*|{both}* {both}*}}]")
            continue
        lines += [
            f"set_max_skew -to {registers} -get_skew_value_from_clock_period dst_clock_period "
            "-skew_value_multiplier 0.8",
            f"set_net_delay -max -to {registers} -get_value_from_clock_period dst_clock_period "
            "-value_multiplier 0.8",
        ]
        lines.append(f"set_false_path -to {registers}")
    return "\n".join(lines) + "\n"
