"""Registers and window of a card's memory where that is on chip: the host's way in and out."""

from .register_map import BitField, Register, RegisterMap, Window

OFFSET = 0x1000  # of these registers from those of the card
MEMORIES = ("gradient", "landing")  # in the order of their pages
PAGE_BYTES = 0x80000
PAGE_BITS = 16  # of a page's number

REGISTERS = RegisterMap(
    "memory",
    "On-chip memory of the card: gradient and result, and right behind it the landing areas.",
    (
        Register(
            "size",
            0x00,
            "ro",
            "of each of the two memories",
            (BitField("kib", 0, 16, "KiB, a power of two"),),
        ),
        Register(
            "page",
            0x04,
            "rw",
            "what the window shows",
            (BitField("number", 0, PAGE_BITS, f"of {PAGE_BYTES} bytes, from gradient byte 0 on"),),
        ),
        Register(
            "outside",
            0x08,
            "counter",
            "words of the host behind both memories: read 0, written nowhere",
            step_width=2,
        ),
        Register(
            "refused",
            0x0C,
            "counter",
            "bursts of the card outside of its memory: answered with an error, written nowhere",
            step_width=3,
        ),
    ),
    (Window("words", 0x80000 - OFFSET, PAGE_BYTES, "words of the page, 32 bits each"),),
)
