"""Reads the head of each frame and says what the frame is, and what is to become of it.

The table behind it: docs/spec/wire.md; the same in words of software: `gradnic.models.inline`.
Nothing here waits: the pipeline runs freely beside a queue of beats.

Part of `gradnic.hdl.inline.card`, whose golden model it follows.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface import inline
from gradnic.interface.formats import (
    ETHERNET,
    ETHERTYPE_IPV4,
    GRADNIC,
    HEAD_BYTES,
    IP_PROTOCOL_UDP,
    IPV4,
    UDP,
    VERSION,
    Op,
)
from gradnic.interface.inline import Fate

from ..frame.classes import FrameClass
from ..frame.head import QUEUE_BEATS, RAW_HEAD, collect, registered
from ..stream.beats import FrameBeat
from ..stream.delays import delayed_flag
from ..stream.fifo import FIFO


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


class Parser(wiring.Component):
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
    classes : Out(stream.Signature(FrameClass()))
        One per frame, in order.
    settings : In(Settings())
    """

    def __init__(
        self,
        n_bytes: int,
        *,
        receive: bool,
        meta_width: int = 0,
        max_floats: int = inline.MAX_FLOATS,
    ) -> None:
        self.n_bytes = n_bytes
        self.receive = receive
        self.max_floats = max_floats
        self.shape = FrameBeat(n_bytes, meta_width=meta_width)
        frames = stream.Signature(self.shape)
        super().__init__(
            {
                "i": In(frames),
                "beats": Out(frames),
                "classes": Out(stream.Signature(FrameClass())),
                "settings": In(Settings()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = FIFO(self.shape, QUEUE_BEATS)
        # Never fills: it holds no more frames than the queue beats, its output and the pipeline.
        m.submodules.classes = classes = FIFO(FrameClass(), 2 * QUEUE_BEATS, never_full=True)
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        wiring.connect(m, queue.o, wiring.flipped(self.beats))
        wiring.connect(m, classes.o, wiring.flipped(self.classes))

        head, done, present = self._capture(m)
        m.d.comb += [
            classes.i.valid.eq(delayed_flag(m, done, 7, name="valid")),
            classes.i.p.eq(self._classify(m, head, present)),
        ]
        return m

    def _capture(self, m):
        """The `Head` of a frame, a pulse when it (or all there is) has come in, and which of its
        bytes there are: {byte: Signal}.
        """
        n, beat = self.n_bytes, self.i.p
        head, _, complete, index = collect(m, self.i, n)
        present = {}
        for byte in (UDP.stop - 1, GRADNIC.job.byte, HEAD_BYTES - 1):
            present[byte] = Signal(name=f"has_byte_{byte}", reset_less=True)
            here = beat.keep[byte % n] | ~beat.last
            m.d.sync += present[byte].eq((index > byte // n) | ((index == byte // n) & here))
        return head, delayed_flag(m, complete, 1, name="done"), present

    def _classify(self, m, head, present):
        """FrameClass, 7 cycles after the head was complete."""
        field, word = head.field, head.word
        s = self.settings
        tos, udp, total = field(IPV4.tos), field(UDP.length), field(IPV4.total_length)
        op, port = field(GRADNIC.op), field(UDP.destination_port)
        job = field(GRADNIC.job)
        if self.receive:
            framed = word(inline.PAPER_START)
            p0, p1 = field(GRADNIC.p0), field(GRADNIC.p1).as_signed()
            new_tos = (tos & ~s.mask) | (s.tos & s.mask)
        else:
            framed = (udp - (UDP.stop - UDP.start))[2:16]
            p0, p1 = Cat(s.exponent, s.paper_codec), s.prescale
            new_tos = (tos & ~s.mask) | (s.coded & s.mask)

        one = registered(
            m,
            1,
            ethertype=field(ETHERNET.ethertype) == ETHERTYPE_IPV4,
            plain=(field(IPV4.version) == 4) & (field(IPV4.ihl) == 5),
            udp_protocol=field(IPV4.protocol) == IP_PROTOCOL_UDP,
            whole=(field(IPV4.fragment_offset) == 0) & ~field(IPV4.more_fragments),
            has_udp=present[UDP.stop - 1],
            has_job=present[GRADNIC.job.byte],
            has_head=present[HEAD_BYTES - 1],
            marked=((tos ^ s.tos) & s.mask) == 0,
            marked_coded=((tos ^ s.coded) & s.mask) == 0,
            at_port=port == s.port,
            above=port >= s.low,
            below=port <= s.high,
            paper_on=s.paper,
            job_word=Array(s.jobs[k : k + 32] for k in range(0, inline.N_JOBS, 32))[job[5:]],
            job_bit=job[:5],
            udp=udp,
            udp_in_ip=udp + (UDP.start - IPV4.start),
            total=total,
            elems=field(GRADNIC.elems),
            elems_in_udp=(field(GRADNIC.elems) << 2) + RAW_HEAD,
            framed=framed,
            is_raw=op == Op.RAW,
            is_inc=op == Op.INC,
            is_floats=(op == Op.RAW) | (op == Op.INT32),
            known=Cat(op == int(known) for known in Op).any(),
            version=field(GRADNIC.ver) == VERSION,
            same_set=field(GRADNIC.set) == field(GRADNIC.gen)[0],
            limit=s.limit,
            paper_settings=Cat(s.exponent, s.paper_codec, s.prescale),
            native_settings=Cat(p0, p1),
            tos=tos,
            new_tos=new_tos,
            source=word(IPV4.source.byte) + word(IPV4.source.byte + 2),
            destination=word(IPV4.destination.byte) + word(IPV4.destination.byte + 2),
            flags=word(IPV4.identification.byte) + word(IPV4.reserved.byte),
            hops=word(IPV4.ttl.byte),
            sized=word(IPV4.start) + total,
            checksum=field(IPV4.checksum),
            unsummed=field(UDP.checksum) == 0,
        )
        two = registered(
            m,
            2,
            is_udp=one.ethertype & one.plain & one.udp_protocol & one.whole & one.has_udp,
            at_port=one.at_port,
            job=one.job_word.bit_select(one.job_bit, 1) & one.has_job & one.version,
            has_head=one.has_head,
            in_range=one.above & one.below & one.paper_on,
            marked=one.marked,
            marked_coded=one.marked_coded,
            lengths_agree=one.udp_in_ip == one.total,
            elems_agree=(one.elems_in_udp == one.udp) | ~one.is_floats,
            holds_head=one.udp >= RAW_HEAD,
            # in: u16 count of floats; out: a whole number of floats, at least 1
            holds_paper=(
                (one.udp >= inline.PAPER_CODED_START - UDP.start)
                if self.receive
                else (one.udp >= 12) & (one.udp[:2] == 0)
            ),
            udp=one.udp,
            end=one.udp + UDP.start,
            elems=one.elems,
            framed=one.framed,
            is_ours_to_code=one.is_inc if self.receive else one.is_raw,
            sound=one.known & one.same_set,
            limit=one.limit,
            paper_settings=one.paper_settings,
            native_settings=one.native_settings,
            tos=one.tos,
            new_tos=one.new_tos,
            addresses=one.source + one.destination,
            rest=one.flags + one.hops,
            sized=one.sized + one.checksum,
            udp_pseudo=one.udp + IP_PROTOCOL_UDP,
            unsummed=one.unsummed,
        )
        marks = (two.marked | two.marked_coded) if self.receive else two.marked
        limit = Mux(two.at_port, two.limit, self.max_floats)
        three = registered(
            m,
            3,
            native=two.at_port,
            ours=two.is_udp & Mux(two.at_port, two.job, two.in_range & marks),
            only_marked=~two.at_port & ~two.marked_coded if self.receive else Const(0),
            fits=two.lengths_agree
            & Mux(
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
            end=two.end,
            new_tos=Mux(two.at_port, two.tos, two.new_tos),
            base=two.addresses + two.rest,
            pseudo=two.addresses + two.udp_pseudo,
            sized=two.sized,
            unsummed=two.unsummed,
        )
        exponent = three.settings[:7]
        four = registered(
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
            end=three.end,
            new_tos=three.new_tos,
            base=three.base,
            pseudo=three.pseudo,
            ip_sum=three.base + three.sized,
            unsummed=three.unsummed,
        )
        takes = four.has_count & ~four.too_many & four.codable
        same = ("native", "ours", "only_marked", "fits", "count", "bytes", "unit_limit")
        same += ("settings", "keep", "sound", "end", "new_tos", "base", "pseudo", "unsummed")
        five = registered(
            m,
            5,
            **{name: getattr(four, name) for name in same},
            takes=takes & four.has_tags if self.receive else takes,
            folded=four.ip_sum[:16] + four.ip_sum[16:],
        )
        six = registered(
            m,
            6,
            **{name: getattr(five, name) for name in same},
            takes=five.takes,
            ip_holds=Mux(five.folded[16], five.folded[:16] == 0xFFFE, five.folded[:16] == 0xFFFF),
        )
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
        result = Signal(FrameClass(), reset_less=True)
        unit = result.unit
        m.d.sync += [
            result.ours.eq(six.ours),
            result.coding.eq(
                six.takes & six.sound & six.ip_holds & six.fits & ~six.keep & ~six.only_marked
            ),
            result.unchecked.eq(six.only_marked),
            result.fate.eq(fate),
            result.end.eq(six.end),
            result.pseudo.eq(six.pseudo),
            result.unsummed.eq(six.unsummed),
            unit.native.eq(six.native),
            unit.count.eq(six.count),
            unit.bytes.eq(six.bytes),
            Cat(unit.exponent, unit.paper, unit.prescale.as_unsigned()).eq(six.settings),
            unit.limit.eq(six.unit_limit),
            unit.tos.eq(six.new_tos),
            unit.base.eq(six.base),
        ]
        return result

    @property
    def _paper_head(self):
        """Bytes of UDP that come before the payload in paper framing."""
        start = inline.PAPER_CODED_START if self.receive else inline.PAPER_START
        return start - UDP.start
