"""What the main job found, as rows for a screen and as one self-contained HTML page."""

import math
from html import escape

from gradnic import __version__

from . import offload as report_offload
from . import pictures
from . import star as report_star

CSS = """
:root { --ink: #1d2733; --soft: #5b6675; --line: #dde3ea; --paper: #fff; --back: #f4f6f8;
  --good: #1f7a5c; --bad: #b3261e; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 80px; }
h1 { font-size: 34px; line-height: 1.2; margin: 0 0 8px; letter-spacing: -.01em; }
h2 { font-size: 22px; margin: 0 0 6px; }
p { margin: 0 0 12px; max-width: 78ch; }
.lead { font-size: 18px; color: var(--soft); }
.verdict { display: inline-block; padding: 6px 14px; border-radius: 999px; color: #fff;
  font-weight: 600; margin: 10px 0 26px; }
.good { background: var(--good); } .bad { background: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 14px;
  margin-bottom: 28px; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 12px;
  padding: 16px 18px; }
.card b { display: block; font-size: 30px; line-height: 1.2; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 14px; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 12px;
  padding: 24px 26px; margin-bottom: 22px; }
section svg { max-width: 100%; height: auto; display: block; margin-top: 14px; }
h3 { font-size: 15px; margin: 22px 0 0; color: var(--soft); font-weight: 600; }
table { border-collapse: collapse; width: 100%; margin-top: 12px;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 7px 12px; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; font-size: 14px; }
td.num, th.num { text-align: right; }
tr.group td { padding-top: 18px; color: var(--soft); font-weight: 600; font-size: 14px; }
code { font: 13px/1.4 ui-monospace, "DejaVu Sans Mono", monospace; }
.chip { display: inline-block; padding: 0 7px; border-radius: 5px; color: #fff; font:
  13px ui-monospace, "DejaVu Sans Mono", monospace; }
.legend { display: flex; flex-wrap: wrap; gap: 6px 18px; font-size: 14px; color: var(--soft);
  margin-top: 10px; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 6px;
  vertical-align: -1px; }
footer { color: var(--soft); font-size: 14px; }
svg text { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #5b6675; }
svg text.strong { font-weight: 600; fill: #1d2733; }
svg text.small { font-size: 10px; }
svg text.hex { font: 11px ui-monospace, "DejaVu Sans Mono", monospace; fill: revert-layer; }
svg .axis { stroke: #9aa5b1; } svg .grid { stroke: #e8ecf0; }
svg .bound { stroke: #1d2733; stroke-dasharray: 4 3; stroke-opacity: .55; }
svg .wave { fill: none; stroke: #1d2733; stroke-width: 1.2; }
svg .series { fill: none; stroke-width: 1.5; }
svg rect.zero { fill: #8d99a6; }
"""


def ratio(value):
    """A ratio for people: two figures behind the point."""
    return f"{value:.2f}x"


def in_bounds(stats):
    """The largest error as a share of the bound, rounded down: 1 would break the guarantee."""
    return f"{math.floor(1e6 * stats['max_abs_error'] / stats['bound']) / 1e6:.6f}"


def saved(before, after):
    """The share of `before` that is gone in `after`, in percent."""
    return f"{100 * (1 - after / before):.1f} %"


def rows(result):
    """[(group, name, [one text an iteration])] of everything on the screen and in the table."""
    its = list(result["iterations"].values())

    def row(group, name, text):
        return group, name, [text(it) for it in its]

    def ratios(kind):
        return lambda it: (
            f"{ratio(it['gradients'][f'{kind}_ratio'])} "
            f"({ratio(it['gradients'][f'bf16_{kind}_ratio'])})"
        )

    def change(key):
        return lambda it: f"{it['uncoded'][key]:,} > {it['coded'][key]:,}"

    def gain(key):
        return lambda it: (
            f"{saved(it['uncoded'][key], it['coded'][key])} "
            f"({ratio(it['uncoded'][key] / it['coded'][key])})"
        )

    gradients, total = "gradients, FP32 (BF16)", "sum at every worker"
    wires, cards = "on the wires", "RTL against golden"
    return [
        *(row(gradients, f"{kind} ratio", ratios(kind)) for kind in ("value", "payload", "wire")),
        row(gradients, "largest error / bound", lambda it: in_bounds(it["gradients"])),
        row(gradients, "NMSE", lambda it: f"{it['gradients']['nmse']:.2g}"),
        row(total, "largest error", lambda it: f"{it['sum']['max_abs_error']:.4g}"),
        row(total, "NMSE", lambda it: f"{it['sum']['nmse']:.2g}"),
        row(wires, "bytes, raw > coded", change("wire_bytes")),
        row(wires, "bytes saved", gain("wire_bytes")),
        row(wires, "cycles, raw > coded", change("cycles")),
        row(wires, "cycles saved", gain("cycles")),
        row(
            cards, "mismatches", lambda it: it["coded"]["mismatches"] + it["uncoded"]["mismatches"]
        ),
    ]


