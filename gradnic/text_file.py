"""Text that people hand in: files of bounded size, without what nobody sees."""

import json
import os
import re
import unicodedata
from pathlib import Path

LARGEST = 64 << 20  # bytes
ABILITIES = ("sum", "multicast")  # of a switch


def visible(text):
    """`text` with plain spaces for all kinds of space, and without characters of no width.

    Byte order marks, zero-width and soft ones (Unicode's category Cf) are left out; no-break, thin
    and ideographic spaces (Zs) are spaces. Line ends and tabs stay.
    """
    if text.isascii():
        return text
    kinds = {c: unicodedata.category(c) for c in set(text) if not c.isascii()}
    return text.translate(
        {ord(c): " " if kind == "Zs" else None for c, kind in kinds.items() if kind in ("Zs", "Cf")}
    )


def read_text(path, *, largest=LARGEST):
    """`visible` text of a file in UTF-8, or in UTF-16 with its byte order mark.

    ValueError names the file where it is larger than `largest` bytes (a device has no end) or no
    text; OSError as of `open`.
    """
    with Path(path).open("rb") as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"{path} must be text of at most {largest >> 20} MiB")
    marked = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = data.decode("utf-16" if marked else "utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ValueError(f"{path} must be text in UTF-8")
    return visible(text)


def apart(value: float, limit: float) -> str:
    """Text of `value`, in as few digits, six or more, as tell it from `limit`: 16.0000001."""
    shown = (f"{value:.{n}g}" for n in range(6, 18))
    return next((text for text in shown if float(text) != limit), f"{value:g}")


def shown_path(path):
    """`path` as text for titles and formats: bytes that are no UTF-8 are spelled out."""
    return os.fsencode(path).decode(errors="backslashreplace")


def network_file(name):
    """(path, abilities) of ``PATH+sum+multicast``; the longest path that is there counts."""
    able = []
    while not os.path.lexists(name):
        path, _, word = name.rpartition("+")
        if not path or word not in ABILITIES:
            break
        name, able = path, [word, *able]
    return name, able


def from_json(text):
    """What JSON says; ValueError where it is none, or says something twice: of two values under one
    key neither is known to be meant.
    """
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} comes twice")
    return found


def read_json(path, *, largest=LARGEST):
    """What the JSON in a file says; ValueError names the file where it is none, see `read_text`."""
    text = read_text(path, largest=largest)
    try:
        return from_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no JSON: {error}") from None


def number(word):
    """The float that `word` says in ASCII, such as 4, 1.5 or 2e9, inf and nan too, else ValueError.

    Python's ``float`` takes 1_0 for ten as well, and digits of any script.
    """
    if not word.isascii() or "_" in word:
        raise ValueError(f"could not convert {word!r} to a number")
    return float(word)


def whole(word):
    """The int that `word` says in ASCII, such as 16, -3 or 0x10, else ValueError."""
    found = re.fullmatch(r"[+-]?([0-9]{1,300}|0x[0-9a-f]{1,250})", word, re.ASCII | re.IGNORECASE)
    if not found:
        raise ValueError(f"{word!r} is no whole number")
    return int(word, 16 if "x" in word.lower() else 10)
