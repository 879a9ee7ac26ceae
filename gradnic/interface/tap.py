"""Registers of the place where a card meets a MAC that cannot wait, beside those of the card."""

from .register_map import Register, RegisterMap

OFFSET = 0x800  # of these registers in the window of a card
WINDOW_BITS = 12

REGISTERS = RegisterMap(
    "tap",
    "Between card and MAC.",
    (
        Register(
            "lost",
            0x00,
            "counter",
            "frames from the MAC for which the store had no room",
            step_width=8,
        ),
    ),
)
