"""Reads the head of each frame while its beats wait: what all cards ask of a head, in one place.

Twin of `gradnic.models.frame.parser`. What else a frame must be, which jobs and senders there are,
and what is kept of the head are the rules of each card, which are a subclass.
"""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import (
    ETHERNET,
    ETHERTYPE_IPV4,
    GRADNIC,
    HEAD_BYTES,
    IP_PROTOCOL_UDP,
    IPV4,
    NETWORK_OPS,
)
from gradnic.interface.inline import Fate

from ..primitive.same import same
from ..stream.beats import FrameBeat
from ..stream.delays import delayed_flag
from ..stream.fifo import FIFO
from .head import QUEUE_BEATS, queued_heads


def plain_udp(field) -> dict:
    """{name: flag}: all 1 for Ethernet, IPv4 without options, UDP, and no fragment.

    field : function from a `gradnic.interface.formats.Field` to its bits in the head.
    """
    return {
        "ethertype": field(ETHERNET.ethertype) == ETHERTYPE_IPV4,
        "plain": (field(IPV4.version) == 4) & (field(IPV4.ihl) == 5),
        "udp_protocol": field(IPV4.protocol) == IP_PROTOCOL_UDP,
        "whole": (field(IPV4.fragment_offset) == 0) & ~field(IPV4.more_fragments),
    }


def sound_flags(field) -> dict:
    """{name: flag}: all 1 if the gradnic head has a known OP, and SET is GEN[0]."""
    op = field(GRADNIC.op)
    return {
        "known": Cat(op == int(known) for known in NETWORK_OPS).any(),
        "same_set": field(GRADNIC.set) == field(GRADNIC.gen)[0],
    }


def place_of(flags, n: int):
    """Number of the one flag of `n` that is 1."""
    width = max(1, (n - 1).bit_length())
    return Cat(Cat(flags[k] for k in range(n) if k >> bit & 1).any() for bit in range(width))


def checked(check, sums: SimpleNamespace) -> list:
    """Assignments to ``check``, a `FrameClass` of a frame that is ours, from the `envelope`."""
    return [
        check.ours.eq(1),
        check.fate.eq(Mux(sums.fits, Mux(sums.ip_holds, Fate.CODED, Fate.CHECKSUM), Fate.LENGTH)),
        *same(check, sums, "end pseudo unsummed"),
    ]


class HeadParser(wiring.Component):
    """Reads heads by the rules of a subclass: the beats come out behind the facts of their frame.

    Full rate, also for frames of one beat. Facts are offered ``depth`` + 3 cycles after the frame's
    64th byte, or its last, came in, until when beats wait in a queue of `QUEUE_BEATS`; with
    ``half_rate`` a cycle or more later. What rules read is read once per frame.

    A subclass has ``depth``, ``stops`` and ``judge``.

    Parameters
    ----------
    n_bytes, meta_width : int
        Shape of the beats, see `FrameBeat`.
    facts : shape-like
        What the head says of a frame.
    members : dict
        Members of the component that rules read, and what they answer.
    keeps_meta : bool
        Beats that come out have their side band.
    least_beats : int
        Beats of the shortest frame.
    half_rate : bool
        Facts leave every second cycle at most.

    Members
    -------
    i, beats : In, Out(stream.Signature(FrameBeat(...)))
    facts : Out(stream.Signature(facts))
        One per frame, in order.
    """

    depth: int
    """Cycles that ``judge`` takes."""
    stops: tuple = (HEAD_BYTES,)
    """Ends of heads, in bytes: see ``whole``."""

    def __init__(
        self,
        n_bytes: int,
        *,
        meta_width: int,
        facts: ShapeLike,
        members: dict,
        keeps_meta: bool = False,
        least_beats: int = 1,
        half_rate: bool = False,
    ) -> None:
        self.n_bytes, self.meta_width = n_bytes, meta_width
        self.facts_shape, self.half_rate = facts, half_rate
        # no more frames are in the queue, its output and the pipeline
        self.n_facts = 2 * QUEUE_BEATS // least_beats
        self.shape = FrameBeat(n_bytes, meta_width=meta_width)
        left = self.shape if keeps_meta else FrameBeat(n_bytes)
        super().__init__(
            {
                "i": In(stream.Signature(self.shape)),
                "beats": Out(stream.Signature(left)),
                "facts": Out(stream.Signature(facts)),
                **members,
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.facts = facts = FIFO(
            self.facts_shape, self.n_facts, never_full=True, half_rate=self.half_rate
        )
        wiring.connect(m, facts.o, wiring.flipped(self.facts))
        head, meta, whole, complete = queued_heads(
            m, self.i, self.beats, self.n_bytes, stops=self.stops
        )
        m.d.comb += [
            facts.i.valid.eq(delayed_flag(m, complete, self.depth + 1, name="valid")),
            facts.i.p.eq(self.judge(m, head, meta, whole)),
        ]
        return m

    def judge(self, m, head, meta, whole):
        """Facts, `depth` cycles after the head was complete.

        head : `gradnic.hdl.frame.head.HeadBits`. meta : side band of its frame. whole : bit k says
        that the frame has the byte before ``stops[k]``.
        """
        raise NotImplementedError
