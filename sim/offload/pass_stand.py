"""A pass of THC jobs beside a memory, for the batch engine; and what it must ask for and write."""

from dataclasses import dataclass

import numpy as np
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2
from gradnic.hdl.offload.thc_encode_pass import EncodePass
from gradnic.hdl.offload.thc_pass import DecodePass, NormPass, PassJob, ThcCell, ThcRules
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.thc.hadamard import BLOCKS
from gradnic.models.offload.thc_pass import ThcPasses
from gradnic.models.thc import Worker

SIZE, WIDTH = 2**20, 32  # bytes of memory, which repeats; bits of an address
PLACES = {"source": 0x00000, "residual": 0x40000, "sums": 0x80000, "norms": 0xA0000,
          "own_norms": 0xA1000, "indices": 0xA2000, "result": 0xB0000, "kept": 0xF0000}  # fmt: skip
KINDS = {"norm": NormPass, "encode": EncodePass, "decode": DecodePass}
READS = {"norm": ("source",), "encode": ("norms", "source"), "decode": ("norms", "sums")}
WRITES = {"norm": "own_norms", "encode": "indices", "decode": "result"}
GROUP = 1024  # elements that tensors are padded to
BURST = 16  # beats, at most
PORTS = "read", "write", "residual_read", "residual_write"  # a pass has the first ones


def constant(shape, **fields):
    """An integer: a struct with these fields, others 0."""
    return shape.const(fields).as_value().value


def scale(worker, n):
    """C0 of the sums of `n` workers, FP32 bits."""
    return int(np.float32(worker.t_fixed / 256 / (n * worker.g * worker.B)).view(np.uint32))


