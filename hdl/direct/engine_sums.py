"""Sums of the flit engine: what is added, made an image of, and in which order.

Part of `gradnic.hdl.direct.engine`: `e` is the engine.
"""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import stream, wiring

from gradnic.interface.schedule_table import bits

from ..primitive.block_ram import BlockRAM
from ..primitive.names import signals
from ..reduction.codec_image import DEPTH, CodecImage
from ..reduction.reduce import Combine, Op
from ..stream.delays import delayed, delayed_flag
from ..stream.fifo import FIFO
from .codec import Settings


def add(m, e, slots, step):
    """Own words or earlier sums, plus contributions; sums to memory, to ports, to results.

    Without contributions words go around the adder, a slot's sums before them being out.
    """
    running, at, ends, held = step
    width = 32 * e.n_lanes
    m.submodules.combine = combine = Combine(e.n_lanes, integers=e.integers)
    m.submodules.sums = sums = BlockRAM(width, len(slots) * e.block)
    place = Cat(at, held.slot)
    own = delayed(m, held.own, 2, name="own")
    a, b = signals("a b", width, reset_less=True)
    op = Signal(Op, reset_less=True)
    m.d.comb += sums.read_addr.eq(place)
    m.d.sync += [
        a.eq(Mux(own, e.own_data, sums.read_data)),
        b.eq(e.landing_data),
        op.eq(e.op),
    ]
    m.d.comb += [combine.a.eq(a), combine.b.eq(b), combine.op.eq(op)]
    latency = 3 + combine.latency
    shape = held.shape()
    word = Cat(held.as_value(), at, ends, e.own_address)
    straight = delayed(m, word, 2, name="straight")
    late = delayed(m, straight, 1 + combine.latency, name="late")
    goes_straight = delayed_flag(m, running & ~held.adds, 2, name="goes_straight")
    valid = delayed_flag(m, running & held.adds, latency, name="valid")
    tag, straight_tag = shape(late[: shape.size]), shape(straight[: shape.size])
    late_at = late[shape.size : shape.size + len(at)]
    m.d.comb += [
        sums.write_en.eq(valid & ~tag.final),
        sums.write_addr.eq(Cat(late_at, tag.slot)),
        sums.write_data.eq(combine.o),
    ]
    for k, s in enumerate(slots):
        to_memory = k >= e.n_ports
        queue = FIFO(e.result if to_memory else e.word, e.queue, bypass=True)
        m.submodules[f"queue{k}"] = queue
        port = [*e.words, e.results, e.sums][k]
        source = queue.o
        if e.coded and k == e.n_ports:
            source = make_image(m, e, source)
        wiring.connect(m, source, wiring.flipped(port))
        added = Signal(name=f"added{k}")
        m.d.comb += added.eq(valid & tag.final & (tag.slot == k))
        mine = Signal(len(word), name=f"mine{k}")
        m.d.comb += [
            queue.i.valid.eq(added | (goes_straight & (straight_tag.slot == k))),
            queue.i.p.data.eq(Mux(added, combine.o, e.own_data)),
            mine.eq(Mux(added, late, straight)),
        ]
        its = shape(mine[: shape.size])
        its_at, its_ends = mine[shape.size :][: len(at)], mine[shape.size + len(at)]
        shuts = its.closes & its_ends  # the chunk's last word
        if to_memory:
            m.d.comb += [
                queue.i.p.address.eq(mine[shape.size + len(at) + 1 :]),
                queue.i.p.chunk.eq(its.chunk),
                queue.i.p.first.eq(its.opens & (its_at == 0)),
                queue.i.p.ends.eq(shuts),
            ]
        else:
            m.d.comb += [
                queue.i.p.n_flits.eq(Mux(shuts, its.tail + 1, e.ratio)),
                queue.i.p.last.eq(shuts & its.last),
            ]
        s.track(m, port.valid & port.ready)
        m.d.comb += e.busy[k].eq(s.valid | (s.reserved != 0))


def make_image(m, e, words):
    """Words of terminal rows, each float as the codec leaves it."""
    m.submodules.image = image = CodecImage(e.n_lanes)
    m.submodules.places = places = FIFO(e.result, DEPTH)
    joined = stream.Signature(e.result).create(path=("joined",))
    both = image.i.ready & places.i.ready
    m.d.comb += [
        *(image.codec[name].eq(e.codec[name]) for name in Settings.members),
        image.i.p.data.eq(words.p.data),
        places.i.p.eq(words.p),
        image.i.valid.eq(words.valid & both),
        places.i.valid.eq(words.valid & both),
        words.ready.eq(both),
        joined.valid.eq(image.o.valid & places.o.valid),
        joined.p.eq(places.o.p),
        joined.p.data.eq(image.o.p.data),
        image.o.ready.eq(joined.ready & places.o.valid),
        places.o.ready.eq(joined.ready & image.o.valid),
    ]
    return joined


def in_order(m, e, slots):
    """Gather slots stay behind the terminal row that still writes their chunk."""
    terminal, merging = slots[-2:]
    chunk = Signal(bits(e.n_chunks - 1), reset_less=True)
    written = Signal(bits(e.n_words))
    writes = Signal()
    with m.If(terminal.asks):
        m.d.sync += [chunk.eq(terminal.chunk), written.eq(0), writes.eq(1)]
    with m.If(e.results.valid & e.results.ready):
        m.d.sync += written.eq(written + 1)
        with m.If(e.results.p.ends):
            m.d.sync += writes.eq(0)
    for s in slots[:-2]:
        same = writes & (s.chunk == chunk)
        m.d.sync += s.behind.eq(~s.gather | ~same | (s.done + e.block < written))
    m.d.comb += [terminal.behind.eq(1), merging.behind.eq(1)]
