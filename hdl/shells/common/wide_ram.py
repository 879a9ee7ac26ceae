"""Memory of some MiB with byte strobes, as UltraRAM of AMD devices is inferred.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import ClockSignal, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...stream.delays import delayed

MODULE = "gradnic_wide_ram"
VERILOG = f"""
// UltraRAM has no contents to begin with: words that nobody wrote are not known.
module {MODULE} #(parameter N_BYTES = 64, parameter ADDRESS_BITS = 14) (
    input wire clk,
    input wire [N_BYTES-1:0] write_en,
    input wire [ADDRESS_BITS-1:0] write_addr,
    input wire [8*N_BYTES-1:0] write_data,
    input wire [ADDRESS_BITS-1:0] read_addr,
    output reg [8*N_BYTES-1:0] read_data
);
(* ram_style = "ultra" *) reg [8*N_BYTES-1:0] words [0:(1<<ADDRESS_BITS)-1];
integer k;
always @(posedge clk) begin
    for (k = 0; k < N_BYTES; k = k + 1) begin
        if (write_en[k]) words[write_addr][8*k +: 8] <= write_data[8*k +: 8];
    end
end
always @(posedge clk) read_data <= words[read_addr];
endmodule
"""
"""What goes beside the Verilog of a circuit with a `WideRAM`: Yosys would fill it with zeros."""


class WideRAM(wiring.Component):
    """One write port with byte strobes, one read port, one clock: `latency` cycles to a word.

    Both ports take one access per cycle. A word written in cycle t can be read from cycle t + 1
    on; reading one that is being written in the same cycle gives an undefined word. Words are
    undefined until they are written, and kept over reset. The registers around the array are for
    its cascades: it lies all over the device.

    The array is the Verilog module of `VERILOG`, so circuits with it are simulated as Verilog.

    Parameters
    ----------
    n_bytes : int
        Bytes of a word, at least 1.
    depth : int
        Words, a power of two, at least 2.

    Members
    -------
    write_en, write_addr, write_data : In(n_bytes), In(log2(depth)), In(8 * n_bytes)
    read_addr, read_data : In(log2(depth)), Out(8 * n_bytes)
    """

    latency = 4

    def __init__(self, n_bytes: int, depth: int) -> None:
        if n_bytes < 1:
            raise ValueError(f"n_bytes must be at least 1, not {n_bytes!r}")
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two from 2 on, not {depth!r}")
        self.n_bytes = n_bytes
        self.depth = depth
        super().__init__(
            {
                "write_en": In(n_bytes),
                "write_addr": In(ceil_log2(depth)),
                "write_data": In(8 * n_bytes),
                "read_addr": In(ceil_log2(depth)),
                "read_data": Out(8 * n_bytes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        enable = Signal.like(self.write_en)
        m.d.sync += enable.eq(self.write_en)
        found = Signal.like(self.read_data)
        m.submodules.array = Instance(
            MODULE,
            p_N_BYTES=self.n_bytes,
            p_ADDRESS_BITS=ceil_log2(self.depth),
            i_clk=ClockSignal(),
            i_write_en=enable,
            i_write_addr=delayed(m, self.write_addr, 1, name="write_addr"),
            i_write_data=delayed(m, self.write_data, 1, name="write_data"),
            i_read_addr=delayed(m, self.read_addr, 1, name="read_addr"),
            o_read_data=found,
        )
        m.d.comb += self.read_data.eq(delayed(m, found, self.latency - 2, name="found"))
        return m
