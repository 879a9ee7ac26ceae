"""Makes packets: reads what belongs into each, adds it up, codes it, and writes its head.

Part of `gradnic.hdl.offload.card`, whose golden model it follows.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..axi.bursts import LENGTH_WIDTH, Range
from ..inceptionn.compressor import Compressor
from ..reduction.reduce import Adding
from ..reduction.summing import Summing
from ..stream.beats import Beat
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from ..thc.level_table import LevelWrite
from ..transport.records import (
    N_LAYERS,
    NUMBER_WIDTH,
    Answer,
    OwnPacket,
    Packet,
    PacketHead,
    Round,
    TagWrite,
    Weighed,
)
from ..transport.tagger import Tagger
from . import packet_head, packet_steps, packet_sums
from .packet_sums import N_PACKETS, ROWS_WIDTH

ELEM_BYTES = 4


class PacketMaker(wiring.Component):
    """Packets of partial sums, of the result, and PROBEs: values in the order of their heads.

    A packet takes max(1, contributions) times the number of its beats in cycles, and one more;
    contributions that did not come add nothing. Where sizes decide on importance (``round.tags``),
    the sums of floats are scored, and a head leaves about 30 cycles after its packet's last sum.
    Packets of terminal rows go to ``own`` and ``terminal_values``, through the codec's image where
    the round is coded; a head waits until the sums of those before it have gone there, since memory
    may take them late, or never if the round ends, and whoever has a head waits for its payload.

    Parameters
    ----------
    n_bytes : int
        Of a beat, 16, 32 or 64.
    n_ranks : int
        Contributions to a chunk, at most.
    max_elems : int
        Floats of a packet, at most; 4 times as many indices and sums of THC.
    thc, inc : bool
        False: there are no rounds of norms or THC, and no circuit for their sums; no coded rounds,
        and no compressor.
    bf16 : bool
        False: there are no rounds with BF16 on the wire.
    scale : bool
        False: there are no means. Not with `thc`.
    roots : bool
        Terminal rows read a region of their own.
    maxima : bool
        False: there are no maxima of floats.
    wide : bool
        With `thc`: sums of levels may have 12 or 16 bits. Those of 12 are 16 inside, so a packet
        of them takes a third longer than its beats.
    bits : int
        With `thc`: 4, or 8 for indices of 2 to 8 bits, whose levels ``level_write`` tells.
    shared : bool
        Sums are made in lanes that others use, too: member ``adder``, as of `Reduce`. Payloads
        leave as floats, with their length, whatever the round's codec.

    Members
    -------
    round : In(Round)
    tag_write : In(TagWrite)
        One entry of the tagger's tables, while a round is not armed.
    packets : In(stream.Signature(Packet))
    area : In(24)
        Beats of a landing area.
    ask, answer : Out(number of a packet), In(Answer(n_ranks))
        As of `Receiver`.
    reads : Out(stream.Signature(Range(2 + roots)))
        Of the node's own values: region 0 is the gradient, 1 the result, 2 the gradient again.
    landings : Out(stream.Signature(Range()))
        Of contributions.
    values, contributions : In(stream.Signature(Beat(8 * n_bytes)))
        What was read.
    heads : Out(stream.Signature(PacketHead))
    weighed : Out(Weighed)
        Of each data packet as its head leaves.
    payload : Out(stream.Signature(Beat(8 * n_bytes)))
    own : Out(stream.Signature(OwnPacket))
    terminal_values : Out(stream.Signature(Beat(8 * n_bytes)))
    astray : Out(1)
        1 until a reset: a beat came or was added out of its turn (`Summing`), or a queue knows that
        one of its registers has changed by itself.
    """

    def __init__(
        self,
        n_bytes: int,
        *,
        n_ranks: int = 4,
        max_elems: int = 352,
        thc: bool = True,
        inc: bool = True,
        bf16: bool = False,
        scale: bool = False,
        roots: bool = False,
        wide: bool = False,
        maxima: bool = False,
        bits: int = 4,
        shared: bool = False,
    ) -> None:
        self.n_bytes, self.n_ranks, self.max_elems = n_bytes, n_ranks, max_elems
        self.thc, self.inc, self.bf16, self.roots = thc, inc, bf16, roots
        self.scale, self.wide, self.maxima = scale, wide, maxima
        self.bits, self.shared = bits, shared
        if scale and thc:
            raise ValueError("scale must be off with thc")
        self.lanes = n_bytes // ELEM_BYTES
        beats = stream.Signature(Beat(8 * n_bytes))
        super().__init__(
            {
                "round": In(Round),
                "tag_write": In(TagWrite),
                "packets": In(stream.Signature(Packet)),
                "area": In(LENGTH_WIDTH),
                "ask": Out(NUMBER_WIDTH),
                "answer": In(Answer(n_ranks)),
                "reads": Out(stream.Signature(Range(2 + roots))),
                "landings": Out(stream.Signature(Range())),
                "values": In(beats),
                "contributions": In(beats),
                "heads": Out(stream.Signature(PacketHead)),
                "weighed": Out(Weighed),
                "payload": Out(beats),
                "own": Out(stream.Signature(OwnPacket)),
                "terminal_values": Out(beats),
                "astray": Out(1),
                **({"level_write": In(LevelWrite)} if bits > 4 else {}),
                **({"adder": Out(Adding(self.lanes))} if shared else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.summing = summing = Summing(
            self.lanes, max_beats=-(-self.max_elems // self.lanes), integers=self.thc,
            maxima=self.maxima, shared=self.shared,
        )  # fmt: skip
        if self.shared:
            wiring.connect(m, summing.adder, wiring.flipped(self.adder))
        expands = packet_sums.expand(m, self, "own", self.values, summing.own)
        packs = packet_sums.expand(m, self, "landed", self.contributions, summing.contributions)
        goal = packet_sums.SumRule(self.thc, self.scale, self.wide)
        m.submodules.goals = goals = FIFO(goal, N_PACKETS)
        rows = Signal(ROWS_WIDTH)  # packets of terminal rows whose last sum has gone, modulo
        waiting_head = data.StructLayout(
            {"head": PacketHead, "number": NUMBER_WIDTH, "rows": ROWS_WIDTH}
        )
        m.submodules.head_queue = heads = FIFO(
            waiting_head, N_PACKETS, half_rate=True, watched=True
        )
        m.submodules.owned = owned = FIFO(OwnPacket, N_PACKETS)
        wiring.connect(m, owned.o, wiring.flipped(self.own))
        tagger, to_tag = self._tagger(m)
        self.compressor = None
        if self.inc and not self.shared:
            self.compressor = Compressor(self.lanes, max_floats=self.max_elems)
            m.submodules.compressor = self.compressor
        queues = {"jobs": summing.jobs, "goals": goals.i, "heads": heads.i, "owned": owned.i}
        queues |= {"expands": expands, "packs": packs, "to_tag": to_tag}
        packet_steps.Steps(self, **queues).add_to(m)
        gone, strays = packet_sums.finish(m, self, summing.sums, goals.o, tagger.floats)
        m.d.sync += rows.eq(rows + gone)
        # the tagger stands far away: nothing goes there and back in a cycle
        m.submodules.tagged = tagged = Slice(tagger.tags.p.shape(), half_rate=True)
        wiring.connect(m, tagger.tags, tagged.i)
        m.d.comb += self.astray.eq(summing.astray | heads.astray | strays)
        packet_head.leave(m, self, heads.o, tagged.o, rows)
        return m

    def _tagger(self, m):
        """The tagger, and a queue of what it is to tag: each head, in order."""
        m.submodules.tagger = tagger = Tagger(self.lanes, N_LAYERS, 1)
        m.submodules.to_tag = to_tag = FIFO(tagger.packets.p.shape(), N_PACKETS, half_rate=True)
        wiring.connect(m, to_tag.o, tagger.packets)
        write = self.tag_write
        m.d.comb += [
            tagger.rules.eq(self.round.tags),
            tagger.layer_en.eq(write.layer),
            tagger.layer_addr.eq(write.address),
            tagger.layer_queue.eq(write.value),
            tagger.dscp_en.eq(write.dscp),
            tagger.dscp_addr.eq(write.address),
            tagger.dscp_value.eq(write.value),
            tagger.threshold_en.eq(write.threshold),
            tagger.threshold_value.eq(write.value),
        ]
        return tagger, to_tag.i
