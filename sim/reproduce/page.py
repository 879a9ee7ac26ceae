"""The page of results: claims paper by paper, the tables behind them, every constant's source."""

import re

COLUMNS = ("claim", "published", "ours", "range", "holds")


def number(value):
    """A figure as the tables show it."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    lines += ["| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |" for row in rows]
    return [*lines, ""]


def claim_rows(claims):
    """(claim, published, ours, range, holds) as words, for tables."""
    return [
        (
            c["claim"],
            f"{number(c['published'])} {c['unit']}",
            f"{number(c['ours'])} {c['unit']}",
            f"{number(c['low'])} to {number(c['high'])}",
            "yes" if c["holds"] else "no",
        )
        for c in claims
    ]


def markdown(found, command, date, pictures=None):
    """The page of a run's dict. command, date : how and when it was made.

    pictures : {name: path from the page} of those to show.
    """
    held = sum(c["holds"] for c in found["claims"])
    trained = all(result["paper"].startswith("time-to-accuracy") for result in found["papers"])
    title = "What the papers claim, and what comes out here"
    if trained:
        title = "Accuracy against seconds"
    elif len(found["papers"]) == 1:
        title = f"What is claimed of {found['papers'][0]['paper']}, and what comes out here"
    lines = [
        f"# {title}",
        "",
        f"Written by `{command}` on {date}; do not edit. {held} of {len(found['claims'])} claims "
        "hold. How it is computed: [reproducing the papers](../guide/reproduce.md).",
        "",
        "*Range* is what ours becomes over what a paper does not say (and over seeds); a claim "
        "holds if ours is at least as good as the published figure; nothing is chosen to meet one.",
        "",
    ]
    for result in found["papers"]:
        lines += [f"## {result['paper']}", ""]
        lines += _table(COLUMNS, claim_rows(result["claims"]))
        reasons = {}
        for c in result["claims"]:
            reasons.setdefault(c["differs"], []).append(c["claim"])
        lines += ["What differs:", ""]
        for reason, names in reasons.items():
            label = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
            lines.append(f"- *{label}*: {reason}.")
        lines.append("")
        for picture in result["pictures"]:
            if picture["name"] in (pictures or {}):
                lines += [f"![{picture['title']}]({pictures[picture['name']]})", ""]
        for table in result["tables"]:
            lines += [f"### {table['title']}", ""]
            lines += _table(table["columns"], [[number(v) for v in row] for row in table["rows"]])
    return "\n".join([*lines, constants_section(found["constants"])])


def constants_section(constants):
    """The end of every page. constants : {name: value, unit and source, a dict}."""
    rows = [(f"`{n}`", number(c["value"]), c["unit"], c["source"]) for n, c in constants.items()]
    lines = ["## Constants", "", *_table(("name", "value", "unit", "source"), rows)]
    return "\n".join(lines).rstrip() + "\n"


def read_claims(text):
    """What a page of `markdown` says: {"written": its first line, "papers": {paper: claim rows}}.

    Rows are words, as of `claim_rows`. ValueError if it is no such page.
    """
    head = "| " + " | ".join(COLUMNS) + " |\n"
    written = re.search(r"^Written by .*? claims hold\.", text, re.MULTILINE)
    papers = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name, _, body = section.partition("\n")
        _, found, rows = body.partition(head)
        if found:
            lines = rows.splitlines()[1:]
            until = next((i for i, line in enumerate(lines) if not line.startswith("|")), None)
            papers[name] = [tuple(line.strip("| ").split(" | ")) for line in lines[:until]]
    if not written or not papers:
        raise ValueError("no page of gradnic reproduce --page")
    return {"written": written[0], "papers": papers}
