"""ECP5 primitives for the bench: the ECP5 body of a component in the batch engine.

Yosys has DP16KD and MULT18X18D only as black boxes (0.70). The models here are written for the
bench, in just the modes that `gradnic.hdl.primitive.block_ram`, `multiplier` and `steered_sum`
use, from Yosys' own ``ccu2c_sim.vh`` and the port map of its ``brams_map_16kd.v`` and
``dsp_map_18x18.v``; any other mode fails to build. They show that the ECP5 body is wired as the
portable one behaves, not that the silicon is as modeled.
"""

import re
import tempfile
from pathlib import Path

from gradnic.hdl.primitive.target import Target
from gradnic.hdl.top.rtlil import to_rtlil

from . import batch, tools
from .design_ports import ports_of

DP16KD = """
// Port A writes, port B reads, equal widths, output registers on or off. A word that is read while
// it is written comes out inverted: the array does not say which one it is, so nobody may rely on
// it.
// INITVALs hold 16 times 18 bits each, in places of 20; words follow each other in them.
module DP16KD #(
    parameter DATA_WIDTH_A = 18, parameter DATA_WIDTH_B = 18,
    parameter REGMODE_A = "NOREG", parameter REGMODE_B = "NOREG",
    parameter RESETMODE = "SYNC", parameter ASYNC_RESET_RELEASE = "SYNC",
    parameter CSDECODE_A = "0b000", parameter CSDECODE_B = "0b000",
    parameter WRITEMODE_A = "NORMAL", parameter WRITEMODE_B = "NORMAL",
    parameter CLKAMUX = "CLKA", parameter CLKBMUX = "CLKB", parameter GSR = "ENABLED",
    <INITVAL>
) (
    input CLKA, CLKB, CEA, CEB, OCEA, OCEB, WEA, WEB, RSTA, RSTB,
    input CSA0, CSA1, CSA2, CSB0, CSB1, CSB2,
    input <DIA:18>, <DIB:18>, <ADA:14>, <ADB:14>, output <DOA:18>, <DOB:18>
);
    localparam W = DATA_WIDTH_A;
    localparam LSB = W == 36 ? 5 : W == 18 ? 4 : W == 9 ? 3 : W == 4 ? 2 : W == 2 ? 1 : 0;
    generate
        if (DATA_WIDTH_B != W || REGMODE_A != REGMODE_B ||
                CSDECODE_A != "0b000" || CSDECODE_B != "0b000" ||
                CLKAMUX != "CLKA" || CLKBMUX != "CLKB")
            mode_not_modeled mode();
    endgenerate
    wire [35:0] di = {<DIB:18>, <DIA:18>};
    wire [13:0] ada = {<ADA:14>}, adb = {<ADB:14>};
    wire selected_a = !{CSA2, CSA1, CSA0}, selected_b = !{CSB2, CSB1, CSB0};
    wire enabled = W == 36 ? &ada[3:0] : W == 18 ? &ada[1:0] : 1'b1;
    wire write = CEA & WEA & selected_a & enabled;
    wire [13:0] to = ada >> LSB, from = adb >> LSB;
    reg [W-1:0] array [0:(1 << (14 - LSB)) - 1];
    reg [W-1:0] read, out;
    localparam [64*320-1:0] INIT = {<INITS>};
    integer n;
    generate
        if (W >= 9 && INIT != 0)
            initial for (n = 0; n < 1024 * 18 / W; n = n + 1)
                array[n] = W == 36 ? {INIT[40 * n + 20 +: 18], INIT[40 * n +: 18]}
                    : INIT[n * W / 18 * 20 + n * W % 18 +: W];
    endgenerate
    always @(posedge CLKA) if (write) array[to] <= di[W-1:0];
    always @(posedge CLKB) begin
        if (CEB & selected_b & ~WEB)
            read <= write && to == from ? ~array[from] : array[from];
        if (OCEB & (OCEA | W != 36)) out <= RSTB ? 0 : read;
    end
    wire [35:0] word = REGMODE_B == "OUTREG" ? out : read;
    assign {<DOA:18>} = W == 36 ? word[17:0] : 18'b0;
    assign {<DOB:18>} = W == 36 ? word[35:18] : word[17:0];
endmodule
"""

