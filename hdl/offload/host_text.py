"""Payload of host frames that is no memory's: of a request, or of an answer.

Part of `gradnic.hdl.offload.host_port`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.host_frame import EVENT_BYTES, FORMAT, HELLO, MAX_WORDS
from gradnic.interface.job import COMPLETION, DESCRIPTOR

from ..axi.bursts import Region
from .host_framer import TEXT_BYTES
from .host_intake import STORE_BYTES, PayloadBeat
from .host_judge import N_REGIONS
from .job_records import Descriptor, Record


class HostText(wiring.Component):
    """`TEXT_BYTES`, byte 0 lowest, filled by one request or answer after the other.

    Parameters
    ----------
    n_bytes, address_width, build : see `gradnic.hdl.offload.host_port.HostPort`

    Members
    -------
    values : In(stream.Signature(PayloadBeat(n_bytes)))
        Payloads of requests: those with ``is_text`` are taken at once, others go on.
    beats : Out(stream.Signature({data, keep}))
        What goes on, to memory.
    here : Out(1)
        The last beat of a text is taken.
    text, job : Out(8 * TEXT_BYTES), Out(Descriptor)
        All of it; as a descriptor.
    place, word, enable : In
        A word of it is put in.
    hellos, unit, regions : In(1), In(16), In(ArrayLayout(Region, 2))
        The answer to a HELLO is put in: with longest payload and regions.
    events, record : In(1), In(Record)
        The payload of an EVENT is put in.
    """

    def __init__(self, n_bytes: int, address_width: int, build: dict) -> None:
        self.n_bytes, self.build = n_bytes, dict(build)
        beat = data.StructLayout({"data": 8 * n_bytes, "keep": n_bytes})
        super().__init__(
            {
                "values": In(stream.Signature(PayloadBeat(n_bytes))),
                "beats": Out(stream.Signature(beat)),
                "here": Out(1),
                "text": Out(8 * TEXT_BYTES),
                "job": Out(Descriptor),
                "place": In(range(MAX_WORDS)),
                "word": In(32),
                "enable": In(1),
                "hellos": In(1),
                "unit": In(16),
                "regions": In(data.ArrayLayout(Region(n_bytes, address_width), N_REGIONS)),
                "events": In(1),
                "record": In(Record),
            }
        )

    def elaborate(self, platform):
        m = Module()
        text = Signal(8 * TEXT_BYTES, reset_less=True)
        n, values, beats = self.n_bytes, self.values, self.beats
        index = Signal(range(max(2, TEXT_BYTES // n)))
        takes = values.valid & values.p.is_text
        m.d.comb += [
            self.text.eq(text),
            beats.valid.eq(values.valid & ~values.p.is_text),
            beats.p.data.eq(values.p.data),
            beats.p.keep.eq(values.p.keep),
            values.ready.eq(values.p.is_text | beats.ready),
            self.here.eq(takes & values.p.last),
        ]
        with m.If(takes):
            m.d.sync += index.eq(Mux(values.p.last, 0, index + 1))
            for k in range(TEXT_BYTES // n):
                with m.If(index == k):
                    m.d.sync += text[8 * n * k :][: 8 * n].eq(values.p.data)
        with m.If(self.enable):
            m.d.sync += text.word_select(self.place, 32).eq(self.word)
        hello = self._hello(m)
        event = Signal(8 * EVENT_BYTES)
        for field in COMPLETION:
            m.d.comb += Cat(event[a:b] for a, b in field.slices).eq(self.record[field.name])
        with m.If(self.hellos):
            m.d.sync += text.eq(hello)
        with m.If(self.events):
            m.d.sync += text.eq(event)
        for field in DESCRIPTOR:
            m.d.comb += self.job[field.name].eq(Cat(text[a:b] for a, b in field.slices))
        return m

    def _hello(self, m):
        """What the card is, 64 bytes."""
        regions = {}
        low = ceil_log2(self.n_bytes)
        for k in range(N_REGIONS):
            regions[f"source{k}"] = self.regions[k].first << low
            regions[f"source{k}_bytes"] = self.regions[k].n_beats << low
        values = self.build | regions
        values |= {"format": FORMAT, "map": 1, "payload": self.unit, "credits": STORE_BYTES}
        hello = Signal(8 * HELLO.n_bytes)
        for field in HELLO:
            value = Value.cast(values.get(field.name, 0))
            m.d.comb += Cat(hello[a:b] for a, b in field.slices).eq(value)
        return hello
