"""FPGA engineers: a compressor inside a design of your own, and the Verilog of the whole.

python examples/compressor_in_a_design.py > mine.v
"""

from amaranth.back import verilog
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.inceptionn.compressor import SIZE, Compressor
from gradnic.hdl.stream.beats import FrameBeat, UnitBeat


class Mine(wiring.Component):
    """Compresses packets of 336 floats, 4 a cycle, within 2**-10, and counts them."""

    def __init__(self):
        self.codec = Compressor(4)
        super().__init__(
            {
                "floats": In(stream.Signature(UnitBeat(128))),
                "sizes": Out(stream.Signature(SIZE)),
                "coded": Out(stream.Signature(FrameBeat(16))),
                "n_packets": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.codec = codec = self.codec
        wiring.connect(m, wiring.flipped(self.floats), codec.floats)
        wiring.connect(m, codec.sizes, wiring.flipped(self.sizes))
        wiring.connect(m, codec.coded, wiring.flipped(self.coded))
        with m.If(codec.units.ready):
            m.d.sync += self.n_packets.eq(self.n_packets + 1)
        unit = {"count": 336, "exponent": 117, "paper": 0, "prescale": 0, "limit": 65535}
        m.d.comb += codec.units.valid.eq(1)  # one record a packet, all alike
        m.d.comb += [codec.units.p[name].eq(value) for name, value in unit.items()]
        return m


if __name__ == "__main__":
    print(verilog.convert(Mine(), name="mine", emit_src=False))
