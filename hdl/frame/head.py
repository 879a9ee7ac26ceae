"""The head of a frame, its first 64 bytes: collected, read field by field, checked.

Plumbing: no golden model of its own.
"""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Signal, Value
from amaranth.lib import data, wiring

from gradnic.interface.formats import HEAD_BYTES, IP_PROTOCOL_UDP, IPV4, UDP

from ..primitive.names import signals
from ..stream.delays import delayed
from ..stream.fifo import FIFO

QUEUE_BEATS = 32  # more than the stages of a parser, so that full rate is kept
RAW_HEAD = HEAD_BYTES - UDP.start  # UDP and gradnic header


class HeadBits:
    """Bits of the first bytes of a frame, as they came."""

    def __init__(self, bits: Signal) -> None:
        self.bits = bits

    def field(self, field):
        """A header field, most significant byte first on the wire."""
        return Cat(self.bits[a:b] for a, b in field.slices)

    def word(self, byte):
        """The 16 bits from `byte` on, as the Internet checksum adds them up."""
        return Cat(self.bits[8 * byte + 8 : 8 * byte + 16], self.bits[8 * byte : 8 * byte + 8])


def registered(m, stage: int, **values) -> SimpleNamespace:
    """The values one cycle later, under the same names; constants stay what they are."""
    held = {}
    for name, value in values.items():
        value = value if isinstance(value, data.View) else Value.cast(value)
        if isinstance(value, Const):
            held[name] = value
        else:
            held[name] = Signal(value.shape(), name=f"{name}_{stage}", reset_less=True)
            m.d.sync += held[name].eq(value)
    return SimpleNamespace(**held)


def collect(
    m, frames, n_bytes: int, *, n_head: int = HEAD_BYTES
) -> tuple[HeadBits, Signal, Signal, Signal]:
    """Collect the head of each frame of stream `frames`, of beats of 16, 32, 64 or 128 bytes.

    n_head : its bytes.

    Returns (`HeadBits`, take, complete, index). take : a beat is taken, number `index` of its
    frame, or one behind the head. complete : with it the head, or all of a shorter frame, which is
    there from the next cycle on.
    """
    n, n_beats = n_bytes, -(-n_head // n_bytes)
    bits = Signal(8 * n_head, name="head", reset_less=True)
    index = Signal(range(n_beats + 1))
    take, complete = signals("take complete")
    m.d.comb += [
        take.eq(frames.valid & frames.ready),
        complete.eq(take & ((index == n_beats - 1) | (frames.p.last & (index != n_beats)))),
    ]
    with m.If(take):
        with m.If(frames.p.last):
            m.d.sync += index.eq(0)
        with m.Elif(index != n_beats):
            m.d.sync += index.eq(index + 1)
        for k in range(n_beats):
            with m.If(index == k):
                m.d.sync += bits[8 * n * k : 8 * n * (k + 1)].eq(frames.p.data)
    return HeadBits(bits), take, complete, index


def reaches(frames, index, n_bytes: int, stops, *, n_head: int = HEAD_BYTES):
    """Bit k: the frame has the byte before ``stops[k]``, if the beat that is taken completes its
    head. frames, index : as of `collect`.
    """
    flags = []
    for stop in stops:
        beat, byte = divmod(stop - 1, n_bytes)
        here = (index == beat) & (frames.p.keep[byte] | ~frames.p.last)
        is_last = beat == (n_head - 1) // n_bytes
        flags.append(here if is_last else here | (index > beat))
    return Cat(flags)


def queued_heads(
    m, frames, beats, n_bytes: int, *, stops=(HEAD_BYTES,)
) -> tuple[HeadBits, Signal, Signal, Signal]:
    """Let frames wait in a queue, from `frames` to `beats`, while their heads are read.

    Beats have 16, 32 or 64 bytes, or 128 where a head has the first beat to itself.

    Returns (`HeadBits`, meta, whole, complete). whole : bit k says that the frame has the byte
    before ``stops[k]``. complete : as of `collect`.
    """
    m.submodules.queue = queue = FIFO(beats.p.shape(), QUEUE_BEATS)
    wiring.connect(m, queue.o, wiring.flipped(beats))
    m.d.comb += [
        queue.i.valid.eq(frames.valid),
        frames.ready.eq(queue.i.ready),
        *(queue.i.p[name].eq(frames.p[name]) for name in beats.p.shape().members),
    ]
    head, take, complete, index = collect(m, frames, n_bytes)
    now = frames.p.meta if "meta" in frames.p.shape().members else Const(0, 0)
    meta = Signal(len(now), name="meta", reset_less=True)
    whole = Signal(len(stops), reset_less=True)
    with m.If(take):
        m.d.sync += [
            meta.eq(now),
            whole.eq(reaches(frames, index, n_bytes, stops)),
        ]
    return head, meta, whole, complete


def envelope(m, head: HeadBits, *, whole, gap: int = 0) -> SimpleNamespace:
    """What IPv4 and UDP headers say of the frame, five cycles later.

    whole : the frame has all the headers that it must have. gap : bytes that were put between the
    head and what follows it.

    Returns fits (so it is, and the lengths agree), ip_holds (the checksum of the IPv4 header
    does), ``end``, ``pseudo`` and ``unsummed`` as of `FrameClass`, and ``base`` as of its
    `Unit`.
    """
    udp, total = head.field(UDP.length), head.field(IPV4.total_length)

    def pair(field):
        return head.word(field.byte) + head.word(field.byte + 2)

    one = registered(
        m,
        1,
        fits=whole,
        total=total,
        around=udp + (UDP.start - IPV4.start),
        udp=udp,
        source=pair(IPV4.source),
        destination=pair(IPV4.destination),
        rest=head.word(IPV4.identification.byte) + head.word(IPV4.reserved.byte),
        hops=head.word(IPV4.ttl.byte),
        sized=head.word(IPV4.start) + total,
        checksum=head.field(IPV4.checksum),
        unsummed=head.field(UDP.checksum) == 0,
    )
    two = registered(
        m,
        2,
        fits=one.fits,
        agree=one.around == one.total,
        addresses=one.source + one.destination,
        rest=one.rest + one.hops,
        sized=one.sized + one.checksum,
        pseudo=one.udp + IP_PROTOCOL_UDP,
        end=one.udp + (UDP.start + gap),
    )
    three = registered(
        m,
        3,
        fits=two.fits & two.agree,
        ip_sum=two.addresses + two.rest + two.sized,
        pseudo=two.addresses + two.pseudo,
        base=two.addresses + two.rest,
    )
    four = registered(m, 4, ip_sum=three.ip_sum[:16] + three.ip_sum[16:])
    five = registered(m, 5, ip_sum=four.ip_sum[:16] + four.ip_sum[16])
    return SimpleNamespace(
        fits=delayed(m, three.fits, 2, name="fits"),
        ip_holds=five.ip_sum == 0xFFFF,
        end=delayed(m, two.end, 3, name="end"),
        pseudo=delayed(m, three.pseudo, 2, name="pseudo"),
        unsummed=delayed(m, one.unsummed, 4, name="unsummed"),
        base=delayed(m, three.base, 2, name="base"),
    )