def clock_line(result):
    """One sentence on the synthesized clock, or that none is recorded."""
    clock = result.get("clock")
    if not clock:
        return (
            "No synthesized clock is recorded for this card (fpga/baseline.json): "
            "run gradnic synth to get one."
        )
    return f"{clock['gbps']:.1f} Gb/s: {clock_source(result)}."


def clock_source(result):
    """What the recorded rate is of, and whether that is the card of this run."""
    clock, lanes = result["clock"], result.get("lanes")
    block, _, width = clock["block"].rpartition("-")
    whose = (
        f"this run's {lanes} a cycle" if width == str(lanes) else f"not the run's {lanes} a cycle"
    )
    whole = "the card" if block == "inline" else "one block alone"
    return (
        f"floats through {clock['block']}, {whole}, {width} a cycle ({whose}): placed and routed "
        f"for {clock['device']}, {clock['fmax_mhz']:.0f} MHz, no part of the simulation"
    )


def page(result):
    """The report as one HTML page without outside parts."""
    last = list(result["iterations"])[-1]
    its = result["iterations"]
    frames = sum(it[k]["frames"] for it in its.values() for k in ("coded", "uncoded"))
    wrong = sum(it[k]["mismatches"] for it in its.values() for k in ("coded", "uncoded"))
    n, lanes = result["nodes"], result["lanes"]
    verdict = (
        f'<div class="verdict good">Bit-exact: {frames:,} frames and every replica equal '
        "to the golden cluster</div>"
        if result["ok"]
        else f'<div class="verdict bad">NOT bit-exact: {wrong:,} frames or replicas differ</div>'
    )
    body = [
        "<main>",
        "<h1>Real gradients through simulated cards</h1>",
        f'<p class="lead">{n} in-line cards, {lanes} floats a cycle, in a ring: their RTL, in a '
        "cycle-accurate simulation; no hardware was at work. Each "
        f"worker's gradient of {result['parameters']:,} values crosses them as ordinary UDP "
        "frames; the cards compress what leaves and restore what arrives.</p>",
        verdict,
        _cards(result, last),
        "<section><h2>The figures</h2><p>Gradients are summed over the batch (sum loss), so they "
        "are 25 times those of a mean loss; the bound of the codec is absolute. Ratios of the "
        f"gradients count frames of {result['floats_a_frame']} floats with the 64-byte head; bytes "
        "and cycles on the wires are what the RTL sent, partial sums included, against the same "
        f"run uncoded. {_wire(result)}</p>{_table(result)}</section>",
    ]
    for iteration in its:
        late = iteration == last
        body.append(
            "<section><h2>Where the gradients of iteration "
            f"{iteration} fall</h2><p>"
            + (
                "After some training most values are small: one byte, or none."
                if late
                else "At the first step most values still take two bytes."
            )
            + " Bars: share of all values in a quarter of an octave. Behind them, the codec's "
            "bands and the share of values in each.</p>"
            + pictures.gradient_histogram(result, iteration)
            + "<h3>What one pass through the codec does to them</h3>"
            + pictures.error_distribution(result, iteration)
            + _legend(("values dropped", "8 bits", "16 bits"), pictures.COLORS)
            + "</section>"
        )
    body += [
        "<section><h2>How eight floats pack</h2><p>The first group of a real frame. The tag says "
        "how many bytes follow; the magnitude carries the exponent in unary by its leading one."
        "</p><table><tr><th>lane</th><th class=num>float</th><th>bits</th><th>tag</th>"
        "<th>payload</th><th class=num>comes back as</th></tr>"
        + pictures.group_table(result)
        + "</table></section>",
        "<section><h2>Groups pack into beats</h2><p>The same frame as it leaves the card, one row "
        f"a clock cycle, {4 * lanes} bytes each: the head with its lengths rewritten, the count of "
        "floats, the tags of all groups, then the payloads without a gap.</p>"
        + pictures.packing(result)
        + _legend(
            ("head", "count", "tags", "8 bits", "16 bits", "32 bits"),
            (
                pictures.HEAD_COLOR,
                pictures.COUNT_COLOR,
                pictures.TAGS_COLOR,
                *pictures.COLORS[1:],
            ),
        )
        + "</section>",
        "<section><h2>One frame, cycle by cycle</h2><p>From one host to the next, through two "
        "cards and a wire. Columns are beats, byte 0 on top; floats have the color of their tag. "
        "The card stores the packet, since its coded length goes into the head.</p>"
        + pictures.waveform(result)
        + "</section>",
    ]
    for iteration in its:
        body.append(
            f"<section><h2>Round the ring, iteration {iteration}</h2><p>Bytes on each wire in each "
            "step, gap and preamble included; gray is the same step uncoded.</p>"
            + pictures.ring_traffic(result, iteration)
            + "</section>"
        )
    for name, part in (("star", report_star), ("offload", report_offload)):
        if name in result:  # a run that was kept from before has none
            body.append(part.section(result[name]))
    files = ", ".join(f"<code>{escape(f)}</code>" for f in result.get("verilog", []))
    body += [
        f"<footer><p>gradnic {__version__}. Made by <code>gradnic report --run</code>; figures in "
        f"<code>result.json</code>. {'Verilog of this card: ' + files + '.' if files else ''} "
        f"{escape(clock_line(result))}</p></footer>",
        "</main>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>gradnic: first light</title><style>{CSS}</style></head><body>"
        + "\n".join(body)
        + "</body></html>\n"
    )


