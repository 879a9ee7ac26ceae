"""Thresholds of the tagger: written by the host, or taken from the scores of the last round.

Golden model: `gradnic.models.transport.tag_threshold`.
"""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.block_ram import BlockRAM
from ..primitive.multiplier import Multiplier
from ..primitive.names import signals
from ..primitive.target import one_hot
from ..primitive.zeroed_table import ZeroedTable
from ..stream.delays import delayed, delayed_flag

N_BINS = 256
WEIGHT = 32  # elements of a tensor in one round: below 2**32


class Thresholds(wiring.Component):
    """Compares scores with their tensor's threshold and counts them in its histogram.

    One `gradnic.models.transport.tag_threshold.Threshold` for each tensor. A score takes 6 cycles.
    The end of a round takes about 540: one pass adds up the weights, one goes down from the largest
    score until the share is reached, and clears. After reset, n_tensors * 256 cycles pass before
    anything is taken.

    Parameters
    ----------
    n_tensors : int
        1 to 64.

    Members
    -------
    scores : In(stream.Signature({tensor, score, elems}))
    reached : Out(stream.Signature(1))
        The score is at least the threshold.
    ends : In(stream.Signature(tensor))
        The tensor's round is over. Taken once it has been worked off.
    use_histogram, share : In(1), In(8)
        A round that counted something sets the threshold, at `share` / 256 of its elements.
    write_en, write_tensor, write_value : In
        The host's threshold, 0 to 256; 0 after power-up.
    """

    def __init__(self, n_tensors: int) -> None:
        if not 1 <= n_tensors <= 64:
            raise ValueError(f"n_tensors must be 1 to 64, not {n_tensors!r}")
        self.n_tensors = n_tensors
        self.tensor_width = width = max(1, ceil_log2(n_tensors))
        self.asked = data.StructLayout({"tensor": width, "score": 8, "elems": 16})
        super().__init__(
            {
                "scores": In(stream.Signature(self.asked)),
                "reached": Out(stream.Signature(1)),
                "ends": In(stream.Signature(width)),
                "use_histogram": In(1),
                "share": In(8),
                "write_en": In(1),
                "write_tensor": In(width),
                "write_value": In(9),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.bins = bins = BlockRAM(WEIGHT, max(2, self.n_tensors) * N_BINS)
        m.submodules.values = values = ZeroedTable(9, 2**self.tensor_width)
        m.submodules.product = product = Multiplier(WEIGHT, 8)
        asked = Signal(self.asked)
        clock = Signal(3)
        raised = Signal(WEIGHT, reset_less=True)  # its bin, with this one
        threshold = Signal(9, reset_less=True)
        m.d.sync += [
            clock.eq(clock + 1),
            raised.eq(bins.read_data + asked.elems),
            threshold.eq(values.read_data),
        ]
        tensor = Signal(self.tensor_width)
        index = Signal(8)  # of the pass over all bins, downwards
        m.d.comb += [
            values.read_addr.eq(asked.tensor),
            values.write_en.eq(self.write_en),
            values.write_addr.eq(self.write_tensor),
            values.write_data.eq(self.write_value),
        ]
        with m.If(self.reached.ready):
            m.d.sync += self.reached.valid.eq(0)

        way = self._pass(m, product, index)
        clear = Signal(range(max(2, self.n_tensors) * N_BINS))
        with m.FSM() as fsm:
            with m.State("CLEAR"):
                m.d.comb += [bins.write_en.eq(1), bins.write_addr.eq(clear)]
                m.d.sync += clear.eq(clear + 1)
                with m.If(clear == max(2, self.n_tensors) * N_BINS - 1):
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.sync += [clock.eq(0), index.eq(N_BINS - 1), tensor.eq(self.ends.payload)]
                with m.If(self.scores.valid & ~self.reached.valid):
                    m.d.comb += self.scores.ready.eq(1)
                    m.d.sync += asked.eq(self.scores.payload)
                    m.next = "COUNT"
                with m.Elif(self.ends.valid & ~self.scores.valid):
                    m.d.sync += [way.total.eq(0), way.above.eq(0), way.found.eq(0)]
                    m.next = "SUM"
            with m.State("COUNT"):
                place_of = Cat(asked.score, asked.tensor)
                m.d.comb += [
                    bins.read_addr.eq(place_of),
                    bins.write_addr.eq(place_of),
                    bins.write_data.eq(raised),
                ]
                with m.If(clock == 3):
                    m.d.comb += bins.write_en.eq(1)
                    m.d.sync += [
                        self.reached.valid.eq(1),
                        self.reached.payload.eq(asked.score >= threshold),
                    ]
                    m.next = "IDLE"
            self._add_up(m, bins, way, tensor, index, clock)
            self._find(m, bins, way, tensor, index)
            with m.State("SET"):
                m.d.comb += self.ends.ready.eq(1)
                with m.If(self.use_histogram & way.counted):
                    m.d.comb += [
                        values.write_en.eq(1),
                        values.write_addr.eq(tensor),
                        values.write_data.eq(Mux(self.share.any(), way.place, N_BINS)),
                    ]
                m.next = "IDLE"
        one_hot(fsm)
        return m

    def _pass(self, m, product, index):
        """What both passes over the bins keep, and where they are; what they read comes 2 cycles
        later.
        """
        reads = Signal()
        here = delayed_flag(m, reads, 2, name="here")
        bin_ = delayed(m, index, 2, name="bin")
        over = delayed_flag(m, reads & (index == 0), 5, name="over")
        total, above = signals("total above", WEIGHT)
        counted = delayed_flag(m, total.any(), 1, name="counted")
        found = Signal()
        place = Signal(8)
        compared = delayed_flag(m, here, 2, name="compared")
        compared_bin = delayed(m, bin_, 2, name="compared_bin")
        reaches = Signal(reset_less=True)
        m.d.comb += [product.a.eq(total), product.b.eq(self.share)]
        m.d.sync += reaches.eq((above << 8) >= product.p)
        return SimpleNamespace(
            reads=reads, here=here, bin=bin_, over=over, total=total, above=above, counted=counted,
            found=found, place=place, compared=compared, compared_bin=compared_bin, reaches=reaches,
        )  # fmt: skip

    @staticmethod
    def _add_up(m, bins, way, tensor, index, clock):
        """The first pass: the sum of all weights, and its share."""
        with m.State("SUM"):
            m.d.comb += [way.reads.eq(1), bins.read_addr.eq(Cat(index, tensor))]
            m.d.sync += index.eq(index - 1)
            with m.If(way.here):
                m.d.sync += way.total.eq(way.total + bins.read_data)
            with m.If(index == 0):
                m.next = "SUMMED"
        with m.State("SUMMED"):
            with m.If(way.here):
                m.d.sync += way.total.eq(way.total + bins.read_data)
            m.d.sync += index.eq(N_BINS - 1)
            with m.If(way.over):
                m.d.sync += clock.eq(0)
                m.next = "PRODUCT"
        with m.State("PRODUCT"):
            with m.If(clock == 5):
                m.next = "SCAN"

    @staticmethod
    def _find(m, bins, way, tensor, index):
        """The second one: down to the bin at which the share is reached; it clears them all."""
        with m.State("SCAN"):
            running = Signal(init=1)
            m.d.comb += [
                way.reads.eq(running),
                bins.read_addr.eq(Cat(index, tensor)),
                bins.write_addr.eq(Cat(way.bin, tensor)),
                bins.write_en.eq(way.here),
            ]
            m.d.sync += [index.eq(index - 1), running.eq(running & index.any())]
            with m.If(way.here):
                m.d.sync += way.above.eq(way.above + bins.read_data)
            with m.If(way.compared & ~way.found & way.reaches):
                m.d.sync += [way.found.eq(1), way.place.eq(way.compared_bin)]
            with m.If(way.over):
                m.d.sync += running.eq(1)
                m.next = "SET"
