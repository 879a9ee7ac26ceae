"""Byte routing: from lanes with 0, 1, 2 or 4 bytes each to packed columns, and back.

A beat has ``4 * n_lanes`` columns of one byte: byte ``b`` of lane ``l`` is column ``4 l + b``. A
lane's payload byte ``b`` belongs in column ``(start + b) mod (4 * n_lanes)``, where the starts of
the lanes follow each other without gap. That is a reverse banyan network: columns differ in one
bit of their number per stage, the lowest bit first. Two bytes that met in a stage would have equal
low bits of the destination and equal high bits of the source; being less than ``2 ** (k + 1)``
apart at the source, and packed without gaps at the destination, they would be the same byte. So
no stage ever has a conflict, and its multiplexer needs to know of its own byte alone: keep it
if there is one and the destination's bit agrees, else take the partner's.

The two lowest bits stay within a lane and are one 4:1 multiplexer, every other bit is a stage of
2:1 multiplexers: one LUT and one register a bit. The selects are found one cycle ahead by a
network of presence bits and destinations. Read backwards the same settings unpack.

The control network is written on planes, vectors with one bit per lane, four planes for the four
bytes: a stage is a handful of word operations, which also makes simulation fast.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..stream.delays import delayed
from .lanes import check_lanes, n_payload

__all__ = ["Compactor", "PrefixSum", "Spreader", "plane_bit"]


def plane_bit(n_lanes, mask, column):
    """The bit of a mask on planes that belongs to a column (byte of the beat)."""
    return mask[column % 4 * n_lanes + column // 4]


def choose(mask, one, other):
    """`one` where the mask has ones, else `other`, bit by bit."""
    return (one & mask) | (other & ~mask)


def _set_lanes(n_lanes, stage, n_planes):
    """Constant: the lanes whose number has bit `stage`, on so many planes."""
    lanes = sum(1 << lane for lane in range(n_lanes) if lane >> stage & 1)
    return Const(sum(lanes << k * n_lanes for k in range(n_planes)), n_planes * n_lanes)


def _partner(n_lanes, stage, planes):
    """Every lane's bits from the lane whose number differs in bit `stage`."""
    n, step = len(planes), 1 << stage
    upper = _set_lanes(n_lanes, stage, n // n_lanes)
    down = (planes & upper)[step:]
    up = Cat(Const(0, step), (planes & ~upper)[: n - step])
    return (up | down)[:n]


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

    def __init__(self, n_lanes: int) -> None:
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

    ``turns``: the two low bits of the starts, one bit per lane each, as offered.
    ``selects``: which byte of its lane column ``c`` takes, (low, high) bits for each ``c``.
    ``present[i]``, ``goals[i]``: the bytes before stage i, and the bit of the destination that
    this stage routes, registered i + 1 cycles after the starts.
    """

    def __init__(self, m, n_lanes, starts, tags):
        width = n_lanes.bit_length() + 1
        self.n_stages = width - 2
        turn_low, turn_high, *row = (starts[k::width] for k in range(width))
        self.turns = turn_low, turn_high
        low, high = tags[0::2], tags[1::2]
        carry, after = Const((1 << n_lanes) - 1, n_lanes), []  # row + 1
        for bit in row:
            after.append(bit ^ carry)
            carry = bit & carry
        wraps = [turn_low | turn_high, turn_high, turn_high & turn_low, Const(0, n_lanes)]
        self.selects, present, rows = [], [], []
        for column in range(4):
            select_low = ~turn_low if column & 1 else turn_low
            select_high = turn_high if column & 1 else turn_high ^ turn_low
            select_high = ~select_high if column & 2 else select_high
            self.selects.append((select_low, select_high))
            present.append((high & (low | ~select_high)) | (low & ~(select_low | select_high)))
            rows.append([choose(wraps[column], *bits) for bits in zip(after, row, strict=True)])
        state = Cat(present), [Cat(bits) for bits in zip(*rows, strict=True)]
        self.present, self.goals, self.keeps = [], [], []
        for stage in range(self.n_stages + 1):
            present = Signal(4 * n_lanes, name=f"present{stage}", reset_less=True)
            m.d.sync += present.eq(state[0])
            goals = []
            for k, bits in enumerate(state[1]):
                goal = Signal(4 * n_lanes, name=f"goal{stage}_{k}", reset_less=True)
                m.d.sync += goal.eq(bits)
                goals.append(goal)
            self.present.append(present)
            if stage < self.n_stages:
                agrees = ~(goals[0] ^ _set_lanes(n_lanes, stage, 4))
                keeps = present & agrees
                moves = present & ~agrees
                self.goals.append(goals[0])
                self.keeps.append(keeps)
                state = (
                    keeps | _partner(n_lanes, stage, moves),
                    [choose(keeps, g, _partner(n_lanes, stage, g)) for g in goals[1:]],
                )


class Compactor(wiring.Component):
    """Packs lanes into columns: log2(n_lanes) + 2 cycles from ``starts`` on, 1 beat per cycle.

    Members
    -------
    starts : In(n_lanes * log2(4 * n_lanes))
        First column of each lane; each lane starts where the one before ends, modulo the beat.
    tags : In(2 * n_lanes)
        With ``starts``.
    payload : In(32 * n_lanes)
        Bytes of the lanes, lane by lane, one cycle after ``starts``.
    columns : Out(32 * n_lanes)
    present : Out(4 * n_lanes)
        Columns that hold a byte; the others are undefined. A mask on planes.
    """

    def __init__(self, n_lanes: int) -> None:
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
        selects = []
        for column, bits in enumerate(steering.selects):
            held = [Signal(n, name=f"select{column}_{k}", reset_less=True) for k in range(2)]
            m.d.sync += [held[k].eq(bits[k]) for k in range(2)]
            selects.append(held)
        columns = []
        for column in range(4 * n):
            lane = column // 4
            low, high = (bits[lane] for bits in selects[column % 4])
            mine = [self.payload.word_select(4 * lane + byte, 8) for byte in range(4)]
            held = Signal(8, name=f"turned{column}", reset_less=True)
            m.d.sync += held.eq(Mux(high, Mux(low, *mine[:1:-1]), Mux(low, mine[1], mine[0])))
            columns.append(held)
        for stage in range(steering.n_stages):
            keep = Signal(4 * n, name=f"keep{stage}", reset_less=True)
            m.d.sync += keep.eq(steering.keeps[stage])
            routed = []
            for column in range(4 * n):
                held = Signal(8, name=f"routed{stage}_{column}", reset_less=True)
                mine, other = columns[column], columns[column ^ 4 << stage]
                m.d.sync += held.eq(Mux(plane_bit(n, keep, column), mine, other))
                routed.append(held)
            columns = routed
        m.d.comb += [
            self.present.eq(delayed(m, steering.present[-1], 1, name="present_late")),
            self.columns.eq(Cat(columns)),
        ]
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
        Bytes of the lanes, lane by lane; beyond a tag's size undefined.
    """

    def __init__(self, n_lanes: int) -> None:
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
        columns = [self.columns.word_select(column, 8) for column in range(4 * n)]
        for stage in reversed(range(steering.n_stages)):
            wait = 2 * (steering.n_stages - 1 - stage)
            goal = delayed(m, steering.goals[stage], wait, name=f"goal{stage}_late")
            routed = []
            for column in range(4 * n):
                held = Signal(8, name=f"routed{stage}_{column}", reset_less=True)
                pair = columns[column & ~(4 << stage)], columns[column | 4 << stage]
                m.d.sync += held.eq(Mux(plane_bit(n, goal, column), pair[1], pair[0]))
                routed.append(held)
            columns = routed
        turns = [
            delayed(m, turn, 2 * steering.n_stages - 1, name=f"turn{k}")
            for k, turn in enumerate(steering.turns)
        ]
        payload = Signal(32 * n, name="payload_held", reset_less=True)
        for byte in range(4):  # byte b of a lane is in column (b + turn) mod 4
            # A register for one byte of all lanes: these four copies are wanted
            kept = {"keep_register": 1}
            low, high = (
                Signal(n, name=f"turn{k}_byte{byte}", reset_less=True, attrs=kept) for k in range(2)
            )
            m.d.sync += [low.eq(turns[0]), high.eq(turns[1])]
            for lane in range(n):
                around = [columns[4 * lane + (byte + turn) % 4] for turn in range(4)]
                m.d.sync += payload.word_select(4 * lane + byte, 8).eq(
                    Mux(
                        high[lane],
                        Mux(low[lane], around[3], around[2]),
                        Mux(low[lane], around[1], around[0]),
                    )
                )
        m.d.comb += self.payload.eq(payload)
        return m
