"""What goes to a packet's sums, and what becomes of them: a payload, or the node's own result.

Part of `gradnic.hdl.offload.packet_maker`; `maker` is the `PacketMaker`.
"""

from amaranth.hdl import Const, Mux, Signal
from amaranth.lib import data, stream, wiring

from ..primitive.names import signals
from ..reduction.codec_image import CodecImage
from ..stream.admission import credit
from ..stream.beats import Beat
from ..stream.block_fifo import BlockFIFO
from ..stream.delays import copied
from ..stream.fifo import FIFO
from ..thc.level_table import LevelTable, SumPacker
from ..transport.records import NUMBER_WIDTH
from .bf16 import Narrow
from .bf16 import image as bf16_image
from .scaler import Scaler

N_PACKETS = 16  # whose values are being read and added
ROWS_WIDTH = NUMBER_WIDTH  # of a round: at most half as many packets, and a sign
N_RAW = 4  # raw packets of the longest that wait for their tags


def SumRule(thc: bool, scale: bool = False, wide: bool = False):
    """What becomes of a packet's sums: do they stay here; with THC, what is added to each, and
    with wide ones whether they are no indices; of a mean, what each is multiplied by.
    """
    fields = {"stays": 1, "scored": 1}
    more = ({"fill": 16 if wide else 8} if thc else {}) | ({"summed": 1} if wide else {})
    more |= {"factor": 32} if scale else {}
    return data.StructLayout(fields | more)


def expand(m, maker, name, values, summed):
    """What was read goes to the sums, indices of THC as levels; returns a queue that is told,
    for each range, whether that is what it holds, or what is to pass as it is.
    """
    if not maker.thc:
        wiring.connect(m, wiring.flipped(values), summed)
        return None
    m.submodules[f"{name}_levels"] = levels = LevelTable(
        maker.n_bytes, wide=maker.wide, bits=maker.bits
    )
    kind = data.StructLayout({"expand": 1} | ({"plain": 1} if maker.wide else {}))
    m.submodules[f"{name}_packed"] = packed = FIFO(kind, N_PACKETS)
    if maker.wide:
        m.d.comb += levels.code.eq(maker.round.codec.code)
    if maker.bits > 4:
        m.d.comb += [
            levels.write.eq(maker.level_write),
            levels.bits.eq(maker.round.codec.bits),
        ]
    else:
        m.d.comb += levels.levels.eq(maker.round.codec.levels)
    m.d.comb += [
        levels.i.valid.eq(values.valid & packed.o.valid),
        levels.i.p.data.eq(values.p.data),
        levels.i.p.last.eq(values.p.last),
        *(levels.i.p[field].eq(packed.o.p[field]) for field in kind.members),
        values.ready.eq(levels.i.ready & packed.o.valid),
        packed.o.ready.eq(values.valid & values.ready & values.p.last),
    ]
    wiring.connect(m, levels.o, summed)
    return packed.i


def finish(m, maker, sums, goals, scores):
    """Sums become payloads, or this node's own result; those that are `scored` go to `scores`,
    too. Returns two flags: the last sum of such a result goes; a queue is astray.
    """
    m.submodules.image = image = CodecImage(
        maker.lanes, passes=True, codes=maker.inc, wide=maker.wide
    )
    terminal = wiring.flipped(maker.terminal_values)
    if maker.wide:
        m.submodules.kept_packer = packer = SumPacker(maker.n_bytes)
        m.d.comb += packer.on.eq(maker.round.codec.code == 1)
        wiring.connect(m, packer.o, terminal)
        terminal = packer.i
    if maker.bf16:
        m.d.comb += [
            terminal.valid.eq(image.o.valid),
            terminal.p.eq(image.o.p),
            image.o.ready.eq(terminal.ready),
        ]
        with m.If(maker.round.codec.bf16):
            m.d.comb += terminal.p.data.eq(bf16_image(image.o.p.data))
    else:
        wiring.connect(m, image.o, terminal)
    summed = Signal(reset_less=True)  # what leaves is no packet of indices
    begins, ends = signals("begins ends")
    line, opens, raw = _line(m, maker, summed, begins & ~goals.p.stays)
    stays, strays = image.i, image.queue.astray
    if maker.scale:
        m.submodules.scaler = scaler = Scaler(maker.lanes)
        wiring.connect(m, scaler.o, image.i)
        stays, strays = scaler.i, strays | scaler.queue.astray
    # Where sums go is settled in a cycle before the first beat, and that all of the packet may
    # go there: flags steer, and no queue. It is the cycle of the last beat of the packet before,
    # but where compressor or tagger must see that one out first.
    to_line, to_image = signals("to_line to_image")
    scored = Signal(reset_less=True)
    goal = goals.p
    m.d.comb += [
        image.codec.eq(maker.round.codec),
        begins.eq(
            goals.valid & Mux(
                to_line | to_image,
                ends & (goal.stays | (raw & opens & ~goal.scored)),
                goal.stays | (opens & (~goal.scored | scores.ready)),
            )
        ),
        ends.eq(sums.valid & sums.ready & sums.p.last),
        goals.ready.eq(begins),
        sums.ready.eq(to_line | (to_image & stays.ready)),
        scores.valid.eq(sums.valid & to_line & scored),
        line.valid.eq(sums.valid & to_line),
        stays.valid.eq(sums.valid & to_image),
        *(sink.p.eq(sums.p) for sink in (scores, line, stays)),
    ]  # fmt: skip
    with m.If(begins):
        m.d.sync += [
            to_line.eq(~goal.stays),
            to_image.eq(goal.stays),
            scored.eq(goal.scored),
        ]
    with m.Elif(ends):
        m.d.sync += [to_line.eq(0), to_image.eq(0)]
    if maker.scale:
        factor = Signal(32, reset_less=True)
        m.d.comb += [scaler.on.eq(maker.round.codec.mean), scaler.factor.eq(factor)]
        with m.If(begins):
            m.d.sync += factor.eq(goal.factor)
    if maker.wide:
        with m.If(begins):
            m.d.sync += summed.eq(goal.summed)
    if maker.thc:  # what is missing counts half a table each
        fill = Signal(len(goal.fill), reset_less=True)
        m.d.comb += image.fill.eq(fill)
        with m.If(begins):
            m.d.sync += fill.eq(goal.fill)
    return ends & to_image, strays


