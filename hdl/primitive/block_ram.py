"""Block RAM that runs at full speed: read data two cycles after the address.

Plumbing: no golden model of its own.
"""

from collections.abc import Sequence
from functools import cached_property
from types import SimpleNamespace

from amaranth.hdl import ClockSignal, Const, Instance, Module, ShapeLike, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.params import check_least, check_range

from .target import family

SMALL = 32  # words that LUT RAM takes one LUT for
ULTRA_DEPTH, ULTRA_BITS = 2048, 147_456  # from here on UltraRAM, 4096 words of 72 bits each
WIDE_DEPTH, WIDE_BITS = 256, 512  # and from here on, words of so many bits: eight each
MAX_INIT = 2048  # words with contents: narrower modes of an ECP5 spread them otherwise


def memory_members(shape: ShapeLike, depth: int) -> dict:
    """Members of a memory of `depth` words."""
    return {
        "write_en": In(1),
        "write_addr": In(ceil_log2(depth)),
        "write_data": In(shape),
        "read_addr": In(ceil_log2(depth)),
        "read_data": Out(shape),
    }


class BlockRAM(wiring.Component):
    """One write port, one read port, one clock; read latency 2 cycles, fixed.

    An address offered in cycle t gives its word in cycle t + 2; both ports take one access per
    cycle. A word written in cycle t can be read from cycle t + 1 on. Reading the word that is
    being written in the same cycle gives an undefined word: on an ECP5 the array does not order
    the two, so no user may rely on it. Words beyond ``init`` are undefined after power-up; all are
    kept over reset.

    The portable body is a memory with two read registers. The ECP5 body uses DP16KD with its
    output registers, which synthesis does not infer (Yosys 0.70), in the widest mode that holds
    ``depth`` words: 36 bits up to 512 words, 18 up to 1024, 9, 4, 2 and 1 up to 16384. Wide words
    are split over ceil(width / mode) of them. Other families get the portable body and are told by
    attributes which kind of memory it is to be: block RAM, LUT RAM up to `SMALL` words, UltraRAM
    where a large store without contents fills half a one, or 256 words or more have 512 bits: cards
    so wide have dozens of such stores, which is where block RAM would go, and UltraRAM lies idle
    (xilinx).

    Parameters
    ----------
    width : int
        Bits per word, at least 1.
    depth : int
        Words, 2 to 16384.
    init : sequence of int
        Words after configuration, from address 0 on, for up to 2048 words: a table, if nothing is
        ever written.

    Members
    -------
    write_en, write_addr, write_data : In(1), In(ceil_log2(depth)), In(width)
        Addresses from ``depth`` on must not be used.
    read_addr, read_data : In(ceil_log2(depth)), Out(width)
    """

    output, read_en = "OUTREG", 1  # of a DP16KD: its output registers, its read enable

    def __init__(self, width: int, depth: int, *, init: Sequence[int] = ()) -> None:
        check_least("width", width, 1)
        check_range("depth", depth, 2, 16384)
        if len(init) > depth:
            raise ValueError(f"init must have at most {depth} words, not {len(init)}")
        if init and depth > MAX_INIT:
            raise ValueError(f"depth must be at most {MAX_INIT} with init, not {depth}")
        self.width = width
        self.depth = depth
        self.init = list(init)
        super().__init__(memory_members(width, depth))

    @cached_property
    def array(self):
        """The portable body's memory; a proof may add a read port to it before elaboration."""
        return memory.Memory(shape=self.width, depth=self.depth, init=self.init)

    @cached_property
    def _ports(self):
        write = self.array.write_port()
        read = self.array.read_port()
        return write, read

    def elaborate(self, platform):
        return self._ecp5() if family(platform) == "ecp5" else self._portable(family(platform))

    def _portable(self, name):
        m = Module()
        large = self.depth >= ULTRA_DEPTH and self.width * self.depth >= ULTRA_BITS
        large |= self.depth >= WIDE_DEPTH and self.width >= WIDE_BITS
        kind = "distributed" if self.depth <= SMALL else "block"
        kind = "ultra" if name == "xilinx" and large and not self.init else kind
        self.array.attrs.update(ram_style=kind, no_rw_check=1)
        write, read = self._ports
        m.submodules.array = self.array
        held = Signal(self.width, reset_less=True)
        m.d.sync += held.eq(read.data)
        m.d.comb += [
            write.en.eq(self.write_en),
            write.addr.eq(self.write_addr),
            write.data.eq(self.write_data),
            read.addr.eq(self.read_addr),
            self.read_data.eq(held),
        ]
        return m

    def _ecp5(self):
        m = Module()
        mode, addr_lsb = next(
            (bits, lsb)
            for bits, lsb in ((36, 5), (18, 4), (9, 3), (4, 2), (2, 1), (1, 0))
            if self.depth <= 2 ** (14 - lsb)
        )
        for start in range(0, self.width, mode):
            stop = min(start + mode, self.width)
            name = f"bits{start}"
            m.submodules[name] = self._dp16kd(mode, addr_lsb, start, stop)
        return m

    def _dp16kd(self, mode, addr_lsb, start, stop):
        """One DP16KD: port A writes, port B reads.

        In the 36-bit mode a word's low half is on DIA and DOA and its high half on DIB and DOB,
        and ADA0 to ADA3 are byte enables; in the 18-bit mode ADA0 and ADA1 are (as in Yosys'
        brams_map_16kd.v). All bytes are always enabled; CEA is the write enable.
        """
        args = {
            "p_DATA_WIDTH_A": mode,
            "p_DATA_WIDTH_B": mode,
            "p_REGMODE_A": self.output,
            "p_REGMODE_B": self.output,
            "p_RESETMODE": "SYNC",
            "p_ASYNC_RESET_RELEASE": "SYNC",
            "p_CSDECODE_A": "0b000",
            "p_CSDECODE_B": "0b000",
            "p_WRITEMODE_A": "NORMAL",
            "p_WRITEMODE_B": "NORMAL",
            "p_CLKAMUX": "CLKA",
            "p_CLKBMUX": "CLKB",
            "p_GSR": "DISABLED",
            "i_CLKA": ClockSignal(),
            "i_CLKB": ClockSignal(),
            "i_CEA": self.write_en,
            "i_CEB": self.read_en,
            "i_OCEA": 1,
            "i_OCEB": 1,
            "i_WEA": 1,
            "i_WEB": 0,
            "i_RSTA": 0,
            "i_RSTB": 0,
        }
        for port in "AB":
            for bit in range(3):
                args[f"i_CS{port}{bit}"] = 0
        args |= self._contents(mode, start, stop)
        n_enables = {36: 4, 18: 2}.get(mode, 0)
        for bit in range(14):
            index = bit - addr_lsb
            used = 0 <= index < len(self.read_addr)
            args[f"i_ADA{bit}"] = self.write_addr[index] if used else int(bit < n_enables)
            args[f"i_ADB{bit}"] = self.read_addr[index] if used else 0
        for bit in range(36):
            # Narrow words use DIA and DOB; only the 36-bit mode spreads over both ports.
            port, index = ("A", bit) if bit < 18 else ("B", bit - 18)
            used = start + bit < stop
            args[f"i_DI{port}{index}"] = self.write_data[start + bit] if used else 0
            if used:
                args[f"o_DO{port if mode == 36 else 'B'}{index}"] = self.read_data[start + bit]
        return Instance("DP16KD", **args)

    def _contents(self, mode, start, stop):
        """Parameters INITVAL_00 to INITVAL_3F that hold bits `start` to `stop` of ``init``.

        Words follow each other in modes of 9, 18 and 36 bits; each value has 16 times 18 bits, in
        places of 20 (as in Yosys' brams_map_16kd.v).
        """
        if not self.init:
            return {}
        kept = (1 << stop - start) - 1
        bits = sum((word >> start & kept) << mode * k for k, word in enumerate(self.init))
        pieces = [bits >> 18 * k & 0x3FFFF for k in range(1024)]
        values = (
            sum(piece << 20 * k for k, piece in enumerate(pieces[n : n + 16]))
            for n in range(0, 1024, 16)
        )
        return {f"p_INITVAL_{n:02X}": Const(value, 320) for n, value in enumerate(values)}