def _wire(result):
    return (
        f"The wire takes {result['link_bytes']:g} bytes a cycle: 10 Gb/s if the card runs at "
        f"{1250 / result['link_bytes']:g} MHz."
        if result["link_bytes"]
        else "The wire is as fast as the card."
    )


def _cards(result, last):
    it = result["iterations"][last]
    coded, uncoded, gradients = it["coded"], it["uncoded"], it["gradients"]
    wires = f"iteration {last}, RTL simulation of {result['nodes']} cards, coded against uncoded"
    of_codec = f"iteration {last}, golden codec on all workers' gradients"
    bound = pictures.power_of_two(result["exponent"] - 127)
    facts = [
        (ratio(gradients["value_ratio"]), f"value ratio against FP32; {of_codec}"),
        (saved(uncoded["wire_bytes"], coded["wire_bytes"]), f"of the bytes on the wires; {wires}"),
        (saved(uncoded["cycles"], coded["cycles"]), f"of the cycles; {wires}"),
        (in_bounds(gradients), f"largest error of a gradient, in bounds of {bound}; {of_codec}"),
    ]
    if result.get("clock"):
        facts.append((f"{result['clock']['gbps']:.0f} Gb/s", clock_source(result)))
    items = "".join(f"<div class=card><b>{v}</b><span>{w}</span></div>" for v, w in facts)
    return f"<div class=cards>{items}</div>"


def _table(result):
    head = "".join(f"<th class=num>iteration {i}</th>" for i in result["iterations"])
    lines, group = [f"<table><tr><th></th>{head}</tr>"], None
    for section, name, values in rows(result):
        if section != group:
            group = section
            lines.append(f'<tr class=group><td colspan="{1 + len(values)}">{section}</td></tr>')
        arrows = [str(v).replace(" > ", " → ") for v in values]
        cells = "".join(f"<td class=num>{escape(v)}</td>" for v in arrows)
        lines.append(f"<tr><td>{name.replace(' > ', ' → ')}</td>{cells}</tr>")
    return "".join(lines) + "</table>"


def _legend(names, colors):
    items = zip(names, colors, strict=False)
    return (
        "<div class=legend>"
        + "".join(f'<span><i style="background:{c}"></i>{n}</span>' for n, c in items)
        + "</div>"
    )
