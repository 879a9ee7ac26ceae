"""Byte routing: from lanes with 0, 1, 2 or 4 bytes each to packed columns, and back.

A beat has ``4 * n_lanes`` columns of one byte. Lane ``l`` owns the bytes of columns ``4 l`` to
``4 l + 3``; its byte ``b`` belongs in column ``(start + b) mod (4 * n_lanes)``, where the starts
of the lanes follow each other without gap. That is a reverse banyan network: columns differ in
one bit of their number per stage, the lowest bit first. Two bytes that met in a stage would have
equal low bits of the destination and equal high bits of the source; being less than ``2 ** (k+1)``
apart at the source, and packed without gaps at the destination, they would be the same byte. So
no stage ever has a conflict, and its multiplexer needs to know of its own byte alone: keep it
if there is one and the destination's bit agrees, else take the partner's.

The two lowest bits stay within a lane and are one 4:1 multiplexer, every other bit is a stage of
2:1 multiplexers: one LUT and one register a bit. The selects are found one cycle ahead by a
network of presence bits and destinations. Read backwards the same settings unpack.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .inceptionn import check_lanes, n_payload
from .pipeline import delayed

__all__ = ["Compactor", "PrefixSum", "Spreader"]


class PrefixSum(wiring.Component):
    """Where each lane's payload begins, from the tags: log2(n_lanes) cycles, 1 beat per cycle.

    Members
    -------
    tags : In(2 * n_lanes)
    offsets : Out(n_lanes * log2(4 * n_lanes))
        Bytes of all lanes before each lane.
    total : Out(log2(4 * n_lanes) + 1)
        Bytes of all lanes.
    """

    def __init__(self, n_lanes):
        check_lanes(n_lanes)
        self.n_lanes = n_lanes
        self.latency = n_lanes.bit_length() - 1
        width = self.latency + 2
        super().__init__(
            {
                "tags": In(2 * n_lanes),
                "offsets": Out(n_lanes * width),
                "total": Out(width + 1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        sums = [n_payload(self.tags[2 * k : 2 * k + 2]) for k in range(self.n_lanes)]
        offsets = [Const(0, 1)] * self.n_lanes
        for level in range(self.latency):
            half = 1 << level
            held, merged = [], []
            for lane in range(self.n_lanes):
                offset = Signal(level + 3, name=f"offset{level}_{lane}", reset_less=True)
                right = lane & half
                before = sums[(lane >> level) - 1] if right else 0
                m.d.sync += offset.eq(offsets[lane] + before)
                held.append(offset)
            for k in range(0, len(sums), 2):
                total = Signal(level + 4, name=f"sum{level}_{k // 2}", reset_less=True)
                m.d.sync += total.eq(sums[k] + sums[k + 1])
                merged.append(total)
            offsets, sums = held, merged
        width = self.latency + 2
        m.d.comb += [
            Cat(self.offsets).eq(Cat(offset[:width] for offset in offsets)),
            self.total.eq(sums[0]),
        ]
        return m


class _Steering:
    """The control network: presence and remaining destination bits of every byte, by stage.

    ``turns[lane]``: start modulo 4 of each lane as offered, not registered.
    ``states[i][lane][column]``: (present, row) before stage i, registered `i` + 1 cycles after
    the starts; ``row`` holds the destination bits that stages i and later still have to route.
    """

    def __init__(self, m, n_lanes, starts, tags):
        width = n_lanes.bit_length() + 1
        self.n_stages = n_stages = width - 2
        self.turns = []
        state = []
        for lane in range(n_lanes):
            start = starts[lane * width : (lane + 1) * width]
            turn, row = start[:2], start[2:]
            size = n_payload(tags[2 * lane : 2 * lane + 2])
            self.turns.append(turn)
            after = (row + 1)[:n_stages]
            state.append(
                [
                    self._register(
                        m,
                        (column - turn)[:2] < size,
                        Mux(turn > column, after, row),
                        f"0_{lane}_{column}",
                    )
                    for column in range(4)
                ]
            )
        self.states = [state]
        for stage in range(n_stages):
            following = []
            for lane in range(n_lanes):
                bit = lane >> stage & 1
                nodes = []
                for column in range(4):
                    present, row = state[lane][column]
                    other, other_row = state[lane ^ 1 << stage][column]
                    own = present & (row[0] == bit)
                    name = f"{stage + 1}_{lane}_{column}"
                    nodes.append(
                        self._register(
                            m,
                            own | (other & (other_row[0] == bit)),
                            Mux(own, row[1:], other_row[1:]),
                            name,
                        )
                    )
                following.append(nodes)
            state = following
            self.states.append(state)

    @staticmethod
    def _register(m, present, row, name):
        held = Signal(name=f"present{name}", reset_less=True)
        held_row = Signal(row.shape(), name=f"row{name}", reset_less=True)
        m.d.sync += [held.eq(present), held_row.eq(row)]
        return held, held_row


class Compactor(wiring.Component):
    """Packs lanes into columns: log2(n_lanes) + 2 cycles from ``starts`` on, 1 beat per cycle.

    Members
    -------
    starts : In(n_lanes * log2(4 * n_lanes))
        First column of each lane; each lane starts where the one before ends, modulo the beat.
    tags : In(2 * n_lanes)
        With ``starts``.
    payload : In(32 * n_lanes)
        Bytes of the lanes, one cycle after ``starts``.
    columns : Out(32 * n_lanes)
    present : Out(4 * n_lanes)
        Columns that hold a byte; the others are undefined.
    """

    def __init__(self, n_lanes):
        check_lanes(n_lanes)
        self.n_lanes = n_lanes
        self.latency = n_lanes.bit_length() + 1
        super().__init__(
            {
                "starts": In(n_lanes * (n_lanes.bit_length() + 1)),
                "tags": In(2 * n_lanes),
                "payload": In(32 * n_lanes),
                "columns": Out(32 * n_lanes),
                "present": Out(4 * n_lanes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n_lanes
        steering = _Steering(m, n, self.starts, self.tags)
        nodes = []
        for lane in range(n):
            mine = [self.payload.word_select(4 * lane + byte, 8) for byte in range(4)]
            row = []
            for column in range(4):
                select = Signal(2, name=f"select{lane}_{column}", reset_less=True)
                held = Signal(8, name=f"byte0_{lane}_{column}", reset_less=True)
                m.d.sync += select.eq(column - steering.turns[lane])
                with m.Switch(select):
                    for byte in range(4):
                        with m.Case(byte):
                            m.d.sync += held.eq(mine[byte])
                row.append(held)
            nodes.append(row)
        for stage in range(steering.n_stages):
            following = []
            for lane in range(n):
                bit = lane >> stage & 1
                row = []
                for column in range(4):
                    name = f"{stage + 1}_{lane}_{column}"
                    present, goal = steering.states[stage][lane][column]
                    swap = Signal(name=f"swap{name}", reset_less=True)
                    held = Signal(8, name=f"byte{name}", reset_less=True)
                    other = nodes[lane ^ 1 << stage][column]
                    m.d.sync += [
                        swap.eq(~(present & (goal[0] == bit))),
                        held.eq(Mux(swap, other, nodes[lane][column])),
                    ]
                    row.append(held)
                following.append(row)
            nodes = following
        present = Cat(state[0] for row in steering.states[-1] for state in row)
        m.d.sync += self.present.eq(present)
        m.d.comb += self.columns.eq(Cat(byte for row in nodes for byte in row))
        return m


class Spreader(wiring.Component):
    """Unpacks columns into lanes: 2 * log2(n_lanes) + 1 cycles from ``starts`` on, 1 beat a cycle.

    The columns are taken ``lead`` = log2(n_lanes) cycles after the starts.

    Members
    -------
    starts, tags : In, as for `Compactor`.
    columns : In(32 * n_lanes)
        ``lead`` cycles after ``starts``.
    payload : Out(32 * n_lanes)
        Bytes of the lanes; beyond a tag's size undefined.
    """

    def __init__(self, n_lanes):
        check_lanes(n_lanes)
        self.n_lanes = n_lanes
        self.lead = n_lanes.bit_length() - 1
        self.latency = 2 * self.lead + 1
        super().__init__(
            {
                "starts": In(n_lanes * (n_lanes.bit_length() + 1)),
                "tags": In(2 * n_lanes),
                "columns": In(32 * n_lanes),
                "payload": Out(32 * n_lanes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n_lanes
        steering = _Steering(m, n, self.starts, self.tags)
        nodes = [
            [self.columns.word_select(4 * lane + column, 8) for column in range(4)]
            for lane in range(n)
        ]
        for stage in reversed(range(steering.n_stages)):
            wait = 2 * (steering.n_stages - 1 - stage)
            following = []
            for lane in range(n):
                bit = lane >> stage & 1
                row = []
                for column in range(4):
                    name = f"{stage}_{lane}_{column}"
                    goal = steering.states[stage][lane][column][1][0]
                    goal = delayed(m, goal, wait, name=f"goal{name}")
                    held = Signal(8, name=f"byte{name}", reset_less=True)
                    other = nodes[lane ^ 1 << stage][column]
                    m.d.sync += held.eq(Mux(goal == bit, nodes[lane][column], other))
                    row.append(held)
                following.append(row)
            nodes = following
        for lane in range(n):
            turn = delayed(m, steering.turns[lane], 2 * steering.n_stages, name=f"turn{lane}")
            for byte in range(4):
                select = (byte + turn)[:2]
                with m.Switch(select):
                    for column in range(4):
                        with m.Case(column):
                            m.d.sync += self.payload.word_select(4 * lane + byte, 8).eq(
                                nodes[lane][column]
                            )
        return m
