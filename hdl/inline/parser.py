"""Reads the head of each frame and says what the frame is, and what is to become of it.

The table behind it: docs/spec/wire.md. Twin of `gradnic.models.inline.parser`; a part of the card.
Nothing here waits: the pipeline runs freely beside a queue of beats.
"""

from amaranth.hdl import Array, Cat, Const, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In

from gradnic.interface import inline
from gradnic.interface.formats import (
    GRADNIC,
    HEAD_BYTES,
    IPV4,
    UDP,
    VERSION,
    Op,
)
from gradnic.interface.inline import Fate

from ..frame.classes import FrameClass
from ..frame.head import RAW_HEAD, envelope, registered
from ..frame.parser import HeadParser, plain_udp, sound_flags
from ..primitive.same import same


def Settings():
    """Run-time settings as in the registers, see `gradnic.interface.inline.InlineSettings`."""
    return data.StructLayout(
        {
            "paper": 1,
            "tos": 8,
            "coded": 8,
            "mask": 8,
            "low": 16,
            "high": 16,
            "port": 16,
            "limit": 16,
            "exponent": 7,
            "paper_codec": 1,
            "prescale": signed(8),
            "jobs": inline.N_JOBS,
        }
    )


class Parser(HeadParser):
    """Classifies frames: the beats come out behind the class of their frame.

    Full rate, also for frames of one beat. The class is offered 10 cycles after the frame's 64th
    byte, or its last, came in; until then beats wait in a queue of `QUEUE_BEATS`. Settings are
    read once per frame, in the cycle after that byte.

    Parameters
    ----------
    n_bytes, meta_width : int
        Shape of the beats, see `FrameBeat`.
    receive : bool
        Look for frames to restore instead of frames to code.
    max_floats : int
        Largest packet that the codec takes.

    Members
    -------
    i, beats : In, Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
    facts : Out(stream.Signature(FrameClass()))
        One per frame, in order.
    settings : In(Settings())
    """

    depth = 7
    stops = (UDP.stop, GRADNIC.job.byte + 1, HEAD_BYTES)

    def __init__(
        self,
        n_bytes: int,
        *,
        receive: bool,
        meta_width: int = 0,
        max_floats: int = inline.MAX_FLOATS,
    ) -> None:
        self.receive, self.max_floats = receive, max_floats
        super().__init__(
            n_bytes,
            meta_width=meta_width,
            facts=FrameClass(),
            members={"settings": In(Settings())},
            keeps_meta=True,
        )

    def judge(self, m, head, meta, whole):
        """See `HeadParser`."""
        sums = envelope(m, head, whole=1)
        one = self._seen(m, head, whole)
        four = self._weighed(m, self._chosen(m, self._known(m, one)))
        takes = four.has_count & ~four.too_many & four.codable
        names = ("native", "ours", "only_marked", "fits", "count", "bytes", "unit_limit")
        names += ("settings", "keep", "sound", "new_tos")
        five = registered(
            m,
            5,
            **{name: vars(four)[name] for name in names},
            takes=takes & four.has_tags if self.receive else takes,
        )
        six = registered(
            m,
            6,
            **{name: vars(five)[name] for name in names if name != "fits"},
            **vars(sums) | {"fits": five.fits & sums.fits},
            takes=five.takes,
        )
        fate = self._fate(six)
        result = Signal(FrameClass(), reset_less=True)
        unit = result.unit
        m.d.sync += [
            result.ours.eq(six.ours),
            result.coding.eq(
                six.takes & six.sound & six.ip_holds & six.fits & ~six.keep & ~six.only_marked
            ),
            result.unchecked.eq(six.only_marked),
            result.fate.eq(fate),
            *same(result, six, "end pseudo unsummed"),
            unit.native.eq(six.native),
            unit.count.eq(six.count),
            unit.bytes.eq(six.bytes),
            Cat(unit.exponent, unit.paper, unit.prescale.as_unsigned()).eq(six.settings),
            unit.limit.eq(six.unit_limit),
            unit.tos.eq(six.new_tos),
            unit.base.eq(six.base),
        ]
        return result

    def _seen(self, m, head, whole):
        """What fields say by themselves."""
        field = head.field
        s = self.settings
        tos, udp = field(IPV4.tos), field(UDP.length)
        op, port = field(GRADNIC.op), field(UDP.destination_port)
        job = field(GRADNIC.job)
        if self.receive:
            framed = head.word(inline.PAPER_START)
            p0, p1 = field(GRADNIC.p0), field(GRADNIC.p1).as_signed()
            new_tos = (tos & ~s.mask) | (s.tos & s.mask)
        else:
            framed = (udp - (UDP.stop - UDP.start))[2:16]
            p0, p1 = Cat(s.exponent, s.paper_codec), s.prescale
            new_tos = (tos & ~s.mask) | (s.coded & s.mask)

        return registered(
            m,
            1,
            **plain_udp(field),
            has_udp=whole[0],
            has_job=whole[1],
            has_head=whole[2],
            marked=((tos ^ s.tos) & s.mask) == 0,
            marked_coded=((tos ^ s.coded) & s.mask) == 0,
            at_port=port == s.port,
            above=port >= s.low,
            below=port <= s.high,
            paper_on=s.paper,
            job_word=Array(s.jobs[k : k + 32] for k in range(0, inline.N_JOBS, 32))[job[5:]],
            job_bit=job[:5],
            udp=udp,
            elems=field(GRADNIC.elems),
            elems_in_udp=(field(GRADNIC.elems) << 2) + RAW_HEAD,
            framed=framed,
            is_raw=op == Op.RAW,
            is_inc=op == Op.INC,
            is_floats=(op == Op.RAW) | (op == Op.INT32),
            version=field(GRADNIC.ver) == VERSION,
            **sound_flags(field),
            limit=s.limit,
            paper_settings=Cat(s.exponent, s.paper_codec, s.prescale),
            native_settings=Cat(p0, p1),
            tos=tos,
            new_tos=new_tos,
        )

    def _known(self, m, one):
        """Which frame it is, and whether it holds what it says, in either framing."""
        return registered(
            m,
            2,
            is_udp=one.ethertype & one.plain & one.udp_protocol & one.whole & one.has_udp,
            at_port=one.at_port,
            job=one.job_word.bit_select(one.job_bit, 1) & one.has_job & one.version,
            has_head=one.has_head,
            in_range=one.above & one.below & one.paper_on,
            marked=one.marked,
            marked_coded=one.marked_coded,
            elems_agree=(one.elems_in_udp == one.udp) | ~one.is_floats,
            holds_head=one.udp >= RAW_HEAD,
            # in: u16 count of floats; out: a whole number of floats, at least 1
            holds_paper=(
                (one.udp >= inline.PAPER_CODED_START - UDP.start)
                if self.receive
                else (one.udp >= 12) & (one.udp[:2] == 0)
            ),
            udp=one.udp,
            elems=one.elems,
            framed=one.framed,
            is_ours_to_code=one.is_inc if self.receive else one.is_raw,
            sound=one.known & one.same_set,
            limit=one.limit,
            paper_settings=one.paper_settings,
            native_settings=one.native_settings,
            tos=one.tos,
            new_tos=one.new_tos,
        )

    def _chosen(self, m, two):
        """Of the two framings the frame's own."""
        marks = (two.marked | two.marked_coded) if self.receive else two.marked
        limit = Mux(two.at_port, two.limit, self.max_floats)
        return registered(
            m,
            3,
            native=two.at_port,
            ours=two.is_udp & Mux(two.at_port, two.job, two.in_range & marks),
            only_marked=~two.at_port & ~two.marked_coded if self.receive else Const(0),
            fits=Mux(
                two.at_port,
                two.has_head & two.holds_head & two.elems_agree,
                two.holds_paper,
            ),
            count=Mux(two.at_port, two.elems, two.framed),
            bytes=(two.udp - Mux(two.at_port, RAW_HEAD, self._paper_head))[:16],
            short_limit=(two.udp - (UDP.stop - UDP.start) - 3)[:16],
            limit=Const(self.max_floats, 16) if self.receive else limit,
            settings=Mux(two.at_port, two.native_settings, two.paper_settings),
            keep=two.at_port & ~two.is_ours_to_code,
            sound=two.sound | ~two.at_port,
            new_tos=Mux(two.at_port, two.tos, two.new_tos),
        )

    def _weighed(self, m, three):
        """Whether the codec takes it."""
        exponent = three.settings[:7]
        return registered(
            m,
            4,
            native=three.native,
            ours=three.ours,
            only_marked=three.only_marked,
            fits=three.fits,
            count=three.count,
            has_count=three.count != 0,
            too_many=(three.count > three.limit) | (three.count > self.max_floats),
            bytes=three.bytes,
            has_tags=three.bytes >= 2,
            unit_limit=Mux(three.native, 0xFFFF, three.short_limit),
            settings=three.settings,
            codable=(exponent >= inline.EXPONENTS[0]) & (exponent <= inline.EXPONENTS[-1]),
            keep=three.keep,
            sound=three.sound,
            new_tos=three.new_tos,
        )

    def _fate(self, six):
        """What becomes of the frame; the last row of these that applies."""
        refused = Fate.CODEC if self.receive else Fate.LIMIT
        fate = Mux(~six.takes, refused, Fate.CODED)
        for applies, value in (
            (six.keep, Fate.KEPT),
            (~six.sound, Fate.FORMAT),
            (~six.ip_holds, Fate.CHECKSUM),
            (~six.fits, Fate.LENGTH),
            (six.only_marked, Fate.KEPT),
        ):
            fate = Mux(applies, value, fate)
        return fate

    @property
    def _paper_head(self):
        """Bytes of UDP that come before the payload in paper framing."""
        start = inline.PAPER_CODED_START if self.receive else inline.PAPER_START
        return start - UDP.start
