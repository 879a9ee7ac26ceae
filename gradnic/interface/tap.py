"""Registers of the place where a card meets a MAC that cannot wait, beside those of the card."""

from .register_map import RegisterMap, counters

OFFSET = 0x800  # of these registers in the window of a card
WINDOW_BITS = 12

REGISTERS = RegisterMap(
    "tap",
    "Between card and MAC.",
    tuple(counters(0x00, [("lost", "frames from the MAC for which the store had no room", 8)])),
)
