"""Bitstreams for boards: a clock from the PLL, and Amaranth's plan run with YoWASP's tools."""

import json
import shutil
import time
from pathlib import Path

from amaranth.hdl import ClockDomain, ClockSignal, Const, Elaboratable, Instance, Module, Signal
from amaranth.lib import cdc

from ..flow import critical, tools

BOARDS = {"ulx3s": "Radiona ULX3S with LFE5U-85F, speed grade 6, 25 MHz oscillator"}
MARGIN = 0.10  # of the clock, that a placement must keep free
# Timing counts for more than nextpnr's defaults (10 and 2) make it: registers move to block RAM,
# whose output takes 5.6 ns on grade 6. The ULX3S's self-test went from 104 to 109 and 115 MHz.
PLACER = ["--placer-heap-timingweight", "60", "--placer-heap-critexp", "4"]
MAX_SEEDS = 5  # placements tried before the build gives up
VCO_MHZ = (400, 800)  # ECP5 data sheet, sysCLOCK PLL timing


class Clock(Elaboratable):
    """Domain ``sync`` from the PLL of an ECP5 (EHXPLLL), in reset until the PLL has locked.

    reference : Signal, the oscillator. reset : Signal, asynchronous, high resets.
    reference_mhz : int; clock_mhz : a multiple of it, from 25 to 400.

    The PLL multiplies by a whole number and runs its oscillator within 400 to 800 MHz.
    """

    def __init__(self, reference, *, reset, reference_mhz, clock_mhz):
        dividers = [d for d in range(1, 129) if VCO_MHZ[0] <= clock_mhz * d <= VCO_MHZ[1]]
        if clock_mhz % reference_mhz or clock_mhz < reference_mhz or not dividers:
            raise ValueError(
                f"clock_mhz must be a multiple of {reference_mhz} up to 800, not {clock_mhz!r}"
            )
        self.reference, self.reset = reference, reset
        self.multiple = clock_mhz // reference_mhz
        self.divider = min(dividers, key=lambda d: abs(clock_mhz * d - sum(VCO_MHZ) / 2))
        self.reference_mhz, self.clock_mhz = reference_mhz, clock_mhz

    def elaborate(self, platform):
        m = Module()
        m.domains.sync = ClockDomain("sync")
        locked = Signal()
        m.submodules.pll = Instance(
            "EHXPLLL",
            a_FREQUENCY_PIN_CLKI=str(self.reference_mhz),
            a_FREQUENCY_PIN_CLKOP=str(self.clock_mhz),
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            p_CLKI_DIV=1,
            p_CLKFB_DIV=self.multiple,
            p_CLKOP_DIV=self.divider,
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_CPHASE=max(self.divider // 2 - 1, 0),
            p_CLKOP_FPHASE=0,
            p_FEEDBK_PATH="CLKOP",
            i_CLKI=self.reference,
            i_CLKFB=ClockSignal(),
            i_RST=Const(0),
            i_STDBY=Const(0),
            i_PHASESEL0=Const(0),
            i_PHASESEL1=Const(0),
            i_PHASEDIR=Const(1),
            i_PHASESTEP=Const(1),
            i_PHASELOADREG=Const(1),
            i_PLLWAKESYNC=Const(0),
            i_ENCLKOP=Const(0),
            o_CLKOP=ClockSignal(),
            o_LOCK=locked,
        )
        m.submodules.reset = cdc.ResetSynchronizer(~locked | self.reset, domain="sync")
        return m


def build(platform, design, *, name, clock_mhz, flags, folder, progress=None):
    """Build ``<name>.bit`` of `design` for an Amaranth `platform`; see `gradnic.fpga.flow.tools`.

    clock_mhz : what the PLL makes. flags : list of str, nextpnr's device options.

    Tries placements with seeds 1 to 5 until the clock keeps 10 % free. Returns a dict: ``bitstream
    clock_mhz fmax_mhz margin seed lut ff bram dsp seconds``. ValueError if no placement keeps the
    margin, or if there is another clock.
    """
    say = progress or (lambda text: None)
    started = time.monotonic()
    folder = Path(folder)
    if folder.exists():
        shutil.rmtree(folder)
    say(f"{name}: elaboration")
    platform.prepare(design, name, ecppack_opts="--compress").extract(folder)
    say(f"{name}: synthesis")
    tools.run(["yosys", "-q", "-l", f"{name}.rpt", f"{name}.ys"], folder, made=f"{name}.json")
    best = None
    for seed in range(1, MAX_SEEDS + 1):
        say(f"{name}: place and route, seed {seed}, {time.monotonic() - started:.0f} s so far")
        tools.run(
            [
                "nextpnr-ecp5",
                "-q",
                "-l",
                f"{name}.tim",
                *flags,
                *PLACER,
                "--seed",
                str(seed),
                "--json",
                f"{name}.json",
                "--lpf",
                f"{name}.lpf",
                "--timing-allow-fail",
                "--textcfg",
                f"{name}.config",
                "--report",
                f"{name}.report",
            ],
            folder,
            made=f"{name}.config",
        )
        report = json.loads((folder / f"{name}.report").read_text())
        fmax = critical.fmax(report)
        margin = fmax / clock_mhz - 1
        best = margin if best is None else max(best, margin)
        if margin >= MARGIN:
            break
    else:
        raise ValueError(
            f"margin must be at least {MARGIN:.0%}, not {best:.1%}, the best of {MAX_SEEDS} seeds"
        )
    say(f"{name}: bitstream")
    tools.run(
        ["ecppack", "--compress", "--input", f"{name}.config", "--bit", f"{name}.bit"],
        folder,
        made=f"{name}.bit",
    )
    used = {kind: entry["used"] for kind, entry in report["utilization"].items()}
    return {
        "bitstream": str(folder / f"{name}.bit"),
        "clock_mhz": clock_mhz,
        "fmax_mhz": round(fmax, 2),
        "margin": round(margin, 3),
        "seed": seed,
        "lut": used.get("TRELLIS_COMB", 0),
        "ff": used.get("TRELLIS_FF", 0),
        "bram": used.get("DP16KD", 0),
        "dsp": used.get("MULT18X18D", 0),
        "seconds": round(time.monotonic() - started, 1),
    }
