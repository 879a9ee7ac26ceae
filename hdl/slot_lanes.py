"""A column of the store: a few lanes' sums of all slots, their tables and adders."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from .memory import BlockRAM
from .pipeline import delayed
from .slot_rows import Order
from .slot_types import Kind, chosen

SMALL_TABLE = 64  # entries up to which a table is LUT RAM


class SlotLanes(wiring.Component):
    """Looks up, adds and stores the sums of some lanes: a row per cycle, nothing can stall it.

    An order's row is read `READS` cycles after the order came, and written `WRITES` cycles after
    it; rows of 32-bit words lie in the same places as those of sums.

    Parameters
    ----------
    sizes : Sizes
    n_lanes : int
        Lanes of this column; n_lanes * width must be a multiple of 32.
    first : int
        The first of them in the row.

    Members
    -------
    write_en, write_addr, write_data : In(1), In(4 + b_max), In(8)
        The table, all lanes at once.
    order : In(Order(sizes))
    indices, row : In, In
        This row's bits, of the whole row, `SlotRows.latency` cycles after the order.
    fill : In(sizes.width)
        What is added to an answer, `WRITES` cycles after the order.
    overflows : Out(1)
        A sum of this row did not fit, `OVERFLOWS` cycles after the order.
    o : Out(n_lanes * sizes.width)
        The row as answers have it, `latency` cycles after the order.
    """

    READS = 4
    OVERFLOWS = 8
    WRITES = 9
    latency = 11

    def __init__(self, sizes, n_lanes, first):
        self.sizes, self.n_lanes, self.first = sizes, n_lanes, first
        self.bits = n_lanes * sizes.width
        if self.bits % 32:
            raise ValueError(f"n_lanes must be a multiple of 32 / width, not {n_lanes!r}")
        self.ram = BlockRAM(self.bits, 2 ** (sizes.place_width + sizes.row_width))
        self.writes = Signal(  # to the tables, registers of this column alone
            data.StructLayout({"en": 1, "addr": 4 + sizes.b_max, "data": 8}),
            attrs={"keep_register": 1},
        )
        super().__init__(
            {
                "write_en": In(1),
                "write_addr": In(4 + sizes.b_max),
                "write_data": In(8),
                "order": In(Order(sizes)),
                "indices": In(sizes.index_units * sizes.lanes),
                "row": In(sizes.row_bits),
                "fill": In(sizes.width),
                "overflows": Out(1),
                "o": Out(self.bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, n_words = self.sizes.width, self.bits // 32
        m.submodules.ram = ram = self.ram
        orders = self._orders(m)  # by cycles since the order came
        m.d.sync += self.writes.eq(Cat(self.write_en, self.write_addr, self.write_data))
        addend = self._addend(m, orders)  # at 6
        m.d.comb += ram.read_addr.eq(orders[self.READS].address)
        held = ram.read_data  # at 6

        # at 7: sums of all kinds
        lane_sums = [
            Signal(width + 1, name=f"lane{k}", reset_less=True) for k in range(self.n_lanes)
        ]
        for k, total in enumerate(lane_sums):
            lane = slice(k * width, (k + 1) * width)
            m.d.sync += total.eq(addend[lane] + held[lane])
        word_sums = [Signal(signed(33), name=f"word{k}", reset_less=True) for k in range(n_words)]
        larger = Signal(n_words, reset_less=True)
        for k, total in enumerate(word_sums):
            word = slice(32 * k, 32 * (k + 1))
            m.d.sync += [
                total.eq(addend[word].as_signed() + held[word].as_signed()),
                larger[k].eq(addend[word] > held[word]),
            ]
        new, old = delayed(m, addend, 1, name="new"), delayed(m, held, 1, name="old")

        # at 8: the one that counts, and whether it fits
        order = orders[7]
        sums, words = Cat(s[:width] for s in lane_sums), Cat(s[:32] for s in word_sums)
        carries = Cat(s[width] for s in lane_sums)
        leaves = Cat(s[32] ^ s[31] for s in word_sums)
        counts = order.row & order.adds & ~order.first
        is_thc = (order.kind == Kind.INDEX) | (order.kind == Kind.SUM)
        picked = Signal(self.bits, reset_less=True)
        full = Signal(self.n_lanes, reset_less=True)
        clipped, negative = Signal(n_words, reset_less=True), Signal(n_words, reset_less=True)
        m.d.sync += [
            self.overflows.eq(
                counts & Mux(is_thc, carries.any(), (order.kind == Kind.INT32) & leaves.any())
            ),
            full.eq(Mux(is_thc & counts, carries, 0)),
            clipped.eq(Mux((order.kind == Kind.INT32) & counts & order.saturates, leaves, 0)),
            negative.eq(Cat(s[32] for s in word_sums)),
        ]
        for k in range(n_words):
            word = slice(32 * k, 32 * (k + 1))
            takes_old = ~order.adds | ((order.kind == Kind.NORM) & ~larger[k] & ~order.first)
            takes_new = order.first | (order.kind == Kind.NORM)
            m.d.sync += picked[word].eq(
                Mux(
                    takes_old,
                    old[word],
                    Mux(takes_new, new[word], Mux(is_thc, sums[word], words[word])),
                )
            )
        # at 9: saturated, and written
        result = Signal(self.bits, reset_less=True)
        ones = Cat(bit.replicate(width) for bit in full)
        limit = Cat(Cat((~sign).replicate(31), sign) for sign in negative)
        beyond = Cat(bit.replicate(32) for bit in clipped)
        m.d.sync += result.eq(((picked | ones) & ~beyond) | (limit & beyond))
        order = orders[self.WRITES]
        m.d.comb += [
            ram.write_en.eq(order.row & order.adds),
            ram.write_addr.eq(order.address),
            ram.write_data.eq(result),
        ]
        self._fill(m, result)
        return m

    def _orders(self, m):
        """The order at each cycle since it came; registers of this column alone."""
        orders = [self.order]
        for k in range(self.WRITES):
            held = Signal(
                self.order.shape(),
                name=f"order{k + 1}_{self.first}",
                reset_less=True,
                attrs={"keep_register": 1},
            )
            m.d.sync += held.eq(orders[-1])
            orders.append(held)
        return orders

    def _addend(self, m, orders):
        """What is added, by lanes or words, 6 cycles after the order."""
        width, n_lanes = self.sizes.width, self.n_lanes
        own = slice(self.first * width, self.first * width + self.bits)
        row = delayed(m, self.row[own], 3, name="row")  # at 5
        low = self.first * width // 32  # number of the first word
        live = Signal(self.bits // 32, reset_less=True)
        m.d.sync += live.eq(Cat(orders[4].words > low + k for k in range(len(live))))
        words = Cat(Mux(alive, row[32 * k : 32 * (k + 1)], 0) for k, alive in enumerate(live))
        stream = Cat(row[i ^ 7] for i in range(self.bits))
        sums = Cat(stream[k * width : (k + 1) * width][::-1] for k in range(n_lanes))
        levels = Cat(self._level(m, orders, k) for k in range(n_lanes))
        addend = Signal(self.bits, reset_less=True)
        kind = orders[5].kind
        m.d.sync += addend.eq(Mux(kind == Kind.INDEX, levels, Mux(kind == Kind.SUM, sums, words)))
        return addend

    def _level(self, m, orders, k):
        """Level of a lane's index, 5 cycles after the order, as wide as a sum."""
        sizes = self.sizes
        lanes, units = sizes.lanes, sizes.index_units
        lane = self.first + k
        index = Signal(sizes.b_max, name=f"index{k}", reset_less=True)
        choices = []
        for bits in range(1, sizes.b_max + 1):
            start = (units - bits) * lanes + bits * lane
            choices.append(self.indices[start : start + bits][::-1])
        m.d.sync += index.eq(chosen(choices, orders[2].bits))
        depth = sizes.n_jobs << sizes.b_max
        address = Cat(index, orders[3].job)
        level = Signal(sizes.width, name=f"level{k}")
        if depth > SMALL_TABLE:
            m.submodules[f"table{k}"] = table = BlockRAM(8, depth)
            m.d.comb += [
                table.write_en.eq(self.writes.en),
                table.write_addr.eq(self.writes.addr),
                table.write_data.eq(self.writes.data),
                table.read_addr.eq(address),
                level.eq(table.read_data),
            ]
            return level
        array = memory.Memory(
            shape=8, depth=max(2, depth), init=[], attrs={"ram_style": "distributed"}
        )
        m.submodules[f"table{k}"] = array
        write, read = array.write_port(), array.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.writes.en),
            write.addr.eq(self.writes.addr),
            write.data.eq(self.writes.data),
            read.addr.eq(address),
            level.eq(delayed(m, read.data, 2, name=f"level{k}_")),
        ]
        return level

    def _fill(self, m, result):
        """At 10 and 11: what is missing, added and saturated."""
        width = self.sizes.width
        out = []
        for k in range(self.n_lanes):
            total = Signal(width + 1, name=f"filled{k}", reset_less=True)
            m.d.sync += total.eq(result[k * width : (k + 1) * width] + self.fill)
            out.append(total[:width] | total[width].replicate(width))
        m.d.sync += self.o.eq(Cat(out))
