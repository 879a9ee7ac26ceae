"""Which FPGA family a circuit is elaborated for, and what its tools are told about registers.

Memories and multipliers have a body or a size of their own per family, because synthesis infers the
block RAM and the multipliers of an ECP5 without the registers that make them fast, and because
memory comes in other widths elsewhere. Everything else is the same RTL everywhere.

Attributes on signals and memories are in words of our own; `gradnic.hdl.top.attributes` says them
in each tool's: ``keep_register`` (stays, even where it equals another), ``async_reg`` (a stage of a
synchronizer), ``fsm_encoding``, ``fsm_exit``, ``use_dsp``, ``ram_style``, ``no_rw_check``.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal, Signal

FAMILIES = ("generic", "ecp5", "xilinx", "intel")
TARGETS = (*FAMILIES, "ecp5-dense")


class Target:
    """Stand-in for a platform in ``rtlil.convert(..., platform=Target("ecp5"))``.

    name : str, "generic" (simulation, formal, Verilog for any tool), "ecp5" (primitives of
    Lattice ECP5), "xilinx" (UltraScale+: banks of 72 bits, UltraRAM), "intel" (banks of 40 bits),
    or "ecp5-dense", for a card that fills its device: large queues and long delays are in block RAM
    instead of LUT RAM and registers, the same cycle for cycle, at a slower clock.
    """

    def __init__(self, name: str) -> None:
        if name not in TARGETS:
            raise ValueError(f"family must be one of {', '.join(TARGETS)}, not {name!r}")
        self.family, self.dense = name.removesuffix("-dense"), name.endswith("-dense")

    def get_ff_sync(self, synchronizer):
        """`amaranth.lib.cdc.FFSynchronizer` whose stages say what they are."""
        m = Module()
        stages = [
            Signal(synchronizer.i.shape(), name=f"stage{k}", init=synchronizer._init,
                   reset_less=synchronizer._reset_less, attrs={"async_reg": 1})
            for k in range(synchronizer._stages)
        ]  # fmt: skip
        for before, stage in zip((synchronizer.i, *stages), stages, strict=False):
            m.d[synchronizer._o_domain] += stage.eq(before)
        m.d.comb += synchronizer.o.eq(stages[-1])
        return m

    def get_async_ff_sync(self, synchronizer):
        """`amaranth.lib.cdc.AsyncFFSynchronizer` whose stages say what they are."""
        m = Module()
        m.domains += ClockDomain("async_ff", async_reset=True, local=True)
        stages = [
            Signal(name=f"stage{k}", init=1, attrs={"async_reg": 1})
            for k in range(synchronizer._stages)
        ]
        for before, stage in zip((0, *stages), stages, strict=False):
            m.d.async_ff += stage.eq(before)
        asked = synchronizer.i if synchronizer._edge == "pos" else ~synchronizer.i
        m.d.comb += [
            ResetSignal("async_ff").eq(asked),
            ClockSignal("async_ff").eq(ClockSignal(synchronizer._o_domain)),
            synchronizer.o.eq(stages[-1]),
        ]
        return m


def family(platform) -> str:
    """Family of a `Target`, of an Amaranth platform or of None: one of `FAMILIES`."""
    name = getattr(platform, "family", None)
    return name if name in FAMILIES else "generic"


def dense(platform) -> bool:
    """Is block RAM to be filled before LUTs and registers are? See `Target`."""
    return getattr(platform, "dense", False)


def one_hot(fsm) -> None:
    """Have synthesis give each state of an Amaranth FSM a register, so that no state is compared;
    and an exit to the state of reset from what is none of its states.

    Yosys' FSM pass leaves registers with an initial value alone unless told (0.70), and gives no
    exit. The state is known from reset on.
    """
    fsm.state.attrs["fsm_encoding"] = "one-hot"


def with_exit(fsm) -> None:
    """The exit alone of `one_hot`, whatever code a tool chooses."""
    fsm.state.attrs["fsm_exit"] = "reset"


def as_coded(fsm) -> None:
    """Have synthesis leave the states of an Amaranth FSM in their code.

    For one that leaves what is none of its states by logic of its own. A tool that finds an FSM
    takes that for unreachable and drops it, whichever code or exit it is told.
    """
    fsm.state.attrs["fsm_encoding"] = "none"
