"""Registers and window of a card's memory where that is on chip: the host's way in and out."""

from .register_map import RegisterMap, Window, counters, packed

OFFSET = 0x1000  # of these registers from those of the card
MEMORIES = ("gradient", "landing")  # in the order of their pages
PAGE_BYTES = 0x80000
PAGE_BITS = 16  # of a page's number

REGISTERS = RegisterMap(
    "memory",
    "On-chip memory of the card: gradient and result, and right behind it the landing areas.",
    (
        packed("size", 0x00, "of each of the two memories", ("kib", 16, "KiB, a power of two"),
               access="ro"),
        packed("page", 0x04, "what the window shows",
               ("number", PAGE_BITS, f"of {PAGE_BYTES} bytes, from gradient byte 0 on")),
        *counters(0x08, (
            ("outside", "words of the host behind both memories: read 0, written nowhere", 2),
            ("refused", "bursts of the card outside of its memory: answered with an error, "
             "written nowhere", 3),
        )),
    ),
    (Window("words", 0x80000 - OFFSET, PAGE_BYTES, "words of the page, 32 bits each"),),
)  # fmt: skip
