"""ULX3S with an LFE5U-85F: the self-test on its 25 MHz oscillator, LEDs and FTDI serial port."""

from amaranth.hdl import Cat, Elaboratable, Module
from amaranth_boards.ulx3s import ULX3S_85F_Platform

from . import build as board
from .selftest import SelfTest
from .vectors import golden_vectors

BAUD = 115200
FLAGS = ["--85k", "--package", "CABGA381", "--speed", "6"]


class OnBoard(Elaboratable):
    """A self-test joined to the board: LED 0 to 7, FTDI serial port, button FIRE 1 starts again.

    selftest : `gradnic.fpga.board.selftest.SelfTest`. clock_mhz : int, a multiple of 25.
    """

    def __init__(self, selftest, *, clock_mhz):
        self.selftest, self.clock_mhz = selftest, clock_mhz

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = board.Clock(
            platform.request("clk25").i,
            reset=platform.request("button_fire", 0).i,
            reference_mhz=25,
            clock_mhz=self.clock_mhz,
        )
        m.submodules.selftest = self.selftest
        leds = Cat(platform.request("led", k).o for k in range(8))
        m.d.sync += [platform.request("uart").tx.o.eq(self.selftest.tx)]
        m.d.sync += leds.eq(self.selftest.leds)
        return m


def build(*, n_lanes=4, rounds=16, clock_mhz=100, folder, progress=None):
    """Build the self-test's bitstream; result as in `gradnic.fpga.board.build.build`."""
    selftest = SelfTest(
        golden_vectors(n_lanes), rounds=rounds, divisor=round(clock_mhz * 1_000_000 / BAUD)
    )
    return board.build(
        ULX3S_85F_Platform(),
        OnBoard(selftest, clock_mhz=clock_mhz),
        name="selftest",
        clock_mhz=clock_mhz,
        flags=FLAGS,
        folder=folder,
        progress=progress,
    )
