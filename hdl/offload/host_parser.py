"""Reads the head of each frame to the host address: is it one of ours, and what does it ask.

Golden model: `gradnic.models.offload.host_parser`.
"""

from amaranth.hdl import Cat, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In

from gradnic.interface.formats import ETHERNET, GRADNIC, HEAD_BYTES, IPV4, UDP, VERSION, Op
from gradnic.interface.host_frame import HEAD, MAX_PAYLOAD, MAX_WORDS, POST_BYTES, Kind

from ..frame.classes import FrameClass
from ..frame.head import RAW_HEAD, envelope, registered
from ..frame.parser import HeadParser, checked, plain_udp
from ..stream.delays import delayed

Ends = data.StructLayout({"mac": 48, "ip": 32, "port": 16, "me": 32})
"""Of the host: MAC and IPv4 address, UDP port; of the card: the IPv4 address it was reached by."""

Asked = data.StructLayout(
    {**{name: HEAD[name].width for name in ("address", "seq", "elems", "kind", "session")},
     "ends": Ends}
)  # fmt: skip
"""What a host frame asks, and who does."""

HostFacts = data.StructLayout({"check": FrameClass(), "foreign": 1, "formed": 1, "asked": Asked})
"""What the head says of a frame. foreign : it is none of ours. formed : it is a host frame, and
ELEMS and payload are as its kind wants them.
"""


class HostParser(HeadParser):
    """Heads of frames to the host address; rate and latency as of `HeadParser`.

    Parameters
    ----------
    n_bytes : int
        Bytes of a beat, 16, 32 or 64.

    Members
    -------
    i, beats, facts : see `HeadParser`; facts are `HostFacts`
    udp_port : In(16)
        Ours.
    """

    depth = 6
    stops = (GRADNIC.job.stop, HEAD_BYTES)

    def __init__(self, n_bytes: int) -> None:
        super().__init__(
            n_bytes, meta_width=0, facts=HostFacts, members={"udp_port": In(16)}, half_rate=True
        )

    def judge(self, m, head, meta, whole):
        """See `HeadParser`."""
        field, length, elems = head.field, head.field(UDP.length), head.field(HEAD.elems)
        sums = envelope(m, head, whole=whole[1] & (length >= RAW_HEAD))
        asked = Signal(Asked)
        m.d.comb += [
            *(
                asked[name].eq(field(HEAD[name]))
                for name in ("address", "seq", "elems", "kind", "session")
            ),
            asked.ends.mac.eq(field(ETHERNET.source)),
            asked.ends.ip.eq(field(IPV4.source)),
            asked.ends.port.eq(field(UDP.source_port)),
            asked.ends.me.eq(field(IPV4.destination)),
        ]
        ours = (
            *plain_udp(field).values(),
            field(UDP.destination_port) == self.udp_port,
            field(GRADNIC.ver) == VERSION,
            whole[0],
        )
        one = registered(
            m,
            1,
            asked=asked,
            ours=Cat(ours),
            op=field(GRADNIC.op) == Op.HOST,
            brings=length == elems + RAW_HEAD,  # its payload is ELEMS bytes
            empty=length == RAW_HEAD,
            some=elems != 0,
            quads=elems[:2] == 0,
            words=elems <= 4 * MAX_WORDS,
            fits=elems <= MAX_PAYLOAD,
            job=elems == POST_BYTES,
        )
        kind = {k: one.asked.kind == int(k) for k in Kind}
        whole_words = one.some & one.quads
        wrong = Cat(
            kind[Kind.WRITE] & ~(one.brings & whole_words & one.fits),
            kind[Kind.WRITE_REG] & ~(one.brings & whole_words & one.words),
            kind[Kind.READ_REG] & ~(one.empty & whole_words & one.words),
            kind[Kind.POST] & ~(one.brings & one.job),
            kind[Kind.READ] & ~(one.empty & one.some),
            (kind[Kind.HELLO] | kind[Kind.ACK]) & ~one.empty,
        )
        two = registered(m, 2, foreign=~one.ours.all(), formed=one.op & ~wrong.any())
        result = Signal(HostFacts, reset_less=True)
        m.d.sync += [
            result.asked.eq(delayed(m, one.asked, 4, name="asked")),
            result.foreign.eq(delayed(m, two.foreign, 3, name="foreign")),
            result.formed.eq(delayed(m, two.formed, 3, name="formed")),
            *checked(result.check, sums),
        ]
        return result
