"""The few SVG shapes that the report's pictures are made of, as text. Units are pixels."""

from html import escape


def drawing(width, height, parts, *, label):
    """An SVG of `parts` (strings); scales down with the page. label : what a screen reader says."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" '
        f'aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def rect(x, y, width, height, fill, *, title=None, cls=None, opacity=None):
    """A filled rectangle; `title` shows when the mouse rests on it."""
    attributes = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{fill}"'
    if cls:
        attributes += f' class="{cls}"'
    if opacity is not None:
        attributes += f' fill-opacity="{opacity:g}"'
    if title is None:
        return f"<rect {attributes}/>"
    return f"<rect {attributes}><title>{escape(title)}</title></rect>"


def text(x, y, words, *, anchor="start", cls="label", fill=None):
    """One line of text; `y` is its base line."""
    paint = f' fill="{fill}"' if fill else ""
    return (
        f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}" class="{cls}"{paint}>'
        f"{escape(str(words))}</text>"
    )


def line(x1, y1, x2, y2, *, cls="axis"):
    """A straight line."""
    return f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" class="{cls}"/>'


def polyline(points, *, cls, stroke=None):
    """A line through `points`, pairs of x and y."""
    joined = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
    paint = f' stroke="{stroke}"' if stroke else ""
    return f'<polyline points="{joined}" class="{cls}"{paint}/>'
