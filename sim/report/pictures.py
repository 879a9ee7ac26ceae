"""The pictures of the report, drawn from the dict of `gradnic.sim.report.first_light.run`."""

import math

import numpy as np

from gradnic.interface.inline import PAPER_CODED_START, PAPER_START

from . import svg

COLORS = ("#c3ccd6", "#2a9d8f", "#3f6fb5", "#e4683f")  # tags 0 to 3
TAG_NAMES = ("0 bits", "8 bits", "16 bits", "32 bits")
HEAD_COLOR, COUNT_COLOR, TAGS_COLOR = "#5b6675", "#8e6bb0", "#e3b341"
WIDTH = 1000


def power_of_two(exponent):
    """``2^exponent`` with a raised exponent."""
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return "2" + raised if exponent else "1"


def gradient_histogram(result, iteration):
    """How many gradients have which magnitude, with the bands of the codec behind."""
    histogram = result["iterations"][iteration]["histogram"]
    edges, counts = histogram["edges"], np.array(histogram["counts"])
    total = counts.sum() + histogram["zeros"]
    low, high = edges[0], edges[-1]
    left, right, top, bottom = 56, WIDTH - 16, 46, 250
    shares = 100 * counts / total
    peak = max(shares.max() * 1.08, 1)

    def x(octave):
        return left + (octave - low) / (high - low) * (right - left)

    def y(share):
        return bottom - share / peak * (bottom - top)

    exponent = result["exponent"]
    middle = exponent + ((128 - exponent) >> 1)
    bounds = [low, exponent - 127, middle - 127, 0, high]
    parts = []
    tag_shares = result["iterations"][iteration]["gradients"]["tag_shares"]
    for tag in range(4):
        a, b = x(bounds[tag]), x(bounds[tag + 1])
        parts.append(svg.rect(a, top, b - a, bottom - top, COLORS[tag], opacity=0.16))
        parts.append(svg.text((a + b) / 2, top - 22, TAG_NAMES[tag], anchor="middle", cls="strong"))
        share = f"{100 * tag_shares[tag]:.2g} %" if tag_shares[tag] else "none"
        parts.append(svg.text((a + b) / 2, top - 7, share, anchor="middle"))
    for k, share in enumerate(shares):
        if counts[k]:
            tag = sum(edges[k] >= b for b in bounds[1:4])
            note = f"2^{edges[k]:g} to 2^{edges[k + 1]:g}: {counts[k]} values, {share:.2f} %"
            parts.append(
                svg.rect(
                    x(edges[k]) + 0.5,
                    y(share),
                    x(edges[k + 1]) - x(edges[k]) - 1,
                    bottom - y(share),
                    COLORS[tag],
                    title=note,
                    cls="zero" if tag == 0 else None,
                )
            )
    for bound in bounds[1:4]:
        parts.append(svg.line(x(bound), top, x(bound), bottom, cls="bound"))
    parts += _axis_x(
        [(x(o), power_of_two(o)) for o in range(int(low), int(high) + 1, 2)],
        left,
        right,
        bottom,
    )
    parts += _axis_y(peak, y, left, "%")
    note = "magnitude of a gradient value"
    if histogram["zeros"]:
        note += f" ({histogram['zeros']} zeros not shown)"
    parts.append(svg.text((left + right) / 2, bottom + 40, note, anchor="middle"))
    return svg.drawing(WIDTH, bottom + 50, parts, label=f"gradients at iteration {iteration}")


