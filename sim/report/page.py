"""What the main job found, as rows for a screen and as one self-contained HTML page."""

import math
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gradnic import __version__

from ..reproduce.page import COLUMNS
from . import offload as report_offload
from . import pictures
from . import star as report_star


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


def page(result, claims=None):
    """The report as one HTML page without outside parts: ``page.html``, filled.

    claims : of `gradnic.sim.reproduce.page.read_claims`, or None.
    """
    its = result["iterations"]
    last = list(its)[-1]
    runs = [it[kind] for it in its.values() for kind in ("coded", "uncoded")]
    drawn = {name: Markup(getattr(pictures, name)(result)) for name in ("packing", "waveform")} | {
        name: {i: Markup(getattr(pictures, name)(result, i)) for i in its}
        for name in ("gradient_histogram", "error_distribution", "ring_traffic")
    }
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        result=result,
        its=its,
        last=last,
        css=Markup((Path(__file__).parent / "page.css").read_text()),
        version=__version__,
        n_frames=sum(run["frames"] for run in runs),
        n_wrong=sum(run["mismatches"] for run in runs),
        facts=_facts(result, last),
        table=list(_groups(rows(result))),
        group=pictures.group_rows(result),
        tag_colors=pictures.COLORS,
        packing_legend=list(
            zip(
                ("head", "count", "tags", "8 bits", "16 bits", "32 bits"),
                (
                    pictures.HEAD_COLOR,
                    pictures.COUNT_COLOR,
                    pictures.TAGS_COLOR,
                    *pictures.COLORS[1:],
                ),
                strict=True,
            )
        ),
        claims=claims,
        claim_columns=COLUMNS,
        star=result.get("star"),  # a run that was kept from before has none
        star_rows=report_star.rows(result["star"]) if "star" in result else (),
        offload=result.get("offload"),
        offload_names=report_offload.names(result["offload"]) if "offload" in result else (),
        offload_rows=report_offload.rows(result["offload"]) if "offload" in result else (),
        clock_line=clock_line(result),
        verilog=result.get("verilog", ()),
        **drawn,
    )


def _facts(result, last):
    """[(figure, what it is)] of the page's head."""
    it = result["iterations"][last]
    coded, uncoded, gradients = it["coded"], it["uncoded"], it["gradients"]
    wires = f"iteration {last}, RTL simulation of {result['nodes']} cards, coded against uncoded"
    of_codec = f"iteration {last}, golden codec on all workers' gradients"
    bound = pictures.power_of_two(result["exponent"] - 127)
    facts = [
        (ratio(gradients["value_ratio"]), f"value ratio against FP32; {of_codec}"),
        (saved(uncoded["wire_bytes"], coded["wire_bytes"]), f"of the wires' bytes saved; {wires}"),
        (saved(uncoded["cycles"], coded["cycles"]), f"of the cycles saved; {wires}"),
        (in_bounds(gradients), f"largest error of a gradient, in bounds of {bound}; {of_codec}"),
    ]
    if result.get("clock"):
        facts.append((f"{result['clock']['gbps']:.0f} Gb/s", clock_source(result)))
    return facts


def _groups(lines):
    """(group or None where it is the one before, name, texts), with arrows for people."""
    before = None
    for group, name, values in lines:
        texts = [str(value).replace(" > ", " → ") for value in values]
        yield None if group == before else group, name.replace(" > ", " → "), texts
        before = group