MULT18X18D = """
// Input, pipeline and output registers on, all on CLK0.
module MULT18X18D #(
    parameter REG_INPUTA_CLK = "NONE", parameter REG_INPUTB_CLK = "NONE",
    parameter REG_PIPELINE_CLK = "NONE", parameter REG_OUTPUT_CLK = "NONE"
) (
    input CLK0, CE0, RST0, SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
    input <A:18>, <B:18>, <C:18>, output <P:36>
);
    generate
        if (REG_INPUTA_CLK != "CLK0" || REG_INPUTB_CLK != "CLK0" ||
                REG_PIPELINE_CLK != "CLK0" || REG_OUTPUT_CLK != "CLK0")
            mode_not_modeled mode();
    endgenerate
    reg signed [18:0] a, b;
    reg [35:0] pipeline, out;
    wire [17:0] wide_a = {<A:18>}, wide_b = {<B:18>};
    wire signed [37:0] product = a * b;
    always @(posedge CLK0) if (CE0) begin
        a <= RST0 | SOURCEA ? 0 : {SIGNEDA & wide_a[17], wide_a};
        b <= RST0 | SOURCEB ? 0 : {SIGNEDB & wide_b[17], wide_b};
        pipeline <= RST0 ? 0 : product[35:0];
        out <= RST0 ? 0 : pipeline;
    end
    assign {<P:36>} = out;
endmodule
"""

CCU2C = """
module CCU2C #(
    parameter [15:0] INIT0 = 0, parameter [15:0] INIT1 = 0,
    parameter INJECT1_0 = "YES", parameter INJECT1_1 = "YES"
) (
    input CIN, A0, B0, C0, D0, A1, B1, C1, D1, output S0, S1, COUT
);
    generate
        if (INJECT1_0 != "NO" || INJECT1_1 != "NO") mode_not_modeled mode();
    endgenerate
    wire [3:0] low = INIT0[3:0], high = INIT1[3:0];
    wire whole0 = INIT0[{D0, C0, B0, A0}], whole1 = INIT1[{D1, C1, B1, A1}];
    wire middle = whole0 ? CIN : low[{B0, A0}];
    assign S0 = whole0 ^ CIN, S1 = whole1 ^ middle, COUT = whole1 ? middle : high[{B1, A1}];
endmodule
"""


def models():
    """Verilog of the primitives; ``<A:18>`` stands for A17, A16, ... A0."""
    names = [f"INITVAL_{n:02X}" for n in range(64)]
    memory = DP16KD.replace("<INITVAL>", ", ".join(f"parameter {name} = 320'b0" for name in names))
    memory = memory.replace("<INITS>", ", ".join(reversed(names)))
    return re.sub(r"<(\w+):(\d+)>", _bits, memory + MULT18X18D + CCU2C)


def _bits(match):
    name, width = match.groups()
    return ", ".join(f"{name}{bit}" for bit in reversed(range(int(width))))


def build(component, *, target="ecp5", **options):
    """Batch model (`gradnic.sim.engine.batch`) of a component's ECP5 body.

    component : wiring.Component. target : of `Target`. options : as `batch.build_rtlil` takes.
    Returns a `batch.Model`; `tools.ToolError` if a primitive is used in a mode that is not modeled.
    """
    root = tools.build_root() / "ecp5"
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as folder:
        folder = Path(folder)
        text = to_rtlil(component, name="top", platform=Target(target), emit_src=False)
        (folder / "design.il").write_text(text)
        (folder / "ecp5.v").write_text(models())
        script = (
            "read_rtlil design.il\nread_verilog -defer -sv ecp5.v\nhierarchy -check -top top\n"
            "proc\nflatten\nmemory_collect\nopt_clean\nwrite_rtlil flat.il\n"
        )
        tools.yosys(script, folder=folder, outputs=["flat.il"])
        flat = (folder / "flat.il").read_text()
    options.setdefault("name", f"{type(component).__name__}-ecp5")
    return batch.build_rtlil(flat, *ports_of(component.signature), **options)