def error_distribution(result, iteration):
    """How far one pass moves a value, as a share of the bound: a line a tag, logarithmic scale.

    Lines, not bars: on a logarithmic scale neither lengths nor stacks of bars mean a number.
    """
    errors = result["iterations"][iteration]["errors"]
    edges, counts = errors["edges"], np.array(errors["counts"])
    left, right, top, bottom = 56, WIDTH - 16, 20, 220
    scale = ("1", "10", "100", "1k", "10k", "100k", "1M", "10M", "100M", "1G")
    decades = max(1, math.ceil(math.log10(max(counts.max(), 10))))

    def x(share):
        return left + share / 1.06 * (right - left)

    def y(count):
        return bottom - (math.log10(count) if count >= 1 else 0) / decades * (bottom - top)

    parts = []
    for d in range(decades + 1):
        parts.append(svg.line(left, y(10**d), right, y(10**d), cls="grid"))
        parts.append(svg.text(left - 8, y(10**d) + 4, scale[d], anchor="end"))
    for tag in (0, 1, 2):
        steps = [
            (x(edges[k + i]), y(n)) for k, n in enumerate(counts[tag].tolist()) for i in (0, 1)
        ]
        if counts[tag].any():
            parts.append(svg.polyline(steps, cls="series", stroke=COLORS[tag]))
        for k in np.flatnonzero(counts[tag]).tolist():
            n = int(counts[tag, k])
            note = f"{TAG_NAMES[tag]}, {edges[k]:.3f} to {edges[k + 1]:.3f} bounds: {n} values"
            width = x(edges[k + 1]) - x(edges[k])
            parts.append(svg.rect(x(edges[k]), y(n) - 2, width, 4, COLORS[tag], title=note))
    parts.append(svg.line(x(1), top, x(1), bottom, cls="bound"))
    parts.append(
        svg.text(
            x(1) - 6,
            top + 12,
            "bound " + power_of_two(result["exponent"] - 127),
            anchor="end",
            cls="strong",
        )
    )
    parts += _axis_x([(x(s / 8), f"{s / 8:g}") for s in range(9)], left, right, bottom)
    parts.append(svg.text(left, top - 6, "values"))
    label = "distance between a value and what comes back, in bounds"
    parts.append(svg.text((left + right) / 2, bottom + 40, label, anchor="middle"))
    return svg.drawing(WIDTH, bottom + 50, parts, label=f"errors at iteration {iteration}")


