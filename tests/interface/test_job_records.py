"""The page of job records says what the field tables, statuses and reasons are."""

import re
from pathlib import Path

import pytest

from gradnic.interface.job import COMPLETION, DESCRIPTOR, JobStatus, Refusal

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "jobs.md").read_text()


def rows(title):
    """Cells of the table below a heading that begins so."""
    (section,) = [part for part in PAGE.split("\n## ") if part.startswith(title)]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("header", [DESCRIPTOR, COMPLETION], ids=lambda header: header.name)
def test_fields(header):
    wanted = []
    for field in header:
        last, top = field.stop - 1, field.lsb + field.width - 1
        at = str(field.byte) if last == field.byte else f"{field.byte} to {last}"
        bits = f"{top}:{field.lsb}" if field.width > 1 else str(top)
        wanted.append([at, bits, f"`{field.name}`"])
    assert [row[:3] for row in rows(header.name.capitalize())] == wanted
    assert f"## {header.name.capitalize()}, {header.n_bytes} bytes" in PAGE


@pytest.mark.parametrize(
    ("title", "kind", "first"), [("Status", JobStatus, 0), ("Why", Refusal, 1)]
)
def test_numbers(title, kind, first):
    wanted = [[str(one.value), one.name.lower()] for one in kind if one.value >= first]
    assert [row[:2] for row in rows(title)] == wanted


def test_no_heading_is_left_out():
    assert re.findall("^## (\\w+)", PAGE, re.M) == ["Descriptor", "Completion", "Status", "Why"]
