"""Text that people hand in: files of bounded size, without what nobody sees."""

import unicodedata
from pathlib import Path

LARGEST = 64 << 20  # bytes


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