def _line(m, maker, summed, begins):
    """(Stream of sums that become payloads, flag that all of a packet may go there, flag that they
    are raw.) Coded ones wait for their sizes in the compressor, raw ones for their tags in a queue.
    summed : of the beat that goes there. begins : a packet does, from the next cycle on.
    """
    longest = -(-maker.max_elems // maker.lanes)
    shape = Beat(8 * maker.n_bytes)
    m.submodules.raw = raw = BlockFIFO(shape, N_RAW * longest, never_full=True, stops=True)
    line = stream.Signature(shape, always_ready=True).create(path=("line",))
    begun, went = (Signal(name=f"raw_{name}") for name in ("begun", "went"))
    free = credit(m, N_RAW, take=begun, give=went, name="raw")
    m.d.comb += went.eq(raw.o.valid & raw.o.ready & raw.o.p.last)
    raw_in, plain = raw.i, line.p
    if maker.wide:
        m.submodules.packer = packer = SumPacker(maker.n_bytes)
        m.d.comb += [
            packer.on.eq(summed & (maker.round.codec.code == 1)),
            packer.i.p.eq(line.p),
            packer.o.ready.eq(1),
        ]
        plain = packer.o.p
    if not maker.bf16:
        m.d.comb += raw.i.p.eq(plain)
    else:
        m.submodules.narrow = narrow = Narrow(maker.n_bytes)
        m.d.comb += [
            narrow.on.eq(maker.round.codec.bf16),
            narrow.i.p.eq(plain),
            narrow.o.ready.eq(1),
            raw.i.p.eq(narrow.o.p),
            raw.i.valid.eq(narrow.o.valid),
        ]
        raw_in = narrow.i
    if maker.wide:
        m.d.comb += raw_in.valid.eq(packer.o.valid)
        raw_in = packer.i
    if not maker.compressor:
        wiring.connect(m, raw.o, wiring.flipped(maker.payload))
        m.d.comb += [raw_in.valid.eq(line.valid), begun.eq(begins)]
        return line, free, Const(1)
    goes_in, comes_out = copied(m, maker.round.codec.coded, 2, name="coded")
    floats, coded = maker.compressor.floats, maker.compressor.coded
    m.d.comb += [
        floats.valid.eq(line.valid & goes_in),
        floats.p.data.eq(line.p.data),
        floats.p.last.eq(line.p.last),
        raw_in.valid.eq(line.valid & ~goes_in),
        begun.eq(begins & ~goes_in),
        maker.payload.valid.eq(Mux(comes_out, coded.valid, raw.o.valid)),
        maker.payload.p.data.eq(Mux(comes_out, coded.p.data, raw.o.p.data)),
        maker.payload.p.last.eq(Mux(comes_out, coded.p.last, raw.o.p.last)),
        coded.ready.eq(comes_out & maker.payload.ready),
        raw.o.ready.eq(~comes_out & maker.payload.ready),
    ]
    return line, Mux(goes_in, floats.ready, free), ~goes_in
