"""The head of a frame, its first 64 bytes: collected, read field by field, checked.

Plumbing: no golden model of its own.
"""

from types import SimpleNamespace

from amaranth.hdl import Cat, Signal, Value
from amaranth.lib import data, wiring

from gradnic.interface.formats import HEAD_BYTES, IP_PROTOCOL_UDP, IPV4, UDP

from ..stream.beats import FrameBeat
from ..stream.delays import delayed
from ..stream.fifo import FIFO

QUEUE_BEATS = 32  # more than the stages of a parser, so that full rate is kept
RAW_HEAD = HEAD_BYTES - UDP.start  # UDP and gradnic header


class Head:
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
    """The values one cycle later, under the same names."""
    held = {}
    for name, value in values.items():
        shape = value.shape() if isinstance(value, data.View) else Value.cast(value).shape()
        held[name] = Signal(shape, name=f"{name}_{stage}", reset_less=True)
        m.d.sync += held[name].eq(value)
    return SimpleNamespace(**held)


def collect(m, frames, n_bytes: int) -> tuple[Head, Signal, Signal, Signal]:
    """Collect the head of each frame of stream `frames`, of beats of 16, 32, 64 or 128 bytes.

    Returns (`Head`, take, complete, index). take : a beat is taken, number `index` of its frame,
    or one behind the head. complete : with it the head, or all of a shorter frame, which is there
    from the next cycle on.
    """
    n, n_beats = n_bytes, -(-HEAD_BYTES // n_bytes)
    bits = Signal(8 * HEAD_BYTES, name="head", reset_less=True)
    index = Signal(range(n_beats + 1))
    take, complete = Signal(), Signal()
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
    return Head(bits), take, complete, index


def queued_heads(
    m, frames, beats, n_bytes: int, *, stops=(HEAD_BYTES,)
) -> tuple[Head, Signal, Signal, Signal]:
    """Let frames wait in a queue, from `frames` to `beats`, while their heads are read.

    Beats have 16, 32 or 64 bytes, or 128 where a head has the first beat to itself.

    Returns (`Head`, meta, whole, complete). whole : bit k says that the frame has the byte before
    ``stops[k]``, which lies in the head's last beat. complete : as of `collect`.
    """
    m.submodules.queue = queue = FIFO(FrameBeat(n_bytes), QUEUE_BEATS)
    wiring.connect(m, queue.o, wiring.flipped(beats))
    m.d.comb += [
        queue.i.valid.eq(frames.valid),
        frames.ready.eq(queue.i.ready),
        *(queue.i.p[name].eq(frames.p[name]) for name in ("data", "keep", "last", "bad")),
    ]
    head, take, complete, index = collect(m, frames, n_bytes)
    meta = Signal(len(frames.p.meta), reset_less=True)
    whole = Signal(len(stops), reset_less=True)
    ends = index == -(-HEAD_BYTES // n_bytes) - 1
    with m.If(take):
        m.d.sync += [
            meta.eq(frames.p.meta),
            whole.eq(
                Cat(ends & (frames.p.keep[(stop - 1) % n_bytes] | ~frames.p.last) for stop in stops)
            ),
        ]
    return head, meta, whole, complete


def envelope(m, head: Head, *, whole, gap: int = 0) -> SimpleNamespace:
    """What IPv4 and UDP headers say of the frame, five cycles later.

    whole : the frame has all the headers that it must have. gap : bytes that were put between the
    head and what follows it.

    Returns fits (so it is, and the lengths agree), ip_sum (0xFFFF if the checksum of the IPv4
    header holds), and ``end``, ``pseudo`` and ``unsummed`` as of `FrameClass`.
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
        hops=head.word(IPV4.ttl.byte) + head.field(IPV4.checksum),
        sized=head.word(IPV4.start) + total,
        unsummed=head.field(UDP.checksum) == 0,
    )
    two = registered(
        m,
        2,
        fits=one.fits,
        agree=one.around == one.total,
        addresses=one.source + one.destination,
        rest=one.rest + one.hops,
        sized=one.sized,
        pseudo=one.udp + IP_PROTOCOL_UDP,
        end=one.udp + (UDP.start + gap),
    )
    three = registered(
        m,
        3,
        fits=two.fits & two.agree,
        ip_sum=two.addresses + two.rest + two.sized,
        pseudo=two.addresses + two.pseudo,
    )
    four = registered(m, 4, ip_sum=three.ip_sum[:16] + three.ip_sum[16:])
    five = registered(m, 5, ip_sum=four.ip_sum[:16] + four.ip_sum[16])
    return SimpleNamespace(
        fits=delayed(m, three.fits, 2, name="fits"),
        ip_sum=five.ip_sum,
        end=delayed(m, two.end, 3, name="end"),
        pseudo=delayed(m, three.pseudo, 2, name="pseudo"),
        unsummed=delayed(m, one.unsummed, 4, name="unsummed"),
    )
