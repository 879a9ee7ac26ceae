"""The circuit of host frames with memory and registers around it, and what it does with frames.

Memory has 64 KiB, and answers after `LATENCY` cycles, from `BROKEN` on with an error if it is to;
registers are 16 words, jobs a stream that may be full.
"""

from functools import cache

import numpy as np
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2
from gradnic.hdl.axi.axi4 import ReadPort, WritePort
from gradnic.hdl.axi.register_bank import RegisterBank
from gradnic.hdl.offload.host_port import COUNTED
from gradnic.hdl.offload.host_side import HostSide
from gradnic.hdl.offload.job_records import Descriptor, Record
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.hdl.stream.delays import delayed, delayed_flag
from gradnic.hdl.stream.fifo import FIFO
from gradnic.models.frame.address import Address
from gradnic.models.offload.host_port import default_address, parse, request
from gradnic.sim.engine import batch, encoding

from gradnic.interface.host_frame import MAX_PAYLOAD, Kind
from gradnic.interface.job import COMPLETION
from gradnic.interface.register_map import BitField, Register, RegisterMap

from .pausing import Pausing

N_KIB = 64
LATENCY = 40  # cycles to the first beat of a burst, or to the answer of one written
WIDTH = 32  # bits of a byte address
BROKEN = 20480  # first byte that memory answers with ``broken``
REGIONS = ((4096, 32768), (49152, 640))  # first byte, bytes: multiples of 64
COUNTERS = (*COUNTED, "bad", "overrun", "spoofed", "answered", "stalled")
BUILD = {"beat_bytes": 64, "n_ports": 1, "n_active": 2, "options": 0x1A5}
CARD = Address(0, default_address(0x0A0B0C0D0E0F), 0xC6336400)
HOST = Address(0, 0x020000000001, 0xC6336401, 41000)
MAP = RegisterMap(
    "words",
    "Sixteen words.",
    tuple(
        Register(f"word_{k}", 4 * k, "rw", "a word", (BitField("value", 0, 32, "a word"),))
        for k in range(16)
    ),
)