def group_rows(result):
    """The first eight floats of a frame: a dict each of value, tag, payload, what comes back."""
    frame = result["frame"]
    coded = bytes.fromhex(frame["coded"])
    raw = bytes.fromhex(frame["raw"])
    at = PAPER_CODED_START + 2 * -(-len(frame["tags"]) // 8)
    rows = []
    for lane in range(8):
        tag = frame["tags"][lane]
        size = (0, 1, 2, 4)[tag]
        payload = coded[at : at + size]
        at += size
        bits = raw[PAPER_START + 4 * lane : PAPER_START + 4 * lane + 4][::-1].hex()
        rows.append(
            {
                "lane": lane,
                "float": f"{frame['floats'][lane]:+.7f}",
                "bits": bits,
                "tag": tag,
                "kind": TAG_NAMES[tag],
                "payload": payload[::-1].hex() or "–",
                "restored": f"{frame['restored'][lane]:+.7f}",
            }
        )
    return rows


def byte_kinds(frame):
    """Per byte of the coded frame: (color, what it is)."""
    tags = frame["tags"]
    n_words = -(-len(tags) // 8)
    kinds = [(HEAD_COLOR, "Ethernet, IPv4 and UDP head")] * PAPER_START
    kinds += [(COUNT_COLOR, "count of floats")] * (PAPER_CODED_START - PAPER_START)
    kinds += [
        (TAGS_COLOR, f"tags of floats {8 * w} to {8 * w + 7}") for w in range(n_words) for _ in "ab"
    ]
    for k, tag in enumerate(tags):
        kinds += [(COLORS[tag], f"float {k}, {TAG_NAMES[tag]}")] * (0, 1, 2, 4)[tag]
    size = len(frame["coded"]) // 2
    return (kinds + [(COLORS[0], "padding of a short frame")] * size)[:size]


def raw_kinds(frame):
    """Per byte of the raw frame: (color, what it is); floats in the color of their tag."""
    kinds = [(HEAD_COLOR, "Ethernet, IPv4 and UDP head")] * PAPER_START
    for k, tag in enumerate(frame["tags"]):
        kinds += [(COLORS[tag], f"float {k}, becomes {TAG_NAMES[tag]}")] * 4
    size = len(frame["raw"]) // 2
    return (kinds + [(COLORS[0], "padding of a short frame")] * size)[:size]


def packing(result):
    """The coded frame beat by beat: one row a beat, one box a byte."""
    frame = result["frame"]
    lane, coded = frame["lane_bytes"], bytes.fromhex(frame["coded"])
    kinds = byte_kinds(frame)
    left, top, row = 74, 22, 25
    box = (WIDTH - left - 8) / lane
    parts = [
        svg.text(left + box * (k + 0.5), top - 8, k, anchor="middle", cls="small")
        for k in range(0, lane, max(1, lane // 16))
    ]
    for k, (value, (color, what)) in enumerate(zip(coded, kinds, strict=True)):
        beat, place = divmod(k, lane)
        x, y = left + box * place, top + row * beat
        if place == 0:
            parts.append(svg.text(left - 10, y + 16, f"beat {beat}", anchor="end"))
        note = f"byte {k}: {what}"
        parts.append(svg.rect(x + 0.5, y + 0.5, box - 1, row - 2, color, title=note))
        dark = color in (COLORS[0], TAGS_COLOR)
        if box > 16:
            parts.append(
                svg.text(
                    x + box / 2,
                    y + 16,
                    f"{value:02x}",
                    anchor="middle",
                    cls="hex",
                    fill="#333" if dark else "#fff",
                )
            )
    height = top + row * -(-len(coded) // lane) + 4
    return svg.drawing(WIDTH, height, parts, label="bytes of a coded frame, beat by beat")


def waveform(result):
    """Beats of one frame on the four streams that it crosses, over clock cycles."""
    frame = result["frame"]
    cycles, lane = frame["cycles"], frame["lane_bytes"]
    start = cycles["host_tx"][0]
    end = max(c[-1] for c in cycles.values()) - start + 2
    left, track, gap, top = 118, 96, 30, 24
    step = (WIDTH - left - 10) / end
    tracks = (
        ("host_tx", "host to card", raw_kinds(frame)),
        ("mac_tx", "card to wire", byte_kinds(frame)),
        ("mac_rx", "wire to card", byte_kinds(frame)),
        ("host_rx", "card to host", raw_kinds(frame)),
    )
    parts = []
    every = next(n for n in (5, 10, 20, 25, 50, 100, 200, 500, 1000) if end / n < 16)
    for cycle in range(0, int(end), every):
        x = left + step * cycle
        parts.append(svg.line(x, top - 4, x, top + 4 * (track + gap) - gap, cls="grid"))
        parts.append(svg.text(x, top - 9, cycle, anchor="middle", cls="small"))
    for number, (port, words, kinds) in enumerate(tracks):
        y = top + number * (track + gap)
        parts.append(svg.text(left - 12, y + track / 2 - 4, port, anchor="end", cls="strong"))
        parts.append(svg.text(left - 12, y + track / 2 + 12, words, anchor="end", cls="small"))
        level = y + track + 10
        points, before = [(left, level)], None
        for k, cycle in enumerate(cycles[port]):
            x = left + step * (cycle - start)
            if before is not None and cycle != before + 1:
                fall = left + step * (before + 1 - start)
                points += [(fall, level - 8), (fall, level)]
            if before is None or cycle != before + 1:
                points += [(x, level), (x, level - 8)]
            before = cycle
            parts += _beat(x, y, step, track, kinds[lane * k : lane * (k + 1)], lane, port, cycle)
        fall = left + step * (before + 1 - start)
        points += [(fall, level - 8), (fall, level), (WIDTH - 10, level)]
        parts.append(svg.polyline(points, cls="wave"))
        parts.append(svg.text(left - 12, level, "moves", anchor="end", cls="small"))
    height = top + 4 * (track + gap) + 22
    parts.append(svg.text(WIDTH - 10, height - 4, "clock cycles", anchor="end"))
    return svg.drawing(WIDTH, height, parts, label="one frame on four streams, over clock cycles")


def _beat(x, y, width, height, kinds, lane, port, cycle):
    """One column of a beat, byte 0 on top; runs of one color are one box."""
    parts, start = [], 0
    for k in range(1, len(kinds) + 1):
        if k == len(kinds) or kinds[k][0] != kinds[start][0]:
            note = f"{port}, cycle {cycle}, bytes {start} to {k - 1}: {kinds[start][1]}"
            parts.append(
                svg.rect(
                    x + 0.03 * width,
                    y + height * start / lane,
                    width * 0.94,
                    height * (k - start) / lane,
                    kinds[start][0],
                    title=note,
                )
            )
            start = k
    return parts


def ring_traffic(result, iteration):
    """Bytes on each wire in each step, uncoded behind coded, and the cycles of the step."""
    figures = result["iterations"][iteration]
    coded, raw = figures["wires"]["coded"], figures["wires"]["uncoded"]
    n_steps, n = len(coded), result["nodes"]
    left, right, top, bottom = 66, WIDTH - 10, 26, 226
    peak = max(map(max, raw)) * 1.05
    step = (right - left) / n_steps
    bar = step * 0.8 / n

    def y(size):
        return bottom - size / peak * (bottom - top)

    parts = []
    ticks = _round_ticks(peak)
    for tick in ticks:
        parts.append(svg.line(left, y(tick), right, y(tick), cls="grid"))
        parts.append(svg.text(left - 8, y(tick) + 4, f"{tick / 1000:g} kB", anchor="end"))
    for t in range(n_steps):
        x = left + step * t + step * 0.1
        for i in range(n):
            size, whole = coded[t][i], raw[t][i]
            note = f"step {t + 1}, worker {i} to {(i + 1) % n}: {size:,} of {whole:,} bytes"
            color = COLORS[1] if t < n - 1 else COLORS[2]
            parts.append(svg.rect(x + bar * i, y(whole), bar - 3, bottom - y(whole), "#e2e7ec"))
            parts.append(
                svg.rect(x + bar * i, y(size), bar - 3, bottom - y(size), color, title=note)
            )
            label = f"{i}→{(i + 1) % n}"
            middle = x + bar * (i + 0.5) - 1
            parts.append(svg.text(middle, bottom + 14, label, anchor="middle", cls="small"))
        phase = "reduce" if t < n - 1 else "gather"
        middle = left + step * (t + 0.5)
        parts.append(
            svg.text(middle, bottom + 34, f"step {t + 1}, {phase}", anchor="middle", cls="strong")
        )
        before, after = (figures[k]["step_cycles"][t] for k in ("uncoded", "coded"))
        words = f"{before:,} → {after:,} cycles"
        parts.append(svg.text(middle, bottom + 51, words, anchor="middle"))
    return svg.drawing(WIDTH, bottom + 60, parts, label=f"ring traffic, iteration {iteration}")


def _axis_x(ticks, left, right, bottom):
    parts = [svg.line(left, bottom, right, bottom)]
    for x, words in ticks:
        parts.append(svg.line(x, bottom, x, bottom + 5))
        parts.append(svg.text(x, bottom + 19, words, anchor="middle"))
    return parts


def _axis_y(peak, y, left, unit):
    parts = []
    for tick in _round_ticks(peak):
        parts.append(svg.line(left - 5, y(tick), left, y(tick)))
        parts.append(svg.text(left - 8, y(tick) + 4, f"{tick:g} {unit}", anchor="end"))
    return parts


def _round_ticks(peak):
    """Four to nine round numbers from 0 to `peak`."""
    step = 10 ** math.floor(math.log10(peak))
    step = next(s for s in (step / 5, step / 2, step) if peak / s < 9)
    return [step * k for k in range(int(peak / step) + 1)]
