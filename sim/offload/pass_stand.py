"""A pass of THC jobs between memories, for the batch engine, and what memory must hold after it."""

import numpy as np
from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2
from gradnic.hdl.offload.thc_encode_pass import EncodePass
from gradnic.hdl.offload.thc_pass import DecodePass, NormPass, PassJob, ThcCell, ThcRules
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.thc.hadamard import BLOCKS
from gradnic.models.offload import bf16
from gradnic.models.thc import pack

SIZE, WIDTH = 2**16, 32  # bytes of memory, bits of an address
PLACES = {"source": 0x1000, "own_norms": 0x4000, "norms": 0x4800, "indices": 0x5000, "sums": 0x6000,
          "result": 0x8000, "residual": 0xA000, "kept": 0xD000}  # fmt: skip
KINDS = {"norm": NormPass, "encode": EncodePass, "decode": DecodePass}
WRITES = {"norm": "own_norms", "encode": "indices", "decode": "result"}
NODE, GEN, TENSOR, SEED, N = 3, 9, 5, 77, 3
GROUP = 1024  # elements that tensors are padded to


def images(worker, x, carried, half):
    """What each pass reads and writes, as bytes, by the names of their places; `carried` : residual
    before, or None. half : gradient and result are BF16. And the norms that were agreed.
    """
    source = bf16.narrow(x) if half else x
    x = bf16.widen(source) if half else x
    padded = np.zeros(-(-x.size // GROUP) * GROUP, np.float32)
    padded[: x.size] = x if carried is None else x + carried
    own = worker.norms(padded)
    norms = own.copy()
    norms[::3] += np.where(norms[::3], 1000, 0).astype(np.uint32)  # others had larger ones
    norms[5:6] = 0x7F800000
    codes = worker.encode(padded, norms, round=GEN, worker=NODE, tensor=TENSOR)
    lost = worker.residual(padded, codes, norms, tensor=TENSOR)[: x.size]
    sums = np.random.default_rng(1).integers(0, N * worker.g + 1, padded.size)
    mean = worker.decode(sums, norms, round=GEN, tensor=TENSOR)[: x.size]
    return {
        "source": source.tobytes(), "own_norms": own.tobytes(), "norms": norms.tobytes(),
        "indices": pack(codes, 4), "sums": sums.astype(np.uint8).tobytes(),
        "result": (bf16.narrow(mean) if half else mean).tobytes(),
        "residual": b"" if carried is None else carried.tobytes(), "kept": lost.tobytes(),
    }, norms  # fmt: skip


def constant(shape, **fields):
    """An integer: a struct with these fields, others 0."""
    return shape.const(fields).as_value().value


def scale(worker, n):
    """C0 of the sums of `n` workers, FP32 bits."""
    return int(np.float32(worker.t_fixed / 256 / (n * worker.g * worker.B)).view(np.uint32))


def rules(worker):
    """Settings of a pass: fields of `ThcRules`."""
    return {"log4": BLOCKS.index(worker.B), "t_fixed": worker.t_fixed, "unit": worker.unit,
            "g": worker.g, "middle": int(worker.table[len(worker.table) // 2]),
            "own_scale": scale(worker, 1)}  # fmt: skip


def cells(worker):
    """Entries of the quantizers' table: fields of `ThcCell`."""
    for index, (lower, level, gap) in enumerate(worker._cells.tolist()):
        cell = {"lower": lower, "above": index - level // 256, "gap": gap}
        yield {"enable": 1, "index": index, "cell": cell}


def job(n_bytes, worker, x, norms, *, carried, half):
    """Fields of `PassJob`."""
    return {name: place // n_bytes for name, place in PLACES.items()} | {
        "n_beats": -(-x.nbytes // n_bytes), "tail": x.size % (n_bytes // 2),
        "n_blocks": norms.size, "seed": SEED, "gen": GEN, "tensor": TENSOR,
        "offset": N * worker.g, "scale": scale(worker, N), "feedback": carried is not None,
        "bf16": half,
    }  # fmt: skip


class PassStand(wiring.Component):
    """A pass with a memory that it reads; what it writes are streams.

    Members
    -------
    As of the pass, without its ports, and:

    fill_en, fill_addr, fill_data : In
        A beat of memory.
    holds : In(1)
        Memory gives nothing. bad_read, bad_write : In(1), its answers are errors
    asked, written : Out(streams) of each port for writes, and ``residual_`` for that of residuals
    reads : Out(stream) of addresses.
    """

    def __init__(self, inner):
        self.inner = inner
        n, members = inner.n_bytes, {}
        self.ports = {}
        for name, member in inner.signature.members.items():
            if not member.is_signature:
                members[name] = member
                continue
            self.ports[name] = prefix = name.removesuffix("read").removesuffix("write")
            asks = stream.Signature(data.StructLayout({"addr": WIDTH, "len": 8}))
            if name.endswith("read"):
                members[f"{prefix}reads"] = Out(asks)
            else:
                members[f"{prefix}asked"] = Out(asks)
                beat = data.StructLayout({"data": 8 * n, "strb": n, "last": 1})
                members[f"{prefix}written"] = Out(stream.Signature(beat))
        fills = {"fill_en": In(1), "fill_addr": In(12), "fill_data": In(8 * n), "holds": In(1)}
        super().__init__(members | fills | {"bad_read": In(1), "bad_write": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = self.inner
        m.submodules.memory = array = memory.Memory(
            shape=8 * inner.n_bytes, depth=SIZE // inner.n_bytes, init=[]
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
        for name, prefix in self.ports.items():
            (self._read if name.endswith("read") else self._write)(m, name, prefix, array)
        return m

    def _asks(self, m, port, letter, out, queue):
        m.d.comb += [
            out.p.addr.eq(getattr(port, f"{letter}addr")),
            out.p.len.eq(getattr(port, f"{letter}len")),
            out.valid.eq(getattr(port, f"{letter}valid") & queue.i.ready),
            getattr(port, f"{letter}ready").eq(out.ready & queue.i.ready),
            queue.i.valid.eq(out.valid & out.ready),
        ]

    def _read(self, m, name, prefix, array):
        port, out = getattr(self.inner, name), getattr(self, f"{prefix}reads")
        m.submodules[f"{name}_bursts"] = queue = FIFO(out.p.shape(), 32)
        self._asks(m, port, "ar", out, queue)
        read, at = array.read_port(domain="comb"), Signal(8, name=f"{name}_at")
        low = ceil_log2(self.inner.n_bytes)
        m.d.comb += [
            queue.i.p.eq(out.p),
            read.addr.eq(queue.o.p.addr[low:] + at),
            port.rvalid.eq(queue.o.valid & ~self.holds),
            port.rdata.eq(read.data),
            port.rresp.eq(self.bad_read << 1),
            port.rlast.eq(at == queue.o.p.len),
            queue.o.ready.eq(port.rvalid & port.rready & port.rlast),
        ]
        with m.If(port.rvalid & port.rready):
            m.d.sync += at.eq(at + 1)
            with m.If(port.rlast):
                m.d.sync += at.eq(0)

    def _write(self, m, name, prefix, array):
        port, out = getattr(self.inner, name), getattr(self, f"{prefix}written")
        m.submodules[f"{name}_bursts"] = queue = FIFO(1, 32)
        self._asks(m, port, "aw", getattr(self, f"{prefix}asked"), queue)
        whole = Signal(8, name=f"{name}_whole")
        m.d.comb += [
            *(out.p[field].eq(getattr(port, f"w{field}")) for field in ("data", "strb", "last")),
            out.valid.eq(port.wvalid),
            port.wready.eq(out.ready),
            port.bvalid.eq(queue.o.valid & (whole != 0) & ~self.holds),
            port.bresp.eq(self.bad_write << 1),
            queue.o.ready.eq(port.bvalid & port.bready),
        ]
        ends = port.wvalid & port.wready & port.wlast
        m.d.sync += whole.eq(whole + ends - (port.bvalid & port.bready))


def _rows(values, size):
    return np.array([np.frombuffer(v.to_bytes(size, "little"), np.uint8) for v in values])


def bursts(asked, written, n_bytes):
    """{address of a byte: value} of what was written, and the beats' order is that of addresses.

    AssertionError unless bursts are whole and within 4 KiB.
    """
    found, beat = {}, iter(zip(written["data"], written["strb"], written["last"], strict=True))
    for address, less_1 in zip(asked["addr"].tolist(), asked["len"].tolist(), strict=True):
        assert address // 4096 == (address + n_bytes * (less_1 + 1) - 1) // 4096, "crosses 4 KiB"
        for k in range(less_1 + 1):
            octets, strobe, last = next(beat, (None, 0, 0))
            assert octets is not None, "beats are missing"
            assert last == (k == less_1), "last"
            for i in range(n_bytes):
                if int(strobe) >> i & 1:
                    place = address + n_bytes * k + i
                    assert place not in found, "twice"
                    found[place] = int(octets[i])
    assert next(beat, None) is None, "beats that nobody asked for"
    return found


class Stand:
    """Runs of one pass. kind : a key of `WRITES`. n_bytes : of a beat."""

    def __init__(self, model, kind, n_bytes=16):
        self.model, self.kind, self.n_bytes = model, kind, n_bytes
        self.instance = model.instance()

    def play(self, worker, x, carried=None, half=0, *, stalls=None, holds=0, cycles=None, bad=None):
        """One job, from reset; what it wrote and told is compared. Cycles from start to done.

        holds : share of cycles in which memory gives nothing. bad : "read" or "write", all answers
        are errors, and only that is looked at that the pass says so.
        """
        n = self.n_bytes
        wanted, norms = images(worker, x, carried, half)
        memory = np.random.default_rng(3).integers(0, 256, SIZE, np.uint8)
        used = np.zeros(SIZE, bool)
        for name, place in PLACES.items():
            octets = np.frombuffer(wanted[name], np.uint8)
            if name not in (WRITES[self.kind], "kept"):
                memory[place : place + octets.size] = octets
                used[place : place + octets.size] = True  # the rest of a beat stays noise
        used = np.flatnonzero(used.reshape(-1, n).any(axis=1))
        told = [constant(ThcCell, **cell) for cell in cells(worker)]
        begin = max(used.size, len(told)) + 2
        cycles = cycles or 2 * x.size // (n // 4) + 2000
        rng = np.random.default_rng(2)
        fields = job(n, worker, x, norms, carried=carried, half=half)
        shape = PassJob(n, WIDTH)
        signals = {
            "fill_en": [1] * used.size + [0],
            "fill_addr": used,
            "fill_data": memory.reshape(-1, n)[used],
            "start": [0] * begin + [1],
            "holds": rng.random(begin + cycles) < holds,
            "bad_read": int(bad == "read"),
            "bad_write": int(bad == "write"),
            "rules": _rows([constant(ThcRules, **rules(worker))], -(-ThcRules.size // 8)),
            "job": _rows([constant(shape, **fields)], -(-shape.size // 8)),
        }
        if self.kind == "encode":
            signals |= {"node": NODE, "cell": [*told, 0]}
        trace = ["done", "failed", *(["check"] if self.kind == "encode" else [])]
        run = self.instance.run(
            {}, signals=signals, stalls=stalls, trace=trace, drain=False,
            max_cycles=begin + cycles, probe_cycles=0,
        )  # fmt: skip
        failed = run.traces["failed"].astype(bool)
        if bad:
            assert failed.any(), "an error that is not told"
            return 0
        assert not failed.any(), "failed"
        done = run.traces["done"].astype(bool)
        assert done[-1], "not done"
        first = int(done.argmax())
        assert done[first:].all(), "done does not last"
        self._compare(run, wanted, x, norms, worker, carried)
        return first - begin

    def _compare(self, run, wanted, x, norms, worker, carried):
        n, name = self.n_bytes, WRITES[self.kind]
        found = bursts(run.unpack("asked"), run.unpack("written"), n)
        place = PLACES[name]
        octets = wanted[name]
        spare = -len(octets) % n if self.kind == "norm" else 0  # norms end with their beat
        want = {place + k: octet for k, octet in enumerate(octets)}
        for k in range(spare):
            found.pop(place + len(octets) + k, None)
        assert found == want, name
        if self.kind != "encode":
            return
        found = {}
        if "residual_asked" in self.model.outputs:
            found = bursts(run.unpack("residual_asked"), run.unpack("residual_written"), n)
        place = PLACES["kept"]
        octets = b"" if carried is None else wanted["kept"]
        assert found == {place + k: octet for k, octet in enumerate(octets)}, "kept"
        checks = [int(check) for check in run.traces["check"] if int(check) & 1]
        per = GROUP // worker.B
        told = np.bitwise_xor.reduce(norms.reshape(-1, per), axis=1) & 0xFFFFF
        assert checks == [1 | k << 1 | int(v) << 17 for k, v in enumerate(told)], "checks"
