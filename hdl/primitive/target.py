"""Which FPGA family a circuit is elaborated for.

Memories and multipliers have one body per family, because synthesis infers the block RAM and the
multipliers of an ECP5 without the registers that make them fast. Everything else is the same RTL
everywhere.

Plumbing: no golden model of its own.
"""

FAMILIES = ("portable", "ecp5")


class Target:
    """Stand-in for a platform in ``rtlil.convert(..., platform=Target("ecp5"))``.

    family : str, "portable" (simulation, formal, Verilog for other vendors) or "ecp5".
    """

    def __init__(self, family):
        if family not in FAMILIES:
            raise ValueError(f"family must be one of {', '.join(FAMILIES)}, not {family!r}")
        self.family = family


def family(platform):
    """Family of a `Target`, of an Amaranth platform or of None: "ecp5" or "portable"."""
    name = getattr(platform, "family", None)
    return name if name in FAMILIES else "portable"


def one_hot(fsm):
    """Have Yosys give each state of an Amaranth FSM a register, so that no state is compared.

    Its FSM pass leaves registers with an initial value alone unless told (Yosys 0.70). The state is
    known from reset on.
    """
    fsm.state.attrs["fsm_encoding"] = "one-hot"
