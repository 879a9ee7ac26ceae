"""What each neighbor may lose of a round: its share of all that it sends up, weighed by leaves; or
the rest, which must come.

Golden model: `gradnic.models.transport.allowance_walk`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..primitive.names import signals
from ..primitive.target import one_hot
from .records import BYTES_WIDTH, CHUNK_WIDTH, N_NEIGHBORS, Allowance, Geometry, Places

LAST_WIDTH = 29  # of elements of the last chunk
SHARE_WIDTH = 16
LATENCY = 2  # of the table of senders
_LEAVES = 8 + CHUNK_WIDTH  # of a neighbor's, in all whole chunks


class AllowanceWalk(wiring.Component):
    """Writes all neighbors' allowances: a cycle each if nothing may miss, else one for each chunk
    and 7 more, and about 50 for a neighbor that sends anything up.

    With ``at_share`` what must come; a number that is never reached if nothing may miss.

    Parameters
    ----------
    n_ranks, bits : int
        As of `Receiver`.

    Members
    -------
    start, busy : In(1), Out(1)
        A strobe. All inputs stay as they are while it is busy.
    share : In(16)
        That may miss, in 1/65536.
    geometry, last_elems, thc : In(Geometry), In(29), In(1)
        How the tensor is cut; elements of its last chunk; an element has half a byte, not 4;
        or ``bits`` : In(4) bits.
    at_share : In(1)
    chunk, places : Out(CHUNK_WIDTH), In(Places(n_ranks))
        Of the table of senders, `LATENCY` cycles later.
    write : Out(Allowance)
    """

    def __init__(self, n_ranks: int, bits: int = 4) -> None:
        self.varies = bits > 4
        super().__init__(
            {
                "start": In(1),
                "busy": Out(1),
                "share": In(SHARE_WIDTH),
                "geometry": In(Geometry),
                "last_elems": In(LAST_WIDTH),
                "thc": In(1),
                "at_share": In(1),
                **({"bits": In(4)} if self.varies else {}),
                "chunk": Out(CHUNK_WIDTH),
                "places": In(Places(n_ranks)),
                "write": Out(Allowance),
            }
        )

    def _octets(self, elems):
        indices = (elems * self.bits) >> 3 if self.varies else elems >> 1
        return Mux(self.thc, indices, elems << 2)

    def _add_up(self, m, neighbor, chunk, asks, whole, last):
        """Leaves of `neighbor` behind its chunks, those of `whole` ones and of the `last`. Returns
        which cycles ago it was asked for chunks, as long as an answer is under way.
        """
        # a cycle after a chunk's senders are known: this neighbor's leaves
        asked, last_asked = signals("asked last_asked", LATENCY + 2)
        leaves = Signal(8, reset_less=True)
        mine = 0
        for one in self.places.up:
            mine = mine | Mux(one.valid & (one.neighbor == neighbor), one.leaves, 0)
        is_last = chunk == self.geometry.last_chunk
        m.d.sync += [
            leaves.eq(mine),
            asked.eq(asked << 1 | asks),
            last_asked.eq(last_asked << 1 | (asks & is_last)),
        ]
        m.d.comb += self.chunk.eq(chunk)
        arrives = asked[LATENCY]
        with m.If(arrives & last_asked[LATENCY]):
            m.d.sync += last.eq(leaves)
        with m.Elif(arrives):
            m.d.sync += whole.eq(whole + leaves)
        return asked

    def elaborate(self, platform):
        m = Module()
        neighbor = Signal(range(N_NEIGHBORS))
        chunk = Signal(CHUNK_WIDTH, reset_less=True)
        asks = Signal()
        whole = Signal(_LEAVES, reset_less=True)
        last = Signal(8, reset_less=True)
        asked = self._add_up(m, neighbor, chunk, asks, whole, last)
        # total += factor * term, a bit of the factor a cycle
        factor = Signal(_LEAVES, reset_less=True)
        term = Signal(BYTES_WIDTH + SHARE_WIDTH, reset_less=True)
        total = Signal(BYTES_WIDTH + SHARE_WIDTH, reset_less=True)
        everything = Signal(BYTES_WIDTH, reset_less=True)  # with at_share: without its share
        multiplied = factor == 0
        with m.If(factor[0]):
            m.d.sync += total.eq(total + term)
        m.d.sync += [factor.eq(factor >> 1), term.eq(term << 1)]
        chunk_elems = self.geometry.chunk << 4
        write, share = self.write, (total >> SHARE_WIDTH)[:BYTES_WIDTH]
        m.d.comb += [
            write.index.eq(neighbor),
            write.bytes.eq(Mux(self.at_share, everything - share, share)),
        ]
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("REST"))
            with m.State("REST"):
                m.d.sync += neighbor.eq(0)
                with m.If(self.start):
                    m.next = "NEXT"
            with m.State("NEXT"):
                m.d.sync += [
                    chunk.eq(self.geometry.last_chunk),
                    *(number.eq(0) for number in (whole, last, total, factor)),
                    everything.eq(-1),
                ]
                m.next = "WRITE"
                with m.If(self.share != 0):
                    m.next = "WALK"
            with m.State("WALK"):
                m.d.comb += asks.eq(1)
                m.d.sync += chunk.eq(chunk - 1)
                with m.If(chunk == 0):
                    m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(asked == 0):
                    m.d.sync += [
                        factor.eq(whole),
                        term.eq(self._octets(chunk_elems)),
                    ]
                    m.next = "WHOLE"
            with m.State("WHOLE"):
                with m.If(multiplied):
                    m.d.sync += [
                        factor.eq(last),
                        term.eq(self._octets(self.last_elems)),
                    ]
                    m.next = "LAST"
            with m.State("LAST"):
                with m.If(multiplied):
                    m.d.sync += [factor.eq(self.share), term.eq(total), total.eq(0)]
                    m.d.sync += everything.eq(total)
                    m.next = "SHARE"
            with m.State("SHARE"):
                with m.If(multiplied):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += write.enable.eq(1)
                m.d.sync += neighbor.eq(neighbor + 1)
                m.next = "NEXT"
                with m.If(self.share == 0):  # all are the same
                    m.next = "WRITE"
                with m.If(neighbor == N_NEIGHBORS - 1):
                    m.next = "REST"
        one_hot(fsm)
        return m
