"""Tagger: which queue a gradient packet belongs to, and whether it may be lost.

Sources: DLCP (arXiv 2008.08445) and MLT (NSDI 2024); what of it is ours:
`gradnic.models.transport.tagger`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.names import signals
from ..primitive.target import one_hot
from ..stream.beats import Beat
from ..stream.fifo import FIFO
from .tag_score import Scorer
from .tag_threshold import Thresholds

N_INSIDE = 4  # packets between the first beat and the tag
ECT0 = 2
PUSH, PULL, CONTROL, END = range(4)  # kinds of a packet; END ends a tensor's round
OFF, HOST, HISTOGRAM = range(3)  # sources of a threshold

TagRules = data.StructLayout(
    {
        "by_sum": 1,
        "unit": 8,
        "source": 2,
        "share": 8,
        "back_layer_start": 13,
        "pull_all_important": 1,
    }
)
"""Registers, see `gradnic.models.transport.tagger.Rules`; constant while packets are inside."""

Tag = data.StructLayout({"queue": 3, "important": 1, "score": 8, "tos": 8})


def Tagged(n_tensors: int):
    """A packet to be tagged, see `gradnic.models.transport.tagger.Packet`."""
    width = max(1, ceil_log2(n_tensors))
    return data.StructLayout({"tensor": width, "layer": 12, "kind": 2, "scored": 1, "elems": 16})


class Tagger(wiring.Component):
    """Tags packets: a beat of floats per cycle, a packet in 9 cycles at least.

    Twin of `gradnic.models.transport.tagger.Tagger`. A tag is offered at most latency(Scorer) + 15
    cycles after the packet's last beat, 540 more where a round ends before it. Up to `N_INSIDE`
    packets are inside; a stalled output stalls the inputs, and nothing is lost. After reset,
    n_tensors * 256 cycles pass before the first tag.

    Parameters
    ----------
    n_lanes : int
        Floats per beat, a power of two.
    n_layers : int
        2 to 4096.
    n_tensors : int
        1 to 64.

    Members
    -------
    rules : In(TagRules)
    packets : In(stream.Signature(Tagged(n_tensors)))
        In order of their beats. A packet of kind END ends the round of its tensor and gets no tag.
    floats : In(stream.Signature(Beat(32 * n_lanes)))
        Values of the packets that have ``scored`` and are not CONTROL or END; lanes behind the
        last value are +0.
    tags : Out(stream.Signature(Tag))
    layer_en, layer_addr, layer_queue : In
        Writes the queue of a layer; undefined after reset.
    dscp_en, dscp_addr, dscp_value : In
        Writes the DSCP of 2 * queue + important; undefined after reset.
    threshold_en, threshold_tensor, threshold_value : In
        Writes a tensor's threshold, 0 to 256, while no round ends.
    """

    def __init__(self, n_lanes: int, n_layers: int, n_tensors: int) -> None:
        if not 2 <= n_layers <= 4096:
            raise ValueError(f"n_layers must be 2 to 4096, not {n_layers!r}")
        self.n_lanes, self.n_layers, self.n_tensors = n_lanes, n_layers, n_tensors
        self.scorer, self.thresholds = Scorer(n_lanes), Thresholds(n_tensors)
        super().__init__(
            {
                "rules": In(TagRules),
                "packets": In(stream.Signature(Tagged(n_tensors))),
                "floats": In(stream.Signature(Beat(32 * n_lanes))),
                "tags": Out(stream.Signature(Tag)),
                "layer_en": In(1),
                "layer_addr": In(ceil_log2(n_layers)),
                "layer_queue": In(3),
                "dscp_en": In(1),
                "dscp_addr": In(4),
                "dscp_value": In(6),
                "threshold_en": In(1),
                "threshold_tensor": In(self.thresholds.tensor_width),
                "threshold_value": In(9),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.scorer = self.scorer
        m.submodules.thresholds = self.thresholds
        m.submodules.order = order = FIFO(self.packets.p.shape(), N_INSIDE)
        m.submodules.scores = scores = FIFO(8, 2 * N_INSIDE)  # also those on their way
        self._take(m, order, scores)
        self._tag(m, order, scores)
        return m

    def _take(self, m, order, scores):
        """The front: a packet's beats go through the scorer, the packet into the order."""
        scorer = self.scorer
        inside, has_beats = signals("inside has_beats")
        ends = self.floats.valid & self.floats.p.last
        may_start = ~inside | ends
        p = self.packets.p
        m.d.comb += [
            has_beats.eq(p.scored & (p.kind != CONTROL) & (p.kind != END)),
            self.packets.ready.eq(may_start & order.i.ready),
            order.i.valid.eq(may_start & self.packets.valid),
            order.i.p.eq(p),
            self.floats.ready.eq(inside),
            scorer.push.eq(self.floats.valid & inside),
            scorer.last.eq(self.floats.p.last),
            scorer.data.eq(self.floats.p.data),
            scorer.by_sum.eq(self.rules.by_sum),
            scorer.unit.eq(self.rules.unit),
            scores.i.valid.eq(scorer.done),
            scores.i.payload.eq(scorer.score),
        ]
        with m.If(may_start):
            m.d.sync += inside.eq(self.packets.valid & order.i.ready & has_beats)

    def _tables(self, m):
        """(Queue of a layer, DSCP of importance and queue): ports to read."""
        m.submodules.layers = layers = memory.Memory(
            shape=3, depth=self.n_layers, init=[], attrs={"ram_style": "distributed"}
        )
        m.submodules.dscp = dscp = memory.Memory(
            shape=6, depth=16, init=[], attrs={"ram_style": "distributed"}
        )
        layer = layers.read_port(domain="comb")
        layer_write = layers.write_port()
        dscp_of = dscp.read_port(domain="comb")
        dscp_write = dscp.write_port()
        for port, en, addr, value in (
            (layer_write, self.layer_en, self.layer_addr, self.layer_queue),
            (dscp_write, self.dscp_en, self.dscp_addr, self.dscp_value),
        ):
            m.d.comb += [port.en.eq(en), port.addr.eq(addr), port.data.eq(value)]
        return layer, dscp_of

    def _tag(self, m, order, scores):
        """The back: one packet after the other."""
        thresholds, rules, now = self.thresholds, self.rules, order.o.p
        layer, dscp_of = self._tables(m)
        tag = Signal(Tag)
        by_size = Signal()
        always = (
            (now.layer >= rules.back_layer_start)
            | (now.kind == CONTROL)
            | ((now.kind == PULL) & rules.pull_all_important)
        )
        m.d.comb += [
            layer.addr.eq(now.layer),
            dscp_of.addr.eq(Cat(tag.important, tag.queue)),
            thresholds.scores.p.tensor.eq(now.tensor),
            thresholds.scores.p.score.eq(scores.o.payload),
            thresholds.scores.p.elems.eq(now.elems),
            thresholds.ends.payload.eq(now.tensor),
            thresholds.use_histogram.eq(rules.source == HISTOGRAM),
            thresholds.share.eq(rules.share),
            thresholds.write_en.eq(self.threshold_en),
            thresholds.write_tensor.eq(self.threshold_tensor),
            thresholds.write_value.eq(self.threshold_value),
            self.tags.p.eq(tag),
            self.tags.p.tos.eq(Cat(Mux(tag.important, ECT0, 0)[:2], dscp_of.data)),
        ]
        with m.FSM() as fsm:
            with m.State("NEXT"):
                m.d.sync += [by_size.eq(0), tag.score.eq(0)]
                with m.If(order.o.valid):
                    with m.If(now.kind == END):
                        m.next = "END"
                    with m.Elif(now.scored & (now.kind != CONTROL)):
                        m.next = "ASK"
                    with m.Else():
                        m.next = "FORM"
            with m.State("END"):
                m.d.comb += thresholds.ends.valid.eq(1)
                with m.If(thresholds.ends.ready):
                    m.d.comb += order.o.ready.eq(1)
                    m.next = "NEXT"
            with m.State("ASK"):
                m.d.comb += thresholds.scores.valid.eq(scores.o.valid)
                with m.If(scores.o.valid & thresholds.scores.ready):
                    m.d.comb += scores.o.ready.eq(1)
                    m.d.sync += tag.score.eq(scores.o.payload)
                    m.next = "REACHED"
            with m.State("REACHED"):
                m.d.comb += thresholds.reached.ready.eq(1)
                with m.If(thresholds.reached.valid):
                    m.d.sync += by_size.eq(thresholds.reached.payload & (rules.source != OFF))
                    m.next = "FORM"
            with m.State("FORM"):
                m.d.sync += [tag.queue.eq(layer.data), tag.important.eq(by_size | always)]
                m.d.comb += order.o.ready.eq(1)
                m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += self.tags.valid.eq(1)
                with m.If(self.tags.ready):
                    m.next = "NEXT"
        one_hot(fsm)