class HeldRAM(BlockRAM):
    """Block RAM without its output register: a word comes one cycle after its address, and stays
    while ``read_en`` is 0, as LUT RAM with a register behind it has it, but it comes later in its
    cycle. Parameters and members as of `BlockRAM`, and read_en : In(1).
    """

    output = "NOREG"

    def __init__(self, width: int, depth: int) -> None:
        super().__init__(width, depth)
        self.read_en = Signal()

    @property
    def ports(self):
        """Ports for writing and reading, as of `amaranth.lib.memory.Memory`."""
        write = SimpleNamespace(en=self.write_en, addr=self.write_addr, data=self.write_data)
        return write, SimpleNamespace(en=self.read_en, addr=self.read_addr, data=self.read_data)

    def _portable(self, name):
        m = Module()
        m.submodules.array = self.array
        write = self.array.write_port()
        read = self.array.read_port()
        m.d.comb += [
            write.en.eq(self.write_en),
            write.addr.eq(self.write_addr),
            write.data.eq(self.write_data),
            read.en.eq(self.read_en),
            read.addr.eq(self.read_addr),
            self.read_data.eq(read.data),
        ]
        return m


class Bank(wiring.Component):
    """A wide `BlockRAM` with registers around it: its parts lie all over the device.

    Each port has one, so a word comes `latency` cycles after its address; one written in cycle t
    can be read from cycle t + 1 on. Parts of up to `PARTS` bits, which depends on the family, have
    copies of addresses and enable of their own. Parameters and members as of `BlockRAM`.
    """

    PARTS = {  # bits: five DP16KD of 36, two RAMB36 or URAM288 of 72, five M20K of 40
        "generic": 180,
        "ecp5": 180,
        "xilinx": 144,
        "intel": 200,
    }
    latency = 4

    def __init__(self, width: int, depth: int) -> None:
        self.width = width
        self.depth = depth
        super().__init__(memory_members(width, depth))

    def elaborate(self, platform):
        m = Module()
        size = self.PARTS[family(platform)]
        for start in range(0, self.width, size):
            stop = min(start + size, self.width)
            m.submodules[f"part{start}"] = ram = BlockRAM(stop - start, self.depth)
            kept = {"keep_register": 1}
            for port, whole, part in (
                ("write_en", self.write_en, ram.write_en),
                ("write_addr", self.write_addr, ram.write_addr),
                ("read_addr", self.read_addr, ram.read_addr),
            ):
                copy = Signal.like(whole, name=f"{port}{start}", reset_less=port != "write_en")
                copy.attrs.update(kept)
                m.d.sync += copy.eq(whole)
                m.d.comb += part.eq(copy)
            # Its own, even if other banks are written with the same: they stand elsewhere.
            written = Signal(stop - start, name=f"written{start}", reset_less=True, attrs=kept)
            held = Signal(stop - start, name=f"held{start}", reset_less=True)
            m.d.sync += [written.eq(self.write_data[start:stop]), held.eq(ram.read_data)]
            m.d.comb += [ram.write_data.eq(written), self.read_data[start:stop].eq(held)]
        return m