@dataclass
class Turn:
    """What a pass works on.

    x : gradient. carried : residual before, or None. half : gradient and result are BF16. code : of
    sums, 0, 1, 2 for 8, 12, 16 bits. places : byte addresses, of whole beats.
    group : elements that the tensor is padded to. norms, sums : what is decoded, in place of noise.
    """

    worker: Worker
    x: np.ndarray
    carried: np.ndarray | None = None
    half: int = 0
    code: int = 0
    tensor: int = 5
    node: int = 3
    places: dict | None = None
    group: int = GROUP
    norms: np.ndarray | None = None
    sums: np.ndarray | None = None

    def __post_init__(self):
        self.places = self.places or PLACES
        worker, size = self.worker, self.x.size
        passes = ThcPasses(
            worker, self.x, -(-size // self.group) * self.group, worker.sign_round, self.tensor,
            self.node, self.carried, bool(self.half),
        )  # fmt: skip
        own = passes.norms()
        norms = own.copy()
        norms[::3] += np.where(norms[::3], 1000, 0).astype(np.uint32)  # others had larger ones
        norms[5:6], norms[9:10] = 0x7F800000, np.maximum(norms[9:10], 0x7F000000)
        norms[2::7] -= np.minimum(norms[2::7], 1)  # what no maximum is: below the own ones
        norms[3::7] -= np.where(norms[3::7] >> 24, 1 << 23, 0).astype(np.uint32)
        norms[4::7] = np.minimum(norms[4::7], 1 << 23)
        norms = norms if self.norms is None else self.norms
        rng = np.random.default_rng(worker.seed)
        sums = rng.integers(0, worker.n * worker.g + 1, passes.n_elems)
        sums = sums if self.sums is None else self.sums
        self.n_padded, self.norms = passes.n_elems, norms
        self.images = passes.in_memory(norms, sums, self.code)
        """What passes read and write, as bytes, by the names of their places."""

    def rules(self):
        """Settings of a pass: fields of `ThcRules`."""
        worker = self.worker
        return {"log4": BLOCKS.index(worker.B), "t_fixed": worker.t_fixed, "unit": worker.unit,
                "g": worker.g, "middle": int(worker.table[len(worker.table) // 2]),
                "own_scale": scale(worker, 1), "bits": worker.b}  # fmt: skip

    def cells(self):
        """Entries of the quantizers' table: fields of `ThcCell`."""
        for index, (lower, level, gap) in enumerate(self.worker._cells.tolist()):
            cell = {"lower": lower, "above": index - level // 256, "gap": gap}
            yield {"enable": 1, "index": index, "cell": cell}

    def job(self, n_bytes):
        """Fields of `PassJob`."""
        worker, x = self.worker, self.x
        return {name: place // n_bytes for name, place in self.places.items()} | {
            "n_beats": -(-x.nbytes // n_bytes), "tail": x.size % (n_bytes // 2),
            "n_blocks": self.norms.size, "seed": worker.seed, "gen": worker.sign_round,
            "tensor": self.tensor, "offset": worker.n * worker.g, "code": self.code,
            "scale": scale(worker, worker.n), "feedback": self.carried is not None,
            "bf16": self.half,
        }  # fmt: skip

    def checks(self):
        """XOR of the norms of each packet: 1024 elements, or 512 with sums of more than 8 bits."""
        per = GROUP // (2 if self.code else 1) // self.worker.B
        if not per:
            return np.repeat(self.norms, 2) & 0xFFFFF
        return np.bitwise_xor.reduce(self.norms.reshape(-1, per), axis=1) & 0xFFFFF

    def reads(self, kind, n_bytes):
        """Bursts that the pass reads, in order: (address, beats less 1)."""
        firsts = {name: place // n_bytes for name, place in self.places.items()}
        beats = {name: -(-len(octets) // n_bytes) for name, octets in self.images.items()}
        *norms, values = READS[kind]
        if not norms:
            return cut(firsts[values], beats[values], n_bytes)
        per = (
            self.worker.B * (self.code + 2) // 8 if kind == "decode" else self.worker.B >> self.half
        )
        ranges = [(firsts["norms"] + k, 1) for k in range(beats["norms"])]
        turns = [
            (firsts[values] + k, min(per, beats[values] - k)) for k in range(0, beats[values], per)
        ]
        order = ranges[:1]
        for k in range(max(len(ranges), len(turns))):
            order += ranges[k + 1 : k + 2] + turns[k : k + 1]
        return [burst for first, n in order for burst in cut(first, n, n_bytes)]


def cut(first, n_beats, n_bytes):
    """Bursts of a range: (address, beats less 1), cut at multiples of their own size."""
    found, end = [], first + n_beats
    while first < end:
        stop = min(end, (first // BURST + 1) * BURST)
        found.append((first * n_bytes, stop - first - 1))
        first = stop
    return found


class PassStand(wiring.Component):
    """A pass with a memory that it reads; what it writes are streams.

    Members
    -------
    As of the pass, without its ports, and:

    fill_en, fill_addr, fill_data : In
        A beat of memory.
    holds, late : In(1)
        Memory gives nothing to read, and no answer.
    bad : In(n_ports)
        Its answers are errors, at each of `PORTS`.
    answered : Out(n_ports)
        An answer to a write.
    asked, written : Out(streams) of each port for writes, and ``residual_`` for that of residuals
    reads : Out(stream) of addresses.
    """

    def __init__(self, inner):
        self.inner = inner
        n, members = inner.n_bytes, {}
        self.names = [name for name in PORTS if name in inner.signature.members]
        for name, member in inner.signature.members.items():
            if not member.is_signature:
                members[name] = member
                continue
            prefix = _prefix(name)
            asks = stream.Signature(data.StructLayout({"addr": WIDTH, "len": 8}))
            if name.endswith("read"):
                members[f"{prefix}reads"] = Out(asks)
            else:
                members[f"{prefix}asked"] = Out(asks)
                beat = data.StructLayout({"data": 8 * n, "strb": n, "last": 1})
                members[f"{prefix}written"] = Out(stream.Signature(beat))
        self.depth = SIZE // n
        fills = {"fill_en": In(1), "fill_addr": In(range(self.depth)), "fill_data": In(8 * n)}
        ports = len(self.names)
        more = {"holds": In(1), "late": In(1), "bad": In(ports), "answered": Out(ports)}
        super().__init__(members | fills | more)

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = self.inner
        m.submodules.memory = array = memory.Memory(
            shape=8 * inner.n_bytes, depth=self.depth, init=[]
        )
        fill = array.write_port()
        m.d.comb += [fill.en.eq(self.fill_en), fill.addr.eq(self.fill_addr),
                     fill.data.eq(self.fill_data)]  # fmt: skip
        for name, member in inner.signature.members.items():
            if not member.is_signature:
                outer = getattr(self, name)
                pair = (outer, getattr(inner, name))
                first, second = pair if member.flow == Out else pair[::-1]
                m.d.comb += first.eq(second)
        for k, name in enumerate(self.names):
            if name.endswith("read"):
                self._read(m, name, self.bad[k], array)
            else:
                self._write(m, name, self.bad[k], self.answered[k])
        return m

    def _asks(self, m, port, letter, out, queue):
        m.d.comb += [
            out.p.addr.eq(getattr(port, f"{letter}addr")),
            out.p.len.eq(getattr(port, f"{letter}len")),
            out.valid.eq(getattr(port, f"{letter}valid") & queue.i.ready),
            getattr(port, f"{letter}ready").eq(out.ready & queue.i.ready),
            queue.i.valid.eq(out.valid & out.ready),
        ]

    def _read(self, m, name, bad, array):
        port, out = getattr(self.inner, name), getattr(self, f"{_prefix(name)}reads")
        m.submodules[f"{name}_bursts"] = queue = FIFO(out.p.shape(), 32)
        self._asks(m, port, "ar", out, queue)
        read, at = array.read_port(domain="comb"), Signal(8, name=f"{name}_at")
        low = ceil_log2(self.inner.n_bytes)
        m.d.comb += [
            queue.i.p.eq(out.p),
            read.addr.eq(queue.o.p.addr[low:] + at),
            port.rvalid.eq(queue.o.valid & ~self.holds),
            port.rdata.eq(read.data),
            port.rresp.eq(Cat(0, bad)),
            port.rlast.eq(at == queue.o.p.len),
            queue.o.ready.eq(port.rvalid & port.rready & port.rlast),
        ]
        with m.If(port.rvalid & port.rready):
            m.d.sync += at.eq(at + 1)
            with m.If(port.rlast):
                m.d.sync += at.eq(0)

    def _write(self, m, name, bad, answered):
        port, prefix = getattr(self.inner, name), _prefix(name)
        out = getattr(self, f"{prefix}written")
        m.submodules[f"{name}_bursts"] = queue = FIFO(1, 32)
        self._asks(m, port, "aw", getattr(self, f"{prefix}asked"), queue)
        whole = Signal(8, name=f"{name}_whole")
        m.d.comb += [
            *(out.p[field].eq(getattr(port, f"w{field}")) for field in ("data", "strb", "last")),
            out.valid.eq(port.wvalid),
            port.wready.eq(out.ready),
            port.bvalid.eq(queue.o.valid & (whole != 0) & ~self.late),
            port.bresp.eq(Cat(0, bad)),
            answered.eq(port.bvalid & port.bready),
            queue.o.ready.eq(answered),
        ]
        ends = port.wvalid & port.wready & port.wlast
        m.d.sync += whole.eq(whole + ends - answered)


def _prefix(name):
    return name.removesuffix("read").removesuffix("write")


def _rows(values, size):
    return np.array([np.frombuffer(v.to_bytes(size, "little"), np.uint8) for v in values])


class Stand:
    """Runs of one pass. kind : a key of `WRITES`. n_bytes, widths : as of the pass."""

    def __init__(self, model, kind, n_bytes, widths):
        self.model, self.kind, self.n_bytes, self.widths = model, kind, n_bytes, widths
        self.names = PORTS[: model.levels["bad"].shape]
        self.instance = model.instance()

    def play(self, turn, *, stalls=None, holds=0, late=(0,), cycles=2000, bad=None, whole=True):
        """One job, from reset; what it asked for, wrote and told is compared. Cycles until done.

        stalls : as of `run`; patterns begin with the job.
        holds : share of cycles in which memory gives nothing. late : cycles of the job in which it
        answers no writes. bad : port whose answers are all errors. cycles : that may be needed.
        whole : False leaves the job as it is then.
        """
        n = self.n_bytes
        memory = np.random.default_rng(3).integers(0, 256, SIZE, np.uint8)
        used = np.zeros(SIZE // n, bool)  # the rest of a beat stays noise
        for name in (*READS[self.kind], "residual"):
            octets = np.frombuffer(turn.images[name], np.uint8)
            memory[(turn.places[name] + np.arange(octets.size)) % SIZE] = octets
            beats = turn.places[name] // n + np.arange(-(-octets.size // n))
            used[beats % used.size] = True
        used = np.flatnonzero(used)
        cells = [constant(ThcCell, **cell) for cell in turn.cells()]
        begin = max(used.size, len(cells)) + 20
        rng = np.random.default_rng(2)
        shape = PassJob(n, WIDTH, self.widths)
        signals = {
            "fill_en": [1] * used.size + [0],
            "fill_addr": used,
            "fill_data": memory.reshape(-1, n)[used],
            "start": [0] * begin + [1],
            "holds": rng.random(begin + cycles) < holds,
            "late": np.concatenate([np.zeros(begin, int), late]),
            "bad": 1 << self.names.index(bad) if bad else 0,
            "rules": _rows([constant(ThcRules, **turn.rules())], -(-ThcRules.size // 8)),
            "job": _rows([constant(shape, **turn.job(n))], -(-shape.size // 8)),
        }
        if self.kind == "encode":
            signals |= {"node": turn.node, "cell": [*cells, 0]}
        trace = ["done", "failed", "answered", *(["check"] if self.kind == "encode" else [])]
        stalls = {
            name: (np.concatenate([np.ones(begin), stall[0]]), stall[1])
            if isinstance(stall, tuple) else stall
            for name, stall in (stalls or {}).items()
        }  # fmt: skip
        run = self.instance.run(
            {}, signals=signals, stalls=stalls, trace=trace, drain=False,
            max_cycles=begin + cycles, probe_cycles=0,
        )  # fmt: skip
        if not whole:
            return 0
        done = run.traces["done"].astype(bool)
        assert done[-1], "not done"
        first = int(done.argmax())
        assert done[first:].all(), "done does not last"
        answers = np.flatnonzero(run.traces["answered"])
        assert answers.size, "no answers"
        assert first == answers[-1] + 2, f"done {first - answers[-1]} cycles behind the last answer"
        failures = self._compare(run, turn, bad)
        n_failed = int(run.traces["failed"].sum())
        assert n_failed == failures, f"{n_failed} failures told, not {failures}"
        times = [taken[0] for taken in run.taken.values() if taken.size]
        assert min(times) > begin, "asks before it begins"
        if self.kind == "encode":
            checks = [int(check) for check in run.traces["check"] if int(check) & 1]
            want = [1 | k << 1 | int(v) << 17 for k, v in enumerate(turn.checks())]
            assert checks == want, "checks"
        return first - begin

    def _compare(self, run, turn, bad):
        """Bursts, and beats that are written. Returns how often port `bad` fails."""
        n, name = self.n_bytes, WRITES[self.kind]
        fails = 0
        for port in self.names:
            prefix, again = _prefix(port), port.startswith("residual")
            if port.endswith("read"):
                want = turn.reads(self.kind, n)
                if again:
                    beats = -(-len(turn.images["residual"]) // n)
                    want = cut(turn.places["residual"] // n, beats, n)
                _same_bursts(run.unpack(f"{prefix}reads"), want, f"{prefix}reads")
                fails += (bad == port) * sum(less_1 + 1 for _, less_1 in want)
                continue
            octets = turn.images["kept" if again else name]
            first, beats = turn.places["kept" if again else name] // n, -(-len(octets) // n)
            ranges = [(first + k, min(BURST, beats - k)) for k in range(0, beats, BURST)]
            want = [burst for where, size in ranges for burst in cut(where, size, n)]
            _same_bursts(run.unpack(f"{prefix}asked"), want, f"{prefix}asked")
            _same_beats(run.unpack(f"{prefix}written"), want, octets, n, name == "own_norms")
            fails += (bad == port) * len(ranges)
        return fails


def _same_bursts(got, want, name):
    got = list(zip(got["addr"].tolist(), got["len"].tolist(), strict=True))
    assert got == want, f"{name}: {len(got)} bursts, {len(want)} wanted"


def _same_beats(got, bursts, octets, n_bytes, fills):
    """fills : all of the last beat is written, with anything."""
    n_beats = -(-len(octets) // n_bytes)
    assert len(got["last"]) == n_beats, f"{len(got['last'])} beats, not {n_beats}"
    ends = [k == less_1 for _, less_1 in bursts for k in range(less_1 + 1)]
    assert got["last"].astype(bool).tolist() == ends, "last"
    kept = np.arange(n_beats * n_bytes).reshape(-1, n_bytes) < len(octets)
    strobes = np.asarray(got["strb"], np.int64)[:, None] >> np.arange(n_bytes) & 1
    assert (strobes == (kept | fills)).all(), "strobes"
    want = np.zeros(n_beats * n_bytes, np.uint8)
    want[: len(octets)] = np.frombuffer(octets, np.uint8)
    octets = np.ascontiguousarray(got["data"]).view(np.uint8)  # of 8 bytes it is an integer
    wrong = (octets.reshape(-1, n_bytes) != want.reshape(-1, n_bytes)) & kept
    wrong = np.flatnonzero(wrong.any(axis=1))
    assert not wrong.size, f"beat {wrong[0]} of {n_beats}"
