"""A column of the store: a few lanes' sums of all slots, their tables and adders.

Twin of `gradnic.models.aggregation.slot_lanes`; a part of the aggregation unit's adder.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.block_ram import BlockRAM
from ..primitive.names import signals
from ..primitive.zeroed_table import filled
from ..stream.delays import delayed
from .slot_records import Kind, Sizes
from .slot_rows import Order

SMALL_TABLE = 64  # entries up to which a table is LUT RAM
BANK = 4  # address bits of a LUT RAM


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
        What is added to an answer, `FILLS` cycles after the order.
    overflows : Out(1)
        A sum of this row did not fit, `OVERFLOWS` cycles after the order.
    o : Out(n_lanes * sizes.width)
        The row as answers have it, `latency` cycles after the order.
    """

    READS = 2
    FILLS = 7
    OVERFLOWS = 8
    WRITES = 9
    latency = 10

    def __init__(self, sizes: Sizes, n_lanes: int, first: int) -> None:
        self.sizes, self.n_lanes, self.first = sizes, n_lanes, first
        self.bits = n_lanes * sizes.width
        self.depth = sizes.n_jobs << sizes.b_max  # of the table
        small = self.depth <= SMALL_TABLE
        self.bank_width = max(sizes.b_max, BANK) if small else ceil_log2(self.depth)
        if self.bits % 32:
            raise ValueError(f"n_lanes must be a multiple of 32 / width, not {n_lanes!r}")
        self.ram = BlockRAM(self.bits, 2 ** (sizes.place_width + sizes.row_width))
        # what is written to the tables: registers of this column alone
        self.writes = Signal(
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
        addend = self._addend(m, orders)  # at 5
        m.d.comb += ram.read_addr.eq(orders[self.READS].address)
        held = delayed(m, ram.read_data, 1, name="held")  # at 5; block RAM lies far away

        # at 6: sums of all kinds
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
                larger[k].eq((held[word] - addend[word])[32]),
            ]
        new, old = delayed(m, addend, 1, name="new"), delayed(m, held, 1, name="old")
        order = orders[5]
        counts = order.row & order.adds & ~order.first
        thc = (order.kind == Kind.INDEX) | (order.kind == Kind.SUM)
        is_thc, takes_new, keeps, maximum, thc_counts, int_counts, clips = (
            Signal(name=f"{name}_{self.first}", reset_less=True)
            for name in (
                "is_thc", "takes_new", "keeps", "maximum", "thc_counts", "int_counts", "clips")
        )  # fmt: skip
        m.d.sync += [
            is_thc.eq(thc),
            takes_new.eq(order.first | (order.kind == Kind.NORM)),
            keeps.eq(~order.adds),
            maximum.eq((order.kind == Kind.NORM) & ~order.first),
            thc_counts.eq(counts & thc),
            int_counts.eq(counts & (order.kind == Kind.INT32)),
            clips.eq(counts & (order.kind == Kind.INT32) & order.saturates),
        ]

        # at 7: the one that counts, and whether it fits
        carries = Cat(s[width] for s in lane_sums)
        leaves = Cat(s[32] ^ s[31] for s in word_sums)
        picked = Signal(self.bits, reset_less=True)
        full = Signal(self.n_lanes, reset_less=True)
        clipped, negative = signals("clipped negative", n_words, reset_less=True)
        carried = Signal(-(-self.n_lanes // 4), reset_less=True)  # of four lanes each
        left = Signal(-(-n_words // 2), reset_less=True)  # of two words each
        m.d.sync += [
            carried.eq(Cat(thc_counts & carries[4 * k :][:4].any() for k in range(len(carried)))),
            left.eq(Cat(int_counts & leaves[2 * k :][:2].any() for k in range(len(left)))),
            full.eq(Mux(thc_counts, carries, 0)),
            clipped.eq(Mux(clips, leaves, 0)),
            negative.eq(Cat(s[32] for s in word_sums)),
        ]
        sums = Cat(s[:width] for s in lane_sums)
        for k in range(n_words):
            word = slice(32 * k, 32 * (k + 1))
            total = Mux(is_thc, sums[word], word_sums[k][:32])
            takes_old = keeps | (maximum & ~larger[k])
            m.d.sync += picked[word].eq(Mux(takes_old, old[word], Mux(takes_new, new[word], total)))
        # at 8: saturated; at 9: written
        result = Signal(self.bits, reset_less=True)
        ones = Cat(bit.replicate(width) for bit in full)
        limit = Cat(Cat((~sign).replicate(31), sign) for sign in negative)
        beyond = Cat(bit.replicate(32) for bit in clipped)
        writes = Signal(name=f"writes_{self.first}")
        m.d.sync += [
            self.overflows.eq(Cat(carried, left).any()),
            result.eq(((picked | ones) & ~beyond) | (limit & beyond)),
            writes.eq(orders[8].row & orders[8].adds),
        ]
        m.d.comb += [
            ram.write_en.eq(writes),
            ram.write_addr.eq(orders[self.WRITES].address),
            ram.write_data.eq(delayed(m, result, 1, name="written")),
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
        """What is added, by lanes or words, 5 cycles after the order."""
        sizes, width, n_lanes = self.sizes, self.sizes.width, self.n_lanes
        own = slice(self.first * width, self.first * width + self.bits)
        row = delayed(m, self.row[own], 2, name="row")  # at 3
        low = self.first * width // 32  # number of the first word
        live = Signal(self.bits // 32, reset_less=True)
        m.d.sync += live.eq(Cat(orders[2].words > low + k for k in range(len(live))))
        words = Signal(self.bits, reset_less=True)  # at 4, zeros behind the end of the payload
        m.d.sync += words.eq(
            Cat(Mux(alive, row[32 * k : 32 * (k + 1)], 0) for k, alive in enumerate(live))
        )
        stream = Cat(words[i ^ 7] for i in range(self.bits))
        sums = Cat(stream[k * width : (k + 1) * width][::-1] for k in range(n_lanes))
        banks = self._levels(m, orders)  # at 4
        kind, job = orders[3].kind, orders[3].job
        takes = Signal(len(banks) + 2, name=f"takes_{self.first}", reset_less=True)
        m.d.sync += takes.eq(
            Cat(
                *(
                    (kind == Kind.INDEX) & (job >> self.bank_width - sizes.b_max == k)
                    for k in range(len(banks))
                ),
                kind == Kind.SUM,
                (kind == Kind.NORM) | (kind == Kind.INT32),
            )
        )
        addend = Signal(self.bits, reset_less=True)
        given = zip((*banks, sums, words), takes, strict=True)
        m.d.sync += addend.eq(reduce(or_, (x & take.replicate(self.bits) for x, take in given)))
        return addend

    def _levels(self, m, orders):
        """The lanes' levels as each bank of the table has them, 4 cycles after the order.

        A small table answers at once: there is a register in front of it, and one behind each bank,
        so that no bank is chosen on the way from the index to a level.
        """
        small = self.depth <= SMALL_TABLE
        takes = Signal(self.sizes.b_max, name=f"bits_{self.first}", reset_less=True)
        m.d.sync += takes.eq(Cat(orders[int(small)].bits == k for k in range(len(takes))))
        banks = [[] for _ in range(0, self.depth, 1 << self.bank_width)]
        for k in range(self.n_lanes):
            address = Cat(self._index(m, takes, k, int(small)), orders[2 + small].job)
            for number, bank in enumerate(banks):
                own = address[: self.bank_width]
                bank.append(self._bank(m, f"table{k}_{number}", number, own, small))
        return [Cat(levels) for levels in banks]

    def _index(self, m, takes, k, early):
        """A lane's index, 2 + `early` cycles after the order. takes : one flag for each width."""
        sizes = self.sizes
        lanes, units, lane = sizes.lanes, sizes.index_units, self.first + k
        index = Signal(sizes.b_max, name=f"index{k}", reset_less=True)
        choices = []
        for bits in range(1, sizes.b_max + 1):
            start = (units - bits) * lanes + bits * lane
            bits_here = self.indices[start : start + bits][::-1]
            choices.append(delayed(m, bits_here, early, name=f"bits{bits}_{k}_"))
        given = zip(choices, takes, strict=True)
        m.d.sync += index.eq(reduce(or_, (x & take.replicate(len(x)) for x, take in given)))
        return index

    def _bank(self, m, name, number, address, small):
        """Level at `address` of a bank, as wide as a sum: a cycle later, or two if not `small`."""
        level = Signal(self.sizes.width, name=f"{name}_level", reset_less=True)
        writes, size = self.writes, 1 << self.bank_width
        if small:
            table = memory.Memory(shape=8, depth=size, init=[], attrs={"ram_style": "distributed"})
            ours = writes.en & (writes.addr >> self.bank_width == number)
            read = filled(m, table, ours, writes.addr, writes.data)
            m.d.comb += read.addr.eq(address)
            m.d.sync += level.eq(read.data)
        else:
            table = BlockRAM(8, size)
            m.d.comb += [
                table.write_en.eq(writes.en),
                table.write_addr.eq(writes.addr),
                table.write_data.eq(writes.data),
                table.read_addr.eq(address),
                level.eq(table.read_data),
            ]
        m.submodules[name] = table
        return level

    def _fill(self, m, result):
        """At 9 and 10: what is missing, added and saturated."""
        width = self.sizes.width
        fill = Signal(width, reset_less=True, attrs={"keep_register": 1})
        m.d.sync += fill.eq(self.fill)
        out = []
        for k in range(self.n_lanes):
            total = Signal(width + 1, name=f"filled{k}", reset_less=True)
            m.d.sync += total.eq(result[k * width : (k + 1) * width] + fill)
            out.append(total[:width] | total[width].replicate(width))
        m.d.sync += self.o.eq(Cat(out))
