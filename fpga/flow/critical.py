"""What a nextpnr report says of speed: the clock that is reached, and the slowest path."""

from pathlib import Path


def fmax(report):
    """Clock that a nextpnr report reaches, MHz; ValueError unless the design has one clock."""
    clocks = report.get("fmax", {})
    if len(clocks) != 1:
        raise ValueError(f"a design must have one clock, not {len(clocks)}: {', '.join(clocks)}")
    return next(iter(clocks.values()))["achieved"]


def critical_path(report, netlist):
    """The slowest register-to-register path of a nextpnr report as text, one hop a line.

    Each line: delay of this hop, sum so far (ns), kind, cell or net, place, and the Python line
    that the signal comes from.
    """
    paths = [
        path["path"]
        for path in report["critical_paths"]
        if path["from"] == path["to"] and path["from"].startswith("posedge")
    ]
    if not paths:
        return "no path from register to register"
    path = max(paths, key=lambda hops: sum(hop["delay"] for hop in hops))
    split = {"routing": 0.0, "logic": 0.0}
    sources = _sources(netlist)
    total, levels, lines, chain = 0.0, 0, [], None
    for hop in path:
        total += hop["delay"]
        routed = hop["type"] == "routing"
        split["routing" if routed else "logic"] += hop["delay"]
        if hop["to"]["port"] in ("FCI", "FCO"):  # a carry chain is one level, shown at its end
            chain = (chain or 0.0) + hop["delay"]
            continue
        levels += hop["type"] == "logic"
        delay, note = hop["delay"] + (chain or 0.0), "" if chain is None else "carry chain, "
        chain = None
        if routed:
            what, source = hop["net"], sources.get(hop["net"], "")
        else:
            what, source = f"{hop['from']['cell']}.{hop['from']['port']}", ""
            if hop["to"] != hop["from"]:
                what += f" -> {hop['to']['port']}"
        x, y = hop["to"]["loc"]
        lines.append(
            f"{delay:6.2f} {total:6.2f}  {hop['type']:8} {note}{what} ({x},{y}) {source}".rstrip()
        )
    head = (
        f"{path[0]['from']['cell']} to {path[-1]['to']['cell']}: {total:.2f} ns, "
        f"logic {split['logic']:.2f} ns in {levels} levels, routing {split['routing']:.2f} ns"
    )
    return "\n".join([head, *lines])


def _sources(netlist):
    """Python line of each net, under nextpnr's name for it; aliases of a net share their lines."""
    lines = {}
    for entry in netlist["netnames"].values():
        source = _short(entry["attributes"].get("src", ""))
        for bit in entry["bits"]:
            if ".py:" in source and not isinstance(bit, str):
                lines.setdefault(bit, source)
    result = {}
    for name, entry in netlist["netnames"].items():
        single = len(entry["bits"]) == 1
        for k, bit in enumerate(entry["bits"], entry.get("offset", 0)):
            result[name if single else f"{name}[{k}]"] = lines.get(bit, "")
    return result


def _short(source):
    """``/a/b/hdl/x.py:12.3`` as ``hdl/x.py:12``; only the first of several."""
    first = source.split("|")[0]
    name, _, line = first.rpartition(":")
    return f"{'/'.join(Path(name).parts[-2:])}:{line.split('.')[0]}" if name else ""