class Ram(wiring.Component):
    """Memory at the two ports: bursts of up to 16 beats, 1 beat a cycle, `LATENCY` cycles.

    broken : In(2), RRESP and BRESP of bursts from `BROKEN` on: 0 as all others; 2 SLVERR, 3 DECERR,
    nothing is stored and zeros are read.
    """

    def __init__(self, n_bytes):
        self.n_bytes = n_bytes
        super().__init__(
            {
                "read": In(ReadPort(n_bytes, WIDTH)),
                "write": In(WritePort(n_bytes, WIDTH)),
                "broken": In(2),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n, low = self.n_bytes, ceil_log2(self.n_bytes)
        n_beats = 1024 * N_KIB // n
        m.submodules.memory = words = memory.Memory(shape=8 * n, depth=n_beats, init=[])
        reads, writes = words.read_port(domain="comb"), words.write_port(granularity=8)
        burst = data.StructLayout({"beat": ceil_log2(n_beats), "left": 8, "how": 2})
        for prefix, port in (("ar", self.read), ("aw", self.write)):
            m.submodules[prefix] = queue = FIFO(burst, 32)
            now, busy = Signal(burst, name=f"{prefix}_now"), Signal(name=f"{prefix}_busy")
            came = getattr(port, f"{prefix}valid")
            asked = Signal(burst, name=f"{prefix}_asked")
            m.d.comb += [
                getattr(port, f"{prefix}ready").eq(1),
                asked.beat.eq(getattr(port, f"{prefix}addr") >> low),
                asked.left.eq(getattr(port, f"{prefix}len")),
                asked.how.eq(Mux(asked.beat >= BROKEN // n, self.broken, 0)),
            ]
            late = LATENCY if prefix == "ar" else 1
            m.d.comb += [
                queue.i.valid.eq(delayed_flag(m, came, late, name=f"{prefix}_came")),
                queue.i.p.eq(delayed(m, asked, late, name=f"{prefix}_late")),
            ]
            step, last = Signal(name=f"{prefix}_step"), now.left == 0
            m.d.comb += queue.o.ready.eq(~busy | (step & last))
            with m.If(step):
                m.d.sync += [now.beat.eq(now.beat + 1), now.left.eq(now.left - 1)]
            with m.If(queue.o.ready):
                m.d.sync += [busy.eq(queue.o.valid), now.eq(queue.o.p)]
            if prefix == "ar":
                m.d.comb += [
                    port.rvalid.eq(busy),
                    reads.addr.eq(now.beat),
                    port.rdata.eq(Mux(now.how == 0, reads.data, 0)),
                    port.rresp.eq(now.how),
                    port.rlast.eq(last),
                    step.eq(busy & port.rready),
                ]
                continue
            m.submodules.answers = answers = FIFO(2, 64, never_full=True)
            m.d.comb += [
                port.wready.eq(busy),
                step.eq(busy & port.wvalid),
                writes.addr.eq(now.beat),
                writes.data.eq(port.wdata),
                writes.en.eq(port.wstrb & (step & (now.how == 0)).replicate(n)),
                answers.i.valid.eq(delayed_flag(m, step & last, LATENCY - 2, name="answered")),
                answers.i.payload.eq(delayed(m, now.how, LATENCY - 2, name="answer")),
                port.bvalid.eq(answers.o.valid),
                port.bresp.eq(answers.o.payload),
                answers.o.ready.eq(port.bready),
            ]
        return m


class HostBench(wiring.Component):
    """Members: frames as of `HostSide`, ``i`` from the host and ``o`` to it; posts, completions;
    ``whole`` : all of memory is one region; ``broken`` : see `Ram`; ``pauses`` : see `Pausing`;
    ``stalled`` : a frame of the host waits.
    """

    def __init__(self, n_bytes):
        self.side = HostSide(n_bytes, 1, WIDTH, MAP.address_width, BUILD | {"beat_bytes": n_bytes})
        self.n_bytes = n_bytes
        frames = stream.Signature(FrameBeat(n_bytes))
        super().__init__(
            {
                "i": In(frames),
                "o": Out(frames),
                "core_tx": Out(frames),
                "core_rx": In(frames),
                "mac_rx": In(frames),
                "from_network": Out(frames),
                "spoofed": Out(1),
                "answered": Out(1),
                "stalled": Out(1),
                "posts": Out(stream.Signature(Descriptor)),
                "completions": In(stream.Signature(Record)),
                "full": In(1),
                "events": In(1),
                "t_event": In(32),
                "whole": In(1),
                "broken": In(2),
                "pauses": In(32),
                "bad": Out(2),
                "overrun": Out(2),
                **{name: Out(1) for name in COUNTED},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.side = side = self.side
        m.submodules.ram = ram = Ram(self.n_bytes)
        m.submodules.pausing = pausing = Pausing(self.n_bytes, WIDTH)
        m.submodules.bank = bank = RegisterBank(MAP)
        for a, b in (
            (wiring.flipped(self.i), side.host_tx), (side.host_rx, wiring.flipped(self.o)),
            (wiring.flipped(self.core_rx), side.core_rx),
            (side.core_tx, wiring.flipped(self.core_tx)),
            (wiring.flipped(self.mac_rx), side.mac_rx[0]),
            (side.from_network[0], wiring.flipped(self.from_network)),
            (side.port_read, pausing.read), (side.port_write, pausing.write),
            (pausing.to_read, ram.read), (pausing.to_write, ram.write), (side.registers, bank.bus),
        ):  # fmt: skip
            wiring.connect(m, a, b)
        for k, (first, n_bytes) in enumerate(REGIONS):
            m.d.comb += [
                side.port_regions[k].first.eq(first // self.n_bytes),
                side.port_regions[k].n_beats.eq(n_bytes // self.n_bytes),
            ]
        with m.If(self.whole):
            m.d.comb += [
                side.port_regions[0].first.eq(0),
                side.port_regions[0].n_beats.eq(1024 * N_KIB // self.n_bytes),
            ]
        levels = ("full", "events", "t_event")
        m.d.comb += [
            ram.broken.eq(self.broken),
            pausing.pauses.eq(self.pauses),
            side.port_mac.eq(CARD.mac),
            side.port_udp_port.eq(CARD.udp_port),
            side.port_record_valid.eq(self.completions.valid),
            side.port_record.eq(self.completions.p),
            self.completions.ready.eq(side.port_take),
            side.ip.eq(CARD.ip),
            *(
                getattr(self, name).eq(getattr(side, name))
                for name in ("bad", "overrun", "spoofed", "answered")
            ),
            self.stalled.eq(self.i.valid & ~self.i.ready),
            self.posts.valid.eq(side.port_posts & ~self.full),
            self.posts.p.eq(side.port_job),
            side.port_posted.eq(self.posts.valid & self.posts.ready),
            *(getattr(side, f"port_{name}").eq(getattr(self, name)) for name in levels),
            *(getattr(self, name).eq(getattr(side, f"port_{name}")) for name in COUNTED),
        ]
        return m


@cache
def build(n_bytes):
    """Its library."""
    return batch.build(HostBench(n_bytes))


class Bench:
    """One card; its answers come when all is still."""

    def __init__(self, n_bytes):
        self.unit = batch.Instance(build(n_bytes))
        self.shape = FrameBeat(n_bytes)
        self.fresh, self.posted, self._session = True, [], 0
        self.counts = dict.fromkeys(COUNTERS, 0)
        self.levels = {
            "full": 0,
            "events": 1,
            "t_event": 1 << 30,
            "whole": 0,
            "broken": 0,
            "pauses": 0,
        }
        self.clear()

    def play(self, frames=(), *, bad=None, completions=(), stalls=None, **options):
        """[frames that come back]; see `run` for all that is seen."""
        run = self.run(frames, bad=bad, completions=completions, stalls=stalls, **options)
        return run.frames("o") if len(run.outputs["o"]) else []

    def run(self, frames=(), *, bad=None, completions=(), others=None, stalls=None, **options):
        """A run of the batch engine, which goes on from the one before; others : {input: frames}
        beside those of the host.
        """
        inputs = {
            name: encoding.pack_frames(self.shape, each) for name, each in (others or {}).items()
        }
        if len(frames):
            at_last = {"bad": np.asarray(bad)} if bad is not None else {}
            inputs["i"] = encoding.pack_frames(self.shape, list(frames), at_last=at_last)
        if len(completions):
            inputs["completions"] = encoding.pack(
                Record, **{f.name: np.array([getattr(c, f.name) for c in completions])
                           for f in COMPLETION}
            )  # fmt: skip
        options.setdefault("idle_cycles", 500)  # beyond silence, and a payload on its way
        run = self.unit.run(
            inputs, stalls=stalls, signals=self.levels, reset=self.fresh, trace=COUNTERS, **options
        )
        self.fresh = False
        for name in COUNTERS:
            self.counts[name] += int(np.sum(run.traces[name]))
        if len(run.outputs["posts"]):
            posts = run.unpack("posts")
            self.posted += [
                {name: int(posts[name][k]) for name in Descriptor.members}
                for k in range(len(run.outputs["posts"]))
            ]
        return run

    def memory(self):
        """All of memory, uint8; counters stay as they were."""
        half = 1024 * N_KIB // 2
        answers = self._on_all([(Kind.READ, k * half, b"", half) for k in range(2)])
        octets = b"".join(one["payload"] for one in answers if one["kind"] == Kind.DATA)
        return np.frombuffer(octets, np.uint8)

    def words(self):
        """All registers, list of int; counters stay as they were."""
        answers = self._on_all([(Kind.READ_REG, 0, b"", 1 << MAP.address_width)])
        (octets,) = (one["payload"] for one in answers if one["kind"] == Kind.DATA)
        return np.frombuffer(octets, ">u4").tolist()

    def clear(self):
        """All of memory is 0; counters stay as they were."""
        n = MAX_PAYLOAD
        self._on_all([(Kind.WRITE, at, bytes(n), n) for at in range(0, 1024 * N_KIB, n)])

    def _on_all(self, asked):
        """Answers to requests, (kind, address, payload, elems), while all memory is one region, in
        a session of their own: the one before is over.
        """
        counts, broken = dict(self.counts), self.levels["broken"]
        self.levels |= {"whole": 1, "broken": 0}
        self._session += 1
        of = {"session": 0xFEED0000 + self._session}
        frames = [request(CARD, HOST, Kind.HELLO, **of)]
        frames += [
            request(CARD, HOST, kind, payload, seq=1 + k, address=at, elems=n, **of)
            for k, (kind, at, payload, n) in enumerate(asked)
        ]
        answers = [parse(frame) for frame in self.play(frames, idle_cycles=2000)]
        self.levels |= {"whole": 0, "broken": broken}
        self.counts = counts
        return answers
