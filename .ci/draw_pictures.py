"""Draws the block diagrams of the docs: ``python .ci/draw_pictures.py`` writes docs/pictures/*.svg.

A picture is boxes on a grid of columns and rows, and arrows between their sides.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH, MARGIN, GAP = 880, 12, 24
HEIGHT, STEP = 60, 104  # of a box; from row to row
STYLE = (
    "text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2d35}"
    ".name{font-size:13px;font-weight:600}.more{font-size:11px;fill:#526570}"
    ".note{font-size:11px;fill:#37648a;font-style:italic}"
    ".box{fill:#f2f6f8;stroke:#5b7482}.ground{fill:#e6f1e6;stroke:#5f8a5f}"
    ".edge{fill:#fdf1e0;stroke:#b07d32}.way{fill:none;stroke:#37648a;stroke-width:1.6}"
)


@dataclass(frozen=True)
class Box:
    """name, more : its two lines. column, row : of its upper left corner. columns : it spans."""

    name: str
    more: str
    column: float
    row: float
    columns: int = 1
    rows: int = 1
    kind: str = "box"


@dataclass(frozen=True)
class Arrow:
    """From a box to a box, by name. sides : of either, of l r t b. note : beside its middle."""

    start: str
    end: str
    sides: str = "rl"
    note: str = ""


class Picture:
    """Boxes and arrows in `n_columns`."""

    def __init__(self, title, n_columns, boxes, arrows=()):
        self.title, self.boxes, self.arrows = title, {box.name: box for box in boxes}, arrows
        self.pitch = (WIDTH - 2 * MARGIN + GAP) / n_columns
        self.height = 2 * MARGIN + STEP * max(b.row + b.rows - 1 for b in boxes) + HEIGHT

    def _frame(self, box):
        x, y = MARGIN + box.column * self.pitch, MARGIN + box.row * STEP
        return x, y, box.columns * self.pitch - GAP, (box.rows - 1) * STEP + HEIGHT

    def _side(self, name, side, other):
        """Middle of a side; of a box that spans, level with the other end."""
        box = self.boxes[name]
        x, y, width, height = self._frame(box)
        ox, oy, owidth, oheight = self._frame(self.boxes[other])
        across = ox + owidth / 2 if box.columns > 1 else x + width / 2
        along = oy + oheight / 2 if box.rows > 1 else y + height / 2
        return {"l": (x, along), "r": (x + width, along),
                "t": (across, y), "b": (across, y + height)}[side]  # fmt: skip

    def _drawn(self, arrow):
        (x1, y1), (x2, y2) = (
            self._side(arrow.start, arrow.sides[0], arrow.end),
            self._side(arrow.end, arrow.sides[1], arrow.start),
        )
        if arrow.sides[0] in "tb" and arrow.sides[1] in "tb":
            middle = (y1 + y2) / 2
            points = [(x1, y1), (x1, middle), (x2, middle), (x2, y2)]
        elif arrow.sides[0] in "tb":
            points = [(x1, y1), (x1, y2), (x2, y2)]
        else:
            points = [(x1, y1), (x2, y2)]
        path = "M" + "L".join(f"{x:.0f},{y:.0f}" for x, y in points)
        parts = [f'<path class="way" marker-end="url(#tip)" d="{path}"/>']
        if arrow.note:
            x, y = (x1 + x2) / 2, (y1 + y2) / 2
            if y1 == y2:
                parts.append(_text(x, y - 6, arrow.note, "note"))
            elif x1 == x2:
                parts.append(_text(x + 6, y + 4, arrow.note, "note", "start"))
            else:
                parts.append(_text(x, y - 5, arrow.note, "note"))
        return parts

    def svg(self):
        """The picture as text."""
        parts = []
        for box in self.boxes.values():
            x, y, width, height = self._frame(box)
            parts.append(f'<rect class="{box.kind}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" '
                         f'height="{height:.0f}" rx="6"/>')  # fmt: skip
            middle = y + height / 2
            lines = box.more.split("\n") if box.more else []
            top = middle + 5 - 7.5 * len(lines)
            parts.append(_text(x + width / 2, top, box.name, "name"))
            parts += [_text(x + width / 2, top + 15 * (k + 1), line, "more")
                      for k, line in enumerate(lines)]  # fmt: skip
        for arrow in self.arrows:
            parts += self._drawn(arrow)
        tip = ('<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
               'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
               '<path d="M0,0L8,4L0,8z" fill="#37648a"/></marker>')  # fmt: skip
        size = f"{WIDTH} {self.height:.0f}"
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img">'
                f"<title>{escape(self.title)}</title><style>{STYLE}</style><defs>{tip}</defs>"
                f'<rect width="100%" height="100%" rx="8" fill="#fff"/>')  # fmt: skip
        return "\n".join([head, *parts, "</svg>\n"])


def _text(x, y, words, kind, anchor="middle"):
    return (
        f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


CARD = Picture("The offload card", 6, [
    Box("host", "", 0, 0, kind="edge"),
    Box("all other traffic", "untouched, in order", 1, 0, 4),
    Box("MAC", "Ethernet", 5, 0, rows=4, kind="edge"),
    Box("memory", "gradient,\nlanding areas", 0, 1, rows=3, kind="ground"),
    Box("fetch, add", "in the table's order", 1, 1),
    Box("encode", "raw, INCEPTIONN,\nTHC", 2, 1),
    Box("packetize", "heads, importance", 3, 1),
    Box("send", "spray, pace, queues", 4, 1),
    Box("schedule", "a table, row by row: what is sent once what has come", 1, 2, 3),
    Box("store", "by number", 1, 3),
    Box("track", "round, bitmap,\nbounded loss", 2, 3),
    Box("decode", "raw, INCEPTIONN,\nTHC", 3, 3),
    Box("classify", "ours? whole?\nsound?", 4, 3),
], [
    Arrow("host", "all other traffic"), Arrow("all other traffic", "MAC"),
    Arrow("MAC", "all other traffic", "lr"), Arrow("all other traffic", "host", "lr"),
    Arrow("memory", "fetch, add"), Arrow("fetch, add", "encode"), Arrow("encode", "packetize"),
    Arrow("packetize", "send"), Arrow("send", "MAC"),
    Arrow("MAC", "classify", "lr"), Arrow("classify", "decode", "lr"),
    Arrow("decode", "track", "lr"), Arrow("track", "store", "lr"), Arrow("store", "memory", "lr"),
    Arrow("schedule", "fetch, add", "tb", "a row is due"),
    Arrow("track", "schedule", "tb", "a chunk is whole"),
])  # fmt: skip

FLOORS = [
    [("offload", "whole all-reduce over Ethernet")],
    [("transport", "bounded loss"), ("direct", "links with credits"),
     ("shells", "Corundum, OpenNIC, LiteEth")],
    [("reduction", "sums in order"), ("aggregation", "slots in the network"),
     ("inline", "in-line card"), ("top", "what is written as Verilog")],
    [("axi", "edges, memories"), ("frame", "Ethernet frames"), ("inceptionn", "float codec"),
     ("thc", "table codec"), ("schedule", "message scheduler")],
    [("stream", "beats, slices, queues, widths")],
    [("primitive", "block RAM, multiplier, the build's target")],
]  # fmt: skip
PACKAGES = Picture("Packages of hdl: each imports only from floors below its own", 60, [
    Box(name, more, 60 / len(floor) * k, 0.7 * row, 60 // len(floor))
    for row, floor in enumerate(FLOORS) for k, (name, more) in enumerate(floor)
])  # fmt: skip

WAY_IN = Picture("A gradient packet's way into the offload card", 5, [
    Box("MAC", "one a port", 0, 0, kind="edge"),
    Box("length_guard", "frame\ncuts at 16 KiB", 1, 0),
    Box("intake", "frame\nours? stored until whole", 2, 0),
    Box("packet_fifo", "frame\nforeign, untouched", 3, 0),
    Box("host", "in order", 4, 0, kind="edge"),
    Box("parser", "offload\nhead, sender", 0, 1),
    Box("gate", "offload\nwhole, sound", 1, 1),
    Box("packet_decoder", "offload\nraw, INCEPTIONN, THC", 2, 1),
    Box("locator", "transport\nSEQ to chunk", 3, 1),
    Box("receiver", "transport\nnew, or duplicate?", 4, 1),
    Box("dma", "axi\nlanding area", 4, 2, kind="ground"),
    Box("scheduler", "schedule\nchunk is complete", 3, 2),
], [
    Arrow("MAC", "length_guard"), Arrow("length_guard", "intake"),
    Arrow("intake", "packet_fifo"), Arrow("packet_fifo", "host"),
    Arrow("intake", "parser", "bt", "Ethernet, IPv4, UDP, port, VER, JOB, sender"),
    Arrow("parser", "gate"), Arrow("gate", "packet_decoder"),
    Arrow("packet_decoder", "locator"),
    Arrow("locator", "receiver"),
    Arrow("receiver", "dma", "bt", "new"),
    Arrow("receiver", "scheduler", "bt"),
])  # fmt: skip

WAY_OUT = Picture("A packet's way out of the offload card", 5, [
    Box("MAC", "one a port", 4, 0, kind="edge"),
    Box("scheduler", "schedule\na row is due", 0, 1),
    Box("sender", "transport\nruns, PROBEs, repairs", 1, 1),
    Box("packet_maker", "offload\nreads, adds, codes", 2, 1),
    Box("framer", "transport\nheads, path", 3, 1),
    Box("port_exit", "offload\none store, or 8 queues", 4, 1),
    Box("dma", "axi\nown values, landings", 2, 2, kind="ground"),
    Box("host", "floor and ceiling", 4, 2, kind="edge"),
], [
    Arrow("scheduler", "sender"),
    Arrow("sender", "packet_maker"),
    Arrow("packet_maker", "framer"),
    Arrow("framer", "port_exit"),
    Arrow("port_exit", "MAC", "tb"),
    Arrow("dma", "packet_maker", "tb"),
    Arrow("host", "port_exit", "tb"),
])  # fmt: skip

PICTURES = {"card": CARD, "packages": PACKAGES, "way_in": WAY_IN, "way_out": WAY_OUT}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(picture.svg())
