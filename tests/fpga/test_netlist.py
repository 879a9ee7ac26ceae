"""What Yosys makes for the ECP5: proven equal to the RTL, and played gate by gate."""

import numpy as np
import pytest
from amaranth.hdl import signed
from amaranth.lib import data
from gradnic.fpga.board.uart import UartTx
from gradnic.fpga.flow import netlist
from gradnic.hdl.inceptionn.lanes import LaneDecoder, LaneEncoder
from gradnic.hdl.primitive.multiplier import Multiplier
from gradnic.hdl.stream.beats import Beat, FrameBeat
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.stream.slice import Fork, Slice
from gradnic.sim.engine import runner, stimulus

PARTS = {
    "slice": lambda: Slice(FrameBeat(4)),
    "fifo": lambda: FIFO(Beat(8), 4),
    "encoder": LaneEncoder,
    "encoder-nearest": lambda: LaneEncoder(rounding="nearest"),
    "decoder": LaneDecoder,
    "uart": lambda: UartTx(5),
}


@pytest.mark.parametrize("name", PARTS)
def test_netlist_equals_rtl(name, tmp_path):
    proven, unproven = netlist.equivalence(PARTS[name](), folder=tmp_path)
    assert unproven == 0
    assert proven >= 15


def test_bug_leaves_points_unproven(tmp_path):
    """One cycle more a bit: the same registers, another function."""
    _, unproven = netlist.equivalence(UartTx(5), netlist_of=UartTx(6), folder=tmp_path)
    assert unproven > 0


LUT_RAM = FIFO(data.StructLayout({"data": 24, "last": 1, "level": signed(7)}), 16)


@pytest.mark.parametrize(
    "part", [Slice(FrameBeat(4)), LUT_RAM, Fork(Beat(8), 2)], ids=["slice", "fifo", "fork"]
)
def test_gates_play_as_rtl(part, tmp_path):
    """Gate by gate on Icarus, with stalls on all sides: the same beats in the same cycles."""
    if reason := runner.missing("icarus"):
        pytest.skip(f"{reason}: four-state gate-level simulation needs it")
    text = netlist.verilog(part, folder=tmp_path)
    assert ("TRELLIS_DPR16X4 " in text.split("module top")[1]) == (part is LUT_RAM)
    rng = stimulus.rng("gates", type(part).__name__)
    size = (len(part.i.p.as_value()) + 7) // 8
    beats = rng.integers(0, 256, (300, size)).astype(np.uint8)
    beats[:, -1] &= (1 << ((len(part.i.p.as_value()) - 1) % 8 + 1)) - 1
    outputs = ["o__0", "o__1"] if isinstance(part, Fork) else ["o"]
    patterns = {name: rng.random(97 + k) < 0.6 for k, name in enumerate(["i", *outputs])}
    played = [
        runner.play(
            part, {"i": beats}, patterns=patterns, n_cycles=1500, simulator="icarus", netlist=other
        )
        for other in (None, text)
    ]
    for name in outputs:
        np.testing.assert_array_equal(played[0][0][name], beats)
        np.testing.assert_array_equal(played[1][0][name], beats)
        np.testing.assert_array_equal(played[0][1][name], played[1][1][name])


def test_black_boxes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no simulation model of MULT18X18D"):
        netlist.verilog(Multiplier(18, 18), folder=tmp_path)
