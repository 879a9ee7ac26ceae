"""Register bank on AXI4-Lite: the circuit of a `gradnic.interface.register_map.RegisterMap`.

Plumbing: the map that it serves is `gradnic.interface.register_map`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.register_map import RegisterMap

from ..primitive.names import signals
from ..primitive.same import by_name
from .axis import OKAY, Lite

GROUP = 8  # words per OR in the first level of the read tree, to keep it at two LUT levels
SETTLE = 4  # cycles from the one in which a write shows to one in which all that it starts shows


def _layout(register):
    return data.StructLayout(
        {f.name: signed(f.width) if f.signed else f.width for f in register.fields}
    )


def _member(register):
    if register.access == "counter":
        return In(register.step_width)
    if register.access == "rw":
        return Out(_layout(register), init={f.name: f.reset for f in register.fields})
    return In(_layout(register))


def _word(register, values):
    """The 32 bits that software reads, from the register's packed fields."""
    bits = [Const(0, 1)] * 32
    for field in register.fields:
        bits[field.lsb : field.lsb + field.width] = Value.cast(values[field.name])
    return Cat(*bits)


class RegisterBank(wiring.Component):
    """AXI4-Lite registers of a map: reads answered after 4 cycles, writes after 2.

    One read and one write are under way at a time: a read every 5 cycles, a write every 2 if the
    manager takes answers at once. Address and data of a write may come in either order. A request
    that came first is held, never dropped, while an answer waits.

    A read sees every write whose second half was taken before its address or in the same cycle,
    and all that this write starts: it is answered up to `SETTLE` + 1 cycles later for that. So a
    manager need not wait for the answer to a write, and a status that follows from registers must
    do so within `SETTLE` cycles of the cycle in which they show.

    The whole address is decoded; its lowest two bits are ignored. Reserved words read 0, writes to
    them and to read-only words do nothing, and every answer is OKAY, so that a host that scans the
    map gets no bus error. ``awprot`` and ``arprot`` are ignored.

    Parameters
    ----------
    register_map : gradnic.interface.register_map.RegisterMap
    address_width : int
        Bits of a byte address; at least what the map needs, which is the default.

    Members
    -------
    bus : In(Lite(address_width))
        Outputs come from registers.
    <register of access rw> : Out(StructLayout of its fields)
        Registers; a write shows 3 cycles after its second half was taken.
    <ro> : In(StructLayout of its fields)
        Sampled 2 cycles before the answer.
    <w1c> : In(StructLayout of its fields)
        Each bit that is 1 sets its sticky bit; ``sticky[name]`` are those bits, for an interrupt.
    <counter> : In(step_width)
        Added every cycle; the sum shows 2 cycles later. Wraps.
    by_name : dict
        All of them, the bus, too, by what they are called.
    """

    def __init__(self, register_map: RegisterMap, *, address_width: int | None = None) -> None:
        address_width = register_map.address_width if address_width is None else address_width
        if address_width < register_map.address_width:
            raise ValueError(
                f"address_width must be at least {register_map.address_width} for "
                f"{register_map.n_bytes} bytes, not {address_width!r}"
            )
        self.register_map = register_map
        members = {register.name: _member(register) for register in register_map}
        self.write_address = Signal(address_width - 2)
        self.write_data = Signal(32)
        self.write_strobes = Signal(4)
        self.has_address = Signal()
        self.has_data = Signal()
        self.fire = Signal()  # now
        self.carried = Signal()  # before, and no answer had room
        self.read_address = Signal(address_width - 2)
        # Of the read under way: waits for writes, then decoded, grouped, merged.
        self.steps = Signal(SETTLE + 1 + 3)
        self.fresh = Signal(SETTLE - 1)  # one bit: how long ago the last write was carried out
        self.sticky = {
            register.name: Signal(_layout(register), name=f"{register.name}_sticky")
            for register in register_map
            if register.access == "w1c"
        }
        super().__init__({"bus": In(Lite(address_width)), **members})
        self.by_name = by_name(self)

    def elaborate(self, platform):
        m = Module()
        written, strobes, wdata = self._writes(m)
        read, answered = self._reads(m)
        words = {}  # what software reads, by word number
        for register in self.register_map:
            port = self.by_name[register.name]
            index = register.offset // 4
            if register.access == "counter":
                low, high = self._count(m, register, port)
                words[index] = low
                if register.n_words == 2:
                    held = Signal(32, name=f"{register.name}_held")
                    with m.If(read(index)):
                        m.d.sync += held.eq(high)
                    words[index + 1] = held
            elif register.access == "ro":
                words[index] = _word(register, port)
            else:
                state = self.sticky.get(register.name, port)
                words[index] = _word(register, state)
                select = written(index)
                for field in register.fields:
                    self._write_field(m, register, field, state, port, select, strobes, wdata)
        answered(words)
        return m

    def _writes(self, m):
        """Address and data wait for each other, then the write is carried out and answered."""
        bus, address = self.bus, self.write_address
        wdata, strobes = self.write_data, self.write_strobes
        has_address, has_data = self.has_address, self.has_data
        m.d.comb += [bus.awready.eq(~has_address), bus.wready.eq(~has_data), bus.bresp.eq(OKAY)]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [has_address.eq(1), address.eq(bus.awaddr[2:])]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [has_data.eq(1), wdata.eq(bus.wdata), strobes.eq(bus.wstrb)]
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        fire = self.fire
        whole = Signal()
        carried = self.carried
        held = Signal(32)
        lanes = Signal(4)
        m.d.comb += [whole.eq(has_address & has_data), fire.eq(whole & ~carried)]
        with m.If(fire):
            m.d.sync += [held.eq(wdata), lanes.eq(strobes), carried.eq(1)]
        with m.If(whole & ~bus.bvalid):
            m.d.sync += [has_address.eq(0), has_data.eq(0), carried.eq(0), bus.bvalid.eq(1)]

        def written(index):
            select = Signal(name=f"write_{index}")
            m.d.sync += select.eq(fire & (address == index))
            return select

        return written, lanes, held

    def _reads(self, m):
        """Wait for writes; decode, OR of groups, OR of all: one register after each."""
        bus, address = self.bus, self.read_address
        busy = Signal()
        steps = self.steps
        selects = {}
        decode, merge = steps[-3], steps[-1]
        take, becomes_whole = signals("take becomes_whole")
        late = Signal(SETTLE + 1)
        m.d.comb += [
            bus.arready.eq(~busy),
            bus.rresp.eq(OKAY),
            take.eq(bus.arvalid & bus.arready),
            becomes_whole.eq(
                (self.has_address | bus.awvalid)
                & (self.has_data | bus.wvalid)
                & ~(self.has_address & self.has_data)
            ),
            # One bit: where the read enters, the later the longer ago the last write was.
            late.eq(Mux(becomes_whole, 1, Mux(self.fire, 2, self.fresh << 2))),
        ]
        m.d.sync += [
            self.fresh.eq(Mux(self.fire, 1, self.fresh << 1)),
            steps.eq(steps << 1 | Mux(take, Mux(late.any(), late, 1 << SETTLE + 1), 0)),
        ]
        with m.If(take):
            m.d.sync += [busy.eq(1), address.eq(bus.araddr[2:])]
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += [busy.eq(0), bus.rvalid.eq(0)]
        with m.If(merge):
            m.d.sync += bus.rvalid.eq(1)

        def read(index):
            if index not in selects:
                selects[index] = Signal(name=f"read_{index}")
                m.d.sync += selects[index].eq(decode & (address == index))
            return selects[index]

        def answered(words):
            indices = sorted(words)
            groups = []
            for start in range(0, len(indices), GROUP):
                group = Signal(32, name=f"group_{start}")
                merged = Const(0, 32)
                for index in indices[start : start + GROUP]:
                    merged = merged | Mux(read(index), words[index], 0)
                m.d.sync += group.eq(merged)
                groups.append(group)
            with m.If(merge):
                merged = groups[0]
                for group in groups[1:]:
                    merged = merged | group
                m.d.sync += bus.rdata.eq(merged)

        return read, answered

    @staticmethod
    def _count(m, register, step):
        """(low, high) words; the high word is None for 32 bits. Both are of one moment."""
        name = register.name
        taken = Signal(register.step_width, name=f"{name}_step")
        low = Signal(32, name=f"{name}_low")
        carry = Signal(name=f"{name}_carry")
        m.d.sync += [taken.eq(step), Cat(low, carry).eq(low + taken)]
        if register.n_words == 1:
            return low, None
        # The carry reaches the high word a cycle late, so software sees the low word a cycle late.
        low_then, high = Signal(32, name=f"{name}_low_then"), Signal(32, name=f"{name}_high")
        m.d.sync += [low_then.eq(low), high.eq(high + carry)]
        return low_then, high

    @staticmethod
    def _write_field(m, register, field, state, port, select, strobes, wdata):
        target = Value.cast(state[field.name])
        if register.access == "w1c":
            clear = Signal(field.width, name=f"{register.name}_{field.name}_clear")
            for bit in range(field.width):
                place = field.lsb + bit
                m.d.comb += clear[bit].eq(select & strobes[place // 8] & wdata[place])
            m.d.sync += target.eq(target & ~clear | port[field.name])
            return
        for lane in range(field.lsb // 8, (field.lsb + field.width - 1) // 8 + 1):
            low = max(field.lsb, 8 * lane)
            high = min(field.lsb + field.width, 8 * lane + 8)
            with m.If(select & strobes[lane]):
                m.d.sync += target[low - field.lsb : high - field.lsb].eq(wdata[low:high])
