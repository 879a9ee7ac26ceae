"""READs of the host: ranges of memory, and the heads of the DATA that they become.

Part of `gradnic.hdl.offload.host_port`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.host_frame import Kind, Status

from ..axi.axi4 import ReadPort
from ..axi.dma import ReadEngine
from ..primitive.names import signals
from ..primitive.same import same
from ..primitive.target import with_exit
from ..stream.beats import Beat
from ..stream.fifo import FIFO
from .host_framer import Answer
from .host_parser import Ends

N_READS = 4  # that wait

Read = data.StructLayout({"address": 48, "seq": 24, "elems": 16})


class HostReader(wiring.Component):
    """Reads ahead: 1 beat a cycle, READs one behind the other, a pause of about 10 cycles between.

    Parameters
    ----------
    n_bytes, address_width : int
        As of `ReadEngine`.

    Members
    -------
    regions, region, offset, n_beats
        As of `ReadEngine` with two regions; of the READ that is asked for.
    reads : In(stream.Signature(Read))
        Within its region.
    ends, session, unit, next : In
        Of the session; must not change while ``busy``, but for ``next``: what an ACK's ARG says.
    heads, values : Out
        See `HostFramer`. Behind the DATA of a READ whose memory had an error comes an ACK; it may
        come behind READs that were asked for meanwhile, too.
    busy : Out(1)
        READs are under way.
    opens, spoiled : In(1), Out(1)
        A session begins; memory had an error in it.
    port : Out(ReadPort(n_bytes, address_width))
    """

    def __init__(self, n_bytes: int, address_width: int) -> None:
        self.n_bytes = n_bytes
        self.engine = ReadEngine(n_bytes, address_width, n_regions=2)
        super().__init__(
            {
                "regions": In(self.engine.splitter.regions_shape),
                "region": In(1),
                "offset": In(24),
                "n_beats": In(24),
                "reads": In(stream.Signature(Read)),
                "ends": In(Ends),
                "session": In(32),
                "unit": In(16),
                "next": In(32),
                "heads": Out(stream.Signature(Answer)),
                "values": Out(stream.Signature(Beat(8 * n_bytes))),
                "busy": Out(1),
                "opens": In(1),
                "spoiled": Out(1),
                "port": Out(ReadPort(n_bytes, address_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.engine = engine = self.engine
        m.submodules.waiting = waiting = FIFO(Read, N_READS)
        wiring.connect(m, engine.port, wiring.flipped(self.port))
        wiring.connect(m, engine.beats, wiring.flipped(self.values))
        takes, ended = signals("takes ended")
        m.d.comb += [
            takes.eq(self.reads.valid & self.reads.ready),
            self.reads.ready.eq(engine.ranges.ready & waiting.i.ready),
            waiting.i.valid.eq(takes),
            waiting.i.p.eq(self.reads.p),
            engine.ranges.valid.eq(takes),
            *same(engine.ranges.p, self, "region offset n_beats"),
            engine.regions.eq(self.regions),
            ended.eq(self.values.valid & self.values.ready & self.values.p.last),
        ]
        over = Signal()  # the oldest READ, and what there was to be told
        failed = self._follow(m, takes, over)
        self._answer(m, waiting.o, ended, failed, over)
        return m

    def _follow(self, m, takes, over):
        """How many are under way, and whether memory has failed one of them."""
        engine = self.engine
        n_under_way = Signal(range(N_READS + 4))
        m.d.sync += n_under_way.eq(n_under_way + takes - over)
        m.d.comb += self.busy.eq(n_under_way != 0)
        failed = Signal()
        with m.If(engine.failed | engine.refused):
            m.d.sync += [failed.eq(1), self.spoiled.eq(1)]
        with m.Else():
            with m.If(~self.busy):
                m.d.sync += failed.eq(0)
            with m.If(self.opens):
                m.d.sync += self.spoiled.eq(0)
        return failed

    def _answer(self, m, waiting, ended, failed, over):
        """Heads of a READ's answers, in pieces of `unit`, then its end."""
        head = self.heads.p
        address = Signal(48)
        left = Signal(17)
        seq = Signal(24)
        last = Signal()
        m.d.comb += [
            last.eq(left <= self.unit),
            head.seq.eq(seq),
            head.ends.eq(self.ends),
        ]
        with m.FSM() as fsm:
            with m.State("wait"):
                m.d.comb += waiting.ready.eq(1)
                m.d.sync += [
                    address.eq(waiting.p.address),
                    seq.eq(waiting.p.seq),
                    left.eq(Cat(0, 0, (waiting.p.elems + 3)[2:])),
                ]
                with m.If(waiting.valid):
                    m.next = "data"
            with m.State("data"):
                m.d.comb += [
                    self.heads.valid.eq(1),
                    head.kind.eq(Kind.DATA),
                    head.address.eq(address),
                    head.elems.eq(Mux(last, left, self.unit)),
                    head.last.eq(last),
                    head.arg.eq(self.session),
                ]
                with m.If(self.heads.ready):
                    m.d.sync += [address.eq(address + self.unit), left.eq(left - self.unit)]
                    with m.If(last):
                        m.next = "end"
            with m.State("end"):
                with m.If(ended):
                    m.d.comb += over.eq(~failed)
                    m.next = "wait"
                    with m.If(failed):
                        m.next = "tell"
            with m.State("tell"):
                m.d.comb += [
                    self.heads.valid.eq(1),
                    head.kind.eq(Kind.ACK),
                    head.status.eq(Status.MEMORY),
                    head.arg.eq(self.next),
                    over.eq(self.heads.ready),
                ]
                with m.If(self.heads.ready):
                    m.next = "wait"
        with_exit(fsm)
